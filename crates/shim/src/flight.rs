//! What a stream has in flight: how long the GPU still has to do with what was launched into it.
//!
//! Each launch adds what it is expected to take. Behind it, and not behind each of the short ones, an event is recorded;
//! what is before an event that has happened is over. Between two events the clock goes on. So errors of the predictions do
//! not add up.

use crate::coroutine::Coroutine;
use crate::stream::Ring;
use detshare_cuda::types::{CUevent, CUresult, CUstream};

/// An event is recorded behind as much work.
const MARK_NS: u64 = 40_000;
/// Events that are waited for at once; further work counts to the last.
const MARKS: usize = 8;

/// One event, and how much work is before it.
#[derive(Clone, Copy)]
struct Mark {
    event: CUevent,
    upto_ns: u64,
}

/// What one stream has in flight. Under the stream's lock.
pub(crate) struct Flight {
    /// All work so far, what of it is over, and when that was seen.
    total_ns: u64,
    done_ns: u64,
    done_at: u64,
    /// Work behind the last mark.
    unmarked_ns: u64,
    marks: [Option<Mark>; MARKS],
    /// The oldest mark, and how many there are.
    first: usize,
    count: usize,
    events: Ring,
}

impl Flight {
    pub(crate) const fn none() -> Self {
        Self {
            total_ns: 0,
            done_ns: 0,
            done_at: 0,
            unmarked_ns: 0,
            marks: [None; MARKS],
            first: 0,
            count: 0,
            events: Ring::none(),
        }
    }

    /// The stream or its context is going.
    pub(crate) fn end(&mut self) {
        core::mem::replace(self, Self::none()).events.destroy();
    }

    /// How long the GPU still has to do.
    pub(crate) fn left_ns(&mut self, now: u64) -> u64 {
        while let Some(mark) = self.marks[self.first].filter(|_| self.count > 0) {
            // What cannot be asked will not come.
            if cu!(cuEventQuery(mark.event)) == CUresult::CUDA_ERROR_NOT_READY {
                break;
            }
            (self.done_ns, self.done_at) = (mark.upto_ns, now);
            self.marks[self.first] = None;
            self.first = (self.first + 1) % MARKS;
            self.count -= 1;
        }
        self.estimate(now)
    }

    fn estimate(&self, now: u64) -> u64 {
        let by_the_clock = self.total_ns.saturating_sub(self.done_ns).saturating_sub(now.saturating_sub(self.done_at));
        let first = self.marks[self.first].filter(|_| self.count > 0);
        first.map_or(by_the_clock, |mark| by_the_clock.max(self.total_ns.saturating_sub(mark.upto_ns).max(1)))
    }

    /// Something was launched there that is expected to take so long.
    pub(crate) fn launched(&mut self, coroutine: &'static Coroutine, at: CUstream, expected_ns: u64, now: u64) {
        if self.estimate(now) == 0 {
            (self.done_ns, self.done_at) = (self.total_ns, now);
        }
        self.total_ns = self.total_ns.saturating_add(expected_ns);
        self.unmarked_ns = self.unmarked_ns.saturating_add(expected_ns);
        if self.unmarked_ns < MARK_NS || self.count == MARKS {
            return;
        }
        if self.events.is_none() {
            let Some(events) = coroutine.take_ring() else { return };
            self.events = events;
        }
        if let Some(event) = self.events.record(at) {
            self.marks[(self.first + self.count) % MARKS] = Some(Mark { event, upto_ns: self.total_ns });
            self.count += 1;
            self.unmarked_ns = 0;
        }
    }
}
