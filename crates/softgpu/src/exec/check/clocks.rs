//! What has happened before what, between the warps of a cluster and what runs on its own.
//!
//! Every warp counts its releases: what it does is published with its count. A clock holds for each warp up to which
//! count of it everything is known to have happened. Behind the warps come agents, which do what no thread does (a phase of a
//! barrier in memory, a thread's bulk copies, a warp group's products); they count what they have finished.

use super::shadow::Touch;
use super::together::Together;
use super::{Accessor, Place};
use std::collections::HashMap;

/// Counts by warp and agent; what is not there is 0.
#[derive(Debug, Clone, Default)]
struct Clock(Vec<u32>);

impl Clock {
    fn get(&self, who: usize) -> u32 {
        self.0.get(who).copied().unwrap_or_default()
    }

    fn raise(&mut self, who: usize, count: u32) {
        if self.0.len() <= who {
            self.0.resize(who + 1, 0);
        }
        self.0[who] = self.0[who].max(count);
    }

    fn join(&mut self, from: &Self) {
        if self.0.len() < from.0.len() {
            self.0.resize(from.0.len(), 0);
        }
        self.0.iter_mut().zip(&from.0).for_each(|(to, from)| *to = (*to).max(*from));
    }
}

/// What somebody knows to have happened.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    happened: Clock,
    /// What of it `fence.proxy.async` was behind, so that copies and products without threads see it.
    fenced: Clock,
}

impl Known {
    pub(super) fn join(&mut self, from: &Self) {
        self.happened.join(&from.happened);
        self.fenced.join(&from.fenced);
    }

    /// Whether everything of a warp or agent up to that count has happened.
    pub(super) fn has_happened(&self, who: u32, count: u32) -> bool {
        self.happened.get(who as usize) >= count
    }

    /// Whether `fence.proxy.async` came behind it.
    pub(super) fn is_fenced(&self, who: u32, count: u32) -> bool {
        self.fenced.get(who as usize) >= count
    }

    /// An agent has finished so much.
    pub(super) fn finished(&mut self, agent: u32, count: u32) {
        self.happened.raise(agent as usize, count);
    }
}

/// What was left at a place in shared memory by atomic and volatile writes.
#[derive(Debug, Default)]
struct Left {
    known: Known,
    /// The lanes that did, and when.
    by: Vec<(u32, usize, u32)>,
}

#[derive(Debug)]
pub(super) struct Clocks {
    /// By warp.
    warps: Vec<Known>,
    /// By the block's rank and the barrier's number: what those know who have come since it last opened.
    barriers: HashMap<(u32, usize), Known>,
    /// The same of the cluster's barrier,
    cluster: Known,
    /// and what those knew who opened it.
    cluster_opened: Known,
    left: HashMap<Place, Left>,
    agents: u32,
}

impl Clocks {
    pub(super) fn new(warps: usize) -> Self {
        let known = |warp: usize| {
            let mut known = Known::default();
            known.happened.raise(warp, 1);
            known
        };
        Self {
            warps: (0..warps).map(known).collect(),
            barriers: HashMap::new(),
            cluster: Known::default(),
            cluster_opened: Known::default(),
            left: HashMap::new(),
            agents: 0,
        }
    }

    /// Somebody new who counts.
    pub(super) fn new_agent(&mut self) -> u32 {
        self.agents += 1;
        u32::try_from(self.warps.len()).unwrap_or_default() + self.agents - 1
    }

    /// The count that a warp's accesses have now.
    pub(super) fn now(&self, warp: u32) -> u32 {
        self.warps[warp as usize].happened.get(warp as usize)
    }

    /// What a warp knows.
    pub(super) fn of(&self, warp: u32) -> &Known {
        &self.warps[warp as usize]
    }

    /// A warp hands on what it knows.
    pub(super) fn release(&mut self, warp: u32, to: &mut Known) {
        to.join(&self.warps[warp as usize]);
        self.count(warp);
    }

    /// Lanes of a warp get to know what others knew; of their own warp, through others or at a place where lanes wait for
    /// each other, too.
    pub(super) fn acquire(&mut self, warp: u32, lanes: u32, from: &Known, together: &mut Together) {
        self.warps[warp as usize].join(from);
        together.acquire(lanes, from.happened.get(warp as usize));
    }

    /// A warp knows that an agent has finished so much.
    pub(super) fn finished(&mut self, warp: u32, agent: u32, count: u32) {
        self.warps[warp as usize].finished(agent, count);
    }

    /// Lanes of a warp have `fence.proxy.async`.
    pub(super) fn fence(&mut self, warp: u32) {
        let Known { happened, fenced } = &mut self.warps[warp as usize];
        fenced.join(happened);
        self.count(warp);
    }

    fn count(&mut self, warp: u32) {
        let next = self.now(warp) + 1;
        self.warps[warp as usize].happened.raise(warp as usize, next);
    }

    pub(super) fn arrive(&mut self, rank: u32, barrier: usize, warp: u32) {
        self.barriers.entry((rank, barrier)).or_default().join(&self.warps[warp as usize]);
        self.count(warp);
    }

    pub(super) fn pass(&mut self, rank: u32, barrier: usize, (warp, lanes): (u32, u32), together: &mut Together) {
        if let Some(known) = self.barriers.remove(&(rank, barrier)) {
            self.acquire(warp, lanes, &known, together);
            self.barriers.insert((rank, barrier), known);
        }
    }

    pub(super) fn close(&mut self, rank: u32, barrier: usize) {
        self.barriers.remove(&(rank, barrier));
    }

    pub(super) fn arrive_at_cluster(&mut self, warp: u32) {
        self.cluster.join(&self.warps[warp as usize]);
        self.count(warp);
    }

    pub(super) fn open_cluster(&mut self) {
        self.cluster_opened = core::mem::take(&mut self.cluster);
    }

    pub(super) fn pass_cluster(&mut self, warp: u32, lanes: u32, together: &mut Together) {
        let known = core::mem::take(&mut self.cluster_opened);
        self.acquire(warp, lanes, &known, together);
        self.cluster_opened = known;
    }

    /// An atomic or volatile access: who reads there comes after those who wrote there.
    pub(super) fn synchronise(
        &mut self,
        accessor: Accessor,
        lane: usize,
        place: Place,
        touch: Touch,
        together: &mut Together,
    ) {
        let (reads, writes) = match touch {
            Touch::Read { .. } => (true, false),
            Touch::Write { .. } | Touch::Replace => (false, true),
            Touch::Update { reads, .. } => (reads, true),
        };
        if reads && let Some(left) = self.left.get(&place) {
            self.warps[accessor.warp as usize].join(&left.known);
            let own = left.by.iter().filter(|(its_warp, ..)| *its_warp == accessor.warp);
            own.for_each(|(_, other, step)| together.follow(*other, lane, *step));
        }
        if writes {
            let left = self.left.entry(place).or_default();
            left.known.join(&self.warps[accessor.warp as usize]);
            match left.by.iter_mut().find(|(its_warp, its_lane, _)| (*its_warp, *its_lane) == (accessor.warp, lane)) {
                Some((.., step)) => *step = accessor.step,
                None => left.by.push((accessor.warp, lane, accessor.step)),
            }
            self.count(accessor.warp);
        }
    }
}
