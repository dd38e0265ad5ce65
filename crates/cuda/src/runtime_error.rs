//! The runtime's errors by name. Programs get them from the runtime, kernels that launch kernels from the driver.

use crate::generated_runtime_errors::ERRORS;
use core::ffi::CStr;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

/// What an error is called that there is not.
const UNKNOWN: &CStr = c"unrecognized error code";

/// All errors by their numbers, with what they are called and what they mean.
pub fn runtime_errors() -> impl Iterator<Item = (u32, &'static CStr, &'static CStr)> {
    ERRORS.iter().map(|(error, name)| (*error, *name, runtime_error_text(*error)))
}

/// The error's name in the header, as `cudaGetErrorName` gives it.
#[must_use]
pub fn runtime_error_name(error: u32) -> &'static CStr {
    ERRORS.iter().find(|(value, _)| *value == error).map_or(UNKNOWN, |(_, name)| name)
}

/// The error in words, as `cudaGetErrorString` gives them: its name, readable.
#[must_use]
pub fn runtime_error_text(error: u32) -> &'static CStr {
    static TEXTS: LazyLock<HashMap<u32, CString>> = LazyLock::new(|| {
        let entry = |(value, name): &(u32, &CStr)| {
            (*value, CString::new(readable(&name.to_string_lossy())).unwrap_or_default())
        };
        ERRORS.iter().map(entry).collect()
    });
    TEXTS.get(&error).map_or(UNKNOWN, CString::as_c_str)
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
        assert_eq!(runtime_error_name(2), c"cudaErrorMemoryAllocation");
        assert_eq!(runtime_error_name(4_711), UNKNOWN);
        assert_eq!(runtime_error_text(4_711), UNKNOWN);
        assert_eq!(runtime_error_text(0), c"no error");
        assert_eq!(runtime_error_text(1), c"invalid value");
        assert_eq!(runtime_error_text(214), c"ecc uncorrectable");
    }
}
