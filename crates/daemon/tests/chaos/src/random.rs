//! Numbers that a seed and a round decide, the same on every machine.

/// `SplitMix64`: small, and good enough to choose among disturbances.
pub(crate) struct Random(u64);

/// The fraction of the golden ratio, which steps through all 64-bit numbers evenly.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The numbers of that round under that seed.
    pub(crate) fn new(seed: u64, round: u64) -> Self {
        let mut seeds = Self(seed);
        let start = seeds.next() ^ round.wrapping_mul(STEP);
        // Mixed once more, or neighbouring rounds would begin alike.
        Self(Self(start).next())
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below that bound, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * (bound as u128);
        usize::try_from(wide >> 64).unwrap_or_default()
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of these by its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, among: &[(usize, T)]) -> T {
        let total = among.iter().map(|(weight, _)| weight).sum();
        let mut left = self.below(total);
        for (weight, choice) in among {
            if left < *weight {
                return *choice;
            }
            left -= weight;
        }
        among[0].1
    }
}
