//! Many copies in one call.

use super::copy::{Side, asynchronous_from, box_copy, linear};
use super::{array_of, require};
use crate::boundary::{Outcome, give_if_asked};
use crate::exports::LEGACY;
use crate::memory;
use crate::operation::Copy;
use core::ffi::{c_uint, c_ulonglong};
use detshare_cuda::types::{
    CUDA_MEMCPY3D, CUDA_MEMCPY3D_BATCH_OP, CUarray, CUdeviceptr, CUdeviceptr_v2, CUmemcpy3DOperand,
    CUmemcpy3DOperandType as Operand, CUmemcpyAttributes, CUmemcpySrcAccessOrder as Order, CUmemorytype, CUresult,
    CUstream,
};

/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`.
const ALL_FLAGS: c_uint = 1;
/// What `failed` says where no single copy is at fault.
const NO_COPY: usize = usize::MAX;

/// How copies are to be made is looked at before any is made.
fn is_known(order: Order, flags: c_uint) -> bool {
    let known = [
        Order::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
        Order::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL,
        Order::CU_MEMCPY_SRC_ACCESS_ORDER_ANY,
    ];
    known.contains(&order) && flags & !ALL_FLAGS == 0
}

/// Whether what the copy reads may change when the call returns.
fn is_read_at_once(order: Order, from: u64) -> bool {
    let of_host = memory::find(from).is_none_or(|range| range.is_host());
    let pageable = memory::find(from).is_none();
    pageable || order == Order::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL && of_host
}

/// Makes them up to the first that is wrong, whose number is returned with the code.
unsafe fn perform(
    copies: impl Iterator<Item = Outcome<(Copy, bool)>>,
    stream: CUstream,
) -> Result<(), (usize, CUresult)> {
    for (index, copy) in copies.enumerate() {
        let made = copy.and_then(|(copy, aside)| asynchronous_from(stream, copy, aside));
        made.map_err(|code| (index, code))?;
    }
    Ok(())
}

pub(crate) unsafe fn cuMemcpyBatchAsync(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    firsts: *mut usize,
    attribute_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> Outcome {
    give_if_asked(failed, NO_COPY);
    require(stream != LEGACY)?;
    let (to, from, sizes) = (array_of(to, count)?, array_of(from, count)?, array_of(sizes, count)?);
    require(attribute_count <= count)?;
    let (attributes, firsts) = (array_of(attributes, attribute_count)?, array_of(firsts, attribute_count)?);
    // Each attribute holds from its copy on to that of the next.
    require(firsts[0] == 0 && firsts.windows(2).all(|pair| pair[0] < pair[1]) && firsts.iter().all(|it| *it < count))?;
    require(attributes.iter().all(|it| is_known(it.srcAccessOrder, it.flags)))?;
    let copy = |index: usize| {
        let attribute = attributes[firsts.partition_point(|first| *first <= index) - 1];
        require(sizes[index] > 0)?;
        let aside = is_read_at_once(attribute.srcAccessOrder, from[index].0);
        Ok((linear(from[index].0, Side::Either, to[index].0, Side::Either, sizes[index])?, aside))
    };
    perform((0..count).map(copy), stream).map_err(|(index, code)| {
        give_if_asked(failed, index);
        code
    })
}

pub(crate) unsafe fn cuMemcpyBatchAsync_v2(
    to: *mut CUdeviceptr,
    from: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    firsts: *mut usize,
    attribute_count: usize,
    stream: CUstream,
) -> Outcome {
    cuMemcpyBatchAsync(to, from, sizes, count, attributes, firsts, attribute_count, core::ptr::null_mut(), stream)
}

/// One side of a copy, as the older functions describe it.
struct Side3D {
    kind: CUmemorytype,
    pointer: CUdeviceptr,
    array: CUarray,
    at: [usize; 3],
    pitch: usize,
    rows: usize,
    element: usize,
}

/// Lengths are in elements of the array that takes part, or in bytes.
unsafe fn side(operand: &CUmemcpy3DOperand, element: usize) -> Outcome<Side3D> {
    let nothing = CUarray(core::ptr::null_mut());
    match operand.type_ {
        Operand::CU_MEMCPY_OPERAND_TYPE_POINTER => {
            let it = operand.op.ptr;
            let pitch = it.rowLength.checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let kind = CUmemorytype::CU_MEMORYTYPE_UNIFIED;
            Ok(Side3D { kind, pointer: it.ptr, array: nothing, at: [0; 3], pitch, rows: it.layerHeight, element })
        }
        Operand::CU_MEMCPY_OPERAND_TYPE_ARRAY => {
            let it = operand.op.array;
            let x = it.offset.x.checked_mul(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
            let (kind, pointer) = (CUmemorytype::CU_MEMORYTYPE_ARRAY, CUdeviceptr_v2(0));
            let at = [x, it.offset.y, it.offset.z];
            Ok(Side3D { kind, pointer, array: it.array, at, pitch: 0, rows: 0, element })
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Bytes of an element: those of the array that takes part, else 1.
unsafe fn element(operand: &CUmemcpy3DOperand) -> Outcome<Option<usize>> {
    if operand.type_ != Operand::CU_MEMCPY_OPERAND_TYPE_ARRAY {
        return Ok(None);
    }
    let array = crate::array::find(operand.op.array.array)?;
    Ok(Some(array.pitch / array.descriptor.Width))
}

unsafe fn copy_3d(it: &CUDA_MEMCPY3D_BATCH_OP) -> Outcome<(Copy, bool)> {
    let (of_from, of_to) = (element(&it.src)?, element(&it.dst)?);
    let element = of_from.or(of_to).unwrap_or(1);
    require(of_from.is_none_or(|bytes| bytes == element) && of_to.is_none_or(|bytes| bytes == element))?;
    let (from, to) = (side(&it.src, element)?, side(&it.dst, element)?);
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut plain: CUDA_MEMCPY3D = unsafe { core::mem::zeroed() };
    (plain.srcMemoryType, plain.srcDevice, plain.srcArray) = (from.kind, from.pointer, from.array);
    [plain.srcXInBytes, plain.srcY, plain.srcZ] = from.at;
    (plain.srcPitch, plain.srcHeight) = (from.pitch, from.rows);
    (plain.dstMemoryType, plain.dstDevice, plain.dstArray) = (to.kind, to.pointer, to.array);
    [plain.dstXInBytes, plain.dstY, plain.dstZ] = to.at;
    (plain.dstPitch, plain.dstHeight) = (to.pitch, to.rows);
    let width = it.extent.width.checked_mul(from.element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    (plain.WidthInBytes, plain.Height, plain.Depth) = (width, it.extent.height, it.extent.depth);
    require(width > 0 && plain.Height > 0 && plain.Depth > 0)?;
    let copy = box_copy(&plain)?;
    let aside = is_read_at_once(it.srcAccessOrder, copy.from.address);
    Ok((copy, aside))
}

pub(crate) unsafe fn cuMemcpy3DBatchAsync(
    count: usize,
    copies: *mut CUDA_MEMCPY3D_BATCH_OP,
    failed: *mut usize,
    flags: c_ulonglong,
    stream: CUstream,
) -> Outcome {
    give_if_asked(failed, NO_COPY);
    require(flags == 0 && stream != LEGACY)?;
    let copies = array_of(copies, count)?;
    require(copies.iter().all(|it| is_known(it.srcAccessOrder, it.flags)))?;
    // Of boxes none is named.
    perform(copies.iter().map(|it| copy_3d(it)), stream).map_err(|(_, code)| code)
}

pub(crate) unsafe fn cuMemcpy3DBatchAsync_v2(
    count: usize,
    copies: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: c_ulonglong,
    stream: CUstream,
) -> Outcome {
    cuMemcpy3DBatchAsync(count, copies, core::ptr::null_mut(), flags, stream)
}
