//! Addresses, memory, and the one mapped to the other.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NULL_STREAM, offset};
use crate::processes::{Other, in_two_processes};
use anyhow::{Result, ensure};
use core::ffi::{c_int, c_ulonglong, c_void};
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice_attribute, CUdeviceptr, CUdeviceptr_v2, CUmemAccess_flags as Access, CUmemAccessDesc,
    CUmemAllocationGranularity_flags as Granularity, CUmemAllocationHandleType as HandleType, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUpointer_attribute, CUresult,
};

tests! { virtual_memory:
    granularity_is_a_power_of_two,
    map_use_unmap,
    reserving_is_checked,
    making_memory_is_checked,
    mapping_is_checked,
    without_access_there_is_none,
    access_is_kept,
    memory_outlives_its_handle,
    memory_mapped_twice_is_the_same,
    neighbours_are_one_range,
    handles_are_retained,
    properties_are_kept,
    memory_counts_when_it_is_made,
    other_addresses_are_not_freed,
    a_file_leads_to_the_same_memory,
    memory_goes_to_another_process,
    host_memory_can_be_mapped,
}

const FILE: HandleType = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const NONE: HandleType = HandleType::CU_MEM_HANDLE_TYPE_NONE;

fn gpu(driver: &Driver) -> Result<Gpu<'_>> {
    let gpu = Gpu::new(driver)?;
    if gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? == 0 {
        skip!("the device does not map memory for programs");
    }
    Ok(gpu)
}

fn properties(gpu: &Gpu, handles: HandleType) -> CUmemAllocationProp {
    // SAFETY: plain values throughout, where zero means none.
    let mut wanted: CUmemAllocationProp = unsafe { zeroed() };
    wanted.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.requestedHandleTypes = handles;
    wanted.location = here(gpu);
    wanted
}

fn here(gpu: &Gpu) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device.0 }
}

/// The least that can be made.
fn piece(gpu: &Gpu) -> Result<usize> {
    let mut bytes = 0;
    let wanted = properties(gpu, NONE);
    let least = Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    ok!(gpu, cuMemGetAllocationGranularity(&raw mut bytes, &raw const wanted, least));
    Ok(bytes)
}

fn reserve(gpu: &Gpu, bytes: usize) -> Result<CUdeviceptr> {
    let mut address = NO_ADDRESS;
    ok!(gpu, cuMemAddressReserve(&raw mut address, bytes, 0, NO_ADDRESS, 0));
    ensure!(address != NO_ADDRESS, "cuMemAddressReserve gave no address");
    Ok(address)
}

fn create(gpu: &Gpu, bytes: usize, handles: HandleType) -> Result<CUmemGenericAllocationHandle> {
    let mut handle = 0;
    let wanted = properties(gpu, handles);
    ok!(gpu, cuMemCreate(&raw mut handle, bytes, &raw const wanted, 0));
    ensure!(handle != 0, "cuMemCreate gave no handle");
    Ok(handle)
}

fn allow(gpu: &Gpu, address: CUdeviceptr, bytes: usize) -> Result<()> {
    let wanted = CUmemAccessDesc { location: here(gpu), flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    ok!(gpu, cuMemSetAccess(address, bytes, &raw const wanted, 1));
    Ok(())
}

/// Memory that is there and may be used.
fn mapped(gpu: &Gpu, bytes: usize) -> Result<(CUdeviceptr, CUmemGenericAllocationHandle)> {
    let (address, handle) = (reserve(gpu, bytes)?, create(gpu, bytes, NONE)?);
    ok!(gpu, cuMemMap(address, bytes, 0, handle, 0));
    allow(gpu, address, bytes)?;
    Ok((address, handle))
}

fn granularity_is_a_power_of_two(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let least = piece(&gpu)?;
    let mut wished = 0;
    let wanted = properties(&gpu, NONE);
    let option = Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    ok!(driver, cuMemGetAllocationGranularity(&raw mut wished, &raw const wanted, option));
    ensure!(least.is_power_of_two() && wished >= least && wished.is_multiple_of(least), "{least} and {wished}");
    note!("{least} bytes at least, {wished} better");
    expect!(driver, cuMemGetAllocationGranularity(null_mut(), &raw const wanted, option) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn map_use_unmap(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let [add] = gpu.kernels([c"add"])?;
    let (address, handle) = mapped(&gpu, bytes)?;
    gpu.write(address, &[1, 2, 3, 4])?;
    gpu.launch(add, 4, NULL_STREAM, &[&address, &10_u32, &4_u32])?;
    ensure!(gpu.read(address, 4)? == [11, 12, 13, 14], "{:?}", gpu.read(address, 4)?);
    let last = offset(address, bytes - 16);
    ok!(driver, cuMemsetD32_v2(last, 5, 4));
    ensure!(gpu.read(last, 4)? == [5; 4], "the end is not there");
    ok!(driver, cuMemUnmap(address, bytes));
    let mut word = 0_u32;
    expect!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemRelease(handle));
    ok!(driver, cuMemAddressFree(address, bytes));
    gpu.synchronise()
}

fn reserving_is_checked(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let mut address = NO_ADDRESS;
    expect!(driver, cuMemAddressReserve(&raw mut address, 0, 0, NO_ADDRESS, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemAddressReserve(null_mut(), bytes, 0, NO_ADDRESS, 0) => CUDA_ERROR_INVALID_VALUE);
    noted!(driver, cuMemAddressReserve(&raw mut address, bytes + 1, 0, NO_ADDRESS, 0), "an odd size");
    noted!(driver, cuMemAddressReserve(&raw mut address, bytes, 3, NO_ADDRESS, 0), "an odd alignment");
    noted!(driver, cuMemAddressReserve(&raw mut address, bytes, 0, NO_ADDRESS, 1), "an unknown flag");
    ok!(driver, cuMemAddressReserve(&raw mut address, bytes, 16 * bytes, NO_ADDRESS, 0));
    ensure!(address.0.is_multiple_of(16 * bytes as u64), "{:#x} is not aligned", address.0);
    ok!(driver, cuMemAddressFree(address, bytes));
    Ok(())
}

fn making_memory_is_checked(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let mut handle = 0;
    let wanted = properties(&gpu, NONE);
    expect!(driver, cuMemCreate(&raw mut handle, 0, &raw const wanted, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemCreate(&raw mut handle, bytes + 1, &raw const wanted, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemCreate(null_mut(), bytes, &raw const wanted, 0) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemCreate(&raw mut handle, bytes, core::ptr::null(), 0) => CUDA_ERROR_INVALID_VALUE);
    let mut elsewhere = wanted;
    elsewhere.location.id = 99;
    expect!(driver, cuMemCreate(&raw mut handle, bytes, &raw const elsewhere, 0) => CUDA_ERROR_INVALID_DEVICE);
    let too_much = (gpu.total_memory()? / bytes + 1) * bytes;
    expect!(driver, cuMemCreate(&raw mut handle, too_much, &raw const wanted, 0) => CUDA_ERROR_OUT_OF_MEMORY);
    Ok(())
}

fn mapping_is_checked(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let (address, handle) = (reserve(&gpu, 2 * bytes)?, create(&gpu, bytes, NONE)?);
    expect!(driver, cuMemMap(offset(address, 1), bytes, 0, handle, 0) => CUDA_ERROR_INVALID_VALUE);
    let code = noted!(driver, cuMemMap(address, bytes + 1, 0, handle, 0), "a byte more than a whole piece");
    ensure!(code != CUresult::CUDA_SUCCESS, "a part of a piece was mapped");
    let code = noted!(driver, cuMemMap(address, 2 * bytes, 0, handle, 0), "more than was made");
    ensure!(code != CUresult::CUDA_SUCCESS, "more was mapped than was made");
    noted!(driver, cuMemMap(address, bytes, 0, handle, 1), "an unknown flag");
    let plain = gpu.alloc(bytes)?;
    let aligned = CUdeviceptr_v2(plain.0.next_multiple_of(bytes as u64));
    let code = noted!(driver, cuMemMap(aligned, bytes, 0, handle, 0), "addresses that were not reserved");
    ensure!(code != CUresult::CUDA_SUCCESS, "memory was mapped where something is");
    ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
    let code = noted!(driver, cuMemMap(address, bytes, 0, handle, 0), "addresses in use");
    ensure!(code != CUresult::CUDA_SUCCESS, "memory was mapped over memory");
    noted!(driver, cuMemAddressFree(address, 2 * bytes), "addresses in use");
    // An H200's driver takes it.
    noted!(driver, cuMemUnmap(offset(address, bytes), bytes), "unmap what is not mapped");
    ok!(driver, cuMemUnmap(address, bytes));
    noted!(driver, cuMemUnmap(address, bytes), "unmap twice");
    ok!(driver, cuMemRelease(handle));
    let code = noted!(driver, cuMemRelease(handle), "a released handle");
    ensure!(code != CUresult::CUDA_SUCCESS, "a handle was released twice");
    Ok(())
}

fn without_access_there_is_none(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let (address, handle) = (reserve(&gpu, bytes)?, create(&gpu, bytes, NONE)?);
    ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
    let mut word = 0_u32;
    let code = noted!(driver, cuMemcpyDtoH_v2((&raw mut word).cast(), address, 4), "mapped, without access");
    ensure!(code != CUresult::CUDA_SUCCESS, "it was read");
    let [fill] = gpu.kernels([c"fill"])?;
    gpu.launch(fill, 4, NULL_STREAM, &[&address, &1_u32, &4_u32])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

fn access_is_kept(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let (address, handle) = (reserve(&gpu, bytes)?, create(&gpu, bytes, NONE)?);
    ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
    let access = || -> Result<c_ulonglong> {
        let (mut flags, place) = (99, here(&gpu));
        ok!(driver, cuMemGetAccess(&raw mut flags, &raw const place, address));
        Ok(flags)
    };
    ensure!(access()? == 0, "access {} before anyone gave it", access()?);
    for flags in [Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE, Access::CU_MEM_ACCESS_FLAGS_PROT_NONE] {
        let wanted = CUmemAccessDesc { location: here(&gpu), flags };
        ok!(driver, cuMemSetAccess(address, bytes, &raw const wanted, 1));
        ensure!(access()? == c_ulonglong::from(flags.0), "access {} instead of {flags:?}", access()?);
    }
    let wanted = CUmemAccessDesc { location: here(&gpu), flags: Access(2) };
    expect!(driver, cuMemSetAccess(address, bytes, &raw const wanted, 1) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemUnmap(address, bytes));
    let wanted = CUmemAccessDesc { location: here(&gpu), flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
    expect!(driver, cuMemSetAccess(address, bytes, &raw const wanted, 1) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn memory_outlives_its_handle(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let (address, handle) = mapped(&gpu, bytes)?;
    ok!(driver, cuMemRelease(handle));
    gpu.write(address, &[7; 8])?;
    ensure!(gpu.read(address, 8)? == [7; 8], "the memory went with its handle");
    ok!(driver, cuMemUnmap(address, bytes));
    ok!(driver, cuMemAddressFree(address, bytes));
    Ok(())
}

fn memory_mapped_twice_is_the_same(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let (first, handle) = mapped(&gpu, bytes)?;
    let second = reserve(&gpu, bytes)?;
    ok!(driver, cuMemMap(second, bytes, 0, handle, 0));
    allow(&gpu, second, bytes)?;
    gpu.write(first, &[1, 2, 3, 4])?;
    ensure!(gpu.read(second, 4)? == [1, 2, 3, 4], "the second place has other memory");
    ok!(driver, cuMemUnmap(first, bytes));
    ensure!(gpu.read(second, 4)? == [1, 2, 3, 4], "the memory went with its first place");
    Ok(())
}

fn neighbours_are_one_range(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let address = reserve(&gpu, 3 * bytes)?;
    for index in 0..2 {
        let handle = create(&gpu, bytes, NONE)?;
        ok!(driver, cuMemMap(offset(address, index * bytes), bytes, 0, handle, 0));
        ok!(driver, cuMemRelease(handle));
    }
    allow(&gpu, address, 2 * bytes)?;
    let border = offset(address, bytes - 8);
    gpu.write(border, &[1, 2, 3, 4])?;
    ensure!(gpu.read(border, 4)? == [1, 2, 3, 4], "the border is no memory");
    let [add] = gpu.kernels([c"add"])?;
    gpu.launch(add, 4, NULL_STREAM, &[&border, &1_u32, &4_u32])?;
    ensure!(gpu.read(border, 4)? == [2, 3, 4, 5], "the kernel stops at the border");
    expect!(driver, cuMemsetD8_v2(offset(address, bytes), 0, bytes + 1) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemUnmap(address, 2 * bytes));
    ok!(driver, cuMemAddressFree(address, 3 * bytes));
    Ok(())
}

fn handles_are_retained(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let (address, handle) = mapped(&gpu, bytes)?;
    let inside: *mut c_void = core::ptr::with_exposed_provenance_mut(usize::try_from(address.0)? + 100);
    let mut again = 0;
    ok!(driver, cuMemRetainAllocationHandle(&raw mut again, inside));
    note!("the retained handle is {}", if again == handle { "the same" } else { "another" });
    ok!(driver, cuMemRelease(handle));
    let second = reserve(&gpu, bytes)?;
    ok!(driver, cuMemMap(second, bytes, 0, again, 0));
    allow(&gpu, second, bytes)?;
    gpu.write(second, &[3; 4])?;
    ensure!(gpu.read(address, 4)? == [3; 4], "the retained handle has other memory");
    ok!(driver, cuMemRelease(again));
    let plain = gpu.alloc(bytes)?;
    let plain: *mut c_void = core::ptr::with_exposed_provenance_mut(usize::try_from(plain.0)?);
    expect!(driver, cuMemRetainAllocationHandle(&raw mut again, plain) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn properties_are_kept(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let handle = create(&gpu, piece(&gpu)?, FILE)?;
    // SAFETY: plain values throughout, where zero means none.
    let mut kept: CUmemAllocationProp = unsafe { zeroed() };
    ok!(driver, cuMemGetAllocationPropertiesFromHandle(&raw mut kept, handle));
    ensure!(kept.type_ == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, "type {:?}", kept.type_);
    ensure!(kept.requestedHandleTypes == FILE, "handles {:?}", kept.requestedHandleTypes);
    ensure!(kept.location.type_ == here(&gpu).type_ && kept.location.id == gpu.device.0, "it lies elsewhere");
    expect!(driver, cuMemGetAllocationPropertiesFromHandle(null_mut(), handle) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemRelease(handle));
    Ok(())
}

fn memory_counts_when_it_is_made(driver: &Driver) -> Outcome {
    /// Of all memory: so much that what other programs take or give back meanwhile does not matter.
    const PART: usize = 8;
    let gpu = gpu(driver)?;
    let info = || -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        ok!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total));
        Ok((free, total))
    };
    let (before, total) = info()?;
    let bytes = (total / PART).next_multiple_of(piece(&gpu)?);
    if before < 2 * bytes {
        skip!("others have the device's memory");
    }
    let counts = || Ok::<_, anyhow::Error>(info()?.0 < before - bytes / 2);
    let address = reserve(&gpu, bytes)?;
    ensure!(!counts()?, "addresses alone take memory");
    let handle = create(&gpu, bytes, NONE)?;
    ensure!(counts()?, "{} bytes are free of {before}", info()?.0);
    ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
    ok!(driver, cuMemRelease(handle));
    ensure!(counts()?, "memory that is mapped does not count");
    ok!(driver, cuMemUnmap(address, bytes));
    ensure!(!counts()?, "memory that is gone counts");
    Ok(())
}

fn other_addresses_are_not_freed(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let address = reserve(&gpu, 2 * bytes)?;
    expect!(driver, cuMemAddressFree(offset(address, bytes), bytes) => CUDA_ERROR_INVALID_VALUE);
    expect!(driver, cuMemFree_v2(address) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemAddressFree(address, 2 * bytes));
    expect!(driver, cuMemAddressFree(address, 2 * bytes) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

/// A file for memory, as the driver wants to have it back.
fn as_handle(file: c_int) -> Result<*mut c_void> {
    Ok(core::ptr::without_provenance_mut(usize::try_from(file)?))
}

fn a_file_leads_to_the_same_memory(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    let bytes = piece(&gpu)?;
    let mut file: c_int = -1;
    let private = create(&gpu, bytes, NONE)?;
    let code = noted!(driver, cuMemExportToShareableHandle((&raw mut file).cast(), private, FILE, 0), "not asked for");
    ensure!(code != CUresult::CUDA_SUCCESS, "memory without handles has one");
    let handle = create(&gpu, bytes, FILE)?;
    ok!(driver, cuMemExportToShareableHandle((&raw mut file).cast(), handle, FILE, 0));
    ensure!(file >= 0, "no file");
    let mut imported = 0;
    ok!(driver, cuMemImportFromShareableHandle(&raw mut imported, as_handle(file)?, FILE));
    let (first, second) = (reserve(&gpu, bytes)?, reserve(&gpu, bytes)?);
    for (address, handle) in [(first, handle), (second, imported)] {
        ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
        allow(&gpu, address, bytes)?;
    }
    gpu.write(first, &[4; 4])?;
    ensure!(gpu.read(second, 4)? == [4; 4], "the file leads to other memory");
    let nothing = std::fs::File::open("/dev/null")?;
    let nothing = as_handle(std::os::fd::AsRawFd::as_raw_fd(&nothing))?;
    let code = noted!(driver, cuMemImportFromShareableHandle(&raw mut imported, nothing, FILE), "another file");
    ensure!(code != CUresult::CUDA_SUCCESS, "/dev/null is memory");
    Ok(())
}

fn memory_goes_to_another_process(driver: &Driver) -> Outcome {
    in_two_processes(
        driver,
        |driver, mut other: Other| {
            let gpu = gpu(driver)?;
            let bytes = piece(&gpu)?;
            let (address, handle) = (reserve(&gpu, bytes)?, create(&gpu, bytes, FILE)?);
            ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
            allow(&gpu, address, bytes)?;
            gpu.write(address, &[1, 2, 3, 4])?;
            let mut file: c_int = -1;
            ok!(driver, cuMemExportToShareableHandle((&raw mut file).cast(), handle, FILE, 0));
            other.send_file(file)?;
            other.hear()?;
            ensure!(gpu.read(address, 4)? == [11, 12, 13, 14], "the other's kernel wrote {:?}", gpu.read(address, 4)?);
            Ok(())
        },
        |driver, mut other: Other| {
            let gpu = gpu(driver)?;
            let bytes = piece(&gpu)?;
            let file = other.receive_file()?;
            let mut handle = 0;
            ok!(driver, cuMemImportFromShareableHandle(&raw mut handle, as_handle(file)?, FILE));
            let address = reserve(&gpu, bytes)?;
            ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
            allow(&gpu, address, bytes)?;
            ensure!(gpu.read(address, 4)? == [1, 2, 3, 4], "the memory has {:?}", gpu.read(address, 4)?);
            let [add] = gpu.kernels([c"add"])?;
            gpu.launch(add, 4, NULL_STREAM, &[&address, &10_u32, &4_u32])?;
            gpu.synchronise()?;
            other.say()
        },
    )
}

fn host_memory_can_be_mapped(driver: &Driver) -> Outcome {
    let gpu = gpu(driver)?;
    if gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? == 0 {
        skip!("the driver does not map host memory for programs");
    }
    let mut wanted = properties(&gpu, NONE);
    wanted.location = CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, id: 0 };
    let (mut bytes, mut handle) = (0, 0);
    let least = Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM;
    ok!(driver, cuMemGetAllocationGranularity(&raw mut bytes, &raw const wanted, least));
    note!("{bytes} bytes at least");
    ok!(driver, cuMemCreate(&raw mut handle, bytes, &raw const wanted, 0));
    let address = reserve(&gpu, bytes)?;
    ok!(driver, cuMemMap(address, bytes, 0, handle, 0));
    let flags = Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    let both = [CUmemAccessDesc { location: here(&gpu), flags }, CUmemAccessDesc { location: wanted.location, flags }];
    ok!(driver, cuMemSetAccess(address, bytes, both.as_ptr(), 2));
    gpu.write(address, &[8; 4])?;
    let host: *const [u32; 4] = core::ptr::with_exposed_provenance(usize::try_from(address.0)?);
    // SAFETY: mapped for the host too, and nothing runs.
    let seen = unsafe { host.read_volatile() };
    ensure!(seen == [8; 4], "the host sees {seen:?}");
    let mut kind = 0_u32;
    let attribute = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    ok!(driver, cuPointerGetAttribute((&raw mut kind).cast(), attribute, address));
    note!("its memory type is {kind}");
    Ok(())
}
