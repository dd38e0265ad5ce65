//! Waiting for a word of another process: spin a little, then sleep, never longer than asked.

use crate::sync::{Slept, Watch, sleep, spin_loop};

/// Why the waiting ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// One of the words has another value.
    Changed,
    /// The time is over (or the kernel did not let us sleep); none has changed.
    Over,
}

/// Returns when one of the words has changed, at the deadline at the latest. Sleeps once `spin` says no.
pub(crate) fn until_changed(watches: &[Watch<'_>], mut spin: impl FnMut() -> bool, deadline: u64) -> Waited {
    let has_changed = || watches.iter().any(Watch::has_changed);
    while spin() {
        if has_changed() {
            return Waited::Changed;
        }
        spin_loop();
    }
    loop {
        let slept = sleep(watches, deadline);
        if has_changed() {
            return Waited::Changed;
        }
        if slept == Slept::Over {
            return Waited::Over;
        }
    }
}
