//! Tensor maps: what bulk copies of tensors are told.

use super::require;
use crate::boundary::Outcome;
use crate::exec::tensor_map::{MOST_DIMENSIONS, SIZE, Swizzle, TensorMap, element_size, is_rounded};
use core::ffi::c_void;
use detshare_cuda::types::{
    CUresult, CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle, cuuint32_t, cuuint64_t,
};

/// What the address of a map is a multiple of.
const MAP_ALIGN: usize = 64;
/// What the tensor's address and strides are multiples of.
const TENSOR_ALIGN: u64 = 16;
const MOST_SIZE: u64 = 1 << 32;
const MOST_STRIDE: u64 = 1 << 40;
const MOST_EXTENT: u32 = 256;
const MOST_STEP: u32 = 8;

/// Reads as many numbers as the tensor has dimensions; the others are 1.
unsafe fn each<T: Copy + From<u8>, const N: usize>(from: *const T, count: usize) -> Outcome<[T; N]> {
    require(count == 0 || !from.is_null())?;
    let mut values = [T::from(1); N];
    for (at, value) in values.iter_mut().enumerate().take(count) {
        *value = from.add(at).read();
    }
    Ok(values)
}

pub(crate) unsafe fn cuTensorMapEncodeTiled(
    map: *mut CUtensorMap,
    element: CUtensorMapDataType,
    dimensions: cuuint32_t,
    address: *mut c_void,
    sizes: *const cuuint64_t,
    strides: *const cuuint64_t,
    extent: *const cuuint32_t,
    steps: *const cuuint32_t,
    interleave: CUtensorMapInterleave,
    swizzle: CUtensorMapSwizzle,
    promotion: CUtensorMapL2promotion,
    fill: CUtensorMapFloatOOBfill,
) -> Outcome {
    require(!map.is_null() && map.addr().is_multiple_of(MAP_ALIGN))?;
    require((1..=5).contains(&dimensions) && promotion.0 <= 3 && fill.0 <= 1)?;
    if interleave != CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE {
        require(interleave.0 <= 2)?;
        // Channels in groups: no sample or library that has PTX uses them.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let count = dimensions as usize;
    let element = u8::try_from(element.0).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // Types of later devices with less than a byte are no types of this one.
    let size = element_size(element).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let is_float = matches!(element, 6..=12);
    require(is_float || fill == CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)?;
    let swizzle = Swizzle::from_number(swizzle.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let address = address.addr() as u64;
    require(address != 0 && address.is_multiple_of(TENSOR_ALIGN))?;
    let sizes: [u64; MOST_DIMENSIONS] = each(sizes, count)?;
    require(sizes.iter().all(|size| (1..=MOST_SIZE).contains(size)))?;
    let mut strides: [u64; MOST_DIMENSIONS - 1] = each(strides, count - 1)?;
    require(strides[..count - 1].iter().all(|stride| stride.is_multiple_of(TENSOR_ALIGN) && *stride < MOST_STRIDE))?;
    strides[count - 1..].fill(0);
    let extent: [u32; MOST_DIMENSIONS] = each(extent, count)?;
    require(extent.iter().all(|extent| (1..=MOST_EXTENT).contains(extent)))?;
    let row = extent[0] * size;
    require(row.is_multiple_of(16) && swizzle.span().is_none_or(|span| row <= span))?;
    let steps: [u32; MOST_DIMENSIONS] = each(steps, count)?;
    require(steps.iter().all(|step| (1..=MOST_STEP).contains(step)))?;
    let described = TensorMap {
        address,
        element,
        rounds: is_rounded(element),
        dimensions: u8::try_from(dimensions).unwrap_or(1),
        swizzle,
        fill_nan: fill != CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        sizes,
        strides,
        extent,
        steps: steps.map(|step| u8::try_from(step).unwrap_or(1)),
    };
    map.cast::<[u8; SIZE]>().write(described.to_bytes());
    Ok(())
}

pub(crate) unsafe fn cuTensorMapReplaceAddress(map: *mut CUtensorMap, address: *mut c_void) -> Outcome {
    require(!map.is_null() && map.addr().is_multiple_of(MAP_ALIGN))?;
    let address = address.addr() as u64;
    require(address != 0 && address.is_multiple_of(TENSOR_ALIGN))?;
    let bytes = map.cast::<[u8; SIZE]>();
    let mut described = TensorMap::from_bytes(&bytes.read()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    described.address = address;
    bytes.write(described.to_bytes());
    Ok(())
}
