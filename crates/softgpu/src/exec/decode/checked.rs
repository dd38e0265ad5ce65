//! Code that is checked while it runs.

use super::Reach;
use crate::exec::check::Checks;
use crate::exec::op::{Checked, CopyGroup, Instruction, Op, Rare, Space, Tensor};
use crate::exec::program::Function;
use std::collections::BTreeMap;

/// What touches shared memory, or orders accesses to it, in ways that the checker does not follow: copies that are counted by
/// barriers in memory, such barriers, matrices that are multiplied where they lie, and the shared memory of a cluster.
const UNSEEN: [&str; 11] = [
    "cp.async.bulk.",
    "cp.async.mbarrier.",
    "cp.reduce.",
    "mbarrier.",
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
        let groups = copy_groups(function);
        for (pc, instruction) in (0u32..).zip(&mut function.code) {
            let copies = groups.get(&pc).copied();
            if copies.is_some() || is_seen(&instruction.op) {
                let site = u32::try_from(checks.sites.len()).unwrap_or(u32::MAX);
                checks.sites.push((number, pc));
                wrap_one(instruction, site, copies);
            }
        }
    }
    checks
}

/// The first instruction of a function that the checker does not follow, for people.
fn unseen(function: &Function) -> Option<String> {
    (0u32..).zip(&function.code).find_map(|(pc, _)| {
        let opcode = words(function, pc).next()?;
        let is_unseen = UNSEEN.iter().any(|unseen| opcode.starts_with(unseen));
        is_unseen.then(|| function.described(pc, &function.name))
    })
}

/// An instruction's words without its guard.
fn words(function: &Function, pc: u32) -> impl Iterator<Item = &str> {
    function.text(pc).0.split_whitespace().filter(|word| !word.starts_with('@'))
}

/// Where a function commits copies that run on their own, and waits for them. Decoding leaves nothing of it but the text.
fn copy_groups(function: &Function) -> BTreeMap<u32, CopyGroup> {
    let group = |pc: u32| {
        let mut words = words(function, pc);
        Some(match words.next()? {
            "cp.async.commit_group" => CopyGroup::Commit,
            "cp.async.wait_group" => CopyGroup::Wait(words.next()?.parse().ok()?),
            "cp.async.wait_all" => CopyGroup::WaitAll,
            _ => return None,
        })
    };
    let nothing = (0u32..).zip(&function.code).filter(|(_, instruction)| matches!(instruction.op, Op::Nop));
    nothing.filter_map(|(pc, _)| Some((pc, group(pc)?))).collect()
}

/// Accesses, and where lanes of a warp wait for each other.
fn is_seen(op: &Op) -> bool {
    match op {
        Op::Load(_) | Op::Store(_) | Op::Atomic(_) | Op::WarpBarrier { .. } => true,
        Op::Collective { members, .. } => members.is_some(),
        Op::Tensor { tensor, .. } => {
            matches!(**tensor, Tensor::Load(_) | Tensor::Store(_) | Tensor::LoadRows(_) | Tensor::StoreRows(_))
        }
        // Those that no barrier counts.
        Op::Rare(rare) => {
            matches!(&**rare, Rare::Copy(copy) if copy.signal.is_none() && copy.to.space == Space::Shared)
        }
        _ => false,
    }
}

fn wrap_one(instruction: &mut Instruction, site: u32, copies: Option<CopyGroup>) {
    let op = core::mem::replace(&mut instruction.op, Op::Nop);
    instruction.op = Op::Checked(Box::new(Checked { site, op, copies }));
}
