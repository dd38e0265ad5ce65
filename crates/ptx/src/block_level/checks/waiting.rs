//! Blocks that wait for other blocks.
//!
//! A block that waits for one that has not begun would wait for ever: a slice's blocks come after those of the slice
//! before, a persistent block takes the next one when it is done with this one. A wait is a loop that looks at
//! memory which other blocks can write to, and goes on as long as it finds what it found before:
//!
//! * a loop whose end depends on what a load that sees others' writes (volatile, relaxed, acquire) or an atomic
//!   operation on memory outside of the block returned within the loop;
//! * a loop whose end depends on a load that passes by the nearest cache, or on an ordinary load in a loop with a fence, after
//!   which others' writes are seen, unless its address moves on for good each time round ([`movement`](super::movement));
//! * a loop whose end depends on what a called function found that does any of this ([`sight`](super::sight)), wherever it
//!   looks; only of one that looks nowhere but where its one parameter says is it asked whether that moves on;
//! * a loop without any effect whose end depends on an ordinary load from an address that stays the same.
//!
//! *Depends* is taken widely: through registers and memory, by deciding what is assigned, and by an `exit` in a called function. A function
//! that calls itself is a loop, too, whose end is not looked at. One kind
//! of such loop waits for nobody: an atomic compare-and-swap that is tried again with the value that it has just
//! returned, until it has returned what was expected. Locks do wait, and are refused like everything else: whether
//! their holder is running is more than can be seen here.

use super::movement::Movement;
use super::sight::{Sight, base_and_offset, is_outside, load_address};
use crate::ast::{Instruction, Operand};
use crate::block_level::code::{Code, Register, Step};
use crate::block_level::flow::{Effort, Regions};
use crate::block_level::loops::{self, loops};
use crate::block_level::refusal::{Finding, RefusalKind};
use std::collections::{HashMap, HashSet};

/// Checks all loops of a function. `sights` has what each function sees, with all that it calls.
pub(in crate::block_level) fn check<'m>(
    code: &Code<'m>,
    meets: &[Option<u32>],
    sights: &HashMap<&'m str, Sight>,
    effort: &mut Effort,
) -> Result<(), Finding> {
    let seen = code.steps.iter().map(|step| sight(step, sights)).fold(Sight::default(), Sight::or);
    if !seen.sees_others(true) {
        return Ok(());
    }
    for part in loops(code, effort)? {
        let body = Loop::new(code, &part, sights, effort)?;
        body.check(&body.strong_sources(), meets, effort)?;
        let loads = body.loads_that_see_others();
        // Where nothing depends on them it need not be known where they look.
        if body.check(&loads, meets, effort).is_err() {
            let again = body.that_look_again(loads, effort)?;
            body.check(&again, meets, effort)?;
        }
    }
    Ok(())
}

/// What an instruction sees, or the function that it calls.
fn sight(step: &Step<'_>, sights: &HashMap<&str, Sight>) -> Sight {
    match step.instruction.callee() {
        Some((_, callee)) => sights.get(callee).copied().unwrap_or_default(),
        None => Sight::of(step.instruction),
    }
}

/// Whether others can see that it has run.
fn has_effect(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "st" | "red" | "atom" => is_outside(instruction),
        "call" | "cp" | "sust" | "sured" | "multimem" => true,
        _ => false,
    }
}

/// What a value can be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Register(Register),
    /// Memory of the block and of the thread, each as a whole.
    Inside,
    /// Other memory, that many bytes past what a register or variable points to.
    Outside(Register, i64),
    /// The carry between two instructions.
    Carry,
}

pub(super) struct Loop<'c, 'm> {
    pub(super) code: &'c Code<'m>,
    part: &'c loops::Loop,
    sights: &'c HashMap<&'m str, Sight>,
    pub(super) entries: HashSet<u32>,
    pub(super) inside: HashSet<u32>,
    /// Steps that read a place.
    readers: HashMap<Place, Vec<usize>>,
    /// Steps that write a register.
    pub(super) writers: HashMap<Register, Vec<usize>>,
    /// Steps that store that many bytes past what a register or variable points to.
    pub(super) stores: HashMap<(Register, i64), Vec<usize>>,
    has_fence: bool,
}

/// Instructions that read memory.
const READING: [&str; 5] = ["ld", "atom", "call", "ldmatrix", "wmma"];

/// Instructions that write to memory.
const WRITING: [&str; 7] = ["st", "red", "atom", "call", "cp", "stmatrix", "wmma"];

/// The memory that one of these touches. Of that outside of the block only what is read as it was written is known again.
fn memory(step: &Step<'_>, opcodes: &[&str], address: usize) -> impl Iterator<Item = Place> + use<> {
    let instruction = step.instruction;
    let is_one = opcodes.contains(&instruction.opcode.as_str());
    let inside = is_one && (!instruction.has("global") || instruction.opcode == "cp");
    let outside = instruction.operands.get(address).filter(|_| is_one && is_outside(instruction));
    // The address comes first in what these read.
    let outside = outside.and_then(base_and_offset).zip(step.sources.first());
    inside.then_some(Place::Inside).into_iter().chain(outside.map(|((_, offset), base)| Place::Outside(*base, offset)))
}

fn reads(step: &Step<'_>) -> impl Iterator<Item = Place> {
    let carry = matches!(step.instruction.opcode.as_str(), "addc" | "subc" | "madc");
    let registers = step.sources.iter().copied().chain(step.predicate).map(Place::Register);
    registers.chain(memory(step, &READING, 1)).chain(carry.then_some(Place::Carry))
}

fn writes(step: &Step<'_>) -> impl Iterator<Item = Place> {
    let carry = step.instruction.has("cc");
    let registers = step.results.iter().copied().map(Place::Register);
    registers.chain(memory(step, &WRITING, 0)).chain(carry.then_some(Place::Carry))
}

impl<'c, 'm> Loop<'c, 'm> {
    fn new(
        code: &'c Code<'m>,
        part: &'c loops::Loop,
        sights: &'c HashMap<&'m str, Sight>,
        effort: &mut Effort,
    ) -> Result<Self, Finding> {
        let mut body = Self {
            code,
            part,
            sights,
            entries: part.entries.iter().copied().collect(),
            inside: part.blocks.iter().copied().collect(),
            readers: HashMap::new(),
            writers: HashMap::new(),
            stores: HashMap::new(),
            has_fence: false,
        };
        for block in &part.blocks {
            for index in code.blocks[*block as usize].steps.clone() {
                effort.spend(1)?;
                let step = &code.steps[index];
                body.has_fence |= sight(step, sights).fences;
                for place in reads(step) {
                    body.readers.entry(place).or_default().push(index);
                }
                for register in &step.results {
                    body.writers.entry(*register).or_default().push(index);
                }
            }
        }
        for index in part.blocks.iter().flat_map(|block| code.blocks[*block as usize].steps.clone()) {
            let instruction = code.steps[index].instruction;
            let address = instruction.operands.first().filter(|_| instruction.opcode == "st");
            if let Some(place) = address.and_then(|address| body.place(address)) {
                body.stores.entry(place).or_default().push(index);
            }
        }
        Ok(body)
    }

    /// What an address names that the loop does not change.
    pub(super) fn place(&self, address: &Operand) -> Option<(Register, i64)> {
        let (name, offset) = base_and_offset(address)?;
        let base = self.code.register(name)?;
        (!self.writers.contains_key(&base)).then_some((base, offset))
    }

    fn steps(&self) -> impl Iterator<Item = &'c Step<'m>> {
        self.part.blocks.iter().flat_map(|block| self.code.steps_of(*block))
    }

    fn sight(&self, step: &Step<'m>) -> Sight {
        sight(step, self.sights)
    }

    /// What finds something else each time round, wherever it looks.
    fn strong_sources(&self) -> Vec<&'c Step<'m>> {
        self.steps().filter(|step| self.sight(step).sees_others_anywhere(self.has_fence)).collect()
    }

    /// What finds something else if it looks at the same place again.
    fn loads_that_see_others(&self) -> Vec<&'c Step<'m>> {
        let is_spin = !self.steps().any(|step| has_effect(step.instruction));
        let is_source = |step: &Step<'m>| {
            let sight = self.sight(step);
            sight.sees_others(self.has_fence) || is_spin && sight.loads
        };
        self.steps().filter(|step| is_source(step)).collect()
    }

    /// Those that may look at the same place again.
    fn that_look_again(&self, loads: Vec<&'c Step<'m>>, effort: &mut Effort) -> Result<Vec<&'c Step<'m>>, Finding> {
        // Many have the same address but for a number.
        let mut known: HashMap<(u32, bool, Vec<Register>), bool> = HashMap::new();
        let mut found = Vec::new();
        for load in loads {
            let sees_others = self.sight(load).sees_others(self.has_fence);
            let mut registers: Vec<Register> = Vec::new();
            match load_address(load.instruction) {
                Some(address) => address.for_each_name(&mut |name| registers.extend(self.code.register(name))),
                // Of a function that is called what it is given is its address.
                None => registers.extend(&load.sources),
            }
            let key = (load.block, sees_others, registers);
            let again = match known.get(&key) {
                Some(again) => *again,
                None => self.looks_again(load.block, sees_others, &key.2, effort)?,
            };
            known.insert(key, again);
            found.extend(again.then_some(load));
        }
        Ok(found)
    }

    fn looks_again(
        &self,
        block: u32,
        sees_others: bool,
        address: &[Register],
        effort: &mut Effort,
    ) -> Result<bool, Finding> {
        let movement = Movement::of(self, block, address, effort)?;
        if sees_others {
            return Ok(!movement.moves_on(address));
        }
        let is_as_it_was = address.iter().all(|register| !self.writers.contains_key(register));
        Ok(is_as_it_was || movement.stays(address) && self.carries_nothing(effort)?)
    }

    /// Whether no register has anything from one round in the next: a loop that works on something may well work out the same address
    /// each time, where it was not optimised.
    fn carries_nothing(&self, effort: &mut Effort) -> Result<bool, Finding> {
        let sources = |register: &Register| {
            let steps = self.writers.get(register).into_iter().flatten().map(|index| &self.code.steps[*index]);
            steps.flat_map(|step| step.sources.iter().chain(&step.predicate)).copied().collect::<Vec<_>>()
        };
        // Registers that nothing is left of are taken away until all that are left are made of each other.
        let mut left: HashMap<Register, Vec<Register>> = self.writers.keys().map(|it| (*it, sources(it))).collect();
        loop {
            let before = left.len();
            effort.spend(left.values().map(Vec::len).sum::<usize>())?;
            let made_of_left: HashSet<Register> =
                left.iter().filter(|(_, of)| of.iter().any(|it| left.contains_key(it))).map(|(it, _)| *it).collect();
            left.retain(|register, _| made_of_left.contains(register));
            if left.len() == before {
                return Ok(left.is_empty());
            }
        }
    }

    /// Refuses if the loop's end depends on what one of these returns.
    fn check(&self, sources: &[&Step<'m>], meets: &[Option<u32>], effort: &mut Effort) -> Result<(), Finding> {
        let Some(first) = sources.first() else { return Ok(()) };
        if sources.iter().any(|step| self.may_exit(step)) {
            return Err(self.finding(first));
        }
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
                if self.may_exit(step) {
                    return Err(self.finding(first));
                }
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

    /// Whether threads may end in a function that it calls.
    fn may_exit(&self, step: &Step<'m>) -> bool {
        step.instruction.opcode == "call" && self.sight(step).exits
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
