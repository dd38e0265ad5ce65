//! How much of its time a tenant has for finding out what few SMs mean to its kernels.

use core::sync::atomic::{AtomicU64, Ordering};

/// Of its time, one part in so many. A launch on few SMs takes some four times as long as on all.
const PART: u64 = 256;

/// Counts the work that was explored with, as it takes on all SMs.
pub(super) struct Exploring {
    /// When anybody first asked; 0 if nobody has.
    since: AtomicU64,
    spent_ns: AtomicU64,
}

pub(super) static EXPLORING: Exploring = Exploring::new();

impl Exploring {
    const fn new() -> Self {
        Self { since: AtomicU64::new(0), spent_ns: AtomicU64::new(0) }
    }

    /// Whether there is time for another launch. The first has to wait for none.
    pub(super) fn has_time(&self, now: u64) -> bool {
        let since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            // Two threads at once have nearly the same time.
            self.since.store(now, Ordering::Relaxed);
            return true;
        }
        self.spent_ns.load(Ordering::Relaxed).saturating_mul(PART) <= now.saturating_sub(since)
    }

    /// A launch that takes so long on all SMs is made on few of them.
    pub(super) fn spend(&self, ns: u64) {
        self.spent_ns.fetch_add(ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exploring_takes_a_small_part_of_the_time() {
        let exploring = Exploring::new();
        let mut explored = 0;
        for now in (1_000_000..1_001_000_000).step_by(10_000) {
            if exploring.has_time(now) {
                exploring.spend(100_000);
                explored += 1;
            }
        }
        // A second's 256th part, of 100 µs each.
        assert!((39..=40).contains(&explored), "{explored}");
    }
}
