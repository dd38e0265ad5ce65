//! Code that is checked while it runs.

use crate::exec::check::Checks;
use crate::exec::op::{Checked, Instruction, Op};
use crate::exec::program::Function;

/// Has the checker see every instruction that it wants to see.
pub(super) fn wrap(functions: &mut [Function]) -> Checks {
    let mut checks = Checks::default();
    for (number, function) in (0u32..).zip(functions) {
        for (pc, instruction) in (0u32..).zip(&mut function.code) {
            if let Op::Rare(rare) = &instruction.op {
                checks.blind_to_shared |= rare.touches_shared();
            }
            if is_seen(&instruction.op) {
                let site = u32::try_from(checks.sites.len()).unwrap_or(u32::MAX);
                checks.sites.push((number, pc));
                wrap_one(instruction, site);
            }
        }
    }
    checks
}

/// Accesses, and where lanes of a warp wait for each other.
fn is_seen(op: &Op) -> bool {
    matches!(
        op,
        Op::Load(_) | Op::Store(_) | Op::Atomic(_) | Op::WarpBarrier { .. } | Op::Collective { members: Some(_), .. }
    )
}

fn wrap_one(instruction: &mut Instruction, site: u32) {
    let op = core::mem::replace(&mut instruction.op, Op::Nop);
    instruction.op = Op::Checked(Box::new(Checked { site, op }));
}
