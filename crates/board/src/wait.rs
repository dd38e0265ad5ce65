//! Waiting for a word of another process: spin a little, then sleep, never longer than asked.

use crate::sync::{Slept, Watch, sleep, spin_loop};

/// Looks before the first sleep. A pause takes 10 to 50 ns, so this is a few microseconds: less than falling asleep and
/// being woken costs, and what a step's last microseconds take.
#[cfg(not(loom))]
pub(crate) const SPINS: u32 = 100;
#[cfg(loom)]
pub(crate) const SPINS: u32 = 1;

/// Why the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// One of the words has another value.
    Changed,
    /// The time is over (or the kernel did not let us sleep); none has changed.
    Over,
}

/// Returns when one of the words has changed, at the deadline at the latest.
pub(crate) fn until_changed(watches: &[Watch<'_>], spins: u32, deadline: u64) -> Waited {
    for _ in 0..spins {
        if watches.iter().any(Watch::has_changed) {
            return Waited::Changed;
        }
        spin_loop();
    }
    loop {
        let slept = sleep(watches, deadline);
        if watches.iter().any(Watch::has_changed) {
            return Waited::Changed;
        }
        if slept == Slept::Over {
            return Waited::Over;
        }
    }
}
