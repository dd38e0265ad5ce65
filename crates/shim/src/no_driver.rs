//! What a program hears where there is no usable driver: the codes that a driver itself gives.

use crate::boundary::guarded;
use crate::{replace, resolve};
use core::ffi::{CStr, c_char, c_int, c_void};
use detshare_cuda::types::{CUdriverProcAddressQueryResult, CUresult};
use detshare_cuda::{DriverError, ProcAddress, entry, result_name};

/// What takes the place of the function with that index.
pub(crate) fn answer(index: usize) -> *mut c_void {
    const NAME: usize = entry::cuGetErrorName.index();
    const STRING: usize = entry::cuGetErrorString.index();
    const PROC_ADDRESS: usize = entry::cuGetProcAddress.index();
    const PROC_ADDRESS_V2: usize = entry::cuGetProcAddress_v2.index();
    match index {
        NAME | STRING => error_name as *mut c_void,
        PROC_ADDRESS => replace::without_driver as *mut c_void,
        PROC_ADDRESS_V2 => replace::without_driver_v2 as *mut c_void,
        _ => refuse as *mut c_void,
    }
}

/// Takes the place of every other function. It can be called with any arguments: it looks at none.
pub(crate) extern "C" fn refuse() -> CUresult {
    match resolve::opened() {
        Some(Err(error)) => code(error),
        _ => CUresult::CUDA_ERROR_UNKNOWN,
    }
}

/// Nothing there to find is "no device"; something there that cannot be used is "not ready".
fn code(error: &DriverError) -> CUresult {
    match error {
        DriverError::NotFound(_) => CUresult::CUDA_ERROR_NO_DEVICE,
        DriverError::NotAbsolute(_)
        | DriverError::NotLoadable { .. }
        | DriverError::NotADriver(_)
        | DriverError::StandIn(_)
        | DriverError::Refused { .. }
        | DriverError::TooOld { .. } => CUresult::CUDA_ERROR_SYSTEM_NOT_READY,
    }
}

/// The code's name, which also serves as its text: a program that prints why `cuInit` failed needs one.
unsafe extern "C" fn error_name(error: CUresult, text: *mut *const c_char) -> CUresult {
    guarded(CUresult::CUDA_ERROR_UNKNOWN, || {
        if text.is_null() {
            return CUresult::CUDA_ERROR_INVALID_VALUE;
        }
        let name = result_name(error);
        // SAFETY: not NULL, and the caller's promise that it can be written.
        unsafe { *text = name.map_or(core::ptr::null(), CStr::as_ptr) };
        if name.is_some() { CUresult::CUDA_SUCCESS } else { CUresult::CUDA_ERROR_INVALID_VALUE }
    })
}

/// What the table says of a name, version and flags, in the driver's terms.
pub(crate) fn proc_address(name: &CStr, version: c_int, flags: u64) -> (Option<usize>, CUdriverProcAddressQueryResult) {
    let version = u32::try_from(version).unwrap_or(0);
    match name.to_str().map(|name| detshare_cuda::proc_address(name, version, flags)) {
        Ok(ProcAddress::Found(index)) => (Some(index), CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS),
        Ok(ProcAddress::VersionNotSufficient) => {
            (None, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
        }
        Ok(ProcAddress::SymbolNotFound) | Err(_) => {
            (None, CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
        }
    }
}
