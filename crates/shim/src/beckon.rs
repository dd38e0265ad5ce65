//! Has the GPU turn to this process before its next step is due.
//!
//! Where processes are time-sliced the GPU stays with the one that used it last until another one has work, and turning to
//! that one takes more than a tenth of a millisecond; under MPS the first work after a pause is a little slow as well. A
//! latency tenant whose next step is due therefore gives the GPU a trifle to do shortly before: a few bytes of our own are
//! set to zero in a stream of our own. Where there is no MPS, best-effort tenants leave the GPU alone by then.

use crate::call::is_ok;
use crate::coroutine::Coroutine;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use detshare_cuda::types::{CUdeviceptr, CUdeviceptr_v2, CUstream, CUstream_flags};

const BYTES: usize = 256;

static WANTED: AtomicBool = AtomicBool::new(false);
/// How often it was done.
pub(crate) static BECKONED: AtomicU64 = AtomicU64::new(0);

/// Whether it is of use from now on.
pub(crate) fn set_wanted(wanted: bool) {
    WANTED.store(wanted, Ordering::Relaxed);
}

pub(crate) fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// What it takes, in one context. Made when it is first needed.
pub(crate) struct Beckoner {
    stream: CUstream,
    memory: CUdeviceptr,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Beckoner {}

impl Beckoner {
    pub(crate) const fn none() -> Self {
        Self { stream: CUstream(null_mut()), memory: CUdeviceptr_v2(0) }
    }

    /// Gives the GPU something to do. The context is current.
    pub(crate) fn beckon(&mut self) {
        if self.stream.0.is_null() && !self.make() {
            return set_wanted(false);
        }
        cu!(cuMemsetD8Async(self.memory, 0, BYTES, self.stream));
        BECKONED.fetch_add(1, Ordering::Relaxed);
    }

    fn make(&mut self) -> bool {
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        is_ok(cu!(cuMemAlloc_v2(&raw mut self.memory, BYTES)))
            && is_ok(cu!(cuStreamCreate(&raw mut self.stream, flags)))
    }

    /// The context, which is current, is going.
    pub(crate) fn end(&mut self) {
        let before = core::mem::replace(self, Self::none());
        if !before.stream.0.is_null() {
            cu!(cuStreamDestroy_v2(before.stream));
        }
        if before.memory.0 != 0 {
            cu!(cuMemFree_v2(before.memory));
        }
    }
}

/// Has the GPU turn to this process, in this context.
pub(crate) fn beckon(coroutine: &Coroutine) {
    let mut beckoner = coroutine.beckoner();
    if !coroutine.is_ending() && !coroutine.context().0.is_null() && is_ok(cu!(cuCtxSetCurrent(coroutine.context()))) {
        beckoner.beckon();
    }
}
