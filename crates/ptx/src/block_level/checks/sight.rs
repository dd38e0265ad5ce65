//! What code can see of memory that other blocks write to.

use crate::ast::{AddressBase, Instruction, Operand};
use crate::block_level::code::{Code, Register, Step};
use std::collections::HashSet;

/// Modifiers of a load that sees what others write meanwhile.
const STRONG: [&str; 5] = ["volatile", "relaxed", "acquire", "mmio", "cv"];

/// Modifiers of a load that passes by the cache of its own SM.
const FAR: [&str; 2] = ["cg", "L1::no_allocate"];

/// What an instruction sees, or a function with all that it calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::block_level) struct Sight {
    /// It reads memory that other blocks may be writing to, and is sure to see it.
    pub(in crate::block_level) is_strong: bool,
    /// It reads memory outside of the block, by an ordinary load.
    pub(in crate::block_level) loads: bool,
    /// Not only at an address that it is given.
    loads_elsewhere: bool,
    /// It does so past the nearest cache.
    loads_far: bool,
    /// What others wrote before is seen by ordinary loads after it.
    pub(in crate::block_level) fences: bool,
    /// Threads may end in it.
    pub(in crate::block_level) exits: bool,
}

impl Sight {
    pub(in crate::block_level) fn of(instruction: &Instruction) -> Self {
        let loads = load_address(instruction).is_some();
        let is_bulk = instruction.opcode == "cp" && instruction.has("bulk");
        Self {
            is_strong: match instruction.opcode.as_str() {
                "atom" => is_outside(instruction),
                "multimem" => instruction.has("ld_reduce"),
                _ => loads && instruction.has_any(&STRONG),
            },
            loads,
            loads_elsewhere: false,
            loads_far: loads && (is_bulk || instruction.has_any(&FAR)),
            fences: is_fence(instruction),
            exits: instruction.opcode == "exit",
        }
    }

    /// What a function sees by itself.
    pub(in crate::block_level) fn of_function(code: &Code<'_>) -> Self {
        let given = given(code);
        let mut seen = Self::default();
        for step in &code.steps {
            let is_given = |name: &str| code.register(name).is_some_and(|register| given.contains(&register));
            let mut elsewhere = false;
            if let Some(address) = load_address(step.instruction) {
                address.for_each_name(&mut |name| elsewhere |= !is_given(name));
                elsewhere |= base_and_offset(address).is_none();
            }
            let own = Self::of(step.instruction);
            seen = Self { loads_elsewhere: elsewhere, ..own }.or(seen);
        }
        seen
    }

    /// With what a function sees that it calls.
    pub(in crate::block_level) fn with_called(self, called: Self) -> Self {
        Self { loads_elsewhere: called.loads, ..called }.or(self)
    }

    pub(in crate::block_level) fn or(self, other: Self) -> Self {
        Self {
            is_strong: self.is_strong | other.is_strong,
            loads: self.loads | other.loads,
            loads_elsewhere: self.loads_elsewhere | other.loads_elsewhere,
            loads_far: self.loads_far | other.loads_far,
            fences: self.fences | other.fences,
            exits: self.exits | other.exits,
        }
    }

    /// Whether it may find something else each time that it looks at the same place, with fences in between or without.
    pub(in crate::block_level) fn sees_others(self, with_fences: bool) -> bool {
        self.is_strong || self.loads_far || self.loads && (self.fences || with_fences)
    }

    /// Whether it may find something else each time that it runs, whatever address it is given.
    pub(in crate::block_level) fn sees_others_anywhere(self, with_fences: bool) -> bool {
        self.is_strong || self.loads_elsewhere && self.sees_others(with_fences)
    }
}

/// The registers of a function that are its only parameter, with something added or not. Of several it would have to be known which
/// is whose address.
fn given(code: &Code<'_>) -> HashSet<Register> {
    let [parameter] = code.function.parameters.as_slice() else { return HashSet::new() };
    let parameter = parameter.declarators.first().and_then(|it| code.register(&it.name));
    let copies = |step: &Step<'_>| match step.instruction.opcode.as_str() {
        "ld" => step.instruction.has("param"),
        opcode => matches!(opcode, "mov" | "add" | "cvta"),
    };
    let (mut found, mut others): (HashSet<Register>, HashSet<Register>) =
        (parameter.into_iter().collect(), HashSet::new());
    let mut before = None;
    while before != Some((found.len(), others.len())) {
        before = Some((found.len(), others.len()));
        for step in &code.steps {
            let is_given = copies(step) && step.sources.iter().any(|it| found.contains(it) && !others.contains(it));
            if is_given { &mut found } else { &mut others }.extend(&step.results);
        }
    }
    found.difference(&others).copied().collect()
}

/// Whether it may touch memory outside of the block: global memory, or whatever a generic address points to.
pub(super) fn is_outside(instruction: &Instruction) -> bool {
    let inside = |it: &String| ["shared", "local", "param", "const"].iter().any(|space| it.starts_with(space));
    !instruction.modifiers.iter().any(inside)
}

/// Where a load, or a copy into the block, reads memory outside of the block.
pub(super) fn load_address(instruction: &Instruction) -> Option<&Operand> {
    let is_load = match instruction.opcode.as_str() {
        "ld" | "ldu" | "suld" => is_outside(instruction),
        "cp" => {
            let place = |space: &str| instruction.modifiers.iter().position(|it| it.starts_with(space));
            place("shared").zip(place("global")).is_some_and(|(to, from)| to < from)
        }
        _ => false,
    };
    if is_load { instruction.operands.get(1) } else { None }
}

/// The register or variable, and the bytes past it, that a load or store without coordinates begins at.
pub(super) fn base_and_offset(operand: &Operand) -> Option<(&str, i64)> {
    match operand {
        Operand::Address { base: AddressBase::Name(name), offset } => Some((name, *offset)),
        _ => None,
    }
}

/// Whether others' writes are seen after it.
fn is_fence(instruction: &Instruction) -> bool {
    match instruction.opcode.as_str() {
        "membar" => !instruction.has("cta"),
        "fence" => instruction.has_any(&["gpu", "sys"]),
        "ld" | "atom" | "red" => {
            instruction.has_any(&["acquire", "acq_rel"]) && !instruction.has_any(&["cta", "cluster"])
        }
        _ => false,
    }
}
