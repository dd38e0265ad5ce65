//! Requests that come from a seed.

use crate::model::VOCABULARY;

/// How long prompts and answers can be.
pub(crate) struct Shape {
    pub(crate) longest_prompt: u32,
    pub(crate) longest_output: u32,
}

pub(crate) struct Request {
    /// The server's steps before it is there.
    pub(crate) arrives_after: u64,
    pub(crate) prompt: Vec<u32>,
    /// How many tokens it asks for.
    pub(crate) output: u32,
}

/// The next ones arrive up to so many steps later.
const LONGEST_GAP: u32 = 6;

/// In the order in which they arrive.
pub(crate) fn synthetic(count: u32, seed: u64, shape: &Shape) -> Vec<Request> {
    let mut random = Random(seed);
    let mut arrives_after = 0;
    let mut request = || {
        arrives_after += u64::from(random.below(LONGEST_GAP + 1));
        let length = 1 + random.below(shape.longest_prompt);
        let prompt = (0..length).map(|_| random.below(VOCABULARY)).collect();
        Request { arrives_after, prompt, output: 1 + random.below(shape.longest_output) }
    };
    (0..count).map(|_| request()).collect()
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// From 0 to before `end`.
    fn below(&mut self, end: u32) -> u32 {
        let word = self.next() % u64::from(end);
        u32::try_from(word).unwrap_or(0)
    }
}
