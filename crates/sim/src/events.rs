//! Times at which something is to happen: one for each slot, set again and again.
//!
//! A tournament: each pair of neighbours has a winner, the sooner one, and so on up to the first of all. Setting a time plays
//! a handful of matches; nothing is allocated, nothing is left behind that was set before. Of equal times the lower slot is
//! first, so the order is always the same.

/// Never.
pub(crate) const NEVER: u64 = u64::MAX;

/// When each slot's thing happens.
pub(crate) struct Timers {
    times: Vec<u64>,
    /// `winners[1]` is the first of all; the children of `n` are `2n` and `2n + 1`. The second half are the slots.
    winners: Vec<usize>,
}

impl Timers {
    /// So many slots, and nothing to happen.
    pub(crate) fn new(slots: usize) -> Self {
        let leaves = slots.next_power_of_two().max(2);
        let mut winners: Vec<usize> = (0..2 * leaves).map(|node| node.saturating_sub(leaves)).collect();
        // Of equals the left one.
        (1..leaves).rev().for_each(|node| winners[node] = winners[2 * node]);
        Self { times: vec![NEVER; leaves], winners }
    }

    /// This happens then, and not when it was to happen before.
    pub(crate) fn set(&mut self, slot: usize, at_ns: u64) {
        self.times[slot] = at_ns;
        let mut node = (self.times.len() + slot) / 2;
        while node > 0 {
            let (left, right) = (self.winners[2 * node], self.winners[2 * node + 1]);
            self.winners[node] = if self.times[right] < self.times[left] { right } else { left };
            node /= 2;
        }
    }

    /// It does not happen.
    pub(crate) fn clear(&mut self, slot: usize) {
        if self.times[slot] != NEVER {
            self.set(slot, NEVER);
        }
    }

    /// What happens first, and when; [`NEVER`] if nothing does.
    pub(crate) fn first(&self) -> (u64, usize) {
        let slot = self.winners[1];
        (self.times[slot], slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_first_is_the_least_of_all(
            slots in 1..140_usize,
            changes in proptest::collection::vec((any::<prop::sample::Index>(), 0..50_u64, any::<bool>()), 0..300),
        ) {
            let mut timers = Timers::new(slots);
            let mut reference = vec![NEVER; slots];
            for (slot, at_ns, is_set) in changes {
                let slot = slot.index(slots);
                if is_set {
                    timers.set(slot, at_ns);
                } else {
                    timers.clear(slot);
                }
                reference[slot] = if is_set { at_ns } else { NEVER };
                let first = reference.iter().copied().zip(0..).min().expect("there is a slot");
                prop_assert_eq!(timers.first().0, first.0);
                prop_assert!(first.0 == NEVER || timers.first().1 == first.1);
            }
        }
    }
}
