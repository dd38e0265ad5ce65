//! Variables of the original module, used from the versions' module.
//!
//! A program knows the original's variables by their names and may write to them at any time, so the versions must use
//! the very same memory. In their module each such variable is a *slot*, a constant that holds its address. An
//! instruction that names the variable reads the slot first. What was constant memory is read as global memory
//! through that address, by loads that say that nobody writes to it meanwhile.

use super::Borrowed;
use super::names::Names;
use super::position::line;
use super::refusal::{Finding, RefusalKind};
use crate::ScalarType;
use crate::ast::{Instruction, Linkage, Operand, Space, Statement, Variable};
use std::collections::BTreeMap;

/// As many as constant memory has room for, and one in eight to spare.
const MOST_SLOTS: usize = 7_168;

/// Whether a variable is reached through a slot.
pub(super) fn is_borrowed(variable: &Variable) -> bool {
    matches!(variable.space, Space::Global | Space::Const)
}

/// Whether what an instruction does with variables of the module can be done through a slot.
pub(super) fn check(instruction: &Instruction, names: &Names<'_>) -> Result<(), Finding> {
    let refuse = |kind| Err(Finding::at(kind, instruction, instruction.span.start));
    let is_constant = instruction.has("const");
    if is_constant && !matches!(instruction.opcode.as_str(), "ld" | "cvta") {
        return refuse(RefusalKind::Variable);
    }
    let mut found = Ok(());
    for operand in &instruction.operands {
        operand.for_each_name(&mut |name| {
            let Some(variable) = names.variable(name) else { return };
            if matches!(variable.ty, ScalarType::TexRef | ScalarType::SamplerRef | ScalarType::SurfRef) {
                found = refuse(RefusalKind::Texture);
            } else if is_borrowed(variable) && !takes_address(instruction, operand) || !is_known(variable) {
                found = refuse(RefusalKind::Variable);
            }
        });
    }
    found
}

/// Whether it is one that the versions' module can have, or can borrow. Memory that another module declares is neither,
/// unless it is the launch's dynamic memory, which has no size.
fn is_known(variable: &Variable) -> bool {
    let has_size = variable.declarators.iter().any(|it| it.dimensions.first() != Some(&None));
    match variable.space {
        Space::Shared => variable.linkage != Linkage::Extern || !has_size,
        space => matches!(space, Space::Global | Space::Const | Space::Local),
    }
}

/// Whether the operand may be an address of 64 bits in a register instead.
fn takes_address(instruction: &Instruction, operand: &Operand) -> bool {
    match operand {
        Operand::Address { .. } | Operand::Tensor { .. } | Operand::List(_) => true,
        Operand::Name(_) | Operand::Offset { .. } => instruction.has_any(&["u64", "s64", "b64"]),
        _ => false,
    }
}

/// The slots of a module.
pub(super) struct Slots<'p> {
    prefix: &'p str,
    /// By variable.
    numbers: BTreeMap<String, usize>,
}

impl<'p> Slots<'p> {
    pub(super) fn new(prefix: &'p str) -> Self {
        Self { prefix, numbers: BTreeMap::new() }
    }

    pub(super) fn are_too_many(&self) -> bool {
        self.numbers.len() > MOST_SLOTS
    }

    fn slot(&self, number: usize) -> String {
        format!("{}_slot_{number}", self.prefix)
    }

    /// In the order of their numbers.
    pub(super) fn borrowed(&self) -> Vec<Borrowed> {
        let mut all: Vec<_> = self.numbers.iter().collect();
        all.sort_by_key(|(_, number)| **number);
        all.iter().map(|(name, number)| Borrowed { variable: (*name).clone(), slot: self.slot(**number) }).collect()
    }

    /// Reads the slots of the variables that an instruction names, and has it use these addresses. `count` is how
    /// many registers for addresses the function needs at most.
    pub(super) fn replace(
        &mut self,
        instruction: &mut Instruction,
        names: &Names<'_>,
        count: &mut usize,
        code: &mut Vec<Statement>,
    ) {
        read_constants_as_global(instruction);
        let mut used = 0;
        for operand in &mut instruction.operands {
            let before = used;
            operand.rename(&mut |name| {
                names.variable(name).filter(|variable| is_borrowed(variable))?;
                let next = self.numbers.len();
                let number = *self.numbers.entry(name.to_string()).or_insert(next);
                let register = self.register(used);
                used += 1;
                code.push(line(format!("ld.const.u64 {register}, [{}];", self.slot(number))));
                Some(register)
            });
            // `name+4` is a constant; a register with an offset is none.
            if let Operand::Offset { name, offset } = operand
                && used > before
            {
                code.push(line(format!("add.s64 {name}, {name}, {offset};")));
                *operand = Operand::Name(name.clone());
            }
        }
        *count = used.max(*count);
    }

    fn register(&self, number: usize) -> String {
        format!("{}_address_{number}", self.prefix)
    }

    /// The registers that the replaced instructions of a function use.
    pub(super) fn declare(&self, count: usize) -> impl Iterator<Item = Statement> {
        (0..count).map(|number| line(format!(".reg .b64 {};", self.register(number))))
    }
}

fn read_constants_as_global(instruction: &mut Instruction) {
    let Some(at) = instruction.modifiers.iter().position(|modifier| modifier == "const") else { return };
    instruction.modifiers[at] = "global".to_string();
    if instruction.opcode == "ld" {
        instruction.modifiers.insert(at + 1, "nc".to_string());
    }
}
