//! Versions of a module's kernels that can be launched in parts.
//!
//! A kernel that runs for milliseconds can only be moved or held between two launches. Its *versions* run the
//! same blocks, each exactly once and each as the original would have run it, but not in one go:
//!
//! * [`sliced`]: a launch covers a range of the original's blocks;
//! * [`preemptible`]: a few persistent blocks take the original's blocks one after the other from a counter, and end
//!   early when a flag asks for it. Launching again with the same counter goes on. Threads that leave a block early
//!   are kept together with the others by [`one_exit`].
//!
//! Blocks are numbered as the hardware numbers them: n is x = n % grid.x, y = n / grid.x % grid.y,
//! z = n / (grid.x * grid.y).
//!
//! The versions are in a module of their own, which is loaded beside the original. The original's variables stay where
//! they are: the versions [`borrow`] them. A kernel whose result could be another in parts, or as it is compiled anew,
//! has no version but a [`Refusal`] ([`checks`]). A version may need a few registers more than the original and 128
//! bytes more of shared memory, so a launch that only just fits may not: ask the driver before.
//!
//! ```
//! use detshare_ptx::{block_level, parse};
//!
//! let source = "
//!     .version 8.4
//!     .target sm_90
//!     .address_size 64
//!     .visible .entry number(.param .u64 out)
//!     {
//!         .reg .b32 %r<2>;
//!         .reg .b64 %rd<3>;
//!         mov.u32 %r1, %ctaid.x;
//!         ld.param.u64 %rd1, [out];
//!         mad.wide.u32 %rd2, %r1, 4, %rd1;
//!         st.global.u32 [%rd2], %r1;
//!         ret;
//!     }
//!     .visible .entry place(.param .u64 out)
//!     {
//!         .reg .b32 %r<2>;
//!         mov.u32 %r1, %smid;
//!         ret;
//!     }";
//! let rewritten = block_level::rewrite(&parse(source)?, source);
//! let [number, place] = rewritten.kernels.as_slice() else { panic!("two kernels") };
//! assert_eq!(number.sliced.as_ref().map(|version| version.work_offset), Ok(8));
//! assert_eq!(
//!     place.sliced.as_ref().map_err(ToString::to_string),
//!     Err("depends on where or beside what it runs: 'mov.u32 %r1, %smid;', line 18".to_string())
//! );
//! assert!(parse(&rewritten.source.expect("one kernel has versions")).is_ok());
//! # Ok::<(), detshare_ptx::ParseError>(())
//! ```

mod assemble;
mod borrow;
mod checks;
mod code;
mod division;
mod flow;
mod loops;
mod names;
mod one_exit;
mod operands;
mod output;
mod parameters;
mod position;
mod preemptible;
mod program;
mod refusal;
mod registers;
mod sliced;

pub use division::{Division, Divisor};
pub use refusal::{Refusal, RefusalKind};
pub use registers::{Limit, limit_registers};

use crate::ast::Module;

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
    /// The variable of eight bytes in [`Rewritten::source`] that takes its address; the driver finds it by this name.
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
    /// Whether it is for launches with a block width (`ntid.x`) that is a multiple of 32 only.
    pub whole_rows: bool,
}

/// The extra parameter of a sliced version. It is launched with a one-dimensional grid of as many blocks as the slice
/// has, and with the original's block dimensions and dynamic shared memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slice {
    /// The original's grid.
    pub grid: [u32; 3],
    /// The number of the slice's first block. All numbers are below 2³¹.
    pub first: u32,
    /// How they are divided.
    pub division: Division,
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
    /// Device address of a `u64` and a `u32` behind it, aligned as the first: the number of the next block, in whose upper half there is
    /// 0 before each launch, as there is in the other one. After the kernel the lower half is `blocks` or more exactly if all blocks
    /// ran; the rest is the kernel's own. They are to lie in the device's memory.
    pub next: u64,
    /// Addresses of `u32` words that the device can read; 0 for none. Once one of them was seen with a bit of `mask`, no further
    /// block is begun; they are looked at all the time, by one thread after the other, each of which has begun a block.
    pub flags: [u64; 4],
    /// The bits that count in the flags.
    pub mask: u32,
    /// Nothing.
    pub _pad: u32,
    /// How the blocks' numbers, all below 2³¹, are divided.
    pub division: Division,
}

/// Rewrites every kernel of a module that can be. `source` is what it was parsed from, for line numbers.
#[must_use]
pub fn rewrite(module: &Module, source: &str) -> Rewritten {
    output::rewrite(module, source)
}
