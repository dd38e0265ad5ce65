//! Instructions of clusters, asynchronous copies and the stack.

use super::access::{Memory, address_of, resolve};
use super::block::Surroundings;
use super::cluster;
use super::control::LARGEST_STACK;
use super::interface::{Fault, FaultKind};
use super::lanes::{lanes_of, low, mask_of};
use super::mbarrier::State;
use super::op::{LOCAL_BASE, Mbarrier, MbarrierAction, Op, Rare, Space};
use super::program::{Program, SHARED_WINDOW};
use super::warp::{Group, Next, Warp};
use super::{atomic, copy, tensor_copy};

impl Warp {
    /// Runs a rare instruction. `active` is not empty.
    pub(super) fn rare(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        op: &Op,
        active: u32,
        budget: &mut u64,
    ) -> Result<Next, Box<Fault>> {
        let Op::Rare(rare) = op else { return Ok(Next::Following) };
        self.spin.has_written(&Op::Nop);
        let r = &mut self.frames[group.frame].registers;
        let mut memory = Memory::of(block, &mut self.local);
        let done = match &**rare {
            Rare::ClusterArrive => {
                self.at_cluster.arrive(&mut block.cluster, active);
                if let Some(checker) = &mut block.cluster.checker {
                    checker.arrive_at_cluster(block.rank, self.number);
                }
                block.stirred = true;
                self.set_pc(group.mask, group.pc + 1);
                return Ok(Next::Apart);
            }
            Rare::ClusterWait => {
                let waiting = self.at_cluster.wait(&block.cluster, active);
                if let Some(checker) = &mut block.cluster.checker {
                    checker.pass_cluster(block.rank, self.number, active & !waiting);
                }
                if waiting == 0 {
                    return Ok(Next::Following);
                }
                self.set_pc(group.mask, group.pc + 1);
                self.set_pc(waiting, group.pc);
                self.ready &= !waiting;
                return Ok(Next::Apart);
            }
            Rare::MapAddress { d, a, rank, generic } => {
                let window = if *generic { SHARED_WINDOW } else { 0 };
                for lane in lanes_of(active) {
                    let (from, rank) = (r.read_lane(*a, lane), r.narrow[*rank as usize][lane]);
                    r.write_lane(*d, lane, window | cluster::map_address(from, rank, block.rank));
                }
                Ok(())
            }
            Rare::BlockRank { d, a, generic } => {
                for lane in lanes_of(active) {
                    let address = r.read_lane(*a, lane);
                    let within = if *generic { resolve(address).1 } else { address };
                    r.narrow[*d as usize][lane] = low(cluster::resolve(within, block.rank).0);
                }
                Ok(())
            }
            Rare::InOwnShared { d, a } => {
                let addresses = &r.wide[*a as usize];
                let own = |lane: &usize| match resolve(addresses[*lane]) {
                    (Space::Shared, within) => cluster::resolve(within, block.rank).0 == u64::from(block.rank),
                    _ => false,
                };
                let held = mask_of(lanes_of(active).filter(own));
                r.write_predicate(*d, active, held);
                Ok(())
            }
            Rare::PendingCount { d, state } => {
                for lane in lanes_of(active) {
                    r.narrow[*d as usize][lane] = State::from_bits(r.wide[*state as usize][lane]).pending;
                }
                Ok(())
            }
            Rare::Mbarrier(Mbarrier { address, action: MbarrierAction::Test { d, phase, waits } }) => {
                let tested = copy::test(r, &mut memory, address, *phase, active);
                if let Ok(over) = tested {
                    r.write_predicate(*d, active, over);
                    let first = active.trailing_zeros() as usize;
                    let at = address_of(r, address, first);
                    if *waits && over == 0 {
                        self.wait_for_others(group, budget);
                    } else if over != active {
                        self.looked_at(group, active, at, over.into(), budget);
                    }
                }
                tested.map(|_| ())
            }
            Rare::Mbarrier(barrier) => copy::change(r, &mut memory, barrier, active),
            Rare::Copy(copy) => copy::copy(r, &mut memory, copy, active),
            Rare::StoreAsync(store) => copy::store_async(r, &mut memory, store, active),
            Rare::TensorCopy(copy) => tensor_copy::copy(r, &mut memory, copy, active),
            Rare::TensorReplace(replace) => tensor_copy::replace(r, &mut memory, replace, active),
            Rare::Atomics(parts) => parts.iter().try_for_each(|part| atomic::atomic(r, &mut memory, part, active)),
            Rare::Atomic128(wide) => atomic::atomic_128(r, &mut memory, wide, active),
            Rare::Allocate { .. } | Rare::StackSave { .. } | Rare::StackRestore { .. } => {
                return self.stack(program, block, group, rare, active).map(|()| Next::Following);
            }
        };
        done.map_err(|bad| self.bad_access(program, block, group, op, bad))?;
        Ok(Next::Following)
    }

    /// Memory behind the frame's own: it lasts until the function returns, or goes back to a place that was saved.
    fn stack(
        &mut self,
        program: &Program,
        block: &Surroundings,
        group: Group,
        rare: &Rare,
        active: u32,
    ) -> Result<(), Box<Fault>> {
        let own = u64::from(program.functions[self.frames[group.frame].function as usize].local_bytes);
        for lane in lanes_of(active) {
            let frame = &mut self.frames[group.frame];
            let start = frame.registers.wide[LOCAL_BASE as usize][lane] + own;
            let top = start + u64::from(frame.allocated[lane]);
            let new_top = match rare {
                Rare::Allocate { d, size, align } => {
                    let at = top.next_multiple_of(*align);
                    let size = frame.registers.read_lane(*size, lane);
                    frame.registers.write_lane(*d, lane, at);
                    at.saturating_add(size).checked_next_multiple_of(STACK_ALIGN).unwrap_or(u64::MAX)
                }
                Rare::StackSave { d } => {
                    frame.registers.write_lane(*d, lane, top);
                    top
                }
                Rare::StackRestore { a } => frame.registers.read_lane(*a, lane).clamp(start, top),
                _ => top,
            };
            if new_top > LARGEST_STACK {
                return Err(self.fault(program, block, group, lane, FaultKind::StackOverflow, "stack full"));
            }
            frame.allocated[lane] = low(new_top - start);
            self.local.grow(lane, usize::try_from(new_top).unwrap_or_default());
        }
        Ok(())
    }
}

/// Frames follow what was allocated, and start at multiples of this.
const STACK_ALIGN: u64 = 16;
