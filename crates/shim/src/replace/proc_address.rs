//! Functions with code of our own in front of the real one.

use crate::boundary::guarded;
use crate::entries::{own_entry, real};
use crate::{no_driver, resolve, stats};
use core::ffi::{CStr, c_char, c_int, c_void};
use detshare_cuda::entry;
use detshare_cuda::types::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};

/// Asks the driver, then hands out our entry for exactly the function that the driver returned.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(entry::cuGetProcAddress)(symbol, pfn, version, flags) };
    // SAFETY: as the driver found them.
    unsafe { hand_out(result, symbol, version, flags, pfn) }
}

/// As `cuGetProcAddress`, from CUDA 12 on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn cuGetProcAddress_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    // SAFETY: the caller's own arguments.
    let result = unsafe { real(entry::cuGetProcAddress_v2)(symbol, pfn, version, flags, status) };
    // SAFETY: as the driver found them.
    unsafe { hand_out(result, symbol, version, flags, pfn) }
}

/// Puts our entry where the driver put its function. One that we do not know stays as it is.
///
/// # Safety
/// `symbol` and `pfn` are as they were given to the driver, which returned `result`.
unsafe fn hand_out(
    result: CUresult,
    symbol: *const c_char,
    version: c_int,
    flags: cuuint64_t,
    pfn: *mut *mut c_void,
) -> CUresult {
    if result != CUresult::CUDA_SUCCESS || pfn.is_null() {
        return result;
    }
    guarded(result, || {
        // SAFETY: the driver has succeeded, so it has written there.
        let address = unsafe { *pfn };
        if let Some(Ok(driver)) = resolve::opened()
            && !address.is_null()
        {
            // SAFETY: the driver has read it as a terminated name.
            let name = unsafe { CStr::from_ptr(symbol) };
            // Functions with the same code may share an address: then the one that was asked for.
            let asked_for = no_driver::proc_address(name, version, flags).0;
            let found =
                asked_for.filter(|index| driver.address(*index) == address).or_else(|| driver.index_of(address));
            match found {
                // SAFETY: the driver has written there just now.
                Some(index) => unsafe { *pfn = own_entry(index) },
                None => stats::handed_out_untouched(name),
            }
        }
        result
    })
}

/// Without a driver: our entry as the table has it, so that the program gets as far as `cuInit` and its code.
///
/// # Safety
/// As for `cuGetProcAddress_v2`.
pub(crate) unsafe extern "C" fn without_driver_v2(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut CUdriverProcAddressQueryResult,
) -> CUresult {
    guarded(CUresult::CUDA_ERROR_UNKNOWN, || {
        if symbol.is_null() || pfn.is_null() {
            return CUresult::CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: not NULL, and the caller's promise that it is a terminated name.
        let name = unsafe { CStr::from_ptr(symbol) };
        let (index, found) = no_driver::proc_address(name, version, flags);
        let address = index.map_or(core::ptr::null_mut(), own_entry);
        // SAFETY: not NULL, and the caller's promise that it can be written.
        unsafe { *pfn = address };
        if !status.is_null() {
            // SAFETY: not NULL, and the caller's promise that it can be written.
            unsafe { *status = found };
        }
        CUresult::CUDA_SUCCESS
    })
}

/// As `without_driver_v2`, for the older signature: what is not found is an error there.
///
/// # Safety
/// As for `cuGetProcAddress`.
pub(crate) unsafe extern "C" fn without_driver(
    symbol: *const c_char,
    pfn: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> CUresult {
    let mut status = CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
    // SAFETY: the caller's own arguments, and a status of ours.
    let result = unsafe { without_driver_v2(symbol, pfn, version, flags, &raw mut status) };
    if result == CUresult::CUDA_SUCCESS && status != CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS {
        return CUresult::CUDA_ERROR_NOT_FOUND;
    }
    result
}
