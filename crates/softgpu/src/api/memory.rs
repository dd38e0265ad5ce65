//! Device memory, pinned host memory, and what pointers point to.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::context;
use crate::device::settings;
use crate::graph::capture;
use crate::memory::{self, HostRange};
use core::ffi::{c_int, c_uint, c_void};
use detshare_cuda::types::{
    CUcontext, CUdeviceptr, CUdeviceptr_v2, CUmemorytype, CUpointer_attribute as Attribute, CUresult,
};
use std::alloc::Layout;

/// Rows of a pitched allocation begin at such addresses.
const PITCH: usize = 512;
/// Pinned memory begins at such addresses.
const HOST_ALIGN: usize = 4096;
const HOST_FLAGS: c_uint = 0xf;
/// `CU_MEMHOSTALLOC_DEVICEMAP`, which all pinned memory has here, as with unified addresses on a GPU.
const DEVICE_MAP: c_uint = 2;

pub(crate) unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Outcome {
    context::healthy()?;
    give_if_asked(free, usize::try_from(memory::free_bytes()).unwrap_or(usize::MAX));
    give_if_asked(total, usize::try_from(settings().memory).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) unsafe fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> Outcome {
    let context = context::healthy()?;
    capture::forbid_unsafe_call()?;
    require(!address.is_null() && bytes > 0)?;
    let allocated = memory::allocate(bytes as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    context.allocations.lock().expect("no panic while it is held").insert(allocated);
    give(address, CUdeviceptr_v2(allocated))
}

pub(crate) unsafe fn cuMemAllocPitch_v2(
    address: *mut CUdeviceptr,
    pitch: *mut usize,
    width: usize,
    height: usize,
    element: c_uint,
) -> Outcome {
    require(width > 0 && height > 0 && matches!(element, 4 | 8 | 16) && !pitch.is_null())?;
    let row = width.checked_next_multiple_of(PITCH).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    cuMemAlloc_v2(address, row.checked_mul(height).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?)?;
    give(pitch, row)
}

/// Memory goes when the work that may use it is over, as on a GPU.
pub(crate) unsafe fn cuMemFree_v2(address: CUdeviceptr) -> Outcome {
    let context = context::current()?;
    if address.0 == 0 {
        return Ok(());
    }
    capture::forbid_unsafe_call()?;
    require(memory::device_range(address.0).is_some_and(|(start, _)| start == address.0))?;
    let result = context.synchronise();
    if crate::graph::memory::release(address.0)? {
        return result;
    }
    context.allocations.lock().expect("no panic while it is held").remove(&address.0);
    memory::free(address.0);
    result
}

pub(crate) unsafe fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> Outcome {
    context::current()?;
    let range = memory::device_range(address.0).or_else(|| memory::host_range(address.0).map(|it| (it.start, it.size)));
    let (start, bytes) = range.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    give_if_asked(base, CUdeviceptr_v2(start));
    give_if_asked(size, usize::try_from(bytes).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) unsafe fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    context::healthy()?;
    require(!pointer.is_null() && flags & !HOST_FLAGS == 0)?;
    if bytes == 0 {
        return give(pointer, core::ptr::null_mut());
    }
    let layout = host_layout(bytes)?;
    let memory = std::alloc::alloc_zeroed(layout);
    if memory.is_null() {
        return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    }
    let start = memory.expose_provenance() as u64;
    memory::pin(HostRange { start, size: bytes as u64, flags, registered: false });
    give(pointer, memory.cast())
}

fn host_layout(bytes: usize) -> Outcome<Layout> {
    Layout::from_size_align(bytes, HOST_ALIGN).map_err(|_| CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

pub(crate) unsafe fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) -> Outcome {
    cuMemHostAlloc(pointer, bytes, 0)
}

pub(crate) unsafe fn cuMemFreeHost(pointer: *mut c_void) -> Outcome {
    let context = context::current()?;
    if pointer.is_null() {
        return Ok(());
    }
    let range = memory::unpin(pointer.addr() as u64, false).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let result = context.synchronise();
    std::alloc::dealloc(pointer.cast(), host_layout(usize::try_from(range.size).unwrap_or(0))?);
    result
}

pub(crate) unsafe fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    context::healthy()?;
    require(!pointer.is_null() && bytes > 0 && flags & !HOST_FLAGS == 0)?;
    let start = pointer.expose_provenance() as u64;
    let pinned = memory::pin(HostRange { start, size: bytes as u64, flags: flags | DEVICE_MAP, registered: true });
    if pinned { Ok(()) } else { Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) }
}

pub(crate) unsafe fn cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    cuMemHostRegister_v2(pointer, bytes, flags)
}

pub(crate) unsafe fn cuMemHostUnregister(pointer: *mut c_void) -> Outcome {
    let context = context::current()?;
    memory::unpin(pointer.addr() as u64, true).ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    context.synchronise()
}

pub(crate) unsafe fn cuMemHostGetDevicePointer_v2(
    address: *mut CUdeviceptr,
    pointer: *mut c_void,
    flags: c_uint,
) -> Outcome {
    context::current()?;
    require(flags == 0 && memory::host_range(pointer.addr() as u64).is_some())?;
    give(address, CUdeviceptr_v2(pointer.addr() as u64))
}

pub(crate) unsafe fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) -> Outcome {
    context::current()?;
    let range = memory::host_range(pointer.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    give(flags, range.flags | DEVICE_MAP)
}

pub(crate) unsafe fn cuPointerGetAttribute(data: *mut c_void, attribute: Attribute, pointer: CUdeviceptr) -> Outcome {
    require(!data.is_null())?;
    if !give_attribute(data, attribute, pointer.0)? {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    Ok(())
}

pub(crate) unsafe fn cuPointerGetAttributes(
    count: c_uint,
    attributes: *mut Attribute,
    data: *mut *mut c_void,
    pointer: CUdeviceptr,
) -> Outcome {
    require(!attributes.is_null() && !data.is_null())?;
    for index in 0..count as usize {
        // What is unknown to the driver has NULL and zero for its attributes.
        let place = *data.add(index);
        if !give_attribute(place, *attributes.add(index), pointer.0)? {
            unknown(place, *attributes.add(index));
        }
    }
    Ok(())
}

unsafe fn unknown(place: *mut c_void, attribute: Attribute) {
    match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE | Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED => {
            place.cast::<c_uint>().write(0)
        }
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => place.cast::<c_int>().write(-2),
        _ => place.cast::<usize>().write(0),
    }
}

/// Writes the attribute; false where the driver does not know the pointer.
unsafe fn give_attribute(data: *mut c_void, attribute: Attribute, address: u64) -> Outcome<bool> {
    let device = memory::device_range(address);
    let host = memory::host_range(address);
    let Some((start, size)) = device.or(host.map(|range| (range.start, range.size))) else { return Ok(false) };
    let context = context::top().or_else(context::primary_if_there);
    match attribute {
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT => {
            data.cast::<CUcontext>().write(CUcontext(as_pointer(context.map_or(0, |it| it.handle))));
        }
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE => {
            let on_device = device.is_some();
            let kind = if on_device { CUmemorytype::CU_MEMORYTYPE_DEVICE } else { CUmemorytype::CU_MEMORYTYPE_HOST };
            data.cast::<CUmemorytype>().write(kind);
        }
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER => data.cast::<u64>().write(address),
        Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER => {
            if device.is_some() {
                return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
            }
            data.cast::<u64>().write(address);
        }
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => data.cast::<c_int>().write(0),
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => data.cast::<u64>().write(start),
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE => data.cast::<u64>().write(size),
        Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID => data.cast::<u64>().write(start),
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED
        | Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => data.cast::<c_uint>().write(0),
        Attribute::CU_POINTER_ATTRIBUTE_MAPPED => data.cast::<c_uint>().write(1),
        Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => data.cast::<u64>().write(0),
        Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => data.cast::<usize>().write(super::pool::pool_of(start)),
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(true)
}

pub(crate) unsafe fn cuPointerSetAttribute(
    _value: *const c_void,
    attribute: Attribute,
    pointer: CUdeviceptr,
) -> Outcome {
    require(attribute == Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS && memory::device_range(pointer.0).is_some())
}
