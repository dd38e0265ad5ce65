//! Copies.

use super::require;
use crate::array;
use crate::boundary::Outcome;
use crate::context;
use crate::memory;
use crate::operation::{Copy, Operation, Place};
use crate::stream;
use core::ffi::c_void;
use detshare_cuda::types::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUcontext, CUdeviceptr, CUmemorytype, CUresult, CUstream,
};

/// Which side of a copy the driver must know.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Side {
    Device,
    /// The program's memory, pinned or not.
    Host,
    /// Whatever the address says.
    Either,
}

/// Whether the driver knows the address as the side that it should be.
pub(super) fn check(address: u64, bytes: usize, side: Side) -> Outcome {
    let covers = || memory::covers(address, bytes as u64);
    require(match side {
        Side::Host => address != 0,
        Side::Device => covers(),
        Side::Either => address != 0 && (memory::find(address).is_none() || covers()),
    })
}

fn is_pageable(address: u64) -> bool {
    memory::find(address).is_none()
}

/// A copy that the program waits for.
pub(super) unsafe fn synchronous(default: CUstream, copy: Copy) -> Outcome {
    context::healthy()?;
    crate::graph::capture::forbid_unsafe_call()?;
    stream::find(default)?.perform_and_wait(Operation::Copy(copy))
}

/// More of the program's memory than this is not copied aside: the program waits instead, as with a GPU.
const MOST_ASIDE: usize = 16 << 20;

/// A copy in a stream. The program may change pageable memory that is read as soon as the call returns, and
/// expects pageable memory that is written to be written then.
pub(super) unsafe fn asynchronous(stream: CUstream, copy: Copy) -> Outcome {
    let aside = is_pageable(copy.from.address);
    asynchronous_from(stream, copy, aside)
}

/// As above; with `aside` the program may change what is read when the call returns.
pub(super) unsafe fn asynchronous_from(stream: CUstream, mut copy: Copy, aside: bool) -> Outcome {
    context::healthy()?;
    let stream = stream::find(stream)?;
    let captured = stream.capturing().is_some();
    let bytes = copy.width * copy.height * copy.depth;
    if !captured && (is_pageable(copy.to.address) || aside && bytes > MOST_ASIDE) {
        return stream.perform_and_wait(Operation::Copy(copy));
    }
    if !captured && aside {
        copy.take_aside();
    }
    stream.perform(Operation::Copy(copy))
}

pub(super) fn linear(from: u64, from_side: Side, to: u64, to_side: Side, bytes: usize) -> Outcome<Copy> {
    if bytes > 0 {
        check(from, bytes, from_side)?;
        check(to, bytes, to_side)?;
    }
    Ok(Copy::linear(from, to, bytes))
}

pub(super) fn host(pointer: *const c_void) -> u64 {
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
    (volume.srcArray, volume.dstArray) = (it.srcArray, it.dstArray);
    (volume.WidthInBytes, volume.Height, volume.Depth) = (it.WidthInBytes, it.Height, 1);
    box_copy(&volume)
}

/// One side of a copy in three dimensions, as the program describes it.
struct Described {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    /// Where in it the copy begins.
    at: [usize; 3],
    pitch: usize,
    rows: usize,
    level: usize,
}

impl Described {
    /// Where the bytes lie, which must all be there.
    fn place(&self, extent: [usize; 3]) -> Outcome<Place> {
        let [x, y, z] = self.at;
        let [width, height, depth] = extent;
        let nothing = extent.contains(&0);
        let overflow = CUresult::CUDA_ERROR_INVALID_VALUE;
        let (base, side) = match self.kind {
            CUmemorytype::CU_MEMORYTYPE_HOST => (self.host, Side::Host),
            CUmemorytype::CU_MEMORYTYPE_DEVICE => (self.device, Side::Device),
            CUmemorytype::CU_MEMORYTYPE_UNIFIED => (self.device, Side::Either),
            CUmemorytype::CU_MEMORYTYPE_ARRAY => return self.place_in_array(extent),
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        let end = x.checked_add(width).ok_or(overflow)?;
        let pitch = if self.pitch == 0 { end } else { self.pitch };
        let rows = if self.rows == 0 { y.checked_add(height).ok_or(overflow)? } else { self.rows };
        require(pitch >= end || height <= 1 && depth <= 1)?;
        require(rows >= y.saturating_add(height) || depth <= 1)?;
        let slice = pitch.checked_mul(rows).ok_or(overflow)?;
        let offset =
            |z: usize, y: usize, x: usize| z.checked_mul(slice)?.checked_add(y.checked_mul(pitch)?)?.checked_add(x);
        let first = offset(z, y, x).ok_or(overflow)?;
        let address = base.checked_add(first as u64).ok_or(overflow)?;
        if !nothing {
            let bytes = offset(depth - 1, height - 1, width).ok_or(overflow)?;
            check(address, bytes, side)?;
        }
        Ok(Place { address, pitch, slice })
    }

    fn place_in_array(&self, [width, height, depth]: [usize; 3]) -> Outcome<Place> {
        let array = array::find(self.array)?;
        let [x, y, z] = self.at;
        let fits = |from: usize, count: usize, most: usize| from.checked_add(count).is_some_and(|end| end <= most);
        require(self.level == 0 && fits(x, width, array.pitch))?;
        require(fits(y, height, array.height) && fits(z, depth, array.depth))?;
        let first = z * array.slice() + y * array.pitch + x;
        Ok(Place { address: array.address + first as u64, pitch: array.pitch, slice: array.slice() })
    }
}

/// The copy that a program describes in three dimensions.
pub(super) fn box_copy(it: &CUDA_MEMCPY3D) -> Outcome<Copy> {
    let from = Described {
        kind: it.srcMemoryType,
        host: host(it.srcHost),
        device: it.srcDevice.0,
        array: it.srcArray,
        at: [it.srcXInBytes, it.srcY, it.srcZ],
        pitch: it.srcPitch,
        rows: it.srcHeight,
        level: it.srcLOD,
    };
    let to = Described {
        kind: it.dstMemoryType,
        host: host(it.dstHost),
        device: it.dstDevice.0,
        array: it.dstArray,
        at: [it.dstXInBytes, it.dstY, it.dstZ],
        pitch: it.dstPitch,
        rows: it.dstHeight,
        level: it.dstLOD,
    };
    let extent = [it.WidthInBytes, it.Height, it.Depth];
    let (from, to) = (from.place(extent)?, to.place(extent)?);
    let [width, height, depth] = extent;
    Ok(Copy { from, to, width, height, depth, snapshot: None })
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
