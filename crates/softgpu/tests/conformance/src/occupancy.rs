//! How many blocks of a kernel fit.

use crate::Outcome;
use crate::gpu::Gpu;
use anyhow::{Result, ensure};
use core::ffi::c_int;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUdevice_attribute, CUfunction, CUoccupancy_flags};

tests! { occupancy:
    blocks_fit_a_multiprocessor,
    shared_memory_lowers_it,
    flags_are_taken,
    impossible_blocks,
    potential_block_size_is_launchable,
    potential_block_size_with_shared_memory,
    available_shared_memory,
}

fn blocks(driver: &Driver, function: CUfunction, threads: c_int, shared: usize) -> Result<c_int> {
    let mut blocks = -1;
    ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads, shared));
    Ok(blocks)
}

fn blocks_fit_a_multiprocessor(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let most = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
    let most_blocks = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)?;
    for threads in [32, 128, 256, 1_024] {
        let blocks = blocks(driver, fill, threads, 0)?;
        ensure!(blocks >= 1 && blocks * threads <= most, "{blocks} blocks of {threads} threads");
        ensure!(blocks <= most_blocks, "{blocks} blocks");
        note!("{blocks} blocks of {threads}");
    }
    Ok(())
}

fn shared_memory_lowers_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let per_processor = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    let room = usize::try_from(gpu.attribute(per_processor)?)?;
    let bytes = 48 << 10;
    let with = usize::try_from(blocks(driver, reverse, 32, bytes)?)?;
    ensure!(with >= 1 && with * bytes <= room, "{with} blocks of {bytes} bytes in {room}");
    ensure!(blocks(driver, reverse, 32, 0)? > c_int::try_from(with)?, "shared memory makes no difference");
    Ok(())
}

fn flags_are_taken(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let plain = blocks(driver, fill, 128, 0)?;
    for flags in [CUoccupancy_flags::CU_OCCUPANCY_DEFAULT, CUoccupancy_flags::CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE] {
        let mut blocks = -1;
        ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&raw mut blocks, fill, 128, 0, flags.0));
        ensure!(blocks == plain, "{blocks} blocks with {flags:?}, {plain} without flags");
    }
    Ok(())
}

fn impossible_blocks(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    for threads in [0, -1, 2_048] {
        let mut blocks = -1;
        let what = format!("blocks of {threads} threads");
        noted!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, fill, threads, 0), what);
        ensure!(blocks <= 0, "{blocks} blocks of {threads} threads");
    }
    let mut blocks = -1;
    let bytes = 1 << 20;
    noted!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, fill, 32, bytes), "a MiB each");
    ensure!(blocks <= 0, "{blocks} blocks with a MiB of shared memory each");
    Ok(())
}

fn potential_block_size_is_launchable(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, few_threads] = gpu.kernels([c"fill", c"few_threads"])?;
    let suggest = |function, limit| -> Result<(c_int, c_int)> {
        let (mut grid, mut block) = (0, 0);
        ok!(driver, cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, function, None, 0, limit));
        Ok((grid, block))
    };
    let processors = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let (grid, block) = suggest(fill, 0)?;
    ensure!(grid >= processors && (32..=1_024).contains(&block), "{grid} blocks of {block}");
    ensure!(blocks(driver, fill, block, 0)? * processors == grid, "{grid} blocks of {block} do not fill the device");
    let (_, block) = suggest(fill, 96)?;
    ensure!((1..=96).contains(&block), "blocks of {block} where 96 is the limit");
    let (_, block) = suggest(few_threads, 0)?;
    ensure!((1..=64).contains(&block), "blocks of {block} where the kernel allows 64");
    Ok(())
}

/// A word for each thread.
unsafe extern "C" fn word_for_each(threads: c_int) -> usize {
    4 * usize::try_from(threads).unwrap_or_default()
}

fn potential_block_size_with_shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let (mut grid, mut block) = (0, 0);
    let size = Some(word_for_each as unsafe extern "C" fn(c_int) -> usize);
    ok!(driver, cuOccupancyMaxPotentialBlockSize(&raw mut grid, &raw mut block, reverse, size, 0, 0));
    ensure!(grid >= 1 && (32..=1_024).contains(&block), "{grid} blocks of {block}");
    ok!(driver, cuOccupancyMaxPotentialBlockSizeWithFlags(&raw mut grid, &raw mut block, reverse, size, 0, 0, 0));
    ensure!(grid >= 1 && (32..=1_024).contains(&block), "{grid} blocks of {block} by the one with flags");
    Ok(())
}

fn available_shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let available = |blocks| -> Result<usize> {
        let mut bytes = 0;
        ok!(driver, cuOccupancyAvailableDynamicSMemPerBlock(&raw mut bytes, reverse, blocks, 128));
        Ok(bytes)
    };
    let (one, two, four) = (available(1)?, available(2)?, available(4)?);
    ensure!(one >= two && two >= four && four > 0, "{one}, {two} and {four} bytes for 1, 2 and 4 blocks");
    note!("{one}, {two} and {four} bytes for 1, 2 and 4 blocks");
    Ok(())
}
