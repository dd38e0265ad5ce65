//! What has happened before what, between the warps of a block.
//!
//! Every warp counts its releases: what it does is published with its count. A clock holds for each warp up to which
//! count of it everything is known to have happened.

use super::super::block::BARRIERS;
use super::Accessor;
use super::shadow::Touch;
use super::together::Together;
use std::collections::HashMap;

/// Warps in the largest block.
const WARPS: usize = 32;

type Clock = [u32; WARPS];

fn join(to: &mut Clock, from: &Clock) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = (*to).max(*from));
}

/// What was left at a place in shared memory by atomic and volatile writes.
#[derive(Debug, Default)]
struct Left {
    clock: Clock,
    /// The lanes that did, and when.
    by: Vec<(u32, usize, u32)>,
}

#[derive(Debug)]
pub(super) struct Clocks {
    /// By warp.
    warps: Vec<Clock>,
    barriers: [Clock; BARRIERS],
    /// By address.
    left: HashMap<u64, Left>,
}

impl Clocks {
    pub(super) fn new(warps: usize) -> Self {
        let clock = |warp: usize| {
            let mut clock = [0; WARPS];
            if let Some(own) = clock.get_mut(warp) {
                *own = 1;
            }
            clock
        };
        Self { warps: (0..warps).map(clock).collect(), barriers: [[0; WARPS]; BARRIERS], left: HashMap::new() }
    }

    /// The count that a warp's accesses have now.
    pub(super) fn now(&self, warp: usize) -> u32 {
        self.warps[warp].get(warp).copied().unwrap_or_default()
    }

    /// Whether everything of a warp up to that count has happened before what the other does now.
    pub(super) fn is_before(&self, warp: usize, clock: u32, other: usize) -> bool {
        self.warps[other].get(warp).is_some_and(|known| *known >= clock)
    }

    fn count(&mut self, warp: usize) {
        if let Some(own) = self.warps[warp].get_mut(warp) {
            *own += 1;
        }
    }

    pub(super) fn arrive(&mut self, barrier: usize, warp: usize) {
        join(&mut self.barriers[barrier], &self.warps[warp]);
        self.count(warp);
    }

    pub(super) fn pass(&mut self, barrier: usize, warp: usize) {
        join(&mut self.warps[warp], &self.barriers[barrier]);
    }

    pub(super) fn close(&mut self, barrier: usize) {
        self.barriers[barrier] = [0; WARPS];
    }

    /// An atomic or volatile access: who reads there comes after those who wrote there.
    pub(super) fn synchronise(
        &mut self,
        accessor: Accessor,
        lane: usize,
        address: u64,
        touch: Touch,
        together: &mut Together,
    ) {
        let warp = accessor.warp as usize;
        let (reads, writes) = match touch {
            Touch::Read { .. } => (true, false),
            Touch::Write { .. } | Touch::Replace => (false, true),
            Touch::Update { reads, .. } => (reads, true),
        };
        if reads && let Some(left) = self.left.get(&address) {
            join(&mut self.warps[warp], &left.clock);
            let own = left.by.iter().filter(|(its_warp, ..)| *its_warp == accessor.warp);
            own.for_each(|(_, other, step)| together.follow(*other, lane, *step));
        }
        if writes {
            let left = self.left.entry(address).or_default();
            join(&mut left.clock, &self.warps[warp]);
            match left.by.iter_mut().find(|(its_warp, its_lane, _)| (*its_warp, *its_lane) == (accessor.warp, lane)) {
                Some((.., step)) => *step = accessor.step,
                None => left.by.push((accessor.warp, lane, accessor.step)),
            }
            self.count(warp);
        }
    }
}
