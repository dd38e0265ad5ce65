//! Numbers that look random and are the same for the same seed, on every machine: integers alone.

/// A sequence of such numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed, one for each `which`.
    pub(crate) fn new(seed: u64, which: usize) -> Self {
        let mut random = Self(seed);
        let which = u64::try_from(which).unwrap_or(u64::MAX);
        random.0 = random.next().wrapping_add(which);
        random.0 = random.next();
        random
    }

    /// Any number: the counter of a Weyl sequence, stirred.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut stirred = self.0;
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
            stirred = (stirred ^ stirred >> shift).wrapping_mul(factor);
        }
        stirred ^ stirred >> 31
    }

    /// From 0 up to and with this.
    pub(crate) fn upto(&mut self, most: u64) -> u64 {
        let below = u128::from(most) + 1;
        narrow((u128::from(self.next()) * below) >> 64)
    }

    /// The time until the next of many that come independently of each other, at this mean distance.
    pub(crate) fn until_next(&mut self, mean_ns: u64) -> u64 {
        /// ln 2, in 2⁻³².
        const LN_2: u128 = 0xb172_17f8;
        narrow((u128::from(mean_ns) * u128::from(minus_log2(self.next())) * LN_2) >> 64)
    }
}

/// -log₂ of a number that is meant as a part of 2⁶⁴, in 2⁻³². Floating point would not be the same everywhere.
fn minus_log2(part: u64) -> u64 {
    const FRACTION_BITS: u32 = 32;
    let part = part.max(1);
    // part = 2^(63 - zeros) * m / 2^63 with m from 2^63 on: the logarithm's whole part is in the zeros.
    let zeros = part.leading_zeros();
    let mut m = part << zeros;
    let mut log = 0_u64;
    for _ in 0..FRACTION_BITS {
        let square = u128::from(m) * u128::from(m);
        // As parts of 2^63 again; a square of 2 or more gives a bit.
        let bit = square >> 127;
        m = narrow(square >> (63 + bit));
        log = log << 1 | narrow(bit);
    }
    ((u64::from(zeros) + 1) << FRACTION_BITS) - log
}

fn narrow(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_right() {
        let one = 1 << 32;
        assert_eq!(minus_log2(1 << 63), one);
        assert_eq!(minus_log2(1 << 60), 4 * one);
        assert_eq!(minus_log2(0), 64 * one);
        // log₂ 0.75 = -0.415037499
        assert!(minus_log2(3 << 62).abs_diff(1_782_572_483) < 10, "{}", minus_log2(3 << 62));
        assert!(minus_log2(u64::MAX) < 10);
    }

    #[test]
    fn distances_have_their_mean_and_are_memoryless() {
        let mut random = Random::new(1, 0);
        let distances: Vec<u64> = (0..100_000).map(|_| random.until_next(1_000_000)).collect();
        let mean = distances.iter().sum::<u64>() / 100_000;
        assert!((990_000..1_010_000).contains(&mean), "{mean}");
        let beyond = |ns| distances.iter().filter(|distance| **distance > ns).count();
        // e⁻¹ and e⁻².
        assert!((36_000..37_600).contains(&beyond(1_000_000)), "{}", beyond(1_000_000));
        assert!((13_000..14_100).contains(&beyond(2_000_000)), "{}", beyond(2_000_000));
    }

    #[test]
    fn seeds_and_tenants_have_their_own_numbers() {
        let of = |seed, which| Random::new(seed, which).next();
        assert_eq!(of(1, 0), of(1, 0));
        assert!(of(1, 0) != of(2, 0) && of(1, 0) != of(1, 1) && of(1, 1) != of(2, 0));
        assert!((0..1_000).map(|seed| of(seed, 0) % 11).all(|number| number < 11));
        let mut random = Random::new(3, 3);
        assert!((0..1_000).all(|_| random.upto(10) <= 10));
        assert_eq!(random.upto(0), 0);
    }
}
