//! What is the same for all threads of a block or of a warp, and which instructions all of them run.
//!
//! A register's [`Level`] is the widest difference that any of its assignments can make: by what is assigned, and by
//! who runs the assignment. A branch on a register that differs makes all blocks of code between it and where its
//! ways meet again differ as well. Both grow until nothing changes; where nothing is known, threads differ.
//!
//! With `whole_rows` the launch is known to have warps that lie within one row of the block (`ntid.x` is a multiple of
//! 32). Then the number of a warp, however it is computed, is the same for its threads, and so is whether `tid.x` is
//! below a multiple of 32.

use super::barriers::{Meeting, meeting};
use crate::ast::{AddressBase, FunctionKind, Instruction, Operand};
use crate::block_level::code::{Code, Register, Step};
use crate::block_level::flow::{Effort, Regions};
use crate::block_level::refusal::Finding;
use std::collections::HashMap;

/// Threads in a warp.
const WARP: i128 = 32;

/// The bits of the number of a thread within its warp.
const LANE_BITS: i128 = 5;

/// How far a value is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::block_level) enum Level {
    /// For all threads of the block.
    Block,
    /// For all threads of a warp.
    Warp,
    /// But for the thread's number within the warp, which is added to a multiple of 32; or for all threads of a warp.
    Lane,
    /// For no two threads.
    Thread,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Value {
    level: Level,
    /// Whether it is a multiple of 32.
    multiple: bool,
}

const UNKNOWN: Value = Value { level: Level::Thread, multiple: false };
/// What no assignment has been found for yet.
const NOTHING: Value = Value { level: Level::Block, multiple: true };

impl Value {
    fn uniform(level: Level) -> Self {
        Self { level, multiple: false }
    }

    /// Either of the two, by a choice that all threads make alike.
    fn or(self, other: Self) -> Self {
        Self { level: self.level.max(other.level), multiple: self.multiple && other.multiple }
    }

    /// What is left of it in an operation that does not keep numbers within the warp.
    fn plain(self) -> Self {
        Self { level: if self.level == Level::Lane { Level::Thread } else { self.level }, multiple: false }
    }

    /// The sum, or the bits of both: nothing is carried out of the lowest five bits.
    fn plus(self, other: Self) -> Self {
        let keeps_lanes =
            |one: Self, other: Self| one.level == Level::Lane && other.level < Level::Lane && other.multiple;
        if keeps_lanes(self, other) || keeps_lanes(other, self) {
            return Self { level: Level::Lane, multiple: false };
        }
        let sum = self.plain().or(other.plain());
        Self { multiple: self.multiple && other.multiple, ..sum }
    }

    fn times(self, other: Self) -> Self {
        Self { multiple: self.multiple || other.multiple, ..self.plain().or(other.plain()) }
    }
}

/// Operations whose result is the same wherever their operands are.
const PURE: [&str; 42] = [
    "abs", "addc", "bfe", "bfi", "bfind", "bmsk", "brev", "clz", "cnot", "copysign", "cos", "cvta", "div", "dp2a",
    "dp4a", "ex2", "fma", "fns", "lg2", "lop3", "mad24", "madc", "max", "min", "mul24", "neg", "not", "popc", "prmt",
    "rcp", "rem", "rsqrt", "sad", "set", "shf", "sin", "slct", "sqrt", "subc", "szext", "tanh", "testp",
];

/// The levels of a function.
pub(in crate::block_level) struct Levels {
    registers: Vec<Value>,
    /// For each block of code, how far all threads run it.
    blocks: Vec<Level>,
}

impl Levels {
    /// How far all threads run a step alike.
    pub(in crate::block_level) fn of(&self, step: &Step<'_>) -> Level {
        let predicate = step.predicate.map_or(Level::Block, |register| self.registers[register as usize].level);
        self.blocks[step.block as usize].max(predicate)
    }
}

struct Analysis<'c, 'm> {
    code: &'c Code<'m>,
    whole_rows: bool,
    /// Registers that are a number and never anything else.
    constants: HashMap<Register, i128>,
    levels: Levels,
    /// Steps that read a register.
    readers: Vec<Vec<usize>>,
    waiting: Vec<usize>,
}

pub(in crate::block_level) fn levels(
    code: &Code<'_>,
    meets: &[Option<u32>],
    whole_rows: bool,
    effort: &mut Effort,
) -> Result<Levels, Finding> {
    let mut analysis = Analysis::new(code, whole_rows);
    let mut regions = Regions::new(code, meets);
    while let Some(index) = analysis.waiting.pop() {
        effort.spend(1)?;
        let step = &code.steps[index];
        let known = analysis.evaluate(step);
        for register in &step.results {
            analysis.assign(*register, known, step);
        }
        let block = &code.blocks[step.block as usize];
        if index + 1 == block.steps.end && block.successors.len() > 1 {
            let level = analysis.branch_level(step);
            if level > Level::Block {
                let mark = if level == Level::Warp { 1 } else { 2 };
                let level = if mark == 1 { Level::Warp } else { Level::Thread };
                let mut changed = Vec::new();
                regions.mark(step.block, mark, effort, &mut |block| changed.push(block))?;
                changed.into_iter().for_each(|block| analysis.raise(block, level));
            }
        }
    }
    Ok(analysis.levels)
}

impl<'c, 'm> Analysis<'c, 'm> {
    fn new(code: &'c Code<'m>, whole_rows: bool) -> Self {
        // What is never assigned is not known: an argument, or the result of text that stayed text.
        let mut registers = vec![UNKNOWN; code.registers()];
        let mut readers = vec![Vec::new(); code.registers()];
        for (index, step) in code.steps.iter().enumerate() {
            for register in &step.results {
                registers[*register as usize] = NOTHING;
            }
            for register in step.sources.iter().chain(&step.predicate) {
                readers[*register as usize].push(index);
            }
        }
        if code.function.kind == FunctionKind::Kernel {
            for declarator in code.function.parameters.iter().flat_map(|parameter| &parameter.declarators) {
                if let Some(register) = code.register(&declarator.name) {
                    registers[register as usize] = Value::uniform(Level::Block);
                }
            }
        }
        let levels = Levels { registers, blocks: vec![Level::Block; code.blocks.len()] };
        let constants = constants(code);
        Self { code, whole_rows, constants, levels, readers, waiting: (0..code.steps.len()).rev().collect() }
    }

    fn assign(&mut self, register: Register, value: Value, step: &Step<'_>) {
        let by_whom = Value { level: self.levels.of(step), multiple: true };
        let known = &mut self.levels.registers[register as usize];
        let joined = known.or(value).or(by_whom);
        if joined != *known {
            *known = joined;
            self.waiting.extend(&self.readers[register as usize]);
        }
    }

    fn raise(&mut self, block: u32, level: Level) {
        let known = &mut self.levels.blocks[block as usize];
        if level > *known {
            *known = level;
            self.waiting.extend(self.code.blocks[block as usize].steps.clone());
        }
    }

    /// How far a branch goes the same way.
    fn branch_level(&self, branch: &Step<'_>) -> Level {
        let index = branch.sources.first().filter(|_| branch.instruction.opcode == "brx");
        let level = |register: &Register| self.levels.registers[*register as usize].plain().level;
        index.into_iter().chain(&branch.predicate).map(level).max().unwrap_or(Level::Block)
    }

    fn operand(&self, operand: &Operand) -> Value {
        match operand {
            Operand::Integer(value) => Value { level: Level::Block, multiple: value % WARP == 0 },
            Operand::F32(_) | Operand::F64(_) => Value::uniform(Level::Block),
            Operand::Name(name) => match self.special(name) {
                Some(value) => value,
                // Of a vector the parts are not told apart.
                None if name.contains('.') => self.register(name).plain(),
                None => self.register(name),
            },
            Operand::Not(operand) => self.operand(operand).plain(),
            _ => UNKNOWN,
        }
    }

    /// The number that an operand always is.
    fn constant(&self, operand: &Operand) -> Option<i128> {
        match operand {
            Operand::Integer(number) => Some(*number),
            Operand::Name(name) => self.constants.get(&self.code.register(name)?).copied(),
            _ => None,
        }
    }

    fn register(&self, name: &str) -> Value {
        match self.code.locals.has(name) {
            true => self.code.register(name).map_or(UNKNOWN, |register| self.levels.registers[register as usize]),
            // The address of a variable, or a label.
            false if !name.starts_with('%') => Value::uniform(Level::Block),
            false => UNKNOWN,
        }
    }

    fn special(&self, name: &str) -> Option<Value> {
        if self.code.locals.has(name) {
            return None;
        }
        Some(match name {
            "%ntid.x" => Value { level: Level::Block, multiple: self.whole_rows },
            "%ntid.y" | "%ntid.z" | "%nwarpid" | "%dynamic_smem_size" => Value::uniform(Level::Block),
            _ if name.starts_with("%ctaid.") || name.starts_with("%nctaid.") => Value::uniform(Level::Block),
            "%tid.x" if self.whole_rows => Value::uniform(Level::Lane),
            "%tid.y" | "%tid.z" if self.whole_rows => Value::uniform(Level::Warp),
            _ if name.starts_with('%') => UNKNOWN,
            _ => return None,
        })
    }

    fn evaluate(&self, step: &Step<'_>) -> Value {
        let instruction = step.instruction;
        let operands = instruction.operands.as_slice();
        let value = |index: usize| operands.get(index).map_or(UNKNOWN, |operand| self.operand(operand));
        let all = || operands.iter().skip(1).map(|it| self.operand(it).plain()).fold(NOTHING, Value::or);
        let number = |index: usize| operands.get(index).and_then(|operand| self.constant(operand));
        let uniform = |value: Value| Value { multiple: false, ..value };
        match instruction.opcode.as_str() {
            "mov" if matches!(operands, [Operand::Name(_), _]) => value(1),
            "mov" => uniform(all()),
            "cvt" if widens(instruction) => value(1),
            "cvt" => uniform(value(1).plain()),
            "add" | "or" | "xor" if is_integer(instruction) => value(1).plus(value(2)),
            "sub" if is_integer(instruction) && value(2).level < Level::Lane => value(1).plus(value(2)),
            "mul" if is_integer(instruction) && !instruction.has("hi") => value(1).times(value(2)),
            "mad" if is_integer(instruction) && !instruction.has("hi") => value(1).times(value(2)).plus(value(3)),
            "and" => bits_and(value(1), value(2), number(2).or_else(|| number(1))),
            "shl" => shift_left(value(1), value(2), number(2)),
            "shr" => shift_right(value(1), value(2), number(2)),
            "setp" => comparison(value(1), value(2), instruction, number(2)).or(uniform(rest(self, operands))),
            "selp" => value(1).or(value(2)).or(Value { multiple: true, ..value(3).plain() }),
            "add" | "sub" | "mul" | "mad" | "or" | "xor" => uniform(all()),
            "ld" if instruction.has("param") => match operands.get(1) {
                Some(Operand::Address { base: AddressBase::Name(name), .. }) => uniform(self.register(name).plain()),
                _ => UNKNOWN,
            },
            "vote" | "redux" if names_whole_warp(operands.len().checked_sub(1).and_then(number)) => {
                Value::uniform(Level::Warp)
            }
            // One thread's value for all of the warp.
            "shfl" if instruction.has("idx") && number(2).is_some() && number(3) == Some(WARP - 1) => {
                if names_whole_warp(number(4)) {
                    Value::uniform(Level::Warp)
                } else {
                    UNKNOWN
                }
            }
            "bar" | "barrier" if matches!(meeting(instruction), Some(Meeting::Block { .. })) => {
                Value::uniform(Level::Block)
            }
            opcode if PURE.contains(&opcode) => uniform(all()),
            _ => UNKNOWN,
        }
    }
}

/// The predicate that a comparison is joined with, if there is one.
fn rest(analysis: &Analysis<'_, '_>, operands: &[Operand]) -> Value {
    operands.iter().skip(3).map(|operand| analysis.operand(operand).plain()).fold(NOTHING, Value::or)
}

fn names_whole_warp(mask: Option<i128>) -> bool {
    matches!(mask, Some(-1 | 0xffff_ffff))
}

/// Registers whose only assignment is a number.
fn constants(code: &Code<'_>) -> HashMap<Register, i128> {
    let mut assignments: HashMap<Register, Option<i128>> = HashMap::new();
    for step in &code.steps {
        let number = match step.instruction.operands.as_slice() {
            [Operand::Name(_), Operand::Integer(number)] if step.instruction.opcode == "mov" => Some(*number),
            _ => None,
        };
        for register in &step.results {
            let is_first = !assignments.contains_key(register);
            assignments.insert(*register, number.filter(|_| is_first && step.predicate.is_none()));
        }
    }
    assignments.into_iter().filter_map(|(register, number)| Some((register, number?))).collect()
}

fn is_integer(instruction: &Instruction) -> bool {
    let integer = |it: &String| it.strip_prefix(['u', 's', 'b']).is_some_and(|bits| matches!(bits, "32" | "64"));
    instruction.modifiers.iter().any(integer)
}

/// Between integers, without loss.
fn widens(instruction: &Instruction) -> bool {
    let types: Vec<&str> = instruction.modifiers.iter().map(String::as_str).collect();
    matches!(types.as_slice(), ["u32" | "s32" | "u64" | "s64" | "b32" | "b64", "u32" | "s32"])
}

fn bits_and(first: Value, second: Value, mask: Option<i128>) -> Value {
    let multiple = first.multiple || second.multiple;
    match mask {
        // The number of the thread is masked out.
        Some(mask) if mask.rem_euclid(WARP) == 0 => {
            let level = first.level.max(second.level);
            Value { level: if level == Level::Lane { Level::Warp } else { level }, multiple }
        }
        _ => Value { multiple, ..first.plain().or(second.plain()) },
    }
}

fn shift_left(value: Value, by: Value, amount: Option<i128>) -> Value {
    let far = amount.is_some_and(|amount| amount >= LANE_BITS);
    Value { multiple: value.multiple || far, ..value.plain().or(by.plain()) }
}

fn shift_right(value: Value, by: Value, amount: Option<i128>) -> Value {
    let far = amount.is_some_and(|amount| amount >= LANE_BITS);
    match value.level {
        Level::Lane if far => Value::uniform(Level::Warp),
        _ => Value { multiple: false, ..value.plain().or(by.plain()) },
    }
}

/// Whether a thread's number is below a multiple of 32 is the same for a warp.
fn comparison(first: Value, second: Value, instruction: &Instruction, bound: Option<i128>) -> Value {
    let before_multiple = instruction.has_any(&["lt", "ge", "lo", "hs"]);
    let before_last = instruction.has_any(&["le", "gt", "ls", "hi"]);
    let last = bound.is_some_and(|it| it.rem_euclid(WARP) == WARP - 1);
    let on_boundary = second.multiple && before_multiple || last && before_last;
    if is_integer(instruction) && first.level == Level::Lane && second.level < Level::Lane && on_boundary {
        return Value::uniform(second.level.max(Level::Warp));
    }
    Value { multiple: false, ..first.plain().or(second.plain()) }
}
