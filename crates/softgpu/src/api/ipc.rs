//! Memory and events of one process in another.

use super::{event, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::event::{DISABLE_TIMING, SharedPoint};
use crate::memory::shared::{self, FileOf};
use crate::memory::{self, Kind};
use core::ffi::{c_char, c_uint};
use detshare_cuda::types::{
    CUdeviceptr, CUdeviceptr_v2, CUevent, CUipcEventHandle, CUipcMem_flags, CUipcMemHandle, CUresult,
};
use std::collections::HashMap;
use std::sync::Mutex;

/// What a handle begins with.
const MEMORY: [u8; 8] = *b"softgpuM";
const EVENT: [u8; 8] = *b"softgpuE";
/// Bytes of a handle.
const HANDLE: usize = 64;

/// Memory of a process, as its handle says it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Exported {
    pub(super) file: FileOf,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) device: u64,
    /// Of the allocation: addresses are used again.
    pub(super) id: u64,
}

impl Exported {
    /// The memory around an address of this process.
    pub(super) fn of(range: &memory::Range) -> Outcome<Self> {
        // Without a file behind the memory no other process can map it.
        let file = shared::own_file().ok_or(CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let (offset, device) = (shared::offset(range.start), range.device as u64);
        Ok(Self { file, offset, size: range.size, device, id: range.id })
    }

    pub(super) fn to_bytes(self, begin: [u8; 8]) -> [u8; HANDLE] {
        let mut bytes = [0; HANDLE];
        bytes[..8].copy_from_slice(&begin);
        bytes[8..24].copy_from_slice(&self.file.to_bytes());
        for (index, number) in [self.offset, self.size, self.device, self.id].into_iter().enumerate() {
            bytes[24 + index * 8..32 + index * 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(super) fn from_bytes(bytes: [u8; HANDLE], begin: [u8; 8]) -> Option<Self> {
        let file = FileOf::from_bytes(bytes[8..24].try_into().ok()?);
        let number = |at: usize| bytes[at..at + 8].try_into().ok().map(u64::from_le_bytes);
        let (offset, size, device, id) = (number(24)?, number(32)?, number(40)?, number(48)?);
        (bytes[..8] == begin).then_some(Self { file, offset, size, device, id })
    }

    /// Maps it into this process.
    pub(super) fn import(&self, context: usize) -> Outcome<u64> {
        let device = usize::try_from(self.device).unwrap_or(usize::MAX);
        require(device < crate::device::settings().devices)?;
        let file = self.file.open().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        shared::import(&file, self.offset, self.size, device, context).ok_or(CUresult::CUDA_ERROR_MAP_FAILED)
    }
}

#[allow(clippy::cast_possible_wrap, reason = "C's characters are bytes")]
fn as_characters(bytes: [u8; HANDLE]) -> [c_char; HANDLE] {
    bytes.map(|byte| byte as c_char)
}

fn as_bytes(characters: [c_char; HANDLE]) -> [u8; HANDLE] {
    characters.map(c_char::cast_unsigned)
}

/// What was opened: how often, and where it lies.
#[derive(Clone, Copy)]
struct Opened {
    from: Exported,
    context: usize,
    times: usize,
}

/// By address.
static OPENED: Mutex<Option<HashMap<u64, Opened>>> = Mutex::new(None);

pub(crate) unsafe fn cuIpcGetMemHandle(handle: *mut CUipcMemHandle, address: CUdeviceptr) -> Outcome {
    context::healthy()?;
    let range = memory::find(address.0).filter(|range| range.kind == Kind::Device);
    let exported = Exported::of(&range.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)?;
    give(handle, CUipcMemHandle { reserved: as_characters(exported.to_bytes(MEMORY)) })
}

pub(crate) unsafe fn cuIpcOpenMemHandle_v2(
    address: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Outcome {
    let context = context::healthy()?;
    require(!address.is_null() && flags == CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0)?;
    let from = Exported::from_bytes(as_bytes(handle.reserved), MEMORY).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if from.file.process == std::process::id() {
        // Memory of this process is there already, under its own address.
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let mut opened = OPENED.lock().expect("no panic while it is held");
    let opened = opened.get_or_insert_default();
    let again = |it: &(&u64, &mut Opened)| it.1.from == from && it.1.context == context.handle;
    if let Some((known, it)) = opened.iter_mut().find(again) {
        it.times += 1;
        return give(address, CUdeviceptr_v2(*known));
    }
    let imported = from.import(context.handle)?;
    context.own(imported);
    opened.insert(imported, Opened { from, context: context.handle, times: 1 });
    give(address, CUdeviceptr_v2(imported))
}

pub(crate) unsafe fn cuIpcOpenMemHandle(address: *mut CUdeviceptr, handle: CUipcMemHandle, flags: c_uint) -> Outcome {
    cuIpcOpenMemHandle_v2(address, handle, flags)
}

pub(crate) unsafe fn cuIpcCloseMemHandle(address: CUdeviceptr) -> Outcome {
    let context = context::current()?;
    let mut opened = OPENED.lock().expect("no panic while it is held");
    let opened = opened.get_or_insert_default();
    let it = opened.get_mut(&address.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    it.times -= 1;
    if it.times > 0 {
        return Ok(());
    }
    opened.remove(&address.0);
    let result = context.synchronise();
    context.disown(address.0);
    memory::free(address.0);
    result
}

pub(crate) unsafe fn cuIpcGetEventHandle(handle: *mut CUipcEventHandle, event: CUevent) -> Outcome {
    let event = crate::event::find(event)?;
    // Another process's event is not this one's to pass on.
    let shared = event.shared.as_ref().filter(|shared| shared.own).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let file = shared.file().ok_or(CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    let mut bytes = [0; HANDLE];
    bytes[..8].copy_from_slice(&EVENT);
    bytes[8..24].copy_from_slice(&file.to_bytes());
    give(handle, CUipcEventHandle { reserved: as_characters(bytes) })
}

pub(crate) unsafe fn cuIpcOpenEventHandle(opened: *mut CUevent, handle: CUipcEventHandle) -> Outcome {
    let context = context::healthy()?;
    let bytes = as_bytes(handle.reserved);
    require(!opened.is_null())?;
    if bytes[..8] != EVENT {
        return Err(CUresult::CUDA_ERROR_MAP_FAILED);
    }
    let file = FileOf::from_bytes(bytes[8..24].try_into().map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?);
    if file.process == std::process::id() {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let shared = SharedPoint::open(&file).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    give(opened, event::insert(context, event::INTERPROCESS | DISABLE_TIMING, Some(shared)))
}
