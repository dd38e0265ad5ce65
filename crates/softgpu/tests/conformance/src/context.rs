//! Contexts: the primary one and others, the stack of each thread, limits, flags.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NO_CONTEXT, NO_DEVICE, NON_BLOCKING, NULL_STREAM, first_device};
use crate::kernels::PROGRAM;
use anyhow::{Result, ensure};
use core::ffi::c_uint;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUctx_flags, CUctxCreateParams, CUdevice, CUdevice_v1, CUevent, CUfunc_cache, CUlimit, CUmodule,
    CUresult,
};

tests! { context:
    primary_is_counted,
    primary_is_the_same_for_all,
    release_without_retain_fails,
    retaining_makes_nothing_current,
    nothing_works_without_a_context,
    created_is_current_and_destroyed_is_not,
    created_by_the_newest_signature,
    created_beside_the_primary,
    push_and_pop_are_a_stack,
    pop_of_nothing_fails,
    set_current_replaces_the_top,
    set_current_null_unbinds,
    current_is_per_thread,
    memory_is_shared_between_threads,
    knows_its_device,
    flags_are_kept,
    primary_flags_are_kept,
    unknown_flags_are_refused,
    limits_can_be_raised,
    unknown_limits_are_refused,
    synchronise_waits_for_all_streams,
    synchronise_takes_a_context,
    api_version_is_known,
    priority_range_is_sane,
    ids_are_unique,
    cache_preference_is_taken,
    primary_can_be_reset,
}

fn primary_state(driver: &Driver, device: CUdevice) -> Result<(c_uint, bool)> {
    let (mut flags, mut active) = (0, -1);
    ok!(driver, cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active));
    ensure!(active == 0 || active == 1, "active is {active}");
    Ok((flags, active == 1))
}

fn retain(driver: &Driver, device: CUdevice) -> Result<CUcontext> {
    let mut context = NO_CONTEXT;
    ok!(driver, cuDevicePrimaryCtxRetain(&raw mut context, device));
    Ok(context)
}

fn create(driver: &Driver, flags: c_uint, device: CUdevice) -> Result<CUcontext> {
    let mut context = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v2(&raw mut context, flags, device));
    ensure!(context != NO_CONTEXT, "cuCtxCreate gave no context");
    Ok(context)
}

fn current(driver: &Driver) -> Result<CUcontext> {
    let mut context = CUcontext(core::ptr::dangling_mut());
    ok!(driver, cuCtxGetCurrent(&raw mut context));
    Ok(context)
}

fn primary_is_counted(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    ensure!(!primary_state(driver, device)?.1, "active before anyone has retained it");
    retain(driver, device)?;
    retain(driver, device)?;
    ensure!(primary_state(driver, device)?.1, "not active after it was retained");
    ok!(driver, cuDevicePrimaryCtxRelease_v2(device));
    ensure!(primary_state(driver, device)?.1, "not active after one of two releases");
    ok!(driver, cuDevicePrimaryCtxRelease_v2(device));
    ensure!(!primary_state(driver, device)?.1, "active after the last release");
    retain(driver, device)?;
    ensure!(primary_state(driver, device)?.1, "not active after it was retained again");
    Ok(())
}

fn primary_is_the_same_for_all(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let first = retain(driver, device)?;
    ensure!(retain(driver, device)? == first, "two primary contexts");
    let in_thread = std::thread::scope(|scope| {
        let thread = scope.spawn(|| retain(driver, device).map(|context| context.0.addr()));
        thread.join().expect("no panic")
    })?;
    ensure!(in_thread == first.0.addr(), "another primary context in another thread");
    Ok(())
}

fn release_without_retain_fails(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let code = noted!(driver, cuDevicePrimaryCtxRelease_v2(device), "never retained");
    ensure!(code != CUresult::CUDA_SUCCESS, "released what was never retained");
    Ok(())
}

fn retaining_makes_nothing_current(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    ensure!(current(driver)? == NO_CONTEXT, "a context is current from the start");
    retain(driver, device)?;
    ensure!(current(driver)? == NO_CONTEXT, "retaining made the context current");
    Ok(())
}

fn nothing_works_without_a_context(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, 64) => CUDA_ERROR_INVALID_CONTEXT);
    let mut stream = NULL_STREAM;
    expect!(driver, cuStreamCreate(&raw mut stream, NON_BLOCKING) => CUDA_ERROR_INVALID_CONTEXT);
    let mut event = CUevent(null_mut());
    expect!(driver, cuEventCreate(&raw mut event, 0) => CUDA_ERROR_INVALID_CONTEXT);
    let mut module = CUmodule(null_mut());
    expect!(driver, cuModuleLoadData(&raw mut module, PROGRAM.as_ptr().cast()) => CUDA_ERROR_INVALID_CONTEXT);
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_INVALID_CONTEXT);
    let mut device = NO_DEVICE;
    expect!(driver, cuCtxGetDevice(&raw mut device) => CUDA_ERROR_INVALID_CONTEXT);
    let (mut free, mut total) = (0, 0);
    expect!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total) => CUDA_ERROR_INVALID_CONTEXT);
    Ok(())
}

fn created_is_current_and_destroyed_is_not(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let context = create(driver, 0, device)?;
    ensure!(current(driver)? == context, "what was created is not current");
    ok!(driver, cuCtxDestroy_v2(context));
    ensure!(current(driver)? == NO_CONTEXT, "what was destroyed is current");
    Ok(())
}

fn created_by_the_newest_signature(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let mut context = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v4(&raw mut context, null_mut(), 0, device));
    ensure!(current(driver)? == context, "what was created is not current");
    ok!(driver, cuCtxDestroy_v2(context));
    let mut plain =
        CUctxCreateParams { execAffinityParams: null_mut(), numExecAffinityParams: 0, cigParams: null_mut() };
    noted!(driver, cuCtxCreate_v4(&raw mut context, &raw mut plain, 0, device), "empty parameters");
    Ok(())
}

fn created_beside_the_primary(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let in_primary = gpu.upload(&[1, 2, 3])?;
    let other = create(driver, 0, gpu.device)?;
    ensure!(other != gpu.context, "cuCtxCreate gave the primary context");
    let [fill] = gpu.kernels([c"fill"])?;
    let in_other = gpu.zeros(3)?;
    gpu.launch(fill, 3, NULL_STREAM, &[&in_other, &9_u32, &3_u32])?;
    ensure!(gpu.read(in_other, 3)? == [9; 3], "a kernel in the created context left other words");
    ok!(driver, cuCtxDestroy_v2(other));
    ensure!(current(driver)? == gpu.context, "the primary context is not current again");
    ensure!(gpu.read(in_primary, 3)? == [1, 2, 3], "the primary context's memory has changed");
    Ok(())
}

fn push_and_pop_are_a_stack(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let (first, second) = (create(driver, 0, device)?, create(driver, 0, device)?);
    let mut popped = NO_CONTEXT;
    ok!(driver, cuCtxPopCurrent_v2(&raw mut popped));
    ensure!(popped == second && current(driver)? == first, "the last created was not on top");
    ok!(driver, cuCtxPushCurrent_v2(second));
    ok!(driver, cuCtxPushCurrent_v2(first));
    for expected in [first, second, first] {
        ensure!(current(driver)? == expected, "another context is on top");
        ok!(driver, cuCtxPopCurrent_v2(&raw mut popped));
        ensure!(popped == expected, "another context was popped");
    }
    ensure!(current(driver)? == NO_CONTEXT, "the stack is not empty");
    Ok(())
}

fn pop_of_nothing_fails(driver: &Driver) -> Outcome {
    ok!(driver, cuInit(0));
    let mut popped = NO_CONTEXT;
    expect!(driver, cuCtxPopCurrent_v2(&raw mut popped) => CUDA_ERROR_INVALID_CONTEXT);
    Ok(())
}

fn set_current_replaces_the_top(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let (first, second) = (create(driver, 0, device)?, create(driver, 0, device)?);
    ok!(driver, cuCtxSetCurrent(first));
    let mut popped = NO_CONTEXT;
    for _ in 0..2 {
        ok!(driver, cuCtxPopCurrent_v2(&raw mut popped));
        ensure!(popped == first, "{second:?} is still on the stack");
    }
    ensure!(current(driver)? == NO_CONTEXT, "the stack is not empty");
    Ok(())
}

fn set_current_null_unbinds(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    ensure!(current(driver)? == gpu.context, "the context that was set is not current");
    ok!(driver, cuCtxSetCurrent(NO_CONTEXT));
    ensure!(current(driver)? == NO_CONTEXT, "a context is still current");
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, 64) => CUDA_ERROR_INVALID_CONTEXT);
    ok!(driver, cuCtxSetCurrent(gpu.context));
    gpu.alloc(64)?;
    Ok(())
}

fn current_is_per_thread(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Outcome {
            ensure!(current(driver)? == NO_CONTEXT, "a new thread has a current context");
            let mut pointer = NO_ADDRESS;
            expect!(driver, cuMemAlloc_v2(&raw mut pointer, 64) => CUDA_ERROR_INVALID_CONTEXT);
            let own = create(driver, 0, CUdevice_v1(0))?;
            ensure!(current(driver)? == own, "what the thread created is not current in it");
            Ok(())
        });
        thread.join().expect("no panic")
    })?;
    ensure!(current(driver)? == gpu.context, "another thread changed what is current here");
    Ok(())
}

fn memory_is_shared_between_threads(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let address = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<_> {
            let gpu = Gpu::new(driver)?;
            gpu.upload(&[4, 5, 6])
        });
        thread.join().expect("no panic")
    })?;
    ensure!(gpu.read(address, 3)? == [4, 5, 6], "another thread's words look different from here");
    ok!(driver, cuMemFree_v2(address));
    Ok(())
}

fn knows_its_device(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut device = NO_DEVICE;
    ok!(driver, cuCtxGetDevice(&raw mut device));
    ensure!(device == gpu.device, "the current context's device is {device:?}");
    ok!(driver, cuCtxSetCurrent(NO_CONTEXT));
    device = NO_DEVICE;
    ok!(driver, cuCtxGetDevice_v2(&raw mut device, gpu.context));
    ensure!(device == gpu.device, "the given context's device is {device:?}");
    Ok(())
}

fn flags_are_kept(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let schedules =
        [CUctx_flags::CU_CTX_SCHED_SPIN, CUctx_flags::CU_CTX_SCHED_YIELD, CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC];
    for schedule in schedules {
        let context = create(driver, schedule.0, device)?;
        let mut flags = 0;
        ok!(driver, cuCtxGetFlags(&raw mut flags));
        ensure!(flags & CUctx_flags::CU_CTX_SCHED_MASK.0 == schedule.0, "{schedule:?} became {flags:#x}");
        ok!(driver, cuCtxDestroy_v2(context));
    }
    Ok(())
}

fn primary_flags_are_kept(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let wanted = CUctx_flags::CU_CTX_SCHED_BLOCKING_SYNC.0;
    ok!(driver, cuDevicePrimaryCtxSetFlags_v2(device, wanted));
    let mask = CUctx_flags::CU_CTX_SCHED_MASK.0;
    let (flags, active) = primary_state(driver, device)?;
    ensure!(flags & mask == wanted && !active, "flags {flags:#x}, active {active}");
    let gpu = Gpu::new(driver)?;
    let mut flags = 0;
    ok!(driver, cuCtxGetFlags(&raw mut flags));
    ensure!(flags & mask == wanted, "the context has the flags {flags:#x}");
    noted!(driver, cuDevicePrimaryCtxSetFlags_v2(gpu.device, CUctx_flags::CU_CTX_SCHED_YIELD.0), "while active");
    Ok(())
}

fn unknown_flags_are_refused(driver: &Driver) -> Outcome {
    let device = first_device(driver)?;
    let unknown = 0x4000_0000;
    let mut context = NO_CONTEXT;
    expect!(driver, cuCtxCreate_v2(&raw mut context, unknown, device) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuDevicePrimaryCtxSetFlags_v2(device, unknown) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn limits_can_be_raised(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let limits = [
        (CUlimit::CU_LIMIT_STACK_SIZE, 4 << 10),
        (CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE, 4 << 20),
        (CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, 32 << 20),
    ];
    for (limit, wanted) in limits {
        let mut value = 0;
        ok!(driver, cuCtxGetLimit(&raw mut value, limit));
        ensure!(value > 0, "{limit:?} is {value} from the start");
        let before = value;
        ok!(driver, cuCtxSetLimit(limit, wanted));
        ok!(driver, cuCtxGetLimit(&raw mut value, limit));
        ensure!(value >= wanted, "{limit:?} is {value} after it was set to {wanted}");
        note!("{limit:?}: {before} at first, {value} after {wanted} was set");
    }
    Ok(())
}

fn unknown_limits_are_refused(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut value = 0;
    let unknown = CUlimit(999);
    let code = noted!(driver, cuCtxGetLimit(&raw mut value, unknown), "limit 999");
    ensure!(code != CUresult::CUDA_SUCCESS, "limit 999 is {value}");
    expect!(driver, cuCtxGetLimit(null_mut(), CUlimit::CU_LIMIT_STACK_SIZE) => CUDA_ERROR_INVALID_VALUE);
    noted!(driver, cuCtxGetLimit(&raw mut value, CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH), "device runtime depth");
    Ok(())
}

/// Long enough that a wait that was forgotten shows.
const LONG: u32 = 2_000_000;

fn synchronise_waits_for_all_streams(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let seen = gpu.shared_words(3)?;
    let streams = [NULL_STREAM, gpu.stream(0)?, gpu.stream(NON_BLOCKING)?];
    for (index, stream) in streams.iter().enumerate() {
        gpu.launch(delay, 1, *stream, &[&seen.at(index), &5_u32, &LONG])?;
    }
    ok!(driver, cuCtxSynchronize());
    for (index, stream) in streams.iter().enumerate() {
        ensure!(seen.get(index) == 5, "work of stream {index} is missing after cuCtxSynchronize");
        gpu.is_done(*stream)?;
    }
    Ok(())
}

fn synchronise_takes_a_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [delay] = gpu.kernels([c"delay"])?;
    let seen = gpu.shared_words(1)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    gpu.launch(delay, 1, stream, &[&seen.at(0), &5_u32, &LONG])?;
    ok!(driver, cuCtxSetCurrent(NO_CONTEXT));
    ok!(driver, cuCtxSynchronize_v2(gpu.context));
    ensure!(seen.get(0) == 5, "the work is missing after cuCtxSynchronize_v2");
    ok!(driver, cuCtxSetCurrent(gpu.context));
    gpu.launch(delay, 1, stream, &[&seen.at(0), &6_u32, &LONG])?;
    ok!(driver, cuCtxSynchronize_v2(NO_CONTEXT));
    ensure!(seen.get(0) == 6, "the work is missing after cuCtxSynchronize_v2 of the current context");
    Ok(())
}

fn api_version_is_known(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut of_given, mut of_current) = (0, 0);
    ok!(driver, cuCtxGetApiVersion(gpu.context, &raw mut of_given));
    ok!(driver, cuCtxGetApiVersion(NO_CONTEXT, &raw mut of_current));
    ensure!(of_given == of_current && of_given >= 3_010, "{of_given} and {of_current}");
    note!("API version {of_given}");
    Ok(())
}

fn priority_range_is_sane(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let (mut least, mut greatest) = (-1, 1);
    ok!(driver, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest));
    ensure!(least == 0 && greatest <= least, "priorities from {least} to {greatest}");
    ok!(driver, cuCtxGetStreamPriorityRange(null_mut(), null_mut()));
    Ok(())
}

fn ids_are_unique(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let id = |context| -> Result<u64> {
        let mut id = 0;
        ok!(driver, cuCtxGetId(context, &raw mut id));
        Ok(id)
    };
    let primary = id(gpu.context)?;
    ensure!(id(NO_CONTEXT)? == primary, "NULL is not the current context");
    let other = create(driver, 0, gpu.device)?;
    ensure!(id(other)? != primary, "two contexts have the id {primary}");
    ensure!(id(gpu.context)? == primary, "the primary context's id has changed");
    Ok(())
}

fn cache_preference_is_taken(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    ok!(driver, cuCtxSetCacheConfig(CUfunc_cache::CU_FUNC_CACHE_PREFER_L1));
    let mut preference = CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE;
    ok!(driver, cuCtxGetCacheConfig(&raw mut preference));
    note!("{preference:?} after CU_FUNC_CACHE_PREFER_L1 was set");
    Ok(())
}

fn primary_can_be_reset(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    gpu.upload(&[1; 64])?;
    ok!(driver, cuDevicePrimaryCtxReset_v2(gpu.device));
    note!("active after a reset: {}", primary_state(driver, gpu.device)?.1);
    let again = Gpu::new(driver)?;
    let words = again.upload(&[7; 64])?;
    ensure!(again.read(words, 64)? == [7; 64], "memory of the context after a reset keeps nothing");
    Ok(())
}
