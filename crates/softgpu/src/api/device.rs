//! The devices.

use super::{require, text};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::device::{self, settings};
use core::ffi::{c_char, c_int, c_uint};
use detshare_cuda::types::{
    CUcontext, CUdevice, CUdevice_attribute, CUdevice_v1, CUdevprop, CUexecAffinityType, CUresult, CUuuid,
};

/// The device's number, which counts from 0.
pub(super) fn number(device: CUdevice) -> Outcome<usize> {
    usize::try_from(device.0)
        .ok()
        .filter(|number| *number < settings().devices)
        .ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)
}

/// The handle of a device.
pub(super) fn handle_of(number: usize) -> CUdevice {
    CUdevice_v1(c_int::try_from(number).unwrap_or(c_int::MAX))
}

fn bus_id(number: usize) -> String {
    format!("0000:{:02X}:00.0", device::bus(number))
}

/// Writes as much of a text as fits, with its terminator.
unsafe fn give_text(place: *mut c_char, room: c_int, text: &str) -> Outcome {
    let room = usize::try_from(room).unwrap_or(0);
    require(!place.is_null() && room > 0)?;
    let length = text.len().min(room - 1);
    core::ptr::copy_nonoverlapping(text.as_ptr().cast(), place, length);
    place.add(length).write(0);
    Ok(())
}

pub(crate) unsafe fn cuDeviceGet(device: *mut CUdevice, ordinal: c_int) -> Outcome {
    number(CUdevice_v1(ordinal))?;
    give(device, CUdevice_v1(ordinal))
}

pub(crate) unsafe fn cuDeviceGetCount(count: *mut c_int) -> Outcome {
    give(count, handle_of(settings().devices).0)
}

pub(crate) unsafe fn cuDeviceGetName(name: *mut c_char, room: c_int, device: CUdevice) -> Outcome {
    number(device)?;
    give_text(name, room, device::NAME)
}

pub(crate) unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> Outcome {
    let device = number(device)?;
    #[allow(clippy::cast_possible_wrap, reason = "C's characters are bytes")]
    give(uuid, CUuuid { bytes: device::uuid(device).map(|byte| byte as c_char) })
}

pub(crate) unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> Outcome {
    cuDeviceGetUuid(uuid, device)
}

pub(crate) unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> Outcome {
    number(device)?;
    give(bytes, usize::try_from(settings().memory).unwrap_or(usize::MAX))
}

pub(crate) unsafe fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Outcome {
    let device = number(device)?;
    give(value, device::attribute(device, attribute).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
}

pub(crate) unsafe fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) -> Outcome {
    number(device)?;
    give(major, 9)?;
    give(minor, 0)
}

pub(crate) unsafe fn cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice) -> Outcome {
    let device = number(device)?;
    let value = |attribute| device::attribute(device, attribute).unwrap_or(0);
    let signed = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let properties_now = CUdevprop {
        maxThreadsPerBlock: signed(device::MOST_THREADS_PER_BLOCK),
        maxThreadsDim: device::MOST_BLOCK.map(signed),
        maxGridSize: device::MOST_GRID.map(signed),
        sharedMemPerBlock: signed(device::SHARED_PER_BLOCK),
        totalConstantMemory: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY),
        SIMDWidth: signed(device::WARP),
        memPitch: i32::MAX,
        regsPerBlock: signed(device::REGISTERS_PER_SM),
        clockRate: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        textureAlign: value(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT),
    };
    give(properties, properties_now)
}

pub(crate) unsafe fn cuDeviceGetPCIBusId(id: *mut c_char, room: c_int, device: CUdevice) -> Outcome {
    give_text(id, room, &bus_id(number(device)?))
}

pub(crate) unsafe fn cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) -> Outcome {
    let id = text(id)?.to_uppercase();
    let is_meant = |number: &usize| !id.is_empty() && bus_id(*number).ends_with(&id);
    let found = (0..settings().devices).find(is_meant).ok_or(CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    give(device, handle_of(found))
}

pub(crate) unsafe fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> Outcome {
    let device = number(device)?;
    require(!context.is_null())?;
    give(context, CUcontext(super::as_pointer(context::retain_primary(device)?.handle)))
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease(device: CUdevice) -> Outcome {
    context::release_primary(number(device)?)
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Outcome {
    cuDevicePrimaryCtxRelease(device)
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset(device: CUdevice) -> Outcome {
    context::reset_primary(number(device)?)
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> Outcome {
    cuDevicePrimaryCtxReset(device)
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) -> Outcome {
    let device = number(device)?;
    require(flags & !super::context::ALL_FLAGS == 0)?;
    context::set_primary_flags(device, flags);
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> Outcome {
    cuDevicePrimaryCtxSetFlags(device, flags)
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Outcome {
    let (flags_now, is_active) = context::primary_state(number(device)?);
    give(flags, flags_now)?;
    give(active, c_int::from(is_active))
}

/// Whole processes get their share of SMs from MPS, which is not here.
pub(crate) unsafe fn cuDeviceGetExecAffinitySupport(
    supported: *mut c_int,
    kind: CUexecAffinityType,
    device: CUdevice,
) -> Outcome {
    number(device)?;
    require(kind == CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT)?;
    give(supported, 0)
}
