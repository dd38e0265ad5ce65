//! The driver's functions, under their own names and with the stream made explicit: NULL never arrives here.
//! Functions that work on the default stream without taking one get it as their first argument.
//!
//! Each function has the contract of the driver API for its arguments, which the program promises to keep:
//! pointers are NULL or good for what the manual says. Handles are looked up and need no promise.

#![allow(
    non_snake_case,
    unsafe_op_in_unsafe_fn,
    clippy::missing_safety_doc,
    clippy::multiple_unsafe_ops_per_block,
    clippy::too_many_arguments,
    clippy::unnecessary_wraps,
    clippy::similar_names,
    reason = "names and arguments are the C API's; every body runs under the one contract above"
)]

mod capture;
mod cluster;
mod context;
mod copy;
mod device;
mod event;
mod external_semaphore;
mod function;
mod graph;
mod graph_executable;
mod graph_nodes;
mod green_context;
mod init;
mod launch;
mod library;
mod link;
mod memory;
mod memset;
mod module;
mod occupancy;
mod pool;
mod stream;
mod stream_memory;
mod tensor_map;

pub(crate) use self::{
    capture::*, cluster::*, context::*, copy::*, device::*, event::*, external_semaphore::*, function::*, graph::*,
    graph_executable::*, graph_nodes::*, green_context::*, init::*, launch::*, library::*, link::*, memory::*,
    memset::*, module::*, occupancy::*, pool::*, stream::*, stream_memory::*, tensor_map::*,
};

use crate::boundary::Outcome;
use core::ffi::{CStr, c_char};
use detshare_cuda::types::CUresult;

/// A terminated text of the program.
unsafe fn text<'a>(pointer: *const c_char) -> Outcome<&'a str> {
    if pointer.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    CStr::from_ptr(pointer).to_str().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// A number that must be a valid handle's as a handle of any kind.
fn as_pointer<T>(handle: usize) -> *mut T {
    core::ptr::without_provenance_mut(handle)
}

/// Refuses what the manual does not name.
fn require(holds: bool) -> Outcome {
    if holds { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}
