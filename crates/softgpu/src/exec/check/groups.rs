//! Groups of what runs on its own and reads shared memory: bulk copies, which each thread groups and waits for, and
//! products of warp groups.

use super::clocks::Clocks;
use crate::exec::block::WARPS_OF_GROUP;
use crate::exec::op::CopyGroup;
use std::collections::HashMap;

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
    /// By the number of the first warp: who finishes them.
    agents: HashMap<u32, u32>,
}

impl Products {
    /// Who finishes what a warp issues now, and with which count.
    pub(super) fn issue(&mut self, warp: u32, first: u32, clocks: &mut Clocks) -> (u32, u32) {
        let count = self.committed.entry(warp).or_default().next();
        (*self.agents.entry(Self::first_warp(warp, first)).or_insert_with(|| clocks.new_agent()), count)
    }

    /// `first` is the number of the block's first warp. Who waits goes on when all four warps have come, so nothing that one of them
    /// has yet to issue is taken for finished.
    pub(super) fn group(&mut self, step: CopyGroup, warp: u32, first: u32, clocks: &mut Clocks) {
        let Some(count) = self.committed.entry(warp).or_default().take(step) else { return };
        if let Some(agent) = self.agents.get(&Self::first_warp(warp, first)) {
            clocks.finished(warp, *agent, count);
        }
    }

    fn first_warp(warp: u32, first: u32) -> u32 {
        first + (warp - first) / WARPS_OF_GROUP * WARPS_OF_GROUP
    }
}
