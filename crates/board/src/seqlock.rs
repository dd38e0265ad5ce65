//! Several words that are read together.
//!
//! A sequence number is odd while somebody writes. Who reads takes the number, the words and the number again, and has
//! one state of all words if the number was even and has not changed. The words are atomics: a torn read is thrown
//! away, never a race.

use crate::sync::{AtomicU32, Ordering, acquired, fence, spin_loop};

/// How often a read is tried. The owner writes a few words at a time; one that was stopped in the middle, or that lies,
/// must not hold up those who read.
#[cfg(not(loom))]
const READ_TRIES: u32 = 64;
#[cfg(loom)]
const READ_TRIES: u32 = 2;

/// The sequence number of the words beside it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Sequence(AtomicU32);

impl Sequence {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Changes the words. Writers, all of them threads of the owner, wait for each other.
    pub(crate) fn write<R>(&self, change: impl FnOnce() -> R) -> R {
        let even = self.lock();
        // Pairs with the acquire fence in `read`: who sees one of the words below sees the odd number.
        fence(Ordering::Release);
        let result = change();
        // Pairs with the acquire at the start of `read`, and with that of the next `lock`.
        self.0.store(even.wrapping_add(2), Ordering::Release);
        result
    }

    /// One state of the words, or nothing if they were being written all the time.
    pub(crate) fn read<T>(&self, read: impl Fn() -> T) -> Option<T> {
        for _ in 0..READ_TRIES {
            // Pairs with the release at the end of `write`.
            let before = acquired(self.0.load(Ordering::Relaxed));
            if before.is_multiple_of(2) {
                // The acquire pairs with the release fence in `write`.
                let value = acquired(read());
                if self.0.load(Ordering::Relaxed) == before {
                    return Some(value);
                }
            }
            spin_loop();
        }
        None
    }

    /// Makes the number odd; returns the even one.
    fn lock(&self) -> u32 {
        loop {
            let number = self.0.load(Ordering::Relaxed);
            // Pairs with the release at the end of another thread's `write`.
            let taken = |even: u32| self.0.compare_exchange_weak(even, even | 1, Ordering::Acquire, Ordering::Relaxed);
            if number.is_multiple_of(2) && taken(number).is_ok() {
                return number;
            }
            spin_loop();
        }
    }
}
