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

/// Which release of the software GPU this is, for whoever keeps what was measured on it: `detshare_cuda::release`.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "a name among those of functions")]
static detshare_softgpu_release: [u8; RELEASE.len()] = *RELEASE;
const RELEASE: &[u8; RELEASE_TEXT.len()] = match RELEASE_TEXT.as_bytes().first_chunk() {
    Some(text) => text,
    None => panic!("as long as it is"),
};
const RELEASE_TEXT: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");

include!(concat!(env!("OUT_DIR"), "/exports.rs"));
