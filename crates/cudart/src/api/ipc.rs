//! Memory and events of other processes.

use super::forward;
use crate::convert::{address, at_mut, same};
use crate::types::*;
use core::ffi::{c_uint, c_void};

forward! {
    fn cudaIpcGetEventHandle(handle: *mut cudaIpcEventHandle_t, event: cudaEvent_t)
        => cuIpcGetEventHandle(at_mut(handle), event);
    fn cudaIpcOpenEventHandle(event: *mut cudaEvent_t, handle: cudaIpcEventHandle_t)
        => cuIpcOpenEventHandle(event, same(handle));
    fn cudaIpcGetMemHandle(handle: *mut cudaIpcMemHandle_t, pointer: *mut c_void)
        => cuIpcGetMemHandle(at_mut(handle), address(pointer));
    fn cudaIpcOpenMemHandle(pointer: *mut *mut c_void, handle: cudaIpcMemHandle_t, flags: c_uint)
        => cuIpcOpenMemHandle_v2(at_mut(pointer), same(handle), flags);
    fn cudaIpcCloseMemHandle(pointer: *mut c_void) => cuIpcCloseMemHandle(address(pointer));
}
