//! The primary context comes and goes, and our lanes with it.

use super::replace;
use crate::call::is_ok;
use crate::coroutine;
use crate::entries::counter;
use crate::{bind, digest, quota, settings, stats, steps};
use detshare_cuda::types::{CUcontext, CUdevice, CUresult};

replace! {
    fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) {
        let code = cu!(cuDevicePrimaryCtxRetain(context, device));
        if is_ok(code) && settings::get().binds() && !context.is_null() {
            // SAFETY: the driver has written there.
            coroutine::retained(device, unsafe { *context });
        }
        code
    }
    fn cuDevicePrimaryCtxRelease(device: CUdevice) {
        digest::context_goes();
        coroutine::releasing(device);
        quota::end_primary(device, false, || cu!(cuDevicePrimaryCtxRelease(device)))
    }
    fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) {
        digest::context_goes();
        coroutine::releasing(device);
        quota::end_primary(device, false, || cu!(cuDevicePrimaryCtxRelease_v2(device)))
    }
    fn cuDevicePrimaryCtxReset(device: CUdevice) {
        digest::context_goes();
        coroutine::resetting(device);
        quota::end_primary(device, true, || cu!(cuDevicePrimaryCtxReset(device)))
    }
    fn cuDevicePrimaryCtxReset_v2(device: CUdevice) {
        digest::context_goes();
        coroutine::resetting(device);
        quota::end_primary(device, true, || cu!(cuDevicePrimaryCtxReset_v2(device)))
    }
    fn cuCtxSynchronize() {
        stats::count(counter::cuCtxSynchronize);
        waited(|| {
            bind::everything();
            cu!(cuCtxSynchronize())
        })
    }
    fn cuCtxSynchronize_v2(context: CUcontext) {
        stats::count(counter::cuCtxSynchronize_v2);
        waited(|| {
            // NULL is the current one. A program that takes this symbol for the one without an argument gives anything.
            if coroutine::active() && let Some(coroutine) = coroutine::of(context).or_else(coroutine::current) {
                coroutine.wait_for_lanes();
            }
            cu!(cuCtxSynchronize_v2(context))
        })
    }
}

/// The program waits for everything.
fn waited(wait: impl FnOnce() -> CUresult) -> CUresult {
    steps::waited(None, || {
        let code = wait();
        if is_ok(code) {
            digest::all_is_done();
        }
        code
    })
}
