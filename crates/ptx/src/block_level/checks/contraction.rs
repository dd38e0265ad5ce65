//! Products and sums that the compiler may join.
//!
//! A `mul` and an `add` or `sub` without a rounding modifier may become one `fma`, which rounds once instead of twice.
//! Whether they do is the compiler's choice, and it may choose otherwise where the surroundings are others. So a
//! product must not reach a sum of its type, by whatever copies: through registers, local memory, or as a function's
//! argument or result (which may be inlined). Compilers make most `fma`s before they write PTX, but leave some: of `a * b - c * d`
//! nvcc writes two products and a difference.

use crate::ast::{FunctionKind, Instruction, Operand};
use crate::block_level::code::{Code, Register, Step};
use crate::block_level::refusal::{Finding, RefusalKind};
use std::collections::HashSet;

const ROUNDING: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// Types, with those that are two of another one.
const TYPES: [[&str; 2]; 4] = [["f32", "f32x2"], ["f64", "f64"], ["f16", "f16x2"], ["bf16", "bf16x2"]];

/// Opcodes that hand a value on, or change its sign.
const COPIES: [&str; 6] = ["mov", "selp", "slct", "neg", "abs", "cvt"];

/// Values flow forward but for loops and odd layouts of blocks, so that few rounds find where all of them go.
const MOST_ROUNDS: usize = 100;

/// The type of an operation without a rounding modifier.
fn unrounded(instruction: &Instruction, opcodes: &[&str]) -> Option<usize> {
    if !opcodes.contains(&instruction.opcode.as_str()) || instruction.has_any(&ROUNDING) {
        return None;
    }
    TYPES.iter().position(|types| instruction.has_any(types))
}

fn is_space(instruction: &Instruction, space: &str) -> bool {
    instruction.modifiers.iter().any(|it| it.starts_with(space))
}

/// Types of which a product may have gone through parameters between functions, one bit each.
pub(in crate::block_level) type Types = u8;

/// Checks a function, and says which types of products it hands to others.
pub(in crate::block_level) fn check(code: &Code<'_>, from_others: Types) -> Result<Types, Finding> {
    if !code.steps.iter().any(|step| unrounded(step.instruction, &["mul"]).is_some()) && from_others == 0 {
        return Ok(0);
    }
    let mut search = Search::new(code, from_others);
    let mut rounds = 0;
    while search.round() {
        rounds += 1;
        if rounds > MOST_ROUNDS {
            return Err(Finding::whole(RefusalKind::NotUnderstood, "its values go round too many corners"));
        }
    }
    for step in &code.steps {
        if let Some(ty) = unrounded(step.instruction, &["add", "sub"])
            && search.of_sources(step) & (1 << ty) != 0
        {
            return Err(Finding::at(RefusalKind::Contraction, step.instruction, step.instruction.span.start));
        }
    }
    Ok(search.handed_on)
}

struct Search<'c, 'm> {
    code: &'c Code<'m>,
    /// For each register the types of products that it may hold.
    reached: Vec<Types>,
    local: Types,
    handed_on: Types,
    from_others: Types,
    /// A kernel's own parameters, which hold no products.
    own_parameters: HashSet<Register>,
}

impl<'c, 'm> Search<'c, 'm> {
    fn new(code: &'c Code<'m>, from_others: Types) -> Self {
        let own = code.function.parameters.iter().filter(|_| code.function.kind == FunctionKind::Kernel);
        let names = own.flat_map(|parameter| &parameter.declarators).map(|it| it.name.as_str());
        let own_parameters = names.filter_map(|name| code.register(name)).collect();
        Self { code, reached: vec![0; code.registers()], local: 0, handed_on: 0, from_others, own_parameters }
    }

    fn of_sources(&self, step: &Step<'_>) -> Types {
        step.sources.iter().fold(0, |types, register| types | self.reached[*register as usize])
    }

    fn of_all_sources(&self, step: &Step<'_>) -> Types {
        step.sources.iter().fold(Types::MAX, |types, register| types & self.reached[*register as usize])
    }

    /// Hands all values on once; whether anything was new.
    fn round(&mut self) -> bool {
        let mut changed = false;
        for step in &self.code.steps {
            let instruction = step.instruction;
            let opcode = instruction.opcode.as_str();
            let types = match opcode {
                "mul" => unrounded(instruction, &["mul"]).map_or(0, |ty| 1 << ty),
                "ld" if is_space(instruction, "local") => self.local,
                "ld" if is_space(instruction, "param") => self.of_sources(step) | self.parameters(step),
                // A generic address may point to local memory.
                "ld" if !instruction.has_any(&["global", "shared", "const"]) => self.local,
                "call" => self.of_sources(step) | self.from_others,
                "st" => self.of_sources(step),
                // Half of a product beside something else is no product.
                "mov" if matches!(instruction.operands.get(1), Some(Operand::Vector(_))) => self.of_all_sources(step),
                _ if COPIES.contains(&opcode) => self.of_sources(step),
                _ => 0,
            };
            if types == 0 {
                continue;
            }
            if opcode == "st" && is_space(instruction, "param") || opcode == "call" {
                self.handed_on |= types;
            }
            if opcode == "st" && !instruction.has_any(&["global", "shared"]) && !is_space(instruction, "param") {
                changed |= self.local | types != self.local;
                self.local |= types;
            }
            for register in &step.results {
                let known = &mut self.reached[*register as usize];
                changed |= *known | types != *known;
                *known |= types;
            }
        }
        changed
    }

    /// What a parameter of a called function may hold.
    fn parameters(&self, step: &Step<'_>) -> Types {
        let own = step.sources.iter().all(|register| self.own_parameters.contains(register));
        if own { 0 } else { self.from_others }
    }
}
