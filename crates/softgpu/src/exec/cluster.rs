//! Blocks that run together: a cluster, which is one block in most launches.
//!
//! All blocks of a cluster are run by whoever runs the cluster, one after the other, so what they have in common needs
//! no locks: it goes from block to block with the turn.

use super::block::{Block, Surroundings};
use super::check::{Checker, Finding};
use super::interface::{Fault, Progress, Shape};
use super::lanes::lanes_of;
use super::program::Kernel;
use super::warp::Warp;
use crate::children::Children;
use std::sync::Arc;

/// Addresses in another block's shared memory have that block's rank, plus one, above this bit: there is no block with
/// so much shared memory.
const RANK_SHIFT: u32 = 24;
const WITHIN: u64 = (1 << RANK_SHIFT) - 1;

/// The same place in the shared memory of the block with that rank.
pub(super) fn map_address(address: u64, rank: u32, own_rank: u32) -> u64 {
    let within = address & WITHIN;
    if rank == own_rank { within } else { (u64::from(rank) + 1) << RANK_SHIFT | within }
}

/// The rank of the block that an address within shared memory belongs to, and the address there.
pub(super) fn resolve(address: u64, own_rank: u32) -> (u64, u64) {
    match address >> RANK_SHIFT {
        0 => (own_rank.into(), address),
        rank => (rank - 1, address & WITHIN),
    }
}

/// What the blocks of a cluster have in common.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// Shared memory by rank, but that of the block whose turn it is. Empty where there is only one.
    pub(super) shared: Vec<Vec<u8>>,
    /// How often the barrier has opened.
    pub(super) phase: u32,
    /// Threads that have come to the barrier since,
    pub(super) arrived: u32,
    /// of those that have not ended.
    pub(super) live: u32,
    /// None where nothing is checked.
    pub(super) checker: Option<Box<Checker>>,
}

impl Common {
    /// Opens the barrier where nobody is missing.
    pub(super) fn settle(&mut self) -> bool {
        let open = self.arrived > 0 && self.arrived >= self.live;
        if open {
            self.arrived = 0;
            self.phase = self.phase.wrapping_add(1);
            if let Some(checker) = &mut self.checker {
                checker.open_cluster();
            }
        }
        open
    }
}

/// How far a warp's lanes are with their cluster's barrier.
#[derive(Debug, Default)]
pub(super) struct AtCluster {
    /// Those that wait.
    pub(super) waiting: u32,
    /// Those that have arrived and not waited,
    arrived: u32,
    /// and in which phase.
    phase: [u32; 32],
}

impl AtCluster {
    pub(super) fn arrive(&mut self, common: &mut Common, lanes: u32) {
        common.arrived = common.arrived.saturating_add(lanes.count_ones());
        self.arrived |= lanes;
        lanes_of(lanes).for_each(|lane| self.phase[lane] = common.phase);
    }

    /// Which of the lanes have to wait.
    pub(super) fn wait(&mut self, common: &Common, lanes: u32) -> u32 {
        let still = lanes_of(lanes & self.arrived).filter(|lane| self.phase[*lane] == common.phase);
        let waiting = super::lanes::mask_of(still);
        self.arrived &= !lanes | waiting;
        self.waiting |= waiting;
        waiting
    }

    /// Lanes whose phase is over.
    pub(super) fn release(&mut self, common: &Common) -> u32 {
        if self.waiting == 0 {
            return 0;
        }
        let over = lanes_of(self.waiting).filter(|lane| self.phase[*lane] != common.phase);
        let released = super::lanes::mask_of(over);
        self.waiting &= !released;
        self.arrived &= !released;
        released
    }

    /// Lanes end: nobody waits for them any more, nor counts their arrival.
    pub(super) fn end(&mut self, common: &mut Common, lanes: u32) {
        common.live = common.live.saturating_sub(lanes.count_ones());
        let counted = lanes_of(lanes & self.arrived).filter(|lane| self.phase[*lane] == common.phase).count();
        common.arrived = common.arrived.saturating_sub(u32::try_from(counted).unwrap_or_default());
        self.arrived &= !lanes;
    }
}

impl Warp {
    /// Lets lanes go whose cluster's barrier has opened.
    pub(super) fn release_from_cluster(&mut self, block: &mut Surroundings) {
        let released = self.at_cluster.release(&block.cluster);
        if let Some(checker) = block.cluster.checker.as_mut().filter(|_| released != 0) {
            checker.pass_cluster(block.rank, self.number, released);
        }
        lanes_of(released).for_each(|lane| self.pc[lane] += 1);
        self.ready |= released;
    }
}

/// What came of a turn for each block.
#[derive(Debug, Default)]
struct Round {
    alive: bool,
    went_on: bool,
    idle: bool,
    fault: Option<Fault>,
}

/// Blocks that run together. They can be run a slice at a time, by any thread.
#[derive(Debug)]
pub(crate) struct Cluster {
    blocks: Vec<Block>,
    common: Common,
    /// Whose turn it is.
    next: usize,
}

impl Cluster {
    /// The cluster with that index, before its first instruction. `sm` says where the block of each rank runs.
    pub(crate) fn new(kernel: &Arc<Kernel>, shape: &Arc<Shape>, index: [u32; 3], sm: impl Fn(u32) -> u32) -> Self {
        Self::with_memory(kernel, shape, index, sm, crate::memory::access::is_mapped)
    }

    /// A cluster that asks elsewhere which memory it may access.
    pub(super) fn with_memory(
        kernel: &Arc<Kernel>,
        shape: &Arc<Shape>,
        index: [u32; 3],
        sm: impl Fn(u32) -> u32,
        is_mapped: fn(u64, u64) -> bool,
    ) -> Self {
        let size = shape.cluster_size();
        let count = size.iter().product::<u32>().max(1);
        let mut blocks: Vec<Block> = (0..count)
            .map(|rank| {
                let within = [rank % size[0], rank / size[0] % size[1], rank / size[0] / size[1]];
                let axis = |axis: usize| index[axis] * size[axis] + within[axis];
                Block::new(kernel, shape, [axis(0), axis(1), axis(2)], rank, sm(rank), is_mapped)
            })
            .collect();
        let live = blocks.iter().map(|block| block.surroundings.live).sum();
        let checker = kernel.program.checks.as_ref().and(blocks.first()).map(|first| {
            let Surroundings { shared, .. } = &first.surroundings;
            Checker::new(count, first.surroundings.threads(), shared.len(), crate::memory::whereabouts)
        });
        let mut common = Common { live, checker, ..Common::default() };
        if let [only] = blocks.as_mut_slice() {
            only.surroundings.cluster = core::mem::take(&mut common);
        } else {
            common.shared = blocks.iter_mut().map(|block| core::mem::take(&mut block.surroundings.shared)).collect();
        }
        Self { blocks, common, next: 0 }
    }

    /// Its threads may launch kernels, of the same modules.
    pub(crate) fn may_launch(&mut self, children: &Arc<Children>) {
        for block in &mut self.blocks {
            block.surroundings.children = Some(Arc::clone(children));
        }
    }

    /// Runs for at most that many instructions, counted once for a warp.
    pub(crate) fn run(&mut self, slice: u64) -> Progress {
        match self.blocks.as_mut_slice() {
            [only] => only.run(slice).unwrap_or_else(|| Progress::Fault(only.deadlock())),
            _ => self.run_together(slice),
        }
    }

    /// Lets the blocks take turns until the slice is used up.
    fn run_together(&mut self, slice: u64) -> Progress {
        let end = self.warp_instructions().saturating_add(slice);
        let each = (slice / self.blocks.len() as u64).max(1);
        loop {
            let round = self.round(each);
            if let Some(fault) = round.fault {
                return Progress::Fault(fault);
            }
            match round {
                Round { alive: false, .. } => return Progress::Finished,
                Round { went_on: true, .. } if self.warp_instructions() < end => {}
                Round { went_on: true, .. } => return Progress::Yielded,
                Round { idle: true, .. } => return Progress::Idle,
                Round { .. } => {
                    let stuck = self.blocks.iter().find(|block| block.surroundings.live > 0);
                    return stuck.map_or(Progress::Finished, |block| Progress::Fault(block.deadlock()));
                }
            }
        }
    }

    /// A turn for each block.
    fn round(&mut self, each: u64) -> Round {
        let mut round = Round::default();
        for _ in 0..self.blocks.len() {
            let rank = self.next;
            self.next = (self.next + 1) % self.blocks.len();
            if self.blocks[rank].surroundings.live == 0 {
                continue;
            }
            let before = self.blocks[rank].warp_instructions();
            self.hand_over(rank);
            let progress = self.blocks[rank].run(each);
            self.hand_over(rank);
            round.alive |= progress != Some(Progress::Finished);
            match progress {
                Some(Progress::Fault(fault)) => {
                    round.fault = Some(fault);
                    return round;
                }
                Some(Progress::Finished | Progress::Yielded) => round.went_on = true,
                Some(Progress::Idle) => round.idle = true,
                // Before it had to wait, it may have done what others wait for.
                None => round.went_on |= self.blocks[rank].warp_instructions() != before,
            }
        }
        round
    }

    /// Gives a block what all have in common, or takes it back.
    fn hand_over(&mut self, rank: usize) {
        let surroundings = &mut self.blocks[rank].surroundings;
        core::mem::swap(&mut self.common, &mut surroundings.cluster);
        let with_memory =
            if surroundings.cluster.shared.is_empty() { &mut self.common } else { &mut surroundings.cluster };
        if let Some(shared) = with_memory.shared.get_mut(rank) {
            core::mem::swap(shared, &mut surroundings.shared);
        }
    }

    fn checker(&mut self) -> Option<&mut Checker> {
        // One alone has what all have in common.
        let common =
            if let [only] = self.blocks.as_mut_slice() { &mut only.surroundings.cluster } else { &mut self.common };
        common.checker.as_deref_mut()
    }

    pub(crate) fn is_checked(&mut self) -> bool {
        self.checker().is_some()
    }

    /// What the checker has found since it was last asked.
    pub(crate) fn take_findings(&mut self) -> Vec<Finding> {
        self.checker().map(Checker::take_findings).unwrap_or_default()
    }

    /// Instructions of each block so far, counted once for a warp.
    pub(crate) fn instructions_of_blocks(&self) -> impl Iterator<Item = u64> {
        self.blocks.iter().map(Block::warp_instructions)
    }

    /// Instructions so far, counted once for a warp.
    pub(super) fn warp_instructions(&self) -> u64 {
        self.instructions_of_blocks().sum()
    }
}
