//! Copies on their way to shared memory (`cp.async`): each thread issues, groups and waits for its own, or has a barrier in
//! memory wait for them.

use crate::exec::op::CopyGroup;
use std::collections::HashMap;

/// A copy that nobody has waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct UnderWay {
    /// The group that it belongs to, or will belong to once that is committed.
    group: u32,
    address: u64,
    bytes: u64,
}

/// Copies that a phase of a barrier waits for, with those before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    group: u32,
    /// Who finishes them, and its count then.
    phase: (u32, u32),
}

/// The copies of one thread.
#[derive(Debug, Default)]
struct Copies {
    /// Groups that were committed.
    committed: u32,
    under_way: Vec<UnderWay>,
    counted: Vec<Counted>,
}

/// What has come of a thread's copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Come {
    /// Where the bytes lie that no barrier waits for.
    pub(super) places: Vec<(u64, u64)>,
    /// Phases of barriers whose bytes are there, too.
    pub(super) phases: Vec<(u32, u32)>,
}

/// The copies of a block, by warp and lane.
#[derive(Debug, Default)]
pub(super) struct AllCopies(HashMap<(u32, usize), Copies>);

impl AllCopies {
    pub(super) fn issue(&mut self, warp: u32, lane: usize, address: u64, bytes: u64) {
        let copies = self.0.entry((warp, lane)).or_default();
        copies.under_way.push(UnderWay { group: copies.committed + 1, address, bytes });
    }

    /// A thread commits copies, or waits: then what has come.
    pub(super) fn group(&mut self, step: CopyGroup, warp: u32, lane: usize) -> Option<Come> {
        if matches!(step, CopyGroup::Commit | CopyGroup::WaitAll) {
            self.commit(warp, lane);
        }
        match step {
            CopyGroup::Commit => None,
            CopyGroup::Wait(at_most) => Some(self.wait(warp, lane, at_most)),
            CopyGroup::WaitAll => Some(self.wait(warp, lane, 0)),
        }
    }

    fn commit(&mut self, warp: u32, lane: usize) {
        self.0.entry((warp, lane)).or_default().committed += 1;
    }

    /// A thread waits until at most so many of its last groups are under way.
    fn wait(&mut self, warp: u32, lane: usize, at_most: u32) -> Come {
        let Some(copies) = self.0.get_mut(&(warp, lane)) else { return Come::default() };
        let last = copies.committed.saturating_sub(at_most);
        let come = copies.under_way.extract_if(.., |copy| copy.group <= last);
        let places = come.map(|copy| (copy.address, copy.bytes)).collect();
        let phases = copies.counted.extract_if(.., |counted| counted.group <= last);
        Come { places, phases: phases.map(|counted| counted.phase).collect() }
    }

    /// A phase of a barrier waits for all copies of a thread so far: where those lie that no other phase waits for, and the
    /// other phases, but for those that the thread is known to have waited for.
    pub(super) fn count(
        &mut self,
        (warp, lane): (u32, usize),
        phase: (u32, u32),
        is_known: impl Fn((u32, u32)) -> bool,
    ) -> Come {
        let Some(copies) = self.0.get_mut(&(warp, lane)) else { return Come::default() };
        copies.counted.retain(|counted| !is_known(counted.phase));
        let phases = copies.counted.iter().map(|counted| counted.phase).collect();
        let under_way = core::mem::take(&mut copies.under_way);
        if let Some(group) = under_way.iter().map(|copy| copy.group).max() {
            copies.counted.push(Counted { group, phase });
        }
        Come { places: under_way.iter().map(|copy| (copy.address, copy.bytes)).collect(), phases }
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
        assert_eq!(copies.wait(0, 4, 0).places, [], "another thread's");
        assert_eq!(copies.wait(0, 5, 2).places, [(16, 16)]);
        assert_eq!(copies.wait(0, 5, 0).places, [(32, 16), (48, 16)], "what is not committed is not waited for");
        copies.commit(0, 5);
        assert_eq!(copies.wait(0, 5, 0).places, [(64, 4)]);
        assert_eq!(copies.wait(0, 5, 0).places, []);
    }

    #[test]
    fn a_barrier_waits_for_all_copies_so_far() {
        let mut copies = AllCopies::default();
        copies.issue(0, 5, 16, 16);
        let nobody_waited = |_| false;
        let first = copies.count((0, 5), (7, 1), nobody_waited);
        assert_eq!(first, Come { places: vec![(16, 16)], phases: Vec::new() });
        copies.issue(0, 5, 32, 16);
        let second = copies.count((0, 5), (8, 1), nobody_waited);
        assert_eq!(second, Come { places: vec![(32, 16)], phases: vec![(7, 1)] });
        copies.commit(0, 5);
        assert_eq!(copies.wait(0, 5, 0), Come { places: Vec::new(), phases: vec![(7, 1), (8, 1)] });
    }
}
