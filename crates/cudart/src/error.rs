//! What errors are called, and what they mean.

use crate::types::cudaError_t;
use core::ffi::CStr;

pub(crate) fn name(error: cudaError_t) -> &'static CStr {
    detshare_cuda::runtime_error_name(error.0)
}

pub(crate) fn text(error: cudaError_t) -> &'static CStr {
    detshare_cuda::runtime_error_text(error.0)
}
