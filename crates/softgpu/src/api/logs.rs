//! The driver's log of its own messages. Ours is always empty: what there is to say is said on standard error.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::handle;
use core::ffi::{c_char, c_uint, c_void};
use detshare_cuda::types::{CUlogIterator, CUlogsCallback, CUlogsCallbackHandle, CUresult};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Where the next message would be.
const END: CUlogIterator = 0;

/// Handles of callbacks that are registered. They have nothing to hear.
static CALLBACKS: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

pub(crate) unsafe fn cuLogsRegisterCallback(
    callback: CUlogsCallback,
    _data: *mut c_void,
    place: *mut CUlogsCallbackHandle,
) -> Outcome {
    require(callback.is_some())?;
    let handle = handle::new();
    CALLBACKS.lock().expect("no panic while it is held").insert(handle);
    give_if_asked(place, CUlogsCallbackHandle(as_pointer(handle)));
    Ok(())
}

pub(crate) unsafe fn cuLogsUnregisterCallback(callback: CUlogsCallbackHandle) -> Outcome {
    require(CALLBACKS.lock().expect("no panic while it is held").remove(&callback.0.addr()))
}

pub(crate) unsafe fn cuLogsCurrent(place: *mut CUlogIterator, _flags: c_uint) -> Outcome {
    give(place, END)
}

pub(crate) unsafe fn cuLogsDumpToFile(iterator: *mut CUlogIterator, path: *const c_char, flags: c_uint) -> Outcome {
    require(flags == 0)?;
    let path = super::text(path)?;
    std::fs::write(path, "").map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    give_if_asked(iterator, END);
    Ok(())
}

pub(crate) unsafe fn cuLogsDumpToMemory(
    iterator: *mut CUlogIterator,
    buffer: *mut c_char,
    size: *mut usize,
    flags: c_uint,
) -> Outcome {
    require(flags == 0 && !size.is_null() && !buffer.is_null())?;
    require(size.read() > 0)?;
    buffer.write(0);
    size.write(0);
    give_if_asked(iterator, END);
    Ok(())
}
