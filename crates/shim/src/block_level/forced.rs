//! `DETSHARE_BLOCK_LEVEL` for tests: what is done to every kernel that can be launched in parts.
//!
//! * `random:SEED`: the original, slices of random sizes, or persistent blocks that are stopped at random, another way at
//!   each launch.
//! * `slices:BLOCKS`: slices of so many blocks.
//! * `preempt:BLOCKS`: so many persistent blocks, stopped over and over.
//! * `others:BLOCKS`: so many persistent blocks, stopped by other tenants' steps alone, and by no thread of this process.
//!
//! Versions are made and loaded as soon as the program loads a module, so that the first launch has them.

use core::sync::atomic::{AtomicU64, Ordering};

/// What is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Forced {
    Random(u64),
    Slices(u32),
    Preempt(u32),
    Others(u32),
}

/// How one launch is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Original,
    /// In slices of so many blocks, at most.
    Slices(u32),
    /// With so many persistent blocks.
    Preempt(u32),
}

impl Forced {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (way, number) = text.split_once(':')?;
        match way {
            "random" => number.parse().ok().map(Self::Random),
            "slices" => number.parse().ok().filter(|blocks| *blocks > 0).map(Self::Slices),
            "preempt" => number.parse().ok().filter(|blocks| *blocks > 0).map(Self::Preempt),
            "others" => number.parse().ok().filter(|blocks| *blocks > 0).map(Self::Others),
            _ => None,
        }
    }

    /// How the next launch, of so many blocks, is made.
    pub(super) fn way(&self, blocks: u32) -> Way {
        match self {
            Self::Slices(most) => Way::Slices(*most),
            Self::Preempt(persistent) | Self::Others(persistent) => Way::Preempt(*persistent),
            Self::Random(seed) => match random(*seed) % 8 {
                0 => Way::Original,
                // Not so small that a test spends its time with thousands of launches.
                1..4 => Way::Slices(within(*seed, blocks).max(blocks / 32)),
                _ => Way::Preempt(within(*seed, blocks.min(64))),
            },
        }
    }

    /// How many blocks the next slice has, of so many at most.
    pub(super) fn slice(&self, most: u32) -> u32 {
        match self {
            Self::Random(seed) => within(*seed, most).max(most / 4),
            Self::Slices(_) | Self::Preempt(_) | Self::Others(_) => most,
        }
    }

    /// How long persistent blocks run before they are stopped. The more often they were, the longer: a block may take longer
    /// than the first times.
    pub(super) fn stop_after_ns(&self, stops: u64) -> u64 {
        const STEP_NS: u64 = 20_000;
        match self {
            Self::Random(seed) if random(*seed).is_multiple_of(4) => u64::MAX,
            Self::Random(seed) => random(*seed) % (STEP_NS * (1 + stops)),
            Self::Others(_) => u64::MAX,
            Self::Slices(_) | Self::Preempt(_) => STEP_NS * stops,
        }
    }
}

/// From 1 to `most`, small ones more often.
fn within(seed: u64, most: u32) -> u32 {
    let below = random(seed) % u64::from(most.max(1)) + 1;
    u32::try_from(random(seed) % below + 1).unwrap_or(1)
}

/// A random number. All threads share the series: which launch gets which number is random too.
fn random(seed: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    static TURN: AtomicU64 = AtomicU64::new(1);
    // SplitMix64: Steele, Lea and Flood, 2014.
    let turn = TURN.fetch_add(1, Ordering::Relaxed);
    let mut value = seed.wrapping_add(turn.wrapping_mul(GOLDEN));
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
