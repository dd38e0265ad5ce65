//! Memory filled with one value.

use super::{copy, require};
use crate::boundary::Outcome;
use crate::context;
use crate::operation::{Fill, Operation};
use crate::stream;
use core::ffi::{c_uchar, c_uint, c_ushort};
use detshare_cuda::types::{CUdeviceptr, CUstream};

/// The fill that a program asks for.
pub(super) fn fill(
    address: u64,
    pitch: usize,
    value: u32,
    element: usize,
    width: usize,
    height: usize,
) -> Outcome<Operation> {
    let rows = height <= 1 || (pitch.is_multiple_of(element) && pitch >= width * element);
    require(address.is_multiple_of(element as u64) && rows)?;
    if width > 0 && height > 0 {
        copy::check(address, (height - 1) * pitch + width * element, copy::Side::Device)?;
    }
    Ok(Operation::Fill(Fill { address, pitch, value, element, width, height }))
}

unsafe fn synchronous(default: CUstream, operation: Operation) -> Outcome {
    context::healthy()?;
    crate::graph::capture::forbid_unsafe_call()?;
    stream::find(default)?.perform_and_wait(operation)
}

unsafe fn asynchronous(stream: CUstream, operation: Operation) -> Outcome {
    context::healthy()?;
    stream::find(stream)?.perform(operation)
}

pub(crate) unsafe fn cuMemsetD8_v2(default: CUstream, address: CUdeviceptr, value: c_uchar, count: usize) -> Outcome {
    synchronous(default, fill(address.0, 0, value.into(), 1, count, 1)?)
}

pub(crate) unsafe fn cuMemsetD8Async(address: CUdeviceptr, value: c_uchar, count: usize, stream: CUstream) -> Outcome {
    asynchronous(stream, fill(address.0, 0, value.into(), 1, count, 1)?)
}

pub(crate) unsafe fn cuMemsetD2D8_v2(
    default: CUstream,
    address: CUdeviceptr,
    pitch: usize,
    value: c_uchar,
    width: usize,
    height: usize,
) -> Outcome {
    synchronous(default, fill(address.0, pitch, value.into(), 1, width, height)?)
}

pub(crate) unsafe fn cuMemsetD2D8Async(
    address: CUdeviceptr,
    pitch: usize,
    value: c_uchar,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, fill(address.0, pitch, value.into(), 1, width, height)?)
}

pub(crate) unsafe fn cuMemsetD16_v2(default: CUstream, address: CUdeviceptr, value: c_ushort, count: usize) -> Outcome {
    synchronous(default, fill(address.0, 0, value.into(), 2, count, 1)?)
}

pub(crate) unsafe fn cuMemsetD16Async(
    address: CUdeviceptr,
    value: c_ushort,
    count: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, fill(address.0, 0, value.into(), 2, count, 1)?)
}

pub(crate) unsafe fn cuMemsetD2D16_v2(
    default: CUstream,
    address: CUdeviceptr,
    pitch: usize,
    value: c_ushort,
    width: usize,
    height: usize,
) -> Outcome {
    synchronous(default, fill(address.0, pitch, value.into(), 2, width, height)?)
}

pub(crate) unsafe fn cuMemsetD2D16Async(
    address: CUdeviceptr,
    pitch: usize,
    value: c_ushort,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, fill(address.0, pitch, value.into(), 2, width, height)?)
}

pub(crate) unsafe fn cuMemsetD32_v2(default: CUstream, address: CUdeviceptr, value: c_uint, count: usize) -> Outcome {
    synchronous(default, fill(address.0, 0, value, 4, count, 1)?)
}

pub(crate) unsafe fn cuMemsetD32Async(address: CUdeviceptr, value: c_uint, count: usize, stream: CUstream) -> Outcome {
    asynchronous(stream, fill(address.0, 0, value, 4, count, 1)?)
}

pub(crate) unsafe fn cuMemsetD2D32_v2(
    default: CUstream,
    address: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
) -> Outcome {
    synchronous(default, fill(address.0, pitch, value, 4, width, height)?)
}

pub(crate) unsafe fn cuMemsetD2D32Async(
    address: CUdeviceptr,
    pitch: usize,
    value: c_uint,
    width: usize,
    height: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, fill(address.0, pitch, value, 4, width, height)?)
}
