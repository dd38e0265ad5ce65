//! 32 threads that run in step where their ways allow.
//!
//! Every lane has its own program counter. The warp runs the lanes with the lowest one (in the deepest call) until
//! they branch apart or come to where others wait, so lanes come together again where compilers mean them to.
//! Lanes that go round in circles while others wait give way after some time: what they wait for may be theirs.

use super::access::{self, BadAccess, Local, Memory};
use super::block::Surroundings;
use super::cluster::AtCluster;
use super::control::LARGEST_STACK;
use super::interface::{Fault, FaultKind};
use super::lanes::{LANES, Registers, lanes_of, mask_of};
use super::op::{Instruction, Op, Rare};
use super::program::Program;
use super::spin::{Look, Spin};
use super::{atomic, compute, nearby, special};
use crate::memory::is_constant;
use core::sync::atomic::{Ordering, fence};

/// How much lanes do that go round in circles before they give way. A turn of a loop counts once,
const PATIENCE: u32 = 2048;
/// and a look at memory that others may change counts more: it may be a lock.
const LOOK: u32 = 16;

/// One activation of a function, for all lanes that called it at the same depth.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) function: u32,
    pub(super) depth: u32,
    /// Those that have not returned from it. It is free where there are none.
    pub(super) lanes: u32,
    pub(super) registers: Registers,
    /// The frame that each lane returns to,
    pub(super) caller: [u32; LANES],
    /// and the call there.
    pub(super) call: [u32; LANES],
    /// What each lane has allocated behind the frame's local memory, in bytes.
    pub(super) allocated: [u32; LANES],
}

/// A warp and how far its lanes are.
#[derive(Debug)]
pub(super) struct Warp {
    pub(super) number: u32,
    /// Lanes that have not ended.
    pub(super) alive: u32,
    /// Lanes that can run.
    pub(super) ready: u32,
    /// Lanes that have given way and wait for the others to do so too.
    pub(super) passed: u32,
    /// What the running lanes have used of their patience.
    spent: u32,
    pub(super) pc: [u32; LANES],
    /// The frame that each lane is in.
    pub(super) frame: [u32; LANES],
    pub(super) frames: Vec<Frame>,
    pub(super) local: Local,
    /// Lanes that wait for others of their warp, at the instruction that says so,
    pub(super) at_collective: u32,
    /// and at `bar.warp.sync`.
    pub(super) at_warp_barrier: u32,
    /// Collectives run with the lanes that are there: no others will come.
    pub(super) alone: bool,
    /// Lanes that wait at each of the block's barriers, and for the other warps of a warpgroup.
    pub(super) at_barrier: [u32; super::block::MEETINGS],
    pub(super) at_cluster: AtCluster,
    pub(super) spin: Spin,
    /// Lanes that sleep,
    pub(super) asleep: u32,
    /// and until when.
    pub(super) wake_at: [u64; LANES],
    pub(super) warp_instructions: u64,
}

/// Lanes that run in step, and where.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub(super) frame: usize,
    pub(super) pc: u32,
    pub(super) mask: u32,
    /// Where the nearest lanes wait that the group can join.
    stop: u32,
    /// Lanes that could run too.
    pub(super) others: u32,
}

/// Whether the group goes on in step.
pub(super) enum Next {
    /// With the instruction after this one.
    Following,
    /// The lanes' program counters say where.
    Apart,
}

impl Warp {
    /// The warp with that number, before its first instruction.
    pub(super) fn new(number: u32, lanes: u32, block: &Surroundings) -> Self {
        let function = block.kernel.function;
        let code = &block.kernel.program.functions[function as usize];
        let frame = Frame {
            function,
            depth: 0,
            lanes,
            registers: special::registers(code, block, number),
            caller: [0; LANES],
            call: [0; LANES],
            allocated: [0; LANES],
        };
        let mut local = Local::default();
        // What is beyond the largest stack is not there.
        let bytes = usize::try_from(u64::from(code.local_bytes).min(LARGEST_STACK)).unwrap_or_default();
        if bytes > 0 {
            lanes_of(lanes).for_each(|lane| local.grow(lane, bytes));
        }
        Self {
            number,
            alive: lanes,
            ready: lanes,
            passed: 0,
            spent: 0,
            pc: [0; LANES],
            frame: [0; LANES],
            frames: vec![frame],
            local,
            at_collective: 0,
            at_warp_barrier: 0,
            alone: false,
            at_barrier: [0; super::block::MEETINGS],
            at_cluster: AtCluster::default(),
            spin: Spin::default(),
            asleep: 0,
            wake_at: [0; LANES],
            warp_instructions: 0,
        }
    }

    /// Runs until the budget is used up, no lane can run, or something happened that the block has to see to.
    pub(super) fn run(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        budget: &mut u64,
    ) -> Result<(), Box<Fault>> {
        while *budget > 0 && self.ready != 0 && !block.stirred {
            let group = self.choose();
            self.run_group(program, block, group, budget)?;
        }
        Ok(())
    }

    /// Lets lanes run again whose sleep is over.
    pub(super) fn wake(&mut self, now: u64) {
        for lane in lanes_of(self.asleep) {
            if self.wake_at[lane] <= now {
                self.asleep &= !(1 << lane);
                self.ready |= 1 << lane;
            }
        }
    }

    /// The lanes that run next.
    fn choose(&mut self) -> Group {
        if self.ready & !self.passed == 0 {
            self.passed = 0;
        }
        let place = |lane: usize| (self.frame[lane], self.pc[lane]);
        // Deeper calls first, then lower addresses.
        let order = |lane: usize| {
            let frame = &self.frames[self.frame[lane] as usize];
            (u32::MAX - frame.depth, frame.function, self.pc[lane])
        };
        let candidates = self.ready & !self.passed;
        let first = lanes_of(candidates).min_by_key(|lane| order(*lane)).unwrap_or_default();
        let (frame, pc) = place(first);
        let mut mask = 0;
        let mut stop = u32::MAX;
        for lane in lanes_of(self.ready) {
            let (its_frame, its_pc) = place(lane);
            if its_frame == frame && its_pc == pc {
                mask |= 1 << lane;
            } else if its_frame == frame && its_pc > pc {
                stop = stop.min(its_pc);
            }
        }
        Group { frame: frame as usize, pc, mask, stop, others: self.ready & !mask }
    }

    /// Notes where lanes go on.
    pub(super) fn set_pc(&mut self, lanes: u32, pc: u32) {
        for lane in lanes_of(lanes) {
            self.pc[lane] = pc;
        }
    }

    fn run_group(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        mut group: Group,
        budget: &mut u64,
    ) -> Result<(), Box<Fault>> {
        let function = &program.functions[self.frames[group.frame].function as usize];
        loop {
            if group.pc == group.stop || *budget == 0 {
                self.set_pc(group.mask, group.pc);
                return Ok(());
            }
            *budget -= 1;
            self.warp_instructions += 1;
            let Instruction { guard, op } = &function.code[group.pc as usize];
            let registers = &mut self.frames[group.frame].registers;
            let active = guard.map_or(group.mask, |guard| group.mask & registers.condition(guard));
            if active == 0 {
                group.pc += 1;
                continue;
            }
            match op {
                Op::Branch { target } => {
                    if active == group.mask && group.others == 0 {
                        group.pc = *target;
                        continue;
                    }
                    self.set_pc(active, *target);
                    self.set_pc(group.mask & !active, group.pc + 1);
                    if *target <= group.pc {
                        self.spend(group, 1);
                    }
                    return Ok(());
                }
                Op::Load(_) | Op::Store(_) | Op::Atomic(_) => self.access(program, block, group, op, active, budget)?,
                Op::Fence => fence(Ordering::SeqCst),
                Op::InSpace { space, d, a } => {
                    let addresses = &registers.wide[*a as usize];
                    // Constants lie in global memory, and are not global all the same.
                    let is_there = |address: u64| access::resolve(address).0 == *space && !is_constant(address);
                    let held = mask_of(lanes_of(active).filter(|lane| is_there(addresses[*lane])));
                    registers.write_predicate(*d, active, held);
                }
                Op::IsConstant { d, a } => {
                    let addresses = &registers.wide[*a as usize];
                    let held = mask_of(lanes_of(active).filter(|lane| is_constant(addresses[*lane])));
                    registers.write_predicate(*d, active, held);
                }
                Op::Read { d, special } => special::read(registers, *d, *special, block, self.number, active),
                Op::ActiveMask { d } => {
                    let mask = u64::from(group.mask & active);
                    registers.write(super::op::Reg::Narrow(*d), active, &[mask; LANES]);
                }
                Op::Nop => {}
                Op::Rare(_) => match self.rare(program, block, group, op, active, budget)? {
                    Next::Following => {}
                    Next::Apart => return Ok(()),
                },
                Op::Checked(checked) => match self.checked(program, block, group, checked, active, budget)? {
                    Next::Following => {}
                    Next::Apart => return Ok(()),
                },
                Op::BranchTable { .. }
                | Op::Call(_)
                | Op::Return
                | Op::Exit
                | Op::Trap
                | Op::System(_)
                | Op::Unsupported
                | Op::Sleep { .. }
                | Op::Barrier(_)
                | Op::WarpBarrier { .. }
                | Op::GroupWait
                | Op::Collective { .. }
                | Op::Tensor { .. } => match self.control(program, block, group, op, active)? {
                    Next::Following => {}
                    Next::Apart => return Ok(()),
                },
                op => compute::compute(registers, op, active),
            }
            group.pc += 1;
        }
    }

    /// Notes that lanes may be going round in circles.
    pub(super) fn spend(&mut self, group: Group, amount: u32) {
        if group.others == 0 {
            return;
        }
        self.spent += amount;
        if self.spent > PATIENCE {
            self.spent = 0;
            self.passed |= group.mask;
        }
    }

    pub(super) fn access(
        &mut self,
        program: &Program,
        block: &mut Surroundings,
        group: Group,
        op: &Op,
        active: u32,
        budget: &mut u64,
    ) -> Result<(), Box<Fault>> {
        let r = &mut self.frames[group.frame].registers;
        let look = Look::before(r, op, group, active);
        let mut memory = Memory::of(block, &mut self.local);
        let result = match op {
            Op::Load(load) => access::load(r, &mut memory, load, active),
            Op::Store(store) => access::store(r, &mut memory, store, active),
            Op::Atomic(atomic) => atomic::atomic(r, &mut memory, atomic, active),
            _ => Ok(()),
        };
        match look {
            Some(look) => {
                let look = look.after(r, op);
                self.spend(group, LOOK);
                self.looked(group, look, budget);
            }
            None => self.spin.has_written(op),
        }
        result.map_err(|access| self.bad_access(program, block, group, op, access))
    }

    /// What an access was that ends the kernel.
    pub(super) fn bad_access(
        &self,
        program: &Program,
        block: &Surroundings,
        group: Group,
        op: &Op,
        BadAccess { lane, address, kind }: BadAccess,
    ) -> Box<Fault> {
        let what = match kind {
            FaultKind::MisalignedAddress => "misaligned address",
            FaultKind::IllegalInstruction => {
                let is_tensor = matches!(op, Op::Rare(rare) if matches!(**rare, Rare::TensorCopy(_)));
                let what = if is_tensor {
                    "a box within 16 bytes, stored before the tensor, no longer of tf32, or of a type that is not combined so,"
                } else {
                    "no clusters in this launch"
                };
                return self.fault(program, block, group, lane, kind, what);
            }
            _ => "no memory at",
        };
        let mut fault = self.fault(program, block, group, lane, kind, &format!("{what} {address:#x}"));
        fault.place += &nearby::describe(block, address, op);
        fault
    }

    /// What happened to a lane, in words.
    pub(super) fn fault(
        &self,
        program: &Program,
        block: &Surroundings,
        group: Group,
        lane: usize,
        kind: FaultKind,
        what: &str,
    ) -> Box<Fault> {
        let function = &program.functions[self.frames[group.frame].function as usize];
        let kernel = &block.kernel.properties.name;
        let instruction = function.described(group.pc, kernel);
        let [block_x, block_y, block_z] = block.index;
        let [x, y, z] = block.thread(self.number, lane);
        let place = format!(
            "kernel {kernel}, block ({block_x}, {block_y}, {block_z}), thread ({x}, {y}, {z}): {what} in {instruction}"
        );
        Box::new(Fault { kind, place })
    }
}
