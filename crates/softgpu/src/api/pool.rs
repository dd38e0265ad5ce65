//! Memory pools, and allocations in a stream's order.

use super::{as_pointer, device::only, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::graph;
use crate::handle::{self, Table};
use crate::memory;
use crate::operation::Operation;
use crate::stream;
use core::ffi::c_void;
use detshare_cuda::types::{
    CUdevice, CUdeviceptr, CUdeviceptr_v2, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemLocationType, CUmemPool_attribute as Attribute, CUmemPoolProps, CUmemoryPool, CUresult, CUstream,
};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

static POOLS: Table<Pool> = Table::new();

/// A pool. Memory comes from the device as it is asked for, and goes back when it is freed; what a program sets
/// is kept.
#[derive(Default)]
struct Pool {
    attributes: Mutex<HashMap<u32, u64>>,
    used: Mutex<Use>,
}

#[derive(Default)]
struct Use {
    now: u64,
    most: u64,
    /// What the pool says that it keeps for later.
    reserved: u64,
}

/// The pool that an address came from; 0 for none.
pub(super) fn pool_of(address: u64) -> usize {
    ORIGINS.lock().expect("no panic while it is held").get(&address).map_or(0, |(pool, _)| *pool)
}

/// The pool that an address came from, and its size.
static ORIGINS: LazyLock<Mutex<HashMap<u64, (usize, u64)>>> = LazyLock::new(Mutex::default);

/// The device's own pool, and the one that allocations come from.
static DEFAULT: LazyLock<usize> = LazyLock::new(|| {
    let handle = handle::new();
    POOLS.insert(handle, Arc::default());
    handle
});
static CURRENT: LazyLock<Mutex<usize>> = LazyLock::new(|| Mutex::new(*DEFAULT));

fn find(pool: CUmemoryPool) -> Outcome<Arc<Pool>> {
    POOLS.get(pool.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> Outcome {
    only(device)?;
    give(pool, CUmemoryPool(as_pointer(*DEFAULT)))
}

pub(crate) unsafe fn cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice) -> Outcome {
    only(device)?;
    give(pool, CUmemoryPool(as_pointer(*CURRENT.lock().expect("no panic while it is held"))))
}

pub(crate) unsafe fn cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool) -> Outcome {
    only(device)?;
    find(pool)?;
    *CURRENT.lock().expect("no panic while it is held") = pool.0.addr();
    Ok(())
}

pub(crate) unsafe fn cuMemPoolCreate(created: *mut CUmemoryPool, properties: *const CUmemPoolProps) -> Outcome {
    require(!created.is_null() && !properties.is_null())?;
    let it = &*properties;
    require(it.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    if it.location.type_ != CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    require(it.location.id == 0)?;
    let handle = handle::new();
    POOLS.insert(handle, Arc::default());
    give(created, CUmemoryPool(as_pointer(handle)))
}

pub(crate) unsafe fn cuMemPoolDestroy(pool: CUmemoryPool) -> Outcome {
    require(pool.0.addr() != *DEFAULT)?;
    let mut current = CURRENT.lock().expect("no panic while it is held");
    if *current == pool.0.addr() {
        *current = *DEFAULT;
    }
    POOLS.remove(pool.0.addr()).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize) -> Outcome {
    let pool = find(pool)?;
    let mut used = pool.used.lock().expect("no panic while it is held");
    used.reserved = used.reserved.min(keep as u64).max(used.now);
    Ok(())
}

pub(crate) unsafe fn cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: Attribute, value: *mut c_void) -> Outcome {
    let pool = find(pool)?;
    require(!value.is_null())?;
    match attribute {
        Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            let set = u64::from(*value.cast::<u32>() != 0);
            pool.attributes.lock().expect("no panic while it is held").insert(attribute.0, set);
        }
        Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => {
            pool.attributes.lock().expect("no panic while it is held").insert(attribute.0, *value.cast::<u64>());
        }
        Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            require(*value.cast::<u64>() == 0)?;
            let mut used = pool.used.lock().expect("no panic while it is held");
            used.most = used.now;
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: Attribute, value: *mut c_void) -> Outcome {
    let pool = find(pool)?;
    require(!value.is_null())?;
    let set = pool.attributes.lock().expect("no panic while it is held").get(&attribute.0).copied();
    let used = pool.used.lock().expect("no panic while it is held");
    match attribute {
        Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC
        | Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES => {
            value.cast::<u32>().write(u32::from(set.unwrap_or(1) != 0));
        }
        Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD => value.cast::<u64>().write(set.unwrap_or(0)),
        Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT => value.cast::<u64>().write(used.reserved),
        Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT => value.cast::<u64>().write(used.now),
        Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH | Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH => {
            value.cast::<u64>().write(used.most);
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuMemPoolSetAccess(pool: CUmemoryPool, _access: *const CUmemAccessDesc, _count: usize) -> Outcome {
    find(pool).map(|_| ())
}

pub(crate) unsafe fn cuMemPoolGetAccess(
    flags: *mut CUmemAccess_flags,
    pool: CUmemoryPool,
    _location: *mut CUmemLocation,
) -> Outcome {
    find(pool)?;
    give(flags, CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
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
    require(!address.is_null())?;
    if bytes == 0 {
        return give(address, CUdeviceptr_v2(0));
    }
    if let Some(allocated) = graph::memory::allocate_in_capture(&stream, bytes)? {
        return give(address, CUdeviceptr_v2(allocated));
    }
    let allocated = memory::allocate(bytes as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let mut used = found.used.lock().expect("no panic while it is held");
    used.now += bytes as u64;
    used.most = used.most.max(used.now);
    used.reserved = used.reserved.max(used.now);
    ORIGINS.lock().expect("no panic while it is held").insert(allocated, (pool.0.addr(), bytes as u64));
    give(address, CUdeviceptr_v2(allocated))
}

pub(crate) unsafe fn cuMemAllocAsync(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) -> Outcome {
    let pool = *CURRENT.lock().expect("no panic while it is held");
    cuMemAllocFromPoolAsync(address, bytes, CUmemoryPool(as_pointer(pool)), stream)
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
    require(memory::device_range(address.0).is_some_and(|(start, _)| start == address.0))?;
    if let Some((pool, bytes)) = ORIGINS.lock().expect("no panic while it is held").remove(&address.0)
        && let Some(pool) = POOLS.get(pool)
    {
        let threshold = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD.0;
        let keep = pool.attributes.lock().expect("no panic while it is held").get(&threshold).copied().unwrap_or(0);
        let mut used = pool.used.lock().expect("no panic while it is held");
        used.now -= bytes;
        used.reserved = used.reserved.min(keep).max(used.now);
    }
    if let Ok(context) = context::current() {
        context.allocations.lock().expect("no panic while it is held").remove(&address.0);
    }
    stream.perform(Operation::Free(address.0))
}
