//! Every function, by every way that leads to it, with all its arguments.

use crate::library::{Library, of};
use crate::pattern::call::{Call, RECORDED, mode};
use crate::pattern::{call_with, compare, pattern};
use anyhow::{Context, Result, bail, ensure};
use core::ffi::c_void;
use detshare_cuda::types::{CUdriverProcAddressQueryResult, CUresult};
use detshare_cuda::{
    DefaultStream, Function, LEGACY_STREAM, PER_THREAD_STREAM, ProcAddress, entry, functions, proc_address,
};
use std::ffi::CString;

/// The stub driver's own functions.
struct Stub {
    set_mode: extern "C" fn(u32),
    last_call: unsafe extern "C" fn(*mut Call) -> bool,
}

pub(crate) fn check(shim: &Library, driver: &Library) -> Result<String> {
    let stub = Stub {
        // SAFETY: the stub driver's function of that type.
        set_mode: unsafe { driver.own_function("stub_driver_set_mode")? },
        // SAFETY: the stub driver's function of that type.
        last_call: unsafe { driver.own_function("stub_driver_last_call")? },
    };
    let first = first_calls(shim, &stub)?;
    let by_name = calls_by_name(shim, &stub)?;
    let by_query = calls_by_query(shim, &stub)?;
    Ok(format!(
        "{first} functions as a process's first call, {by_name} by exported name, {by_query} by cuGetProcAddress: \
         each reached with all arguments"
    ))
}

/// Each function as the first that a process calls, so that the call itself opens the driver. The processes
/// are children forked before the driver was touched.
fn first_calls(shim: &Library, stub: &Stub) -> Result<usize> {
    for (index, function) in functions().iter().enumerate() {
        let address = shim.symbol(function.name);
        // SAFETY: this process has one thread.
        match unsafe { libc::fork() } {
            -1 => bail!("cannot fork: {}", std::io::Error::last_os_error()),
            0 => {
                (stub.set_mode)(mode::RECORD_ONCE_OPEN);
                let failed = match one_call(stub, address, index) {
                    Ok(()) => 0,
                    Err(error) => {
                        eprintln!("{} as first call: {error:#}", function.name);
                        1
                    }
                };
                // SAFETY: ends the child without the parent's exit handlers.
                unsafe { libc::_exit(failed) };
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for the child just made.
                let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
                ensure!(waited == child && status == 0, "{} as first call: child ended with {status}", function.name);
            }
        }
    }
    Ok(functions().len())
}

fn calls_by_name(shim: &Library, stub: &Stub) -> Result<usize> {
    (stub.set_mode)(mode::QUIET);
    let init = shim.function(entry::cuInit)?;
    // SAFETY: takes flags.
    ensure!(unsafe { init(0) } == CUresult::CUDA_SUCCESS, "cuInit failed");
    (stub.set_mode)(mode::RECORD);
    for (index, function) in functions().iter().enumerate() {
        of(function.name, one_call(stub, shim.symbol(function.name), index))?;
    }
    Ok(functions().len())
}

/// By both signatures of `cuGetProcAddress`, at the version that brought the function, just before the next
/// one came, and with every flag that leads to it.
fn calls_by_query(shim: &Library, stub: &Stub) -> Result<usize> {
    let mut calls = 0;
    for (index, function) in functions().iter().enumerate().filter(|(_, function)| function.since != 0) {
        for version in [function.since, last_version(index, function)] {
            for flags in flags(function) {
                for newer_signature in [true, false] {
                    let address = query(shim, stub, function.base, version, flags, newer_signature)
                        .with_context(|| format!("{} at {version} with flags {flags}", function.base))?;
                    ensure!(
                        address == shim.symbol(function.name),
                        "{} at {version} with flags {flags}: not the shim's {}",
                        function.base,
                        function.name
                    );
                    of(function.name, one_call(stub, address, index))?;
                    calls += 1;
                }
            }
        }
    }
    Ok(calls)
}

/// The highest version up to the table's own at which this function is the one that its name leads to.
fn last_version(index: usize, function: &Function) -> u32 {
    let flags = flags(function)[0];
    let versions = functions().iter().map(|it| it.since);
    let mine = |version: &u32| proc_address(function.base, *version, flags) == ProcAddress::Found(index);
    versions.filter(mine).max().expect("at least the version that brought it")
}

/// The flags that lead to a function: per-thread variants by one flag, others by none and the legacy one, and
/// by the per-thread one too where the function has no such variant.
fn flags(function: &Function) -> Vec<u64> {
    if function.default_stream() == DefaultStream::PerThread {
        return vec![PER_THREAD_STREAM, PER_THREAD_STREAM | LEGACY_STREAM];
    }
    let has_variant = functions()
        .iter()
        .any(|other| other.base == function.base && other.default_stream() == DefaultStream::PerThread);
    if has_variant { vec![0, LEGACY_STREAM] } else { vec![0, LEGACY_STREAM, PER_THREAD_STREAM] }
}

fn query(
    shim: &Library,
    stub: &Stub,
    name: &str,
    version: u32,
    flags: u64,
    newer_signature: bool,
) -> Result<*const c_void> {
    let (name, version) = (CString::new(name)?, i32::try_from(version)?);
    let mut address = core::ptr::null_mut();
    let mut status = CUdriverProcAddressQueryResult(u32::MAX);
    (stub.set_mode)(mode::QUIET);
    let result = if newer_signature {
        let ask = shim.function(entry::cuGetProcAddress_v2)?;
        // SAFETY: a terminated name and places to write to.
        unsafe { ask(name.as_ptr(), &raw mut address, version, flags, &raw mut status) }
    } else {
        let ask = shim.function(entry::cuGetProcAddress)?;
        // SAFETY: a terminated name and a place to write to.
        unsafe { ask(name.as_ptr(), &raw mut address, version, flags) }
    };
    (stub.set_mode)(mode::RECORD);
    ensure!(result == CUresult::CUDA_SUCCESS, "cuGetProcAddress returned {result:?}");
    ensure!(!newer_signature || status == CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS, "{status:?}");
    Ok(address)
}

/// One call: the right function, all arguments, and its code comes back.
fn one_call(stub: &Stub, address: *const c_void, index: usize) -> Result<()> {
    ensure!(!address.is_null(), "not exported");
    let sent = pattern(index as u64 + 1);
    // SAFETY: a function that ends in the stub driver, which looks at no argument while it records.
    let result = unsafe { call_with(address, &raw const sent) };
    let mut received = sent;
    // SAFETY: a place to write to.
    ensure!(unsafe { (stub.last_call)(&raw mut received) }, "the driver was not reached; result {result}");
    compare(index, &sent, &received)?;
    ensure!(result == RECORDED + u32::try_from(index)?, "the code {result} came back");
    Ok(())
}
