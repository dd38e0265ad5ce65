//! Devices, limits, peers, versions and profiling.

use super::forward;
use crate::boundary::{Outcome, forget_last, give, require};
use crate::context;
use crate::convert::{at, at_mut, same};
use crate::driver::{driver, initialised};
use crate::types::*;
use core::ffi::{c_char, c_int, c_uint};
use core::ptr::null_mut;
use detshare_cuda::types::{CUcontext, CUdevice_v1};

forward! {
    fn cudaDeviceGetCacheConfig(config: *mut cudaFuncCache) => cuCtxGetCacheConfig(at_mut(config));
    fn cudaDeviceSetCacheConfig(config: cudaFuncCache) => cuCtxSetCacheConfig(same(config));
    fn cudaDeviceGetLimit(value: *mut usize, limit: cudaLimit) => cuCtxGetLimit(value, same(limit));
    fn cudaDeviceSetLimit(limit: cudaLimit, value: usize) => cuCtxSetLimit(same(limit), value);
    fn cudaDeviceGetSharedMemConfig(config: *mut cudaSharedMemConfig) => cuCtxGetSharedMemConfig(at_mut(config));
    fn cudaDeviceSetSharedMemConfig(config: cudaSharedMemConfig) => cuCtxSetSharedMemConfig(same(config));
    fn cudaProfilerStart() => cuProfilerStart();
    fn cudaProfilerStop() => cuProfilerStop();
    fn cudaDeviceGetP2PAttribute(value: *mut c_int, attribute: cudaDeviceP2PAttr, from: c_int, to: c_int)
        => cuDeviceGetP2PAttribute(value, same(attribute), context::handle(from)?, context::handle(to)?);
    fn cudaDeviceGetHostAtomicCapabilities(
        capabilities: *mut c_uint, operations: *const cudaAtomicOperation, count: c_uint, device: c_int,
    ) => cuDeviceGetHostAtomicCapabilities(capabilities, at(operations), count, context::handle(device)?);
    fn cudaDeviceGetP2PAtomicCapabilities(
        capabilities: *mut c_uint, operations: *const cudaAtomicOperation, count: c_uint, from: c_int, to: c_int,
    ) => cuDeviceGetP2PAtomicCapabilities(
        capabilities, at(operations), count, context::handle(from)?, context::handle(to)?
    );
    fn cudaDeviceEnablePeerAccess(peer: c_int, flags: c_uint) => cuCtxEnablePeerAccess(context::primary(peer)?, flags);
    fn cudaDeviceDisablePeerAccess(peer: c_int) => cuCtxDisablePeerAccess(context::primary(peer)?);
}

pub unsafe fn cudaGetDeviceCount(count: *mut c_int) -> Outcome {
    require(!count.is_null())?;
    let found = context::count();
    give(count, *found.as_ref().unwrap_or(&0))?;
    match found? {
        0 => Err(cudaError_t::cudaErrorNoDevice),
        _ => Ok(()),
    }
}

pub unsafe fn cudaGetDevice(device: *mut c_int) -> Outcome {
    give(device, context::device()?)
}

pub unsafe fn cudaSetDevice(device: c_int) -> Outcome {
    context::choose(device)
}

/// Without a choice of its own, a thread takes the first of them.
pub unsafe fn cudaSetValidDevices(devices: *mut c_int, count: c_int) -> Outcome {
    let count = usize::try_from(count).map_err(|_| cudaError_t::cudaErrorInvalidValue)?;
    if count == 0 {
        return Ok(());
    }
    require(!devices.is_null())?;
    let devices = core::slice::from_raw_parts(devices, count);
    devices.iter().try_for_each(|device| context::handle(*device).map(drop))?;
    context::choose(devices[0])
}

pub unsafe fn cudaInitDevice(device: c_int, device_flags: c_uint, flags: c_uint) -> Outcome {
    /// `cudaInitDeviceFlagsAreValid`.
    const FLAGS_ARE_VALID: c_uint = 1;
    require(flags & !FLAGS_ARE_VALID == 0)?;
    if flags & FLAGS_ARE_VALID != 0 {
        context::set_flags(device, device_flags & CONTEXT_FLAGS)?;
    }
    context::primary(device).map(drop)
}

/// Of the runtime's flags, those that a context has.
const CONTEXT_FLAGS: c_uint = 0x1f;

pub unsafe fn cudaSetDeviceFlags(flags: c_uint) -> Outcome {
    /// `cudaDeviceMask`.
    const ALL_FLAGS: c_uint = 0xff;
    require(flags & !ALL_FLAGS == 0)?;
    context::set_flags(context::device()?, flags & CONTEXT_FLAGS)
}

pub unsafe fn cudaGetDeviceFlags(flags: *mut c_uint) -> Outcome {
    /// `cudaDeviceMapHost`: always possible.
    const MAP_HOST: c_uint = 8;
    let (mut of_context, mut is_active) = (0, 0);
    let device = context::handle(context::device()?)?;
    driver!(cuDevicePrimaryCtxGetState(device, &raw mut of_context, &raw mut is_active))?;
    give(flags, of_context | MAP_HOST)
}

pub unsafe fn cudaDeviceSynchronize() -> Outcome {
    context::ready()?;
    driver!(cuCtxSynchronize())
}

pub unsafe fn cudaDeviceReset() -> Outcome {
    context::reset()?;
    forget_last();
    Ok(())
}

pub unsafe fn cudaDeviceGetByPCIBusId(device: *mut c_int, name: *const c_char) -> Outcome {
    initialised()?;
    let mut found = CUdevice_v1(0);
    driver!(cuDeviceGetByPCIBusId(&raw mut found, name))?;
    give(device, found.0)
}

pub unsafe fn cudaDeviceGetPCIBusId(name: *mut c_char, length: c_int, device: c_int) -> Outcome {
    driver!(cuDeviceGetPCIBusId(name, length, context::handle(device)?))
}

pub unsafe fn cudaDeviceCanAccessPeer(can: *mut c_int, device: c_int, peer: c_int) -> Outcome {
    driver!(cuDeviceCanAccessPeer(can, context::handle(device)?, context::handle(peer)?))
}

pub unsafe fn cudaDriverGetVersion(version: *mut c_int) -> Outcome {
    // Without a driver there is no version, and that is no error.
    let found = (|| driver!(cuDriverGetVersion(version)))();
    if found == Err(cudaError_t::cudaErrorInsufficientDriver) { give(version, 0) } else { found }
}

/// No context at all: what a program that gives one back leaves.
pub(super) const NO_CONTEXT: CUcontext = CUcontext(null_mut());

/// The context in which a graph's node is to run.
pub(super) unsafe fn current_context() -> Outcome<CUcontext> {
    let mut current = NO_CONTEXT;
    driver!(cuCtxGetCurrent(&raw mut current))?;
    Ok(current)
}
