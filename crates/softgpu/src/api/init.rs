//! Initialisation, versions, errors and entry points.

use super::text;
use crate::boundary::{Outcome, give, give_if_asked, initialise, tell};
use crate::device::DRIVER_VERSION;
use crate::exports::ADDRESSES;
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use detshare_cuda::types::{CUdriverProcAddressQueryResult as Query, CUresult, CUuuid, cuuint64_t};
use detshare_cuda::{ProcAddress, proc_address, result_name};
use std::sync::Once;

pub(crate) unsafe fn cuInit(flags: c_uint) -> Outcome {
    super::require(flags == 0)?;
    initialise()
}

pub(crate) unsafe fn cuDriverGetVersion(version: *mut c_int) -> Outcome {
    give(version, DRIVER_VERSION)
}

pub(crate) unsafe fn cuGetErrorName(error: CUresult, name: *mut *const c_char) -> Outcome {
    let known = result_name(error);
    give(name, known.map_or(core::ptr::null(), CStr::as_ptr))?;
    super::require(known.is_some())
}

pub(crate) unsafe fn cuGetErrorString(error: CUresult, string: *mut *const c_char) -> Outcome {
    let known = detshare_cuda::result_text(error);
    give(string, known.map_or(core::ptr::null(), CStr::as_ptr))?;
    super::require(known.is_some())
}

pub(crate) unsafe fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> Outcome {
    let mut status = Query::CU_GET_PROC_ADDRESS_SUCCESS;
    cuGetProcAddress_v2(symbol, pfn, version, flags, &raw mut status)?;
    if status == Query::CU_GET_PROC_ADDRESS_SUCCESS { Ok(()) } else { Err(CUresult::CUDA_ERROR_NOT_FOUND) }
}

pub(crate) unsafe fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut Query,
) -> Outcome {
    const ALL_FLAGS: u64 = 3;
    super::require(version <= DRIVER_VERSION && flags & !ALL_FLAGS == 0)?;
    let found = proc_address(text(symbol)?, u32::try_from(version).unwrap_or(0), flags);
    let (address, query) = match found {
        ProcAddress::Found(index) => (ADDRESSES[index].0.cast_mut(), Query::CU_GET_PROC_ADDRESS_SUCCESS),
        ProcAddress::SymbolNotFound => (core::ptr::null_mut(), Query::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND),
        ProcAddress::VersionNotSufficient => (core::ptr::null_mut(), Query::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT),
    };
    give(pfn, address)?;
    give_if_asked(status, query);
    Ok(())
}

/// There are no private tables. Of those who ask, NVIDIA's own runtime cannot do without: its user is told what can be done.
pub(crate) unsafe fn cuGetExportTable(table: *mut *const c_void, _id: *const CUuuid) -> Outcome {
    static TOLD: Once = Once::new();
    TOLD.call_once(|| {
        tell(format_args!(
            "the program asks for private tables of NVIDIA's driver: it carries NVIDIA's own CUDA runtime, which cannot run \
             here. Start it by `detshare run --device soft`, which brings a runtime that can. That one takes the other's place \
             if the program is not stripped and has it from CUDA 12 or 13 in what is loaded when it starts; otherwise link it by \
             `nvcc -cudart shared` (CMake: CUDA_RUNTIME_LIBRARY Shared)"
        ));
    });
    give(table, core::ptr::null())?;
    Err(CUresult::CUDA_ERROR_NOT_FOUND)
}
