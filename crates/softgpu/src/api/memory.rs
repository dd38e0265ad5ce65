//! Device memory and pinned host memory.

use super::require;
use crate::boundary::{Outcome, give, give_if_asked};
use crate::context;
use crate::device::settings;
use crate::graph::capture;
use crate::memory::{self, Kind, Range, Registered, Wanted};
use core::ffi::{c_uint, c_void};
use detshare_cuda::types::{CUdeviceptr, CUdeviceptr_v2, CUresult};

/// Rows of a pitched allocation begin at such addresses.
const PITCH: usize = 512;
/// Portable, mapped and write-combined.
const ALLOC_FLAGS: c_uint = 7;
/// Portable, mapped, of a device, and only to read.
const REGISTER_FLAGS: c_uint = 0xf;
/// `CU_MEMHOSTREGISTER_IOMEMORY`.
const DEVICE_REGISTERS: c_uint = 4;
/// `CU_MEMHOSTREGISTER_READ_ONLY`.
const READ_ONLY: c_uint = 8;
/// `CU_MEMHOSTALLOC_DEVICEMAP`, which all pinned memory has here, as with unified addresses on a GPU.
const DEVICE_MAP: c_uint = 2;

pub(crate) unsafe fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Outcome {
    let context = context::healthy()?;
    give_if_asked(free, usize::try_from(memory::free_bytes(context.device)).unwrap_or(usize::MAX));
    give_if_asked(total, usize::try_from(settings().memory).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) unsafe fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) -> Outcome {
    let context = context::healthy()?;
    capture::forbid_unsafe_call()?;
    require(!address.is_null() && bytes > 0)?;
    let allocated = memory::allocate(bytes as u64).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    context.own(allocated);
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

/// Memory goes when the work that may use it is over, as on a GPU. The thread needs no context for that.
pub(crate) unsafe fn cuMemFree_v2(address: CUdeviceptr) -> Outcome {
    if address.0 == 0 {
        return Ok(());
    }
    capture::forbid_unsafe_call()?;
    let range = memory::find(address.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    super::pool::require_freeable(address.0, &range)?;
    if crate::graph::memory::release(address.0)? {
        return synchronise_users(&range);
    }
    crate::pool::forget(address.0);
    release(address.0, &range)
}

/// Waits for what may use the memory, and gives it back.
fn release(address: u64, range: &Range) -> Outcome {
    let result = synchronise_users(range);
    if let Ok(owner) = context::find(range.context) {
        owner.disown(address);
    }
    memory::free(address);
    result
}

/// Waits for the thread's own context, if it has one, and for the one that the memory belongs to.
fn synchronise_users(range: &Range) -> Outcome {
    let current = context::current().ok();
    let owner = context::find(range.context).ok();
    let owner = owner.filter(|owner| current.as_ref().is_none_or(|current| current.handle != owner.handle));
    let mut result = Ok(());
    for user in current.iter().chain(&owner) {
        result = result.and(user.synchronise());
    }
    result
}

pub(crate) unsafe fn cuMemGetAddressRange_v2(
    base: *mut CUdeviceptr,
    size: *mut usize,
    address: CUdeviceptr,
) -> Outcome {
    context::current()?;
    let range = memory::find(address.0).ok_or(CUresult::CUDA_ERROR_NOT_FOUND)?;
    give_if_asked(base, CUdeviceptr_v2(range.start));
    give_if_asked(size, usize::try_from(range.size).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) unsafe fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    let context = context::healthy()?;
    require(!pointer.is_null() && flags & !ALLOC_FLAGS == 0)?;
    if bytes == 0 {
        return give(pointer, core::ptr::null_mut());
    }
    let wanted = Wanted {
        bytes: bytes as u64,
        kind: Kind::Host(flags),
        device: context.device,
        context: context.handle,
        align: 1,
        access: memory::ALL,
    };
    let range = memory::take(&wanted).ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    context.own(range.start);
    give(pointer, core::ptr::with_exposed_provenance_mut(usize::try_from(range.start).unwrap_or(0)))
}

pub(crate) unsafe fn cuMemAllocHost_v2(pointer: *mut *mut c_void, bytes: usize) -> Outcome {
    cuMemHostAlloc(pointer, bytes, 0)
}

/// The thread needs no context for it, as for `cuMemFree`: the address says whose memory it is, and programs in languages
/// with a garbage collector free what is pinned from any of their threads.
pub(crate) unsafe fn cuMemFreeHost(pointer: *mut c_void) -> Outcome {
    if pointer.is_null() {
        return Ok(());
    }
    let start = pointer.addr() as u64;
    let range = memory::find(start).filter(|range| range.start == start && matches!(range.kind, Kind::Host(_)));
    release(start, &range.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
}

pub(crate) unsafe fn cuMemHostRegister_v2(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    let context = context::healthy()?;
    require(!pointer.is_null() && bytes > 0 && flags & !REGISTER_FLAGS == 0)?;
    // Registers of other devices are no memory that a kernel on a CPU may touch at will.
    require(flags & DEVICE_REGISTERS == 0)?;
    let start = pointer.expose_provenance() as u64;
    let end = start.checked_add(bytes as u64).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if memory::find(start).is_some_and(|range| matches!(range.kind, Kind::Registered(_))) {
        return Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    require(memory::find(start).is_none() && is_there(start, end, flags & READ_ONLY == 0))?;
    let registered = memory::register(Registered {
        start,
        size: bytes as u64,
        flags: flags | DEVICE_MAP,
        context: context.handle,
        id: memory::new_id(),
    });
    if registered { Ok(()) } else { Err(CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) }
}

/// Whether the process has memory at all these addresses, to write to if that is wanted: a kernel that touches what is
/// not there would end the process.
fn is_there(start: u64, end: u64, to_write: bool) -> bool {
    let Ok(mappings) = std::fs::read_to_string("/proc/self/maps") else { return true };
    let mut next = start;
    for line in mappings.lines() {
        let mut words = line.split(' ');
        let span = words.next().and_then(|span| span.split_once('-'));
        let rights = words.next().unwrap_or_default();
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let Some((from, to)) = span.and_then(|(from, to)| Some((number(from)?, number(to)?))) else { continue };
        if (from..to).contains(&next) && rights.starts_with('r') && (!to_write || rights[1..].starts_with('w')) {
            next = to;
        }
        if next >= end {
            return true;
        }
    }
    false
}

pub(crate) unsafe fn cuMemHostRegister(pointer: *mut c_void, bytes: usize, flags: c_uint) -> Outcome {
    cuMemHostRegister_v2(pointer, bytes, flags)
}

/// As `cuMemFreeHost`, the thread needs no context.
pub(crate) unsafe fn cuMemHostUnregister(pointer: *mut c_void) -> Outcome {
    require(!pointer.is_null())?;
    let start = pointer.addr() as u64;
    let range = memory::find(start);
    // What the driver itself allocated is another thing than what it was never told of.
    require(!range.as_ref().is_some_and(|range| matches!(range.kind, Kind::Host(_))))?;
    let range = range.filter(|range| range.start == start && matches!(range.kind, Kind::Registered(_)));
    let range = range.ok_or(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)?;
    let result = synchronise_users(&range);
    memory::unregister(start);
    result
}

/// The flags of pinned host memory.
fn host_flags(pointer: *mut c_void) -> Outcome<c_uint> {
    match memory::find(pointer.addr() as u64).map(|range| range.kind) {
        Some(Kind::Host(flags) | Kind::Registered(flags)) => Ok(flags | DEVICE_MAP),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuMemHostGetDevicePointer_v2(
    address: *mut CUdeviceptr,
    pointer: *mut c_void,
    flags: c_uint,
) -> Outcome {
    context::current()?;
    require(flags == 0)?;
    host_flags(pointer)?;
    give(address, CUdeviceptr_v2(pointer.addr() as u64))
}

pub(crate) unsafe fn cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void) -> Outcome {
    context::current()?;
    give(flags, host_flags(pointer)?)
}
