//! Addresses without memory, memory without addresses, and the one mapped to the other.

use super::{location, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::memory::managed::Location;
use crate::memory::physical::{self, Properties, Refused};
use crate::memory::{self, GRANULARITY, Kind, Wanted};
use core::ffi::{c_int, c_ulonglong, c_void};
use detshare_cuda::types::{
    CUdeviceptr, CUdeviceptr_v2, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags as Granularity,
    CUmemAllocationHandleType as HandleType, CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocationType, CUresult,
};
use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, IntoRawFd};

const FILE: HandleType = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

impl From<Refused> for CUresult {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoMemory => Self::CUDA_ERROR_OUT_OF_MEMORY,
            Refused::Invalid => Self::CUDA_ERROR_INVALID_VALUE,
        }
    }
}

fn whole(bytes: usize) -> bool {
    bytes > 0 && (bytes as u64).is_multiple_of(GRANULARITY)
}

pub(crate) unsafe fn cuMemAddressReserve(
    place: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    _wish: CUdeviceptr,
    flags: c_ulonglong,
) -> Outcome {
    require(!place.is_null() && whole(size) && flags == 0)?;
    require(alignment == 0 || alignment.is_power_of_two())?;
    let align = GRANULARITY.max(alignment as u64);
    let wanted = Wanted { bytes: size as u64, kind: Kind::Reserved, device: 0, context: 0, align, access: 0 };
    let range = memory::take(&wanted).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    give(place, CUdeviceptr_v2(range.start))
}

pub(crate) unsafe fn cuMemAddressFree(address: CUdeviceptr, size: usize) -> Outcome {
    let range = memory::reservation(address.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(range.start == address.0 && range.size == size as u64 && !physical::is_in_use(range.start, range.size))?;
    memory::free(range.start);
    Ok(())
}

/// What the program says of memory that it wants, and the device whose memory it is.
unsafe fn properties(wanted: *const CUmemAllocationProp) -> Outcome<(Properties, Option<usize>)> {
    require(!wanted.is_null())?;
    let it = &*wanted;
    require(it.type_ == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    let place = location::check(it.location)?;
    let device = location::is_device(place).then(|| usize::try_from(place.id).unwrap_or(0));
    let handle_types = it.requestedHandleTypes.0;
    if handle_types & !FILE.0 != 0 {
        // Handles of Windows, and handles for other machines.
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let (compression, usage) = (it.allocFlags.compressionType, it.allocFlags.usage);
    Ok((Properties { location: place, handle_types, compression, usage }, device))
}

pub(crate) unsafe fn cuMemGetAllocationGranularity(
    place: *mut usize,
    wanted: *const CUmemAllocationProp,
    option: Granularity,
) -> Outcome {
    properties(wanted)?;
    let known = [Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM, Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED];
    require(known.contains(&option))?;
    give(place, usize::try_from(GRANULARITY).unwrap_or(usize::MAX))
}

pub(crate) unsafe fn cuMemCreate(
    created: *mut CUmemGenericAllocationHandle,
    size: usize,
    wanted: *const CUmemAllocationProp,
    flags: c_ulonglong,
) -> Outcome {
    require(!created.is_null() && flags == 0)?;
    let (properties, device) = properties(wanted)?;
    require(whole(size))?;
    give(created, physical::create(size as u64, properties, device)?)
}

pub(crate) unsafe fn cuMemRelease(handle: CUmemGenericAllocationHandle) -> Outcome {
    require(physical::release(handle))
}

fn find(handle: CUmemGenericAllocationHandle) -> Outcome<std::sync::Arc<physical::Physical>> {
    physical::get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuMemMap(
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Outcome {
    // The manual wants an offset of zero.
    require(address.0.is_multiple_of(GRANULARITY) && offset == 0 && flags == 0)?;
    let physical = find(handle)?;
    if size as u64 > physical.size {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    require(whole(size))?;
    Ok(physical::map(address.0, size as u64, physical)?)
}

/// Memory goes when the work that may use it is over. Reserved addresses without memory are taken too.
pub(crate) unsafe fn cuMemUnmap(address: CUdeviceptr, size: usize) -> Outcome {
    require(whole(size))?;
    let is_reserved =
        memory::reservation(address.0).is_some_and(|range| address.0.saturating_add(size as u64) <= range.end());
    if is_reserved && !physical::is_in_use(address.0, size as u64) {
        return Ok(());
    }
    let result = context::top().map_or(Ok(()), |context| context.synchronise());
    physical::unmap(address.0, size as u64)?;
    result
}

pub(crate) unsafe fn cuMemSetAccess(
    address: CUdeviceptr,
    size: usize,
    wanted: *const CUmemAccessDesc,
    count: usize,
) -> Outcome {
    require(whole(size) && !wanted.is_null() && count > 0)?;
    let mut all = Vec::with_capacity(count);
    for index in 0..count {
        let it = *wanted.add(index);
        all.push((location::accessor(location::check(it.location)?), access_flags(it.flags)?));
    }
    Ok(physical::set_access(address.0, size as u64, &all)?)
}

/// The flags as they are kept.
pub(super) fn access_flags(flags: CUmemAccess_flags) -> Outcome<u8> {
    match flags {
        CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE
        | CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ
        | CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Ok(u8::try_from(flags.0).unwrap_or(0)),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuMemGetAccess(
    flags: *mut c_ulonglong,
    place: *const CUmemLocation,
    address: CUdeviceptr,
) -> Outcome {
    require(!place.is_null())?;
    let accessor = location::accessor(location::check(*place)?);
    let found = physical::access_at(address.0, accessor).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    give(flags, found.into())
}

pub(crate) unsafe fn cuMemExportToShareableHandle(
    place: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: HandleType,
    flags: c_ulonglong,
) -> Outcome {
    require(!place.is_null() && flags == 0)?;
    let found = find(handle)?;
    require(kind == FILE && found.properties.handle_types & FILE.0 != 0)?;
    let file = physical::export(&found).ok_or(CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    give(place.cast::<c_int>(), file.into_raw_fd())
}

/// A file that the program names and keeps.
pub(super) fn file_of(handle: *mut c_void) -> Outcome<ManuallyDrop<File>> {
    let number = c_int::try_from(handle.addr()).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    // SAFETY: asks whether there is such a file.
    require(unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0)?;
    // SAFETY: open, and never closed here.
    Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(number) }))
}

pub(crate) unsafe fn cuMemImportFromShareableHandle(
    imported: *mut CUmemGenericAllocationHandle,
    handle: *mut c_void,
    kind: HandleType,
) -> Outcome {
    require(!imported.is_null())?;
    if kind != FILE {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let found = physical::import(&*file_of(handle)?).map_err(|refused| match refused {
        Refused::NoMemory => refused.into(),
        // A file, but none of memory.
        Refused::Invalid => CUresult::CUDA_ERROR_UNKNOWN,
    })?;
    give(imported, found)
}

pub(crate) unsafe fn cuMemRetainAllocationHandle(
    place: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> Outcome {
    require(!place.is_null())?;
    give(place, physical::retain(address.addr() as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
}

pub(crate) unsafe fn cuMemGetAllocationPropertiesFromHandle(
    place: *mut CUmemAllocationProp,
    handle: CUmemGenericAllocationHandle,
) -> Outcome {
    let Properties { location: Location { kind, id }, handle_types, compression, usage } = find(handle)?.properties;
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut it: CUmemAllocationProp = unsafe { core::mem::zeroed() };
    it.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    it.requestedHandleTypes = HandleType(handle_types);
    it.location = CUmemLocation { type_: CUmemLocationType(kind), id };
    (it.allocFlags.compressionType, it.allocFlags.usage) = (compression, usage);
    give(place, it)
}
