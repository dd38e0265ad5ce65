//! `cuGetProcAddress` through the shim and without it, side by side.

use crate::library::Library;
use anyhow::{Result, ensure};
use core::ffi::c_void;
use detshare_cuda::types::{CUdriverProcAddressQueryResult, CUresult};
use detshare_cuda::{entry, functions};
use std::collections::{BTreeSet, HashMap};
use std::ffi::CString;

/// Versions beside those that brought a function: none, before the first, between, and newer than any driver.
const OTHER_VERSIONS: [u32; 5] = [0, 1_000, 9_999, 13_010, 99_000];
/// The three flags, both stream flags together, and one that does not exist.
const FLAGS: [u64; 5] = [0, 1, 2, 3, 8];
const NO_FUNCTIONS: [&str; 3] = ["", "cuNoSuchFunction", "cudaMalloc"];

/// What one query gives.
#[derive(Debug, PartialEq)]
struct Answer {
    result: CUresult,
    address: *mut c_void,
    status: CUdriverProcAddressQueryResult,
}

/// What stands where nothing was written.
const UNWRITTEN: usize = 0x5151;

pub(crate) fn check(shim: &Library, driver: &Library) -> Result<String> {
    // Functions with the same code may share an address in the driver; each has an entry of its own here.
    let mut own: HashMap<_, Vec<_>> = HashMap::new();
    for function in functions().iter().filter(|function| !driver.symbol(function.name).is_null()) {
        own.entry(driver.symbol(function.name)).or_default().push(shim.symbol(function.name));
    }
    let init = shim.function(entry::cuInit)?;
    // SAFETY: takes flags.
    let initialised = unsafe { init(0) };
    ensure!(initialised == CUresult::CUDA_SUCCESS, "cuInit returned {initialised:?}");

    let names: BTreeSet<_> =
        functions().iter().flat_map(|function| [function.name, function.base]).chain(NO_FUNCTIONS).collect();
    let versions: BTreeSet<_> = functions().iter().map(|function| function.since).chain(OTHER_VERSIONS).collect();
    let (mut compared, mut handed_out) = (0, 0);
    for name in names {
        let name = CString::new(name)?;
        for version in &versions {
            for flags in FLAGS {
                for newer_signature in [true, false] {
                    let ask = |library: &Library| ask(library, &name, *version, flags, newer_signature);
                    let (ours, theirs) = (ask(shim)?, ask(driver)?);
                    let entries = own.get(&theirs.address);
                    let address = match entries {
                        Some(entries) => *entries.iter().find(|it| **it == ours.address).unwrap_or(&entries[0]),
                        None => theirs.address,
                    };
                    let expected = Answer { address, ..theirs };
                    ensure!(
                        ours == expected,
                        "{name:?} at {version} with flags {flags}: the shim says {ours:?} instead of {expected:?}"
                    );
                    compared += 1;
                    handed_out += u32::from(entries.is_some());
                }
            }
        }
    }
    ensure!(handed_out > 0, "the driver handed out no function that the table knows");
    Ok(format!("{compared} queries answered as the driver does, {handed_out} with the shim's entry for its function"))
}

fn ask(library: &Library, name: &CString, version: u32, flags: u64, newer_signature: bool) -> Result<Answer> {
    let version = i32::try_from(version)?;
    let mut address = core::ptr::without_provenance_mut(UNWRITTEN);
    let mut status = CUdriverProcAddressQueryResult(u32::MAX);
    let result = if newer_signature {
        let ask = library.function(entry::cuGetProcAddress_v2)?;
        // SAFETY: a terminated name and places to write to.
        unsafe { ask(name.as_ptr(), &raw mut address, version, flags, &raw mut status) }
    } else {
        let ask = library.function(entry::cuGetProcAddress)?;
        // SAFETY: a terminated name and a place to write to.
        unsafe { ask(name.as_ptr(), &raw mut address, version, flags) }
    };
    Ok(Answer { result, address, status })
}
