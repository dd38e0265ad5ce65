//! Which registers are read later.

use super::blocks::{Code, Register};
use super::kinds::Role;
use std::collections::{HashMap, HashSet};

/// Registers are handed on from block to block in rounds. What takes more work than this, in words of registers, is not what compilers write.
const MOST_WORK: usize = 50_000_000;
/// And what takes more memory, in words.
const MOST_WORDS: usize = 4_000_000;

/// For each block the registers that may be read after it; of those that hold products alone, and are read in another
/// block than they are written in. In what compilers write these are few.
pub(super) struct Live {
    bits: HashMap<Register, usize>,
    after: Vec<Vec<u64>>,
    returned: HashSet<Register>,
}

fn has(set: &[u64], bit: usize) -> bool {
    set[bit / 64] & 1 << (bit % 64) != 0
}

fn insert(set: &mut [u64], bit: usize) {
    set[bit / 64] |= 1 << (bit % 64);
}

impl Live {
    /// None where it would take too long.
    pub(super) fn of(code: &Code<'_>) -> Option<Self> {
        let held = registers_of_products(code);
        let mut bits = HashMap::new();
        // What each block reads before it writes it, and what it writes.
        let mut facts = Vec::with_capacity(code.blocks());
        for block in 0..code.blocks() {
            let (mut reads, mut writes) = (Vec::new(), HashSet::new());
            for step in code.steps_of(block) {
                for register in step.sources.iter().filter(|it| held.contains(it) && !writes.contains(*it)) {
                    let next = bits.len();
                    reads.push(*bits.entry(*register).or_insert(next));
                }
                if step.instruction.predicate.is_none() {
                    writes.extend(step.results.iter().filter(|it| held.contains(it)).copied());
                }
            }
            facts.push((reads, writes));
        }
        let words = bits.len().div_ceil(64);
        if words.saturating_mul(code.blocks()) > MOST_WORDS {
            return None;
        }
        let mut live = Self { bits, after: vec![vec![0; words]; code.blocks()], returned: code.returned.clone() };
        if words == 0 {
            return Some(live);
        }
        let mut before = Vec::with_capacity(facts.len());
        let mut passes = Vec::with_capacity(facts.len());
        for (reads, writes) in &facts {
            let mut set = vec![0; words];
            reads.iter().for_each(|bit| insert(&mut set, *bit));
            before.push(set);
            let mut set = vec![u64::MAX; words];
            for bit in writes.iter().filter_map(|register| live.bits.get(register)) {
                set[bit / 64] &= !(1 << (bit % 64));
            }
            passes.push(set);
        }
        let mut work = MOST_WORK;
        let mut changed = true;
        while core::mem::take(&mut changed) {
            for block in (0..code.blocks()).rev() {
                work = work.checked_sub(words * (1 + code.successors(block).len()))?;
                let after = &mut live.after[block];
                for successor in code.successors(block) {
                    after.iter_mut().zip(&before[*successor]).for_each(|(after, before)| *after |= before);
                }
                for ((before, after), passes) in before[block].iter_mut().zip(after).zip(&passes[block]) {
                    let with = *before | *after & passes;
                    changed |= with != *before;
                    *before = with;
                }
            }
        }
        Some(live)
    }

    /// Whether what a register holds at a block's end may be read.
    pub(super) fn after(&self, block: usize, register: Register) -> bool {
        let read = self.bits.get(&register).is_some_and(|bit| has(&self.after[block], *bit));
        read || self.returned.contains(&register)
    }
}

/// Those that products and copies are written to.
fn registers_of_products(code: &Code<'_>) -> HashSet<Register> {
    let steps = (0..code.blocks()).flat_map(|block| code.steps_of(block));
    let holding = steps.filter(|step| matches!(step.role, Role::Product(_) | Role::Copy { .. }));
    holding.flat_map(|step| &step.results).copied().collect()
}
