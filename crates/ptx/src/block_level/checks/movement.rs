//! Whether an address moves on as a loop goes round.
//!
//! An address that counts up or down never comes back to where it was; one that is set back, wrapped round or left as it was on
//! some way round does, and what was read there can be read again. So a value *moves on* if each way round the loop gives it another
//! one that is counted from the last, or comes from a value that moves on, by operations that keep it moving. A value *stays* if it is
//! worked out of nothing that the loop changes. What memory says where to look next does neither, nor does what is counted modulo something.
//!
//! Variables in memory that are written and read by name or with the same offset of the same register count as values, which
//! is how code that was not optimised has them.

use super::waiting::Loop;
use crate::ast::Operand;
use crate::block_level::code::{Register, Step};
use crate::block_level::flow::Effort;
use crate::block_level::refusal::Finding;
use std::collections::{HashMap, HashSet};

/// Values that an address is worked out of, beyond which nothing is said of it.
const MOST_VALUES: usize = 100;

/// Operations whose result moves on, in the end, if one of what they are given does.
const KEEPING: [&str; 10] = ["mov", "add", "sub", "mul", "mad", "shl", "cvt", "cvta", "or", "ld"];

/// Types of so few values that they are soon counted through.
const NARROW: [&str; 6] = ["u8", "s8", "b8", "u16", "s16", "b16"];

/// Operations that find something else when they are given the same, or may.
const CHANGING: [&str; 4] = ["atom", "call", "multimem", "ld"];

/// Numbers that count up when they are added, and do not wrap round.
const UPWARDS: core::ops::Range<i128> = 1..1 << 31;

/// Something that holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Value {
    Register(Register),
    /// What lies that many bytes past what a register points to.
    Memory(Register, i64),
}

/// What is known of the values that an address is worked out of.
pub(super) struct Movement {
    moving: HashSet<Value>,
    staying: HashSet<Value>,
}

impl Movement {
    /// For what is read in `block`, from an address in `registers`.
    pub(super) fn of(
        body: &Loop<'_, '_>,
        block: u32,
        registers: &[Register],
        effort: &mut Effort,
    ) -> Result<Self, Finding> {
        let mut search = Search { body, values: HashMap::new() };
        let is_whole = search.collect(registers, effort)?;
        let moving = if is_whole { search.moving(block, effort)? } else { HashSet::new() };
        let staying = if is_whole { search.staying(effort)? } else { HashSet::new() };
        Ok(Self { moving, staying })
    }

    /// Whether an address out of these never comes back.
    pub(super) fn moves_on(&self, registers: &[Register]) -> bool {
        registers.iter().any(|register| self.moving.contains(&Value::Register(*register)))
    }

    /// Whether it is the same each time round.
    pub(super) fn stays(&self, registers: &[Register]) -> bool {
        registers.iter().all(|register| self.staying.contains(&Value::Register(*register)))
    }
}

/// One place where a value is written within the loop.
struct Writer<'c, 'm> {
    step: &'c Step<'m>,
    sources: Vec<Value>,
}

struct Search<'b, 'c, 'm> {
    body: &'b Loop<'c, 'm>,
    values: HashMap<Value, Vec<Writer<'c, 'm>>>,
}

impl<'c, 'm> Search<'_, 'c, 'm> {
    /// All values that these are worked out of within the loop; false if they are too many.
    fn collect(&mut self, registers: &[Register], effort: &mut Effort) -> Result<bool, Finding> {
        let mut waiting: Vec<Value> = registers.iter().copied().map(Value::Register).collect();
        while let Some(value) = waiting.pop() {
            if self.values.contains_key(&value) {
                continue;
            }
            if self.values.len() == MOST_VALUES {
                return Ok(false);
            }
            let steps: &[usize] = match value {
                Value::Register(register) => self.body.writers.get(&register).map_or(&[], Vec::as_slice),
                Value::Memory(base, offset) => self.body.stores.get(&(base, offset)).map_or(&[], Vec::as_slice),
            };
            let mut writers = Vec::new();
            for index in steps {
                effort.spend(1)?;
                let step = &self.body.code.steps[*index];
                let sources = self.sources(step, value);
                waiting.extend(&sources);
                writers.push(Writer { step, sources });
            }
            self.values.insert(value, writers);
        }
        Ok(true)
    }

    /// What a step makes a value of.
    fn sources(&self, step: &Step<'_>, value: Value) -> Vec<Value> {
        let instruction = step.instruction;
        let registers = || step.sources.iter().copied().map(Value::Register);
        match value {
            // Of a store not the address, which is always the same.
            Value::Memory(base, _) => registers().filter(|it| *it != Value::Register(base)).collect(),
            Value::Register(_) if instruction.opcode == "st" => registers().filter(|it| *it != value).collect(),
            Value::Register(_) if instruction.opcode == "ld" => {
                let place = instruction.operands.get(1).and_then(|address| self.body.place(address));
                place.map_or_else(|| registers().collect(), |(base, offset)| vec![Value::Memory(base, offset)])
            }
            Value::Register(_) => registers().collect(),
        }
    }

    /// The values that are worked out of nothing that the loop changes.
    fn staying(&self, effort: &mut Effort) -> Result<HashSet<Value>, Finding> {
        let mut staying: HashSet<Value> = HashSet::new();
        loop {
            let before = staying.len();
            for (value, writers) in &self.values {
                effort.spend(1)?;
                let stays = |writer: &Writer<'_, '_>| {
                    let instruction = writer.step.instruction;
                    (!CHANGING.contains(&instruction.opcode.as_str()) || instruction.has("param"))
                        && writer.sources.iter().all(|source| staying.contains(source))
                };
                if writers.iter().all(stays) {
                    staying.insert(*value);
                }
            }
            if staying.len() == before {
                return Ok(staying);
            }
        }
    }

    /// The values that move on, as what is read in `block` finds them.
    fn moving(&self, block: u32, effort: &mut Effort) -> Result<HashSet<Value>, Finding> {
        let mut moving = HashSet::new();
        for value in self.values.keys() {
            if self.is_written_each_time(*value, block, effort)? {
                moving.insert(*value);
            }
        }
        loop {
            let before = moving.len();
            let kept: HashSet<Value> =
                moving.iter().copied().filter(|value| self.writers(*value).all(|it| keeps(it, &moving))).collect();
            moving = kept;
            let made_of = self.made_of(&moving, effort)?;
            let counted = moving.iter().copied().filter(|value| self.is_counted(*value, &made_of)).collect();
            moving = counted;
            if moving.len() == before {
                return Ok(moving);
            }
        }
    }

    fn writers(&self, value: Value) -> impl Iterator<Item = &Writer<'c, 'm>> {
        self.values.get(&value).into_iter().flatten()
    }

    /// What each of those that may move on is made of, itself only if it is made of itself.
    fn made_of(&self, moving: &HashSet<Value>, effort: &mut Effort) -> Result<HashMap<Value, HashSet<Value>>, Finding> {
        let mut all = HashMap::new();
        for value in moving {
            let (mut found, mut waiting) = (HashSet::new(), vec![*value]);
            while let Some(next) = waiting.pop() {
                effort.spend(1)?;
                let sources = self.writers(next).flat_map(|writer| writer.sources.iter().copied());
                waiting.extend(sources.filter(|source| moving.contains(source) && found.insert(*source)));
            }
            all.insert(*value, found);
        }
        Ok(all)
    }

    /// Whether a value that is made of itself, over others or not, is so by counting, in one direction.
    fn is_counted(&self, value: Value, made_of: &HashMap<Value, HashSet<Value>>) -> bool {
        let is_made_of = |value: &Value, other: &Value| made_of.get(value).is_some_and(|all| all.contains(other));
        if !is_made_of(&value, &value) {
            return true;
        }
        let circle: HashSet<Value> =
            made_of.keys().copied().filter(|other| is_made_of(&value, other) && is_made_of(other, &value)).collect();
        let within = |writer: &&Writer<'_, '_>| writer.sources.iter().any(|source| circle.contains(source));
        let mut directions = HashSet::new();
        for writer in circle.iter().flat_map(|member| self.writers(*member)).filter(within) {
            directions.extend(direction(writer.step));
            // What memory says where to look next may lead back.
            let instruction = writer.step.instruction;
            let is_variable = instruction.has("param") || matches!(writer.sources.as_slice(), [Value::Memory(..)]);
            if instruction.opcode == "ld" && !is_variable {
                return false;
            }
        }
        directions.len() == 1 && !self.copies_itself(value, &circle)
    }

    /// Whether a way through its circle does not count.
    fn copies_itself(&self, value: Value, circle: &HashSet<Value>) -> bool {
        let (mut found, mut waiting) = (HashSet::new(), vec![value]);
        while let Some(next) = waiting.pop() {
            for writer in self.writers(next).filter(|writer| direction(writer.step).is_none()) {
                for source in writer.sources.iter().filter(|source| circle.contains(source)) {
                    if *source == value {
                        return true;
                    }
                    if found.insert(*source) {
                        waiting.push(*source);
                    }
                }
            }
        }
        false
    }

    /// Whether each way round the loop, from `block` and back by where the loop begins, writes the value.
    fn is_written_each_time(&self, value: Value, block: u32, effort: &mut Effort) -> Result<bool, Finding> {
        let surely = self.writers(value).filter(|writer| writer.step.predicate.is_none());
        let writing: HashSet<u32> = surely.map(|writer| writer.step.block).collect();
        if writing.contains(&block) {
            return Ok(true);
        }
        let (mut seen, mut waiting) = (HashSet::new(), vec![(block, self.body.entries.contains(&block))]);
        while let Some((at, begins_anew)) = waiting.pop() {
            for successor in &self.body.code.blocks[at as usize].successors {
                effort.spend(1)?;
                if !self.body.inside.contains(successor) || writing.contains(successor) {
                    continue;
                }
                let begins_anew = begins_anew || self.body.entries.contains(successor);
                if *successor == block {
                    if begins_anew {
                        return Ok(false);
                    }
                } else if seen.insert((*successor, begins_anew)) {
                    waiting.push((*successor, begins_anew));
                }
            }
        }
        Ok(true)
    }
}

/// Whether what a step writes moves on if these do.
fn keeps(writer: &Writer<'_, '_>, moving: &HashSet<Value>) -> bool {
    let instruction = writer.step.instruction;
    let is_part = match instruction.opcode.as_str() {
        "mov" => matches!(instruction.operands.first(), Some(Operand::Vector(_))),
        "mul" | "mad" => instruction.has("hi"),
        // Two that move on may do so together.
        "sub" => writer.sources.iter().all(|source| moving.contains(source)) && writer.sources.len() > 1,
        // What is loaded is as good as anything, however narrow.
        "ld" => false,
        _ => instruction.has_any(&NARROW),
    };
    let is_keeping = instruction.opcode == "st" || KEEPING.contains(&instruction.opcode.as_str());
    is_keeping && !is_part && writer.sources.iter().any(|source| moving.contains(source))
}

/// Whether a step counts up or down; None if it does neither.
fn direction(step: &Step<'_>) -> Option<bool> {
    let instruction = step.instruction;
    let constant = instruction.operands.iter().find_map(|operand| match operand {
        Operand::Integer(number) => Some(*number),
        _ => None,
    });
    let up = match (instruction.opcode.as_str(), constant) {
        (_, Some(0)) => return None,
        ("add", Some(number)) => UPWARDS.contains(&number),
        ("sub", Some(number)) => !UPWARDS.contains(&number),
        // By how much is not known; nobody counts by nothing.
        ("add", None) => true,
        ("sub", None) => false,
        _ => return None,
    };
    Some(up)
}
