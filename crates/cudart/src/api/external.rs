//! Semaphores of other interfaces.

use super::forward;
use crate::convert::at;
use crate::types::*;
use core::ffi::c_uint;

forward! {
    fn cudaImportExternalSemaphore(
        semaphore: *mut cudaExternalSemaphore_t, desc: *const cudaExternalSemaphoreHandleDesc,
    ) => cuImportExternalSemaphore(semaphore, at(desc));
    fn cudaDestroyExternalSemaphore(semaphore: cudaExternalSemaphore_t) => cuDestroyExternalSemaphore(semaphore);
    fn cudaSignalExternalSemaphoresAsync(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const cudaExternalSemaphoreSignalParams,
        count: c_uint, stream: cudaStream_t,
    ) => cuSignalExternalSemaphoresAsync(semaphores, at(parameters), count, stream);
    fn cudaWaitExternalSemaphoresAsync(
        semaphores: *const cudaExternalSemaphore_t, parameters: *const cudaExternalSemaphoreWaitParams,
        count: c_uint, stream: cudaStream_t,
    ) => cuWaitExternalSemaphoresAsync(semaphores, at(parameters), count, stream);
}
