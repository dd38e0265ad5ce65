//! What instructions are defined to do, computed without anything of the software GPU: a second opinion for integers,
//! comparisons, conversions and IEEE floating point, where there is no GPU to ask.
//!
//! It reads the kernel's own text, thread by thread, and takes each result from its definition: integers are wide enough
//! to be exact, bits are looked at one by one, and a floating-point result is looked for among all numbers of its format
//! ([`exact`]). It knows straight code only; everything else is "not supported", as a driver would say.

mod convert;
mod exact;
mod float;
mod integer;

use crate::answer::Answer;
use crate::gpu::Outcome;
use crate::kernel::{Kernel, Statement};
use std::collections::BTreeMap;

/// A type in an instruction's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Signed(u32),
    /// Bits are numbers without a sign.
    Unsigned(u32),
    Float(exact::Format),
}

impl Type {
    fn parse(name: &str) -> Option<Self> {
        let width = |name: &str| name.parse::<u32>().ok().filter(|width| [8, 16, 32, 64].contains(width));
        Some(match name {
            "f16" => Self::Float(exact::F16),
            "bf16" => Self::Float(exact::BF16),
            "f32" => Self::Float(exact::F32),
            "f64" => Self::Float(exact::F64),
            _ => match name.split_at_checked(1)? {
                ("s", rest) => Self::Signed(width(rest)?),
                ("u" | "b", rest) => Self::Unsigned(width(rest)?),
                _ => return None,
            },
        })
    }

    fn width(self) -> u32 {
        match self {
            Self::Signed(width) | Self::Unsigned(width) => width,
            Self::Float(format) => format.width(),
        }
    }
}

/// One instruction, read.
struct Instruction<'t> {
    opcode: &'t str,
    modifiers: Vec<&'t str>,
    operands: Vec<&'t str>,
}

impl Instruction<'_> {
    fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    fn types(&self) -> Vec<Type> {
        self.modifiers.iter().filter_map(|name| Type::parse(name)).collect()
    }

    fn rounding(&self) -> exact::Rounding {
        exact::Rounding::of(&self.modifiers)
    }
}

/// A thread: its registers by name, and the carry.
struct Thread {
    registers: BTreeMap<String, u64>,
    carry: bool,
}

impl Thread {
    /// A register, a number or a negated predicate.
    fn read(&self, operand: &str) -> Option<u64> {
        if let Some(predicate) = operand.strip_prefix('!') {
            return self.read(predicate).map(|value| value ^ 1);
        }
        if let Some(bits) = operand.strip_prefix("0f") {
            return u64::from_str_radix(bits, 16).ok();
        }
        if operand.starts_with('%') {
            return self.registers.get(operand).copied();
        }
        operand.parse::<i64>().ok().map(i64::cast_unsigned)
    }

    fn write(&mut self, operand: &str, value: u64) {
        if operand != "_" {
            self.registers.insert(operand.into(), value);
        }
    }
}

/// What the kernel writes; [`Answer::NotSupported`] names the first instruction that is not known here.
pub(crate) fn run(kernel: &Kernel) -> Outcome {
    let registers = kernel.registers();
    let mut output = Vec::new();
    for number in 0..kernel.threads() {
        let initial = registers.iter().map(|it| (it.name.clone(), kernel.initial(it, number))).collect();
        let mut thread = Thread { registers: initial, carry: false };
        for statement in &kernel.body {
            let Statement::Text(text) = statement else { return Err(Answer::NotSupported("branches".into())) };
            for line in text.split(';').map(str::trim).filter(|line| !line.is_empty()) {
                step(&mut thread, line).ok_or_else(|| Answer::not_supported(line))?;
            }
        }
        for register in registers.iter().filter(|register| register.work) {
            let value = thread.registers.get(&register.name).copied().unwrap_or_default();
            output.extend([value, value >> 32].map(|part| u32::try_from(part & 0xffff_ffff).unwrap_or_default()));
        }
    }
    if kernel.scratch_words > 0 {
        return Err(Answer::NotSupported("memory".into()));
    }
    Ok(output)
}

fn step(thread: &mut Thread, line: &str) -> Option<()> {
    let line = match line.strip_prefix('@') {
        Some(guarded) => {
            let (guard, rest) = guarded.split_once(' ')?;
            if thread.read(guard)? == 0 {
                return Some(());
            }
            rest
        }
        None => line,
    };
    let (name, operands) = line.split_once(' ')?;
    let mut modifiers = name.split('.');
    let opcode = modifiers.next()?;
    let operands = operands.split(',').map(str::trim).collect();
    let instruction = Instruction { opcode, modifiers: modifiers.collect(), operands };
    integer::step(thread, &instruction)
        .or_else(|| float::step(thread, &instruction))
        .or_else(|| convert::step(thread, &instruction))
}
