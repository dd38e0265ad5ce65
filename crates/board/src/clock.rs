//! The clock that all processes of the machine share.

use rustix::time::{ClockId, clock_gettime};

/// `CLOCK_MONOTONIC` in nanoseconds.
#[must_use]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    // Neither is ever negative.
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
