//! Allocations on both sides, memsets, and what is known of a pointer.

use crate::Outcome;
use crate::gpu::{BLOCKING, DEVICE_MAP, Gpu, NO_ADDRESS, NULL_STREAM, offset};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUdevice_attribute, CUdeviceptr, CUdeviceptr_v2, CUmemAttach_flags, CUmemorytype, CUpointer_attribute,
    CUresult,
};

tests! { memory:
    alloc_and_free,
    allocations_do_not_overlap,
    zero_bytes_are_refused,
    freeing_null,
    freeing_twice_fails,
    freeing_what_is_no_allocation_fails,
    too_much_is_out_of_memory,
    free_memory_shrinks_and_comes_back,
    address_range_is_found_from_inside,
    address_range_of_nothing,
    pitch_holds_a_row,
    host_memory_is_seen_by_kernels,
    host_flags_are_kept,
    host_memory_is_freed_once,
    host_memory_can_be_registered,
    registering_is_checked,
    device_address_of_unknown_host_memory,
    memset_bytes_halves_and_words,
    memset_in_a_stream,
    memset_rows,
    misaligned_memset_is_refused,
    memset_of_nothing_and_of_too_much,
    attributes_of_device_memory,
    attributes_of_host_memory,
    attributes_of_unknown_memory,
    buffer_ids_are_unique,
    managed_memory_is_seen_by_both,
}

const MEBIBYTE: usize = 1 << 20;
/// `CU_MEMHOSTALLOC_PORTABLE`.
const PORTABLE: u32 = 1;
/// `CU_MEMHOSTREGISTER_DEVICEMAP`.
const REGISTER_DEVICE_MAP: u32 = 2;
/// An address that no allocation has.
const NO_ALLOCATION: CUdeviceptr = CUdeviceptr_v2(0x1234_5600);

fn alloc_and_free(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for bytes in [1, 3, 256, 4_097, MEBIBYTE, 64 * MEBIBYTE] {
        let pointer = gpu.alloc(bytes)?;
        ensure!(pointer.0.is_multiple_of(256), "{bytes} bytes lie at {:#x}", pointer.0);
        ok!(driver, cuMemFree_v2(pointer));
    }
    Ok(())
}

fn allocations_do_not_overlap(driver: &Driver) -> Outcome {
    const WORDS: usize = 100;
    let gpu = Gpu::new(driver)?;
    let values = 1..=50;
    let pointers: Vec<_> = values.clone().map(|value| gpu.upload(&[value; WORDS])).collect::<Result<_>>()?;
    for (value, pointer) in values.zip(&pointers) {
        ensure!(gpu.read(*pointer, WORDS)? == [value; WORDS], "allocation {value} was overwritten");
    }
    for pointer in pointers {
        ok!(driver, cuMemFree_v2(pointer));
    }
    Ok(())
}

fn zero_bytes_are_refused(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAlloc_v2(null_mut(), 64) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn freeing_null(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    noted!(driver, cuMemFree_v2(NO_ADDRESS), "NULL");
    Ok(())
}

fn freeing_twice_fails(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.alloc(MEBIBYTE)?;
    ok!(driver, cuMemFree_v2(pointer));
    expect!(driver, cuMemFree_v2(pointer) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn freeing_what_is_no_allocation_fails(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.upload(&[1, 2, 3, 4])?;
    expect!(driver, cuMemFree_v2(NO_ALLOCATION) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemFree_v2(offset(pointer, 8)) => CUDA_ERROR_INVALID_VALUE);
    ensure!(gpu.read(pointer, 4)? == [1, 2, 3, 4], "the allocation has changed");
    ok!(driver, cuMemFree_v2(pointer));
    Ok(())
}

fn too_much_is_out_of_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let total = gpu.total_memory()?;
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, total * 4) => CUDA_ERROR_OUT_OF_MEMORY);
    noted!(driver, cuMemAlloc_v2(&raw mut pointer, usize::MAX / 2), "half of all addresses");
    noted!(driver, cuMemAlloc_v2(&raw mut pointer, usize::MAX), "all addresses");
    let words = gpu.upload(&[3; 16])?;
    ensure!(gpu.read(words, 16)? == [3; 16], "after running out of memory nothing is kept");
    ok!(driver, cuCtxSynchronize());
    Ok(())
}

fn free_memory_shrinks_and_comes_back(driver: &Driver) -> Outcome {
    const BYTES: usize = 256 * MEBIBYTE;
    let gpu = Gpu::new(driver)?;
    let info = || -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        ok!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total));
        Ok((free, total))
    };
    let (before, total) = info()?;
    let pointer = gpu.alloc(BYTES)?;
    let (during, total_then) = info()?;
    ok!(driver, cuMemFree_v2(pointer));
    let (after, _) = info()?;
    ensure!(total == total_then && before <= total, "{before} of {total}, then of {total_then}");
    ensure!(during < before, "{before} bytes were free before and {during} after an allocation");
    ensure!(after > during, "{during} bytes were free before and {after} after the memory was given back");
    Ok(())
}

fn address_range_is_found_from_inside(driver: &Driver) -> Outcome {
    const BYTES: usize = 1_000;
    let gpu = Gpu::new(driver)?;
    let pointer = gpu.alloc(BYTES)?;
    for inside in [0, 1, 500, BYTES - 1] {
        let (mut base, mut size) = (NO_ADDRESS, 0);
        ok!(driver, cuMemGetAddressRange_v2(&raw mut base, &raw mut size, offset(pointer, inside)));
        ensure!(base == pointer && size >= BYTES, "{size} bytes at {base:?} instead of {BYTES} at {pointer:?}");
        if inside == 0 {
            note!("an allocation of {BYTES} bytes has the range {size}");
        }
    }
    let (mut base, mut size) = (NO_ADDRESS, 0);
    ok!(driver, cuMemGetAddressRange_v2(&raw mut base, null_mut(), pointer));
    ok!(driver, cuMemGetAddressRange_v2(null_mut(), &raw mut size, pointer));
    ensure!(base == pointer && size >= BYTES, "each alone gives {size} bytes at {base:?}");
    Ok(())
}

fn address_range_of_nothing(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let (mut base, mut size) = (NO_ADDRESS, 0);
    let code = noted!(driver, cuMemGetAddressRange_v2(&raw mut base, &raw mut size, NO_ALLOCATION), "no allocation");
    ensure!(code != CUresult::CUDA_SUCCESS, "{size} bytes at {base:?}");
    Ok(())
}

fn pitch_holds_a_row(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut pointer, mut pitch) = (NO_ADDRESS, 0);
    ok!(driver, cuMemAllocPitch_v2(&raw mut pointer, &raw mut pitch, 100, 10, 4));
    ensure!(pitch >= 100 && pitch.is_multiple_of(4), "rows of 100 bytes have the pitch {pitch}");
    note!("rows of 100 bytes have the pitch {pitch}");
    ok!(driver, cuMemsetD2D8_v2(pointer, pitch, 5, 100, 10));
    let last = gpu.read_bytes(offset(pointer, 9 * pitch), 100)?;
    ensure!(last == [5; 100], "the last row is not whole");
    ok!(driver, cuMemFree_v2(pointer));
    noted!(driver, cuMemAllocPitch_v2(&raw mut pointer, &raw mut pitch, 100, 10, 3), "elements of 3 bytes");
    Ok(())
}

fn host_memory_is_seen_by_kernels(driver: &Driver) -> Outcome {
    const WORDS: u32 = 300;
    let gpu = Gpu::new(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let words = gpu.shared_words(WORDS as usize)?;
    (0..WORDS).for_each(|index| words.set(index as usize, index));
    gpu.launch(add, WORDS, NULL_STREAM, &[&words.at(0), &1_000_u32, &WORDS])?;
    gpu.synchronise()?;
    ensure!((0..WORDS).all(|index| words.get(index as usize) == index + 1_000), "the kernel's sums are not there");
    if gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? == 1 {
        ensure!(words.at(0).0 == words.host().addr() as u64, "the device sees pinned memory at another address");
    }
    Ok(())
}

fn host_flags_are_kept(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    for wanted in [0, PORTABLE, DEVICE_MAP, PORTABLE | DEVICE_MAP] {
        let (mut host, mut flags) = (null_mut(), 0);
        ok!(driver, cuMemHostAlloc(&raw mut host, 4_096, wanted));
        ok!(driver, cuMemHostGetFlags(&raw mut flags, host));
        ensure!(flags & wanted == wanted, "flags {wanted:#x} became {flags:#x}");
        note!("flags {wanted:#x} read back as {flags:#x}");
        ok!(driver, cuMemFreeHost(host));
    }
    let mut host = null_mut();
    expect!(driver, cuMemHostAlloc(&raw mut host, 4_096, 0x8000) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemHostAlloc(&raw mut host, 0, 0));
    ensure!(host.is_null(), "zero bytes lie at {host:?}");
    Ok(())
}

fn host_memory_is_freed_once(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let mut host = null_mut();
    ok!(driver, cuMemAllocHost_v2(&raw mut host, 4_096));
    ok!(driver, cuMemFreeHost(host));
    expect!(driver, cuMemFreeHost(host) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

/// Whole pages of ordinary memory.
struct Pages {
    start: *mut c_void,
    bytes: usize,
}

impl Pages {
    const BYTES: usize = 64 << 10;

    fn new() -> Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new pages at an address of the system's choice.
        let start = unsafe { libc::mmap(null_mut(), Self::BYTES, access, kind, -1, 0) };
        ensure!(start != libc::MAP_FAILED, "no pages");
        Ok(Self { start, bytes: Self::BYTES })
    }

    fn first_words<const N: usize>(&self) -> [u32; N] {
        // SAFETY: readable pages, aligned, and no device works on them while this is called.
        unsafe { self.start.cast::<[u32; N]>().read_volatile() }
    }
}

fn host_memory_can_be_registered(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let pages = Pages::new()?;
    ok!(driver, cuMemHostRegister_v2(pages.start, pages.bytes, REGISTER_DEVICE_MAP));
    let mut device = NO_ADDRESS;
    ok!(driver, cuMemHostGetDevicePointer_v2(&raw mut device, pages.start, 0));
    gpu.launch(fill, 4, NULL_STREAM, &[&device, &6_u32, &4_u32])?;
    gpu.synchronise()?;
    ensure!(pages.first_words() == [6, 6, 6, 6, 0], "the kernel's words are not there");
    ok!(driver, cuMemHostUnregister(pages.start));
    Ok(())
}

fn registering_is_checked(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let pages = Pages::new()?;
    expect!(driver, cuMemHostUnregister(pages.start) => CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    ok!(driver, cuMemHostRegister_v2(pages.start, pages.bytes, 0));
    expect!(driver, cuMemHostRegister_v2(pages.start, pages.bytes, 0)
        => CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    ok!(driver, cuMemHostUnregister(pages.start));
    expect!(driver, cuMemHostRegister_v2(pages.start, 0, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemHostRegister_v2(null_mut(), 4_096, 0) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn device_address_of_unknown_host_memory(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    let pages = Pages::new()?;
    let mut device = NO_ADDRESS;
    noted!(driver, cuMemHostGetDevicePointer_v2(&raw mut device, pages.start, 0), "not registered");
    Ok(())
}

fn memset_bytes_halves_and_words(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.upload(&[0xaaaa_aaaa; 8])?;
    ok!(driver, cuMemsetD8_v2(offset(words, 1), 0x11, 5));
    ok!(driver, cuMemsetD16_v2(offset(words, 10), 0x2233, 3));
    ok!(driver, cuMemsetD32_v2(offset(words, 20), 0x4455_6677, 2));
    gpu.synchronise()?;
    let expected: [u32; 8] =
        [0x1111_11aa, 0xaaaa_1111, 0x2233_aaaa, 0x2233_2233, 0xaaaa_aaaa, 0x4455_6677, 0x4455_6677, 0xaaaa_aaaa];
    let seen = gpu.read(words, 8)?;
    ensure!(seen == expected, "{seen:x?} instead of {expected:x?}");
    Ok(())
}

fn memset_in_a_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let gate = gpu.gate()?;
    let words = gpu.upload(&[1; 6])?;
    let stream = gpu.stream(BLOCKING)?;
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuMemsetD32Async(words, 7, 6, stream));
    ok!(driver, cuMemsetD16Async(offset(words, 8), 0x0101, 2, stream));
    ok!(driver, cuMemsetD8Async(offset(words, 20), 0xff, 4, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    let seen = gpu.read(words, 6)?;
    ensure!(seen == [7, 7, 0x0101_0101, 7, 7, u32::MAX], "{seen:x?}");
    Ok(())
}

fn memset_rows(driver: &Driver) -> Outcome {
    const PITCH: usize = 16;
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(12)?;
    ok!(driver, cuMemsetD2D8_v2(words, PITCH, 0x11, 4, 3));
    ok!(driver, cuMemsetD2D16_v2(offset(words, 4), PITCH, 0x2222, 2, 3));
    ok!(driver, cuMemsetD2D32_v2(offset(words, 8), PITCH, 0x3333_3333, 1, 2));
    gpu.synchronise()?;
    let seen = gpu.read(words, 12)?;
    let row = [0x1111_1111, 0x2222_2222, 0x3333_3333, 0];
    ensure!(seen[..4] == row && seen[4..8] == row, "{seen:x?}");
    ensure!(seen[8..] == [0x1111_1111, 0x2222_2222, 0, 0], "{seen:x?}");
    Ok(())
}

fn misaligned_memset_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(4)?;
    expect!(driver, cuMemsetD16_v2(offset(words, 1), 1, 1) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemsetD32_v2(offset(words, 2), 1, 1) => CUDA_ERROR_INVALID_VALUE);
    ensure!(gpu.read(words, 4)? == [0; 4], "a refused memset has written");
    Ok(())
}

fn memset_of_nothing_and_of_too_much(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(4)?;
    noted!(driver, cuMemsetD32_v2(words, 1, 0), "no words");
    expect!(driver, cuMemsetD8_v2(NO_ALLOCATION, 1, 4) => CUDA_ERROR_INVALID_VALUE);
    let large = gpu.alloc(4 * MEBIBYTE)?;
    noted!(driver, cuMemsetD8_v2(large, 1, 4_096 * MEBIBYTE), "a thousand times the allocation");
    noted!(driver, cuCtxSynchronize(), "after that");
    Ok(())
}

fn pointer_attribute<T>(driver: &Driver, attribute: CUpointer_attribute, pointer: CUdeviceptr, start: T) -> Result<T> {
    let mut value = start;
    ok!(driver, cuPointerGetAttribute((&raw mut value).cast(), attribute, pointer));
    Ok(value)
}

fn attributes_of_device_memory(driver: &Driver) -> Outcome {
    use CUpointer_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let base = gpu.alloc(4_096)?;
    let inside = offset(base, 16);
    let get = |attribute| pointer_attribute(driver, attribute, inside, 0_u64);
    let kind = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside, 0_u32)?;
    ensure!(kind == CUmemorytype::CU_MEMORYTYPE_DEVICE.0, "memory type {kind}");
    let context = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, inside, CUcontext(null_mut()))?;
    ensure!(context == gpu.context, "it belongs to {context:?}");
    ensure!(get(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER)? == inside.0, "the device pointer is another");
    ensure!(get(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)? == base.0, "the range starts elsewhere");
    ensure!(get(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE)? >= 4_096, "the range is too short");
    let ordinal = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside, -1_i32)?;
    ensure!(ordinal == gpu.device.0, "it lies on device {ordinal}");
    let managed = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, inside, 0_u32)?;
    ensure!(managed == 0, "it is managed");
    let mut host = null_mut::<c_void>();
    let host_pointer = Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER;
    expect!(driver, cuPointerGetAttribute((&raw mut host).cast(), host_pointer, inside) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn attributes_of_host_memory(driver: &Driver) -> Outcome {
    use CUpointer_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let words = gpu.shared_words(4)?;
    let pointer = words.at(0);
    let kind = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer, 0_u32)?;
    ensure!(kind == CUmemorytype::CU_MEMORYTYPE_HOST.0, "memory type {kind}");
    let host = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER, pointer, 0_u64)?;
    ensure!(host == words.host().addr() as u64, "the host pointer is {host:#x}");
    let device = pointer_attribute(driver, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER, pointer, 0_u64)?;
    ensure!(device == pointer.0, "the device pointer is {device:#x}");
    Ok(())
}

fn attributes_of_unknown_memory(driver: &Driver) -> Outcome {
    use CUpointer_attribute as Attribute;
    Gpu::new(driver)?;
    let pages = Pages::new()?;
    let pointer = CUdeviceptr_v2(pages.start.addr() as u64);
    let mut kind = 77_u32;
    let mut address = 77_u64;
    let memory_type = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    expect!(driver, cuPointerGetAttribute((&raw mut kind).cast(), memory_type, pointer) => CUDA_ERROR_INVALID_VALUE);
    let mut attributes = [memory_type, Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER];
    let mut values: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut address).cast()];
    ok!(driver, cuPointerGetAttributes(2, attributes.as_mut_ptr(), values.as_mut_ptr(), pointer));
    ensure!(kind == 0, "memory type {kind}");
    note!("the device pointer of ordinary memory is {}", if address == 0 { "NULL" } else { "not NULL" });
    Ok(())
}

fn buffer_ids_are_unique(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let id = |pointer| pointer_attribute(driver, CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID, pointer, 0_u64);
    let (first, second) = (gpu.alloc(4_096)?, gpu.alloc(4_096)?);
    ensure!(id(first)? != id(second)?, "two allocations have one id");
    ensure!(id(first)? == id(offset(first, 100))?, "one allocation has two ids");
    Ok(())
}

fn managed_memory_is_seen_by_both(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    if gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? == 0 {
        skip!("the device has no managed memory");
    }
    let [add] = gpu.kernels([c"add"])?;
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocManaged(&raw mut pointer, 4_096, CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0));
    let words: *mut [u32; 4] = core::ptr::with_exposed_provenance_mut(usize::try_from(pointer.0)?);
    // SAFETY: managed memory may be written by the host while no kernel runs.
    unsafe { words.write_volatile([1, 2, 3, 4]) };
    gpu.launch(add, 4, NULL_STREAM, &[&pointer, &10_u32, &4_u32])?;
    gpu.synchronise()?;
    // SAFETY: as above, after the kernel.
    let seen = unsafe { words.read_volatile() };
    ensure!(seen == [11, 12, 13, 14], "{seen:?}");
    let managed = pointer_attribute(driver, CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer, 0_u32)?;
    ensure!(managed == 1, "it is not managed");
    ok!(driver, cuMemFree_v2(pointer));
    Ok(())
}
