//! What this process has in flight: of each stream with the driver's events as marks, of all of them by the clock.
//!
//! A stream's own account is under its lock. What others need of it is one word (`in_flight.rs`).

use crate::coroutine::Coroutine;
use crate::in_flight::Place;
use crate::relaxed::Relaxed;
use crate::stream::Ring;
use detshare_cuda::types::{CUevent, CUresult, CUstream};
use detshare_policy::account;

/// What one stream has in flight. Under the stream's lock.
pub(crate) struct Flight {
    account: account::Flight<CUevent>,
    events: Ring,
    place: Place,
}

impl Flight {
    pub(crate) const fn none() -> Self {
        Self { account: account::Flight::none(), events: Ring::none(), place: Place::none() }
    }

    /// The stream or its context is going.
    pub(crate) fn end(&mut self) {
        core::mem::replace(self, Self::none()).events.destroy();
    }

    /// How long the GPU still has to do with all that this process has launched. Work of other streams counts as if it came
    /// one after the other, which it does where each fills the GPU.
    pub(crate) fn all_ns(&mut self, now: u64) -> u64 {
        let left = self.account.left_ns(now, is_reached);
        self.place.set(now, left);
        left.saturating_add(self.place.others_ns(now))
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
        let left = self.account.left_ns(now, |_| false);
        self.place.set(now, left);
    }

    /// The stream was seen to have nothing left.
    pub(crate) fn is_over(&mut self) {
        // Where nobody wants to know there is nothing to forget.
        if self.place.is_taken() {
            self.account.over();
            self.place.set(0, 0);
        }
    }
}

fn is_reached(mark: CUevent) -> bool {
    let _relaxed = Relaxed::new();
    // What cannot be asked will not come.
    cu!(cuEventQuery(mark)) != CUresult::CUDA_ERROR_NOT_READY
}
