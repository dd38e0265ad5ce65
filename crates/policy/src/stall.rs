//! Steps that stand still.
//!
//! A server can stop in the middle of a step: somebody has stopped the process, a thread of it waits for ever, or the GPU does. Its
//! step is under way until it goes on, and others would make way for it for as long. That has an end where no launch was made
//! in it for far longer than its steps ever last. A step that goes on launching does not stand still, however long it is: a
//! server that hands in its work ahead has one for as long as it has anything to do.

/// A shorter time is no stand-still, however short steps are.
pub const LEAST_NS: u64 = 5_000_000_000;
/// Nor is one of fewer times what a step lasts.
const TIMES: u64 = 100;

/// Whether a step stands still that began then, and in which the last launch was seen to be made then, of one whose steps last so long;
/// each 0 where nobody knows. Of one of which it is not known when it began nothing is known.
#[must_use]
pub fn is_stalled((begun_ns, launched_ns): (u64, u64), lasts_ns: u64, now_ns: u64) -> bool {
    let still_ns = now_ns.saturating_sub(begun_ns.max(launched_ns));
    begun_ns != 0 && still_ns > lasts_ns.saturating_mul(TIMES).max(LEAST_NS)
}

/// What somebody remembers who looks at another's launches now and then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launches {
    count: u64,
    /// When there were that many at first; 0 if nobody has looked yet.
    since_ns: u64,
}

impl Launches {
    /// Nobody has looked yet.
    pub const UNSEEN: Self = Self { count: 0, since_ns: 0 };

    /// There are so many by now. Says when the last of them was made at the latest, as far as is known: now, if nobody has looked before.
    pub fn seen(&mut self, count: u64, now_ns: u64) -> u64 {
        if self.since_ns == 0 || self.count != count {
            *self = Self { count, since_ns: now_ns };
        }
        // A clock that goes back makes nobody stand still.
        self.since_ns = self.since_ns.min(now_ns);
        self.since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_step_stands_still_that_lasts_far_longer_than_any_and_launches_nothing() {
        let at = |lasts_ns, launched_ns, now_ns| is_stalled((SECOND, launched_ns), lasts_ns, now_ns);
        assert_eq!([at(0, 0, 6 * SECOND), at(0, 0, 6 * SECOND + 1)], [false, true]);
        let slow = SECOND / 10;
        assert_eq!([at(slow, 0, 11 * SECOND), at(slow, 0, 11 * SECOND + 1)], [false, true]);
        assert!(!at(0, 5 * SECOND, 9 * SECOND) && at(0, 5 * SECOND, 11 * SECOND), "it went on meanwhile");
        assert!(!at(u64::MAX, 0, u64::MAX) && !at(0, u64::MAX, 100 * SECOND));
        assert!(!is_stalled((0, 0), 0, u64::MAX), "nobody knows when it began");
    }

    #[test]
    fn launches_are_seen_by_who_looks_now_and_then() {
        let mut launches = Launches::UNSEEN;
        assert_eq!(
            [(0, 5), (0, 9), (3, 10), (3, 20), (3, 7), (3, 8), (2, 9)].map(|(n, now)| launches.seen(n, now)),
            [5, 5, 10, 10, 7, 7, 9]
        );
    }
}
