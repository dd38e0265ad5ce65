//! How long steps lasted, as counts in buckets: written by one process, read by others, added up over any time.

/// Buckets: eight for the shortest times, then eight for each doubling.
pub(crate) const BUCKETS: usize = 256;
/// Times are counted in units of 2⁷ ns.
const UNIT_SHIFT: u32 = 7;
/// Buckets in a doubling are 2³: a bucket is at most an eighth wide.
const SUB_SHIFT: u32 = 3;
const SUBS: u64 = 1 << SUB_SHIFT;

/// The bucket that a time is counted in; the last one has all that is longer.
pub(crate) fn bucket(ns: u64) -> usize {
    let units = ns >> UNIT_SHIFT;
    let bucket = if units < SUBS {
        units
    } else {
        let doubling = units.ilog2() - SUB_SHIFT;
        // The leading bit is in the doubling, the next three are the bucket in it.
        u64::from(doubling + 1) * SUBS + (units >> doubling) % SUBS
    };
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// The time in the middle of a bucket.
fn middle(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let (doubling, sub) = (bucket / SUBS, bucket % SUBS);
    let (from, width) = if doubling == 0 { (sub, 1) } else { ((SUBS + sub) << (doubling - 1), 1 << (doubling - 1)) };
    (from << UNIT_SHIFT) + (width << UNIT_SHIFT) / 2
}

/// How often steps lasted how long, since a tenant came or between two looks at it.
#[derive(Clone, PartialEq, Eq)]
pub struct StepTimes {
    counts: Box<[u64; BUCKETS]>,
}

impl StepTimes {
    pub(crate) fn new(count: impl FnMut(usize) -> u64) -> Self {
        Self { counts: Box::new(core::array::from_fn(count)) }
    }

    /// What was counted after an earlier look. A count that went down, which no honest tenant's does, counts as none.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self::new(|bucket| self.counts[bucket].saturating_sub(earlier.counts[bucket]))
    }

    /// How many steps.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// The time that a share `q` of the steps (0 to 1) did not exceed, to a sixteenth; nothing without steps.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let all = self.count();
        #[allow(clippy::cast_precision_loss, reason = "counts of steps, and a rank among them needs no last digits")]
        let rank = (q.clamp(0.0, 1.0) * all as f64).ceil();
        let mut seen = 0_u64;
        let reached = |count: &u64| {
            seen = seen.saturating_add(*count);
            #[allow(clippy::cast_precision_loss, reason = "as above")]
            let seen_all = seen as f64 >= rank;
            *count != 0 && seen_all
        };
        self.counts.iter().position(reached).map(middle)
    }
}

impl core::fmt::Debug for StepTimes {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let counted = self.counts.iter().enumerate().filter(|(_, count)| **count != 0);
        formatter.debug_map().entries(counted.map(|(bucket, count)| (middle(bucket), count))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_near_the_times_in_it() {
        for exponent in 10..40 {
            for ns in [1_u64 << exponent, (1 << exponent) + (1 << (exponent - 1)), (1 << exponent) - 1] {
                let middle = middle(bucket(ns));
                assert!(middle.abs_diff(ns) <= ns / 15 + (1 << UNIT_SHIFT), "{ns} ns is counted as {middle} ns");
            }
        }
        assert!((0..BUCKETS - 1).all(|number| bucket(middle(number)) == number));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_of_what_came_since() {
        let counted =
            |times: &[u64]| StepTimes::new(|number| times.iter().filter(|ns| bucket(**ns) == number).count() as u64);
        let before = counted(&[1_000_000; 5]);
        let mut times = vec![1_000_000; 5];
        times.extend([2_000_000; 98]);
        times.extend([50_000_000; 2]);
        let since = counted(&times).since(&before);
        assert_eq!(since.count(), 100);
        assert_eq!(since.quantile(0.5), Some(middle(bucket(2_000_000))));
        assert_eq!(since.quantile(0.99), Some(middle(bucket(50_000_000))));
        assert_eq!(before.since(&before).quantile(0.5), None);
    }
}
