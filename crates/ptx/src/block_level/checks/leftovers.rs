//! What would reach the next block that runs on the same persistent one.
//!
//! Registers, local and shared memory are undefined when a block begins, so what the block before left there is as
//! good as anything. Copies that are still on their way are waited for. The rest is refused.

use crate::ast::{FunctionKind, Instruction};
use crate::block_level::code::Code;
use crate::block_level::refusal::{Finding, RefusalKind};

pub(in crate::block_level) fn check(code: &Code<'_>) -> Result<(), Finding> {
    let is_function = code.function.kind == FunctionKind::Function;
    for step in &code.steps {
        let instruction = step.instruction;
        let kind = match instruction.opcode.as_str() {
            // An object in shared memory that must not be initialised twice, with a phase of its own.
            "mbarrier" => RefusalKind::LeftBehind,
            "cp" | "st" | "red" if completes_on_barrier(instruction) => RefusalKind::LeftBehind,
            // Registers and matrix memory that are handed out for the rest of the block's life.
            "setmaxnreg" | "wgmma" | "tcgen05" => RefusalKind::LeftBehind,
            // The stack would grow with each block.
            "alloca" | "stacksave" | "stackrestore" => RefusalKind::LeftBehind,
            // Arrivals that nobody waited for would count for the next block.
            "bar" | "barrier" if instruction.has("arrive") => RefusalKind::Barrier,
            // A function cannot lead to the kernel's common end.
            "exit" if is_function => RefusalKind::EarlyExit,
            _ => continue,
        };
        return Err(Finding::at(kind, instruction, instruction.span.start));
    }
    Ok(())
}

fn completes_on_barrier(instruction: &Instruction) -> bool {
    let tells_barrier = |it: &String| it.starts_with("mbarrier");
    instruction.modifiers.iter().any(tells_barrier) || instruction.opcode != "cp" && instruction.has("async")
}

/// Instructions that wait for the copies which code begins, and only for these.
pub(in crate::block_level) fn waits(code: &Code<'_>) -> Waits {
    let mut waits = Waits::default();
    for instruction in code.steps.iter().map(|step| step.instruction).filter(|it| it.opcode == "cp") {
        waits.bulk |= instruction.has("bulk");
        waits.plain |= !instruction.has("bulk");
    }
    waits
}

/// Which kinds of copies are waited for before the next block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::block_level) struct Waits {
    plain: bool,
    bulk: bool,
}

impl Waits {
    pub(in crate::block_level) fn and(self, other: Self) -> Self {
        Self { plain: self.plain | other.plain, bulk: self.bulk | other.bulk }
    }

    pub(in crate::block_level) fn instructions(self) -> impl Iterator<Item = &'static str> {
        let plain = self.plain.then_some("cp.async.wait_all;");
        plain.into_iter().chain(self.bulk.then_some("cp.async.bulk.wait_group 0;"))
    }
}
