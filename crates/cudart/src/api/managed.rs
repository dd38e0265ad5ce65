//! Managed memory: one address for host and device.

use super::forward;
use crate::convert::{address, at_mut, same};
use crate::types::*;
use core::ffi::{c_uint, c_ulonglong, c_void};

forward! {
    fn cudaMallocManaged(pointer: *mut *mut c_void, size: usize, flags: c_uint)
        => cuMemAllocManaged(at_mut(pointer), size, flags);
    fn cudaMemPrefetchAsync(
        pointer: *const c_void, count: usize, location: cudaMemLocation, flags: c_uint, stream: cudaStream_t,
    ) => cuMemPrefetchAsync_v2(address(pointer), count, same(location), flags, stream);
    fn cudaMemAdvise(pointer: *const c_void, count: usize, advice: cudaMemoryAdvise, location: cudaMemLocation)
        => cuMemAdvise_v2(address(pointer), count, same(advice), same(location));
    fn cudaMemRangeGetAttribute(
        data: *mut c_void, size: usize, attribute: cudaMemRangeAttribute, pointer: *const c_void, count: usize,
    ) => cuMemRangeGetAttribute(data, size, same(attribute), address(pointer), count);
    fn cudaMemRangeGetAttributes(
        data: *mut *mut c_void, sizes: *mut usize, attributes: *mut cudaMemRangeAttribute, attribute_count: usize,
        pointer: *const c_void, count: usize,
    ) => cuMemRangeGetAttributes(data, sizes, at_mut(attributes), attribute_count, address(pointer), count);
    fn cudaMemPrefetchBatchAsync(
        pointers: *mut *mut c_void, sizes: *mut usize, count: usize, locations: *mut cudaMemLocation,
        location_indices: *mut usize, location_count: usize, flags: c_ulonglong, stream: cudaStream_t,
    ) => cuMemPrefetchBatchAsync(
        at_mut(pointers), sizes, count, at_mut(locations), location_indices, location_count, flags, stream
    );
    fn cudaMemDiscardBatchAsync(
        pointers: *mut *mut c_void, sizes: *mut usize, count: usize, flags: c_ulonglong, stream: cudaStream_t,
    ) => cuMemDiscardBatchAsync(at_mut(pointers), sizes, count, flags, stream);
    fn cudaMemDiscardAndPrefetchBatchAsync(
        pointers: *mut *mut c_void, sizes: *mut usize, count: usize, locations: *mut cudaMemLocation,
        location_indices: *mut usize, location_count: usize, flags: c_ulonglong, stream: cudaStream_t,
    ) => cuMemDiscardAndPrefetchBatchAsync(
        at_mut(pointers), sizes, count, at_mut(locations), location_indices, location_count, flags, stream
    );
}

/// As programs before CUDA 13 name a place: a device, or the host as -1.
pub(super) fn location_of(device: core::ffi::c_int) -> cudaMemLocation {
    /// `cudaCpuDeviceId`.
    const HOST: core::ffi::c_int = -1;
    let type_ = if device == HOST {
        cudaMemLocationType::cudaMemLocationTypeHost
    } else {
        cudaMemLocationType::cudaMemLocationTypeDevice
    };
    cudaMemLocation { type_, id: if device == HOST { 0 } else { device } }
}
