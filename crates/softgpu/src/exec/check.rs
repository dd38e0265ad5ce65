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
//! nothing of this is there otherwise. Blocks are checked each on its own: races between blocks are not found.
//!
//! A copy that runs on its own (`cp.async`) is a write that is under way until its thread has waited for it (`copies`): until
//! then whoever touches the bytes races with it, and the wait counts as the write's place in the order.
//!
//! Order between warps is kept as vector clocks, one entry for each warp (`clocks`); order within a warp as the last
//! time that two lanes were in step (`together`). Both err towards order: what is found is wrong, though not all that
//! is wrong is found.

mod clocks;
mod copies;
mod shadow;
mod together;
mod words;

use super::access::{addresses, resolve};
use super::block::Surroundings;
use super::interface::Fault;
use super::lanes::{LANES, Registers, lanes_of};
use super::op::{Address, AtomicOp, Checked, Copy, CopyGroup, Op, Order, Rare, Space, Tensor};
use super::program::{Program, RESERVED_SHARED};
use super::warp::{Group, Next, Warp};
use crate::memory::Whereabouts;
use clocks::Clocks;
use copies::AllCopies;
use shadow::{Access, Problem, Shadow, Touch};
use std::collections::{BTreeMap, HashMap};
use together::Together;

/// What decode knows of checked code.
#[derive(Debug, Default)]
pub(super) struct Checks {
    /// Function and place of each checked instruction, by its number.
    pub(super) sites: Vec<(u32, u32)>,
    /// Kernels with an instruction that touches shared memory in a way that the checker does not follow, and that
    /// instruction: nothing is then said of their shared memory.
    pub(super) blind_to_shared: BTreeMap<u32, String>,
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

/// The checker of one block.
#[derive(Debug)]
pub(super) struct Checker {
    shadow: Shadow,
    clocks: Clocks,
    copies: AllCopies,
    /// By warp.
    together: Vec<Together>,
    /// Counts checked instructions.
    step: u32,
    blind_to_shared: bool,
    whereabouts: fn(u64, u64) -> Whereabouts,
    findings: HashMap<(FindingKind, [u32; 2]), Finding>,
}

/// Who accesses memory, and with what.
#[derive(Debug, Clone, Copy)]
struct Accessor {
    warp: u32,
    site: u32,
    step: u32,
}

impl Checker {
    /// For a block of so many threads with so much shared memory.
    pub(super) fn new(
        checks: &Checks,
        kernel: u32,
        threads: u32,
        shared: usize,
        whereabouts: fn(u64, u64) -> Whereabouts,
    ) -> Box<Self> {
        let warps = threads.div_ceil(32) as usize;
        Box::new(Self {
            shadow: Shadow::new(shared),
            clocks: Clocks::new(warps),
            copies: AllCopies::default(),
            together: (0..warps).map(|_| Together::default()).collect(),
            step: 0,
            blind_to_shared: checks.blind_to_shared.contains_key(&kernel),
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

    /// Lanes of a warp have come to a barrier of the block.
    pub(super) fn arrive(&mut self, barrier: usize, warp: u32) {
        self.clocks.arrive(barrier, warp as usize);
    }

    /// A barrier of the block opens for the lanes that wait there; it is one for `all` threads, or for some.
    pub(super) fn opens(&mut self, block: &Surroundings, warps: &[Warp], barrier: usize, all: bool) {
        self.step += 1;
        for warp in warps.iter().filter(|warp| warp.at_barrier[barrier] != 0) {
            self.misses(block, warps, warp, barrier, all);
            self.clocks.pass(barrier, warp.number as usize);
            self.together[warp.number as usize].meet(warp.at_barrier[barrier], false, self.step);
        }
        self.clocks.close(barrier);
    }

    /// A group is about to run a checked instruction.
    fn begin(&mut self, warp: &Warp, group: Group, site: u32) -> Accessor {
        self.step += 1;
        self.together[warp.number as usize].meet(group.mask, group.mask == warp.alive, self.step);
        Accessor { warp: warp.number, site, step: self.step }
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
        if let Some(mut checker) = block.checker.take() {
            let accessor = checker.begin(self, group, checked.site);
            checker.look(self, program, block, group, &checked.op, active, accessor);
            if let Some(copies) = checked.copies {
                checker.group(copies, active, accessor);
            }
            block.checker = Some(checker);
        }
        // Of a matrix it is known now where it lies: a load may change what says so.
        let matrix = self.matrix(group, &checked.op);
        match &checked.op {
            Op::Load(_) | Op::Store(_) | Op::Atomic(_) => {
                self.access(program, block, group, &checked.op, active, budget)?;
                Ok(Next::Following)
            }
            Op::Rare(_) => self.rare(program, block, group, &checked.op, active, budget),
            Op::Nop => Ok(Next::Following),
            op => {
                let waiting = |warp: &Self| warp.at_collective | warp.at_warp_barrier;
                let before = waiting(self);
                let next = self.control(program, block, group, op, active)?;
                // They may have come from different places.
                let met = (before | active) & !waiting(self);
                if let Some(mut checker) = block.checker.take() {
                    checker.step += 1;
                    checker.together[self.number as usize].meet(met, false, checker.step);
                    // It has happened once the last lane has come.
                    if let Some((places, touch)) = matrix.filter(|_| met & active == active) {
                        let accessor = Accessor { warp: self.number, site: checked.site, step: checker.step };
                        checker.matrix(program, block, accessor, &places, touch);
                    }
                    block.checker = Some(checker);
                }
                Ok(next)
            }
        }
    }
}

/// Where a lane has a part of a matrix: the lane, the space, the place there and how many bytes.
type Place = (usize, Space, u64, u64);

impl Warp {
    /// Where a matrix lies, and what happens to it, if the instruction moves one.
    fn matrix(&self, group: Group, op: &Op) -> Option<(Vec<Place>, Touch)> {
        let Op::Tensor { tensor, .. } = op else { return None };
        let touch = match **tensor {
            Tensor::Load(_) | Tensor::LoadRows(_) => Touch::Read { strong: false },
            Tensor::Store(_) | Tensor::StoreRows(_) => Touch::Replace,
            _ => return None,
        };
        let space = tensor.space();
        let within = |address: u64| if space == Space::Generic { resolve(address) } else { (space, address) };
        let places = tensor.places(&self.frames[group.frame].registers).into_iter();
        let places = places.map(|(lane, address, bytes)| {
            let (space, address) = within(address);
            (lane, space, address, bytes)
        });
        Some((places.collect(), touch))
    }
}

impl Checker {
    /// Parts of a matrix are read or written.
    fn matrix(&mut self, program: &Program, block: &Surroundings, accessor: Accessor, places: &[Place], touch: Touch) {
        for (lane, space, address, bytes) in places {
            match space {
                Space::Global => self.global(program, block, accessor, *lane, *address, *bytes),
                Space::Shared => {
                    let access = self.new_access(accessor, *lane, touch);
                    self.shared(program, block, accessor, *lane, (*address, *bytes), (access, touch));
                }
                _ => {}
            }
        }
    }

    /// Threads commit copies of theirs, or wait for them.
    fn group(&mut self, copies: CopyGroup, active: u32, accessor: Accessor) {
        for lane in lanes_of(active) {
            if matches!(copies, CopyGroup::Commit | CopyGroup::WaitAll) {
                self.copies.commit(accessor.warp, lane);
            }
            let at_most = match copies {
                CopyGroup::Commit => continue,
                CopyGroup::Wait(at_most) => at_most,
                CopyGroup::WaitAll => 0,
            };
            let now = self.new_access(accessor, lane, Touch::Replace);
            for place in self.copies.wait(accessor.warp, lane, at_most) {
                self.shadow.arrived(place, now);
            }
        }
    }

    /// Threads issue copies to shared memory.
    fn issue(
        &mut self,
        program: &Program,
        block: &Surroundings,
        registers: &Registers,
        copy: &Copy,
        active: u32,
        accessor: Accessor,
    ) {
        let [from, to]: [[u64; LANES]; 2] = [&copy.from, &copy.to].map(|address| addresses(registers, address));
        let ignored = copy.ignore.map_or(0, |ignore| registers.condition(ignore));
        for lane in lanes_of(active) {
            let number = |slot: u32| u64::from(registers.narrow[slot as usize][lane]);
            let bytes = number(copy.bytes);
            let read = if ignored >> lane & 1 != 0 { 0 } else { copy.read.map_or(bytes, number).min(bytes) };
            let (space, source) =
                if copy.from.space == Space::Generic { resolve(from[lane]) } else { (copy.from.space, from[lane]) };
            if read > 0 && space == Space::Global {
                self.global(program, block, accessor, lane, source, read);
            }
            let access = self.new_access(accessor, lane, Touch::Replace).copied();
            self.shared(program, block, accessor, lane, (to[lane], bytes), (access, Touch::Replace));
            self.copies.issue(accessor.warp, lane, to[lane], bytes);
        }
    }

    fn new_access(&self, accessor: Accessor, lane: usize, touch: Touch) -> Access {
        Access::new(accessor, lane, self.clocks.now(accessor.warp as usize), touch.is_strong())
    }

    #[allow(clippy::too_many_arguments, reason = "all that a moment of a warp is made of")]
    fn look(
        &mut self,
        warp: &Warp,
        program: &Program,
        block: &Surroundings,
        group: Group,
        op: &Op,
        active: u32,
        accessor: Accessor,
    ) {
        let registers = &warp.frames[group.frame].registers;
        let strong = |order: Order| order != Order::Weak;
        match op {
            Op::Load(load) => {
                let bytes = u64::from(load.size) * load.to.len() as u64;
                let touch = Touch::Read { strong: strong(load.order) };
                self.access(program, block, registers, &load.address, active, bytes, accessor, |_| touch);
            }
            Op::Store(store) => {
                let bytes = u64::from(store.size) * store.from.len() as u64;
                self.access(program, block, registers, &store.address, active, bytes, accessor, |lane| {
                    let mut value = [0; 16];
                    let parts = value.chunks_mut(store.size.into()).zip(&store.from);
                    parts.for_each(|(part, from)| {
                        part.copy_from_slice(&registers.read_lane(*from, lane).to_le_bytes()[..part.len()]);
                    });
                    Touch::Write { strong: strong(store.order), value }
                });
            }
            Op::Atomic(atomic) => {
                let bytes = atomic.ty.size().into();
                let counts_on_old = atomic.op != AtomicOp::Exchange;
                let touch = Touch::Update { reads: atomic.to.is_some(), counts_on_old };
                self.access(program, block, registers, &atomic.address, active, bytes, accessor, |_| touch);
            }
            Op::Rare(rare) => {
                if let Rare::Copy(copy) = &**rare {
                    self.issue(program, block, registers, copy, active, accessor);
                }
            }
            // The others are there for where lanes were in step.
            _ => {}
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all that an access is made of")]
    fn access(
        &mut self,
        program: &Program,
        block: &Surroundings,
        registers: &Registers,
        address: &Address,
        active: u32,
        bytes: u64,
        accessor: Accessor,
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
                Space::Global => self.global(program, block, accessor, lane, within, bytes),
                Space::Shared => {
                    let touch = touch(lane);
                    let access = self.new_access(accessor, lane, touch);
                    self.shared(program, block, accessor, lane, (within, bytes), (access, touch));
                }
                _ => {}
            }
        }
    }

    fn global(
        &mut self,
        program: &Program,
        block: &Surroundings,
        accessor: Accessor,
        lane: usize,
        address: u64,
        bytes: u64,
    ) {
        // A fault is told by itself.
        if (self.whereabouts)(address, bytes) != Whereabouts::Outside || !(block.is_mapped)(address, bytes) {
            return;
        }
        let site = accessor.site;
        self.add(FindingKind::OutsideAllocation, [site, site], || {
            words::outside(program, block, accessor, lane, address, bytes)
        });
    }

    fn shared(
        &mut self,
        program: &Program,
        block: &Surroundings,
        accessor: Accessor,
        lane: usize,
        (address, bytes): (u64, u64),
        (access, touch): (Access, Touch),
    ) {
        let site = accessor.site;
        if self.blind_to_shared {
            return;
        }
        if address < RESERVED_SHARED.into() {
            self.add(FindingKind::ReservedShared, [site, site], || {
                words::reserved(program, block, accessor, lane, address)
            });
            return;
        }
        let together = &mut self.together[accessor.warp as usize];
        if touch.is_strong() {
            self.clocks.synchronise(accessor, lane, address, touch, together);
        }
        let clocks = &self.clocks;
        let is_ordered = |earlier: &Access| {
            if earlier.is_under_way() {
                false
            } else if earlier.warp() == accessor.warp {
                earlier.lane() == lane || together.since(earlier.lane(), lane) > earlier.step()
            } else {
                clocks.is_before(earlier.warp() as usize, earlier.clock(), accessor.warp as usize)
            }
        };
        match self.shadow.touch(address, bytes, access, touch, is_ordered) {
            None => {}
            Some(Problem::Uninitialised(at)) => {
                self.add(FindingKind::UninitialisedShared, [site, site], || {
                    words::uninitialised(program, block, accessor, lane, at)
                });
            }
            Some(Problem::Race { earlier, earlier_wrote, at }) => {
                // The same two instructions are one finding, whichever came first.
                let mut sites = [earlier.site(), site];
                sites.sort_unstable();
                self.add(FindingKind::SharedRace, sites, || {
                    words::race(program, block, (accessor, lane, touch), (&earlier, earlier_wrote), at)
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
