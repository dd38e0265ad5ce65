//! Instructions of a thousand calls of a function that does nothing, on the stub driver: directly, forwarded
//! by the shim, and counted by the shim. The differences are the shim's.

#![allow(missing_docs, unused_qualifications, reason = "gungraun's macros make such items")]

use core::ffi::c_void;
use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUfunction, CUstream};
use detshare_cuda::{Driver, entry};
use gungraun::{LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use std::hint::black_box;
use std::path::PathBuf;

const CALLS: usize = 1000;

fn built(name: &str) -> PathBuf {
    let folder = std::env::var_os("DETSHARE_BUILT").expect("`cargo xtask bench` says where the libraries are");
    PathBuf::from(folder).join(name)
}

fn open(name: &str) -> Driver {
    // SAFETY: there is no other thread yet.
    unsafe { std::env::set_var("DETSHARE_DRIVER", built("libdetshare_stub_driver.so")) };
    Driver::open(&built(name), Visibility::Local).expect("built by `cargo xtask bench`")
}

#[library_benchmark]
#[bench::direct(open("libdetshare_stub_driver.so"))]
#[bench::through_shim(open("libdetshare_shim.so"))]
fn forward(driver: Driver) {
    let function = driver.function(entry::cuCtxGetFlags).expect("in the table");
    let mut flags = 0;
    for _ in 0..CALLS {
        // SAFETY: a place to write to.
        black_box(unsafe { black_box(function)(&raw mut flags) });
    }
}

#[library_benchmark]
#[bench::direct(open("libdetshare_stub_driver.so"))]
#[bench::through_shim(open("libdetshare_shim.so"))]
fn observed(driver: Driver) {
    let function = driver.function(entry::cuLaunchKernel).expect("in the table");
    let (kernel, stream) = (CUfunction(core::ptr::null_mut()), CUstream(core::ptr::null_mut()));
    let none: *mut *mut c_void = core::ptr::null_mut();
    for _ in 0..CALLS {
        // SAFETY: the stub driver looks at none of its arguments.
        black_box(unsafe { black_box(function)(kernel, 1, 1, 1, 1, 1, 1, 0, stream, none, none) });
    }
}

library_benchmark_group!(name = calls; benchmarks = forward, observed);
main!(config = LibraryBenchmarkConfig::default().pass_through_env("DETSHARE_BUILT"), library_benchmark_groups = calls);
