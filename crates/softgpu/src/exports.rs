//! The exported symbols, made by the build script: one for each function of the table.

#![allow(non_snake_case, clippy::wildcard_imports, clippy::too_many_arguments, reason = "the names are the C API's")]

use crate::{api, boundary};
use core::ffi::*;
use detshare_cuda::types::*;

/// `CU_STREAM_LEGACY`.
pub(crate) const LEGACY: CUstream = CUstream(core::ptr::without_provenance_mut(1));
/// `CU_STREAM_PER_THREAD`.
pub(crate) const PER_THREAD: CUstream = CUstream(core::ptr::without_provenance_mut(2));

/// NULL is what the variant of the function means by it.
fn explicit(stream: CUstream, default: CUstream) -> CUstream {
    if stream.0.is_null() { default } else { stream }
}

/// The address of an exported function.
pub(crate) struct Address(pub(crate) *const c_void);

// SAFETY: the address of a function, which any thread may call.
unsafe impl Sync for Address {}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
