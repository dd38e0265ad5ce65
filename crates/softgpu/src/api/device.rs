//! The device.

use super::{require, text};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::device::{self, settings};
use core::ffi::{c_char, c_int, c_uint};
use detshare_cuda::types::{CUcontext, CUdevice, CUdevice_attribute, CUdevice_v1, CUdevprop, CUresult, CUuuid};

const PCI_BUS_ID: &str = "0000:53:00.0";

/// The one device has the number 0.
pub(super) fn only(device: CUdevice) -> Outcome {
    if device.0 == 0 { Ok(()) } else { Err(CUresult::CUDA_ERROR_INVALID_DEVICE) }
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
    only(CUdevice_v1(ordinal))?;
    give(device, CUdevice_v1(ordinal))
}

pub(crate) unsafe fn cuDeviceGetCount(count: *mut c_int) -> Outcome {
    give(count, 1)
}

pub(crate) unsafe fn cuDeviceGetName(name: *mut c_char, room: c_int, device: CUdevice) -> Outcome {
    only(device)?;
    give_text(name, room, device::NAME)
}

pub(crate) unsafe fn cuDeviceGetUuid(uuid: *mut CUuuid, device: CUdevice) -> Outcome {
    only(device)?;
    #[allow(clippy::cast_possible_wrap, reason = "C's characters are bytes")]
    give(uuid, CUuuid { bytes: device::UUID.map(|byte| byte as c_char) })
}

pub(crate) unsafe fn cuDeviceGetUuid_v2(uuid: *mut CUuuid, device: CUdevice) -> Outcome {
    cuDeviceGetUuid(uuid, device)
}

pub(crate) unsafe fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) -> Outcome {
    only(device)?;
    give(bytes, usize::try_from(settings().memory).unwrap_or(usize::MAX))
}

pub(crate) unsafe fn cuDeviceGetAttribute(
    value: *mut c_int,
    attribute: CUdevice_attribute,
    device: CUdevice,
) -> Outcome {
    only(device)?;
    give(value, device::attribute(attribute).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
}

pub(crate) unsafe fn cuDeviceComputeCapability(major: *mut c_int, minor: *mut c_int, device: CUdevice) -> Outcome {
    only(device)?;
    give(major, 9)?;
    give(minor, 0)
}

pub(crate) unsafe fn cuDeviceGetProperties(properties: *mut CUdevprop, device: CUdevice) -> Outcome {
    only(device)?;
    let value = |attribute| device::attribute(attribute).unwrap_or(0);
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
    only(device)?;
    give_text(id, room, PCI_BUS_ID)
}

pub(crate) unsafe fn cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char) -> Outcome {
    if !PCI_BUS_ID.contains(text(id)?) {
        return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
    }
    give(device, CUdevice_v1(0))
}

pub(crate) unsafe fn cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice) -> Outcome {
    only(device)?;
    only(peer)?;
    give(can, 0)
}

pub(crate) unsafe fn cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice) -> Outcome {
    only(device)?;
    require(!context.is_null())?;
    give(context, CUcontext(super::as_pointer(context::retain_primary().handle)))
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease(device: CUdevice) -> Outcome {
    only(device)?;
    context::release_primary()
}

pub(crate) unsafe fn cuDevicePrimaryCtxRelease_v2(device: CUdevice) -> Outcome {
    cuDevicePrimaryCtxRelease(device)
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset(device: CUdevice) -> Outcome {
    only(device)?;
    context::reset_primary()
}

pub(crate) unsafe fn cuDevicePrimaryCtxReset_v2(device: CUdevice) -> Outcome {
    cuDevicePrimaryCtxReset(device)
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags(device: CUdevice, flags: c_uint) -> Outcome {
    only(device)?;
    require(flags & !super::context::ALL_FLAGS == 0)?;
    context::set_primary_flags(flags);
    Ok(())
}

pub(crate) unsafe fn cuDevicePrimaryCtxSetFlags_v2(device: CUdevice, flags: c_uint) -> Outcome {
    cuDevicePrimaryCtxSetFlags(device, flags)
}

pub(crate) unsafe fn cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int) -> Outcome {
    only(device)?;
    let (flags_now, is_active) = context::primary_state();
    give(flags, flags_now)?;
    give(active, c_int::from(is_active))
}
