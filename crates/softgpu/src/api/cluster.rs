//! Clusters: which ones a launch may have, and how many fit.

use super::{occupancy, require};
use crate::boundary::{Outcome, give};
use crate::device;
use crate::module::{self, Function};
use core::ffi::c_int;
use detshare_cuda::types::{CUfunction, CUlaunchAttributeID as Attribute, CUlaunchConfig, CUresult, CUstream};

/// The cluster of a launch, as a driver checks it: the one that the kernel was compiled for, or the one that is asked
/// for.
pub(super) fn checked(function: &Function, grid: [u32; 3], asked: Option<[u32; 3]>) -> Outcome<Option<[u32; 3]>> {
    let properties = &function.kernel.properties;
    let set = *function.attributes.lock().expect("no panic while it is held");
    let required = properties.required_cluster.or(set.required_cluster());
    let cluster = match (required, asked) {
        (Some(required), Some(asked)) if required != asked => return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE),
        (Some(cluster), _) | (None, Some(cluster)) => cluster,
        (None, None) if properties.needs_cluster => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        (None, None) => return Ok(None),
    };
    let divides = grid.iter().zip(cluster).all(|(grid, size)| size > 0 && grid.is_multiple_of(size));
    if !divides || product(cluster) > most_blocks(function) {
        return Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    }
    Ok(Some(cluster))
}

fn product(sizes: [u32; 3]) -> u32 {
    sizes.iter().fold(1, |product, size| product.saturating_mul(*size))
}

/// How many blocks a cluster of this kernel has at most.
fn most_blocks(function: &Function) -> u32 {
    let set = *function.attributes.lock().expect("no panic while it is held");
    let most = if set.large_clusters { device::MOST_BLOCKS_PER_CLUSTER } else { device::PORTABLE_BLOCKS_PER_CLUSTER };
    function.kernel.properties.most_blocks_in_cluster.map_or(most, |limit| limit.min(most))
}

/// The cluster that a configuration asks for.
unsafe fn asked(config: &CUlaunchConfig) -> Option<[u32; 3]> {
    let attributes = (0..config.numAttrs as usize).map(|index| &*config.attrs.add(index));
    attributes.rev().find(|it| it.id == Attribute::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION).map(|it| {
        let cluster = it.value.clusterDim;
        [cluster.x, cluster.y, cluster.z]
    })
}

/// The blocks of such a launch, and their threads.
fn launched(function: &Function, config: &CUlaunchConfig) -> Outcome<([u32; 3], [u32; 3])> {
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    function.kernel.properties.launched(grid, block).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuOccupancyMaxActiveClusters(
    _default: CUstream,
    count: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Outcome {
    require(!config.is_null())?;
    let (function, config) = (module::find_launchable(function)?, &*config);
    let (grid, block) = launched(&function, config)?;
    let cluster = checked(&function, grid, asked(config))?.unwrap_or([1; 3]);
    let per_sm = occupancy::blocks_per_sm(&function, product(block), config.sharedMemBytes);
    let resident = per_sm * device::settings().sms;
    give(count, c_int::try_from(resident / product(cluster)).unwrap_or(c_int::MAX))
}

pub(crate) unsafe fn cuOccupancyMaxPotentialClusterSize(
    _default: CUstream,
    size: *mut c_int,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> Outcome {
    require(!config.is_null())?;
    let (function, config) = (module::find_launchable(function)?, &*config);
    let (_, block) = launched(&function, config)?;
    let fits = occupancy::blocks_per_sm(&function, product(block), config.sharedMemBytes) > 0;
    let most = if fits { most_blocks(&function) } else { 0 };
    give(size, c_int::try_from(most).unwrap_or(c_int::MAX))
}
