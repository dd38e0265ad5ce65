//! What programs do wrong without a fault, found while they run.
//!
//! * Reads of shared memory that nobody has written.
//! * Races in shared memory: two threads access the same bytes, at least one of them writes, not both with an atomic
//!   or volatile access, and nothing puts the two accesses in order. A barrier does, of the block or of the warp; so
//!   does running in step within a warp, and so do atomics where one thread reads what the other left (a lock).
//! * Accesses outside of allocations, also where there is memory: between two allocations, and after they were freed.
//! * Barriers that not all threads reach.
//!
//! Decode wraps the instructions that matter ([`Op::Checked`](super::op::Op)) where checks are asked for, so that
//! nothing of this is there otherwise. A cluster's blocks are checked together, with all that they do to each other's shared
//! memory; races between others are not found.
//!
//! A copy that runs on its own (`cp.async`) is a write that is under way until its thread has waited for it (`copies`): until
//! then whoever touches the bytes races with it, and the wait counts as the write's place in the order.
//!
//! Barriers in memory (`mbarriers`) order those who wait for a phase behind those who arrived in it. What copies without threads
//! write, and what they and the products of warp groups read (`groups`), is done by agents: it is finished for those who have
//! waited for it, and for those who come after them. Nothing here takes time, so what a program does too early shows in that
//! nobody has waited.
//!
//! Order between warps is kept as vector clocks, one entry for each warp and agent (`clocks`); order within a warp as the last
//! time that two lanes were in step (`together`). Both err towards order: what is found is wrong, though not all that
//! is wrong is found.

mod asynchronous;
mod clocks;
mod copies;
mod groups;
mod matrix;
mod mbarriers;
mod shadow;
mod together;
mod words;

use super::access::{addresses, resolve};
use super::block::Surroundings;
use super::cluster;
use super::interface::Fault;
use super::lanes::{LANES, Registers, lanes_of};
use super::op::{Address, Atomic, AtomicOp, Checked, Op, Order, Rare, Space};
use super::program::{Program, RESERVED_SHARED};
use super::warp::{Group, Next, Warp};
use crate::memory::Whereabouts;
use clocks::Clocks;
use copies::AllCopies;
use core::sync::atomic::{Ordering, fence};
use groups::{BulkCopies, Products};
use mbarriers::Mbarriers;
use shadow::{Access, Before, Problem, Shadow, Touch};
use std::collections::HashMap;
use together::Together;

/// What decode knows of checked code.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// Function and place of each checked instruction, by its number.
    pub(super) sites: Vec<(u32, u32)>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FindingKind {
    UninitialisedShared,
    SharedRace,
    OutsideAllocation,
    ReservedShared,
    DivergentBarrier,
    EndedBeforeBarrier,
}

/// Something wrong in a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: FindingKind,
    /// The instructions; the same twice where it is one.
    pub(crate) sites: [u32; 2],
    /// Kernel, block, threads, instructions and lines of its first time, as a sentence.
    pub(crate) words: String,
    pub(crate) count: u64,
}

/// A place in the shared memory of a cluster's blocks: the block's rank, and the address there.
type Place = (u32, u64);

/// The checker of a cluster's blocks.
#[derive(Debug)]
pub(super) struct Checker {
    /// By the block's rank.
    shadows: Vec<Shadow>,
    clocks: Clocks,
    copies: AllCopies,
    bulk_copies: BulkCopies,
    products: Products,
    mbarriers: Mbarriers,
    /// By warp.
    together: Vec<Together>,
    warps_per_block: u32,
    /// Counts checked instructions.
    step: u32,
    whereabouts: fn(u64, u64) -> Whereabouts,
    findings: HashMap<(FindingKind, [u32; 2]), Finding>,
}

/// Who accesses memory, and with what.
#[derive(Debug, Clone, Copy)]
struct Accessor {
    /// Its number in the cluster.
    warp: u32,
    site: u32,
    step: u32,
}

/// What is looked at: lanes of a warp, which are about to run an instruction.
#[derive(Debug, Clone, Copy)]
struct Moment<'a> {
    program: &'a Program,
    block: &'a Surroundings,
    accessor: Accessor,
}

impl Moment<'_> {
    /// The place of an address in shared memory as the block has it.
    fn place(&self, address: u64) -> Place {
        let (rank, within) = cluster::resolve(address, self.block.rank);
        // There are no others.
        (u32::try_from(rank).unwrap_or(u32::MAX), within)
    }
}

impl Checker {
    /// For so many blocks of so many threads, each with so much shared memory.
    pub(super) fn new(blocks: u32, threads: u32, shared: usize, whereabouts: fn(u64, u64) -> Whereabouts) -> Box<Self> {
        let warps_per_block = threads.div_ceil(32);
        let warps = (blocks * warps_per_block) as usize;
        Box::new(Self {
            shadows: (0..blocks).map(|_| Shadow::new(shared)).collect(),
            clocks: Clocks::new(warps),
            copies: AllCopies::default(),
            bulk_copies: BulkCopies::default(),
            products: Products::default(),
            mbarriers: Mbarriers::default(),
            together: (0..warps).map(|_| Together::default()).collect(),
            warps_per_block,
            step: 0,
            whereabouts,
            findings: HashMap::new(),
        })
    }

    pub(super) fn take_findings(&mut self) -> Vec<Finding> {
        self.findings.drain().map(|(_, finding)| finding).collect()
    }

    fn add(&mut self, kind: FindingKind, sites: [u32; 2], words: impl FnOnce() -> String) {
        self.findings
            .entry((kind, sites))
            .or_insert_with(|| Finding { kind, sites, words: words(), count: 0 })
            .count += 1;
    }

    /// A warp's number in the cluster.
    fn warp(&self, rank: u32, number: u32) -> u32 {
        rank * self.warps_per_block + number
    }

    /// Lanes of a warp have come to a barrier of their block.
    pub(super) fn arrive(&mut self, barrier: usize, rank: u32, number: u32) {
        self.clocks.arrive(rank, barrier, self.warp(rank, number));
    }

    /// A barrier of the block opens for the lanes that wait there; it is one for `all` threads, or for some.
    pub(super) fn opens(&mut self, block: &Surroundings, warps: &[Warp], barrier: usize, all: bool) {
        self.step += 1;
        for warp in warps.iter().filter(|warp| warp.at_barrier[barrier] != 0) {
            self.misses(block, warps, warp, barrier, all);
            let (number, lanes) = (self.warp(block.rank, warp.number), warp.at_barrier[barrier]);
            let together = &mut self.together[number as usize];
            self.clocks.pass(block.rank, barrier, (number, lanes), together);
            together.meet(lanes, false, self.step);
        }
        self.clocks.close(block.rank, barrier);
    }

    /// Lanes of a warp have come to the cluster's barrier, or ended: what they did is done, and nobody waits for them.
    pub(super) fn arrive_at_cluster(&mut self, rank: u32, number: u32) {
        self.clocks.arrive_at_cluster(self.warp(rank, number));
    }

    /// The cluster's barrier opens.
    pub(super) fn open_cluster(&mut self) {
        self.clocks.open_cluster();
    }

    /// Lanes go on behind the cluster's barrier.
    pub(super) fn pass_cluster(&mut self, rank: u32, number: u32, lanes: u32) {
        let warp = self.warp(rank, number);
        self.clocks.pass_cluster(warp, lanes, &mut self.together[warp as usize]);
    }

    /// A group is about to run a checked instruction.
    fn begin(&mut self, rank: u32, warp: &Warp, group: Group, site: u32) -> Accessor {
        self.step += 1;
        let number = self.warp(rank, warp.number);
        self.together[number as usize].meet(group.mask, group.mask == warp.alive, self.step);
        Accessor { warp: number, site, step: self.step }
    }
}

impl Warp {
    /// Runs an instruction that the checker sees first.
    pub(super) fn checked(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        checked: &Checked,
        active: u32,
        budget: &mut u64,
    ) -> Result<Next, Box<Fault>> {
        if let Some(mut checker) = block.cluster.checker.take() {
            let registers = &self.frames[group.frame].registers;
            let accessor = checker.begin(block.rank, self, group, checked.site);
            let boxes = asynchronous::boxes(block, registers, &checked.op, active);
            let moment = Moment { program, block, accessor };
            checker.look(moment, registers, &checked.op, active);
            checker.copy_boxes(moment, registers, &checked.op, &boxes);
            if let Some(note) = checked.note {
                checker.note(moment, note, active);
            }
            block.cluster.checker = Some(checker);
        }
        // Of a matrix it is known now where it lies: a load may change what says so.
        let matrix = self.matrix(group, &checked.op, active);
        match &checked.op {
            Op::Load(_) | Op::Store(_) | Op::Atomic(_) => {
                self.access(program, block, group, &checked.op, active, budget)?;
                Ok(Next::Following)
            }
            Op::Rare(_) => self.rare(program, block, group, &checked.op, active, budget),
            Op::Nop => Ok(Next::Following),
            Op::Fence => {
                fence(Ordering::SeqCst);
                Ok(Next::Following)
            }
            op => {
                let waiting = |warp: &Self| warp.at_collective | warp.at_warp_barrier;
                let before = waiting(self);
                let next = self.control(program, block, group, op, active)?;
                // They may have come from different places.
                let met = (before | active) & !waiting(self);
                if let Some(mut checker) = block.cluster.checker.take() {
                    checker.step += 1;
                    let warp = checker.warp(block.rank, self.number);
                    checker.together[warp as usize].meet(met, false, checker.step);
                    // It has happened once the last lane has come.
                    if let Some(matrix) = matrix.filter(|_| met & active == active) {
                        let accessor = Accessor { warp, site: checked.site, step: checker.step };
                        checker.matrix(Moment { program, block, accessor }, &matrix);
                    }
                    block.cluster.checker = Some(checker);
                }
                Ok(next)
            }
        }
    }
}

impl Checker {
    fn new_access(&self, accessor: Accessor, lane: usize, touch: Touch) -> Access {
        Access::new(accessor, lane, self.clocks.now(accessor.warp), touch.is_strong())
    }

    fn look(&mut self, moment: Moment<'_>, registers: &Registers, op: &Op, active: u32) {
        let strong = |order: Order| order != Order::Weak;
        match op {
            Op::Load(load) => {
                let bytes = u64::from(load.size) * load.to.len() as u64;
                let touch = Touch::Read { strong: strong(load.order) };
                self.access(moment, registers, &load.address, active, bytes, |_| touch);
            }
            Op::Store(store) => {
                let bytes = u64::from(store.size) * store.from.len() as u64;
                self.access(moment, registers, &store.address, active, bytes, |lane| {
                    let mut value = [0; 16];
                    let parts = value.chunks_mut(store.size.into()).zip(&store.from);
                    parts.for_each(|(part, from)| {
                        part.copy_from_slice(&registers.read_lane(*from, lane).to_le_bytes()[..part.len()]);
                    });
                    Touch::Write { strong: strong(store.order), value }
                });
            }
            Op::Atomic(atomic) => self.atomic(moment, registers, atomic, active),
            Op::Rare(rare) => match &**rare {
                Rare::Atomics(parts) => parts.iter().for_each(|part| self.atomic(moment, registers, part, active)),
                Rare::Atomic128(wide) => {
                    let touch = Touch::Update { reads: true, counts_on_old: wide.expected.is_some() };
                    self.access(moment, registers, &wide.address, active, 16, |_| touch);
                }
                rare => self.rare(moment, registers, rare, active),
            },
            // The others are there for where lanes were in step.
            _ => {}
        }
    }

    fn atomic(&mut self, moment: Moment<'_>, registers: &Registers, atomic: &Atomic, active: u32) {
        let counts_on_old = atomic.op != AtomicOp::Exchange;
        let touch = Touch::Update { reads: atomic.to.is_some(), counts_on_old };
        self.access(moment, registers, &atomic.address, active, atomic.ty.size().into(), |_| touch);
    }

    fn access(
        &mut self,
        moment: Moment<'_>,
        registers: &Registers,
        address: &Address,
        active: u32,
        bytes: u64,
        touch: impl Fn(usize) -> Touch,
    ) {
        let at: [u64; LANES] = addresses(registers, address);
        for lane in lanes_of(active) {
            let (space, within) =
                if address.space == Space::Generic { resolve(at[lane]) } else { (address.space, at[lane]) };
            // What is misaligned is a fault anyway.
            if within % bytes.max(1) != 0 {
                continue;
            }
            match space {
                Space::Global => self.global(moment, lane, within, bytes),
                Space::Shared => self.shared(moment, lane, moment.place(within), bytes, touch(lane)),
                _ => {}
            }
        }
    }

    fn global(&mut self, moment: Moment<'_>, lane: usize, address: u64, bytes: u64) {
        // A fault is told by itself.
        if (self.whereabouts)(address, bytes) != Whereabouts::Outside || !(moment.block.is_mapped)(address, bytes) {
            return;
        }
        let site = moment.accessor.site;
        self.add(FindingKind::OutsideAllocation, [site, site], || words::outside(moment, lane, address, bytes));
    }

    /// A thread itself accesses shared memory.
    fn shared(&mut self, moment: Moment<'_>, lane: usize, place: Place, bytes: u64, touch: Touch) {
        let access = self.new_access(moment.accessor, lane, touch);
        if touch.is_strong() && place.1 >= RESERVED_SHARED.into() {
            let together = &mut self.together[moment.accessor.warp as usize];
            self.clocks.synchronise(moment.accessor, lane, place, touch, together);
        }
        self.touch(moment, lane, place, bytes, (access, touch));
    }

    /// A thread accesses shared memory, or has it accessed.
    fn touch(&mut self, moment: Moment<'_>, lane: usize, place: Place, bytes: u64, (access, touch): (Access, Touch)) {
        let Accessor { warp, site, .. } = moment.accessor;
        let (rank, address) = place;
        let Some(shadow) = self.shadows.get_mut(rank as usize) else { return };
        if address < RESERVED_SHARED.into() {
            self.add(FindingKind::ReservedShared, [site, site], || words::reserved(moment, lane, place));
            return;
        }
        let (known, together) = (self.clocks.of(warp), &self.together[warp as usize]);
        let needs_fence = access.agent().is_some() && !touch.writes();
        let before = |earlier: &Access| {
            let is_before = match earlier.agent() {
                Some(agent) => known.has_happened(agent, earlier.clock()),
                None if earlier.is_under_way() => false,
                None if earlier.warp() == warp => {
                    together.is_before(earlier.lane(), (earlier.step(), earlier.clock()), lane)
                }
                None => known.has_happened(earlier.warp(), earlier.clock()),
            };
            let is_thread = earlier.agent().is_none();
            match is_before {
                false => Before::No,
                true if needs_fence && is_thread && !known.is_fenced(earlier.warp(), earlier.clock()) => {
                    Before::Unfenced
                }
                true => Before::Yes,
            }
        };
        let problem = shadow.touch(address, bytes, access, touch, before);
        // The same two instructions are one finding, whichever came first.
        let sites = |earlier: &Access| {
            let mut sites = [earlier.site(), site];
            sites.sort_unstable();
            sites
        };
        match problem {
            None => {}
            Some(Problem::Uninitialised(at)) => {
                self.add(FindingKind::UninitialisedShared, [site, site], || {
                    words::uninitialised(moment, lane, (rank, at))
                });
            }
            Some(Problem::Race { earlier, earlier_wrote, at }) => {
                self.add(FindingKind::SharedRace, sites(&earlier), || {
                    words::race(moment, (lane, touch), (&earlier, earlier_wrote), (rank, at))
                });
            }
            Some(Problem::Unfenced { earlier, at }) => {
                self.add(FindingKind::SharedRace, sites(&earlier), || {
                    words::unfenced(moment, lane, &earlier, (rank, at))
                });
            }
        }
    }

    /// Whether lanes of a warp are not at a barrier that opens for the others.
    fn misses(&mut self, block: &Surroundings, warps: &[Warp], warp: &Warp, barrier: usize, all: bool) {
        let program = &block.kernel.program;
        let waiting = warp.at_barrier[barrier];
        let place = |lane: usize| (warp.frames[warp.frame[lane] as usize].function, warp.pc[lane]);
        let first = waiting.trailing_zeros() as usize;
        let at = place(first);
        if !words::is_aligned(program.functions[at.0 as usize].text(at.1).0) {
            return;
        }
        if let Some(other) = lanes_of(waiting).find(|lane| place(*lane) != at) {
            self.add(FindingKind::DivergentBarrier, [at.1, place(other).1], || {
                words::divergent(program, block, warp.number, (first, at), (other, place(other)))
            });
        } else if waiting != warp.alive {
            self.add(FindingKind::DivergentBarrier, [at.1; 2], || {
                words::partial(program, block, warp.number, waiting, warp.alive, at)
            });
        } else if all && block.live < block.threads() {
            self.add(FindingKind::EndedBeforeBarrier, [at.1; 2], || words::ended(program, block, warps, at));
        }
    }
}
