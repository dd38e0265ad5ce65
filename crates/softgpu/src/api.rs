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

mod array;
mod capture;
mod cluster;
mod context;
mod copy;
mod copy_array;
mod copy_batch;
mod core_dump;
mod device;
mod event;
mod external_semaphore;
mod function;
mod graph;
mod graph_any;
mod graph_attributes;
mod graph_conditional;
mod graph_edges;
mod graph_executable;
mod graph_memory;
mod graph_nodes;
mod graph_objects;
mod graph_waits;
mod green_context;
mod init;
mod ipc;
mod jit;
mod launch;
mod launch_parts;
mod library;
mod link;
mod location;
mod logs;
mod managed;
mod memory;
mod memset;
mod module;
mod occupancy;
mod peer;
mod pointer;
mod pool;
mod pool_sharing;
mod profiler;
mod stream;
mod stream_memory;
mod tensor_map;
mod virtual_memory;

pub(crate) use self::{
    array::*, capture::*, cluster::*, context::*, copy::*, copy_array::*, copy_batch::*, core_dump::*, device::*,
    event::*, external_semaphore::*, function::*, graph::*, graph_any::*, graph_attributes::*, graph_conditional::*,
    graph_edges::*, graph_executable::*, graph_memory::*, graph_nodes::*, graph_objects::*, graph_waits::*,
    green_context::*, init::*, ipc::*, launch::*, launch_parts::*, library::*, link::*, logs::*, managed::*, memory::*,
    memset::*, module::*, occupancy::*, peer::*, pointer::*, pool::*, pool_sharing::*, profiler::*, stream::*,
    stream_memory::*, tensor_map::*, virtual_memory::*,
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

/// What the program lists, at least one.
unsafe fn array_of<'a, T>(first: *const T, count: usize) -> Outcome<&'a [T]> {
    require(!first.is_null() && count > 0)?;
    Ok(core::slice::from_raw_parts(first, count))
}
