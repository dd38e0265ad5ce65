//! Numbers that a seed and a program's number decide, the same on every machine.

/// `SplitMix64`: small, and good enough to choose among operations.
pub(crate) struct Random(u64);

/// The fraction of the golden ratio, which steps through all 64-bit numbers evenly.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// The numbers of that program under that seed.
    pub(crate) fn new(seed: u64, program: u64) -> Self {
        let mut seeds = Self(seed);
        let start = seeds.next() ^ program.wrapping_mul(STEP);
        // Mixed once more, or neighbouring programs would begin alike.
        Self(Self(start).next())
    }

    fn next(&mut self) -> u64 {
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

    /// A number below that bound, as kernels take it.
    pub(crate) fn word(&mut self, bound: u32) -> u32 {
        u32::try_from(self.below(bound as usize)).unwrap_or_default()
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    /// One of these, if there are any.
    pub(crate) fn pick<T: Copy>(&mut self, among: &[T]) -> Option<T> {
        (!among.is_empty()).then(|| among[self.below(among.len())])
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
