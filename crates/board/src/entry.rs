//! What the daemon gives a tenant.

use crate::checked::{Class, HORIZON_NS};
use crate::layout::MOST_SPLITS;
use core::ops::RangeInclusive;

/// The largest weight; 1 is the smallest.
pub const MOST_WEIGHT: u32 = 10_000;
/// Shares are in thousandths.
pub const MOST_SHARE: u32 = 1_000;
/// SMs that a GPU may have.
pub const MOST_SMS: u32 = 1_024;
/// How long a hold may last at most: no hold is unbounded.
pub const HOLDS_NS: RangeInclusive<u64> = 1..=HORIZON_NS;

/// What a tenant may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the GPU's memory; nothing is no limit.
    pub memory: Option<u64>,
    /// The longest hold of one launch, within [`HOLDS_NS`].
    pub longest_hold_ns: u64,
    /// The share of the GPU that it always gets, in thousandths.
    pub least_share: u32,
}

/// What a tenant's users expect, if anybody said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objective {
    /// 99 of 100 steps are over within this time.
    pub p99_ns: Option<u64>,
    /// Time to the first token.
    pub ttft_ns: Option<u64>,
    /// Time per further token.
    pub tpot_ns: Option<u64>,
}

/// What a tenant was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// How urgent its work is.
    pub class: Class,
    /// Its weight among its equals, from 1 to [`MOST_WEIGHT`].
    pub weight: u32,
    /// Its launches are held until somebody lets it go on.
    pub paused: bool,
    /// What its users expect.
    pub objective: Objective,
    /// The splits that it may be bound to.
    pub ladder: SplitLadder,
    /// What it may have.
    pub limits: Limits,
    /// Within what time its long kernels are to give way, in the middle of their blocks, where its kernels are prepared
    /// for that; nothing leaves them as they are.
    pub turnaround_ns: Option<u64>,
}

impl Entry {
    /// What a tenant of this class has if nobody says otherwise.
    #[must_use]
    pub const fn new(class: Class) -> Self {
        const TENTH: u32 = MOST_SHARE / 10;
        const MIDDLE: u32 = 100;
        const TWENTY_MS: u64 = 20_000_000;
        let limits = Limits { memory: None, longest_hold_ns: TWENTY_MS, least_share: TENTH };
        Self {
            class,
            weight: MIDDLE,
            paused: false,
            objective: Objective { p99_ns: None, ttft_ns: None, tpot_ns: None },
            ladder: SplitLadder::NONE,
            limits,
            turnaround_ns: None,
        }
    }
}

/// The widths of `front` in the splits that there are, narrowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SplitLadder {
    widths: [u32; MOST_SPLITS],
    splits: usize,
}

impl SplitLadder {
    /// No splits: only `full`.
    pub const NONE: Self = Self { widths: [0; MOST_SPLITS], splits: 0 };

    /// Of at most [`MOST_SPLITS`] widths that rise, from 1 to [`MOST_SMS`].
    #[must_use]
    pub fn new(widths: &[u32]) -> Option<Self> {
        let mut ladder = Self { splits: widths.len(), ..Self::NONE };
        let rises = widths.is_sorted_by(|narrow, wide| narrow < wide);
        let in_range = widths.iter().all(|width| (1..=MOST_SMS).contains(width));
        ladder.widths.get_mut(..widths.len())?.copy_from_slice(widths);
        (rises && in_range).then_some(ladder)
    }

    /// The widths.
    #[must_use]
    pub fn widths(&self) -> &[u32] {
        &self.widths[..self.splits]
    }
}
