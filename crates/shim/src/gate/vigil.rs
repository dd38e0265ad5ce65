//! How long a hold looks and how long it sleeps, before it decides anew.

use core::time::Duration;
use detshare_board::{LONGEST_SPIN, SPIN};

/// A hold is awake from so long before the end that it waits for is expected, until so long after it. Sleepers wake late: a timer by up to
/// 50 µs, and a core that has slept deeply takes as long again. With twice that, 200 µs, a launch that had been held for 5 ms still went on
/// 57.8 µs after idle (p99, on a machine with an H200), so some sleepers are later. This is three times as much, and was not measured there
/// since. It costs a core for 0.6 ms before each end that a held thread expects.
const BEFORE: Duration = Duration::from_micros(600);
const AFTER: Duration = Duration::from_micros(1_000);

/// How long to look, and how long to wait in all before the next decision, if the end is expected then. Near the end it is
/// never slept: who would have to look for longer than one may at a time decides anew in between.
pub(super) fn of(end: Option<u64>, now: u64, slice: Duration) -> (Duration, Duration) {
    let (before, after) = (nanoseconds(BEFORE), nanoseconds(AFTER));
    match end {
        Some(end) if now.saturating_add(before) < end => (Duration::ZERO, Duration::from_nanos(end - before - now)),
        Some(end) if now < end.saturating_add(after) => (LONGEST_SPIN, LONGEST_SPIN),
        _ => (SPIN, slice),
    }
}

pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_micros(50);
    const END: u64 = 5_000_000;

    #[test]
    fn far_from_the_end_a_hold_sleeps_until_shortly_before_it() {
        let now = END - 1_000_000;
        let (spin, longest) = of(Some(END), now, SLICE);
        assert_eq!(spin, Duration::ZERO);
        assert_eq!(now + nanoseconds(longest) + nanoseconds(BEFORE), END);
    }

    #[test]
    fn near_the_end_and_for_a_while_after_it_nobody_falls_asleep() {
        for now in (END - nanoseconds(BEFORE)..END + nanoseconds(AFTER)).step_by(1_000) {
            let (spin, longest) = of(Some(END), now, SLICE);
            assert!(longest <= spin && longest <= LONGEST_SPIN, "at {now}: {spin:?} of {longest:?}");
        }
    }

    #[test]
    fn an_end_that_is_unknown_or_long_due_is_waited_for_lightly() {
        for (end, now) in [(None, END), (Some(END), END + nanoseconds(AFTER)), (Some(0), u64::MAX)] {
            assert_eq!(of(end, now, SLICE), (SPIN, SLICE));
        }
        assert_eq!(of(Some(u64::MAX), 0, SLICE).0, Duration::ZERO, "an end that never comes is slept for");
    }
}
