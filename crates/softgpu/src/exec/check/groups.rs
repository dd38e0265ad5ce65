//! Groups of what runs on its own and reads shared memory: bulk copies, which each thread groups and waits for, and
//! products of warp groups.

use super::clocks::Clocks;
use crate::exec::op::CopyGroup;
use std::collections::HashMap;

/// Warps that multiply together.
const WARPS: u32 = 4;

/// Somebody's groups that were committed.
#[derive(Debug, Default)]
struct Committed(u32);

impl Committed {
    /// The group that what is issued now will belong to.
    fn next(&self) -> u32 {
        self.0 + 1
    }

    /// Commits a group, or waits: then up to which group everything is finished.
    fn take(&mut self, step: CopyGroup) -> Option<u32> {
        match step {
            CopyGroup::Commit => self.0 += 1,
            CopyGroup::Wait(at_most) => return Some(self.0.saturating_sub(at_most)),
            CopyGroup::WaitAll => return Some(self.0),
        }
        None
    }
}

/// The bulk copies of a block's threads out of shared memory, by warp and lane.
#[derive(Debug, Default)]
pub(super) struct BulkCopies(HashMap<(u32, usize), (u32, Committed)>);

impl BulkCopies {
    /// Who finishes what a thread issues now, and with which count.
    pub(super) fn issue(&mut self, warp: u32, lane: usize, clocks: &mut Clocks) -> (u32, u32) {
        let (agent, committed) = self.0.entry((warp, lane)).or_insert_with(|| (clocks.new_agent(), Committed(0)));
        (*agent, committed.next())
    }

    pub(super) fn group(&mut self, step: CopyGroup, warp: u32, lane: usize, clocks: &mut Clocks) {
        let Some((agent, committed)) = self.0.get_mut(&(warp, lane)) else { return };
        if let Some(finished) = committed.take(step) {
            clocks.finished(warp, *agent, finished);
        }
    }
}

/// The products of a block's warp groups.
#[derive(Debug, Default)]
pub(super) struct Products {
    /// By warp.
    committed: HashMap<u32, Committed>,
    /// By the number of the first warp: who finishes them, and up to which group they are known to be finished.
    groups: HashMap<u32, (u32, u32)>,
}

impl Products {
    /// Who finishes what a warp issues now, and with which count. None where another warp of the four has seen it finished: here
    /// each of them computes when it comes to the instruction, on a GPU they do so together.
    pub(super) fn issue(&mut self, warp: u32, first: u32, clocks: &mut Clocks) -> Option<(u32, u32)> {
        let count = self.committed.entry(warp).or_default().next();
        let (agent, finished) =
            self.groups.entry(Self::first_warp(warp, first)).or_insert_with(|| (clocks.new_agent(), 0));
        (count > *finished).then_some((*agent, count))
    }

    /// `first` is the number of the block's first warp.
    pub(super) fn group(&mut self, step: CopyGroup, warp: u32, first: u32, clocks: &mut Clocks) {
        let Some(count) = self.committed.entry(warp).or_default().take(step) else { return };
        if let Some((agent, finished)) = self.groups.get_mut(&Self::first_warp(warp, first)) {
            *finished = (*finished).max(count);
            clocks.finished(warp, *agent, count);
        }
    }

    fn first_warp(warp: u32, first: u32) -> u32 {
        first + (warp - first) / WARPS * WARPS
    }
}
