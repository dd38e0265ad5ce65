//! Copies.

use super::require;
use crate::boundary::Outcome;
use crate::context;
use crate::memory;
use crate::operation::{Copy, Operation, Place};
use crate::stream;
use core::ffi::c_void;
use detshare_cuda::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUcontext, CUdeviceptr, CUmemcpyAttributes, CUmemorytype, CUresult, CUstream,
};
use std::sync::Arc;

/// Which side of a copy the driver must know.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Device,
    /// The program's memory, pinned or not.
    Host,
    /// Whatever the address says.
    Either,
}

/// Whether the bytes from that address on belong to one allocation.
fn is_device(address: u64, bytes: u64) -> bool {
    memory::device_range(address).is_some_and(|(start, size)| address - start + bytes <= size)
}

/// Whether the driver knows the address as the side that it should be.
pub(super) fn check(address: u64, bytes: usize, side: Side) -> Outcome {
    let bytes = bytes as u64;
    require(match side {
        Side::Host => address != 0,
        Side::Device => is_device(address, bytes) || memory::host_range(address).is_some(),
        Side::Either => address != 0 && (memory::device_range(address).is_none() || is_device(address, bytes)),
    })
}

fn is_pageable(address: u64) -> bool {
    memory::device_range(address).is_none() && memory::host_range(address).is_none()
}

/// A copy that the program waits for.
unsafe fn synchronous(default: CUstream, copy: Copy) -> Outcome {
    context::healthy()?;
    crate::graph::capture::forbid_unsafe_call()?;
    stream::find(default)?.perform_and_wait(Operation::Copy(copy))
}

/// A copy in a stream. The program may change pageable memory that is read as soon as the call returns, and
/// expects pageable memory that is written to be written then.
unsafe fn asynchronous(stream: CUstream, mut copy: Copy) -> Outcome {
    context::healthy()?;
    let stream = stream::find(stream)?;
    let captured = stream.capturing().is_some();
    if !captured && is_pageable(copy.to.address) {
        return stream.perform_and_wait(Operation::Copy(copy));
    }
    if !captured && is_pageable(copy.from.address) && copy.depth == 1 {
        let mut bytes = Vec::with_capacity(copy.width * copy.height);
        for row in 0..copy.height {
            let address = usize::try_from(copy.from.address).unwrap_or(0) + row * copy.from.pitch;
            bytes.extend_from_slice(core::slice::from_raw_parts(
                core::ptr::with_exposed_provenance::<u8>(address),
                copy.width,
            ));
        }
        copy.snapshot = Some(Arc::from(bytes));
    }
    stream.perform(Operation::Copy(copy))
}

fn linear(from: u64, from_side: Side, to: u64, to_side: Side, bytes: usize) -> Outcome<Copy> {
    if bytes > 0 {
        check(from, bytes, from_side)?;
        check(to, bytes, to_side)?;
    }
    Ok(Copy::linear(from, to, bytes))
}

fn host(pointer: *const c_void) -> u64 {
    pointer.expose_provenance() as u64
}

pub(crate) unsafe fn cuMemcpy(default: CUstream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Outcome {
    synchronous(default, linear(from.0, Side::Either, to.0, Side::Either, bytes)?)
}

pub(crate) unsafe fn cuMemcpyAsync(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Outcome {
    asynchronous(stream, linear(from.0, Side::Either, to.0, Side::Either, bytes)?)
}

pub(crate) unsafe fn cuMemcpyHtoD_v2(default: CUstream, to: CUdeviceptr, from: *const c_void, bytes: usize) -> Outcome {
    synchronous(default, linear(host(from), Side::Host, to.0, Side::Device, bytes)?)
}

pub(crate) unsafe fn cuMemcpyHtoDAsync_v2(
    to: CUdeviceptr,
    from: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, linear(host(from), Side::Host, to.0, Side::Device, bytes)?)
}

pub(crate) unsafe fn cuMemcpyDtoH_v2(default: CUstream, to: *mut c_void, from: CUdeviceptr, bytes: usize) -> Outcome {
    synchronous(default, linear(from.0, Side::Device, host(to), Side::Host, bytes)?)
}

pub(crate) unsafe fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, linear(from.0, Side::Device, host(to), Side::Host, bytes)?)
}

pub(crate) unsafe fn cuMemcpyDtoD_v2(default: CUstream, to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> Outcome {
    synchronous(default, linear(from.0, Side::Device, to.0, Side::Device, bytes)?)
}

pub(crate) unsafe fn cuMemcpyDtoDAsync_v2(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    asynchronous(stream, linear(from.0, Side::Device, to.0, Side::Device, bytes)?)
}

pub(crate) unsafe fn cuMemcpyPeer(
    default: CUstream,
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
) -> Outcome {
    context::find(to_context.0.addr())?;
    context::find(from_context.0.addr())?;
    cuMemcpyDtoD_v2(default, to, from, bytes)
}

pub(crate) unsafe fn cuMemcpyPeerAsync(
    to: CUdeviceptr,
    to_context: CUcontext,
    from: CUdeviceptr,
    from_context: CUcontext,
    bytes: usize,
    stream: CUstream,
) -> Outcome {
    context::find(to_context.0.addr())?;
    context::find(from_context.0.addr())?;
    cuMemcpyDtoDAsync_v2(to, from, bytes, stream)
}

unsafe fn rectangle(copy: *const CUDA_MEMCPY2D) -> Outcome<Copy> {
    require(!copy.is_null())?;
    let it = *copy;
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut volume: CUDA_MEMCPY3D = unsafe { core::mem::zeroed() };
    (volume.srcXInBytes, volume.srcY, volume.srcMemoryType) = (it.srcXInBytes, it.srcY, it.srcMemoryType);
    (volume.srcHost, volume.srcDevice, volume.srcPitch) = (it.srcHost, it.srcDevice, it.srcPitch);
    (volume.dstXInBytes, volume.dstY, volume.dstMemoryType) = (it.dstXInBytes, it.dstY, it.dstMemoryType);
    (volume.dstHost, volume.dstDevice, volume.dstPitch) = (it.dstHost, it.dstDevice, it.dstPitch);
    (volume.WidthInBytes, volume.Height, volume.Depth) = (it.WidthInBytes, it.Height, 1);
    box_copy(&volume)
}

/// The copy that a program describes in three dimensions.
pub(super) fn box_copy(it: &CUDA_MEMCPY3D) -> Outcome<Copy> {
    let place =
        |kind, host_pointer: u64, device: CUdeviceptr, x: usize, y: usize, z: usize, pitch: usize, rows: usize| {
            let base = match kind {
                CUmemorytype::CU_MEMORYTYPE_HOST => host_pointer,
                CUmemorytype::CU_MEMORYTYPE_DEVICE | CUmemorytype::CU_MEMORYTYPE_UNIFIED => device.0,
                CUmemorytype::CU_MEMORYTYPE_ARRAY => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
                _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
            };
            let pitch = if pitch == 0 { it.WidthInBytes + x } else { pitch };
            require(pitch >= it.WidthInBytes || it.Height <= 1)?;
            let slice = pitch * if rows == 0 { it.Height } else { rows };
            Ok(Place { address: base + (z * slice + y * pitch + x) as u64, pitch, slice })
        };
    let from = place(
        it.srcMemoryType,
        host(it.srcHost),
        it.srcDevice,
        it.srcXInBytes,
        it.srcY,
        it.srcZ,
        it.srcPitch,
        it.srcHeight,
    )?;
    let to = place(
        it.dstMemoryType,
        host(it.dstHost),
        it.dstDevice,
        it.dstXInBytes,
        it.dstY,
        it.dstZ,
        it.dstPitch,
        it.dstHeight,
    )?;
    if it.WidthInBytes > 0 && it.Height > 0 && it.Depth > 0 {
        let side = |kind| match kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => Side::Host,
            CUmemorytype::CU_MEMORYTYPE_DEVICE => Side::Device,
            _ => Side::Either,
        };
        let extent = |place: &Place| (it.Depth - 1) * place.slice + (it.Height - 1) * place.pitch + it.WidthInBytes;
        check(from.address, extent(&from), side(it.srcMemoryType))?;
        check(to.address, extent(&to), side(it.dstMemoryType))?;
    }
    Ok(Copy { from, to, width: it.WidthInBytes, height: it.Height, depth: it.Depth, snapshot: None })
}

pub(crate) unsafe fn cuMemcpy2D_v2(default: CUstream, copy: *const CUDA_MEMCPY2D) -> Outcome {
    synchronous(default, rectangle(copy)?)
}

pub(crate) unsafe fn cuMemcpy2DUnaligned_v2(default: CUstream, copy: *const CUDA_MEMCPY2D) -> Outcome {
    synchronous(default, rectangle(copy)?)
}

pub(crate) unsafe fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Outcome {
    asynchronous(stream, rectangle(copy)?)
}

pub(crate) unsafe fn cuMemcpy3D_v2(default: CUstream, copy: *const CUDA_MEMCPY3D) -> Outcome {
    require(!copy.is_null())?;
    synchronous(default, box_copy(&*copy)?)
}

pub(crate) unsafe fn cuMemcpy3DAsync_v2(copy: *const CUDA_MEMCPY3D, stream: CUstream) -> Outcome {
    require(!copy.is_null())?;
    asynchronous(stream, box_copy(&*copy)?)
}

pub(crate) unsafe fn cuMemcpyBatchAsync(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    attribute_indices: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> Outcome {
    crate::boundary::give_if_asked(failed, usize::MAX);
    cuMemcpyBatchAsync_v2(to, from, sizes, count, attributes, attribute_indices, attribute_count, stream)
}

pub(crate) unsafe fn cuMemcpyBatchAsync_v2(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    _attributes: *mut CUmemcpyAttributes,
    _attribute_indices: *mut usize,
    _attribute_count: usize,
    stream: CUstream,
) -> Outcome {
    require(count > 0 && !to.is_null() && !from.is_null() && !sizes.is_null())?;
    for index in 0..count {
        cuMemcpyAsync(*to.add(index), *from.add(index), *sizes.add(index), stream)?;
    }
    Ok(())
}
