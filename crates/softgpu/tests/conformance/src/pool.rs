//! Memory in the order of a stream.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NON_BLOCKING, NULL_STREAM};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice_attribute, CUdeviceptr, CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute,
    CUmemPoolProps, CUmemoryPool, CUpointer_attribute, CUresult, CUstream,
};

tests! { pool:
    alloc_use_free,
    zero_bytes_are_nowhere,
    too_much_is_out_of_memory,
    default_pool_is_current,
    pool_can_be_exchanged,
    alloc_from_an_own_pool,
    attributes_are_kept,
    use_is_counted,
    trimming_gives_back,
    freed_memory_is_used_again,
    memory_used_again_has_one_owner_at_a_time,
    freeing_makes_room_before_its_turn,
    freeing_waits_for_its_turn,
    memory_can_be_used_in_another_stream,
    synchronous_free,
    freed_twice_in_a_stream,
    pointer_knows_its_pool,
    per_thread_variants,
}

const MEBIBYTE: usize = 1 << 20;
const NO_POOL: CUmemoryPool = CUmemoryPool(null_mut());

fn gpu_with_pools(driver: &Driver) -> Result<Gpu<'_>> {
    let gpu = Gpu::new(driver)?;
    if gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        skip!("the device has no memory pools");
    }
    Ok(gpu)
}

fn alloc(gpu: &Gpu, bytes: usize, stream: CUstream) -> Result<CUdeviceptr> {
    let mut pointer = NO_ADDRESS;
    ok!(gpu, cuMemAllocAsync(&raw mut pointer, bytes, stream));
    ensure!(pointer != NO_ADDRESS, "cuMemAllocAsync gave no address");
    Ok(pointer)
}

fn default_pool(gpu: &Gpu) -> Result<CUmemoryPool> {
    let mut pool = NO_POOL;
    ok!(gpu, cuDeviceGetDefaultMemPool(&raw mut pool, gpu.device));
    ensure!(pool != NO_POOL, "no default pool");
    Ok(pool)
}

fn own_pool(gpu: &Gpu) -> Result<CUmemoryPool> {
    // SAFETY: plain values throughout, where zero means none.
    let nothing: CUmemPoolProps = unsafe { zeroed() };
    let properties = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: gpu.device.0 },
        ..nothing
    };
    let mut pool = NO_POOL;
    ok!(gpu, cuMemPoolCreate(&raw mut pool, &raw const properties));
    Ok(pool)
}

fn attribute(gpu: &Gpu, pool: CUmemoryPool, attribute: CUmemPool_attribute) -> Result<u64> {
    let mut value = u64::MAX;
    ok!(gpu, cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()));
    Ok(value)
}

fn alloc_use_free(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    for stream in [gpu.stream(NON_BLOCKING)?, NULL_STREAM] {
        let pointer = alloc(&gpu, 4_000, stream)?;
        gpu.launch(fill, 1_000, stream, &[&pointer, &3_u32, &1_000_u32])?;
        let mut words = vec![0_u32; 1_000];
        ok!(driver, cuMemcpyDtoHAsync_v2(words.as_mut_ptr().cast(), pointer, 4_000, stream));
        ok!(driver, cuMemFreeAsync(pointer, stream));
        gpu.wait(stream)?;
        ensure!(words == [3; 1_000], "the kernel left other words");
    }
    Ok(())
}

fn zero_bytes_are_nowhere(driver: &Driver) -> Outcome {
    gpu_with_pools(driver)?;
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocAsync(&raw mut pointer, 0, NULL_STREAM));
    ensure!(pointer == NO_ADDRESS, "zero bytes lie at {:#x}", pointer.0);
    ok!(driver, cuMemFreeAsync(pointer, NULL_STREAM));
    expect!(driver, cuMemAllocAsync(null_mut(), 64, NULL_STREAM) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn too_much_is_out_of_memory(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let total = gpu.total_memory()?;
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAllocAsync(&raw mut pointer, total * 4, NULL_STREAM) => CUDA_ERROR_OUT_OF_MEMORY);
    alloc(&gpu, MEBIBYTE, NULL_STREAM)?;
    gpu.synchronise()
}

fn default_pool_is_current(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let mut current = NO_POOL;
    ok!(driver, cuDeviceGetMemPool(&raw mut current, gpu.device));
    ensure!(current == default_pool(&gpu)?, "another pool is current");
    Ok(())
}

fn pool_can_be_exchanged(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let pool = own_pool(&gpu)?;
    ok!(driver, cuDeviceSetMemPool(gpu.device, pool));
    let mut current = NO_POOL;
    ok!(driver, cuDeviceGetMemPool(&raw mut current, gpu.device));
    ensure!(current == pool, "another pool is current");
    alloc(&gpu, MEBIBYTE, NULL_STREAM)?;
    let used = attribute(&gpu, pool, CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    ensure!(used >= MEBIBYTE as u64, "{used} bytes of the current pool are used");
    Ok(())
}

fn alloc_from_an_own_pool(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (pool, stream) = (own_pool(&gpu)?, gpu.stream(NON_BLOCKING)?);
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocFromPoolAsync(&raw mut pointer, 400, pool, stream));
    gpu.launch(fill, 100, stream, &[&pointer, &3_u32, &100_u32])?;
    gpu.wait(stream)?;
    ensure!(gpu.read(pointer, 100)? == [3; 100], "the kernel left other words");
    ok!(driver, cuMemFreeAsync(pointer, stream));
    gpu.wait(stream)?;
    ok!(driver, cuMemPoolDestroy(pool));
    Ok(())
}

fn attributes_are_kept(driver: &Driver) -> Outcome {
    use CUmemPool_attribute as Attribute;
    let gpu = gpu_with_pools(driver)?;
    let pool = own_pool(&gpu)?;
    let threshold = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    ensure!(attribute(&gpu, pool, threshold)? == 0, "the threshold is not 0 from the start");
    let mut wanted = 123_u64 << 20;
    ok!(driver, cuMemPoolSetAttribute(pool, threshold, (&raw mut wanted).cast()));
    ensure!(attribute(&gpu, pool, threshold)? == wanted, "the threshold was not kept");
    let reuse = [
        Attribute::CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
        Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
        Attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
    ];
    for which in reuse {
        let mut value = -1_i32;
        ok!(driver, cuMemPoolGetAttribute(pool, which, (&raw mut value).cast()));
        ensure!(value == 1, "{which:?} is {value} from the start");
        value = 0;
        ok!(driver, cuMemPoolSetAttribute(pool, which, (&raw mut value).cast()));
        value = -1;
        ok!(driver, cuMemPoolGetAttribute(pool, which, (&raw mut value).cast()));
        ensure!(value == 0, "{which:?} was not kept");
    }
    Ok(())
}

fn use_is_counted(driver: &Driver) -> Outcome {
    use CUmemPool_attribute as Attribute;
    let gpu = gpu_with_pools(driver)?;
    let pool = own_pool(&gpu)?;
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocFromPoolAsync(&raw mut pointer, MEBIBYTE, pool, NULL_STREAM));
    gpu.synchronise()?;
    let used = attribute(&gpu, pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    let reserved = attribute(&gpu, pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    ensure!(used >= MEBIBYTE as u64 && reserved >= used, "{used} bytes used, {reserved} reserved");
    ok!(driver, cuMemFreeAsync(pointer, NULL_STREAM));
    gpu.synchronise()?;
    let after = attribute(&gpu, pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
    ensure!(after == 0, "{after} bytes are still used");
    let most = attribute(&gpu, pool, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?;
    ensure!(most >= used, "at most {most} bytes were used, {used} at one time");
    Ok(())
}

fn trimming_gives_back(driver: &Driver) -> Outcome {
    use CUmemPool_attribute as Attribute;
    let gpu = gpu_with_pools(driver)?;
    let pool = own_pool(&gpu)?;
    let mut all = u64::MAX;
    let threshold = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    ok!(driver, cuMemPoolSetAttribute(pool, threshold, (&raw mut all).cast()));
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocFromPoolAsync(&raw mut pointer, 64 * MEBIBYTE, pool, NULL_STREAM));
    ok!(driver, cuMemFreeAsync(pointer, NULL_STREAM));
    gpu.synchronise()?;
    let kept = attribute(&gpu, pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    ensure!(kept >= 64 * MEBIBYTE as u64, "{kept} bytes kept below the threshold");
    ok!(driver, cuMemPoolTrimTo(pool, 0));
    let left = attribute(&gpu, pool, Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
    ensure!(left == 0, "{left} bytes are left after trimming to none");
    Ok(())
}

fn freed_memory_is_used_again(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let first = alloc(&gpu, MEBIBYTE, stream)?;
    ok!(driver, cuMemFreeAsync(first, stream));
    let second = alloc(&gpu, MEBIBYTE, stream)?;
    note!("the same stream gets {} address again", if first == second { "the same" } else { "another" });
    ok!(driver, cuMemFreeAsync(second, stream));
    gpu.wait(stream)
}

fn memory_used_again_has_one_owner_at_a_time(driver: &Driver) -> Outcome {
    const WORDS: u32 = 1_000;
    let gpu = gpu_with_pools(driver)?;
    let [fill, copy] = gpu.kernels([c"fill", c"copy"])?;
    let (gate, stream, other) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    let rounds: [u32; 3] = [7, 8, 9];
    let seen = rounds.iter().map(|_| gpu.shared_words(WORDS as usize)).collect::<Result<Vec<_>, _>>()?;
    gpu.hold_at(&gate, stream)?;
    for (value, seen) in rounds.iter().zip(&seen) {
        let pointer = alloc(&gpu, MEBIBYTE, stream)?;
        gpu.launch(fill, WORDS, stream, &[&pointer, value, &WORDS])?;
        gpu.launch(copy, WORDS, stream, &[&seen.at(0), &pointer, &WORDS])?;
        ok!(driver, cuMemFreeAsync(pointer, stream));
    }
    // Another stream does not wait for that one, so it gets none of it.
    let pointer = alloc(&gpu, MEBIBYTE, other)?;
    gpu.launch(fill, WORDS, other, &[&pointer, &1_u32, &WORDS])?;
    gpu.wait(other)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    for (value, seen) in rounds.iter().zip(&seen) {
        ensure!((0..WORDS as usize).all(|at| seen.get(at) == *value), "the round of {value} saw other words");
    }
    ensure!(gpu.read(pointer, WORDS as usize)?.iter().all(|word| *word == 1), "the other stream's words are gone");
    ok!(driver, cuMemFreeAsync(pointer, other));
    gpu.wait(other)
}

fn freeing_makes_room_before_its_turn(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let (mut free, mut total) = (0, 0);
    ok!(driver, cuMemGetInfo_v2(&raw mut free, &raw mut total));
    gpu.hold_at(&gate, stream)?;
    // Three times what there is, one after the other.
    for _ in 0..24 {
        let pointer = alloc(&gpu, free / 8, stream)?;
        ok!(driver, cuMemFreeAsync(pointer, stream));
    }
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)
}

fn freeing_waits_for_its_turn(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let [fill, copy] = gpu.kernels([c"fill", c"copy"])?;
    let (gate, stream, seen) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.shared_words(1)?);
    let pointer = alloc(&gpu, 64, stream)?;
    gpu.hold_at(&gate, stream)?;
    gpu.launch(fill, 1, stream, &[&pointer, &7_u32, &1_u32])?;
    gpu.launch(copy, 1, stream, &[&seen.at(0), &pointer, &1_u32])?;
    ok!(driver, cuMemFreeAsync(pointer, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(seen.get(0) == 7, "the memory was gone before its turn");
    Ok(())
}

fn memory_can_be_used_in_another_stream(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (first, second, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    let pointer = alloc(&gpu, 400, first)?;
    ok!(driver, cuEventRecord(event, first));
    ok!(driver, cuStreamWaitEvent(second, event, 0));
    gpu.launch(fill, 100, second, &[&pointer, &7_u32, &100_u32])?;
    gpu.wait(second)?;
    ensure!(gpu.read(pointer, 100)? == [7; 100], "the kernel left other words");
    ok!(driver, cuMemFreeAsync(pointer, second));
    gpu.wait(second)
}

fn synchronous_free(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let pointer = alloc(&gpu, 4_096, stream)?;
    gpu.wait(stream)?;
    ok!(driver, cuMemFree_v2(pointer));
    let code = noted!(driver, cuMemFreeAsync(pointer, stream), "freed already");
    ensure!(code != CUresult::CUDA_SUCCESS, "freed twice");
    Ok(())
}

/// The second time before the first has had its turn.
fn freed_twice_in_a_stream(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let pointer = alloc(&gpu, 4_096, stream)?;
    gpu.wait(stream)?;
    let gate = gpu.gate()?;
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuMemFreeAsync(pointer, stream));
    let code = noted!(driver, cuMemFreeAsync(pointer, stream), "freed twice");
    gate.open();
    gpu.wait(stream)?;
    ensure!(code != CUresult::CUDA_SUCCESS, "freed twice");
    Ok(())
}

fn pointer_knows_its_pool(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let (mut found, handle) = (NO_POOL, CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE);
    let pointer = alloc(&gpu, 4_096, NULL_STREAM)?;
    ok!(driver, cuPointerGetAttribute((&raw mut found).cast(), handle, pointer));
    ensure!(found == default_pool(&gpu)?, "it is of another pool");
    let plain = gpu.alloc(4_096)?;
    found = NO_POOL;
    noted!(driver, cuPointerGetAttribute((&raw mut found).cast(), handle, plain), "the pool of plain memory");
    ensure!(found == NO_POOL, "plain memory is of a pool");
    Ok(())
}

fn per_thread_variants(driver: &Driver) -> Outcome {
    let gpu = gpu_with_pools(driver)?;
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocAsync_ptsz(&raw mut pointer, 4, NULL_STREAM));
    ok!(driver, cuMemsetD32Async_ptsz(pointer, 5, 1, NULL_STREAM));
    let mut word = 0_u32;
    ok!(driver, cuMemcpyDtoHAsync_v2_ptsz((&raw mut word).cast(), pointer, 4, NULL_STREAM));
    ok!(driver, cuMemFreeAsync_ptsz(pointer, NULL_STREAM));
    ok!(driver, cuStreamSynchronize_ptsz(NULL_STREAM));
    ensure!(word == 5, "{word}");
    gpu.synchronise()
}
