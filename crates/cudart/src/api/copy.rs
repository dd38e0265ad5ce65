//! Copies: plain ones, rectangles, boxes, and between devices.

use crate::boundary::{Outcome, require};
use crate::context;
use crate::convert::{Side, address, copy_of_box, copy_of_parameters, memory_types};
use crate::driver::{driver, synchronous};
use crate::types::*;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUarray, CUcontext};

pub unsafe fn cudaMemcpy(
    default: cudaStream_t,
    to: *mut c_void,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    context::ready()?;
    memory_types(kind)?;
    if count == 0 {
        return Ok(());
    }
    match kind {
        cudaMemcpyKind::cudaMemcpyHostToDevice => {
            synchronous!(default, cuMemcpyHtoD_v2 | cuMemcpyHtoD_v2_ptds(address(to), from, count))
        }
        cudaMemcpyKind::cudaMemcpyDeviceToHost => {
            synchronous!(default, cuMemcpyDtoH_v2 | cuMemcpyDtoH_v2_ptds(to, address(from), count))
        }
        cudaMemcpyKind::cudaMemcpyDeviceToDevice => {
            synchronous!(default, cuMemcpyDtoD_v2 | cuMemcpyDtoD_v2_ptds(address(to), address(from), count))
        }
        _ => synchronous!(default, cuMemcpy | cuMemcpy_ptds(address(to), address(from), count)),
    }
}

pub unsafe fn cudaMemcpyAsync(
    to: *mut c_void,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    context::ready()?;
    memory_types(kind)?;
    if count == 0 {
        return Ok(());
    }
    match kind {
        cudaMemcpyKind::cudaMemcpyHostToDevice => driver!(cuMemcpyHtoDAsync_v2(address(to), from, count, stream)),
        cudaMemcpyKind::cudaMemcpyDeviceToHost => driver!(cuMemcpyDtoHAsync_v2(to, address(from), count, stream)),
        cudaMemcpyKind::cudaMemcpyDeviceToDevice => {
            driver!(cuMemcpyDtoDAsync_v2(address(to), address(from), count, stream))
        }
        _ => driver!(cuMemcpyAsync(address(to), address(from), count, stream)),
    }
}

/// A rectangle in plain memory on both sides.
fn rectangle(
    (to, to_pitch): (*mut c_void, usize),
    (from, from_pitch): (*const c_void, usize),
    (width, height): (usize, usize),
    kind: cudaMemcpyKind,
) -> Outcome<Option<CUDA_MEMCPY2D>> {
    let (from_type, to_type) = memory_types(kind)?;
    if width > to_pitch || width > from_pitch {
        return Err(cudaError_t::cudaErrorInvalidPitchValue);
    }
    if width == 0 || height == 0 {
        return Ok(None);
    }
    Ok(Some(CUDA_MEMCPY2D {
        srcXInBytes: 0,
        srcY: 0,
        srcMemoryType: from_type,
        srcHost: from,
        srcDevice: address(from),
        srcArray: CUarray(null_mut()),
        srcPitch: from_pitch,
        dstXInBytes: 0,
        dstY: 0,
        dstMemoryType: to_type,
        dstHost: to,
        dstDevice: address(to),
        dstArray: CUarray(null_mut()),
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: height,
    }))
}

pub unsafe fn cudaMemcpy2D(
    default: cudaStream_t,
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    context::ready()?;
    let Some(copy) = rectangle((to, to_pitch), (from, from_pitch), (width, height), kind)? else { return Ok(()) };
    synchronous!(default, cuMemcpy2DUnaligned_v2 | cuMemcpy2DUnaligned_v2_ptds(&raw const copy))
}

pub unsafe fn cudaMemcpy2DAsync(
    to: *mut c_void,
    to_pitch: usize,
    from: *const c_void,
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    context::ready()?;
    let Some(copy) = rectangle((to, to_pitch), (from, from_pitch), (width, height), kind)? else { return Ok(()) };
    driver!(cuMemcpy2DAsync_v2(&raw const copy, stream))
}

/// A copy that has something to copy.
fn not_empty(copy: &CUDA_MEMCPY3D) -> bool {
    copy.WidthInBytes != 0 && copy.Height != 0 && copy.Depth != 0
}

/// The copy of a box, now or in a stream.
pub(super) unsafe fn copy_box(copy: &CUDA_MEMCPY3D, how: How) -> Outcome {
    context::ready()?;
    if !not_empty(copy) {
        return Ok(());
    }
    match how {
        How::Now(default) => synchronous!(default, cuMemcpy3D_v2 | cuMemcpy3D_v2_ptds(copy)),
        How::InStream(stream) => driver!(cuMemcpy3DAsync_v2(copy, stream)),
    }
}

/// When a copy is made.
#[derive(Clone, Copy)]
pub(super) enum How {
    /// In the order of that default stream, and finished when the call returns.
    Now(cudaStream_t),
    InStream(cudaStream_t),
}

pub unsafe fn cudaMemcpy3D(default: cudaStream_t, parameters: *const cudaMemcpy3DParms) -> Outcome {
    require(!parameters.is_null())?;
    context::ready()?;
    copy_box(&copy_of_parameters(&*parameters)?, How::Now(default))
}

pub unsafe fn cudaMemcpy3DAsync(parameters: *const cudaMemcpy3DParms, stream: cudaStream_t) -> Outcome {
    require(!parameters.is_null())?;
    context::ready()?;
    copy_box(&copy_of_parameters(&*parameters)?, How::InStream(stream))
}

/// A copy of a box between the contexts of two devices.
unsafe fn between_devices(parameters: *const cudaMemcpy3DPeerParms) -> Outcome<CUDA_MEMCPY3D_PEER> {
    require(!parameters.is_null())?;
    context::ready()?;
    let wanted = &*parameters;
    let from = Side { array: wanted.srcArray, pointer: wanted.srcPtr, position: wanted.srcPos };
    let to = Side { array: wanted.dstArray, pointer: wanted.dstPtr, position: wanted.dstPos };
    let copy = copy_of_box(&from, &to, wanted.extent, cudaMemcpyKind::cudaMemcpyDeviceToDevice)?;
    Ok(CUDA_MEMCPY3D_PEER {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: copy.srcZ,
        srcLOD: 0,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcContext: context::primary(wanted.srcDevice)?,
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcHeight,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: copy.dstZ,
        dstLOD: 0,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstContext: context::primary(wanted.dstDevice)?,
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstHeight,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: copy.Depth,
    })
}

pub unsafe fn cudaMemcpy3DPeer(default: cudaStream_t, parameters: *const cudaMemcpy3DPeerParms) -> Outcome {
    let copy = between_devices(parameters)?;
    synchronous!(default, cuMemcpy3DPeer | cuMemcpy3DPeer_ptds(&raw const copy))
}

pub unsafe fn cudaMemcpy3DPeerAsync(parameters: *const cudaMemcpy3DPeerParms, stream: cudaStream_t) -> Outcome {
    let copy = between_devices(parameters)?;
    driver!(cuMemcpy3DPeerAsync(&raw const copy, stream))
}

fn contexts(to: c_int, from: c_int) -> Outcome<(CUcontext, CUcontext)> {
    context::ready()?;
    Ok((context::primary(to)?, context::primary(from)?))
}

pub unsafe fn cudaMemcpyPeer(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    count: usize,
) -> Outcome {
    let (to_context, from_context) = contexts(to_device, from_device)?;
    driver!(cuMemcpyPeer(address(to), to_context, address(from), from_context, count))
}

pub unsafe fn cudaMemcpyPeerAsync(
    to: *mut c_void,
    to_device: c_int,
    from: *const c_void,
    from_device: c_int,
    count: usize,
    stream: cudaStream_t,
) -> Outcome {
    let (to_context, from_context) = contexts(to_device, from_device)?;
    // Without a variant of its own it has one meaning of NULL, whatever the program was compiled for.
    let stream = crate::boundary::explicit(stream, crate::boundary::LEGACY);
    driver!(cuMemcpyPeerAsync(address(to), to_context, address(from), from_context, count, stream))
}
