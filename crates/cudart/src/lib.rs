//! The CUDA runtime API on top of the driver API, and of nothing else.
//!
//! CUDA C++ programs call the runtime, which nvcc links them against. NVIDIA's own asks the driver for tables that are not
//! documented, and so works on NVIDIA's driver alone. This one uses the documented functions of the driver, and puts a program
//! on the software GPU, with or without the shim between: one that was linked against a shared runtime (`nvcc -cudart shared`)
//! finds it by name, and in one that carries NVIDIA's runtime (nvcc's default) it takes that one's place.
//!
//! * [`api`]: the runtime's functions by theme, under their own names. What is not there returns
//!   `cudaErrorNotSupported`; [`unsupported`] says why.
//! * [`function`]: all functions of two releases as data, generated from the headers (`cargo xtask generate`). The crates
//!   `v12` and `v13` make `libcudart.so.12` and `libcudart.so.13` of it: one exported name for each function and variant.
//! * [`boundary`]: where a program's call enters. Errors are remembered for `cudaGetLastError` there.
//! * `context`: which device a thread uses. The runtime works in devices' primary contexts, made at the first call that needs one.
//! * `registry`: what nvcc's generated code says before `main`: the program's fat binaries, kernels and variables. Nothing of
//!   it goes to the driver until it is used.
//! * [`direct`]: the few functions that are no calls of the driver and return something else.
//! * [`carried`]: runtimes that stand in a program become jumps to this one.
//! * `driver`: the driver's functions, found when they are first called.

pub mod api;
pub mod boundary;
pub mod carried;
mod context;
mod convert;
pub mod direct;
mod driver;
mod error;
pub mod function;
mod registry;
pub mod unsupported;

/// The types of the runtime API, under their C names.
#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unpredictable_function_pointer_comparisons,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::ptr_as_ptr,
    clippy::pedantic,
    reason = "generated; the names and their meaning are the C API's"
)]
#[rustfmt::skip]
pub mod types {
    include!("generated/types.rs");
    pub use super::types_12::cudaDeviceProp_12;
}

#[allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    clippy::undocumented_unsafe_blocks,
    clippy::multiple_unsafe_ops_per_block,
    clippy::pedantic,
    reason = "generated; the names and their meaning are the C API's"
)]
#[rustfmt::skip]
#[path = "generated/types_12.rs"]
mod types_12;
