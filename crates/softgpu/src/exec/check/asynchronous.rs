//! What runs on its own, and the barriers in memory that count it.

use super::super::access::{Local, Memory};
use super::super::block::Surroundings;
use super::super::copy::Spot;
use super::super::lanes::{Registers, lanes_of};
use super::super::mbarrier::State;
use super::super::op::{
    Address, Copy, CopyKind, Mbarrier, MbarrierAction, Note, Op, Queue, Rare, Slot, Space, StoreAsync, TensorCopy,
    TensorDirection,
};
use super::super::tensor_copy::{self, Moved};
use super::shadow::Touch;
use super::{Checker, Moment, Place};

const BARRIER_BYTES: u64 = 8;
const READ: Touch = Touch::Read { strong: false };

/// What each lane's copy of a box moves. It has to be known beforehand: the map of a tensor lies in memory.
pub(super) fn boxes(block: &mut Surroundings, r: &Registers, op: &Op, active: u32) -> Vec<(usize, Moved)> {
    let copy = match op {
        Op::Rare(rare) => match &**rare {
            Rare::TensorCopy(copy) => copy,
            _ => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    // A map is not in the memory of a lane.
    let mut none = Local::default();
    let mut memory = Memory::of(block, &mut none);
    lanes_of(active).filter_map(|lane| Some((lane, tensor_copy::moved(r, &mut memory, copy, lane)?))).collect()
}

/// The places that a copy reaches which may be for several blocks.
fn places(moment: Moment<'_>, r: &Registers, multicast: Option<Slot>, lane: usize, address: u64) -> Vec<Place> {
    let place = moment.place(address);
    match multicast {
        None => vec![place],
        Some(slot) => {
            let blocks = r.narrow[slot as usize][lane] & 0xffff;
            let rank = |number| u32::try_from(number).unwrap_or_default();
            lanes_of(blocks).map(|number| (rank(number), place.1)).collect()
        }
    }
}

impl Checker {
    pub(super) fn rare(&mut self, moment: Moment<'_>, r: &Registers, rare: &Rare, active: u32) {
        match rare {
            Rare::Mbarrier(barrier) => self.mbarrier(moment, r, barrier, active),
            Rare::Copy(copy) => match copy.kind {
                CopyKind::Small => self.small_copies(moment, r, copy, active),
                CopyKind::Bulk => self.bulk_copies(moment, r, copy, active),
                CopyKind::Map => self.maps(moment, r, copy, active),
            },
            Rare::StoreAsync(store) => self.stores(moment, r, store, active),
            Rare::TensorReplace(replace) => {
                for lane in lanes_of(active) {
                    self.thread(moment, lane, Spot::of(r, &replace.map, lane), tensor_copy::MAP_BYTES, Touch::Replace);
                }
            }
            _ => {}
        }
    }

    /// Threads order what runs on its own.
    pub(super) fn note(&mut self, moment: Moment<'_>, note: Note, active: u32) {
        let warp = moment.accessor.warp;
        let (queue, step) = match note {
            Note::ProxyFence => return self.clocks.fence(warp),
            Note::Groups(queue, step) => (queue, step),
        };
        if queue == Queue::Products {
            let first = self.warp(moment.block.rank, 0);
            return self.products.group(step, warp, first, &mut self.clocks);
        }
        for lane in lanes_of(active) {
            if queue == Queue::BulkCopies {
                self.bulk_copies.group(step, warp, lane, &mut self.clocks);
                continue;
            }
            let Some(come) = self.copies.group(step, warp, lane) else { continue };
            let now = self.new_access(moment.accessor, lane, Touch::Replace);
            for place in come.places {
                self.shadows[moment.block.rank as usize].arrived(place, now);
            }
            for (agent, count) in come.phases {
                self.clocks.finished(warp, agent, count);
            }
        }
    }

    /// A thread itself accesses memory of any space.
    fn thread(&mut self, moment: Moment<'_>, lane: usize, spot: Spot, bytes: u64, touch: Touch) {
        match spot.space {
            Space::Global => self.global(moment, lane, spot.at, bytes),
            Space::Shared => self.shared(moment, lane, moment.place(spot.at), bytes, touch),
            _ => {}
        }
    }

    /// An agent accesses shared memory for a thread.
    fn agent(
        &mut self,
        moment: Moment<'_>,
        lane: usize,
        (place, bytes): (Place, u64),
        touch: Touch,
        agent: (u32, u32),
    ) {
        let access = self.new_access(moment.accessor, lane, touch).by(agent);
        self.touch(moment, lane, place, bytes, (access, touch));
    }

    /// A thread has come to a barrier in memory: somebody must have made it before.
    fn at_barrier(&mut self, moment: Moment<'_>, lane: usize, place: Place) {
        let touch = Touch::Read { strong: true };
        let access = self.new_access(moment.accessor, lane, touch);
        self.touch(moment, lane, place, BARRIER_BYTES, (access, touch));
    }

    /// What counts bytes in this phase of a barrier, as an agent.
    fn phase(&mut self, place: Place) -> (u32, u32) {
        self.mbarriers.at(place, &mut self.clocks).phase()
    }

    /// Changes a barrier; who waits for the phase comes after what the thread did before.
    fn release(&mut self, moment: Moment<'_>, place: Place, change: impl FnOnce(&mut State)) {
        let barrier = self.mbarriers.at(place, &mut self.clocks);
        barrier.release(&mut self.clocks, moment.accessor.warp);
        barrier.change(change);
    }

    /// Bytes come that a barrier counts. It is taken for a release of the thread that asked for them, which PTX does not call it:
    /// rather is something missed than found where it works.
    fn complete(&mut self, moment: Moment<'_>, lane: usize, place: Place, bytes: u64) {
        self.at_barrier(moment, lane, place);
        let bytes = u32::try_from(bytes).unwrap_or_default();
        self.release(moment, place, |state| state.complete(bytes));
    }

    fn mbarrier(&mut self, moment: Moment<'_>, r: &Registers, barrier: &Mbarrier, active: u32) {
        for lane in lanes_of(active) {
            let spot = Spot::of(r, &barrier.address, lane);
            if spot.space != Space::Shared || !spot.at.is_multiple_of(BARRIER_BYTES) {
                continue;
            }
            let place = moment.place(spot.at);
            let narrow = |slot: Slot| r.narrow[slot as usize][lane];
            let apply = |state: &mut State| {
                barrier.action.apply(state, narrow);
            };
            match &barrier.action {
                MbarrierAction::Init { count } => {
                    self.shared(moment, lane, place, BARRIER_BYTES, Touch::Replace);
                    self.mbarriers.at(place, &mut self.clocks).start(narrow(*count));
                }
                MbarrierAction::Invalidate => {
                    self.shared(moment, lane, place, BARRIER_BYTES, Touch::Replace);
                    self.mbarriers.at(place, &mut self.clocks).start(0);
                }
                MbarrierAction::Expect { .. } => {
                    self.at_barrier(moment, lane, place);
                    self.mbarriers.at(place, &mut self.clocks).change(apply);
                }
                MbarrierAction::Test { phase, .. } => {
                    self.at_barrier(moment, lane, place);
                    let tested = self.mbarriers.at(place, &mut self.clocks);
                    if tested.state.odd != phase.is_odd(r, lane) {
                        let warp = moment.accessor.warp;
                        let together = &mut self.together[warp as usize];
                        self.clocks.acquire(warp, 1 << lane, tested.done(), together);
                    }
                }
                MbarrierAction::ArriveCopied { .. } => {
                    self.at_barrier(moment, lane, place);
                    self.count_copies(moment, lane, place);
                    self.release(moment, place, apply);
                }
                MbarrierAction::Complete { .. } | MbarrierAction::Arrive { .. } => {
                    self.at_barrier(moment, lane, place);
                    self.release(moment, place, apply);
                }
            }
        }
    }

    /// A barrier's phase waits for all small copies of a thread so far.
    fn count_copies(&mut self, moment: Moment<'_>, lane: usize, place: Place) {
        let phase = self.phase(place);
        let (warp, known) = (moment.accessor.warp, self.clocks.of(moment.accessor.warp));
        let come = self.copies.count((warp, lane), phase, |(agent, count)| known.has_happened(agent, count));
        let thread = self.new_access(moment.accessor, lane, Touch::Replace);
        for bytes in come.places {
            self.shadows[moment.block.rank as usize].counted(bytes, thread, phase);
        }
        let barrier = self.mbarriers.at(place, &mut self.clocks);
        come.phases.into_iter().for_each(|(agent, count)| barrier.finished(agent, count));
    }

    /// `cp.async`
    fn small_copies(&mut self, moment: Moment<'_>, r: &Registers, copy: &Copy, active: u32) {
        let ignored = copy.ignore.map_or(0, |ignore| r.condition(ignore));
        for lane in lanes_of(active) {
            let number = |slot: u32| u64::from(r.narrow[slot as usize][lane]);
            let bytes = number(copy.bytes);
            let read = if ignored >> lane & 1 != 0 { 0 } else { copy.read.map_or(bytes, number).min(bytes) };
            let (from, to) = (Spot::of(r, &copy.from, lane), Spot::of(r, &copy.to, lane));
            if read > 0 && from.space == Space::Global {
                self.global(moment, lane, from.at, read);
            }
            let access = self.new_access(moment.accessor, lane, Touch::Replace).copied();
            self.touch(moment, lane, moment.place(to.at), bytes, (access, Touch::Replace));
            self.copies.issue(moment.accessor.warp, lane, to.at, bytes);
        }
    }

    /// `cp.async.bulk` and `cp.reduce.async.bulk`
    fn bulk_copies(&mut self, moment: Moment<'_>, r: &Registers, copy: &Copy, active: u32) {
        for lane in lanes_of(active) {
            let bytes = u64::from(r.narrow[copy.bytes as usize][lane]);
            let (from, to) = (Spot::of(r, &copy.from, lane), Spot::of(r, &copy.to, lane));
            // That is a fault.
            if bytes == 0 || [from.at, to.at, bytes].iter().any(|number| !number.is_multiple_of(copy.align)) {
                continue;
            }
            let signal = copy.signal.as_ref().map(|signal| Spot::of(r, signal, lane).at);
            match from.space {
                Space::Global => self.global(moment, lane, from.at, bytes),
                Space::Shared => {
                    let agent = match signal {
                        Some(signal) => self.phase(moment.place(signal)),
                        None => self.bulk_copies.issue(moment.accessor.warp, lane, &mut self.clocks),
                    };
                    self.agent(moment, lane, (moment.place(from.at), bytes), READ, agent);
                }
                _ => {}
            }
            let touch = match copy.reduction {
                Some(_) => Touch::Update { reads: false, counts_on_old: true },
                None => Touch::Replace,
            };
            match signal {
                Some(signal) => {
                    let signals = places(moment, r, copy.multicast, lane, signal);
                    for (to, signal) in places(moment, r, copy.multicast, lane, to.at).into_iter().zip(signals) {
                        self.fill(moment, lane, &[(to, bytes)], signal, touch);
                    }
                }
                None => self.thread(moment, lane, to, bytes, touch),
            }
        }
    }

    /// Bytes come without a thread, and a barrier counts them.
    fn fill(&mut self, moment: Moment<'_>, lane: usize, parts: &[(Place, u64)], signal: Place, touch: Touch) {
        let phase = self.phase(signal);
        parts.iter().for_each(|part| self.agent(moment, lane, *part, touch, phase));
        self.complete(moment, lane, signal, parts.iter().map(|(_, bytes)| bytes).sum());
    }

    /// Boxes of tensors.
    pub(super) fn copy_boxes(&mut self, moment: Moment<'_>, r: &Registers, op: &Op, boxes: &[(usize, Moved)]) {
        let Op::Rare(rare) = op else { return };
        let Rare::TensorCopy(TensorCopy { direction, .. }) = &**rare else { return };
        for (lane, moved) in boxes {
            let lane = *lane;
            moved.global.iter().for_each(|(address, bytes)| self.global(moment, lane, *address, *bytes));
            match direction {
                TensorDirection::Load { signal, multicast } => {
                    let signals = places(moment, r, *multicast, lane, Spot::of(r, signal, lane).at);
                    for signal in signals {
                        let rank = |place: Place| if multicast.is_some() { (signal.0, place.1) } else { place };
                        let parts = moved.shared.iter().map(|(at, bytes)| (rank(moment.place(*at)), *bytes));
                        self.fill(moment, lane, &parts.collect::<Vec<_>>(), signal, Touch::Replace);
                    }
                }
                TensorDirection::Store | TensorDirection::Reduce(_) => {
                    let agent = self.bulk_copies.issue(moment.accessor.warp, lane, &mut self.clocks);
                    for (at, bytes) in &moved.shared {
                        self.agent(moment, lane, (moment.place(*at), *bytes), READ, agent);
                    }
                }
            }
        }
    }

    /// `tensormap.cp_fenceproxy`, which a warp does itself.
    fn maps(&mut self, moment: Moment<'_>, r: &Registers, copy: &Copy, active: u32) {
        for lane in lanes_of(active) {
            let bytes = u64::from(r.narrow[copy.bytes as usize][lane]);
            let spot = |address: &Address| Spot::of(r, address, lane);
            self.thread(moment, lane, spot(&copy.from), bytes, READ);
            self.thread(moment, lane, spot(&copy.to), bytes, Touch::Replace);
        }
    }

    /// `st.async` and `red.async`
    fn stores(&mut self, moment: Moment<'_>, r: &Registers, store: &StoreAsync, active: u32) {
        let bytes = u64::from(store.size) * store.from.len() as u64;
        let touch = match store.reduction {
            Some(_) => Touch::Update { reads: false, counts_on_old: true },
            None => Touch::Replace,
        };
        for lane in lanes_of(active) {
            let (to, signal) = (Spot::of(r, &store.address, lane), Spot::of(r, &store.signal, lane));
            if to.space == Space::Shared && to.at.is_multiple_of(bytes) {
                self.fill(moment, lane, &[(moment.place(to.at), bytes)], moment.place(signal.at), touch);
            }
        }
    }
}
