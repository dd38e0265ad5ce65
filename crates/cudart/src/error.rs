//! What errors are called, and what they mean.

use crate::types::cudaError_t;
use core::ffi::CStr;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

#[rustfmt::skip]
mod generated {
    include!("generated/errors.rs");
}

const UNKNOWN: &CStr = c"unrecognized error code";

pub(crate) fn name(error: cudaError_t) -> &'static CStr {
    generated::ERRORS.iter().find(|(value, _)| *value == error.0).map_or(UNKNOWN, |(_, name)| name)
}

/// The error in words: its name, readable.
pub(crate) fn text(error: cudaError_t) -> &'static CStr {
    static TEXTS: LazyLock<HashMap<u32, CString>> = LazyLock::new(|| {
        let entry = |(value, name): &(u32, &CStr)| {
            (*value, CString::new(readable(&name.to_string_lossy())).unwrap_or_default())
        };
        generated::ERRORS.iter().map(entry).collect()
    });
    TEXTS.get(&error.0).map_or(UNKNOWN, CString::as_c_str)
}

/// `cudaErrorInvalidValue` as `invalid value`.
fn readable(name: &str) -> String {
    let Some(words) = name.strip_prefix("cudaError") else { return "no error".into() };
    let mut text = String::new();
    let letters: Vec<char> = words.chars().collect();
    for (index, letter) in letters.iter().enumerate() {
        // A word begins at a capital, but of those in a row only the last before a small letter begins one.
        let follows_small = index > 0 && !letters[index - 1].is_ascii_uppercase();
        let before_small = letters.get(index + 1).is_some_and(char::is_ascii_lowercase);
        if index > 0 && letter.is_ascii_uppercase() && (follows_small || before_small) {
            text.push(' ');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_its_name_and_a_text() {
        assert_eq!(name(cudaError_t::cudaErrorMemoryAllocation), c"cudaErrorMemoryAllocation");
        assert_eq!(name(cudaError_t(4_711)), UNKNOWN);
        assert_eq!(text(cudaError_t(4_711)), UNKNOWN);
        assert_eq!(text(cudaError_t::cudaSuccess), c"no error");
        assert_eq!(text(cudaError_t::cudaErrorInvalidValue), c"invalid value");
        assert_eq!(text(cudaError_t::cudaErrorECCUncorrectable), c"ecc uncorrectable");
    }
}
