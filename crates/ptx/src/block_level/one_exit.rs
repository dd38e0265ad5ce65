//! One common end for all threads of a block.
//!
//! In a preemptible version a thread that is done with one block of the original goes on with the next, together with
//! all others. So `ret` and `exit` become branches to a common end, where all threads meet at a barrier.
//!
//! Where some threads may come there while others still have barriers before them (`parks` in the
//! [`Plan`](super::checks::barriers::Plan)), those at the end must not be missing there, and must not be taken for
//! ones that came to the barrier of the end. In the original they would have left, and a barrier goes on without
//! threads that have left. Here every barrier, the one at the end too, is a reduction that tells whether any thread
//! came to it from the middle of the block: such threads say *yes*, threads at the end say *no* and come again until
//! nobody said yes. So each barrier of the block ends exactly when all threads are at it or at the end, as in the
//! original, and the end is over exactly when all threads are there. A reduction orders memory as the plain barrier
//! does. It is the form that threads of one warp may reach at different instructions.

use super::checks::barriers::{Meeting, Plan, meeting};
use super::position::{label, line};
use crate::ast::{Instruction, Operand, Statement};

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

    /// The registers that barriers need, for the beginning of the kernel.
    pub(super) fn declare(&self, code: &mut Vec<Statement>) {
        if self.plan.parks {
            let prefix = self.prefix;
            code.push(line(format!(".reg .pred {prefix}_yes, {prefix}_no, {prefix}_any;")));
            code.push(line(format!("setp.eq.u32 {prefix}_yes, 0, 0;")));
            code.push(line(format!("setp.ne.u32 {prefix}_no, 0, 0;")));
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
            let name = |name: &str| Operand::Name(format!("{prefix}_{name}"));
            replaced.opcode = "barrier".to_string();
            replaced.modifiers = ["red", "or", "pred"].map(str::to_string).to_vec();
            replaced.operands = vec![name("any"), Operand::Integer(self.plan.barrier.into()), name("yes")];
        } else {
            return false;
        }
        code.push(Statement::Instruction(replaced));
        true
    }

    /// What a thread does at the end until all are there. `independent`: whether threads of a warp can wait at
    /// different instructions.
    pub(super) fn meet(&self, independent: bool, code: &mut Vec<Statement>) {
        let (prefix, barrier) = (self.prefix, self.plan.barrier);
        if self.plan.parks {
            code.push(label(format!("{prefix}_parked")));
            code.push(line(format!("barrier.red.or.pred {prefix}_any, {barrier}, {prefix}_no;")));
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
