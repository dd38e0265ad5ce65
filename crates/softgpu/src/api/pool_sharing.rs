//! Pools of one process in another.

use super::as_pointer;
use super::ipc::Exported;
use super::pool::find;
use super::require;
use super::virtual_memory::file_of;
use crate::boundary::{Outcome, give};
use crate::context;
use crate::memory::shared::{self, FileOf};
use crate::memory::{self, Kind, memory_file};
use crate::pool::{self, Behind, Pool};
use core::ffi::{c_int, c_ulonglong, c_void};
use detshare_cuda::types::{
    CUdeviceptr, CUdeviceptr_v2, CUmemAllocationHandleType as HandleType, CUmemPoolPtrExportData, CUmemoryPool,
    CUresult,
};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;

const FILE: HandleType = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// What a pool's file begins with, before the process's own file, the pool's handle and its device.
const MAGIC: [u8; 16] = *b"softgpu pool\0\0\0\0";
const BYTES: usize = 48;
/// What an exported pointer begins with.
const POINTER: [u8; 8] = *b"softgpuP";
/// Where in it the pool's handle is.
const POOL: usize = 56;

pub(crate) unsafe fn cuMemPoolExportToShareableHandle(
    place: *mut c_void,
    pool: CUmemoryPool,
    kind: HandleType,
    flags: c_ulonglong,
) -> Outcome {
    require(!place.is_null() && flags == 0)?;
    let found = find(pool)?;
    require(kind == FILE && found.handle_types & FILE.0 != 0 && found.imported.is_none())?;
    let Behind::Device(device) = found.behind else { return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) };
    let own = shared::own_file().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    let mut bytes = MAGIC.to_vec();
    bytes.extend(own.to_bytes());
    bytes.extend((pool.0.addr() as u64).to_le_bytes());
    bytes.extend((device as u64).to_le_bytes());
    let system = CUresult::CUDA_ERROR_OPERATING_SYSTEM;
    let file = File::from(memory_file(c"softgpu-pool", BYTES as u64).ok_or(system)?);
    file.write_all_at(&bytes, 0).map_err(|_| system)?;
    give(place.cast::<c_int>(), file.into_raw_fd())
}

pub(crate) unsafe fn cuMemPoolImportFromShareableHandle(
    imported: *mut CUmemoryPool,
    handle: *mut c_void,
    kind: HandleType,
    flags: c_ulonglong,
) -> Outcome {
    require(!imported.is_null() && flags == 0)?;
    if kind != FILE {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let mut bytes = [0; BYTES];
    file_of(handle)?.read_exact_at(&mut bytes, 0).map_err(|_| invalid)?;
    let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).map_err(|_| invalid);
    require(bytes[..16] == MAGIC)?;
    let file = FileOf::from_bytes(bytes[16..32].try_into().map_err(|_| invalid)?);
    let device = usize::try_from(number(40)?).unwrap_or(usize::MAX);
    require(device < crate::device::settings().devices)?;
    let mut pool = Pool::new(Behind::Device(device));
    pool.imported = Some((file, number(32)?));
    give(imported, CUmemoryPool(as_pointer(pool::insert(pool))))
}

pub(crate) unsafe fn cuMemPoolExportPointer(place: *mut CUmemPoolPtrExportData, address: CUdeviceptr) -> Outcome {
    require(!place.is_null())?;
    let range = memory::find(address.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let Kind::Pool(pool) = range.kind else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    require(super::pool::handle_types(pool) & u64::from(FILE.0) != 0)?;
    let mut bytes = Exported::of(&range)?.to_bytes(POINTER);
    bytes[POOL..].copy_from_slice(&(pool as u64).to_le_bytes());
    give(place, CUmemPoolPtrExportData { reserved: bytes })
}

/// The memory is given back by `cuMemFree` or `cuMemFreeAsync`.
pub(crate) unsafe fn cuMemPoolImportPointer(
    address: *mut CUdeviceptr,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Outcome {
    let context = context::healthy()?;
    require(!address.is_null() && !data.is_null())?;
    let bytes = (*data).reserved;
    let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
    let exported = Exported::from_bytes(bytes, POINTER).ok_or(invalid)?;
    let origin = u64::from_le_bytes(bytes[POOL..].try_into().map_err(|_| invalid)?);
    require(find(pool)?.imported == Some((exported.file, origin)))?;
    let imported = exported.import(context.handle)?;
    pool::note(imported, pool.0.addr(), 0);
    give(address, CUdeviceptr_v2(imported))
}
