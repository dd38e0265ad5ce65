//! Finding functions by name, version and flags.

use crate::Outcome;
use crate::call::describe;
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUdriverProcAddressQueryResult as Status, CUresult};
use detshare_cuda::{Driver, LEGACY_STREAM, PER_THREAD_STREAM, ProcAddress, entry, functions, proc_address};
use std::ffi::CString;

tests! { proc_address:
    finds_what_is_exported,
    version_picks_the_signature,
    flags_pick_the_stream_variant,
    version_before_the_function,
    unknown_name,
    bad_arguments,
    older_signature,
    found_function_works,
    finds_itself,
}

/// New enough for green contexts, and known to every driver that the suite is for.
const RECENT: c_int = 12_040;
/// What the table of functions was made from.
const NEWEST_KNOWN: c_int = 13_000;
const DEFAULT: u64 = 0;

fn ask(driver: &Driver, name: &CStr, version: c_int, flags: u64) -> Result<(CUresult, *mut c_void, Status)> {
    let mut address = core::ptr::dangling_mut();
    let mut status = Status(u32::MAX);
    let code = cu!(driver, cuGetProcAddress_v2(name.as_ptr(), &raw mut address, version, flags, &raw mut status));
    Ok((code, address, status))
}

fn finds(driver: &Driver, name: &CStr, version: c_int, flags: u64, expected: usize) -> Outcome {
    let (code, address, status) = ask(driver, name, version, flags)?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{name:?} at {version} gives {}", describe(code));
    ensure!(status == Status::CU_GET_PROC_ADDRESS_SUCCESS, "{name:?} at {version} has the status {status:?}");
    let found = driver.index_of(address).map(|index| functions()[index].name);
    let wanted = functions()[expected].name;
    ensure!(address == driver.address(expected), "{name:?} at {version} is {found:?} instead of {wanted}");
    Ok(())
}

fn finds_what_is_exported(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let mut compared = 0;
    for function in functions().iter().filter(|function| function.since != 0) {
        for flags in [DEFAULT, LEGACY_STREAM, PER_THREAD_STREAM] {
            let version = driver.version().min(NEWEST_KNOWN);
            if let ProcAddress::Found(index) = proc_address(function.base, version.unsigned_abs(), flags) {
                finds(driver, &CString::new(function.base)?, version, flags, index)?;
                compared += 1;
            }
        }
    }
    ensure!(compared > 1_000, "only {compared} answers compared");
    Ok(())
}

fn version_picks_the_signature(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    finds(driver, c"cuMemAlloc", 2_000, DEFAULT, entry::cuMemAlloc.index())?;
    finds(driver, c"cuMemAlloc", 3_020, DEFAULT, entry::cuMemAlloc_v2.index())?;
    finds(driver, c"cuMemAlloc", RECENT, DEFAULT, entry::cuMemAlloc_v2.index())?;
    finds(driver, c"cuCtxSynchronize", RECENT, DEFAULT, entry::cuCtxSynchronize.index())?;
    if driver.version() >= 13_000 {
        finds(driver, c"cuCtxSynchronize", 13_000, DEFAULT, entry::cuCtxSynchronize_v2.index())?;
    }
    Ok(())
}

fn flags_pick_the_stream_variant(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    finds(driver, c"cuLaunchKernel", RECENT, DEFAULT, entry::cuLaunchKernel.index())?;
    finds(driver, c"cuLaunchKernel", RECENT, LEGACY_STREAM, entry::cuLaunchKernel.index())?;
    finds(driver, c"cuLaunchKernel", RECENT, PER_THREAD_STREAM, entry::cuLaunchKernel_ptsz.index())?;
    finds(driver, c"cuMemcpyHtoD", RECENT, PER_THREAD_STREAM, entry::cuMemcpyHtoD_v2_ptds.index())?;
    finds(driver, c"cuMemAlloc", RECENT, PER_THREAD_STREAM, entry::cuMemAlloc_v2.index())
}

fn version_before_the_function(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let (code, address, status) = ask(driver, c"cuGreenCtxCreate", 11_000, DEFAULT)?;
    note!("too old a version gives {}", describe(code));
    ensure!(status == Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, "the status is {status:?}");
    ensure!(address.is_null(), "an address was given");
    Ok(())
}

fn unknown_name(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    for name in [c"cuNoSuchFunction", c"cudaMalloc", c""] {
        let (code, address, status) = ask(driver, name, RECENT, DEFAULT)?;
        note!("{name:?} gives {} and {status:?}", describe(code));
        if code != CUresult::CUDA_ERROR_INVALID_VALUE {
            ensure!(status == Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, "the status is {status:?}");
            ensure!(address.is_null(), "{name:?} has an address");
        }
    }
    Ok(())
}

fn bad_arguments(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let (name, mut address) = (c"cuInit".as_ptr(), null_mut());
    let none = null_mut();
    ok!(driver, cuGetProcAddress_v2(name, &raw mut address, RECENT, DEFAULT, none));
    let (code, _, status) = ask(driver, c"cuInit", RECENT, 0x100)?;
    note!("flags 0x100 give {} and {status:?}", describe(code));
    Ok(())
}

fn older_signature(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let mut address = null_mut();
    ok!(driver, cuGetProcAddress(c"cuLaunchKernel".as_ptr(), &raw mut address, RECENT, PER_THREAD_STREAM));
    ensure!(address == driver.address(entry::cuLaunchKernel_ptsz.index()), "another function");
    let code = noted!(
        driver,
        cuGetProcAddress(c"cuNoSuchFunction".as_ptr(), &raw mut address, RECENT, DEFAULT),
        "unknown name"
    );
    ensure!(code != CUresult::CUDA_SUCCESS || address.is_null(), "an unknown name has an address");
    Ok(())
}

fn found_function_works(driver: &Driver) -> Outcome {
    let (code, address, _) = ask(driver, c"cuDriverGetVersion", RECENT, DEFAULT)?;
    note!("before cuInit: {}", describe(code));
    ensure!(code == CUresult::CUDA_SUCCESS && !address.is_null(), "not found");
    let mut version = 0;
    // SAFETY: the driver said that this is cuDriverGetVersion.
    let get_version = unsafe { detshare_cuda::driver::as_function(entry::cuDriverGetVersion, address) };
    // SAFETY: takes a pointer to an int.
    let code = unsafe { get_version(&raw mut version) };
    ensure!(code == CUresult::CUDA_SUCCESS && version == driver.version(), "{}, {version}", describe(code));
    Ok(())
}

fn finds_itself(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    finds(driver, c"cuGetProcAddress", 11_030, DEFAULT, entry::cuGetProcAddress.index())?;
    finds(driver, c"cuGetProcAddress", RECENT, DEFAULT, entry::cuGetProcAddress_v2.index())
}
