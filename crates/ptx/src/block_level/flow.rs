//! Which blocks of a function decide about which others.

use super::code::Code;
use super::refusal::{Finding, RefusalKind};
use std::collections::{HashMap, HashSet};

/// Work for each instruction of a function, beyond which it is refused: what takes more is not what compilers write,
/// and the time must stay linear in the source.
const WORK_PER_STEP: usize = 200;

/// Work that any function may take.
const WORK_AT_LEAST: usize = 100_000;

/// Counts work, and says when it is too much.
pub(super) struct Effort(usize);

impl Effort {
    pub(super) fn new(code: &Code<'_>) -> Self {
        let size = code.blocks.len().saturating_add(code.steps.len());
        Self(size.saturating_mul(WORK_PER_STEP).saturating_add(WORK_AT_LEAST))
    }

    pub(super) fn spend(&mut self, amount: usize) -> Result<(), Finding> {
        match self.0.checked_sub(amount) {
            Some(left) => {
                self.0 = left;
                Ok(())
            }
            None => Err(Finding::whole(RefusalKind::NotUnderstood, "its control flow is too intricate")),
        }
    }
}

/// For each block the nearest one that every way from it to the end passes; None where no way leads there.
pub(super) fn post_dominators(code: &Code<'_>, effort: &mut Effort) -> Result<Vec<Option<u32>>, Finding> {
    let exit = code.exit() as usize;
    let mut predecessors = vec![Vec::new(); exit + 1];
    for (index, block) in (0_u32..).zip(&code.blocks) {
        for successor in &block.successors {
            predecessors[*successor as usize].push(index);
        }
    }
    let order = postorder(exit, &predecessors);
    let mut rank = vec![usize::MAX; exit + 1];
    for (position, block) in order.iter().enumerate() {
        rank[*block as usize] = position;
    }
    let mut nearest: Vec<Option<u32>> = vec![None; exit + 1];
    nearest[exit] = Some(code.exit());
    let mut changed = true;
    while changed {
        changed = false;
        for block in order.iter().rev().skip(1) {
            effort.spend(1)?;
            let mut found = None;
            for successor in &code.blocks[*block as usize].successors {
                if nearest[*successor as usize].is_some() {
                    found = Some(match found {
                        None => *successor,
                        Some(other) => common(*successor, other, &nearest, &rank, effort)?,
                    });
                }
            }
            if found.is_some() && nearest[*block as usize] != found {
                nearest[*block as usize] = found;
                changed = true;
            }
        }
    }
    Ok(nearest)
}

/// The nearest block that both lead to.
fn common(
    first: u32,
    second: u32,
    nearest: &[Option<u32>],
    rank: &[usize],
    effort: &mut Effort,
) -> Result<u32, Finding> {
    let (mut first, mut second) = (first, second);
    while first != second {
        effort.spend(1)?;
        let later = if rank[first as usize] < rank[second as usize] { &mut first } else { &mut second };
        match nearest[*later as usize] {
            Some(next) if next != *later => *later = next,
            // Only the end leads to itself, and it is what all lead to.
            _ => break,
        }
    }
    Ok(first)
}

/// Blocks from which the end can be reached, each after those that it is reached through.
fn postorder(exit: usize, predecessors: &[Vec<u32>]) -> Vec<u32> {
    let mut order = Vec::new();
    let mut seen = vec![false; predecessors.len()];
    let mut stack = vec![(u32::try_from(exit).unwrap_or(u32::MAX), 0)];
    seen[exit] = true;
    while let Some((block, next)) = stack.last_mut() {
        match predecessors[*block as usize].get(*next) {
            Some(predecessor) => {
                *next += 1;
                if !core::mem::replace(&mut seen[*predecessor as usize], true) {
                    stack.push((*predecessor, 0));
                }
            }
            None => {
                order.push(*block);
                stack.pop();
            }
        }
    }
    order
}

/// The blocks that run or not, or how often, as a branch decides: those on the ways from it to where they all meet
/// again. Branches that meet at the same place are looked at together.
pub(super) struct Regions<'c, 'm> {
    code: &'c Code<'m>,
    meets: &'c [Option<u32>],
    seen: HashMap<(Option<u32>, u8), HashSet<u32>>,
}

impl<'c, 'm> Regions<'c, 'm> {
    pub(super) fn new(code: &'c Code<'m>, meets: &'c [Option<u32>]) -> Self {
        Self { code, meets, seen: HashMap::new() }
    }

    /// Calls `visit` for each block that the branch at the end of `block` decides about, and that no branch with the
    /// same mark was known to decide about.
    pub(super) fn mark(
        &mut self,
        block: u32,
        mark: u8,
        effort: &mut Effort,
        visit: &mut impl FnMut(u32),
    ) -> Result<(), Finding> {
        let meet = self.meets[block as usize];
        let seen = self.seen.entry((meet, mark)).or_default();
        let mut waiting = vec![block];
        let mut first = true;
        while let Some(block) = waiting.pop() {
            // The branch's own block runs whatever it decides, unless a way leads back to it.
            if !core::mem::take(&mut first) {
                visit(block);
            }
            for successor in &self.code.blocks[block as usize].successors {
                effort.spend(1)?;
                let is_inside = Some(*successor) != meet && *successor != self.code.exit();
                if is_inside && seen.insert(*successor) {
                    waiting.push(*successor);
                }
            }
        }
        Ok(())
    }
}
