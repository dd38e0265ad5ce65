//! Places for memory as programs name them: a device, the host, or a part of the host.

use super::device::number;
use crate::boundary::Outcome;
use crate::memory::managed::Location;
use crate::memory::physical::Accessor;
use detshare_cuda::types::{CUdevice_v1, CUmemLocation, CUmemLocationType as Kind, CUresult};

/// `CU_DEVICE_CPU`.
pub(super) const HOST: i32 = -1;

/// The host is one NUMA node here.
const NODE: i32 = 0;

/// A location that there is; others are refused.
pub(super) fn check(location: CUmemLocation) -> Outcome<Location> {
    let known = match location.type_ {
        Kind::CU_MEM_LOCATION_TYPE_DEVICE => return number(CUdevice_v1(location.id)).map(|_| as_is(location)),
        Kind::CU_MEM_LOCATION_TYPE_HOST | Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => true,
        Kind::CU_MEM_LOCATION_TYPE_HOST_NUMA => location.id == NODE,
        _ => false,
    };
    if known { Ok(as_is(location)) } else { Err(CUresult::CUDA_ERROR_INVALID_VALUE) }
}

fn as_is(location: CUmemLocation) -> Location {
    Location { kind: location.type_.0, id: location.id }
}

/// The location that the older functions name by a device, or -1 for the host.
pub(super) fn of_device(device: CUdevice_v1) -> Outcome<Location> {
    let kind = if device.0 == HOST { Kind::CU_MEM_LOCATION_TYPE_HOST } else { Kind::CU_MEM_LOCATION_TYPE_DEVICE };
    check(CUmemLocation { type_: kind, id: if device.0 == HOST { 0 } else { device.0 } })
}

pub(super) fn is_device(location: Location) -> bool {
    location.kind == Kind::CU_MEM_LOCATION_TYPE_DEVICE.0
}

/// The number that the older functions have for a location: a device, or -1 for the host.
pub(super) fn as_device(location: Location) -> i32 {
    if is_device(location) { location.id } else { HOST }
}

/// Who accesses from there.
pub(super) fn accessor(location: Location) -> Accessor {
    if is_device(location) { Accessor::Device(usize::try_from(location.id).unwrap_or(0)) } else { Accessor::Host }
}
