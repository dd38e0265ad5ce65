//! Result codes by name.

use crate::generated_results::RESULTS;
use crate::types::CUresult;
use core::ffi::CStr;

/// The code's name in the header, as `cuGetErrorName` gives it.
#[must_use]
pub fn result_name(result: CUresult) -> Option<&'static CStr> {
    RESULTS.iter().find(|(code, _)| *code == result.0).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        assert_eq!(result_name(CUresult::CUDA_SUCCESS), Some(c"CUDA_SUCCESS"));
        assert_eq!(result_name(CUresult::CUDA_ERROR_NO_DEVICE), Some(c"CUDA_ERROR_NO_DEVICE"));
        assert_eq!(result_name(CUresult(123_456)), None);
    }
}
