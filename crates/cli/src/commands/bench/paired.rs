//! A server against itself alone, request by request. In a few seconds there are few requests, and p99 of few is the slowest of
//! them: what each one took against the same one alone says more, and how far that would go with other requests is told by
//! drawing among them again and again.

use super::figures::quantile;
use crate::quantity::approximate;
use serde::Serialize;

/// How often it is drawn.
const DRAWS: usize = 1000;
/// The same in every run, so that the same measurement gives the same interval.
const SEED: u64 = 0x5eed_0f5e_ed0f_5eed;
/// The interval has 95 of 100 draws in it: in thousandths.
const LOW: usize = 25;
const HIGH: usize = 975;

/// Where 95 of 100 draws are.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// How many times as long as alone requests take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Ratios {
    pub(crate) requests: usize,
    pub(crate) median: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) median_interval: Interval,
    pub(crate) p99_interval: Interval,
}

impl Ratios {
    /// Of what each request took alone and here.
    pub(crate) fn of(pairs: &[(f64, f64)]) -> Option<Self> {
        let mut ratios: Vec<f64> =
            pairs.iter().filter(|(alone, _)| *alone > 0.0).map(|(alone, here)| here / alone).collect();
        ratios.sort_by(f64::total_cmp);
        let pool = Pool::of(ratios.len(), |request| &ratios[request..=request]);
        let interval = |level: usize| interval(ratios.len(), |weights| pool.quantile(weights, level));
        Some(Self {
            requests: ratios.len(),
            median: quantile(&ratios, 500)?,
            p90: quantile(&ratios, 900)?,
            p99: quantile(&ratios, 990)?,
            median_interval: interval(500)?,
            p99_interval: interval(990)?,
        })
    }
}

/// Where p99 here against p99 alone would be with other requests, as a part more: 0.05 is 5 %. Each request comes with all its
/// times alone and here; whoever is drawn brings all of them.
pub(crate) fn p99_overhead(pairs: &[(&[f64], &[f64])]) -> Option<Interval> {
    let (alone, here) = (Pool::of(pairs.len(), |one| pairs[one].0), Pool::of(pairs.len(), |one| pairs[one].1));
    interval(pairs.len(), |weights| {
        let before = alone.quantile(weights, 990).filter(|before| *before > 0.0)?;
        Some(here.quantile(weights, 990)? / before - 1.0)
    })
}

/// Where a figure lies if as many of so many are drawn, some of them more than once: it is told how often each is there.
fn interval(count: usize, figure: impl Fn(&[usize]) -> Option<f64>) -> Option<Interval> {
    let mut random = Random(SEED);
    let mut found: Vec<f64> = Vec::with_capacity(DRAWS);
    for _ in 0..DRAWS {
        let mut weights = vec![0; count];
        for _ in 0..count {
            weights[random.below(count)] += 1;
        }
        found.extend(figure(&weights));
    }
    found.sort_by(f64::total_cmp);
    Some(Interval { low: quantile(&found, LOW)?, high: quantile(&found, HIGH)? })
}

/// Values of several owners.
struct Pool {
    /// All of them with their owners.
    falling: Vec<(f64, usize)>,
    /// How many each owner has.
    counts: Vec<usize>,
}

impl Pool {
    fn of<'a>(owners: usize, values: impl Fn(usize) -> &'a [f64]) -> Self {
        let of_owner = |owner: usize| values(owner).iter().map(move |value| (*value, owner));
        let mut falling: Vec<(f64, usize)> = (0..owners).flat_map(of_owner).collect();
        falling.sort_by(|one, other| other.0.total_cmp(&one.0));
        Self { falling, counts: (0..owners).map(|owner| values(owner).len()).collect() }
    }

    /// As [`quantile`], where each value counts as often as its owner is there. From the top, which is where tails are.
    fn quantile(&self, weights: &[usize], level: usize) -> Option<f64> {
        let total: usize = self.counts.iter().zip(weights).map(|(count, weight)| count * weight).sum();
        let rank = (total * level).div_ceil(1000).max(1);
        let mut seen = 0;
        self.falling.iter().find_map(|(value, owner)| {
            seen += weights[*owner];
            (seen + rank > total && weights[*owner] > 0).then_some(*value)
        })
    }
}

/// Numbers that look as if by chance (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        usize::try_from(bits % bound.max(1) as u64).unwrap_or(0)
    }
}

/// The mean, or nothing of nothing.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / approximate(values.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_request_stands_against_itself() {
        // Long ones and short ones, each half as long again but for one.
        let mut pairs: Vec<(f64, f64)> = (1..=200).map(|number| (f64::from(number), f64::from(number) * 1.5)).collect();
        pairs[3].1 = pairs[3].0 * 9.0;
        let found = Ratios::of(&pairs).unwrap();
        assert_eq!((found.requests, found.median, found.p90, found.p99), (200, 1.5, 1.5, 1.5));
        assert_eq!(found.median_interval, Interval { low: 1.5, high: 1.5 });
        assert_eq!(found.p99_interval, Interval { low: 1.5, high: 9.0 }, "one of 200 can be drawn more than once");
        assert_eq!(Ratios::of(&[]), None);
        assert_eq!(Ratios::of(&[(0.0, 1.0)]), None);
    }

    #[test]
    fn few_requests_leave_much_open() {
        let spread = |count: u32| {
            let values: Vec<f64> =
                (0..count).map(|number| 10.0 + f64::from(number * 7919 % count) / f64::from(count)).collect();
            let pairs: Vec<(&[f64], &[f64])> =
                values.iter().map(|value| (std::slice::from_ref(&values[0]), std::slice::from_ref(value))).collect();
            let found = p99_overhead(&pairs).unwrap();
            found.high - found.low
        };
        assert!(spread(10) > 4.0 * spread(1000), "{} and {}", spread(10), spread(1000));
    }

    #[test]
    fn what_is_the_same_twice_has_nothing_added() {
        let times: Vec<Vec<f64>> =
            (0..40_u8).map(|number| vec![f64::from(number % 7) + 1.0; 1 + usize::from(number % 5)]).collect();
        let same: Vec<(&[f64], &[f64])> = times.iter().map(|one| (&one[..], &one[..])).collect();
        assert_eq!(p99_overhead(&same), Some(Interval { low: 0.0, high: 0.0 }));
        assert_eq!(p99_overhead(&[]), None);
    }

    #[test]
    fn a_value_counts_as_often_as_its_owner_is_there() {
        let values: [&[f64]; 3] = [&[3.0, 1.0], &[2.0], &[4.0]];
        let pool = Pool::of(values.len(), |owner| values[owner]);
        assert_eq!(pool.quantile(&[1, 1, 1], 500), Some(2.0));
        assert_eq!(pool.quantile(&[0, 1, 3], 500), Some(4.0));
        assert_eq!(pool.quantile(&[3, 0, 0], 990), Some(3.0));
        assert_eq!(pool.quantile(&[3, 0, 0], 500), Some(1.0));
        assert_eq!(pool.quantile(&[0, 0, 0], 500), None);
    }
}
