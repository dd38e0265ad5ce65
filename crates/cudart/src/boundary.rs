//! Where a program's call enters: codes out, panics kept in, and the last error.

use crate::types::{cudaError_t, cudaStream_t};
use core::cell::Cell;
use core::ptr::without_provenance_mut;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a function of the runtime comes to.
pub type Outcome<T = ()> = Result<T, cudaError_t>;

/// The default stream of a context.
pub const LEGACY: cudaStream_t = detshare_cuda::types::CUstream(without_provenance_mut(1));
/// The calling thread's default stream.
pub const PER_THREAD: cudaStream_t = detshare_cuda::types::CUstream(without_provenance_mut(2));

/// A context in which one of these has happened is broken for good, and the error stays.
const STICKY: [cudaError_t; 11] = [
    cudaError_t::cudaErrorECCUncorrectable,
    cudaError_t::cudaErrorIllegalAddress,
    cudaError_t::cudaErrorLaunchTimeout,
    cudaError_t::cudaErrorAssert,
    cudaError_t::cudaErrorHardwareStackError,
    cudaError_t::cudaErrorIllegalInstruction,
    cudaError_t::cudaErrorMisalignedAddress,
    cudaError_t::cudaErrorInvalidAddressSpace,
    cudaError_t::cudaErrorInvalidPc,
    cudaError_t::cudaErrorLaunchFailure,
    cudaError_t::cudaErrorExternalDevice,
];

thread_local! {
    static LAST: Cell<cudaError_t> = const { Cell::new(cudaError_t::cudaSuccess) };
}

/// Runs one function of the runtime for a program, and remembers its error.
pub fn call(body: impl FnOnce() -> Outcome) -> cudaError_t {
    let error = catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(cudaError_t::cudaErrorUnknown)).err();
    // Work that is not finished is no error, though there is a code for it.
    if let Some(error) = error.filter(|error| *error != cudaError_t::cudaErrorNotReady) {
        LAST.set(error);
    }
    error.unwrap_or(cudaError_t::cudaSuccess)
}

/// The calling thread's last error.
pub(crate) fn last() -> cudaError_t {
    LAST.get()
}

/// The calling thread's last error, which is then forgotten unless it is there to stay.
pub(crate) fn take_last() -> cudaError_t {
    let last = LAST.get();
    if !STICKY.contains(&last) {
        LAST.set(cudaError_t::cudaSuccess);
    }
    last
}

/// After a reset nothing of the context before stays.
pub(crate) fn forget_last() {
    LAST.set(cudaError_t::cudaSuccess);
}

/// NULL means the default stream.
#[must_use]
pub fn explicit(stream: cudaStream_t, default: cudaStream_t) -> cudaStream_t {
    if stream.0.is_null() { default } else { stream }
}

/// Refuses what the manual does not name.
pub(crate) fn require(holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(cudaError_t::cudaErrorInvalidValue) }
}

/// Writes a result where the program wants it.
///
/// # Safety
/// `place` is NULL or can be written.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) -> Outcome {
    require(!place.is_null())?;
    // SAFETY: not NULL, and the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}
