//! Memory and events of one process in another.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NON_BLOCKING, NULL_STREAM, offset};
use crate::processes::{Other, in_two_processes};
use anyhow::{Result, ensure};
use core::ffi::{c_int, c_void};
use core::mem::{transmute, zeroed};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdeviceptr, CUevent, CUevent_flags, CUipcEventHandle, CUipcMem_flags, CUipcMemHandle, CUmemAllocationHandleType,
    CUmemAllocationType, CUmemAttach_flags, CUmemLocation, CUmemLocationType, CUmemPoolProps, CUmemPoolPtrExportData,
    CUmemoryPool, CUresult, CUstream,
};

tests! { ipc:
    memory_is_the_same_in_both,
    opening_again_gives_the_same_address,
    memory_is_opened_by_others_only,
    only_plain_memory_has_a_handle,
    broken_handles_are_refused,
    event_orders_two_processes,
    event_is_recorded_by_the_other,
    only_such_events_have_a_handle,
    a_process_that_ends_leaves_events_complete,
    pool_is_shared,
}

const LAZY: u32 = CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0;
const INTERPROCESS: u32 = CUevent_flags::CU_EVENT_INTERPROCESS.0 | CUevent_flags::CU_EVENT_DISABLE_TIMING.0;
/// Large enough for an allocation to lie on its own on a GPU.
const BYTES: usize = 4 << 20;
const FILE: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn handle_of(gpu: &Gpu, memory: CUdeviceptr) -> Result<[u8; 64]> {
    // SAFETY: bytes.
    let mut handle: CUipcMemHandle = unsafe { zeroed() };
    ok!(gpu, cuIpcGetMemHandle(&raw mut handle, memory));
    Ok(handle.reserved.map(|it| it.cast_unsigned()))
}

fn memory_handle(bytes: [u8; 64]) -> CUipcMemHandle {
    CUipcMemHandle { reserved: bytes.map(|it| it.cast_signed()) }
}

fn open(gpu: &Gpu, handle: [u8; 64]) -> Result<CUdeviceptr> {
    let mut memory = NO_ADDRESS;
    ok!(gpu, cuIpcOpenMemHandle_v2(&raw mut memory, memory_handle(handle), LAZY));
    ensure!(memory != NO_ADDRESS, "cuIpcOpenMemHandle gave no address");
    Ok(memory)
}

fn memory_is_the_same_in_both(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let memory = gpu.alloc(BYTES)?;
            gpu.write(memory, &[1, 2, 3, 4])?;
            gpu.write(offset(memory, BYTES - 8), &[5, 6])?;
            gpu.synchronise()?;
            other.send(&handle_of(&gpu, memory)?)?;
            other.hear()?;
            ensure!(gpu.read(memory, 4)? == [11, 12, 13, 14], "the other's kernel wrote {:?}", gpu.read(memory, 4)?);
            ok!(driver, cuMemFree_v2(memory));
            Ok(())
        },
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let memory = open(&gpu, other.receive()?)?;
            ensure!(gpu.read(memory, 4)? == [1, 2, 3, 4], "the memory has {:?}", gpu.read(memory, 4)?);
            ensure!(gpu.read(offset(memory, BYTES - 8), 2)? == [5, 6], "its end is not there");
            let [add] = gpu.kernels([c"add"])?;
            gpu.launch(add, 4, NULL_STREAM, &[&memory, &10_u32, &4_u32])?;
            gpu.synchronise()?;
            let code = noted!(driver, cuMemFree_v2(memory), "memory of another process");
            ensure!(code != CUresult::CUDA_SUCCESS, "it was freed");
            ok!(driver, cuIpcCloseMemHandle(memory));
            let mut word = 0_u32;
            expect!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), memory, 4) => CUDA_ERROR_INVALID_VALUE);
            let code = noted!(driver, cuIpcCloseMemHandle(memory), "closed already");
            ensure!(code != CUresult::CUDA_SUCCESS, "it was closed twice");
            other.say()
        },
    )
}

fn opening_again_gives_the_same_address(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let memory = gpu.alloc(BYTES)?;
            gpu.write(memory, &[9; 4])?;
            other.send(&handle_of(&gpu, memory)?)?;
            other.hear()
        },
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let handle = other.receive()?;
            let (first, second) = (open(&gpu, handle)?, open(&gpu, handle)?);
            ensure!(first == second, "{first:?} and {second:?}");
            ok!(driver, cuIpcCloseMemHandle(first));
            ensure!(gpu.read(second, 4)? == [9; 4], "it is gone after the first close");
            ok!(driver, cuIpcCloseMemHandle(second));
            other.say()
        },
    )
}

fn memory_is_opened_by_others_only(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let handle = handle_of(&gpu, gpu.alloc(BYTES)?)?;
    let mut memory = NO_ADDRESS;
    let code = noted!(driver, cuIpcOpenMemHandle_v2(&raw mut memory, memory_handle(handle), LAZY), "the same process");
    ensure!(code != CUresult::CUDA_SUCCESS, "a process opened its own memory");
    Ok(())
}

fn only_plain_memory_has_a_handle(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    // SAFETY: bytes.
    let mut handle: CUipcMemHandle = unsafe { zeroed() };
    let mut managed = NO_ADDRESS;
    ok!(driver, cuMemAllocManaged(&raw mut managed, BYTES, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0));
    let code = noted!(driver, cuIpcGetMemHandle(&raw mut handle, managed), "managed memory");
    ensure!(code != CUresult::CUDA_SUCCESS, "managed memory has a handle");
    let words = gpu.shared_words(4)?;
    let code = noted!(driver, cuIpcGetMemHandle(&raw mut handle, words.at(0)), "pinned memory");
    ensure!(code != CUresult::CUDA_SUCCESS, "pinned memory has a handle");
    let freed = gpu.alloc(BYTES)?;
    ok!(driver, cuMemFree_v2(freed));
    expect!(driver, cuIpcGetMemHandle(&raw mut handle, freed) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn broken_handles_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut memory = NO_ADDRESS;
    let code = noted!(driver, cuIpcOpenMemHandle_v2(&raw mut memory, memory_handle([0; 64]), LAZY), "zeros");
    ensure!(code != CUresult::CUDA_SUCCESS, "zeros are a handle");
    let handle = memory_handle(handle_of(&gpu, gpu.alloc(BYTES)?)?);
    noted!(driver, cuIpcOpenMemHandle_v2(&raw mut memory, handle, 0), "without the flag");
    expect!(driver, cuIpcCloseMemHandle(NO_ADDRESS) => CUDA_ERROR_INVALID_VALUE);
    // SAFETY: bytes.
    let nothing: CUipcEventHandle = unsafe { zeroed() };
    let mut event = CUevent(null_mut());
    let code = noted!(driver, cuIpcOpenEventHandle(&raw mut event, nothing), "zeros");
    ensure!(code != CUresult::CUDA_SUCCESS, "zeros are an event's handle");
    Ok(())
}

fn event_handle(gpu: &Gpu, event: CUevent) -> Result<[u8; 64]> {
    // SAFETY: bytes.
    let mut handle: CUipcEventHandle = unsafe { zeroed() };
    ok!(gpu, cuIpcGetEventHandle(&raw mut handle, event));
    Ok(handle.reserved.map(|it| it.cast_unsigned()))
}

fn open_event(gpu: &Gpu, handle: [u8; 64]) -> Result<CUevent> {
    // SAFETY: bytes as bytes.
    let handle: CUipcEventHandle = unsafe { transmute(handle) };
    let mut event = CUevent(null_mut());
    ok!(gpu, cuIpcOpenEventHandle(&raw mut event, handle));
    ensure!(!event.0.is_null(), "cuIpcOpenEventHandle gave no event");
    Ok(event)
}

fn event_orders_two_processes(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let gate = gpu.gate()?;
            let [fill] = gpu.kernels([c"fill"])?;
            let memory = gpu.alloc(BYTES)?;
            ok!(driver, cuMemsetD32_v2(memory, 0, 4));
            gpu.synchronise()?;
            let event = gpu.event_with(INTERPROCESS)?;
            let stream = gpu.stream(NON_BLOCKING)?;
            gpu.hold_at(&gate, stream)?;
            gpu.launch(fill, 4, stream, &[&memory, &5_u32, &4_u32])?;
            ok!(driver, cuEventRecord(event, stream));
            expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
            other.send(&handle_of(&gpu, memory)?)?;
            other.send(&event_handle(&gpu, event)?)?;
            // The other has its copy in its stream, behind the event.
            other.hear()?;
            gate.open();
            gpu.wait(stream)?;
            gate.was_passed()?;
            ok!(driver, cuEventSynchronize(event));
            other.hear()
        },
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let memory = open(&gpu, other.receive()?)?;
            let event = open_event(&gpu, other.receive()?)?;
            let stream = gpu.stream(NON_BLOCKING)?;
            let words = gpu.shared_words(4)?;
            expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
            ok!(driver, cuStreamWaitEvent(stream, event, 0));
            ok!(driver, cuMemcpyDtoHAsync_v2(words.host(), memory, 16, stream));
            gpu.is_pending(stream)?;
            other.say()?;
            gpu.wait(stream)?;
            ok!(driver, cuEventQuery(event));
            ensure!((0..4).all(|index| words.get(index) == 5), "the copy came before the other's kernel");
            ok!(driver, cuEventDestroy_v2(event));
            other.say()
        },
    )
}

fn event_is_recorded_by_the_other(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let event = gpu.event_with(INTERPROCESS)?;
            other.send(&event_handle(&gpu, event)?)?;
            other.hear()?;
            expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
            other.say()?;
            ok!(driver, cuEventSynchronize(event));
            other.hear()
        },
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let gate = gpu.gate()?;
            let event = open_event(&gpu, other.receive()?)?;
            let stream = gpu.stream(NON_BLOCKING)?;
            gpu.hold_at(&gate, stream)?;
            ok!(driver, cuEventRecord(event, stream));
            other.say()?;
            other.hear()?;
            gate.open();
            gpu.wait(stream)?;
            gate.was_passed()?;
            other.say()
        },
    )
}

fn only_such_events_have_a_handle(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    // SAFETY: bytes.
    let mut handle: CUipcEventHandle = unsafe { zeroed() };
    let plain = gpu.event()?;
    let code = noted!(driver, cuIpcGetEventHandle(&raw mut handle, plain), "an event for one process");
    ensure!(code != CUresult::CUDA_SUCCESS, "it has a handle");
    let mut event = CUevent(null_mut());
    let timed = CUevent_flags::CU_EVENT_INTERPROCESS.0;
    expect!(driver, cuEventCreate(&raw mut event, timed) => CUDA_ERROR_INVALID_VALUE);
    let shared = gpu.event_with(INTERPROCESS)?;
    ok!(driver, cuEventQuery(shared));
    let stream: CUstream = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuEventRecord(shared, stream));
    gpu.wait(stream)?;
    ok!(driver, cuEventSynchronize(shared));
    ok!(driver, cuEventQuery(shared));
    Ok(())
}

fn a_process_that_ends_leaves_events_complete(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let event = gpu.event_with(INTERPROCESS)?;
            other.send(&event_handle(&gpu, event)?)?;
            other.hear()?;
            ok!(driver, cuEventDestroy_v2(event));
            Ok(())
        },
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let event = open_event(&gpu, other.receive()?)?;
            let stream = gpu.stream(NON_BLOCKING)?;
            ok!(driver, cuEventRecord(event, stream));
            gpu.wait(stream)?;
            other.say()
        },
    )
}

fn shared_pool(gpu: &Gpu) -> Result<CUmemoryPool> {
    // SAFETY: plain values throughout, where zero means none.
    let mut wanted: CUmemPoolProps = unsafe { zeroed() };
    wanted.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.handleTypes = FILE;
    wanted.location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device.0 };
    let mut pool = CUmemoryPool(null_mut());
    ok!(gpu, cuMemPoolCreate(&raw mut pool, &raw const wanted));
    Ok(pool)
}

fn pool_is_shared(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let pool = shared_pool(&gpu)?;
            let mut file: c_int = -1;
            ok!(driver, cuMemPoolExportToShareableHandle((&raw mut file).cast(), pool, FILE, 0));
            let mut memory = NO_ADDRESS;
            ok!(driver, cuMemAllocFromPoolAsync(&raw mut memory, 1_000, pool, NULL_STREAM));
            gpu.write(memory, &[1, 2, 3, 4])?;
            gpu.synchronise()?;
            // SAFETY: bytes.
            let mut data: CUmemPoolPtrExportData = unsafe { zeroed() };
            ok!(driver, cuMemPoolExportPointer(&raw mut data, memory));
            other.send_file(file)?;
            other.send(&data.reserved)?;
            other.hear()?;
            ensure!(gpu.read(memory, 4)? == [4; 4], "the other wrote {:?}", gpu.read(memory, 4)?);
            let plain = gpu.alloc(BYTES)?;
            let code = noted!(driver, cuMemPoolExportPointer(&raw mut data, plain), "memory of no pool");
            ensure!(code != CUresult::CUDA_SUCCESS, "it was exported");
            ok!(driver, cuMemFreeAsync(memory, NULL_STREAM));
            gpu.synchronise()
        },
        |driver, mut other: Other| {
            let gpu = Gpu::new(driver)?;
            let file = other.receive_file()?;
            let mut data = CUmemPoolPtrExportData { reserved: other.receive()? };
            let mut pool = CUmemoryPool(null_mut());
            let file: *mut c_void = core::ptr::without_provenance_mut(usize::try_from(file)?);
            ok!(driver, cuMemPoolImportFromShareableHandle(&raw mut pool, file, FILE, 0));
            let mut memory = NO_ADDRESS;
            ok!(driver, cuMemPoolImportPointer(&raw mut memory, pool, &raw mut data));
            ensure!(gpu.read(memory, 4)? == [1, 2, 3, 4], "the memory has {:?}", gpu.read(memory, 4)?);
            ok!(driver, cuMemsetD32_v2(memory, 4, 4));
            gpu.synchronise()?;
            let mut more = NO_ADDRESS;
            let code =
                noted!(driver, cuMemAllocFromPoolAsync(&raw mut more, 64, pool, NULL_STREAM), "a pool of another");
            ensure!(code != CUresult::CUDA_SUCCESS, "a pool of another process gave memory");
            ok!(driver, cuMemFreeAsync(memory, NULL_STREAM));
            gpu.synchronise()?;
            ok!(driver, cuMemPoolDestroy(pool));
            other.say()
        },
    )
}
