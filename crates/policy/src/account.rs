//! What a best-effort tenant keeps account of: what it has in flight, and what part of the time it was not held.

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
    /// when this one is over.
    pub fn thousandths(&mut self, now_ns: u64) -> u32 {
        let elapsed = now_ns.saturating_sub(self.since_ns);
        let held = self.held_ns.min(elapsed) * u64::from(Self::ALL) / elapsed.max(1);
        let share = Self::ALL.saturating_sub(u32::try_from(held).unwrap_or(Self::ALL));
        if elapsed >= Self::WINDOW_NS {
            *self = Self { since_ns: now_ns, held_ns: 0, before: share };
            return share;
        }
        let passed = u32::try_from(elapsed * u64::from(Self::ALL) / Self::WINDOW_NS).unwrap_or(Self::ALL);
        (share * passed + self.before.min(Self::ALL) * (Self::ALL - passed)) / Self::ALL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
