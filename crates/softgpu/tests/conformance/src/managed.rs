//! Managed memory: seen by all, advised on, prefetched, and attached.

use crate::Outcome;
use crate::gpu::{BLOCKING, Gpu, NO_ADDRESS, NON_BLOCKING, NULL_STREAM, offset};
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_int};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice, CUdevice_attribute, CUdevice_v1, CUdeviceptr, CUfunction, CUkernel, CUlibrary, CUmem_advise as Advice,
    CUmem_range_attribute as Attribute, CUmemAttach_flags, CUmemLocation, CUmemLocationType as Kind,
    CUpointer_attribute, CUresult,
};

tests! { managed:
    host_and_kernel_take_turns,
    it_is_made_of_whole_allocations,
    advice_is_kept_for_its_pages,
    preferred_location_is_kept,
    accessed_by_lists_devices,
    last_prefetch_is_remembered,
    prefetch_keeps_the_content_and_the_order,
    only_managed_memory_is_advised_on,
    unknown_places_are_refused,
    several_attributes_at_once,
    attaching_to_a_stream,
    attached_memory_can_be_written,
    attaching_to_the_default_stream,
    attaching_a_part,
    attaching_memory_that_is_not_managed,
    batches_of_prefetches,
    discarding_leaves_memory_usable,
    goes_with_its_context,
    variables_of_a_module,
}

const PAGE: usize = 64 << 10;
const GLOBAL: u32 = CUmemAttach_flags::CU_MEM_ATTACH_GLOBAL.0;
/// `CU_DEVICE_CPU` and `CU_DEVICE_INVALID`.
const HOST: CUdevice = CUdevice_v1(-1);
const INVALID: c_int = -2;

/// The first device, whose managed memory host and kernels may use at once.
fn gpu(driver: &Driver) -> Result<Gpu<'_>> {
    let gpu = Gpu::new(driver)?;
    if gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)? == 0 {
        skip!("managed memory is not for host and device at once");
    }
    Ok(gpu)
}

fn alloc(gpu: &Gpu, bytes: usize) -> Result<CUdeviceptr> {
    let mut pointer = NO_ADDRESS;
    ok!(gpu, cuMemAllocManaged(&raw mut pointer, bytes, GLOBAL));
    ensure!(pointer != NO_ADDRESS, "cuMemAllocManaged gave no address");
    Ok(pointer)
}

fn host_word(pointer: CUdeviceptr, index: usize) -> Result<*mut u32> {
    let first: *mut u32 = core::ptr::with_exposed_provenance_mut(usize::try_from(pointer.0)?);
    Ok(first.wrapping_add(index))
}

fn set(pointer: CUdeviceptr, index: usize, value: u32) -> Result<()> {
    // SAFETY: within an allocation of the test, which no kernel uses now.
    unsafe { host_word(pointer, index)?.write_volatile(value) };
    Ok(())
}

fn get(pointer: CUdeviceptr, index: usize) -> Result<u32> {
    // SAFETY: as above.
    Ok(unsafe { host_word(pointer, index)?.read_volatile() })
}

fn attribute(gpu: &Gpu, attribute: Attribute, pointer: CUdeviceptr, bytes: usize) -> Result<c_int> {
    let mut value: c_int = -99;
    ok!(gpu, cuMemRangeGetAttribute((&raw mut value).cast(), size_of::<c_int>(), attribute, pointer, bytes));
    Ok(value)
}

fn host_and_kernel_take_turns(driver: &Driver) -> Outcome {
    const WORDS: usize = 3 * PAGE / 4;
    let gpu = gpu(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let memory = alloc(&gpu, WORDS * 4)?;
    for turn in 0..3 {
        for index in [0, 1, WORDS / 2, WORDS - 1] {
            set(memory, index, 100 * turn)?;
        }
        gpu.launch(add, u32::try_from(WORDS)?, NULL_STREAM, &[&memory, &7_u32, &u32::try_from(WORDS)?])?;
        gpu.synchronise()?;
        for index in [0, 1, WORDS / 2, WORDS - 1] {
            ensure!(get(memory, index)? == 100 * turn + 7, "word {index} in turn {turn}");
        }
    }
    ok!(driver, cuMemFree_v2(memory));
    Ok(())
}

fn it_is_made_of_whole_allocations(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAllocManaged(&raw mut pointer, 0, GLOBAL) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAllocManaged(null_mut(), 64, GLOBAL) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAllocManaged(&raw mut pointer, 64, 0) => CUDA_ERROR_INVALID_VALUE);
    let single = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE.0;
    expect!(driver, cuMemAllocManaged(&raw mut pointer, 64, single) => CUDA_ERROR_INVALID_VALUE);
    let memory = alloc(&gpu, 100)?;
    expect!(driver, cuMemFree_v2(offset(memory, 4)) => CUDA_ERROR_INVALID_VALUE);
    let mut managed = 0_u32;
    let is_managed = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    ok!(driver, cuPointerGetAttribute((&raw mut managed).cast(), is_managed, offset(memory, 50)));
    ensure!(managed == 1, "it is not managed");
    let mut host = 0_u64;
    let host_pointer = CUpointer_attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER;
    ok!(driver, cuPointerGetAttribute((&raw mut host).cast(), host_pointer, memory));
    ensure!(host == memory.0, "the host has it at {host:#x}");
    ok!(driver, cuMemFree_v2(memory));
    expect!(driver, cuMemFree_v2(memory) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn advice_is_kept_for_its_pages(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, 4 * PAGE)?;
    let read_mostly = |from: usize, pages: usize| {
        attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, offset(memory, from * PAGE), pages * PAGE)
    };
    ensure!(read_mostly(0, 4)? == 0, "read mostly before anyone said so");
    let first = offset(memory, PAGE);
    ok!(driver, cuMemAdvise(first, 2 * PAGE, Advice::CU_MEM_ADVISE_SET_READ_MOSTLY, gpu.device));
    ensure!(read_mostly(1, 2)? == 1 && read_mostly(1, 1)? == 1, "the advice is lost");
    ensure!(read_mostly(0, 1)? == 0 && read_mostly(3, 1)? == 0, "the advice has spread");
    ensure!(read_mostly(0, 4)? == 0, "not all pages were advised on");
    ok!(driver, cuMemAdvise(first, PAGE, Advice::CU_MEM_ADVISE_UNSET_READ_MOSTLY, gpu.device));
    ensure!(read_mostly(1, 1)? == 0 && read_mostly(2, 1)? == 1, "the wrong page is left");
    Ok(())
}

fn preferred_location_is_kept(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, 2 * PAGE)?;
    let preferred = || attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, 2 * PAGE);
    ensure!(preferred()? == INVALID, "preferred before anyone said so");
    let prefer = Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    ok!(driver, cuMemAdvise(memory, 2 * PAGE, prefer, gpu.device));
    ensure!(preferred()? == gpu.device.0, "the device is not preferred");
    ok!(driver, cuMemAdvise(memory, PAGE, prefer, HOST));
    ensure!(preferred()? == INVALID, "the pages differ");
    let first = attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, memory, PAGE)?;
    ensure!(first == HOST.0, "the first page prefers {first}");
    let place = CUmemLocation { type_: Kind::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device.0 };
    ok!(driver, cuMemAdvise_v2(memory, 2 * PAGE, prefer, place));
    let kind = attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, memory, 2 * PAGE)?;
    let id = attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID, memory, 2 * PAGE)?;
    ensure!(kind.cast_unsigned() == Kind::CU_MEM_LOCATION_TYPE_DEVICE.0 && id == gpu.device.0, "{kind} and {id}");
    ok!(driver, cuMemAdvise(memory, 2 * PAGE, Advice::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, gpu.device));
    ensure!(preferred()? == INVALID, "it is still preferred");
    Ok(())
}

fn accessed_by_lists_devices(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, PAGE)?;
    let list = || -> Result<[c_int; 3]> {
        let mut devices: [c_int; 3] = [-99; 3];
        let (place, size) = ((&raw mut devices).cast(), size_of_val(&devices));
        ok!(driver, cuMemRangeGetAttribute(place, size, Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, PAGE));
        Ok(devices)
    };
    ensure!(list()? == [INVALID; 3], "accessed by {:?}", list()?);
    ok!(driver, cuMemAdvise(memory, PAGE, Advice::CU_MEM_ADVISE_SET_ACCESSED_BY, gpu.device));
    ensure!(list()? == [gpu.device.0, INVALID, INVALID], "accessed by {:?}", list()?);
    ok!(driver, cuMemAdvise(memory, PAGE, Advice::CU_MEM_ADVISE_UNSET_ACCESSED_BY, gpu.device));
    ensure!(list()? == [INVALID; 3], "accessed by {:?}", list()?);
    Ok(())
}

fn last_prefetch_is_remembered(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, 2 * PAGE)?;
    let last = || attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, memory, 2 * PAGE);
    ensure!(last()? == INVALID, "prefetched before anyone did");
    ok!(driver, cuMemPrefetchAsync(memory, 2 * PAGE, gpu.device, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(last()? == gpu.device.0, "prefetched to {}", last()?);
    let host = CUmemLocation { type_: Kind::CU_MEM_LOCATION_TYPE_HOST, id: 0 };
    ok!(driver, cuMemPrefetchAsync_v2(memory, 2 * PAGE, host, 0, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(last()? == HOST.0, "prefetched to {}", last()?);
    expect!(driver, cuMemPrefetchAsync_v2(memory, PAGE, host, 1, NULL_STREAM) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn prefetch_keeps_the_content_and_the_order(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let gate = gpu.gate()?;
    let memory = alloc(&gpu, PAGE)?;
    (0..4).try_for_each(|index| set(memory, index, 5))?;
    let stream = gpu.stream(BLOCKING)?;
    gpu.hold_at(&gate, stream)?;
    gpu.launch(add, 4, stream, &[&memory, &1_u32, &4_u32])?;
    ok!(driver, cuMemPrefetchAsync(memory, PAGE, gpu.device, stream));
    gpu.launch(add, 4, stream, &[&memory, &10_u32, &4_u32])?;
    ok!(driver, cuMemPrefetchAsync(memory, PAGE, HOST, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    for index in 0..4 {
        ensure!(get(memory, index)? == 16, "word {index} is {}", get(memory, index)?);
    }
    Ok(())
}

fn only_managed_memory_is_advised_on(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let plain = gpu.alloc(PAGE)?;
    let managed = alloc(&gpu, PAGE)?;
    let wish = Advice::CU_MEM_ADVISE_SET_READ_MOSTLY;
    expect!(driver, cuMemAdvise(plain, PAGE, wish, gpu.device) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemPrefetchAsync(plain, PAGE, gpu.device, NULL_STREAM) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAdvise(managed, 0, wish, gpu.device) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAdvise(managed, 64 * PAGE, wish, gpu.device) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAdvise(managed, PAGE, Advice(99), gpu.device) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemFree_v2(managed));
    expect!(driver, cuMemAdvise(managed, PAGE, wish, gpu.device) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemPrefetchAsync(managed, PAGE, gpu.device, NULL_STREAM) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn unknown_places_are_refused(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, PAGE)?;
    let prefer = Advice::CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
    expect!(driver, cuMemAdvise(memory, PAGE, prefer, CUdevice_v1(99)) => CUDA_ERROR_INVALID_DEVICE);
    expect!(driver, cuMemPrefetchAsync(memory, PAGE, CUdevice_v1(99), NULL_STREAM) => CUDA_ERROR_INVALID_DEVICE);
    let nowhere = CUmemLocation { type_: Kind(99), id: 0 };
    noted!(driver, cuMemAdvise_v2(memory, PAGE, prefer, nowhere), "no such kind of place");
    noted!(driver, cuMemPrefetchAsync_v2(memory, PAGE, nowhere, 0, NULL_STREAM), "no such kind of place");
    let mut value = 0;
    let unknown = Attribute(99);
    expect!(driver, cuMemRangeGetAttribute((&raw mut value).cast(), 4, unknown, memory, PAGE) => CUDA_ERROR_INVALID_VALUE);
    let read_mostly = Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    expect!(driver, cuMemRangeGetAttribute((&raw mut value).cast(), 3, read_mostly, memory, PAGE)
        => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemRangeGetAttribute(null_mut(), 4, read_mostly, memory, PAGE) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn several_attributes_at_once(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, PAGE)?;
    ok!(driver, cuMemAdvise(memory, PAGE, Advice::CU_MEM_ADVISE_SET_READ_MOSTLY, gpu.device));
    let (mut read_mostly, mut preferred): (c_int, c_int) = (-99, -99);
    let mut places = [(&raw mut read_mostly).cast(), (&raw mut preferred).cast()];
    let mut sizes = [4, 4];
    let mut wanted =
        [Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION];
    let (places, sizes, wanted) = (places.as_mut_ptr(), sizes.as_mut_ptr(), wanted.as_mut_ptr());
    ok!(driver, cuMemRangeGetAttributes(places, sizes, wanted, 2, memory, PAGE));
    ensure!((read_mostly, preferred) == (1, INVALID), "{read_mostly} and {preferred}");
    expect!(driver, cuMemRangeGetAttributes(places, sizes, wanted, 0, memory, PAGE) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn attaching_to_a_stream(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let memory = alloc(&gpu, PAGE)?;
    let single = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE.0;
    ok!(driver, cuStreamAttachMemAsync(stream, memory, 0, single));
    ok!(driver, cuStreamAttachMemAsync(stream, memory, PAGE, CUmemAttach_flags::CU_MEM_ATTACH_HOST.0));
    ok!(driver, cuStreamAttachMemAsync(stream, memory, 0, GLOBAL));
    gpu.wait(stream)
}

fn attached_memory_can_be_written(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let memory = alloc(&gpu, PAGE)?;
    ok!(driver, cuStreamAttachMemAsync(stream, memory, 0, GLOBAL));
    gpu.wait(stream)?;
    set(memory, 0, 3)?;
    ensure!(get(memory, 0)? == 3, "the host cannot write");
    Ok(())
}

fn attaching_to_the_default_stream(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let memory = alloc(&gpu, PAGE)?;
    let single = CUmemAttach_flags::CU_MEM_ATTACH_SINGLE.0;
    noted!(driver, cuStreamAttachMemAsync(NULL_STREAM, memory, 0, single), "single, default stream");
    Ok(())
}

fn attaching_a_part(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let (stream, memory) = (gpu.stream(NON_BLOCKING)?, alloc(&gpu, PAGE)?);
    noted!(driver, cuStreamAttachMemAsync(stream, memory, PAGE / 2, GLOBAL), "a part of it");
    Ok(())
}

fn attaching_memory_that_is_not_managed(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let (stream, plain) = (gpu.stream(NON_BLOCKING)?, gpu.alloc(PAGE)?);
    noted!(driver, cuStreamAttachMemAsync(stream, plain, 0, GLOBAL), "memory that is not managed");
    Ok(())
}

fn batches_of_prefetches(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let mut parts = [alloc(&gpu, PAGE)?, alloc(&gpu, PAGE)?, alloc(&gpu, PAGE)?];
    let mut sizes = [PAGE; 3];
    let mut places = [
        CUmemLocation { type_: Kind::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device.0 },
        CUmemLocation { type_: Kind::CU_MEM_LOCATION_TYPE_HOST, id: 0 },
    ];
    let mut firsts = [0, 2];
    let (pointers, lengths) = (parts.as_mut_ptr(), sizes.as_mut_ptr());
    let (locations, from) = (places.as_mut_ptr(), firsts.as_mut_ptr());
    ok!(driver, cuMemPrefetchBatchAsync(pointers, lengths, 3, locations, from, 2, 0, stream));
    gpu.wait(stream)?;
    for (part, expected) in parts.into_iter().zip([gpu.device.0, gpu.device.0, HOST.0]) {
        let last = attribute(&gpu, Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, part, PAGE)?;
        ensure!(last == expected, "prefetched to {last} instead of {expected}");
    }
    expect!(driver, cuMemPrefetchBatchAsync(pointers, lengths, 0, locations, from, 2, 0, stream)
        => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemPrefetchBatchAsync(pointers, lengths, 3, locations, from, 2, 1, stream)
        => CUDA_ERROR_INVALID_VALUE);
    firsts[0] = 1;
    let from = firsts.as_mut_ptr();
    expect!(driver, cuMemPrefetchBatchAsync(pointers, lengths, 3, locations, from, 2, 0, stream)
        => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn discarding_leaves_memory_usable(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let mut memory = alloc(&gpu, 2 * PAGE)?;
    let mut size = 2 * PAGE;
    set(memory, 0, 1)?;
    ok!(driver, cuMemDiscardBatchAsync(&raw mut memory, &raw mut size, 1, 0, stream));
    gpu.launch(fill, 4, stream, &[&memory, &9_u32, &4_u32])?;
    gpu.wait(stream)?;
    ensure!(get(memory, 3)? == 9, "what came after the discard is lost");
    let mut place = CUmemLocation { type_: Kind::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device.0 };
    let mut first = 0;
    let (at, from) = (&raw mut place, &raw mut first);
    ok!(driver, cuMemDiscardAndPrefetchBatchAsync(&raw mut memory, &raw mut size, 1, at, from, 1, 0, stream));
    gpu.wait(stream)?;
    let mut plain = gpu.alloc(PAGE)?;
    let mut bytes = PAGE;
    let code = noted!(driver, cuMemDiscardBatchAsync(&raw mut plain, &raw mut bytes, 1, 0, stream), "plain memory");
    ensure!(code != CUresult::CUDA_SUCCESS, "plain memory was discarded");
    Ok(())
}

fn goes_with_its_context(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let mut own = gpu.context;
    ok!(driver, cuCtxCreate_v2(&raw mut own, 0, gpu.device));
    let memory = alloc(&gpu, PAGE)?;
    ok!(driver, cuCtxDestroy_v2(own));
    ok!(driver, cuCtxSetCurrent(gpu.context));
    let mut managed = 0_u32;
    let is_managed = CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED;
    expect!(driver, cuPointerGetAttribute((&raw mut managed).cast(), is_managed, memory) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

const VARIABLES: &CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 both = 5;
.visible .global .align 4 .u32 device_only = 6;
.visible .entry bump() {
    .reg .u32 %old;
    .reg .u64 %p;
    mov.u64 %p, both;
    ld.global.u32 %old, [%p];
    add.u32 %old, %old, 10;
    st.global.u32 [%p], %old;
    ret;
}";

fn variables_of_a_module(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let mut library = CUlibrary(null_mut());
    let (none, no_values) = (null_mut(), null_mut());
    let image = VARIABLES.as_ptr().cast();
    ok!(driver, cuLibraryLoadData(&raw mut library, image, none, no_values, 0, null_mut(), null_mut(), 0));
    let (mut both, mut bytes) = (NO_ADDRESS, 0);
    ok!(driver, cuLibraryGetManaged(&raw mut both, &raw mut bytes, library, c"both".as_ptr()));
    ensure!(bytes == 4 && get(both, 0)? == 5, "{bytes} bytes with {}", get(both, 0)?);
    let mut kernel = CUkernel(null_mut());
    ok!(driver, cuLibraryGetKernel(&raw mut kernel, library, c"bump".as_ptr()));
    gpu.launch(CUfunction(kernel.0.cast()), 1, NULL_STREAM, &[])?;
    gpu.synchronise()?;
    ensure!(get(both, 0)? == 15, "the host sees {}", get(both, 0)?);
    let code = noted!(
        driver,
        cuLibraryGetManaged(&raw mut both, &raw mut bytes, library, c"device_only".as_ptr()),
        "the device's own"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "a variable of the device is managed");
    expect!(driver, cuLibraryGetManaged(&raw mut both, &raw mut bytes, library, c"none".as_ptr())
        => CUDA_ERROR_NOT_FOUND);
    ok!(driver, cuLibraryUnload(library));
    Ok(())
}
