//! Whether there is nothing to decide at a launch, told by one word.
//!
//! A thread that has read the whole table and found nobody else says so: freedom holds for as long as the table's epoch is
//! the one that it saw. Who comes and goes changes the epoch or ends freedom; a thread that was just about to say that there
//! is nobody sees that somebody has come, and takes it back.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use core::ptr::null_mut;

/// Nothing keeps launches from all SMs as long as the word is as it was seen; NULL: something may.
pub(crate) struct Freedom {
    word: AtomicPtr<AtomicU32>,
    seen: AtomicU32,
}

impl Freedom {
    #[cfg(not(loom))]
    pub(crate) const fn none() -> Self {
        Self { word: AtomicPtr::new(null_mut()), seen: AtomicU32::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn none() -> Self {
        Self { word: AtomicPtr::new(null_mut()), seen: AtomicU32::new(0) }
    }

    #[inline]
    pub(crate) fn holds(&self) -> bool {
        // SAFETY: NULL, or a word that stays for as long as the process lives. Acquire: pairs with `begin`.
        let word = unsafe { self.word.load(Ordering::Acquire).as_ref() };
        word.is_some_and(|word| word.load(Ordering::Relaxed) == self.seen.load(Ordering::Relaxed))
    }

    /// There was nobody when the word was so. `is_still_so` says whether nobody has come meanwhile.
    pub(crate) fn begin(&self, word: &'static AtomicU32, seen: u32, is_still_so: impl FnOnce() -> bool) {
        self.seen.store(seen, Ordering::Relaxed);
        // Pairs with `end`: this comes before it and is undone there, or comes after it and sees all that was before it.
        self.word.swap((&raw const *word).cast_mut(), Ordering::AcqRel);
        if !is_still_so() {
            self.end();
        }
    }

    /// Somebody has come or gone, and can be seen to have.
    pub(crate) fn end(&self) {
        self.word.swap(null_mut(), Ordering::AcqRel);
    }
}
