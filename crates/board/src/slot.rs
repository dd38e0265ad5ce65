//! Who has a slot of the daemon's table.
//!
//! The word of a slot holds its state and a generation that counts its owners. Whoever takes a slot back names the
//! generation that it found dead, so a slot that has a new owner meanwhile stays with that one, and of two who found the
//! same owner dead one takes it back.

use crate::sync::{AtomicU32, Ordering, acquired};

/// The two lowest bits.
const STATES: u32 = 0b11;
const FREE: u32 = 0;
/// Claimed, and its entry is not written yet.
const FILLING: u32 = 1;
const LIVE: u32 = 2;
const ONE_GENERATION: u32 = STATES + 1;

/// State and generation of one slot.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct SlotWord(AtomicU32);

/// Which owner of a slot is meant. There are 2³⁰ before they start again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(u32);

impl Generation {
    /// As it travels in a message.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// As it came in a message: only ever compared.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }
}

impl SlotWord {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// The generation that lives in it, if one does.
    pub(crate) fn live(&self) -> Option<Generation> {
        // Pairs with the release in `open`: who finds it live finds its entry.
        let word = acquired(self.0.load(Ordering::Relaxed));
        (word & STATES == LIVE).then_some(Generation(word & !STATES))
    }

    /// Takes the slot if it is free. The claimant writes the entry and then opens it.
    pub(crate) fn claim(&self) -> Option<Generation> {
        let word = self.0.load(Ordering::Relaxed);
        let next = Generation((word & !STATES).wrapping_add(ONE_GENERATION));
        // Acquire: pairs with the release of whoever freed it.
        (word & STATES == FREE
            && self.0.compare_exchange(word, next.0 | FILLING, Ordering::Acquire, Ordering::Relaxed).is_ok())
        .then_some(next)
    }

    /// The entry is written: all may see it. Only for the one who claimed it.
    pub(crate) fn open(&self, claimed: Generation) {
        // Pairs with the acquire in `live`.
        self.0.store(claimed.0 | LIVE, Ordering::Release);
    }

    /// Frees the slot if this generation still lives in it; says whether it did.
    pub(crate) fn release(&self, generation: Generation) -> bool {
        // Release: pairs with the acquire in `claim`.
        let from = generation.0 | LIVE;
        self.0.compare_exchange(from, generation.0 | FREE, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Frees the slot if this generation, which lives in it, is dead; says whether this call did it.
    pub(crate) fn take_back(&self, generation: Generation, is_dead: impl FnOnce() -> bool) -> bool {
        is_dead() && self.release(generation)
    }
}
