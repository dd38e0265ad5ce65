//! Code that is checked while it runs.

use super::Reach;
use crate::exec::check::Checks;
use crate::exec::op::{Checked, Instruction, Op};
use crate::exec::program::Function;

/// What touches shared memory, or orders accesses to it, in ways that the checker does not follow: copies that run on
/// their own, barriers in memory, matrices, and the shared memory of a cluster.
const UNSEEN: [&str; 11] = [
    "cp.",
    "mbarrier.",
    "stmatrix.",
    "wmma.store.",
    "wgmma.",
    "st.async.",
    "red.async.",
    "barrier.cluster.",
    "mapa.",
    "multimem.",
    "tensormap.",
];

/// Has the checker see every instruction that it wants to see.
pub(super) fn wrap(functions: &mut [Function], reach: &[Reach]) -> Checks {
    let unseen: Vec<Option<String>> = functions.iter().map(unseen).collect();
    let mut checks = Checks::default();
    for (kernel, reach) in (0u32..).zip(reach) {
        let first = reach.functions.iter().find_map(|number| unseen.get(*number as usize)?.clone());
        checks.blind_to_shared.extend(first.map(|instruction| (kernel, instruction)));
    }
    for (number, function) in (0u32..).zip(functions) {
        for (pc, instruction) in (0u32..).zip(&mut function.code) {
            if is_seen(&instruction.op) {
                let site = u32::try_from(checks.sites.len()).unwrap_or(u32::MAX);
                checks.sites.push((number, pc));
                wrap_one(instruction, site);
            }
        }
    }
    checks
}

/// The first instruction of a function that the checker does not follow, for people.
fn unseen(function: &Function) -> Option<String> {
    (0u32..).zip(&function.code).find_map(|(pc, _)| {
        let (text, _) = function.text(pc);
        let opcode = text.split_whitespace().find(|word| !word.starts_with('@'))?;
        let is_unseen = UNSEEN.iter().any(|unseen| opcode.starts_with(unseen));
        is_unseen.then(|| function.described(pc, &function.name))
    })
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
