//! Names of codes, and what is left of a context after a fault.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NO_CONTEXT, NON_BLOCKING, NULL_STREAM, driver_text};
use crate::kernels::{FAULTS, PROGRAM};
use anyhow::ensure;
use core::ffi::{CStr, c_char};
use core::ptr::{null, null_mut};
use detshare_cuda::types::{CUdeviceptr, CUdeviceptr_v2, CUevent, CUmodule, CUresult};
use detshare_cuda::{Driver, result_name};

tests! { errors:
    codes_have_their_names,
    codes_have_a_text,
    unknown_codes_have_neither,
    store_out_of_bounds_is_illegal_address,
    misaligned_load_is_misaligned_address,
    trap_is_launch_failed,
    fault_stays_with_the_context,
    fault_shows_in_every_stream,
    fault_shows_in_stream_query,
    fault_shows_in_a_synchronous_copy,
    device_can_be_asked_after_a_fault,
    what_is_left_after_a_fault,
    destroyed_stream_is_refused,
    event_of_another_context_is_not_recorded,
    stream_of_a_destroyed_context_says_so,
}

/// All of the header's codes lie below.
const CODES: u32 = 1_000;
/// No allocation lies in the first page.
const NOWHERE: CUdeviceptr = CUdeviceptr_v2(0x100);

fn known_codes() -> impl Iterator<Item = (CUresult, &'static CStr)> {
    (0..CODES).map(CUresult).filter_map(|code| result_name(code).map(|name| (code, name)))
}

fn codes_have_their_names(driver: &Driver) -> Outcome {
    for (code, expected) in known_codes() {
        let mut name: *const c_char = null();
        ok!(driver, cuGetErrorName(code, &raw mut name));
        let name = driver_text(name)?;
        ensure!(name.as_bytes() == expected.to_bytes(), "{} is called {name} instead of {expected:?}", code.0);
    }
    Ok(())
}

fn codes_have_a_text(driver: &Driver) -> Outcome {
    let text_of = |code| -> anyhow::Result<String> {
        let mut text: *const c_char = null();
        ok!(driver, cuGetErrorString(code, &raw mut text));
        driver_text(text)
    };
    for (code, name) in known_codes() {
        ensure!(!text_of(code)?.is_empty(), "{name:?} has an empty text");
    }
    let text = text_of(CUresult::CUDA_SUCCESS)?;
    ensure!(text == "no error", "the text of success is {text:?}");
    Ok(())
}

fn unknown_codes_have_neither(driver: &Driver) -> Outcome {
    let unknown = CUresult(123_456);
    let mut text: *const c_char = c"untouched".as_ptr();
    expect!(driver, cuGetErrorName(unknown, &raw mut text) => CUDA_ERROR_INVALID_VALUE);
    ensure!(text.is_null(), "the name is not NULL");
    text = c"untouched".as_ptr();
    expect!(driver, cuGetErrorString(unknown, &raw mut text) => CUDA_ERROR_INVALID_VALUE);
    ensure!(text.is_null(), "the text is not NULL");
    Ok(())
}

fn store_out_of_bounds_is_illegal_address(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    gpu.launch(store, 1, NULL_STREAM, &[&NOWHERE])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

fn misaligned_load_is_misaligned_address(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let misaligned = gpu.function_of(gpu.module(FAULTS)?, c"misaligned")?;
    let words = gpu.zeros(4)?;
    gpu.launch(misaligned, 1, NULL_STREAM, &[&words])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_MISALIGNED_ADDRESS);
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_MISALIGNED_ADDRESS);
    Ok(())
}

fn trap_is_launch_failed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let trap = gpu.function_of(gpu.module(FAULTS)?, c"trap_now")?;
    gpu.launch(trap, 1, NULL_STREAM, &[])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_LAUNCH_FAILED);
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_LAUNCH_FAILED);
    Ok(())
}

fn fault_stays_with_the_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    let words = gpu.zeros(4)?;
    gpu.launch(store, 1, NULL_STREAM, &[&NOWHERE])?;
    for _ in 0..3 {
        expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    let code = gpu.try_launch(store, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[&words])?;
    ensure!(code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "the next launch gives {}", describe(code));
    let mut word = 0_u32;
    expect!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), words, 4) => CUDA_ERROR_ILLEGAL_ADDRESS);
    expect!(driver, cuStreamSynchronize(NULL_STREAM) => CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut pointer = words;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, 64) => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

fn fault_shows_in_every_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    let (faulty, other) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    gpu.launch(store, 1, faulty, &[&NOWHERE])?;
    expect!(driver, cuStreamSynchronize(faulty) => CUDA_ERROR_ILLEGAL_ADDRESS);
    expect!(driver, cuStreamSynchronize(other) => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

fn fault_shows_in_stream_query(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    let stream = gpu.stream(NON_BLOCKING)?;
    gpu.launch(store, 1, stream, &[&NOWHERE])?;
    loop {
        let code = cu!(driver, cuStreamQuery(stream));
        if code != CUresult::CUDA_ERROR_NOT_READY {
            ensure!(code == CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "the query gives {}", describe(code));
            return Ok(());
        }
        std::thread::yield_now();
    }
}

fn fault_shows_in_a_synchronous_copy(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    let words = gpu.zeros(4)?;
    gpu.launch(store, 1, NULL_STREAM, &[&NOWHERE])?;
    let mut word = 0_u32;
    expect!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), words, 4) => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

fn device_can_be_asked_after_a_fault(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    gpu.launch(store, 1, NULL_STREAM, &[&NOWHERE])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_ADDRESS);
    let (mut count, mut version) = (0, 0);
    ok!(driver, cuDriverGetVersion(&raw mut version));
    ok!(driver, cuDeviceGetCount(&raw mut count));
    let mut name: *const c_char = null();
    ok!(driver, cuGetErrorName(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, &raw mut name));
    let mut context = gpu.context;
    ok!(driver, cuCtxGetCurrent(&raw mut context));
    ensure!(context == gpu.context, "another context is current");
    Ok(())
}

fn what_is_left_after_a_fault(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let store = gpu.function_of(gpu.module(FAULTS)?, c"store")?;
    let words = gpu.zeros(4)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    gpu.launch(store, 1, stream, &[&NOWHERE])?;
    expect!(driver, cuStreamSynchronize(stream) => CUDA_ERROR_ILLEGAL_ADDRESS);
    let mut module = CUmodule(null_mut());
    noted!(driver, cuModuleLoadData(&raw mut module, PROGRAM.as_ptr().cast()), "after a fault");
    let mut event = CUevent(null_mut());
    noted!(driver, cuEventCreate(&raw mut event, 0), "after a fault");
    let mut device = gpu.device;
    noted!(driver, cuCtxGetDevice(&raw mut device), "after a fault");
    let (mut free, mut total) = (0, 0);
    noted!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total), "after a fault");
    noted!(driver, cuMemFree_v2(words), "after a fault");
    noted!(driver, cuStreamDestroy_v2(stream), "after a fault");
    noted!(driver, cuDevicePrimaryCtxReset_v2(gpu.device), "after a fault");
    let mut again = gpu.context;
    noted!(driver, cuDevicePrimaryCtxRetain(&raw mut again, gpu.device), "after a fault and a reset");
    noted!(driver, cuCtxSetCurrent(again), "after a fault and a reset");
    let mut pointer = words;
    noted!(driver, cuMemAlloc_v2(&raw mut pointer, 64), "after a fault and a reset");
    Ok(())
}

/// A real driver follows the handle, and the process ends there.
fn destroyed_stream_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    if !gpu.name()?.contains("Software") {
        skip!("a real driver follows the handle");
    }
    let [empty] = gpu.kernels([c"empty"])?;
    let (stream, event) = (gpu.stream(NON_BLOCKING)?, gpu.event()?);
    gpu.launch(empty, 1, stream, &[])?;
    ok!(driver, cuStreamDestroy_v2(stream));
    expect!(driver, cuStreamQuery(stream) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuStreamSynchronize(stream) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuEventRecord(event, stream) => CUDA_ERROR_INVALID_HANDLE);
    expect!(driver, cuStreamWaitEvent(stream, event, 0) => CUDA_ERROR_INVALID_HANDLE);
    let launched = gpu.try_launch(empty, (1, 1, 1), (1, 1, 1), 0, stream, &[])?;
    ensure!(launched == CUresult::CUDA_ERROR_INVALID_HANDLE, "a launch gives {}", describe(launched));
    expect!(driver, cuStreamDestroy_v2(stream) => CUDA_ERROR_INVALID_HANDLE);
    gpu.synchronise()
}

fn event_of_another_context_is_not_recorded(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let (stream, mut other, mut before) = (gpu.stream(NON_BLOCKING)?, NO_CONTEXT, NO_CONTEXT);
    gpu.launch(empty, 1, stream, &[])?;
    ok!(driver, cuCtxCreate_v2(&raw mut other, 0, gpu.device));
    let theirs = gpu.event()?;
    ok!(driver, cuCtxPopCurrent_v2(&raw mut before));
    expect!(driver, cuEventRecord(theirs, stream) => CUDA_ERROR_INVALID_HANDLE);
    // Waiting and asking are allowed.
    ok!(driver, cuStreamWaitEvent(stream, theirs, 0));
    ok!(driver, cuEventQuery(theirs));
    gpu.launch(empty, 1, stream, &[])?;
    gpu.wait(stream)
}

/// With a real driver the stream is gone with its context, and its handle leads anywhere.
fn stream_of_a_destroyed_context_says_so(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    if !gpu.name()?.contains("Software") {
        skip!("a real driver follows the handle");
    }
    let mut other = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v2(&raw mut other, 0, gpu.device));
    let theirs = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuCtxDestroy_v2(other));
    ok!(driver, cuCtxSetCurrent(gpu.context));
    expect!(driver, cuStreamQuery(theirs) => CUDA_ERROR_CONTEXT_IS_DESTROYED);
    gpu.synchronise()
}
