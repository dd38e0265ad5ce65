//! Blocks that wait for other blocks.
//!
//! A block that waits for one that has not begun would wait for ever: a slice's blocks come after those of the slice
//! before, a persistent block takes the next one when it is done with this one. A wait is a loop that looks at
//! memory which other blocks can write to, and goes on as long as it finds what it found before:
//!
//! * a loop whose end depends on what a load that sees others' writes (volatile, relaxed, acquire) or an atomic
//!   operation on memory outside of the block returned within the loop;
//! * a loop whose end depends on an ordinary load from an address that the loop does not change, if the loop has no
//!   effect, or the load passes by the nearest cache, or the loop has a fence, after which others' writes are seen.
//!
//! *Depends* is taken widely: through registers, shared and local memory, and by deciding what is assigned. One kind
//! of such loop waits for nobody: an atomic compare-and-swap that is tried again with the value that it has just
//! returned, until it has returned what was expected. Locks do wait, and are refused like everything else: whether
//! their holder is running is more than can be seen here.

use crate::ast::{Instruction, Operand};
use crate::block_level::code::{Code, Register, Step};
use crate::block_level::flow::{Effort, Regions};
use crate::block_level::loops::{self, loops};
use crate::block_level::refusal::{Finding, RefusalKind};
use std::collections::{HashMap, HashSet};

/// Modifiers of a load that sees what others write meanwhile.
const STRONG: [&str; 5] = ["volatile", "relaxed", "acquire", "mmio", "cv"];

/// Whether it reads memory that other blocks may be writing to, and is sure to see it.
pub(in crate::block_level) fn is_strong(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "ld" => instruction.has_any(&STRONG) && is_outside(instruction),
        "atom" => is_outside(instruction),
        "multimem" => instruction.has("ld_reduce"),
        _ => false,
    }
}

/// Whether it may touch memory outside of the block: global memory, or whatever a generic address points to.
fn is_outside(instruction: &Instruction) -> bool {
    let inside = |it: &String| ["shared", "local", "param", "const"].iter().any(|space| it.starts_with(space));
    !instruction.modifiers.iter().any(inside)
}

/// Checks all loops of a function. `strong_functions` says which called functions look at such memory.
pub(in crate::block_level) fn check(
    code: &Code<'_>,
    meets: &[Option<u32>],
    strong_functions: &HashSet<&str>,
    effort: &mut Effort,
) -> Result<(), Finding> {
    let is_source = |step: &Step<'_>| {
        is_strong(step.instruction)
            || step.instruction.callee().is_some_and(|(_, callee)| strong_functions.contains(callee))
    };
    let is_load = |step: &Step<'_>| step.instruction.opcode == "ld" && is_outside(step.instruction);
    if !code.steps.iter().any(|step| is_source(step) || is_load(step)) {
        return Ok(());
    }
    for part in loops(code, effort)? {
        let body = Loop::new(code, &part, effort)?;
        let strong: Vec<_> = body.steps().filter(|step| is_source(step)).collect();
        body.check(&strong, meets, effort)?;
        let is_spin = !body.steps().any(|step| has_effect(step.instruction));
        let sees_others = is_spin || body.steps().any(|step| is_fence(step.instruction));
        let again =
            |step: &&Step<'_>| is_load(step) && (sees_others || step.instruction.has("cg")) && body.is_unchanged(step);
        body.check(&body.steps().filter(again).collect::<Vec<_>>(), meets, effort)?;
    }
    Ok(())
}

/// Whether others can see that it has run.
fn has_effect(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "st" | "red" | "atom" => is_outside(instruction),
        "call" | "cp" | "sust" | "sured" | "multimem" => true,
        _ => false,
    }
}

/// Whether others' writes are seen after it.
fn is_fence(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "membar" => !instruction.has("cta"),
        "fence" => instruction.has_any(&["gpu", "sys"]),
        _ => false,
    }
}

/// What a value can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Register(Register),
    /// Memory of the block and of the thread, each as a whole.
    Inside,
    /// The carry between two instructions.
    Carry,
}

struct Loop<'c, 'm> {
    code: &'c Code<'m>,
    blocks: &'c [u32],
    entries: HashSet<u32>,
    inside: HashSet<u32>,
    /// Steps that read a place.
    readers: HashMap<Place, Vec<usize>>,
    /// Steps that write a register.
    writers: HashMap<Register, Vec<usize>>,
}

fn reads(step: &Step<'_>) -> impl Iterator<Item = Place> {
    let instruction = step.instruction;
    let memory = matches!(instruction.opcode.as_str(), "ld" | "atom" | "call" | "ldmatrix" | "wmma");
    let inside = memory && !instruction.has("global");
    let carry = matches!(instruction.opcode.as_str(), "addc" | "subc" | "madc");
    let registers = step.sources.iter().copied().chain(step.predicate).map(Place::Register);
    registers.chain(inside.then_some(Place::Inside)).chain(carry.then_some(Place::Carry))
}

fn writes(step: &Step<'_>) -> impl Iterator<Item = Place> {
    let instruction = step.instruction;
    let memory = matches!(instruction.opcode.as_str(), "st" | "red" | "atom" | "call" | "cp" | "stmatrix" | "wmma");
    let inside = memory && (!instruction.has("global") || instruction.opcode == "cp");
    let registers = step.results.iter().copied().map(Place::Register);
    registers.chain(inside.then_some(Place::Inside)).chain(instruction.has("cc").then_some(Place::Carry))
}

impl<'c, 'm> Loop<'c, 'm> {
    fn new(code: &'c Code<'m>, part: &'c loops::Loop, effort: &mut Effort) -> Result<Self, Finding> {
        let blocks = part.blocks.as_slice();
        let mut body = Self {
            code,
            blocks,
            entries: part.entries.iter().copied().collect(),
            inside: blocks.iter().copied().collect(),
            readers: HashMap::new(),
            writers: HashMap::new(),
        };
        for block in blocks {
            for index in code.blocks[*block as usize].steps.clone() {
                effort.spend(1)?;
                let step = &code.steps[index];
                for place in reads(step) {
                    body.readers.entry(place).or_default().push(index);
                }
                for register in &step.results {
                    body.writers.entry(*register).or_default().push(index);
                }
            }
        }
        Ok(body)
    }

    fn steps(&self) -> impl Iterator<Item = &'c Step<'m>> {
        self.blocks.iter().flat_map(|block| self.code.steps_of(*block))
    }

    /// Whether a load reads the same address each time round.
    fn is_unchanged(&self, load: &Step<'_>) -> bool {
        load.sources.iter().all(|register| !self.writers.contains_key(register))
    }

    /// Refuses if the loop's end depends on what one of these returns.
    fn check(&self, sources: &[&Step<'m>], meets: &[Option<u32>], effort: &mut Effort) -> Result<(), Finding> {
        let Some(first) = sources.first() else { return Ok(()) };
        let mut reached: HashSet<Place> = HashSet::new();
        let mut waiting: Vec<Place> = sources.iter().flat_map(|step| writes(step)).collect();
        let mut regions = Regions::new(self.code, meets);
        while let Some(place) = waiting.pop() {
            if !reached.insert(place) {
                continue;
            }
            for index in self.readers.get(&place).into_iter().flatten() {
                effort.spend(1)?;
                let step = &self.code.steps[*index];
                waiting.extend(writes(step));
                if !self.is_branch(step, *index) {
                    continue;
                }
                if self.leaves(step.block) && !self.retries(step) {
                    return Err(self.finding(first));
                }
                // What is assigned where the branch leads depends on it as well.
                regions.mark(step.block, 0, effort, &mut |block| {
                    if self.inside.contains(&block) {
                        waiting.extend(self.code.steps_of(block).iter().flat_map(writes));
                    }
                })?;
            }
        }
        Ok(())
    }

    fn finding(&self, source: &Step<'_>) -> Finding {
        Finding::at(RefusalKind::WaitsForBlocks, source.instruction, source.instruction.span.start)
    }

    /// Whether control goes one way or the other after the step.
    fn is_branch(&self, step: &Step<'_>, index: usize) -> bool {
        let block = &self.code.blocks[step.block as usize];
        index + 1 == block.steps.end && block.successors.len() > 1
    }

    /// Whether the branch at the end of a block decides if the loop goes round once more: out of it or not, or back to
    /// its beginning or not. The latter is the end of a loop within, if both begin at the same place.
    fn leaves(&self, block: u32) -> bool {
        let successors = &self.code.blocks[block as usize].successors;
        let back = successors.iter().filter(|successor| self.entries.contains(successor)).count();
        successors.iter().any(|successor| !self.inside.contains(successor)) || back > 0 && back < successors.len()
    }

    /// Whether the loop goes on at this branch because a compare-and-swap has not returned what was expected, and what
    /// it returned is expected the next time.
    fn retries(&self, branch: &Step<'_>) -> bool {
        let (Some(predicate), Some(register)) = (&branch.instruction.predicate, branch.predicate) else { return false };
        let Some(comparison) = self.only_writer(register) else { return false };
        let [Operand::Name(_), Operand::Name(_), Operand::Name(_)] = comparison.instruction.operands.as_slice() else {
            return false;
        };
        let [first, second] = comparison.sources.as_slice() else { return false };
        let equal = comparison.instruction.has("eq");
        let is_comparison = comparison.instruction.opcode == "setp"
            && comparison.predicate.is_none()
            && (equal || comparison.instruction.has("ne"));
        let target = self.code.blocks[branch.block as usize].successors.first();
        let leaves_when_taken = target.is_some_and(|target| !self.inside.contains(target));
        // The branch is taken where the predicate is true, or false if it is negated.
        let taken_when_equal = equal != predicate.negated;
        is_comparison
            && leaves_when_taken == taken_when_equal
            && (self.is_swap(*first, *second) || self.is_swap(*second, *first))
    }

    /// Whether `returned` comes from a compare-and-swap that expected `expected`, and is expected the next time.
    fn is_swap(&self, returned: Register, expected: Register) -> bool {
        let Some(swap) = self.only_writer(returned) else { return false };
        let expects = match swap.instruction.operands.as_slice() {
            [_, _, Operand::Name(name), _] => self.code.register(name),
            _ => None,
        };
        let again = self.writers.get(&expected).into_iter().flatten().all(|index| {
            let step = &self.code.steps[*index];
            step.instruction.opcode == "mov" && step.sources == [returned]
        });
        swap.instruction.opcode == "atom"
            && swap.instruction.has("cas")
            && swap.predicate.is_none()
            && expects == Some(expected)
            && self.writers.contains_key(&expected)
            && again
    }

    fn only_writer(&self, register: Register) -> Option<&'c Step<'m>> {
        match self.writers.get(&register)?.as_slice() {
            [index] => Some(&self.code.steps[*index]),
            _ => None,
        }
    }
}
