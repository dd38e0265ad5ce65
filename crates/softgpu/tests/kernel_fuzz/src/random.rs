//! Numbers that a seed decides, the same on every machine; and the hash of answers.
//!
//! Both are part of what a corpus rests on: changing them changes every kernel and every answer.

/// The fraction of the golden ratio, which steps through all 64-bit numbers evenly.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Numbers that a seed decides: `SplitMix64`.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Those of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(STEP)))
    }

    /// Numbers of their own for one part of what this one decides; drawing from one does not change the other.
    #[must_use]
    pub fn part(&self, tag: u64) -> Self {
        Self(mix(self.0 ^ mix(tag.wrapping_mul(STEP).wrapping_add(1))))
    }

    /// Any number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    /// A number below that bound, which is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        let wide = (self.bits() >> 32) * u64::from(bound);
        u32::try_from(wide >> 32).unwrap_or_default()
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, chance: u32) -> bool {
        self.below(100) < chance
    }

    /// One of these; there must be one.
    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.index(among.len())]
    }

    /// The place of one of so many; there must be one.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(u32::try_from(length).unwrap_or(u32::MAX)) as usize
    }
}

fn mix(bits: u64) -> u64 {
    let mixed = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A hash of words in their order.
pub(crate) fn hash_words(words: &[u32]) -> u64 {
    words.iter().fold(STEP, |hash, word| mix(hash ^ u64::from(*word)).wrapping_add(STEP))
}

/// A hash of text.
#[must_use]
pub fn hash_text(text: &str) -> u64 {
    text.bytes().fold(STEP, |hash, byte| mix(hash ^ u64::from(byte)).wrapping_add(STEP))
}
