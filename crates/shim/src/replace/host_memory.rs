//! Host memory that kernels can write: the record of what leaves the GPU looks at it.

use super::replace;
use crate::bind;
use crate::call::is_ok;
use crate::digest;
use core::ffi::{c_uint, c_void};
use detshare_cuda::types::CUresult;

replace! {
    fn cuMemAllocHost(host: *mut *mut c_void, bytes: c_uint) {
        made(cu!(cuMemAllocHost(host, bytes)), host, bytes as usize)
    }
    fn cuMemAllocHost_v2(host: *mut *mut c_void, bytes: usize) {
        made(cu!(cuMemAllocHost_v2(host, bytes)), host, bytes)
    }
    fn cuMemHostAlloc(host: *mut *mut c_void, bytes: usize, flags: c_uint) {
        made(cu!(cuMemHostAlloc(host, bytes, flags)), host, bytes)
    }
    fn cuMemHostRegister(host: *mut c_void, bytes: usize, flags: c_uint) {
        registered(cu!(cuMemHostRegister(host, bytes, flags)), host, bytes)
    }
    fn cuMemHostRegister_v2(host: *mut c_void, bytes: usize, flags: c_uint) {
        registered(cu!(cuMemHostRegister_v2(host, bytes, flags)), host, bytes)
    }
    fn cuMemFreeHost(host: *mut c_void) {
        going(host);
        cu!(cuMemFreeHost(host))
    }
    fn cuMemHostUnregister(host: *mut c_void) {
        going(host);
        cu!(cuMemHostUnregister(host))
    }
}

fn made(code: CUresult, host: *mut *mut c_void, bytes: usize) -> CUresult {
    if digest::active() && is_ok(code) && !host.is_null() {
        // SAFETY: the driver has written there.
        digest::memory_made(unsafe { *host }.expose_provenance(), bytes);
    }
    code
}

fn registered(code: CUresult, host: *mut c_void, bytes: usize) -> CUresult {
    if is_ok(code) {
        digest::memory_made(host.expose_provenance(), bytes);
    }
    code
}

/// The driver waits for those who use it; what it does not wait for are lanes.
fn going(host: *mut c_void) {
    bind::everything();
    digest::memory_gone(host.addr());
}
