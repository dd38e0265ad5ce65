//! One common end for all threads of a block.
//!
//! In a preemptible version a thread that is done with one block of the original goes on with the next, together with
//! all others. So `ret` and `exit` become branches to a common end, where all threads meet at a barrier.
//!
//! Where some threads may come there while others still have barriers before them (`parks` in the
//! [`Plan`](super::checks::barriers::Plan)), those at the end must not be missing there, and must not be taken for
//! ones that came to the barrier of the end. In the original they would have left, and a barrier goes on without
//! threads that have left. Here all threads take part in every barrier, and a thread that comes to one from the middle of the
//! block leaves a *sign* in shared memory before it; threads at the end look for a sign behind the barrier and come again until
//! there is none. So each barrier of the block ends exactly when all threads are at it or at the end, as in the
//! original, and the end is over exactly when all threads are there.
//!
//! Every thread counts the barriers, because all threads take part in all of them. The sign of barrier n is its number, and two
//! words take turns. Threads at the end look at a word behind barrier n and come to barrier n + 1 afterwards; the next number is
//! put there behind that one. So what they see is the number n, or one that was left long before.
//!
//! A reduction (`barrier.red`) would tell as much without shared memory. But a thread gets no result of one that other threads of
//! its warp reach at another instruction: on an H200, where this was tried, such kernels never ended. Plain barriers (`barrier.sync`, without
//! `.aligned`) may be reached at different instructions.

use super::checks::barriers::{Meeting, Plan, meeting};
use super::position::{label, line, lines};
use super::preemptible::SHARED_SIZE;
use crate::ast::{Instruction, Operand, Statement};

/// How far behind the answers the signs lie, and the bytes of one of the two.
const SIGNS: u32 = 16;
const WORD: u32 = 4;
const _: () = assert!(SIGNS + 2 * WORD <= SHARED_SIZE && SIGNS.is_multiple_of(2 * WORD) && SIGNS == 16 && WORD == 4);

/// There is no sign; all threads put that down before their first barrier.
const DECLARATIONS: &str = "\
.reg .b32 $sign, $turn, $said;
.reg .pred $any;
mov.u32 $turn, 1;
add.u32 $sign, $place, 16;
st.volatile.shared.u32 [$sign], 0;
st.volatile.shared.u32 [$sign+4], 0;";

/// The names of the common end.
pub(super) struct CommonEnd<'p> {
    pub(super) prefix: &'p str,
    pub(super) plan: Plan,
}

impl CommonEnd<'_> {
    /// The label.
    pub(super) fn label(&self) -> String {
        format!("{}_next", self.prefix)
    }

    /// What barriers need, for the beginning of the kernel.
    pub(super) fn declare(&self, code: &mut Vec<Statement>) {
        if self.plan.parks {
            code.extend(lines(DECLARATIONS, self.prefix));
        }
    }

    /// Puts something else in the place of an instruction that leaves, or at which others are waited for.
    pub(super) fn edit(&self, instruction: &Instruction, code: &mut Vec<Statement>) -> bool {
        let mut replaced = instruction.clone();
        if matches!(instruction.opcode.as_str(), "ret" | "exit") {
            replaced.opcode = "bra".to_string();
            replaced.operands = vec![Operand::Name(self.label())];
        } else if self.plan.parks && matches!(meeting(instruction), Some(Meeting::Block { .. })) {
            let prefix = self.prefix;
            let guard = instruction
                .predicate
                .as_ref()
                .map_or(String::new(), |guard| format!("@{}{} ", if guard.negated { "!" } else { "" }, guard.register));
            code.push(line(format!("{guard}st.volatile.shared.u32 [{prefix}_sign], {prefix}_turn;")));
            code.push(line(format!("{guard}barrier.sync {};", self.plan.barrier)));
            self.go_on(&guard, code);
            return true;
        } else {
            return false;
        }
        code.push(Statement::Instruction(replaced));
        true
    }

    /// Behind a barrier: the next one's number, and where its sign is.
    fn go_on(&self, guard: &str, code: &mut Vec<Statement>) {
        let prefix = self.prefix;
        code.push(line(format!("{guard}add.u32 {prefix}_turn, {prefix}_turn, 1;")));
        code.push(line(format!("{guard}xor.b32 {prefix}_sign, {prefix}_sign, {WORD};")));
    }

    /// What a thread does at the end until all are there. `independent`: whether threads of a warp can wait at
    /// different instructions.
    pub(super) fn meet(&self, independent: bool, code: &mut Vec<Statement>) {
        let (prefix, barrier) = (self.prefix, self.plan.barrier);
        if self.plan.parks {
            code.push(label(format!("{prefix}_parked")));
            code.push(line(format!("barrier.sync {barrier};")));
            code.push(line(format!("ld.volatile.shared.u32 {prefix}_said, [{prefix}_sign];")));
            code.push(line(format!("setp.eq.u32 {prefix}_any, {prefix}_said, {prefix}_turn;")));
            self.go_on("", code);
            code.push(line(format!("@{prefix}_any bra {prefix}_parked;")));
        } else if independent {
            code.push(line(format!("barrier.sync {barrier};")));
        } else {
            code.push(line(format!("bar.sync {barrier};")));
        }
        if independent {
            // The block begins with warps that are together, as a kernel does.
            code.push(line("bar.warp.sync -1;".to_string()));
        }
    }
}
