//! Result codes by name.

use crate::generated_results::RESULTS;
use crate::types::CUresult;
use core::ffi::CStr;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::LazyLock;

/// The code's name in the header, as `cuGetErrorName` gives it.
#[must_use]
pub fn result_name(result: CUresult) -> Option<&'static CStr> {
    RESULTS.iter().find(|(code, _)| *code == result.0).map(|(_, name)| *name)
}

/// The code in words, as `cuGetErrorString` gives them: its name, readable.
#[must_use]
pub fn result_text(result: CUresult) -> Option<&'static CStr> {
    static TEXTS: LazyLock<HashMap<u32, CString>> = LazyLock::new(|| {
        let readable = |name: &CStr| {
            let name = name.to_string_lossy();
            let words = match name.strip_prefix("CUDA_ERROR_") {
                Some(error) => error.to_lowercase().replace('_', " "),
                None => "no error".into(),
            };
            CString::new(words).unwrap_or_default()
        };
        RESULTS.iter().map(|(code, name)| (*code, readable(name))).collect()
    });
    TEXTS.get(&result.0).map(CString::as_c_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        assert_eq!(result_name(CUresult::CUDA_SUCCESS), Some(c"CUDA_SUCCESS"));
        assert_eq!(result_name(CUresult::CUDA_ERROR_NO_DEVICE), Some(c"CUDA_ERROR_NO_DEVICE"));
        assert_eq!(result_name(CUresult(123_456)), None);
        assert_eq!(result_text(CUresult::CUDA_ERROR_NO_DEVICE), Some(c"no device"));
        assert_eq!(result_text(CUresult(123_456)), None);
    }
}
