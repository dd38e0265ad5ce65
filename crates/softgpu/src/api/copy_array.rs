//! Copies to, from and between one-dimensional arrays, and between the devices of several contexts.

use super::copy::{Side, asynchronous, box_copy, check, host, synchronous};
use super::require;
use crate::array;
use crate::boundary::Outcome;
use crate::context;
use crate::operation::Copy;
use core::ffi::c_void;
use detshare_cuda::types::{
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext, CUdeviceptr, CUmemorytype, CUstream,
};

/// The address of bytes in an array's first row.
fn in_row(array: CUarray, offset: usize, bytes: usize) -> Outcome<u64> {
    let array = array::find(array)?;
    require(offset.checked_add(bytes).is_some_and(|end| end <= array.pitch))?;
    Ok(array.address + offset as u64)
}

fn known(address: u64, bytes: usize, side: Side) -> Outcome<u64> {
    if bytes > 0 {
        check(address, bytes, side)?;
    }
    Ok(address)
}

pub(crate) unsafe fn cuMemcpyAtoA_v2(
    default: CUstream,
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    bytes: usize,
) -> Outcome {
    let (from, to) = (in_row(from, from_offset, bytes)?, in_row(to, to_offset, bytes)?);
    synchronous(default, Copy::linear(from, to, bytes))
}

pub(crate) unsafe fn cuMemcpyAtoD_v2(
    default: CUstream,
    to: CUdeviceptr,
    from: CUarray,
    offset: usize,
    bytes: usize,
) -> Outcome {
    let (from, to) = (in_row(from, offset, bytes)?, known(to.0, bytes, Side::Device)?);
    synchronous(default, Copy::linear(from, to, bytes))
}

pub(crate) unsafe fn cuMemcpyDtoA_v2(
    default: CUstream,
    to: CUarray,
    offset: usize,
    from: CUdeviceptr,
    bytes: usize,
) -> Outcome {
    let (from, to) = (known(from.0, bytes, Side::Device)?, in_row(to, offset, bytes)?);
    synchronous(default, Copy::linear(from, to, bytes))
}

fn array_to_host(to: *mut c_void, from: CUarray, offset: usize, bytes: usize) -> Outcome<Copy> {
    Ok(Copy::linear(in_row(from, offset, bytes)?, known(host(to), bytes, Side::Host)?, bytes))
}

pub(crate) unsafe fn cuMemcpyAtoH_v2(
    default: CUstream,
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
) -> Outcome {
    synchronous(default, array_to_host(to, from, offset, bytes)?)
}

pub(crate) unsafe fn cuMemcpyAtoHAsync_v2(
    to: *mut c_void,
    from: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, array_to_host(to, from, offset, bytes)?)
}

fn host_to_array(to: CUarray, offset: usize, from: *const c_void, bytes: usize) -> Outcome<Copy> {
    Ok(Copy::linear(known(host(from), bytes, Side::Host)?, in_row(to, offset, bytes)?, bytes))
}

pub(crate) unsafe fn cuMemcpyHtoA_v2(
    default: CUstream,
    to: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
) -> Outcome {
    synchronous(default, host_to_array(to, offset, from, bytes)?)
}

pub(crate) unsafe fn cuMemcpyHtoAAsync_v2(
    to: CUarray,
    offset: usize,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, host_to_array(to, offset, from, bytes)?)
}

/// A copy between contexts is one like any other here; but the contexts must be there.
unsafe fn between_contexts(copy: *const CUDA_MEMCPY3D_PEER) -> Outcome<Copy> {
    require(!copy.is_null())?;
    let it = *copy;
    let on_device = |kind| matches!(kind, CUmemorytype::CU_MEMORYTYPE_DEVICE | CUmemorytype::CU_MEMORYTYPE_ARRAY);
    let there = |kind, context: CUcontext| {
        let named = on_device(kind) || !context.0.is_null();
        if named { context::find(context.0.addr()).map(|_| ()) } else { Ok(()) }
    };
    there(it.srcMemoryType, it.srcContext)?;
    there(it.dstMemoryType, it.dstContext)?;
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut plain: CUDA_MEMCPY3D = unsafe { core::mem::zeroed() };
    (plain.srcXInBytes, plain.srcY, plain.srcZ, plain.srcLOD) = (it.srcXInBytes, it.srcY, it.srcZ, it.srcLOD);
    (plain.srcMemoryType, plain.srcHost, plain.srcDevice) = (it.srcMemoryType, it.srcHost, it.srcDevice);
    (plain.srcArray, plain.srcPitch, plain.srcHeight) = (it.srcArray, it.srcPitch, it.srcHeight);
    (plain.dstXInBytes, plain.dstY, plain.dstZ, plain.dstLOD) = (it.dstXInBytes, it.dstY, it.dstZ, it.dstLOD);
    (plain.dstMemoryType, plain.dstHost, plain.dstDevice) = (it.dstMemoryType, it.dstHost, it.dstDevice);
    (plain.dstArray, plain.dstPitch, plain.dstHeight) = (it.dstArray, it.dstPitch, it.dstHeight);
    (plain.WidthInBytes, plain.Height, plain.Depth) = (it.WidthInBytes, it.Height, it.Depth);
    box_copy(&plain)
}

pub(crate) unsafe fn cuMemcpy3DPeer(default: CUstream, copy: *const CUDA_MEMCPY3D_PEER) -> Outcome {
    synchronous(default, between_contexts(copy)?)
}

pub(crate) unsafe fn cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D_PEER, stream: CUstream) -> Outcome {
    asynchronous(stream, between_contexts(copy)?)
}
