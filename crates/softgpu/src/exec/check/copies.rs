//! Copies on their way to shared memory (`cp.async`): each thread issues, groups and waits for its own.

use std::collections::HashMap;

/// A copy that nobody has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnderWay {
    /// The group that it belongs to, or will belong to once that is committed.
    group: u32,
    address: u64,
    bytes: u64,
}

/// The copies of one thread.
#[derive(Debug, Default)]
struct Copies {
    /// Groups that were committed.
    committed: u32,
    under_way: Vec<UnderWay>,
}

/// The copies of a block, by warp and lane.
#[derive(Debug, Default)]
pub(super) struct AllCopies(HashMap<(u32, usize), Copies>);

impl AllCopies {
    pub(super) fn issue(&mut self, warp: u32, lane: usize, address: u64, bytes: u64) {
        let copies = self.0.entry((warp, lane)).or_default();
        copies.under_way.push(UnderWay { group: copies.committed + 1, address, bytes });
    }

    pub(super) fn commit(&mut self, warp: u32, lane: usize) {
        self.0.entry((warp, lane)).or_default().committed += 1;
    }

    /// A thread waits until at most so many of its last groups are under way; where the bytes lie that have come.
    pub(super) fn wait(&mut self, warp: u32, lane: usize, at_most: u32) -> Vec<(u64, u64)> {
        let Some(copies) = self.0.get_mut(&(warp, lane)) else { return Vec::new() };
        let last = copies.committed.saturating_sub(at_most);
        let come = |copy: &UnderWay| copy.group <= last;
        let places = copies.under_way.iter().filter(|copy| come(copy)).map(|copy| (copy.address, copy.bytes)).collect();
        copies.under_way.retain(|copy| !come(copy));
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_waited_for_in_their_order() {
        let mut copies = AllCopies::default();
        for address in [16, 32, 48] {
            copies.issue(0, 5, address, 16);
            copies.commit(0, 5);
        }
        copies.issue(0, 5, 64, 4);
        assert_eq!(copies.wait(0, 4, 0), [], "another thread's");
        assert_eq!(copies.wait(0, 5, 2), [(16, 16)]);
        assert_eq!(copies.wait(0, 5, 0), [(32, 16), (48, 16)], "what is not committed is not waited for");
        copies.commit(0, 5);
        assert_eq!(copies.wait(0, 5, 0), [(64, 4)]);
        assert_eq!(copies.wait(0, 5, 0), []);
    }
}
