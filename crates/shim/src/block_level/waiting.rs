//! Waiting for the GPU in a launch: never without an end, and never with a lock.

use crate::call::is_ok;
use core::time::Duration;
use detshare_board::clock;
use detshare_cuda::types::{CUevent, CUresult};

/// How waiting ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    Over,
    /// The driver has an error of its own.
    Failed,
    TooLong,
}

/// Waits until the GPU has come there.
pub(super) fn wait(event: CUevent, longest: Duration) -> Waited {
    let started = clock::now();
    loop {
        match cu!(cuEventQuery(event)) {
            CUresult::CUDA_ERROR_NOT_READY => {}
            code if is_ok(code) => return Waited::Over,
            _ => return Waited::Failed,
        }
        if clock::now().saturating_sub(started) > nanoseconds(longest) {
            return Waited::TooLong;
        }
        std::thread::yield_now();
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
