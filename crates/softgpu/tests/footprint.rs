//! What the library takes of the system for what a program allocates: no more than a tenth on top, and nothing that is
//! freed. The start is printed, not judged: `cargo test --test footprint -- --nocapture`.

use detshare_cuda::driver::Visibility;
use detshare_cuda::types::{CUcontext, CUdevice_v1, CUdeviceptr, CUdeviceptr_v2, CUresult, CUstream};
use detshare_cuda::{Driver, entry};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Calls a function of the driver by its name, which must succeed.
macro_rules! ok {
    ($driver:expr, $function:ident($($argument:expr),*)) => {{
        let function = $driver.function(entry::$function).expect(stringify!($function));
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are the test's own, a line away")]
        // SAFETY: places to write to, and memory of the test's own.
        let result = unsafe { function($($argument),*) };
        assert_eq!(result, CUresult::CUDA_SUCCESS, stringify!($function));
    }};
}

const MIB: usize = 1 << 20;
/// What is neither the program's nor the library's: stacks, the allocator, pages of code.
const SLACK: usize = 6 * MIB;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux says how a process is");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("with its memory");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number") * 1024
}

fn alloc(driver: &Driver, bytes: usize) -> CUdeviceptr {
    let mut memory = CUdeviceptr_v2(0);
    ok!(driver, cuMemAlloc_v2(&raw mut memory, bytes));
    ok!(driver, cuMemsetD8_v2(memory, 1, bytes));
    memory
}

/// Fails where more is in memory than `wanted` and a tenth on top of `base`.
fn judge(what: &str, base: usize, wanted: usize) {
    let (now, most) = (resident(), base + wanted + wanted / 10 + SLACK);
    println!("{what}: {} MiB for {} MiB", now.saturating_sub(base) / MIB, wanted / MIB);
    assert!(now <= most, "{what}: {now} bytes where {most} are allowed");
}

fn open() -> Driver {
    let folder = std::env::var_os("DETSHARE_BUILT")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"), PathBuf::from);
    let path = folder.join("libdetshare_softgpu.so").canonicalize();
    let path = path.expect("run the tests by `cargo xtask test`, which builds the library");
    Driver::open(&path, Visibility::Local).expect("the software GPU is a driver")
}

#[test]
fn a_program_pays_for_what_it_allocates() {
    let started = Instant::now();
    let driver = open();
    let opened = started.elapsed();
    ok!(driver, cuInit(0));
    let mut context = CUcontext(core::ptr::null_mut());
    ok!(driver, cuCtxCreate_v2(&raw mut context, 0, CUdevice_v1(0)));
    let ready = started.elapsed();
    let first = alloc(&driver, 1);
    println!("opened after {opened:?}, context after {ready:?}, memory after {:?}", started.elapsed());
    let base = resident();

    // Large ones, whole and gone.
    let large: Vec<_> = (0..8).map(|_| alloc(&driver, 32 * MIB)).collect();
    judge("8 of 32 MiB", base, 256 * MIB);
    for memory in large {
        ok!(driver, cuMemFree_v2(memory));
    }
    judge("freed", base, 0);

    // Memory that is not touched takes nothing.
    let mut untouched = CUdeviceptr_v2(0);
    ok!(driver, cuMemAlloc_v2(&raw mut untouched, 100 << 30));
    judge("100 GiB that nobody touches", base, 0);
    ok!(driver, cuMemFree_v2(untouched));

    // Many small ones, every other one freed again and again: nothing grows.
    for round in 0..5 {
        let small: Vec<_> = (0..2_000).map(|index| alloc(&driver, 512 * (1 + (index * 7 + round) % 40))).collect();
        let bytes = (0..2_000).map(|index| 512 * (1 + (index * 7 + round) % 40)).sum();
        judge("2,000 small ones", base, bytes);
        let (even, odd): (Vec<_>, Vec<_>) = small.into_iter().enumerate().partition(|(index, _)| index % 2 == 0);
        for (_, memory) in even.into_iter().chain(odd) {
            ok!(driver, cuMemFree_v2(memory));
        }
    }
    judge("all small ones freed", base, 0);

    // In a stream's order, pinned, and managed.
    let stream = CUstream(core::ptr::null_mut());
    for _ in 0..50 {
        let mut memory = CUdeviceptr_v2(0);
        ok!(driver, cuMemAllocAsync(&raw mut memory, 8 * MIB, stream));
        ok!(driver, cuMemsetD8Async(memory, 1, 8 * MIB, stream));
        ok!(driver, cuMemFreeAsync(memory, stream));
        let mut host = core::ptr::null_mut();
        ok!(driver, cuMemHostAlloc(&raw mut host, 4 * MIB, 0));
        ok!(driver, cuMemcpyDtoH_v2(host, first, 1));
        ok!(driver, cuMemFreeHost(host));
        ok!(driver, cuMemAllocManaged(&raw mut memory, 4 * MIB, 1));
        ok!(driver, cuMemsetD8_v2(memory, 1, 4 * MIB));
        ok!(driver, cuMemFree_v2(memory));
    }
    ok!(driver, cuCtxSynchronize());
    judge("50 rounds of pool, pinned and managed memory", base, 0);

    // What is left alive goes with its context.
    alloc(&driver, 64 * MIB);
    ok!(driver, cuCtxDestroy_v2(context));
    judge("the context destroyed", base, 0);
}
