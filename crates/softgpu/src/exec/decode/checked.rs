//! Code that is checked while it runs.

use crate::exec::check::Checks;
use crate::exec::op::{Checked, CopyGroup, Instruction, Note, Op, Queue, Rare, Tensor};
use crate::exec::program::Function;
use std::collections::BTreeMap;

/// Has the checker see every instruction that it wants to see.
pub(super) fn wrap(functions: &mut [Function]) -> Checks {
    let mut checks = Checks::default();
    for (number, function) in (0u32..).zip(functions) {
        let notes = notes(function);
        for (pc, instruction) in (0u32..).zip(&mut function.code) {
            let note = notes.get(&pc).copied();
            if note.is_some() || is_seen(&instruction.op) {
                let site = u32::try_from(checks.sites.len()).unwrap_or(u32::MAX);
                checks.sites.push((number, pc));
                wrap_one(instruction, site, note);
            }
        }
    }
    checks
}

/// An instruction's words without its guard.
fn words(function: &Function, pc: u32) -> impl Iterator<Item = &str> {
    function.text(pc).0.split_whitespace().filter(|word| !word.starts_with('@'))
}

/// Where a function groups what runs on its own, waits for it, or has it see what threads wrote. Decoding leaves nothing of it
/// but the text.
fn notes(function: &Function) -> BTreeMap<u32, Note> {
    let is_nothing = |op: &Op| matches!(op, Op::Nop | Op::Fence | Op::GroupWait);
    let nothing = (0u32..).zip(&function.code).filter(|(_, instruction)| is_nothing(&instruction.op));
    nothing.filter_map(|(pc, _)| Some((pc, note(words(function, pc))?))).collect()
}

fn note<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Note> {
    let opcode = words.next()?;
    let mut at_most = || Some(CopyGroup::Wait(words.next()?.parse().ok()?));
    let (queue, step) = match opcode {
        "cp.async.commit_group" => (Queue::Copies, CopyGroup::Commit),
        "cp.async.wait_group" => (Queue::Copies, at_most()?),
        "cp.async.wait_all" => (Queue::Copies, CopyGroup::WaitAll),
        "cp.async.bulk.commit_group" => (Queue::BulkCopies, CopyGroup::Commit),
        // What they write to is not in shared memory.
        "cp.async.bulk.wait_group" | "cp.async.bulk.wait_group.read" => (Queue::BulkCopies, at_most()?),
        "wgmma.commit_group.sync.aligned" => (Queue::Products, CopyGroup::Commit),
        "wgmma.wait_group.sync.aligned" => (Queue::Products, at_most()?),
        fence if fence.starts_with("fence.proxy.async") && !fence.contains(".global") => return Some(Note::ProxyFence),
        _ => return None,
    };
    Some(Note::Groups(queue, step))
}

/// Accesses, what orders them, and where lanes of a warp wait for each other.
fn is_seen(op: &Op) -> bool {
    match op {
        Op::Load(_) | Op::Store(_) | Op::Atomic(_) | Op::WarpBarrier { .. } => true,
        Op::Collective { members, .. } => members.is_some(),
        Op::Tensor { tensor, .. } => match **tensor {
            Tensor::Load(_) | Tensor::Store(_) | Tensor::LoadRows(_) | Tensor::StoreRows(_) => true,
            Tensor::GroupMultiply(_) => true,
            Tensor::Multiply(_) | Tensor::QuadMultiply(_) | Tensor::Transpose { .. } => false,
        },
        Op::Rare(rare) => match **rare {
            Rare::Mbarrier(_) | Rare::Copy(_) | Rare::TensorCopy(_) | Rare::TensorReplace(_) => true,
            Rare::StoreAsync(_) | Rare::Atomics(_) | Rare::Atomic128(_) => true,
            Rare::ClusterArrive | Rare::ClusterWait | Rare::MapAddress { .. } | Rare::BlockRank { .. } => false,
            Rare::InOwnShared { .. } | Rare::PendingCount { .. } => false,
            Rare::Allocate { .. } | Rare::StackSave { .. } | Rare::StackRestore { .. } => false,
        },
        _ => false,
    }
}

fn wrap_one(instruction: &mut Instruction, site: u32, note: Option<Note>) {
    let op = core::mem::replace(&mut instruction.op, Op::Nop);
    instruction.op = Op::Checked(Box::new(Checked { site, op, note }));
}
