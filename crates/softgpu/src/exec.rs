//! Kernels: decoded once from PTX, run a warp at a time.
//!
//! [`decode`] makes an [`Image`] of modules; a [`Cluster`] runs blocks of a launch, a slice of instructions at a
//! time. Registers hold a value for each of a warp's 32 lanes, so an instruction is a loop that the compiler makes
//! vector instructions of. Nothing here knows of contexts, streams or the driver's functions.
//!
//! * `op`, `program`: instructions and functions as they are run. `decode` makes them.
//! * `warp`, `control`, `block`, `cluster`, `spin`: who runs when. `collective`: what the lanes of a warp do together.
//! * `lanes`, `compute`, `integer`, `float`, `half`, `approx`, `soft`, `compare`, `convert`, `fp8`, `video`,
//!   `uncommon`, `special`: what registers hold.
//! * `access`, `atomic`: memory. `system`: functions that the system brings. `tensor`: matrices.
//! * `rare`, `mbarrier`, `copy`, `tensor_copy`: clusters and asynchronous copies.
//! * `check`: what programs do wrong without a fault, found where they ask for it. `line_table`: where the code came from.

mod access;
mod approx;
mod atomic;
mod block;
mod check;
mod cluster;
mod collective;
mod compare;
mod compute;
mod control;
mod convert;
mod copy;
mod decode;
mod float;
mod fp8;
mod half;
mod integer;
pub(crate) mod interface;
mod lanes;
mod line_table;
mod mbarrier;
mod nearby;
mod op;
mod program;
mod rare;
mod soft;
mod special;
mod spin;
mod system;
mod tensor;
mod tensor_copy;
pub(crate) mod tensor_map;
#[cfg(test)]
mod tests;
mod uncommon;
mod video;
mod warp;

pub(crate) use check::{Finding, FindingKind};
pub(crate) use cluster::Cluster;
pub(crate) use decode::{DecodeError, decode, decode_checked, with_register_limit};
pub(crate) use program::{Image, Kernel};

/// Whether kernels can call that without any module that defines it.
pub(crate) fn is_of_the_system(function: &str) -> bool {
    op::SystemFunction::find(function).is_some()
}
