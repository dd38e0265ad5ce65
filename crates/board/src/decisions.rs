//! The last decisions of a tenant, for those who ask why: written by its threads as they come, read by anybody.
//!
//! A writer takes the next number, and with it a place in the ring. A reader that sees the same stamp before and after has
//! read one decision whole; where a writer was overtaken by a whole round of others, two may be mixed, which harms nobody.

use crate::layout::{DECISION_WORDS, DECISIONS, DecisionPage};
use crate::sync::{Ordering, acquired, fence};
use core::num::NonZeroU64;

/// One decision. All numbers are as the tenant wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Noted {
    /// When.
    pub at_ns: u64,
    /// Which kernel or graph; only ever compared.
    pub kernel: u64,
    /// How long it was expected to take; 0 is unknown.
    pub predicted_ns: u64,
    /// How long this very launch took; 0 as long as that was not measured.
    pub measured_ns: u64,
    /// How long it was held.
    pub held_ns: u64,
    /// The lane that it got in the end.
    pub lane: u8,
    /// Why it ran when it did, as the policy numbers its reasons.
    pub reason: u8,
    /// Why it was held before, if it was; 0 otherwise.
    pub held_for: u8,
    /// Because of which slot; 255 is none.
    pub because_of: u8,
    /// What was not known, or not believed: some of the bits below.
    pub doubts: u8,
}

/// The word of [`Noted::measured_ns`].
const MEASURED: usize = 3;

impl Noted {
    /// Nobody knew how long it takes, and something usual was assumed.
    pub const UNKNOWN: u8 = 1;
    /// What was handed down of it cannot be, and something usual was assumed.
    pub const NOT_BELIEVED: u8 = 1 << 1;
    /// When a step is due was not believed.
    pub const DUE_NOT_BELIEVED: u8 = 1 << 2;

    fn words(&self) -> [u64; DECISION_WORDS] {
        let Self { lane, reason, held_for, because_of, doubts, .. } = *self;
        let small = u64::from_le_bytes([lane, reason, held_for, because_of, doubts, 0, 0, 0]);
        [self.at_ns, self.kernel, self.predicted_ns, self.measured_ns, self.held_ns, small]
    }

    fn of([at_ns, kernel, predicted_ns, measured_ns, held_ns, small]: [u64; DECISION_WORDS]) -> Self {
        let [lane, reason, held_for, because_of, doubts, ..] = small.to_le_bytes();
        Self { at_ns, kernel, predicted_ns, measured_ns, held_ns, lane, reason, held_for, because_of, doubts }
    }
}

/// Says under which number it can be found.
pub(crate) fn write(page: &DecisionPage, decision: &Noted) -> NonZeroU64 {
    let number = page.written.0.fetch_add(1, Ordering::Relaxed);
    let record = &page.ring[place(number)];
    record.stamp.store(number.wrapping_mul(2) | 1, Ordering::Relaxed);
    // Nobody sees the words before the odd stamp.
    fence(Ordering::Release);
    for (word, value) in record.words.iter().zip(decision.words()) {
        word.store(value, Ordering::Relaxed);
    }
    // Pairs with the acquire in `read`.
    record.stamp.store(stamp(number), Ordering::Release);
    NonZeroU64::MIN.saturating_add(number)
}

/// Adds what the launch took that was decided so, if that is still there. A writer that takes the place in this very moment
/// has its own overwritten, which harms nobody.
pub(crate) fn measured(page: &DecisionPage, decision: NonZeroU64, ns: u64) {
    let number = decision.get() - 1;
    let record = &page.ring[place(number)];
    if record.stamp.load(Ordering::Relaxed) == stamp(number) {
        record.words[MEASURED].store(ns, Ordering::Relaxed);
    }
}

pub(crate) fn read(page: &DecisionPage) -> Vec<Noted> {
    let written = acquired(page.written.0.load(Ordering::Relaxed));
    let first = written.saturating_sub(DECISIONS as u64);
    (first..written)
        .filter_map(|number| {
            let record = &page.ring[place(number)];
            let before = acquired(record.stamp.load(Ordering::Relaxed));
            let words = core::array::from_fn(|index| record.words[index].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let after = record.stamp.load(Ordering::Relaxed);
            (before == stamp(number) && after == before).then(|| Noted::of(words))
        })
        .collect()
}

fn stamp(number: u64) -> u64 {
    number.wrapping_mul(2).wrapping_add(2)
}

fn place(number: u64) -> usize {
    usize::try_from(number % DECISIONS as u64).unwrap_or(0)
}
