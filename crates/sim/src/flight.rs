//! What a tenant believes to have in flight, and what part of the time it was not held: as the shim keeps account of it.

/// How long the GPU still has to do with what was launched. Each launch adds what it is expected to take; behind so much
/// work an event is recorded, and what is before an event that has happened is over. In between the clock goes on.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// All work so far, what of it is over, and when that was seen.
    total_ns: u64,
    done_ns: u64,
    done_at: u64,
    /// Work behind the last mark.
    unmarked_ns: u64,
    launched: u64,
    marks: [Mark; MARKS],
    /// Marks that have come and gone, and all of them.
    passed: usize,
    marked: usize,
}

/// An event is recorded behind as much work.
const MARK_NS: u64 = 40_000;
/// Events that are waited for at once; further work counts to the last.
const MARKS: usize = 8;

#[derive(Debug, Default, Clone, Copy)]
struct Mark {
    /// It has happened when so many launches have ended.
    launches: u64,
    upto_ns: u64,
}

impl Flight {
    /// Something was launched that is expected to take so long.
    pub(crate) fn launched(&mut self, expected_ns: u64, now_ns: u64) {
        if self.estimate(now_ns) == 0 {
            (self.done_ns, self.done_at) = (self.total_ns, now_ns);
        }
        self.launched += 1;
        self.total_ns += expected_ns;
        self.unmarked_ns += expected_ns;
        if self.unmarked_ns >= MARK_NS && self.marked - self.passed < MARKS {
            self.marks[self.marked % MARKS] = Mark { launches: self.launched, upto_ns: self.total_ns };
            self.marked += 1;
            self.unmarked_ns = 0;
        }
    }

    /// How long it will take until all is over, when so many launches have ended.
    pub(crate) fn left_ns(&mut self, ended: u64, now_ns: u64) -> u64 {
        while let Some(mark) = self.first().filter(|mark| mark.launches <= ended) {
            (self.done_ns, self.done_at) = (mark.upto_ns, now_ns);
            self.passed += 1;
        }
        self.estimate(now_ns)
    }

    fn first(&self) -> Option<Mark> {
        (self.passed < self.marked).then(|| self.marks[self.passed % MARKS])
    }

    fn estimate(&self, now_ns: u64) -> u64 {
        let elapsed = now_ns.saturating_sub(self.done_at);
        let by_the_clock = (self.total_ns - self.done_ns).saturating_sub(elapsed);
        // What is known not to be over is not over, whatever the clock says.
        self.first().map_or(by_the_clock, |mark| by_the_clock.max(self.total_ns - mark.upto_ns).max(1))
    }
}

/// The part of the last time in which a tenant was not held.
#[derive(Debug)]
pub(crate) struct Share {
    since_ns: u64,
    held_ns: u64,
    /// Of the window before, in thousandths.
    before: u64,
}

impl Share {
    const WINDOW_NS: u64 = 100_000_000;

    pub(crate) const fn new() -> Self {
        Self { since_ns: 0, held_ns: 0, before: 1_000 }
    }

    pub(crate) fn held(&mut self, ns: u64) {
        self.held_ns += ns;
    }

    /// In thousandths: this window so far, and the one before for what has not passed of this one.
    pub(crate) fn thousandths(&mut self, now_ns: u64) -> u32 {
        let elapsed = now_ns - self.since_ns;
        let share = 1_000 - self.held_ns.min(elapsed) * 1_000 / elapsed.max(1);
        if elapsed >= Self::WINDOW_NS {
            *self = Self { since_ns: now_ns, held_ns: 0, before: share };
            return u32::try_from(share).unwrap_or(1_000);
        }
        let passed = elapsed * 1_000 / Self::WINDOW_NS;
        u32::try_from((share * passed + self.before * (1_000 - passed)) / 1_000).unwrap_or(1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_flight_goes_by_the_clock_and_by_what_has_ended() {
        let mut flight = Flight::default();
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
        let mut flight = Flight::default();
        for _ in 0..3 {
            flight.launched(10_000, 0);
        }
        assert_eq!(flight.left_ns(3, 5_000), 25_000, "nobody looks");
        assert_eq!(flight.left_ns(0, 40_000), 0, "nobody looks");
    }

    #[test]
    fn a_share_is_that_of_the_last_tenth_of_a_second() {
        const MS: u64 = 1_000_000;
        let mut share = Share::new();
        share.held(40 * MS);
        assert_eq!(share.thousandths(50 * MS), (200 + 1_000) / 2);
        assert_eq!(share.thousandths(100 * MS), 600);
        assert_eq!(share.thousandths(150 * MS), (1_000 + 600) / 2);
        share.held(500 * MS);
        assert_eq!(share.thousandths(200 * MS), 0, "no more than all of it");
    }
}
