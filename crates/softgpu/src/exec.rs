//! Kernels: decoded once from PTX, run a warp at a time.
//!
//! [`decode`] makes an [`Image`] of modules; a [`Block`] runs one block of a launch, a slice of instructions at a
//! time. Registers hold a value for each of a warp's 32 lanes, so an instruction is a loop that the compiler makes
//! vector instructions of. Nothing here knows of contexts, streams or the driver's functions.
//!
//! * `op`, `program`: instructions and functions as they are run. `decode` makes them.
//! * `warp`, `control`, `block`: who runs when. `collective`: what the lanes of a warp do together.
//! * `lanes`, `compute`, `integer`, `float`, `half`, `approx`, `soft`, `compare`, `convert`, `fp8`, `video`,
//!   `uncommon`, `special`: what registers hold.
//! * `access`, `atomic`: memory. `system`: functions that the system brings.
//! * `check`: what programs do wrong without a fault, found where they ask for it. `line_table`: where the code came from.

mod access;
mod approx;
mod atomic;
mod block;
mod check;
mod collective;
mod compare;
mod compute;
mod control;
mod convert;
mod decode;
mod float;
mod fp8;
mod half;
mod integer;
pub(crate) mod interface;
mod lanes;
mod line_table;
mod nearby;
mod op;
mod program;
mod soft;
mod special;
mod system;
#[cfg(test)]
mod tests;
mod uncommon;
mod video;
mod warp;

pub(crate) use block::Block;
pub(crate) use check::{Finding, FindingKind};
pub(crate) use decode::{DecodeError, decode, decode_checked};
pub(crate) use program::{Image, Kernel};
