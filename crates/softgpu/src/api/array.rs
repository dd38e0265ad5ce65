//! CUDA arrays, and arrays of them that get smaller.

use super::device::number;
use super::{as_pointer, require};
use crate::array::{self, ARRAYS, Array};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::graph::capture;
use crate::handle::{self, Table};
use core::ffi::c_uint;
use detshare_cuda::types::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES, CUDA_ARRAY3D_DESCRIPTOR,
    CUarray, CUdevice, CUmipmappedArray, CUresult,
};
use std::sync::Arc;

/// `CUDA_ARRAY3D_LAYERED`: all levels have as many layers.
const LAYERED: c_uint = 1;

/// The levels of a mipmapped array.
struct Mipmap {
    context: usize,
    levels: Vec<Arc<Array>>,
}

static MIPMAPS: Table<Mipmap> = Table::new();

pub(crate) unsafe fn cuArrayCreate_v2(created: *mut CUarray, descriptor: *const CUDA_ARRAY_DESCRIPTOR) -> Outcome {
    require(!created.is_null() && !descriptor.is_null())?;
    let it = *descriptor;
    let whole = CUDA_ARRAY3D_DESCRIPTOR {
        Width: it.Width,
        Height: it.Height,
        Depth: 0,
        Format: it.Format,
        NumChannels: it.NumChannels,
        Flags: 0,
    };
    cuArray3DCreate_v2(created, &raw const whole)
}

pub(crate) unsafe fn cuArray3DCreate_v2(created: *mut CUarray, descriptor: *const CUDA_ARRAY3D_DESCRIPTOR) -> Outcome {
    let context = context::healthy()?;
    capture::forbid_unsafe_call()?;
    require(!created.is_null() && !descriptor.is_null())?;
    let array = Array::create(*descriptor, &context, None)?;
    give(created, CUarray(as_pointer(array.handle)))
}

/// Memory goes when the work that may use it is over, as on a GPU.
pub(crate) unsafe fn cuArrayDestroy(array: CUarray) -> Outcome {
    let context = context::current()?;
    let found = array::find(array)?;
    require(found.level_of.is_none())?;
    let result = context.synchronise();
    ARRAYS.remove(found.handle);
    result
}

pub(crate) unsafe fn cuArrayGetDescriptor_v2(place: *mut CUDA_ARRAY_DESCRIPTOR, array: CUarray) -> Outcome {
    let it = array::find(array)?.descriptor;
    let flat =
        CUDA_ARRAY_DESCRIPTOR { Width: it.Width, Height: it.Height, Format: it.Format, NumChannels: it.NumChannels };
    give(place, flat)
}

pub(crate) unsafe fn cuArray3DGetDescriptor_v2(place: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray) -> Outcome {
    give(place, array::find(array)?.descriptor)
}

pub(crate) unsafe fn cuMipmappedArrayCreate(
    created: *mut CUmipmappedArray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Outcome {
    let context = context::healthy()?;
    require(!created.is_null() && !descriptor.is_null() && levels > 0)?;
    let first = *descriptor;
    let layered = first.Flags & LAYERED != 0;
    let longest = first.Width.max(first.Height).max(if layered { 1 } else { first.Depth }).max(1);
    // As many as it takes to get to one element; a program that asks for more gets no more.
    let levels = levels.min(longest.ilog2() + 1);
    let handle = handle::new();
    let smaller = |extent: usize, level: u32| if extent == 0 { 0 } else { (extent >> level).max(1) };
    let mut made = Vec::new();
    for level in 0..levels {
        let mut descriptor = first;
        descriptor.Width = smaller(first.Width, level);
        descriptor.Height = smaller(first.Height, level);
        descriptor.Depth = if layered { first.Depth } else { smaller(first.Depth, level) };
        match Array::create(descriptor, &context, Some(handle)) {
            Ok(array) => made.push(array),
            Err(code) => {
                made.iter().for_each(|array| drop(ARRAYS.remove(array.handle)));
                return Err(code);
            }
        }
    }
    MIPMAPS.insert(handle, Arc::new(Mipmap { context: context.handle, levels: made }));
    give(created, CUmipmappedArray(as_pointer(handle)))
}

pub(crate) unsafe fn cuMipmappedArrayGetLevel(place: *mut CUarray, mipmap: CUmipmappedArray, level: c_uint) -> Outcome {
    let found = find_mipmap(mipmap)?;
    let level = found.levels.get(level as usize).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    give(place, CUarray(as_pointer(level.handle)))
}

fn find_mipmap(mipmap: CUmipmappedArray) -> Outcome<Arc<Mipmap>> {
    let found = MIPMAPS.get(mipmap.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    context::find(found.context).map_err(|_| CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)?;
    Ok(found)
}

pub(crate) unsafe fn cuMipmappedArrayDestroy(mipmap: CUmipmappedArray) -> Outcome {
    let context = context::current()?;
    let found = find_mipmap(mipmap)?;
    let result = context.synchronise();
    MIPMAPS.remove(mipmap.0.addr());
    found.levels.iter().for_each(|array| drop(ARRAYS.remove(array.handle)));
    result
}

/// What the manual says of arrays that are not sparse, have their memory and one plane, as all have here.
const NONE_OF_THESE: Outcome = Err(CUresult::CUDA_ERROR_INVALID_VALUE);

pub(crate) unsafe fn cuArrayGetMemoryRequirements(
    _place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    array: CUarray,
    device: CUdevice,
) -> Outcome {
    array::find(array)?;
    number(device)?;
    NONE_OF_THESE
}

pub(crate) unsafe fn cuArrayGetSparseProperties(_place: *mut CUDA_ARRAY_SPARSE_PROPERTIES, array: CUarray) -> Outcome {
    array::find(array)?;
    NONE_OF_THESE
}

pub(crate) unsafe fn cuArrayGetPlane(_plane: *mut CUarray, array: CUarray, _index: c_uint) -> Outcome {
    array::find(array)?;
    NONE_OF_THESE
}

pub(crate) unsafe fn cuMipmappedArrayGetMemoryRequirements(
    _place: *mut CUDA_ARRAY_MEMORY_REQUIREMENTS,
    mipmap: CUmipmappedArray,
    device: CUdevice,
) -> Outcome {
    find_mipmap(mipmap)?;
    number(device)?;
    NONE_OF_THESE
}

pub(crate) unsafe fn cuMipmappedArrayGetSparseProperties(
    _place: *mut CUDA_ARRAY_SPARSE_PROPERTIES,
    mipmap: CUmipmappedArray,
) -> Outcome {
    find_mipmap(mipmap)?;
    NONE_OF_THESE
}
