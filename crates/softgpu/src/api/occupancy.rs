//! How many blocks fit.

use super::require;
use crate::boundary::{Outcome, give};
use crate::device;
use crate::module::{self, Function};
use core::ffi::{c_int, c_uint};
use detshare_cuda::types::{CUfunction, CUoccupancyB2DSize, CUresult};

/// How many blocks of that size are resident on one SM at once, as the function is set.
pub(super) fn blocks_per_sm(function: &Function, threads: u32, dynamic_shared: u32) -> u32 {
    let set = *function.attributes.lock().expect("no panic while it is held");
    set.blocks_per_sm(&function.kernel.properties, threads, dynamic_shared)
}

fn shared(bytes: usize) -> Outcome<u32> {
    u32::try_from(bytes).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: CUfunction,
    threads: c_int,
    dynamic_shared: usize,
) -> Outcome {
    let function = module::find_launchable(function)?;
    require(threads > 0)?;
    let threads = threads.unsigned_abs();
    let fits = threads <= device::MOST_THREADS_PER_BLOCK;
    let count = if fits { blocks_per_sm(&function, threads, shared(dynamic_shared)?) } else { 0 };
    give(blocks, c_int::try_from(count).unwrap_or(0))
}

pub(crate) unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: CUfunction,
    threads: c_int,
    dynamic_shared: usize,
    flags: c_uint,
) -> Outcome {
    require(flags <= 1)?;
    cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared)
}

pub(crate) unsafe fn cuOccupancyMaxPotentialBlockSize(
    smallest_grid: *mut c_int,
    block_size: *mut c_int,
    function: CUfunction,
    shared_for: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: c_int,
) -> Outcome {
    let function = module::find_launchable(function)?;
    let most = function.kernel.properties.most_threads.unwrap_or(device::MOST_THREADS_PER_BLOCK);
    let most = if limit > 0 { most.min(limit.unsigned_abs()) } else { most };
    let mut best = (0, 0, 0);
    // From the largest block down; a smaller one must keep more threads busy to win.
    for threads in (1..=most / device::WARP).rev().map(|warps| warps * device::WARP) {
        let dynamic = match shared_for {
            Some(shared_for) => shared_for(c_int::try_from(threads).unwrap_or(c_int::MAX)),
            None => dynamic_shared,
        };
        let blocks = blocks_per_sm(&function, threads, shared(dynamic)?);
        if blocks * threads > best.0 {
            best = (blocks * threads, threads, blocks);
        }
    }
    give(smallest_grid, c_int::try_from(best.2 * device::settings().sms).unwrap_or(c_int::MAX))?;
    give(block_size, c_int::try_from(best.1).unwrap_or(0))
}

pub(crate) unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    smallest_grid: *mut c_int,
    block_size: *mut c_int,
    function: CUfunction,
    shared_for: CUoccupancyB2DSize,
    dynamic_shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Outcome {
    require(flags <= 1)?;
    cuOccupancyMaxPotentialBlockSize(smallest_grid, block_size, function, shared_for, dynamic_shared, limit)
}

pub(crate) unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: *mut usize,
    function: CUfunction,
    blocks: c_int,
    threads: c_int,
) -> Outcome {
    let function = module::find_launchable(function)?;
    require(blocks > 0 && threads > 0)?;
    let used = function.kernel.properties.shared_bytes + device::RESERVED_SHARED_PER_BLOCK;
    let each = (device::SHARED_PER_SM / blocks.unsigned_abs()).saturating_sub(used);
    // No more than the function may have as it is set.
    let most = function.attributes.lock().expect("no panic while it is held").most_dynamic_shared;
    give(bytes, each.min(u32::try_from(most).unwrap_or(0)) as usize)
}
