//! Memory of the device and of the host, and what a pointer is.

use super::forward;
use crate::boundary::{Outcome, give, require};
use crate::context;
use crate::convert::{address, at_mut, same};
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUdeviceptr_v2, CUmemorytype, CUpointer_attribute as Attribute};

/// What a pitch must suit: the largest element that a kernel loads at once.
const LARGEST_ELEMENT: c_uint = 16;

forward! {
    fn cudaMalloc(pointer: *mut *mut c_void, size: usize) => cuMemAlloc_v2(at_mut(pointer), size);
    fn cudaMallocHost(pointer: *mut *mut c_void, size: usize) => cuMemAllocHost_v2(pointer, size);
    fn cudaHostAlloc(pointer: *mut *mut c_void, size: usize, flags: c_uint) => cuMemHostAlloc(pointer, size, flags);
    fn cudaHostGetDevicePointer(device: *mut *mut c_void, host: *mut c_void, flags: c_uint)
        => cuMemHostGetDevicePointer_v2(at_mut(device), host, flags);
    fn cudaHostGetFlags(flags: *mut c_uint, host: *mut c_void) => cuMemHostGetFlags(flags, host);
    fn cudaHostRegister(pointer: *mut c_void, size: usize, flags: c_uint) => cuMemHostRegister_v2(pointer, size, flags);
    fn cudaHostUnregister(pointer: *mut c_void) => cuMemHostUnregister(pointer);
    fn cudaMemGetInfo(free: *mut usize, total: *mut usize) => cuMemGetInfo_v2(free, total);
    fn cudaDeviceFlushGPUDirectRDMAWrites(
        target: cudaFlushGPUDirectRDMAWritesTarget, scope: cudaFlushGPUDirectRDMAWritesScope,
    ) => cuFlushGPUDirectRDMAWrites(same(target), same(scope));
}

pub unsafe fn cudaFree(pointer: *mut c_void) -> Outcome {
    context::ready()?;
    if pointer.is_null() { Ok(()) } else { driver!(cuMemFree_v2(address(pointer))) }
}

pub unsafe fn cudaFreeHost(pointer: *mut c_void) -> Outcome {
    context::ready()?;
    if pointer.is_null() { Ok(()) } else { driver!(cuMemFreeHost(pointer)) }
}

pub unsafe fn cudaMallocPitch(pointer: *mut *mut c_void, pitch: *mut usize, width: usize, height: usize) -> Outcome {
    require(!pointer.is_null() && !pitch.is_null())?;
    context::ready()?;
    if width == 0 || height == 0 {
        give(pointer, null_mut())?;
        return give(pitch, 0);
    }
    driver!(cuMemAllocPitch_v2(at_mut(pointer), pitch, width, height, LARGEST_ELEMENT))
}

pub unsafe fn cudaMalloc3D(pitched: *mut cudaPitchedPtr, extent: cudaExtent) -> Outcome {
    require(!pitched.is_null())?;
    let (mut pointer, mut pitch) = (null_mut(), 0);
    let rows = extent.height.checked_mul(extent.depth).ok_or(cudaError_t::cudaErrorMemoryAllocation)?;
    cudaMallocPitch(&raw mut pointer, &raw mut pitch, extent.width, rows)?;
    give(pitched, cudaPitchedPtr { ptr: pointer, pitch, xsize: extent.width, ysize: extent.height })
}

/// What is no memory of CUDA's is the host's, and no error.
pub unsafe fn cudaPointerGetAttributes(attributes: *mut cudaPointerAttributes, pointer: *const c_void) -> Outcome {
    require(!attributes.is_null())?;
    context::ready()?;
    let (mut memory, mut managed, mut device): (c_uint, c_uint, c_int) = (0, 0, 0);
    let (mut on_device, mut on_host) = (CUdeviceptr_v2(0), null_mut::<c_void>());
    let mut wanted = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
    ];
    let mut places: [*mut c_void; 5] = [
        (&raw mut memory).cast(),
        (&raw mut managed).cast(),
        (&raw mut device).cast(),
        (&raw mut on_device).cast(),
        (&raw mut on_host).cast(),
    ];
    driver!(cuPointerGetAttributes(5, wanted.as_mut_ptr(), places.as_mut_ptr(), address(pointer)))?;
    let memory = match CUmemorytype(memory) {
        _ if managed != 0 => cudaMemoryType::cudaMemoryTypeManaged,
        CUmemorytype::CU_MEMORYTYPE_HOST => cudaMemoryType::cudaMemoryTypeHost,
        CUmemorytype::CU_MEMORYTYPE_DEVICE => cudaMemoryType::cudaMemoryTypeDevice,
        _ => cudaMemoryType::cudaMemoryTypeUnregistered,
    };
    let is_known = memory != cudaMemoryType::cudaMemoryTypeUnregistered;
    let device_pointer = core::ptr::with_exposed_provenance_mut(usize::try_from(on_device.0).unwrap_or(0));
    give(
        attributes,
        cudaPointerAttributes {
            type_: memory,
            // As the manual says: -2 where no device has anything to do with it.
            device: if is_known { device } else { -2 },
            devicePointer: if is_known { device_pointer } else { null_mut() },
            hostPointer: if is_known { on_host } else { pointer.cast_mut() },
            reserved: [0; 8],
        },
    )
}
