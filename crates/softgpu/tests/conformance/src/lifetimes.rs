//! Host memory, pointers, and what becomes of memory when its context, its thread or its process ends.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NO_CONTEXT, NON_BLOCKING, NULL_STREAM, Shared, offset};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_MEMCPY2D, CUdeviceptr, CUdeviceptr_v2, CUmemorytype as Memory, CUpointer_attribute as Attribute, CUresult,
};
use detshare_test_child::wait_for;

tests! { lifetimes:
    memory_goes_with_its_context,
    memory_is_freed_under_another_context,
    freed_by_another_thread,
    host_memory_is_freed_by_a_thread_without_a_context,
    used_by_many_threads_at_once,
    a_forked_child_leaves_memory_alone,
    a_forked_child_has_no_driver,
    a_process_may_end_with_everything_alive,
    unmapped_host_memory_is_not_registered,
    read_only_memory_is_registered_as_such,
    registering_what_is_pinned,
    registered_memory_goes_with_its_context,
    every_pointer_attribute_of_device_memory,
    every_pointer_attribute_of_nothing,
    synchronous_operations_are_kept,
    rows_at_odd_pitches,
    rows_that_overlap_are_refused,
    memory_is_reused_without_end,
}

fn memory_goes_with_its_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut own = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v2(&raw mut own, 0, gpu.device));
    let memory = gpu.upload(&[1; 4])?;
    ok!(driver, cuCtxDestroy_v2(own));
    ok!(driver, cuCtxSetCurrent(gpu.context));
    let mut word = 0_u32;
    expect!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), memory, 4) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemFree_v2(memory) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn memory_is_freed_under_another_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let memory = gpu.upload(&[1; 4])?;
    let mut own = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v2(&raw mut own, 0, gpu.device));
    ok!(driver, cuMemFree_v2(memory));
    // What takes its place belongs to the new context, and stays when the old one frees again.
    let other = gpu.upload(&[2; 4])?;
    expect!(driver, cuMemFree_v2(offset(other, 4)) => CUDA_ERROR_INVALID_VALUE);
    ensure!(gpu.read(other, 4)? == [2; 4], "the new memory is another's");
    ok!(driver, cuCtxDestroy_v2(own));
    Ok(())
}

fn freed_by_another_thread(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (memory, context) = (Shared::new(gpu.upload(&[7; 4])?), Shared::new(gpu.context));
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Outcome {
            let mut word = 0_u32;
            ok!(driver, cuCtxSetCurrent(context.get()));
            ok!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), memory.get(), 4));
            ensure!(word == 7, "the thread sees {word}");
            // An address says whose memory it is: no context is needed to free it.
            ok!(driver, cuCtxSetCurrent(NO_CONTEXT));
            ok!(driver, cuMemFree_v2(memory.get()));
            Ok(())
        });
        thread.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
    })?;
    expect!(driver, cuMemFree_v2(memory.get()) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn host_memory_is_freed_by_a_thread_without_a_context(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut pinned = null_mut();
    ok!(driver, cuMemHostAlloc(&raw mut pinned, PAGES, 0));
    let registered = pages(PAGES, libc::PROT_READ | libc::PROT_WRITE)?;
    ok!(driver, cuMemHostRegister_v2(registered, PAGES, 0));
    let (pinned, registered) = (Shared::new(pinned), Shared::new(registered));
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Outcome {
            ok!(driver, cuMemFreeHost(pinned.get()));
            ok!(driver, cuMemHostUnregister(registered.get()));
            Ok(())
        });
        thread.join().map_err(|_| anyhow::anyhow!("the thread panicked"))?
    })?;
    expect!(driver, cuMemFreeHost(pinned.get()) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemHostUnregister(registered.get()) => CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    Ok(())
}

fn used_by_many_threads_at_once(driver: &Driver) -> Outcome {
    const THREADS: u32 = 8;
    const ROUNDS: u32 = 50;
    let gpu = Gpu::new(driver)?;
    let context = Shared::new(gpu.context);
    std::thread::scope(|scope| {
        let work = |number: u32| {
            move || -> Outcome {
                ok!(driver, cuCtxSetCurrent(context.get()));
                for round in 0..ROUNDS {
                    let words = [number * 1_000 + round; 300];
                    let (mut memory, mut seen) = (NO_ADDRESS, [0_u32; 300]);
                    ok!(driver, cuMemAlloc_v2(&raw mut memory, 1_200));
                    ok!(driver, cuMemcpyHtoD_v2(memory, words.as_ptr().cast(), 1_200));
                    ok!(driver, cuMemcpyDtoH_v2(seen.as_mut_ptr().cast(), memory, 1_200));
                    ensure!(seen == words, "thread {number} reads what another wrote");
                    ok!(driver, cuMemFree_v2(memory));
                }
                Ok(())
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|number| scope.spawn(work(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?)
    })
}

/// Forks; the child only ends.
fn forked(in_child: impl FnOnce()) -> Result<i32> {
    // SAFETY: the child does nothing but what it is given, which asks for no lock of other threads, and ends.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "no process");
    if child == 0 {
        in_child();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    Ok(wait_for(child)?)
}

fn a_forked_child_leaves_memory_alone(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let memory = gpu.upload(&[5; 4])?;
    let [add] = gpu.kernels([c"add"])?;
    ensure!(forked(|| ())? == 0, "the child did not end");
    gpu.launch(add, 4, NULL_STREAM, &[&memory, &1_u32, &4_u32])?;
    gpu.synchronise()?;
    ensure!(gpu.read(memory, 4)? == [6; 4], "the parent's memory is gone");
    ok!(driver, cuMemFree_v2(memory));
    Ok(())
}

fn a_forked_child_has_no_driver(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let memory = gpu.upload(&[5; 4])?;
    // SAFETY: the child calls the driver, ends, and touches nothing else.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "no process");
    if child == 0 {
        let codes = || -> Result<[CUresult; 2]> {
            let mut free = 0;
            Ok([cu!(driver, cuInit(0)), cu!(driver, cuMemGetInfo_v2(&raw mut free, null_mut()))])
        };
        let expected = [CUresult::CUDA_ERROR_NOT_INITIALIZED; 2];
        let code = codes().map_or(2, |codes| i32::from(codes != expected));
        // SAFETY: ends the process.
        unsafe { libc::_exit(code) };
    }
    let status = wait_for(child)?;
    ensure!(status == 0, "the child {}", detshare_test_child::ending(status, 0));
    ensure!(gpu.read(memory, 4)? == [5; 4], "the parent has suffered");
    Ok(())
}

fn a_process_may_end_with_everything_alive(driver: &Driver) -> Outcome {
    // A process of its own, forked before the driver is initialised, which ends as programs do.
    // SAFETY: this process has one thread.
    let child = unsafe { libc::fork() };
    ensure!(child >= 0, "no process");
    if child == 0 {
        let live = || -> Outcome {
            let gpu = Gpu::new(driver)?;
            let stream = gpu.stream(NON_BLOCKING)?;
            let memory = gpu.upload(&[1; 64])?;
            let [add] = gpu.kernels([c"add"])?;
            gpu.shared_words(4)?;
            gpu.event()?;
            gpu.launch(add, 64, stream, &[&memory, &1_u32, &64_u32])?;
            Ok(())
        };
        let code = i32::from(live().is_err());
        // SAFETY: ends the process with the handlers of all libraries.
        unsafe { libc::exit(code) };
    }
    let status = wait_for(child)?;
    ensure!(status == 0, "the process ended with {}", detshare_test_child::ending(status, 0));
    Ok(())
}

/// Whole pages of ordinary memory with that access.
fn pages(bytes: usize, access: i32) -> Result<*mut c_void> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new pages at an address of the system's choice.
    let start = unsafe { libc::mmap(null_mut(), bytes, access, kind, -1, 0) };
    ensure!(start != libc::MAP_FAILED, "no pages");
    Ok(start)
}

const PAGES: usize = 64 << 10;

fn unmapped_host_memory_is_not_registered(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let start = pages(PAGES, libc::PROT_READ | libc::PROT_WRITE)?;
    // SAFETY: the second half of the pages above.
    unsafe { libc::munmap(start.wrapping_byte_add(PAGES / 2), PAGES / 2) };
    let code = noted!(driver, cuMemHostRegister_v2(start, PAGES, 0), "half of it is not there");
    ensure!(code != CUresult::CUDA_SUCCESS, "memory that is not there was registered");
    ok!(driver, cuMemHostRegister_v2(start, PAGES / 2, 0));
    ok!(driver, cuMemHostUnregister(start));
    expect!(driver, cuMemHostUnregister(start) => CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    noted!(driver, cuMemHostRegister_v2(start, PAGES / 2, 0x40), "an unknown flag");
    noted!(driver, cuMemHostRegister_v2(start, PAGES / 2, 4), "as registers of a device");
    Ok(())
}

fn read_only_memory_is_registered_as_such(driver: &Driver) -> Outcome {
    const READ_ONLY: u32 = 8;
    let gpu = Gpu::new(driver)?;
    let start = pages(PAGES, libc::PROT_READ)?;
    noted!(driver, cuMemHostRegister_v2(start, PAGES, 0), "only to read, and not said so");
    let attribute = detshare_cuda::types::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    if gpu.attribute(attribute)? == 0 {
        skip!("the device cannot have memory only to read");
    }
    let _ = cu!(driver, cuMemHostUnregister(start));
    ok!(driver, cuMemHostRegister_v2(start, PAGES, READ_ONLY));
    let memory = gpu.upload(&[1; 4])?;
    ok!(driver, cuMemcpyHtoD_v2(memory, start, 16));
    ensure!(gpu.read(memory, 4)? == [0; 4], "it was not read");
    ok!(driver, cuMemHostUnregister(start));
    Ok(())
}

fn registering_what_is_pinned(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.shared_words(1_024)?;
    let code = noted!(driver, cuMemHostRegister_v2(words.host(), 4_096, 0), "pinned already");
    ensure!(code != CUresult::CUDA_SUCCESS, "pinned memory was registered");
    let code = noted!(driver, cuMemHostUnregister(words.host()), "allocated, not registered");
    ensure!(code != CUresult::CUDA_SUCCESS, "allocated memory was unregistered");
    let start = pages(PAGES, libc::PROT_READ | libc::PROT_WRITE)?;
    ok!(driver, cuMemHostRegister_v2(start, PAGES, 0));
    let code = noted!(driver, cuMemFreeHost(start), "registered, not allocated");
    ensure!(code != CUresult::CUDA_SUCCESS, "registered memory was freed");
    let middle = start.wrapping_byte_add(PAGES / 2);
    expect!(driver, cuMemHostUnregister(middle) => CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED | CUDA_ERROR_INVALID_VALUE);
    let mut flags = 0;
    ok!(driver, cuMemHostGetFlags(&raw mut flags, middle));
    note!("flags 0 read back as {flags:#x}");
    ok!(driver, cuMemHostUnregister(start));
    Ok(())
}

fn registered_memory_goes_with_its_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut own = NO_CONTEXT;
    ok!(driver, cuCtxCreate_v2(&raw mut own, 0, gpu.device));
    let start = pages(PAGES, libc::PROT_READ | libc::PROT_WRITE)?;
    ok!(driver, cuMemHostRegister_v2(start, PAGES, 0));
    ok!(driver, cuCtxDestroy_v2(own));
    ok!(driver, cuCtxSetCurrent(gpu.context));
    ok!(driver, cuMemHostRegister_v2(start, PAGES, 0));
    ok!(driver, cuMemHostUnregister(start));
    Ok(())
}

/// The attribute as a wide number, with the code.
fn attribute(driver: &Driver, attribute: Attribute, pointer: CUdeviceptr) -> Result<(CUresult, u64)> {
    let mut value = 0_u64;
    let code = cu!(driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer));
    Ok((code, value))
}

fn every_pointer_attribute_of_device_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let memory = gpu.alloc(4 << 20)?;
    let inside = offset(memory, 1_000);
    let value = |wanted| -> Result<u64> {
        let (code, value) = attribute(driver, wanted, inside)?;
        crate::call::judge("cuPointerGetAttribute", code, &[CUresult::CUDA_SUCCESS])?;
        Ok(value)
    };
    ensure!(value(Attribute::CU_POINTER_ATTRIBUTE_MAPPED)? & 0xff == 1, "it is not mapped");
    ensure!(value(Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)? & 0xff == 1, "no other process gets it");
    ensure!(value(Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE)? == 0, "it is of a pool");
    ensure!(value(Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)? & 0xff == 0, "it is synchronous");
    ensure!(value(Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS)? == 3, "the device may not touch it");
    ensure!(value(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)? == memory.0, "it starts elsewhere");
    for wanted in [
        Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
        Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
        Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
    ] {
        let (code, value) = attribute(driver, wanted, inside)?;
        note!("attribute {}: {} ({value})", wanted.0, crate::call::describe(code));
    }
    let (code, _) = attribute(driver, Attribute(999), inside)?;
    ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "an unknown attribute gives {code:?}");
    ok!(driver, cuMemFree_v2(memory));
    let (code, _) = attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside)?;
    ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "freed memory gives {code:?}");
    Ok(())
}

fn every_pointer_attribute_of_nothing(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut wanted = [
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        Attribute::CU_POINTER_ATTRIBUTE_MAPPED,
        Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
    ];
    // Each has a word behind it that must not be written.
    let mut words = [[0x5555_5555_u32; 4]; 4];
    let mut places: Vec<*mut c_void> = words.iter_mut().map(|it| it.as_mut_ptr().cast()).collect();
    let own = CUdeviceptr_v2(places.as_ptr().addr() as u64);
    ok!(driver, cuPointerGetAttributes(4, wanted.as_mut_ptr(), places.as_mut_ptr(), own));
    ensure!(words[0][0].cast_signed() == -2, "it lies on device {}", words[0][0].cast_signed());
    note!("memory of the program itself: size {:?}, context {:?}", &words[2][..2], &words[3][..2]);
    ensure!(words.iter().all(|it| it[2] == 0x5555_5555), "more was written than the attribute has");
    expect!(driver, cuPointerGetAttributes(0, wanted.as_mut_ptr(), places.as_mut_ptr(), own)
        => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn synchronous_operations_are_kept(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let memory = gpu.alloc(4_096)?;
    let sync = Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
    for wanted in [1_u32, 0] {
        ok!(driver, cuPointerSetAttribute((&raw const wanted).cast(), sync, memory));
        let (code, value) = attribute(driver, sync, memory)?;
        ensure!(code == CUresult::CUDA_SUCCESS && value & 1 == u64::from(wanted), "{value} instead of {wanted}");
    }
    let wanted = 1_u32;
    let fixed = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    expect!(driver, cuPointerSetAttribute((&raw const wanted).cast(), fixed, memory) => CUDA_ERROR_INVALID_VALUE);
    let nowhere = CUdeviceptr_v2(0x1234_5600);
    expect!(driver, cuPointerSetAttribute((&raw const wanted).cast(), sync, nowhere) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn rows_at_odd_pitches(driver: &Driver) -> Outcome {
    const PITCH: usize = 37;
    let gpu = Gpu::new(driver)?;
    let memory = gpu.zeros(100)?;
    let bytes: Vec<u8> = (0..60).collect();
    // SAFETY: plain values throughout, where zero means none.
    let mut copy: CUDA_MEMCPY2D = unsafe { core::mem::zeroed() };
    (copy.srcMemoryType, copy.srcHost, copy.srcPitch) = (Memory::CU_MEMORYTYPE_HOST, bytes.as_ptr().cast(), 20);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (Memory::CU_MEMORYTYPE_DEVICE, memory, PITCH);
    (copy.srcXInBytes, copy.dstXInBytes, copy.dstY) = (3, 5, 1);
    (copy.WidthInBytes, copy.Height) = (11, 3);
    ok!(driver, cuMemcpy2DUnaligned_v2(&raw const copy));
    let seen = gpu.read_bytes(memory, 5 * PITCH)?;
    for row in 0..3 {
        let start = (row + 1) * PITCH + 5;
        let expected = &bytes[row * 20 + 3..row * 20 + 14];
        ensure!(seen[start..start + 11] == *expected, "row {row}: {:?}", &seen[start..start + 11]);
        ensure!(seen[start - 1] == 0 && seen[start + 11] == 0, "row {row} has spread");
    }
    ok!(driver, cuMemsetD2D8_v2(offset(memory, 1), PITCH, 9, 3, 4));
    gpu.synchronise()?;
    let seen = gpu.read_bytes(offset(memory, 3 * PITCH), 6)?;
    ensure!(seen[..5] == [0, 9, 9, 9, 0], "{seen:?}");
    Ok(())
}

fn rows_that_overlap_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let memory = gpu.zeros(100)?;
    let bytes = [0_u8; 64];
    // SAFETY: plain values throughout, where zero means none.
    let mut copy: CUDA_MEMCPY2D = unsafe { core::mem::zeroed() };
    (copy.srcMemoryType, copy.srcHost, copy.srcPitch) = (Memory::CU_MEMORYTYPE_HOST, bytes.as_ptr().cast(), 16);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (Memory::CU_MEMORYTYPE_DEVICE, memory, 8);
    (copy.WidthInBytes, copy.Height) = (16, 4);
    expect!(driver, cuMemcpy2D_v2(&raw const copy) => CUDA_ERROR_INVALID_VALUE);
    copy.dstPitch = 16;
    copy.dstMemoryType = Memory(77);
    expect!(driver, cuMemcpy2D_v2(&raw const copy) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemcpy2D_v2(core::ptr::null()) => CUDA_ERROR_INVALID_VALUE);
    noted!(driver, cuMemsetD2D32_v2(memory, 2, 1, 4, 4), "rows of 16 bytes at a pitch of 2");
    Ok(())
}

/// Judged by what can be had, as the free memory is that of all who use the device: in turn, more than there is.
fn memory_is_reused_without_end(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let kept: Vec<_> = (0..16).map(|_| gpu.alloc(3_000)).collect::<Result<_>>()?;
    let large = gpu.total_memory()? / 100;
    for round in 0..110_usize {
        let sizes = [100 + 64 * round, 70_000, large];
        let memory: Vec<_> = sizes.iter().map(|bytes| gpu.alloc(*bytes)).collect::<Result<_>>()?;
        for pointer in memory.into_iter().rev() {
            ok!(driver, cuMemFree_v2(pointer));
        }
    }
    kept.into_iter().try_for_each(|pointer| {
        ok!(driver, cuMemFree_v2(pointer));
        Ok(())
    })
}
