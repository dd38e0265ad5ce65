//! Whether a tenant's kernels take what they are predicted to take. One whose kernels keep running far longer cannot be planned
//! with: it is quarantined, and let go when it behaves.

/// How many times longer than predicted is far longer.
pub const FAR: u64 = 3;
/// What is shorter disturbs nobody.
const NOT_JUDGED_NS: u64 = 200_000;
/// Of the last 32 that were measured, so many put it into quarantine, and so few let it go.
const TOO_MANY: u32 = 12;
const FEW: u32 = 3;

/// How a tenant's kernels did lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conduct {
    /// The last 32 that were measured: a bit each, set where it took far longer.
    last: u32,
    quarantined: bool,
}

impl Conduct {
    /// Nothing to say against it.
    pub const GOOD: Self = Self { last: 0, quarantined: false };

    /// A kernel of which enough is known was predicted to take so long and took so long. Says whether it is quarantined or let
    /// go by that.
    pub fn judge(&mut self, predicted_ns: u64, took_ns: u64) -> Option<bool> {
        let is_far = took_ns > NOT_JUDGED_NS && took_ns > predicted_ns.saturating_mul(FAR);
        self.last = self.last << 1 | u32::from(is_far);
        let count = self.last.count_ones();
        let now = if self.quarantined { count > FEW } else { count >= TOO_MANY };
        (core::mem::replace(&mut self.quarantined, now) != now).then_some(now)
    }

    /// Whether it is quarantined.
    #[must_use]
    pub const fn is_quarantined(&self) -> bool {
        self.quarantined
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After how many such kernels it changes.
    fn until_it_changes(conduct: &mut Conduct, predicted_ns: u64, took_ns: u64) -> Option<usize> {
        (1..200).find(|_| conduct.judge(predicted_ns, took_ns).is_some())
    }

    #[test]
    fn far_too_long_too_often_is_quarantined_and_let_go_again() {
        let mut conduct = Conduct::GOOD;
        assert_eq!(until_it_changes(&mut conduct, 1_000_000, 2_900_000), None, "not three times as long");
        assert_eq!(until_it_changes(&mut conduct, 1_000_000, 3_100_000), Some(12));
        assert!(conduct.is_quarantined());
        assert_eq!(until_it_changes(&mut conduct, 1_000_000, 1_000_000), Some(29));
        assert!(!conduct.is_quarantined());
    }

    #[test]
    fn now_and_then_is_forgiven() {
        let mut conduct = Conduct::GOOD;
        for round in 0..1_000 {
            let took = if round % 3 == 0 { 5_000_000 } else { 1_000_000 };
            assert_eq!(conduct.judge(1_000_000, took), None, "11 of 32 at most");
        }
    }

    #[test]
    fn short_kernels_and_absurd_numbers_are_not_held_against_it() {
        let mut conduct = Conduct::GOOD;
        assert_eq!(until_it_changes(&mut conduct, 1_000, 100_000), None, "too short to matter");
        assert_eq!(until_it_changes(&mut conduct, u64::MAX, u64::MAX), None);
        assert_eq!(until_it_changes(&mut conduct, 0, u64::MAX), Some(12));
    }
}
