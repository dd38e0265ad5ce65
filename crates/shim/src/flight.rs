//! What a stream has in flight, with the driver's events as marks.

use crate::coroutine::Coroutine;
use crate::stream::Ring;
use detshare_cuda::types::{CUevent, CUresult, CUstream};
use detshare_policy::account;

/// What one stream has in flight. Under the stream's lock.
pub(crate) struct Flight {
    account: account::Flight<CUevent>,
    events: Ring,
}

impl Flight {
    pub(crate) const fn none() -> Self {
        Self { account: account::Flight::none(), events: Ring::none() }
    }

    /// The stream or its context is going.
    pub(crate) fn end(&mut self) {
        core::mem::replace(self, Self::none()).events.destroy();
    }

    /// How long the GPU still has to do.
    pub(crate) fn left_ns(&mut self, now: u64) -> u64 {
        // What cannot be asked will not come.
        self.account.left_ns(now, |event| cu!(cuEventQuery(event)) != CUresult::CUDA_ERROR_NOT_READY)
    }

    /// Something was launched there that is expected to take so long.
    pub(crate) fn launched(&mut self, coroutine: &'static Coroutine, at: CUstream, expected_ns: u64, now: u64) {
        let events = &mut self.events;
        self.account.launched(expected_ns, now, || {
            if events.is_none() {
                *events = coroutine.take_ring()?;
            }
            events.record(at)
        });
    }
}
