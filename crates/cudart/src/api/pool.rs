//! Memory in the order of a stream, and the pools that it comes from.

use super::forward;
use crate::boundary::{Outcome, give};
use crate::context;
use crate::convert::{address, at, at_mut, same};
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::CUmemoryPool;

forward! {
    fn cudaMallocAsync(pointer: *mut *mut c_void, size: usize, stream: cudaStream_t)
        => cuMemAllocAsync(at_mut(pointer), size, stream);
    fn cudaFreeAsync(pointer: *mut c_void, stream: cudaStream_t) => cuMemFreeAsync(address(pointer), stream);
    fn cudaMallocFromPoolAsync(pointer: *mut *mut c_void, size: usize, pool: cudaMemPool_t, stream: cudaStream_t)
        => cuMemAllocFromPoolAsync(at_mut(pointer), size, pool, stream);
    fn cudaMemPoolCreate(pool: *mut cudaMemPool_t, properties: *const cudaMemPoolProps)
        => cuMemPoolCreate(pool, at(properties));
    fn cudaMemPoolDestroy(pool: cudaMemPool_t) => cuMemPoolDestroy(pool);
    fn cudaMemPoolTrimTo(pool: cudaMemPool_t, keep: usize) => cuMemPoolTrimTo(pool, keep);
    fn cudaMemPoolGetAttribute(pool: cudaMemPool_t, attribute: cudaMemPoolAttr, value: *mut c_void)
        => cuMemPoolGetAttribute(pool, same(attribute), value);
    fn cudaMemPoolSetAttribute(pool: cudaMemPool_t, attribute: cudaMemPoolAttr, value: *mut c_void)
        => cuMemPoolSetAttribute(pool, same(attribute), value);
    fn cudaMemPoolGetAccess(flags: *mut cudaMemAccessFlags, pool: cudaMemPool_t, location: *mut cudaMemLocation)
        => cuMemPoolGetAccess(at_mut(flags), pool, at_mut(location));
    fn cudaMemPoolSetAccess(pool: cudaMemPool_t, list: *const cudaMemAccessDesc, count: usize)
        => cuMemPoolSetAccess(pool, at(list), count);
    fn cudaMemPoolExportPointer(data: *mut cudaMemPoolPtrExportData, pointer: *mut c_void)
        => cuMemPoolExportPointer(at_mut(data), address(pointer));
    fn cudaMemPoolImportPointer(pointer: *mut *mut c_void, pool: cudaMemPool_t, data: *mut cudaMemPoolPtrExportData)
        => cuMemPoolImportPointer(at_mut(pointer), pool, at_mut(data));
    fn cudaMemPoolExportToShareableHandle(
        handle: *mut c_void, pool: cudaMemPool_t, kind: cudaMemAllocationHandleType, flags: c_uint,
    ) => cuMemPoolExportToShareableHandle(handle, pool, same(kind), flags.into());
    fn cudaMemPoolImportFromShareableHandle(
        pool: *mut cudaMemPool_t, handle: *mut c_void, kind: cudaMemAllocationHandleType, flags: c_uint,
    ) => cuMemPoolImportFromShareableHandle(pool, handle, same(kind), flags.into());
    fn cudaDeviceSetMemPool(device: c_int, pool: cudaMemPool_t) => cuDeviceSetMemPool(context::handle(device)?, pool);
    fn cudaDeviceGetGraphMemAttribute(device: c_int, attribute: cudaGraphMemAttributeType, value: *mut c_void)
        => cuDeviceGetGraphMemAttribute(context::handle(device)?, same(attribute), value);
    fn cudaDeviceSetGraphMemAttribute(device: c_int, attribute: cudaGraphMemAttributeType, value: *mut c_void)
        => cuDeviceSetGraphMemAttribute(context::handle(device)?, same(attribute), value);
    fn cudaDeviceGraphMemTrim(device: c_int) => cuDeviceGraphMemTrim(context::handle(device)?);
    fn cudaMemGetDefaultMemPool(
        pool: *mut cudaMemPool_t, location: *mut cudaMemLocation, kind: cudaMemAllocationType,
    ) => cuMemGetDefaultMemPool(pool, at_mut(location), same(kind));
    fn cudaMemGetMemPool(pool: *mut cudaMemPool_t, location: *mut cudaMemLocation, kind: cudaMemAllocationType)
        => cuMemGetMemPool(pool, at_mut(location), same(kind));
    fn cudaMemSetMemPool(location: *mut cudaMemLocation, kind: cudaMemAllocationType, pool: cudaMemPool_t)
        => cuMemSetMemPool(at_mut(location), same(kind), pool);
}

pub unsafe fn cudaDeviceGetDefaultMemPool(pool: *mut cudaMemPool_t, device: c_int) -> Outcome {
    let mut found = CUmemoryPool(null_mut());
    driver!(cuDeviceGetDefaultMemPool(&raw mut found, context::handle(device)?))?;
    give(pool, found)
}

pub unsafe fn cudaDeviceGetMemPool(pool: *mut cudaMemPool_t, device: c_int) -> Outcome {
    let mut found = CUmemoryPool(null_mut());
    driver!(cuDeviceGetMemPool(&raw mut found, context::handle(device)?))?;
    give(pool, found)
}
