//! Functions of the driver by name.

use crate::boundary::{Outcome, PER_THREAD, give, require};
use crate::driver::{driver, initialised};
use crate::types::*;
use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::CUdriverProcAddressQueryResult as Query;

/// What "as the program was compiled" means for default streams.
const AS_COMPILED: c_ulonglong = 0;
const LEGACY_STREAM: c_ulonglong = detshare_cuda::LEGACY_STREAM;
const PER_THREAD_STREAM: c_ulonglong = detshare_cuda::PER_THREAD_STREAM;

pub unsafe fn cudaGetDriverEntryPointByVersion(
    default: cudaStream_t,
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: c_uint,
    flags: c_ulonglong,
    status: *mut cudaDriverEntryPointQueryResult,
) -> Outcome {
    require(!symbol.is_null() && !function.is_null() && !CStr::from_ptr(symbol).is_empty())?;
    initialised()?;
    let flags = match flags {
        AS_COMPILED if default == PER_THREAD => PER_THREAD_STREAM,
        AS_COMPILED => LEGACY_STREAM,
        flags => flags,
    };
    let mut found = Query::CU_GET_PROC_ADDRESS_SUCCESS;
    let version = c_int::try_from(version).map_err(|_| cudaError_t::cudaErrorInvalidValue)?;
    driver!(cuGetProcAddress_v2(symbol, function, version, flags, &raw mut found))?;
    if found != Query::CU_GET_PROC_ADDRESS_SUCCESS {
        give(function, null_mut())?;
    }
    if status.is_null() {
        return Ok(());
    }
    give(status, cudaDriverEntryPointQueryResult(found.0))
}

pub unsafe fn cudaGetDriverEntryPoint(
    default: cudaStream_t,
    symbol: *const c_char,
    function: *mut *mut c_void,
    flags: c_ulonglong,
    status: *mut cudaDriverEntryPointQueryResult,
) -> Outcome {
    let mut version = 0;
    driver!(cuDriverGetVersion(&raw mut version))?;
    cudaGetDriverEntryPointByVersion(default, symbol, function, version.unsigned_abs(), flags, status)
}

pub unsafe fn cudaRuntimeGetVersion(version: *mut c_int) -> Outcome {
    /// CUDA 13.0, whose header the functions are from.
    const VERSION: c_int = 13_000;
    give(version, VERSION)
}
