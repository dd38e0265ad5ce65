//! Shared memory: a preemptible version has a little more of it, so nothing may depend on its size or on where in it
//! something lies ([`layout`](super::layout) follows addresses that have a name).

use crate::ast::{AddressBase, Instruction, Operand, Space};
use crate::block_level::code::{Code, Register, Step};
use crate::block_level::names::{Names, Special, special};
use crate::block_level::parameters::size_and_alignment;
use crate::block_level::preemptible::SHARED_SIZE;
use crate::block_level::refusal::{Finding, RefusalKind};
use std::collections::HashSet;

/// Bytes that a kernel may declare.
const MOST_STATIC: u32 = 48 << 10;

/// Opcodes whose results may be addresses that came from elsewhere.
const FROM_ELSEWHERE: [&str; 7] = ["ld", "atom", "call", "cvta", "shfl", "ldu", "mapa"];

/// Checks one function.
pub(in crate::block_level) fn check(code: &Code<'_>, names: &Names<'_>) -> Result<(), Finding> {
    let refuse =
        |step: &Step<'_>| Err(Finding::at(RefusalKind::SharedMemory, step.instruction, step.instruction.span.start));
    let addresses = addresses(code, names);
    for step in &code.steps {
        let mut depends = false;
        step.instruction.for_each_source(&mut |name| depends |= special(name) == Some(Special::SharedMemory));
        let is_number = shared_address(step.instruction).is_some_and(|base| match base {
            AddressBase::Integer(_) => true,
            AddressBase::Name(name) => {
                let is_register = code.locals.space(name) == Some(Space::Reg);
                is_register && code.register(name).is_none_or(|register| !addresses[register as usize])
            }
        });
        if depends || is_number || is_swizzled(step.instruction) {
            return refuse(step);
        }
    }
    Ok(())
}

/// Whether it may take bits of the address for a pattern, in memory that lies at a multiple of 1,024 for that: which pattern, if any, is
/// in the tensor map.
fn is_swizzled(instruction: &Instruction) -> bool {
    instruction.opcode == "cp"
        && instruction.has("tensor")
        && instruction.modifiers.iter().any(|it| it.starts_with("shared"))
}

/// The address in shared memory that an instruction reads or writes.
fn shared_address(instruction: &Instruction) -> Option<&AddressBase> {
    instruction.modifiers.iter().find(|it| it.starts_with("shared"))?;
    instruction.operands.iter().find_map(|operand| match operand {
        Operand::Address { base, .. } => Some(base),
        _ => None,
    })
}

/// The registers that may hold an address of something with a name, wherever in the code they are written.
fn addresses(code: &Code<'_>, names: &Names<'_>) -> Vec<bool> {
    let is_shared = |name: &str| {
        let own = names.variable(name).map(|variable| variable.space).or_else(|| code.locals.space(name));
        own == Some(Space::Shared)
    };
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); code.registers()];
    let mut found = vec![false; code.registers()];
    let mut waiting: Vec<Register> = Vec::new();
    for (index, step) in code.steps.iter().enumerate() {
        for source in &step.sources {
            readers[*source as usize].push(index);
        }
        let mut is_seed = FROM_ELSEWHERE.contains(&step.instruction.opcode.as_str());
        step.instruction.for_each_source(&mut |name| is_seed |= is_shared(name));
        if is_seed {
            waiting.extend(&step.results);
        }
    }
    while let Some(register) = waiting.pop() {
        if !core::mem::replace(&mut found[register as usize], true) {
            for index in &readers[register as usize] {
                waiting.extend(&code.steps[*index].results);
            }
        }
    }
    found
}

/// Checks that what a kernel and its functions declare leaves room for the version's own.
pub(in crate::block_level) fn check_size<'m>(
    all: impl Iterator<Item = &'m Code<'m>>,
    names: &Names<'m>,
) -> Result<(), Finding> {
    let (mut total, mut counted) = (0_u32, HashSet::new());
    for code in all {
        let mut module_variables = Vec::new();
        for step in &code.steps {
            step.instruction.for_each_source(&mut |name| module_variables.extend(names.variable(name)));
        }
        for variable in module_variables.into_iter().chain(code.variables.iter().copied()) {
            if variable.space == Space::Shared && counted.insert(core::ptr::from_ref(variable)) {
                for index in 0..variable.declarators.len() {
                    // Without a size it is the launch's dynamic memory.
                    let (size, alignment) = size_and_alignment(variable, index).unwrap_or_default();
                    total = total.saturating_add(size).saturating_add(alignment);
                }
            }
        }
    }
    if total > MOST_STATIC - SHARED_SIZE {
        return Err(Finding::whole(RefusalKind::SharedMemory, format!("it declares up to {total} bytes")));
    }
    Ok(())
}
