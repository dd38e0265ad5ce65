//! Decoded code.

use super::check::Checks;
use super::interface::{Global, KernelProperties};
use super::line_table::{LineTable, Origin};
use super::op::{Instruction, Place, Slot, Special};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// Where generic addresses of shared memory start.
pub(super) const SHARED_WINDOW: u64 = 0x8000_0000_0000_0000;
/// Where generic addresses of local memory start.
pub(super) const LOCAL_WINDOW: u64 = 0x9000_0000_0000_0000;
/// Where generic addresses of a kernel's parameters start.
pub(super) const PARAMETER_WINDOW: u64 = 0xA000_0000_0000_0000;
/// Where addresses of functions start. They are the functions' numbers: nothing can be read there.
pub(super) const FUNCTION_WINDOW: u64 = 0xB000_0000_0000_0000;
/// Shared memory before the first variable, which belongs to the system, as on a GPU.
pub(super) const RESERVED_SHARED: u32 = 1024;
/// How large each window is.
pub(super) const WINDOW_SIZE: u64 = 0x1000_0000_0000_0000;

/// Modules that were decoded together.
#[derive(Debug)]
pub(crate) struct Image {
    /// By name.
    pub(crate) kernels: HashMap<String, Arc<Kernel>>,
    /// By name.
    pub(crate) globals: HashMap<String, Global>,
}

/// A kernel that can be run.
#[derive(Debug)]
pub(crate) struct Kernel {
    /// What it declares.
    pub(crate) properties: KernelProperties,
    pub(super) program: Arc<Program>,
    /// Its number in the program.
    pub(super) function: u32,
    /// Where this kernel has the shared variables of the program; those that it does not use are missing.
    pub(super) shared: HashMap<u32, u32>,
}

/// All functions and kernels of an image.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) functions: Vec<Function>,
    /// Its kernels by the numbers of their functions; they hold the program, and the image holds them.
    pub(super) kernels: OnceLock<HashMap<u32, Weak<Kernel>>>,
    /// What the checker knows of it; None where nothing is checked.
    pub(super) checks: Option<Checks>,
}

impl Program {
    /// The kernel with that address.
    pub(super) fn kernel_at(&self, address: u64) -> Option<Arc<Kernel>> {
        let number = u32::try_from(address.checked_sub(FUNCTION_WINDOW)?).ok()?;
        self.kernels.get()?.get(&number)?.upgrade()
    }
}

/// A function or the body of a kernel.
#[derive(Debug, Default)]
pub(super) struct Function {
    pub(super) name: String,
    /// The last one leaves the function.
    pub(super) code: Vec<Instruction>,
    /// Where each instruction stands.
    pub(super) spans: Vec<Source>,
    pub(super) source: Arc<str>,
    pub(super) lines: LineTable,
    /// Registers of each kind.
    pub(super) narrow: u32,
    pub(super) wide: u32,
    pub(super) predicates: u32,
    /// What registers hold from the start.
    pub(super) presets: Vec<Preset>,
    /// The frame's local memory: variables, parameters, arguments of calls.
    pub(super) local_bytes: u32,
    /// Where it has its parameters and results.
    pub(super) parameters: Vec<Place>,
    pub(super) results: Vec<Place>,
}

/// A place in the source.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Source {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) line: u32,
    /// What it was compiled from, in the function's [`LineTable`].
    pub(super) origin: Origin,
}

impl Function {
    /// An instruction as the source has it, and its line.
    pub(super) fn text(&self, pc: u32) -> (&str, u32) {
        let source = self.spans.get(pc as usize).copied().unwrap_or_default();
        let text = self.source.get(source.start as usize..source.end as usize).unwrap_or_default();
        (text.trim_end_matches(';'), source.line)
    }

    /// An instruction for people: its text, its line, and what it was compiled from where that is known.
    pub(super) fn described(&self, pc: u32, kernel: &str) -> String {
        let (text, line) = self.text(pc);
        let within = if self.name == *kernel { String::new() } else { format!(" of function {}", self.name) };
        let origin = self.spans.get(pc as usize).and_then(|source| self.lines.describe(source.origin));
        let origin = origin.map(|origin| format!(" ({origin})")).unwrap_or_default();
        format!("'{text}'{within}, line {line}{origin}")
    }
}

/// What a register holds when its function is entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Preset {
    Narrow {
        slot: Slot,
        value: u32,
    },
    Wide {
        slot: Slot,
        value: u64,
    },
    Predicate {
        slot: Slot,
        value: bool,
    },
    NarrowSpecial {
        slot: Slot,
        special: Special,
    },
    WideSpecial {
        slot: Slot,
        special: Special,
    },
    /// The address of a shared variable, in both banks.
    NarrowShared {
        slot: Slot,
        variable: u32,
        offset: i64,
    },
    WideShared {
        slot: Slot,
        variable: u32,
        offset: i64,
    },
}
