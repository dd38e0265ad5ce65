//! The clock that all processes of a machine share.

use rustix::time::{ClockId, clock_gettime};

/// Seconds since some moment that is the same for all of them.
pub(crate) fn now() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).map_or(0.0, crate::quantity::approximate);
    let nanoseconds = u64::try_from(now.tv_nsec).map_or(0.0, crate::quantity::approximate);
    seconds + nanoseconds / 1e9
}
