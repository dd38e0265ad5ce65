//! What a best-effort tenant keeps account of: what it has in flight, and what part of the time it was not held.
//!
//! A clock that goes back makes nobody wait until it has caught up: what was counted from a time that is now to come is counted
//! from now on.

/// How long the GPU still has to do with what was launched into one stream.
///
/// Each launch adds what it is expected to take. Behind so much work a mark is set, an event of the driver; what is before
/// a mark that was reached is over. In between the clock goes on. So errors of the predictions do not add up.
#[derive(Debug)]
pub struct Flight<M> {
    /// All work so far, what of it is over, and when that was seen.
    total_ns: u64,
    done_ns: u64,
    done_at: u64,
    /// Work behind the last mark.
    unmarked_ns: u64,
    /// What is to be reached, and how much work is before it.
    marks: [Option<(M, u64)>; MARKS],
    /// The oldest mark, and how many there are.
    first: usize,
    count: usize,
}

/// A mark is set behind as much work.
const MARK_NS: u64 = 40_000;
/// Marks that are waited for at once; further work counts to the last.
const MARKS: usize = 8;

impl<M: Copy> Flight<M> {
    /// Nothing was launched.
    #[must_use]
    pub const fn none() -> Self {
        Self { total_ns: 0, done_ns: 0, done_at: 0, unmarked_ns: 0, marks: [const { None }; MARKS], first: 0, count: 0 }
    }

    /// Something was launched that is expected to take so long; `mark` sets a mark behind it, if it can.
    pub fn launched(&mut self, expected_ns: u64, now_ns: u64, mark: impl FnOnce() -> Option<M>) {
        self.done_at = self.done_at.min(now_ns);
        if self.estimate(now_ns) == 0 {
            (self.done_ns, self.done_at) = (self.total_ns, now_ns);
        }
        self.total_ns = self.total_ns.saturating_add(expected_ns);
        self.unmarked_ns = self.unmarked_ns.saturating_add(expected_ns);
        if self.unmarked_ns >= MARK_NS
            && self.count < MARKS
            && let Some(mark) = mark()
        {
            self.marks[(self.first + self.count) % MARKS] = Some((mark, self.total_ns));
            self.count += 1;
            self.unmarked_ns = 0;
        }
    }

    /// How long it will take until all is over. `is_reached` says of a mark whether it was.
    pub fn left_ns(&mut self, now_ns: u64, mut is_reached: impl FnMut(M) -> bool) -> u64 {
        self.done_at = self.done_at.min(now_ns);
        while let Some((mark, upto_ns)) = self.oldest()
            && is_reached(mark)
        {
            (self.done_ns, self.done_at) = (upto_ns, now_ns);
            self.marks[self.first] = None;
            self.first = (self.first + 1) % MARKS;
            self.count -= 1;
        }
        self.estimate(now_ns)
    }

    /// All of it is over.
    pub fn over(&mut self) {
        (self.done_ns, self.unmarked_ns) = (self.total_ns, 0);
        (self.marks, self.first, self.count) = ([const { None }; MARKS], 0, 0);
    }

    fn oldest(&self) -> Option<(M, u64)> {
        self.marks[self.first].filter(|_| self.count > 0)
    }

    fn estimate(&self, now_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.done_at);
        let by_the_clock = self.total_ns.saturating_sub(self.done_ns).saturating_sub(elapsed);
        // What is known not to be over is not over, whatever the clock says.
        let known = |(_, upto_ns): (M, u64)| by_the_clock.max(self.total_ns.saturating_sub(upto_ns)).max(1);
        self.oldest().map_or(by_the_clock, known)
    }
}

/// The part of the last time in which a tenant was not held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// When this window began, and for how long it was held since.
    pub since_ns: u64,
    /// See above.
    pub held_ns: u64,
    /// What it got in the window before, in thousandths.
    pub before: u32,
}

impl Share {
    const WINDOW_NS: u64 = 100_000_000;
    const ALL: u32 = 1_000;

    /// It was never held.
    pub const FULL: Self = Self { since_ns: 0, held_ns: 0, before: Self::ALL };

    /// In thousandths: this window so far, and the one before for what has not passed of this one. Begins the next window
    /// when this one is over, or is yet to begin by a clock that has gone back: nobody knows how much of it has passed.
    pub fn thousandths(&mut self, now_ns: u64) -> u32 {
        let Some(elapsed) = now_ns.checked_sub(self.since_ns) else {
            *self = Self { since_ns: now_ns, held_ns: 0, before: self.before.min(Self::ALL) };
            return self.before;
        };
        let share = Self::ALL - thousandths(self.held_ns.min(elapsed), elapsed);
        if elapsed >= Self::WINDOW_NS {
            *self = Self { since_ns: now_ns, held_ns: 0, before: share };
            return share;
        }
        let passed = u32::try_from(elapsed * u64::from(Self::ALL) / Self::WINDOW_NS).unwrap_or(Self::ALL);
        (share * passed + self.before.min(Self::ALL) * (Self::ALL - passed)) / Self::ALL
    }
}

/// What part of the whole it is, which is no less.
fn thousandths(part: u64, whole: u64) -> u32 {
    const ALL: u64 = Share::ALL as u64;
    // Of what is longer than half a year a thousandth more or less is told.
    let thousandths = part.checked_mul(ALL).map_or_else(|| part / (whole / ALL), |part| part / whole.max(1));
    u32::try_from(thousandths.min(ALL)).unwrap_or(Share::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// With the number of the launch as its mark.
    struct Numbered {
        flight: Flight<u64>,
        launched: u64,
    }

    impl Numbered {
        fn none() -> Self {
            Self { flight: Flight::none(), launched: 0 }
        }

        fn launched(&mut self, expected_ns: u64, now_ns: u64) {
            self.launched += 1;
            self.flight.launched(expected_ns, now_ns, || Some(self.launched));
        }

        /// When so many launches have ended.
        fn left_ns(&mut self, ended: u64, now_ns: u64) -> u64 {
            self.flight.left_ns(now_ns, |mark| mark <= ended)
        }
    }

    #[test]
    fn what_is_in_flight_goes_by_the_clock_and_by_what_has_ended() {
        let mut flight = Numbered::none();
        assert_eq!(flight.left_ns(0, 1_000), 0);
        flight.launched(300_000, 1_000);
        assert_eq!(flight.left_ns(0, 101_000), 200_000);
        flight.launched(100_000, 101_000);
        assert_eq!(flight.left_ns(0, 101_000), 300_000);
        // The first takes longer than it should: the second is still to come.
        assert_eq!(flight.left_ns(0, 901_000), 100_000);
        // The first has ended: the second begins.
        assert_eq!(flight.left_ns(1, 901_000), 100_000);
        assert_eq!(flight.left_ns(2, 910_000), 0);
    }

    #[test]
    fn short_launches_have_no_mark_of_their_own() {
        let mut flight = Numbered::none();
        for _ in 0..3 {
            flight.launched(10_000, 0);
        }
        assert_eq!(flight.left_ns(3, 5_000), 25_000, "nobody looks");
        assert_eq!(flight.left_ns(0, 40_000), 0, "nobody looks");
    }

    #[test]
    fn what_is_seen_to_be_over_is_over() {
        let mut flight = Numbered::none();
        flight.launched(300_000, 0);
        flight.launched(10_000, 0);
        flight.flight.over();
        assert_eq!(flight.left_ns(0, 1_000), 0);
        flight.launched(100_000, 5_000);
        assert_eq!(flight.left_ns(0, 6_000), 99_000);
    }

    #[test]
    fn without_marks_the_clock_decides() {
        let mut flight = Flight::<u64>::none();
        flight.launched(300_000, 0, || None);
        assert_eq!(flight.left_ns(100_000, |_| false), 200_000);
        assert_eq!(flight.left_ns(400_000, |_| false), 0);
        flight.launched(u64::MAX, 400_000, || None);
        flight.launched(u64::MAX, 400_000, || None);
        assert!(flight.left_ns(500_000, |_| false) > 0, "absurd times end nowhere");
    }

    #[test]
    fn a_share_is_that_of_the_last_tenth_of_a_second() {
        const MS: u64 = 1_000_000;
        let mut share = Share::FULL;
        share.held_ns += 40 * MS;
        assert_eq!(share.thousandths(50 * MS), (200 + 1_000) / 2);
        assert_eq!(share.thousandths(100 * MS), 600);
        assert_eq!(share.thousandths(150 * MS), (1_000 + 600) / 2);
        share.held_ns += 500 * MS;
        assert_eq!(share.thousandths(200 * MS), 0, "no more than all of it");
    }

    #[test]
    fn a_clock_that_goes_back_does_not_stop_what_is_in_flight() {
        const HOUR: u64 = 3_600_000_000_000;
        let mut flight = Flight::<u64>::none();
        flight.launched(300_000, HOUR, || None);
        assert_eq!(flight.left_ns(5, |_| false), 300_000, "it is as if it began now");
        assert_eq!(flight.left_ns(200_005, |_| false), 100_000);
        assert_eq!(flight.left_ns(300_005, |_| false), 0);
        // The launch is the first that is told of it.
        flight.launched(300_000, HOUR, || None);
        flight.launched(100_000, 5, || None);
        assert_eq!(flight.left_ns(300_005, |_| false), 100_000);
    }

    #[test]
    fn a_clock_that_goes_back_begins_another_window() {
        const MS: u64 = 1_000_000;
        const HOUR: u64 = 3_600_000 * MS;
        let mut share = Share { since_ns: HOUR, held_ns: 40 * MS, before: 700 };
        assert_eq!(share.thousandths(5 * MS), 700, "what was known");
        share.held_ns += 50 * MS;
        assert_eq!(
            share.thousandths(55 * MS),
            350,
            "none of the half that has passed, and as much as before of the other"
        );
        assert_eq!(share.thousandths(105 * MS), 500);
    }

    /// By how much the clock goes on, or back.
    fn jumps() -> impl Strategy<Value = Vec<(i64, u64)>> {
        let jump = prop_oneof![0..400_000_i64, -400_000..400_000_i64, any::<i64>()];
        proptest::collection::vec((jump, prop_oneof![0..500_000_u64, any::<u64>()]), 1..40)
    }

    proptest! {
        /// However the clock jumps: once all marks are reached nothing is in flight for longer than all of it was expected to take.
        #[test]
        fn what_is_in_flight_is_over_in_time(
            start in any::<u64>(), jumps in jumps(), marked in any::<bool>(), after in any::<i64>(),
        ) {
            let mut flight = Numbered::none();
            let (mut now, mut expected) = (start, 0_u64);
            for (jump, takes) in jumps {
                now = now.saturating_add_signed(jump);
                if marked { flight.launched(takes, now) } else { flight.flight.launched(takes, now, || None) }
                expected = expected.saturating_add(takes);
                prop_assert!(flight.left_ns(0, now) <= expected);
            }
            now = now.saturating_add_signed(after);
            let left = flight.left_ns(u64::MAX, now);
            prop_assert!(left <= expected);
            if let Some(then) = now.checked_add(left) {
                prop_assert_eq!(flight.left_ns(u64::MAX, then), 0);
            }
        }

        /// However the clock jumps: a share is one, of a window that began a window ago at most.
        #[test]
        fn a_share_stays_one_of_the_last_window(start in any::<u64>(), jumps in jumps(), before in any::<u32>()) {
            let mut share = Share { since_ns: start, held_ns: 0, before };
            let mut now = start;
            for (jump, held) in jumps {
                now = now.saturating_add_signed(jump);
                share.held_ns = share.held_ns.saturating_add(held);
                prop_assert!(share.thousandths(now) <= Share::ALL);
                prop_assert!(share.since_ns <= now && now - share.since_ns < Share::WINDOW_NS);
            }
            // Held all the time from here on.
            for window in 0..2 {
                let Some(then) = now.checked_add(Share::WINDOW_NS) else { break };
                share.held_ns = share.held_ns.saturating_add(Share::WINDOW_NS);
                now = then;
                let thousandths = share.thousandths(now);
                prop_assert!(window == 0 || thousandths == 0, "{}", thousandths);
            }
        }
    }
}
