//! Arrays: memory by elements.

use super::copy::{How, copy_box};
use super::forward;
use crate::boundary::{Outcome, require};
use crate::context;
use crate::convert::{Side, address, memory_types};
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D, CUarray, CUarray_format as Format, CUdevice_v1, CUmemorytype,
};

forward! {
    fn cudaGetMipmappedArrayLevel(level: *mut cudaArray_t, mipmap: cudaMipmappedArray_const_t, index: c_uint)
        => cuMipmappedArrayGetLevel(level, mipmap, index);
    fn cudaArrayGetPlane(plane: *mut cudaArray_t, array: cudaArray_t, index: c_uint)
        => cuArrayGetPlane(plane, array, index);
    fn cudaArrayGetSparseProperties(properties: *mut cudaArraySparseProperties, array: cudaArray_t)
        => cuArrayGetSparseProperties(properties.cast(), array);
    fn cudaMipmappedArrayGetSparseProperties(properties: *mut cudaArraySparseProperties, mipmap: cudaMipmappedArray_t)
        => cuMipmappedArrayGetSparseProperties(properties.cast(), mipmap);
    fn cudaArrayGetMemoryRequirements(memory: *mut cudaArrayMemoryRequirements, array: cudaArray_t, device: c_int)
        => cuArrayGetMemoryRequirements(memory.cast(), array, CUdevice_v1(device));
    fn cudaMipmappedArrayGetMemoryRequirements(
        memory: *mut cudaArrayMemoryRequirements,
        mipmap: cudaMipmappedArray_t,
        device: c_int,
    ) => cuMipmappedArrayGetMemoryRequirements(memory.cast(), mipmap, CUdevice_v1(device));
}

/// Nothing, where there is no array.
pub unsafe fn cudaFreeArray(array: cudaArray_t) -> Outcome {
    context::ready()?;
    if array.0.is_null() { Ok(()) } else { driver!(cuArrayDestroy(array)) }
}

/// Likewise.
pub unsafe fn cudaFreeMipmappedArray(mipmap: cudaMipmappedArray_t) -> Outcome {
    context::ready()?;
    if mipmap.0.is_null() { Ok(()) } else { driver!(cuMipmappedArrayDestroy(mipmap)) }
}

/// The format of one channel, and how many there are.
fn format_of(desc: &cudaChannelFormatDesc) -> Outcome<(Format, c_uint)> {
    use cudaChannelFormatKind as Kind;
    let invalid = Err(cudaError_t::cudaErrorInvalidChannelDescriptor);
    let widths = [desc.x, desc.y, desc.z, desc.w];
    let channels = widths.iter().take_while(|width| **width != 0).count();
    // Channels of one width, one after the other, and three of them never.
    if ![1, 2, 4].contains(&channels) || widths[..channels].iter().any(|width| *width != desc.x) {
        return invalid;
    }
    if widths[channels..].iter().any(|width| *width != 0) {
        return invalid;
    }
    let format = match (desc.f, desc.x) {
        (Kind::cudaChannelFormatKindUnsigned, 8) => Format::CU_AD_FORMAT_UNSIGNED_INT8,
        (Kind::cudaChannelFormatKindUnsigned, 16) => Format::CU_AD_FORMAT_UNSIGNED_INT16,
        (Kind::cudaChannelFormatKindUnsigned, 32) => Format::CU_AD_FORMAT_UNSIGNED_INT32,
        (Kind::cudaChannelFormatKindSigned, 8) => Format::CU_AD_FORMAT_SIGNED_INT8,
        (Kind::cudaChannelFormatKindSigned, 16) => Format::CU_AD_FORMAT_SIGNED_INT16,
        (Kind::cudaChannelFormatKindSigned, 32) => Format::CU_AD_FORMAT_SIGNED_INT32,
        (Kind::cudaChannelFormatKindFloat, 16) => Format::CU_AD_FORMAT_HALF,
        (Kind::cudaChannelFormatKindFloat, 32) => Format::CU_AD_FORMAT_FLOAT,
        _ => return invalid,
    };
    Ok((format, c_uint::try_from(channels).unwrap_or(0)))
}

/// The other way: kind and bits of one channel.
fn channel_of(format: Format) -> Outcome<(cudaChannelFormatKind, c_int)> {
    use cudaChannelFormatKind as Kind;
    Ok(match format {
        Format::CU_AD_FORMAT_UNSIGNED_INT8 => (Kind::cudaChannelFormatKindUnsigned, 8),
        Format::CU_AD_FORMAT_UNSIGNED_INT16 => (Kind::cudaChannelFormatKindUnsigned, 16),
        Format::CU_AD_FORMAT_UNSIGNED_INT32 => (Kind::cudaChannelFormatKindUnsigned, 32),
        Format::CU_AD_FORMAT_SIGNED_INT8 => (Kind::cudaChannelFormatKindSigned, 8),
        Format::CU_AD_FORMAT_SIGNED_INT16 => (Kind::cudaChannelFormatKindSigned, 16),
        Format::CU_AD_FORMAT_SIGNED_INT32 => (Kind::cudaChannelFormatKindSigned, 32),
        Format::CU_AD_FORMAT_HALF => (Kind::cudaChannelFormatKindFloat, 16),
        Format::CU_AD_FORMAT_FLOAT => (Kind::cudaChannelFormatKindFloat, 32),
        _ => return Err(cudaError_t::cudaErrorInvalidChannelDescriptor),
    })
}

fn descriptor(array: CUarray) -> Outcome<CUDA_ARRAY3D_DESCRIPTOR> {
    let mut found = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 0,
        Height: 0,
        Depth: 0,
        Format: Format::CU_AD_FORMAT_FLOAT,
        NumChannels: 0,
        Flags: 0,
    };
    // SAFETY: a place for the description; the driver looks the handle up.
    unsafe { driver!(cuArray3DGetDescriptor_v2(&raw mut found, array)) }?;
    Ok(found)
}

/// Bytes of one element.
pub(crate) fn element_size(array: CUarray) -> Outcome<usize> {
    let found = descriptor(array)?;
    let (_, bits) = channel_of(found.Format)?;
    Ok(usize::try_from(bits / 8).unwrap_or(0) * usize::try_from(found.NumChannels).unwrap_or(0))
}

fn shape(desc: &cudaChannelFormatDesc, extent: cudaExtent, flags: c_uint) -> Outcome<CUDA_ARRAY3D_DESCRIPTOR> {
    let (format, channels) = format_of(desc)?;
    Ok(CUDA_ARRAY3D_DESCRIPTOR {
        Width: extent.width,
        Height: extent.height,
        Depth: extent.depth,
        Format: format,
        NumChannels: channels,
        Flags: flags,
    })
}

pub unsafe fn cudaMalloc3DArray(
    array: *mut cudaArray_t,
    desc: *const cudaChannelFormatDesc,
    extent: cudaExtent,
    flags: c_uint,
) -> Outcome {
    require(!array.is_null() && !desc.is_null())?;
    context::ready()?;
    let wanted = shape(&*desc, extent, flags)?;
    driver!(cuArray3DCreate_v2(array, &raw const wanted))
}

pub unsafe fn cudaMallocMipmappedArray(
    mipmap: *mut cudaMipmappedArray_t,
    desc: *const cudaChannelFormatDesc,
    extent: cudaExtent,
    levels: c_uint,
    flags: c_uint,
) -> Outcome {
    require(!mipmap.is_null() && !desc.is_null())?;
    context::ready()?;
    let wanted = shape(&*desc, extent, flags)?;
    driver!(cuMipmappedArrayCreate(mipmap, &raw const wanted, levels))
}

pub unsafe fn cudaMallocArray(
    array: *mut cudaArray_t,
    desc: *const cudaChannelFormatDesc,
    width: usize,
    height: usize,
    flags: c_uint,
) -> Outcome {
    cudaMalloc3DArray(array, desc, cudaExtent { width, height, depth: 0 }, flags)
}

pub unsafe fn cudaArrayGetInfo(
    desc: *mut cudaChannelFormatDesc,
    extent: *mut cudaExtent,
    flags: *mut c_uint,
    array: cudaArray_t,
) -> Outcome {
    context::ready()?;
    let found = descriptor(array)?;
    let (f, bits) = channel_of(found.Format)?;
    let width = |channel: c_uint| if channel < found.NumChannels { bits } else { 0 };
    if !desc.is_null() {
        desc.write(cudaChannelFormatDesc { x: width(0), y: width(1), z: width(2), w: width(3), f });
    }
    if !extent.is_null() {
        extent.write(cudaExtent { width: found.Width, height: found.Height, depth: found.Depth });
    }
    if !flags.is_null() {
        flags.write(found.Flags);
    }
    Ok(())
}

pub unsafe fn cudaGetChannelDesc(desc: *mut cudaChannelFormatDesc, array: cudaArray_const_t) -> Outcome {
    cudaArrayGetInfo(desc, null_mut(), null_mut(), array)
}

/// A place in an array: bytes from the left and rows from the top.
fn in_array(array: CUarray, left: usize, top: usize) -> (Side, usize, usize) {
    let pointer = cudaPitchedPtr { ptr: null_mut(), pitch: 0, xsize: 0, ysize: 0 };
    (Side { array, pointer, position: cudaPos { x: 0, y: 0, z: 0 } }, left, top)
}

/// A place in plain memory.
fn in_memory(pointer: *const c_void, pitch: usize) -> (Side, usize, usize) {
    let pointer = cudaPitchedPtr { ptr: pointer.cast_mut(), pitch, xsize: pitch, ysize: 0 };
    (Side { array: CUarray(null_mut()), pointer, position: cudaPos { x: 0, y: 0, z: 0 } }, 0, 0)
}

/// The functions with rectangles count bytes everywhere, in arrays too.
fn rectangle(
    (to, to_left, to_top): (Side, usize, usize),
    (from, from_left, from_top): (Side, usize, usize),
    (width, height): (usize, usize),
    kind: cudaMemcpyKind,
) -> Outcome<CUDA_MEMCPY3D> {
    let (from_type, to_type) = memory_types(kind)?;
    let or_array = |side: &Side, memory| {
        if side.array.0.is_null() { memory } else { CUmemorytype::CU_MEMORYTYPE_ARRAY }
    };
    Ok(CUDA_MEMCPY3D {
        srcXInBytes: from_left,
        srcY: from_top,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: or_array(&from, from_type),
        srcHost: from.pointer.ptr,
        srcDevice: address(from.pointer.ptr),
        srcArray: from.array,
        reserved0: null_mut(),
        srcPitch: from.pointer.pitch,
        srcHeight: 0,
        dstXInBytes: to_left,
        dstY: to_top,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: or_array(&to, to_type),
        dstHost: to.pointer.ptr,
        dstDevice: address(to.pointer.ptr),
        dstArray: to.array,
        reserved1: null_mut(),
        dstPitch: to.pointer.pitch,
        dstHeight: 0,
        WidthInBytes: width,
        Height: height,
        Depth: 1,
    })
}

pub unsafe fn cudaMemcpy2DToArray(
    default: cudaStream_t,
    to: cudaArray_t,
    left: usize,
    top: usize,
    from: *const c_void,
    pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    copy_box(&rectangle(in_array(to, left, top), in_memory(from, pitch), (width, height), kind)?, How::Now(default))
}

pub unsafe fn cudaMemcpy2DToArrayAsync(
    to: cudaArray_t,
    left: usize,
    top: usize,
    from: *const c_void,
    pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    let copy = rectangle(in_array(to, left, top), in_memory(from, pitch), (width, height), kind)?;
    copy_box(&copy, How::InStream(stream))
}

pub unsafe fn cudaMemcpy2DFromArray(
    default: cudaStream_t,
    to: *mut c_void,
    pitch: usize,
    from: cudaArray_const_t,
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    copy_box(&rectangle(in_memory(to, pitch), in_array(from, left, top), (width, height), kind)?, How::Now(default))
}

pub unsafe fn cudaMemcpy2DFromArrayAsync(
    to: *mut c_void,
    pitch: usize,
    from: cudaArray_const_t,
    left: usize,
    top: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    let copy = rectangle(in_memory(to, pitch), in_array(from, left, top), (width, height), kind)?;
    copy_box(&copy, How::InStream(stream))
}

pub unsafe fn cudaMemcpy2DArrayToArray(
    default: cudaStream_t,
    to: cudaArray_t,
    to_left: usize,
    to_top: usize,
    from: cudaArray_const_t,
    from_left: usize,
    from_top: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    let (to, from) = (in_array(to, to_left, to_top), in_array(from, from_left, from_top));
    copy_box(&rectangle(to, from, (width, height), kind)?, How::Now(default))
}

/// A rectangle of an array, and how many bytes come before it.
struct Run {
    left: usize,
    top: usize,
    width: usize,
    rows: usize,
    before: usize,
}

/// Rows of an array as one run of bytes, from a place on: a part of a row, whole rows, a part of a row.
fn runs(array: CUarray, left: usize, top: usize, count: usize) -> Outcome<Vec<Run>> {
    let row = descriptor(array)?.Width.saturating_mul(element_size(array)?);
    require(row > 0 && left < row)?;
    let mut runs = Vec::new();
    let (mut x, mut y, mut done) = (left, top, 0);
    while done < count {
        let whole = (count - done) / row;
        let (width, rows) = if x == 0 && whole > 0 { (row, whole) } else { ((row - x).min(count - done), 1) };
        runs.push(Run { left: x, top: y, width, rows, before: done });
        done += width * rows;
        (x, y) = (0, y + rows);
    }
    Ok(runs)
}

unsafe fn to_array(
    to: cudaArray_t,
    left: usize,
    top: usize,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
    how: How,
) -> Outcome {
    context::ready()?;
    for Run { left, top, width, rows, before } in runs(to, left, top, count)? {
        let from = in_memory(from.wrapping_byte_add(before), width);
        copy_box(&rectangle(in_array(to, left, top), from, (width, rows), kind)?, how)?;
    }
    Ok(())
}

unsafe fn from_array(
    to: *mut c_void,
    from: cudaArray_const_t,
    left: usize,
    top: usize,
    count: usize,
    kind: cudaMemcpyKind,
    how: How,
) -> Outcome {
    context::ready()?;
    for Run { left, top, width, rows, before } in runs(from, left, top, count)? {
        let to = in_memory(to.wrapping_byte_add(before), width);
        copy_box(&rectangle(to, in_array(from, left, top), (width, rows), kind)?, how)?;
    }
    Ok(())
}

pub unsafe fn cudaMemcpyToArray(
    default: cudaStream_t,
    to: cudaArray_t,
    left: usize,
    top: usize,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    to_array(to, left, top, from, count, kind, How::Now(default))
}

pub unsafe fn cudaMemcpyToArrayAsync(
    to: cudaArray_t,
    left: usize,
    top: usize,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    to_array(to, left, top, from, count, kind, How::InStream(stream))
}

pub unsafe fn cudaMemcpyFromArray(
    default: cudaStream_t,
    to: *mut c_void,
    from: cudaArray_const_t,
    left: usize,
    top: usize,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    from_array(to, from, left, top, count, kind, How::Now(default))
}

pub unsafe fn cudaMemcpyFromArrayAsync(
    to: *mut c_void,
    from: cudaArray_const_t,
    left: usize,
    top: usize,
    count: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    from_array(to, from, left, top, count, kind, How::InStream(stream))
}

/// Through the shape that both have in common: arrays of other widths are refused.
pub unsafe fn cudaMemcpyArrayToArray(
    default: cudaStream_t,
    to: cudaArray_t,
    to_left: usize,
    to_top: usize,
    from: cudaArray_const_t,
    from_left: usize,
    from_top: usize,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    context::ready()?;
    let runs_to = runs(to, to_left, to_top, count)?;
    let runs_from = runs(from, from_left, from_top, count)?;
    require(runs_to.len() == runs_from.len())?;
    for (to_run, from_run) in runs_to.into_iter().zip(runs_from) {
        require(to_run.width == from_run.width)?;
        let (to, from) = (in_array(to, to_run.left, to_run.top), in_array(from, from_run.left, from_run.top));
        copy_box(&rectangle(to, from, (to_run.width, to_run.rows), kind)?, How::Now(default))?;
    }
    Ok(())
}
