//! Instructions that decide which lanes run where and when.

use super::block::{BARRIERS, Surroundings, meeting_of_group};
use super::collective;
use super::interface::{Fault, FaultKind};
use super::lanes::{LANES, lanes_of, mask_of};
use super::op::{Barrier, BarrierKind, Call, LOCAL_BASE, Op, Place, Slot};
use super::program::{FUNCTION_WINDOW, Function, Program};
use super::special;
use super::warp::{Frame, Group, Next, Warp};

/// How deep calls may be nested.
const DEEPEST: u32 = 4096;
/// How much local memory a thread may have, as on a GPU.
pub(super) const LARGEST_STACK: u64 = 512 << 10;
/// What PTX allows a thread to sleep at most.
const LONGEST_SLEEP: u32 = 1_000_000;

impl Warp {
    /// Runs an instruction that may take lanes apart. `active` is not empty.
    pub(super) fn control(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        op: &Op,
        active: u32,
    ) -> Result<Next, Box<Fault>> {
        let first = active.trailing_zeros() as usize;
        let skipping = group.mask & !active;
        match op {
            Op::BranchTable { index, targets } => {
                self.set_pc(skipping, group.pc + 1);
                for lane in lanes_of(active) {
                    let index = self.frames[group.frame].registers.narrow[*index as usize][lane];
                    let Some(target) = targets.get(index as usize) else {
                        let what = format!("branch to entry {index} of {}", targets.len());
                        return Err(self.fault(program, block, group, lane, FaultKind::InvalidProgramCounter, &what));
                    };
                    self.pc[lane] = *target;
                }
                self.spend(group, 1);
            }
            Op::Call(call) => {
                self.set_pc(skipping, group.pc + 1);
                self.set_pc(active, group.pc);
                self.call(program, block, group, call, active)?;
            }
            Op::Return => {
                self.set_pc(skipping, group.pc + 1);
                self.leave(program, block, group, active);
            }
            Op::Exit => {
                self.set_pc(skipping, group.pc + 1);
                self.end(block, active);
            }
            Op::Trap => return Err(self.fault(program, block, group, first, FaultKind::Trap, "trap")),
            Op::System(call) => {
                self.system_call(program, block, group, call, active)?;
                return Ok(Next::Following);
            }
            Op::Unsupported => {
                let what = "instruction that is not supported";
                return Err(self.fault(program, block, group, first, FaultKind::InvalidProgramCounter, what));
            }
            Op::Sleep { a } => {
                self.set_pc(group.mask, group.pc + 1);
                let now = special::clock();
                for lane in lanes_of(active) {
                    let duration = self.frames[group.frame].registers.narrow[*a as usize][lane];
                    self.wake_at[lane] = now + u64::from(duration.min(LONGEST_SLEEP));
                }
                self.asleep |= active;
                self.ready &= !active;
            }
            Op::Barrier(barrier) => {
                self.set_pc(skipping, group.pc + 1);
                self.set_pc(active, group.pc);
                self.barrier(program, block, group, barrier, active)?;
            }
            Op::GroupWait => {
                self.set_pc(skipping, group.pc + 1);
                self.set_pc(active, group.pc);
                self.group_wait(block, active);
            }
            Op::WarpBarrier { members } => {
                self.set_pc(skipping, group.pc + 1);
                self.set_pc(active, group.pc);
                self.warp_barrier(group, *members, active);
            }
            Op::Collective { members, collective } => {
                return self.collective(group, *members, active, |warp, lanes, members| {
                    collective::perform(&mut warp.frames[group.frame].registers, collective, lanes, members);
                    Ok(())
                });
            }
            Op::Tensor { members, .. } => {
                return self.collective(group, Some(*members), active, |warp, lanes, _| {
                    warp.tensor(program, block, group, op, lanes)
                });
            }
            _ => {}
        }
        Ok(Next::Apart)
    }

    /// Lanes end.
    fn end(&mut self, block: &mut Surroundings, lanes: u32) {
        self.alive &= !lanes;
        self.ready &= !lanes;
        for frame in &mut self.frames {
            frame.lanes &= !lanes;
        }
        // Those who wait for them look again.
        self.ready |= self.at_collective | self.at_warp_barrier;
        self.at_collective = 0;
        self.at_warp_barrier = 0;
        self.at_cluster.end(&mut block.cluster, lanes);
        if let Some(checker) = &mut block.cluster.checker {
            checker.arrive_at_cluster(block.rank, self.number);
        }
        block.live -= lanes.count_ones();
        block.stirred = true;
    }

    fn call(
        &mut self,
        program: &Program,
        block: &Surroundings,
        group: Group,
        call: &Call,
        active: u32,
    ) -> Result<(), Box<Fault>> {
        let first = active.trailing_zeros() as usize;
        let (callee, lanes) = match call.callee {
            Some(callee) => (callee, active),
            None => {
                // Lanes with another target stay at the call.
                let targets = &self.frames[group.frame].registers.wide[call.target as usize];
                let target = targets[first];
                let lanes = lanes_of(active).filter(|lane| targets[*lane] == target);
                let number = target.checked_sub(FUNCTION_WINDOW).and_then(|number| u32::try_from(number).ok());
                let fits = |number: &u32| {
                    program.functions.get(*number as usize).is_some_and(|function| {
                        function.parameters.len() == call.arguments.len()
                            && function.results.len() == call.results.len()
                    })
                };
                let Some(number) = number.filter(fits) else {
                    let what = format!("call of {target:#x}, which is no such function,");
                    return Err(self.fault(program, block, group, first, FaultKind::InvalidProgramCounter, &what));
                };
                (number, mask_of(lanes))
            }
        };
        let caller = &program.functions[self.frames[group.frame].function as usize];
        let function = &program.functions[callee as usize];
        let depth = self.frames[group.frame].depth + 1;
        if depth > DEEPEST {
            return Err(self.fault(program, block, group, first, FaultKind::StackOverflow, "too many nested calls"));
        }
        let entered = self.frame_of(function, callee, depth, block);
        for lane in lanes_of(lanes) {
            let from = self.frames[group.frame].registers.wide[LOCAL_BASE as usize][lane];
            let base = from + u64::from(caller.local_bytes) + u64::from(self.frames[group.frame].allocated[lane]);
            let end = base + u64::from(function.local_bytes);
            if end > LARGEST_STACK {
                return Err(self.fault(program, block, group, lane, FaultKind::StackOverflow, "stack full"));
            }
            if function.local_bytes > 0 {
                self.local.grow(lane, usize::try_from(end).unwrap_or_default());
            }
            self.frames[entered].registers.wide[LOCAL_BASE as usize][lane] = base;
            for (argument, parameter) in call.arguments.iter().zip(&function.parameters) {
                self.pass(lane, (group.frame, *argument), (entered, *parameter));
            }
            let frame = &mut self.frames[entered];
            frame.lanes |= 1 << lane;
            frame.caller[lane] = u32::try_from(group.frame).unwrap_or_default();
            frame.call[lane] = group.pc;
            frame.allocated[lane] = 0;
            self.frame[lane] = u32::try_from(entered).unwrap_or_default();
            self.pc[lane] = 0;
        }
        Ok(())
    }

    /// A frame for lanes that enter a function at that depth: the one that others are in, or a free one.
    fn frame_of(&mut self, function: &Function, number: u32, depth: u32, block: &Surroundings) -> usize {
        let mut free = None;
        for (index, frame) in self.frames.iter().enumerate() {
            if frame.function == number {
                if frame.lanes != 0 && frame.depth == depth {
                    return index;
                }
                if frame.lanes == 0 {
                    free = Some(index);
                }
            }
        }
        if let Some(free) = free {
            self.frames[free].depth = depth;
            return free;
        }
        self.frames.push(Frame {
            function: number,
            depth,
            lanes: 0,
            registers: special::registers(function, block, self.number),
            caller: [0; LANES],
            call: [0; LANES],
            allocated: [0; LANES],
        });
        self.frames.len() - 1
    }

    /// Copies a value from one frame to another.
    fn pass(&mut self, lane: usize, (from_frame, from): (usize, Place), (to_frame, to): (usize, Place)) {
        let base = |frame: &Frame| usize::try_from(frame.registers.wide[LOCAL_BASE as usize][lane]).unwrap_or_default();
        let from_base = base(&self.frames[from_frame]);
        let to_base = base(&self.frames[to_frame]);
        match (from, to) {
            (Place::Memory { offset: from, size }, Place::Memory { offset: to, size: to_size }) => {
                let start = from_base + from as usize;
                let size = size.min(to_size) as usize;
                let memory = self.local.of(lane);
                let to = to_base + to as usize;
                if start + size <= memory.len() && to + size <= memory.len() {
                    memory.copy_within(start..start + size, to);
                }
            }
            (Place::Memory { offset, size }, Place::Register(to)) => {
                let start = from_base + offset as usize;
                let size = size.min(8) as usize;
                let value = self.local.of(lane).get(start..start + size).map_or(0, super::access::from_bytes);
                self.frames[to_frame].registers.write_lane(to, lane, value);
            }
            (Place::Register(from), Place::Memory { offset, size }) => {
                let value = self.frames[from_frame].registers.read_lane(from, lane);
                let start = to_base + offset as usize;
                let size = size.min(8) as usize;
                if let Some(bytes) = self.local.of(lane).get_mut(start..start + size) {
                    bytes.copy_from_slice(&value.to_le_bytes()[..size]);
                }
            }
            (Place::Register(from), Place::Register(to)) => {
                let value = self.frames[from_frame].registers.read_lane(from, lane);
                self.frames[to_frame].registers.write_lane(to, lane, value);
            }
        }
    }

    /// `ret`: lanes go back to where they were called from, or end.
    fn leave(&mut self, program: &Program, block: &mut Surroundings, group: Group, active: u32) {
        if self.frames[group.frame].depth == 0 {
            return self.end(block, active);
        }
        let function = &program.functions[self.frames[group.frame].function as usize];
        for lane in lanes_of(active) {
            let frame = &mut self.frames[group.frame];
            frame.lanes &= !(1 << lane);
            let (caller, call_pc) = (frame.caller[lane] as usize, frame.call[lane]);
            let calling = &program.functions[self.frames[caller].function as usize];
            if let Some(Op::Call(call)) = calling.code.get(call_pc as usize).map(|instruction| &instruction.op) {
                for (result, to) in function.results.iter().zip(&call.results) {
                    if let Some(to) = to {
                        self.pass(lane, (group.frame, *result), (caller, *to));
                    }
                }
            }
            self.frame[lane] = u32::try_from(caller).unwrap_or_default();
            self.pc[lane] = call_pc + 1;
        }
    }

    fn barrier(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        barrier: &Barrier,
        active: u32,
    ) -> Result<(), Box<Fault>> {
        let registers = &self.frames[group.frame].registers;
        let first = active.trailing_zeros() as usize;
        let number = registers.narrow[barrier.number as usize][first];
        let threads = barrier.threads.map(|slot| registers.narrow[slot as usize][first]);
        // Lanes that mean another barrier stay at the instruction.
        let same = |lane: &usize| registers.narrow[barrier.number as usize][*lane] == number;
        let lanes = mask_of(lanes_of(active).filter(same));
        let held = registers.condition(barrier.input) & lanes;
        if number as usize >= BARRIERS {
            let what = format!("barrier {number} of {BARRIERS}");
            return Err(self.fault(program, block, group, first, FaultKind::Trap, &what));
        }
        let state = &mut block.barriers[number as usize];
        state.threads = threads.filter(|threads| *threads > 0);
        state.used = true;
        state.held += held.count_ones();
        state.asked += lanes.count_ones();
        if barrier.kind == BarrierKind::Arrive {
            // A whole warp counts as 32 threads, whatever has ended.
            let missing = if lanes == self.alive { (!self.alive).count_ones() } else { 0 };
            state.arrived += lanes.count_ones() + missing;
            self.set_pc(lanes, group.pc + 1);
        } else {
            self.at_barrier[number as usize] |= lanes;
            self.ready &= !lanes;
        }
        if let Some(checker) = &mut block.cluster.checker {
            checker.arrive(number as usize, block.rank, self.number);
        }
        block.stirred = true;
        Ok(())
    }

    /// A product of a warpgroup is over for none of its warps before all have come to it: then one thread may tell others so for all.
    fn group_wait(&mut self, block: &mut Surroundings, active: u32) {
        let number = meeting_of_group(self.number);
        block.barriers[number].used = true;
        self.at_barrier[number] |= active;
        self.ready &= !active;
        if let Some(checker) = &mut block.cluster.checker {
            checker.arrive(number, block.rank, self.number);
        }
        block.stirred = true;
    }

    /// Lets lanes go that waited at a barrier of the block. `held` of `asked` threads had a true predicate.
    ///
    /// Where lanes of a warp came to it at different instructions, nobody gets to know that; a predicate is then what the lane itself
    /// had said. Hardware tells some of them, but not all: on an H200, kernels that relied on it never ended.
    pub(super) fn release(&mut self, program: &Program, number: usize, held: u32, asked: u32) {
        let lanes = core::mem::take(&mut self.at_barrier[number]);
        let place = |lane: usize| (self.frame[lane], self.pc[lane]);
        let are_apart = lanes_of(lanes).any(|lane| place(lane) != place(lanes.trailing_zeros() as usize));
        for lane in lanes_of(lanes) {
            let frame = &mut self.frames[self.frame[lane] as usize];
            let code = &program.functions[frame.function as usize].code;
            if let Some(Op::Barrier(barrier)) = code.get(self.pc[lane] as usize).map(|instruction| &instruction.op) {
                match barrier.kind {
                    BarrierKind::Count(_) if are_apart => {}
                    BarrierKind::Reduce(_, to) if are_apart => {
                        let said = frame.registers.condition(barrier.input);
                        frame.registers.write_predicate(to, 1 << lane, said);
                    }
                    BarrierKind::Count(to) => frame.registers.narrow[to as usize][lane] = held,
                    BarrierKind::Reduce(logic, to) => {
                        let all = matches!(logic, super::op::Logic::And) && held == asked;
                        let any = matches!(logic, super::op::Logic::Or) && held > 0;
                        frame.registers.write_predicate(to, 1 << lane, if all || any { u32::MAX } else { 0 });
                    }
                    BarrierKind::Sync | BarrierKind::Arrive => {}
                }
            }
            self.pc[lane] += 1;
        }
        self.ready |= lanes;
    }

    /// `bar.warp.sync`, which lanes may come to from different places.
    fn warp_barrier(&mut self, group: Group, members: Slot, active: u32) {
        let first = active.trailing_zeros() as usize;
        let members = self.frames[group.frame].registers.narrow[members as usize][first] & self.alive;
        let present = active | self.at_warp_barrier;
        let alone = core::mem::take(&mut self.alone);
        if alone || members & !present == 0 {
            let released = present & (members | active);
            for lane in lanes_of(released) {
                self.pc[lane] += 1;
            }
            self.at_warp_barrier &= !released;
            self.ready |= released;
        } else {
            self.at_warp_barrier |= active;
            self.ready &= !active;
        }
    }

    /// A collective, once all are there whom it counts on. Lanes that name other members are on their own.
    /// `perform` gets those that take part, and those that are named.
    fn collective(
        &mut self,
        group: Group,
        members: Option<Slot>,
        active: u32,
        mut perform: impl FnMut(&mut Self, u32, u32) -> Result<(), Box<Fault>>,
    ) -> Result<Next, Box<Fault>> {
        let Some(members) = members else {
            perform(self, active, active)?;
            return Ok(Next::Following);
        };
        let alone = core::mem::take(&mut self.alone);
        let named = self.frames[group.frame].registers.narrow[members as usize];
        let is_here = |lane: &usize| self.frame[*lane] as usize == group.frame && self.pc[*lane] == group.pc;
        let waiting = mask_of(lanes_of(self.at_collective).filter(is_here));
        let (mut left, mut done) = (active, 0);
        while left != 0 {
            let members = named[left.trailing_zeros() as usize];
            let present = mask_of(lanes_of(left | waiting).filter(|lane| named[*lane] == members));
            if alone || members & self.alive & !present == 0 {
                perform(self, present, members)?;
                done |= present;
            }
            left &= !present;
        }
        if done == active {
            return Ok(Next::Following);
        }
        let still_waiting = active & !done;
        self.at_collective = self.at_collective & !done | still_waiting;
        self.ready = (self.ready | done) & !still_waiting;
        self.set_pc(done | group.mask & !active, group.pc + 1);
        self.set_pc(still_waiting, group.pc);
        Ok(Next::Apart)
    }

    /// Lanes that wait for others of their warp run without them, where there are such lanes.
    pub(super) fn go_alone(&mut self) -> bool {
        let waiting = self.at_collective | self.at_warp_barrier;
        let elsewhere = self.at_barrier.iter().fold(self.at_cluster.waiting, |all, lanes| all | lanes);
        if waiting == 0 || self.ready != 0 || elsewhere != 0 {
            return false;
        }
        self.ready = waiting;
        self.at_collective = 0;
        self.at_warp_barrier = 0;
        self.alone = true;
        true
    }
}
