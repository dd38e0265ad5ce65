//! One block of a launch: its warps, its shared memory, its barriers.

use super::cluster::Common;
use super::interface::{Fault, FaultKind, Progress, Shape};
use super::lanes::lanes_of;
use super::program::{Kernel, RESERVED_SHARED};
use super::special;
use super::warp::Warp;
use crate::children::Children;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Barriers of a block.
pub(super) const BARRIERS: usize = 16;
/// Warps of a warpgroup, and warpgroups of the largest block.
pub(super) const WARPS_OF_GROUP: u32 = 4;
const GROUPS: usize = 8;
/// Where warps of a block meet: at its barriers, and each warpgroup by itself.
pub(super) const MEETINGS: usize = BARRIERS + GROUPS;

/// Where the warpgroup of a warp meets.
pub(super) const fn meeting_of_group(warp: u32) -> usize {
    BARRIERS + (warp / WARPS_OF_GROUP) as usize
}

/// How many instructions a warp runs before the next one's turn.
const TURN: u64 = 1024;
/// The longest of the short turns where turns differ.
const SHORT_TURN: u64 = 48;
/// A warp that runs more than this and then waits has done something before.
const FEW: u64 = 16;

/// What a block's warps have in common.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub(super) kernel: Arc<Kernel>,
    pub(super) shape: Arc<Shape>,
    pub(super) index: [u32; 3],
    /// Its place in its cluster.
    pub(super) rank: u32,
    pub(super) cluster: Common,
    pub(super) sm: u32,
    pub(super) shared: Vec<u8>,
    pub(super) barriers: [BarrierState; MEETINGS],
    /// Threads that have not ended.
    pub(super) live: u32,
    /// Lanes came to a barrier or ended, which others may have waited for.
    pub(super) stirred: bool,
    /// Whether kernels may access all bytes from an address on.
    pub(super) is_mapped: fn(u64, u64) -> bool,
    /// None where threads may not launch anything.
    pub(super) children: Option<Arc<Children>>,
}

/// What has come to a barrier since it last opened, besides the lanes that wait there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BarrierState {
    /// Some thread has come.
    pub(super) used: bool,
    /// Threads that did not wait.
    pub(super) arrived: u32,
    /// How many it waits for; all where None.
    pub(super) threads: Option<u32>,
    /// Threads with a predicate to reduce,
    pub(super) asked: u32,
    /// and those whose predicate was true.
    pub(super) held: u32,
}

/// One block of a launch. It can be run a slice at a time, by any thread.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) surroundings: Surroundings,
    warps: Vec<Warp>,
    /// Whose turn it is.
    next: usize,
    /// In which order they take turns, where that is not their own.
    shuffle: Option<Shuffle>,
}

/// Another order of warps in each round, with turns of other lengths: what a program gets away with in one order, it
/// may not in another.
#[derive(Debug)]
struct Shuffle {
    state: u64,
    order: Vec<usize>,
}

impl Shuffle {
    fn new(seed: u64, index: [u32; 3], warps: usize) -> Self {
        let state = index.iter().fold(seed, |state, axis| Self { state, order: Vec::new() }.next() ^ u64::from(*axis));
        let mut shuffle = Self { state, order: (0..warps).collect() };
        shuffle.round();
        shuffle
    }

    /// `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Mostly short ones, and now and then one that is long enough to leave the others far behind.
    fn turn(&mut self) -> u64 {
        if self.next().is_multiple_of(4) { TURN } else { 1 + self.next() % SHORT_TURN }
    }

    fn round(&mut self) {
        for last in (1..self.order.len()).rev() {
            let other = usize::try_from(self.next() % (last as u64 + 1)).unwrap_or_default();
            self.order.swap(last, other);
        }
    }
}

impl Surroundings {
    pub(super) fn threads(&self) -> u32 {
        self.shape.block.iter().fold(1, |product, size| product.saturating_mul(*size))
    }

    /// The index of a thread.
    pub(super) fn thread(&self, warp: u32, lane: usize) -> [u32; 3] {
        let [width, height, _] = self.shape.block.map(|size| size.max(1));
        let number = warp * 32 + u32::try_from(lane).unwrap_or_default();
        [number % width, number / width % height, number / width / height]
    }
}

impl Block {
    /// The block with that index and that rank in its cluster, before its first instruction.
    pub(super) fn new(
        kernel: &Arc<Kernel>,
        shape: &Arc<Shape>,
        index: [u32; 3],
        rank: u32,
        sm: u32,
        is_mapped: fn(u64, u64) -> bool,
    ) -> Self {
        let shared =
            u64::from(RESERVED_SHARED) + u64::from(kernel.properties.shared_bytes) + u64::from(shape.dynamic_shared);
        let mut surroundings = Surroundings {
            kernel: Arc::clone(kernel),
            shape: Arc::clone(shape),
            index,
            rank,
            cluster: Common::default(),
            sm,
            shared: vec![0; usize::try_from(shared).unwrap_or_default()],
            barriers: [BarrierState::default(); MEETINGS],
            live: 0,
            stirred: false,
            is_mapped,
            children: None,
        };
        let threads = surroundings.threads();
        surroundings.live = threads;
        let warps = (0..threads.div_ceil(32)).map(|number| {
            let lanes = match threads - number * 32 {
                some @ 1..32 => (1 << some) - 1,
                _ => u32::MAX,
            };
            Warp::new(number, lanes, &surroundings)
        });
        let warps: Vec<Warp> = warps.collect();
        let shuffle = crate::device::settings().order.map(|seed| Shuffle::new(seed, index, warps.len()));
        Self { surroundings, warps, next: 0, shuffle }
    }

    /// Runs for at most that many instructions, counted once for a warp. None: all wait for other blocks of the
    /// cluster.
    pub(super) fn run(&mut self, slice: u64) -> Option<Progress> {
        let program = Arc::clone(&self.surroundings.kernel.program);
        let (mut left, mut worked) = (slice, false);
        self.warps.iter_mut().for_each(|warp| warp.release_from_cluster(&mut self.surroundings));
        loop {
            let (mut ran, mut gave_way) = (false, false);
            if let Some(shuffle) = &mut self.shuffle {
                shuffle.round();
            }
            for _ in 0..self.warps.len() {
                let at = self.shuffle.as_ref().map_or(self.next, |shuffle| shuffle.order[self.next]);
                let warp = &mut self.warps[at];
                if warp.asleep != 0 {
                    warp.wake(special::clock());
                }
                if warp.ready != 0 {
                    if left == 0 {
                        return Some(Progress::Yielded);
                    }
                    let turn = left.min(self.shuffle.as_mut().map_or(TURN, Shuffle::turn));
                    let mut budget = turn;
                    left -= turn;
                    let result = warp.run(&program, &mut self.surroundings, &mut budget);
                    // A warp that only looks whether something has changed ends its turn.
                    let unused = warp.spin.take_unused();
                    budget += unused.unwrap_or(0);
                    left += budget;
                    worked |= turn - budget > FEW;
                    *(if unused.is_some() { &mut gave_way } else { &mut ran }) = true;
                    if let Err(fault) = result {
                        return Some(Progress::Fault(*fault));
                    }
                    if self.surroundings.stirred {
                        self.settle();
                    }
                }
                self.next = (self.next + 1) % self.warps.len();
            }
            if self.surroundings.live == 0 {
                return Some(Progress::Finished);
            }
            if ran {
                continue;
            }
            let asleep = self.warps.iter().any(|warp| warp.asleep != 0);
            if gave_way || asleep {
                return Some(if worked && !asleep { Progress::Yielded } else { Progress::Idle });
            }
            let mut alone = false;
            for warp in &mut self.warps {
                alone |= warp.go_alone();
            }
            if !alone {
                // A barrier of the cluster may still open; who runs the cluster knows.
                let waits = self.warps.iter().any(|warp| warp.at_cluster.waiting != 0);
                return if waits { None } else { Some(Progress::Fault(self.deadlock())) };
            }
        }
    }

    /// Instructions so far, counted once for a warp.
    pub(super) fn warp_instructions(&self) -> u64 {
        self.warps.iter().map(|warp| warp.warp_instructions).sum()
    }

    /// Opens the barriers that nobody is missing at.
    fn settle(&mut self) {
        let surroundings = &mut self.surroundings;
        surroundings.stirred = false;
        if surroundings.cluster.settle() {
            self.warps.iter_mut().for_each(|warp| warp.release_from_cluster(surroundings));
        }
        for number in 0..MEETINGS {
            let state = surroundings.barriers[number];
            if !state.used {
                continue;
            }
            let waiting: u32 = self.warps.iter().map(|warp| warp.at_barrier[number].count_ones()).sum();
            let open = match state.threads {
                None if number >= BARRIERS => {
                    let mut group = self.warps.iter().filter(|warp| meeting_of_group(warp.number) == number);
                    group.all(|warp| warp.at_barrier[number] == warp.alive)
                }
                None => waiting + state.arrived >= surroundings.live,
                Some(threads) => {
                    // A whole warp counts as 32 threads, whatever has ended.
                    let ended = |warp: &Warp| match warp.at_barrier[number] {
                        0 => 0,
                        lanes if lanes == warp.alive => (!warp.alive).count_ones(),
                        _ => 0,
                    };
                    let missing: u32 = self.warps.iter().map(ended).sum();
                    waiting + missing + state.arrived >= threads
                }
            };
            if open {
                if let Some(mut checker) = surroundings.cluster.checker.take() {
                    let all = number < BARRIERS && state.threads.is_none();
                    checker.opens(surroundings, &self.warps, number, all);
                    surroundings.cluster.checker = Some(checker);
                }
                surroundings.barriers[number] = BarrierState::default();
                for warp in &mut self.warps {
                    warp.release(&surroundings.kernel.program, number, state.held, state.asked);
                }
            }
        }
    }

    /// Who waits where, for a block that cannot go on.
    pub(super) fn deadlock(&self) -> Fault {
        let surroundings = &self.surroundings;
        let name = &surroundings.kernel.properties.name;
        let mut places: BTreeMap<(u32, u32), (u32, [u32; 3])> = BTreeMap::new();
        for warp in &self.warps {
            for lane in lanes_of(warp.alive) {
                let at = (warp.frames[warp.frame[lane] as usize].function, warp.pc[lane]);
                places.entry(at).or_insert((0, surroundings.thread(warp.number, lane))).0 += 1;
            }
        }
        let waiting: Vec<_> = places
            .iter()
            .map(|((function, pc), (count, [x, y, z]))| {
                let instruction = surroundings.kernel.program.functions[*function as usize].described(*pc, name);
                format!("{count} from thread ({x}, {y}, {z}) on at {instruction}")
            })
            .collect();
        let [x, y, z] = surroundings.index;
        let ended = surroundings.threads() - surroundings.live;
        let place = format!(
            "kernel {name}, block ({x}, {y}, {z}): all {} threads left wait for others, {ended} have ended: {}",
            surroundings.live,
            waiting.join("; "),
        );
        Fault { kind: FaultKind::Deadlock, place }
    }
}
