//! Semaphores that other parts of the system signal and wait for. Here the file behind one is an `eventfd`: a signal adds
//! one, a wait takes what is there and waits if that is nothing.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::handle::{self, Table};
use crate::operation::{Operation, SemaphoreUse};
use crate::stream;
use core::ffi::c_uint;
use detshare_cuda::types::{
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC, CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS, CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    CUexternalSemaphore, CUexternalSemaphoreHandleType as Kind, CUresult, CUstream,
};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::sync::Arc;

static SEMAPHORES: Table<File> = Table::new();

pub(crate) unsafe fn cuImportExternalSemaphore(
    imported: *mut CUexternalSemaphore,
    description: *const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC,
) -> Outcome {
    context::healthy()?;
    require(!imported.is_null() && !description.is_null() && (*description).flags == 0)?;
    if (*description).type_ != Kind::CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let descriptor = (*description).handle.fd;
    if !is_eventfd(descriptor) {
        return Err(CUresult::CUDA_ERROR_UNKNOWN);
    }
    // SAFETY: the program gives the file away with this call.
    let file = unsafe { File::from_raw_fd(descriptor) };
    let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
    libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK);
    let number = handle::new();
    SEMAPHORES.insert(number, Arc::new(file));
    give(imported, CUexternalSemaphore(as_pointer(number)))
}

fn is_eventfd(descriptor: RawFd) -> bool {
    std::fs::read_link(format!("/proc/self/fd/{descriptor}")).is_ok_and(|it| it.as_os_str() == "anon_inode:[eventfd]")
}

pub(crate) unsafe fn cuDestroyExternalSemaphore(semaphore: CUexternalSemaphore) -> Outcome {
    SEMAPHORES.remove(semaphore.0.addr()).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

unsafe fn perform(semaphores: *const CUexternalSemaphore, count: c_uint, stream: CUstream, waits: bool) -> Outcome {
    context::healthy()?;
    stream::find(stream)?.perform(uses(semaphores, count, waits)?)
}

/// What is done with semaphores of the program's list.
pub(super) unsafe fn uses(semaphores: *const CUexternalSemaphore, count: c_uint, waits: bool) -> Outcome<Operation> {
    require(!semaphores.is_null() && count > 0)?;
    let uses: Outcome<Vec<_>> = core::slice::from_raw_parts(semaphores, count as usize)
        .iter()
        .map(|it| {
            let handle = it.0.addr();
            let file = SEMAPHORES.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
            Ok(SemaphoreUse { handle, file, waits })
        })
        .collect();
    Ok(Operation::Semaphores(uses?))
}

pub(crate) unsafe fn cuSignalExternalSemaphoresAsync(
    semaphores: *const CUexternalSemaphore,
    parameters: *const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS,
    count: c_uint,
    stream: CUstream,
) -> Outcome {
    require(!parameters.is_null())?;
    perform(semaphores, count, stream, false)
}

pub(crate) unsafe fn cuWaitExternalSemaphoresAsync(
    semaphores: *const CUexternalSemaphore,
    parameters: *const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS,
    count: c_uint,
    stream: CUstream,
) -> Outcome {
    require(!parameters.is_null())?;
    perform(semaphores, count, stream, true)
}
