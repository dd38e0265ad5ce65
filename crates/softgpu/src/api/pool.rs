//! Memory pools, and allocations in a stream's order.

use super::{array_of, as_pointer, device::number, location, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::graph;
use crate::memory::access::bit;
use crate::memory::managed::Location;
use crate::memory::{self, Kind, Range, Wanted};
use crate::operation::Operation;
use crate::pool::{self, Behind, Offer, POOLS, Pool, Wish};
use crate::stream;
use core::ffi::c_void;
use detshare_cuda::types::{
    CUdevice, CUdeviceptr, CUdeviceptr_v2, CUmemAccess_flags as AccessFlags, CUmemAccessDesc,
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute as Attribute,
    CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};
use std::sync::Arc;

const PINNED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
const MANAGED: CUmemAllocationType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
/// Portable and mapped: every context may use a pool's host memory.
const HOST_FLAGS: u32 = 3;

/// The types of handles that the pool's memory can be given away by.
pub(super) fn handle_types(pool: usize) -> u64 {
    POOLS.get(pool).map_or(0, |pool| pool.handle_types.into())
}

pub(super) fn find(pool: CUmemoryPool) -> Outcome<Arc<Pool>> {
    POOLS.get(pool.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

fn as_handle(pool: usize) -> CUmemoryPool {
    CUmemoryPool(as_pointer(pool))
}

/// What lies behind the allocations of a pool at a location.
fn behind(place: Location, kind: CUmemAllocationType) -> Outcome<Behind> {
    match kind {
        PINNED if location::is_device(place) => Ok(Behind::Device(usize::try_from(place.id).unwrap_or(0))),
        PINNED => Ok(Behind::Host),
        MANAGED => Ok(Behind::Managed),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

fn on_device(device: CUdevice) -> Outcome<Behind> {
    Ok(Behind::Device(number(device)?))
}

unsafe fn at(place: *mut CUmemLocation, kind: CUmemAllocationType) -> Outcome<Behind> {
    require(!place.is_null())?;
    if kind == MANAGED && (*place).type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE {
        return Ok(Behind::Managed);
    }
    behind(location::check(*place)?, kind)
}

pub(crate) unsafe fn cuDeviceGetDefaultMemPool(place: *mut CUmemoryPool, device: CUdevice) -> Outcome {
    give(place, as_handle(pool::default_of(on_device(device)?)))
}

pub(crate) unsafe fn cuDeviceGetMemPool(place: *mut CUmemoryPool, device: CUdevice) -> Outcome {
    give(place, as_handle(pool::current_of(on_device(device)?)))
}

pub(crate) unsafe fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> Outcome {
    set_current(on_device(device)?, pool)
}

fn set_current(behind: Behind, pool: CUmemoryPool) -> Outcome {
    let found = find(pool)?;
    require(found.behind == behind && found.imported.is_none())?;
    pool::set_current(behind, pool.0.addr());
    Ok(())
}

pub(crate) unsafe fn cuMemGetDefaultMemPool(
    pool: *mut CUmemoryPool,
    place: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Outcome {
    give(pool, as_handle(pool::default_of(at(place, kind)?)))
}

pub(crate) unsafe fn cuMemGetMemPool(
    pool: *mut CUmemoryPool,
    place: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Outcome {
    give(pool, as_handle(pool::current_of(at(place, kind)?)))
}

pub(crate) unsafe fn cuMemSetMemPool(
    place: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Outcome {
    set_current(at(place, kind)?, pool)
}

pub(crate) unsafe fn cuMemPoolCreate(created: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Outcome {
    require(!created.is_null() && !properties.is_null())?;
    let it = &*properties;
    let mut place = it.location;
    let behind = at(&raw mut place, it.allocType)?;
    let files = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
    if it.handleTypes.0 & !files != 0 {
        // Handles of Windows, and handles for other machines.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut pool = Pool::new(behind);
    pool.handle_types = it.handleTypes.0;
    pool.most = if it.maxSize == 0 { u64::MAX } else { it.maxSize as u64 };
    give(created, as_handle(pool::insert(pool)))
}

/// What is allocated stays until it is freed.
pub(crate) unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Outcome {
    let found = find(pool)?;
    require(found.imported.is_some() || pool.0.addr() != pool::default_of(found.behind))?;
    pool::remove(pool.0.addr(), found.behind);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Outcome {
    find(pool)?.used().trim(keep as u64);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: Attribute, value: *mut c_void) -> Outcome {
    let pool = find(pool)?;
    require(!value.is_null())?;
    match attribute {
        Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            pool.set(attribute.0, u64::from(*value.cast::<u32>() != 0));
        }
        Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.set(attribute.0, *value.cast::<u64>()),
        Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => {
            require(*value.cast::<u64>() == 0)?;
            let mut used = pool.used();
            used.most_reserved = used.reserved;
        }
        Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            require(*value.cast::<u64>() == 0)?;
            let mut used = pool.used();
            used.most = used.now;
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: Attribute, value: *mut c_void) -> Outcome {
    let pool = find(pool)?;
    require(!value.is_null())?;
    let wide = match attribute {
        Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value.cast::<u32>().write(u32::from(pool.get(attribute.0).unwrap_or(1) != 0));
            return Ok(());
        }
        Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => pool.get(attribute.0).unwrap_or(0),
        Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => pool.used().reserved,
        Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH => pool.used().most_reserved,
        Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => pool.used().now,
        Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => pool.used().most,
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    value.cast::<u64>().write(wide);
    Ok(())
}

/// Peers may be let in and kept out; the pool's own device has access always.
pub(crate) unsafe fn cuMemPoolSetAccess(handle: CUmemoryPool, wanted: *const CUmemAccessDesc, count: usize) -> Outcome {
    let pool = find(handle)?;
    let mut access = pool.access();
    for it in array_of(wanted, count)? {
        let place = location::check(it.location)?;
        require(location::is_device(place))?;
        let device = usize::try_from(place.id).unwrap_or(0);
        match it.flags {
            AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => access |= bit(device),
            AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_NONE => {
                require(pool.behind != Behind::Device(device))?;
                access &= !bit(device);
            }
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
    }
    pool.set_access(handle.0.addr(), access);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAccess(
    flags: *mut AccessFlags,
    pool: CUmemoryPool,
    place: *mut CUmemLocation,
) -> Outcome {
    let pool = find(pool)?;
    require(!place.is_null())?;
    let place = location::check(*place)?;
    let has_access = if location::is_device(place) {
        pool.access() & bit(usize::try_from(place.id).unwrap_or(0)) != 0
    } else {
        !matches!(pool.behind, Behind::Device(_))
    };
    let all = AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    give(flags, if has_access { all } else { AccessFlags::CU_MEM_ACCESS_FLAGS_PROT_NONE })
}

/// The address is good at once: what the program does with it comes later in the stream's order.
pub(crate) unsafe fn cuMemAllocFromPoolAsync(
    address: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Outcome {
    context::healthy()?;
    let found = find(pool)?;
    let stream = stream::find(stream)?;
    require(!address.is_null() && found.imported.is_none())?;
    if bytes == 0 {
        return give(address, CUdeviceptr_v2(0));
    }
    if let Some(allocated) = graph::memory::allocate_in_capture(&stream, bytes)? {
        return give(address, CUdeviceptr_v2(allocated));
    }
    let (kind, device) = match found.behind {
        Behind::Device(device) => (Kind::Pool(pool.0.addr()), device),
        Behind::Host => (Kind::Host(HOST_FLAGS), stream.context.device),
        Behind::Managed => (Kind::Managed, stream.context.device),
    };
    let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    let wanted = Wanted { bytes: bytes as u64, kind, device, context: 0, align: 1, access: found.access() };
    found.used().take(bytes as u64, found.most).ok_or(out_of_memory)?;
    let again = pool::again(Wish { stream: stream.id, pool: pool.0.addr(), bytes: bytes as u64 });
    let Some(start) = again.or_else(|| Some(memory::take(&wanted)?.start)) else {
        pool::count_freed(pool.0.addr(), bytes as u64);
        return Err(out_of_memory);
    };
    pool::note(start, pool.0.addr(), bytes as u64);
    give(address, CUdeviceptr_v2(start))
}

/// From the pool that is current on the stream's device.
pub(crate) unsafe fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Outcome {
    context::healthy()?;
    let device = stream::find(stream)?.context.device;
    let pool = pool::current_of(Behind::Device(device));
    cuMemAllocFromPoolAsync(address, bytes, as_handle(pool), stream)
}

/// Only whole allocations can be freed, and only those that `cuMemFree` is for.
pub(super) fn require_freeable(address: u64, range: &Range) -> Outcome {
    let is_freed_so = matches!(range.kind, Kind::Device | Kind::Managed | Kind::Pool(_));
    require(is_freed_so && range.start == address || pool::of(address).is_some())
}

pub(crate) unsafe fn cuMemFreeAsync(address: CUdeviceptr, stream: CUstream) -> Outcome {
    context::healthy()?;
    let stream = stream::find(stream)?;
    if address.0 == 0 {
        return Ok(());
    }
    if stream.capturing().is_none() && graph::memory::release(address.0)? {
        return stream.perform(Operation::Nothing);
    }
    let range = memory::find(address.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require_freeable(address.0, &range)?;
    let origin = pool::forget(address.0);
    // Else it is freed already, and somebody else's once that has had its turn.
    require(origin.is_some() || !matches!(range.kind, Kind::Pool(_)))?;
    // What a graph frees is freed at each of its launches.
    let origin = origin.filter(|_| stream.capturing().is_none());
    let offer = origin.map(|(pool, bytes)| Offer::make(Wish { stream: stream.id, pool, bytes }, address.0));
    if let Ok(owner) = context::find(range.context) {
        owner.disown(address.0);
    }
    stream.perform(Operation::Free(address.0, offer))
}
