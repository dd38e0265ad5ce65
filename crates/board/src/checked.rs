//! What others wrote, made into values that are in range whatever they wrote.

/// How urgent a tenant's work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Takes what is left. Also what an unknown class is taken for: nobody makes way for it.
    #[default]
    BestEffort,
    /// Answers users and has a deadline.
    Latency,
}

impl Class {
    /// How it stands in the pages. 0 is none, so that pages that nobody has written say nothing.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::BestEffort => 1,
            Self::Latency => 2,
        }
    }
}

/// Which of the values that were read could not be what an honest owner writes, and were replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Doubts(u32);

impl Doubts {
    /// None.
    pub const NONE: Self = Self(0);
    /// The words were being written for as long as we tried to read them; all have their default.
    pub const TORN: Self = Self(1);
    /// An unknown class; taken for best-effort.
    pub const CLASS: Self = Self(1 << 1);
    /// A lane that cannot be; taken for `full`.
    pub const LANE: Self = Self(1 << 2);
    /// A time too far ahead; clamped.
    pub const TIME: Self = Self(1 << 3);
    /// More finished than launched; taken for as many.
    pub const COUNTS: Self = Self(1 << 4);
    /// A weight that cannot be; clamped.
    pub const WEIGHT: Self = Self(1 << 5);
    /// A ladder that does not rise or is too long; taken for none.
    pub const LADDER: Self = Self(1 << 6);
    /// A limit that cannot be; clamped.
    pub const LIMITS: Self = Self(1 << 7);

    /// Whether there are any.
    #[must_use]
    pub const fn any(self) -> bool {
        self.0 != 0
    }

    /// Whether these are among them.
    #[must_use]
    pub const fn contains(self, doubts: Self) -> bool {
        self.0 & doubts.0 == doubts.0
    }

    pub(crate) const fn add_if(&mut self, doubted: bool, doubt: Self) {
        if doubted {
            self.0 |= doubt.0;
        }
    }
}

/// Times further than this from now say no more than this: 10 s, longer than any hold and any step that matters.
pub const HORIZON_NS: u64 = 10_000_000_000;

pub(crate) fn class(number: u32, doubts: &mut Doubts) -> Class {
    let class = [Class::BestEffort, Class::Latency].into_iter().find(|class| class.number() == number);
    doubts.add_if(class.is_none(), Doubts::CLASS);
    class.unwrap_or_default()
}

/// A time that may be ahead. 0 is unknown.
pub(crate) fn time_ahead(time: u64, now: u64, doubts: &mut Doubts) -> Option<u64> {
    let furthest = now.saturating_add(HORIZON_NS);
    doubts.add_if(time > furthest, Doubts::TIME);
    (time != 0).then(|| time.clamp(now.saturating_sub(HORIZON_NS), furthest))
}

/// A time that has passed. 0 is none. One shortly ahead is honest: it was written after the reader looked at the clock.
pub(crate) fn time_past(time: u64, now: u64, doubts: &mut Doubts) -> Option<u64> {
    doubts.add_if(time > now.saturating_add(HORIZON_NS), Doubts::TIME);
    (time != 0).then(|| time.clamp(now.saturating_sub(HORIZON_NS), now))
}

pub(crate) fn within(value: u32, least: u32, most: u32, doubt: Doubts, doubts: &mut Doubts) -> u32 {
    doubts.add_if(value < least || value > most, doubt);
    value.clamp(least, most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_clamped_to_the_horizon() {
        let now = 100 * HORIZON_NS;
        let mut doubts = Doubts::NONE;
        assert_eq!(time_ahead(0, now, &mut doubts), None);
        assert_eq!(time_ahead(1, now, &mut doubts), Some(now - HORIZON_NS));
        assert_eq!(time_ahead(now + 5, now, &mut doubts), Some(now + 5));
        assert_eq!(time_past(now - 5, now, &mut doubts), Some(now - 5));
        assert_eq!(time_past(now + 1, now, &mut doubts), Some(now));
        assert!(!doubts.any(), "long overdue or a little late to look at the clock is honest");
        assert_eq!(time_past(u64::MAX, now, &mut doubts), Some(now));
        assert!(doubts.contains(Doubts::TIME));
        assert_eq!(time_ahead(u64::MAX, now, &mut doubts), Some(now + HORIZON_NS));
        assert_eq!(time_ahead(u64::MAX, u64::MAX, &mut doubts), Some(u64::MAX));
    }

    #[test]
    fn an_unknown_class_is_best_effort_and_doubted() {
        for number in [0, 3, u32::MAX] {
            let mut doubts = Doubts::NONE;
            assert_eq!(class(number, &mut doubts), Class::BestEffort);
            assert_eq!(doubts, Doubts::CLASS);
        }
        let mut doubts = Doubts::NONE;
        assert_eq!(class(Class::Latency.number(), &mut doubts), Class::Latency);
        assert!(!doubts.any());
    }
}
