//! Random numbers that are the same at each run.

/// SplitMix64: Steele, Lea and Flood, 2014.
pub(crate) struct Random(u64);

impl Random {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(Self::GOLDEN))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Self::GOLDEN);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    /// Less than that, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// The position of one of so many, if there are any.
    pub(crate) fn position(&mut self, count: usize) -> Option<usize> {
        (count > 0).then(|| usize::try_from(self.below(count as u64)).unwrap_or(0))
    }

    /// One of them, if there are any.
    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        self.position(all.len()).map(|position| all[position])
    }
}
