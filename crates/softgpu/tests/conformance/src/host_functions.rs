//! Functions of the host that a stream calls.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NON_BLOCKING, NULL_STREAM};
use anyhow::ensure;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUresult, CUstream};
use detshare_test_child::patience;
use std::time::{Duration, Instant};

tests! { host_functions:
    runs_once,
    runs_after_the_work_before,
    next_work_waits_for_it,
    run_in_order,
    works_in_default_streams,
    runs_in_another_thread,
    callback_knows_stream_and_status,
    callback_runs_in_order_with_kernels,
    callback_takes_no_flags,
    no_function_is_refused,
    calling_the_driver_from_inside,
}

/// What a function of the host did, shared with the driver's thread.
#[derive(Default)]
struct Calls {
    count: AtomicU32,
    /// What was seen at the last call.
    seen: AtomicU32,
    /// Whether it may return.
    released: AtomicBool,
}

impl Calls {
    fn address(&self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

/// # Safety
/// The pointer must be a [`Calls`] that lives until the work of the stream is over.
unsafe fn calls<'a>(data: *mut c_void) -> &'a Calls {
    // SAFETY: the caller's promise.
    unsafe { &*data.cast::<Calls>() }
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: registered with the address of a Calls whose stream is waited for.
    let calls = unsafe { calls(data) };
    calls.count.fetch_add(1, Ordering::SeqCst);
}

/// Does not return before it is released, or for so long that the test has failed anyway.
unsafe extern "C" fn hold(data: *mut c_void) {
    let longest = Duration::from_secs(patience(20).into());
    // SAFETY: registered with the address of a Calls whose stream is waited for.
    let calls = unsafe { calls(data) };
    calls.count.fetch_add(1, Ordering::SeqCst);
    let start = Instant::now();
    while !calls.released.load(Ordering::SeqCst) && start.elapsed() < longest {
        std::thread::yield_now();
    }
}

/// A step that tells the order: times three plus one, and times five plus two.
unsafe extern "C" fn three(data: *mut c_void) {
    // SAFETY: registered with the address of a Calls whose stream is waited for.
    let calls = unsafe { calls(data) };
    calls.seen.store(calls.seen.load(Ordering::SeqCst).wrapping_mul(3).wrapping_add(1), Ordering::SeqCst);
}

unsafe extern "C" fn five(data: *mut c_void) {
    // SAFETY: registered with the address of a Calls whose stream is waited for.
    let calls = unsafe { calls(data) };
    calls.seen.store(calls.seen.load(Ordering::SeqCst).wrapping_mul(5).wrapping_add(2), Ordering::SeqCst);
}

fn runs_once(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, calls) = (gpu.stream(NON_BLOCKING)?, Calls::default());
    ok!(driver, cuLaunchHostFunc(stream, Some(count), calls.address()));
    gpu.wait(stream)?;
    ensure!(calls.count() == 1, "called {} times", calls.count());
    gpu.synchronise()?;
    ensure!(calls.count() == 1, "called {} times", calls.count());
    Ok(())
}

fn runs_after_the_work_before(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream, calls) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, Calls::default());
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuLaunchHostFunc(stream, Some(count), calls.address()));
    gpu.is_pending(stream)?;
    ensure!(calls.count() == 0, "called before its turn");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(calls.count() == 1, "called {} times", calls.count());
    Ok(())
}

fn next_work_waits_for_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (stream, calls, seen) = (gpu.stream(NON_BLOCKING)?, Calls::default(), gpu.shared_words(1)?);
    ok!(driver, cuLaunchHostFunc(stream, Some(hold), calls.address()));
    gpu.launch(fill, 1, stream, &[&seen.at(0), &1_u32, &1_u32])?;
    while calls.count() == 0 {
        std::thread::yield_now();
    }
    gpu.is_pending(stream)?;
    ensure!(seen.get(0) == 0, "the kernel did not wait for the function");
    calls.released.store(true, Ordering::SeqCst);
    gpu.wait(stream)?;
    ensure!(seen.get(0) == 1, "the kernel has not run");
    Ok(())
}

fn run_in_order(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, calls) = (gpu.stream(NON_BLOCKING)?, Calls::default());
    let mut expected = 0_u32;
    for turn in 0..50 {
        if turn % 3 == 0 {
            ok!(driver, cuLaunchHostFunc(stream, Some(five), calls.address()));
            expected = expected.wrapping_mul(5).wrapping_add(2);
        } else {
            ok!(driver, cuLaunchHostFunc(stream, Some(three), calls.address()));
            expected = expected.wrapping_mul(3).wrapping_add(1);
        }
    }
    gpu.wait(stream)?;
    let seen = calls.seen.load(Ordering::SeqCst);
    ensure!(seen == expected, "{seen} instead of {expected}");
    Ok(())
}

fn works_in_default_streams(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let calls = Calls::default();
    ok!(driver, cuLaunchHostFunc(NULL_STREAM, Some(count), calls.address()));
    ok!(driver, cuLaunchHostFunc_ptsz(NULL_STREAM, Some(count), calls.address()));
    gpu.synchronise()?;
    ensure!(calls.count() == 2, "called {} times", calls.count());
    Ok(())
}

/// The system's number of the calling thread.
fn this_thread() -> u32 {
    // By the number of the call: the function came with a later glibc than the oldest that this runs on.
    // SAFETY: takes nothing.
    let id = unsafe { libc::syscall(libc::SYS_gettid) };
    u32::try_from(id).unwrap_or(0)
}

unsafe extern "C" fn tell_thread(data: *mut c_void) {
    // SAFETY: registered with the address of a Calls whose stream is waited for.
    let calls = unsafe { calls(data) };
    calls.seen.store(this_thread(), Ordering::SeqCst);
}

fn runs_in_another_thread(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, calls) = (gpu.stream(NON_BLOCKING)?, Calls::default());
    ok!(driver, cuLaunchHostFunc(stream, Some(tell_thread), calls.address()));
    gpu.wait(stream)?;
    let seen = calls.seen.load(Ordering::SeqCst);
    ensure!(seen != 0, "not called");
    note!("called in {} thread", if seen == this_thread() { "the same" } else { "another" });
    Ok(())
}

/// What a callback was told.
#[derive(Default)]
struct Told {
    stream: AtomicU32,
    status: AtomicU32,
    count: AtomicU32,
}

/// The low bits of a handle, enough to recognise it.
fn low(stream: CUstream) -> u32 {
    let bits = stream.0.addr() & u32::MAX as usize;
    u32::try_from(bits).unwrap_or_default()
}

unsafe extern "C" fn tell(stream: CUstream, status: CUresult, data: *mut c_void) {
    // SAFETY: registered with the address of a Told whose stream is waited for.
    let told = unsafe { &*data.cast::<Told>() };
    told.stream.store(low(stream), Ordering::SeqCst);
    told.status.store(status.0, Ordering::SeqCst);
    told.count.fetch_add(1, Ordering::SeqCst);
}

fn callback_knows_stream_and_status(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let told = Told { status: AtomicU32::new(u32::MAX), ..Told::default() };
    let data = core::ptr::from_ref(&told).cast_mut().cast();
    ok!(driver, cuStreamAddCallback(stream, Some(tell), data, 0));
    gpu.wait(stream)?;
    ensure!(told.count.load(Ordering::SeqCst) == 1, "not called once");
    ensure!(told.status.load(Ordering::SeqCst) == CUresult::CUDA_SUCCESS.0, "the status is {:?}", told.status);
    ensure!(told.stream.load(Ordering::SeqCst) == low(stream), "it was told another stream");
    Ok(())
}

fn callback_runs_in_order_with_kernels(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, stream, told) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, Told::default());
    let data = core::ptr::from_ref(&told).cast_mut().cast();
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuStreamAddCallback(stream, Some(tell), data, 0));
    gpu.is_pending(stream)?;
    ensure!(told.count.load(Ordering::SeqCst) == 0, "called before its turn");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(told.count.load(Ordering::SeqCst) == 1, "not called once");
    Ok(())
}

fn callback_takes_no_flags(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, told) = (gpu.stream(NON_BLOCKING)?, Told::default());
    let data = core::ptr::from_ref(&told).cast_mut().cast();
    expect!(driver, cuStreamAddCallback(stream, Some(tell), data, 1) => CUDA_ERROR_INVALID_VALUE);
    gpu.wait(stream)?;
    ensure!(told.count.load(Ordering::SeqCst) == 0, "a refused callback was called");
    Ok(())
}

fn no_function_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, calls) = (gpu.stream(NON_BLOCKING)?, Calls::default());
    expect!(driver, cuLaunchHostFunc(stream, None, calls.address()) => CUDA_ERROR_INVALID_VALUE);
    gpu.wait(stream)
}

/// A driver and the code that it gave to a call from inside.
struct Inside<'d> {
    driver: &'d Driver,
    code: AtomicU32,
}

unsafe extern "C" fn call_the_driver(data: *mut c_void) {
    // SAFETY: registered with the address of an Inside whose stream is waited for.
    let inside = unsafe { &*data.cast::<Inside>() };
    let call = || -> anyhow::Result<u32> {
        let mut pointer = NO_ADDRESS;
        Ok(cu!(inside.driver, cuMemAlloc_v2(&raw mut pointer, 64)).0)
    };
    inside.code.store(call().unwrap_or(u32::MAX), Ordering::SeqCst);
}

fn calling_the_driver_from_inside(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let inside = Inside { driver, code: AtomicU32::new(u32::MAX) };
    let data = core::ptr::from_ref(&inside).cast_mut().cast();
    ok!(driver, cuLaunchHostFunc(stream, Some(call_the_driver), data));
    gpu.wait(stream)?;
    let code = CUresult(inside.code.load(Ordering::SeqCst));
    note!("cuMemAlloc from inside a host function gives {}", crate::call::describe(code));
    Ok(())
}
