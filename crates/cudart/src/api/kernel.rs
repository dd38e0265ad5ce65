//! What can be asked and set of a kernel, and how many of its blocks fit.

use super::launch::{as_function, driver_config};
use crate::boundary::{LEGACY, Outcome, give, require};
use crate::convert::same;
use crate::driver::driver;
use crate::types::*;
use crate::{context, registry};
use core::ffi::{c_char, c_int, c_uint, c_void};
use detshare_cuda::types::{CUfunction, CUfunction_attribute as Attribute, CUkernel};

unsafe fn attribute(kernel: CUkernel, which: Attribute) -> Outcome<c_int> {
    let mut value = 0;
    driver!(cuKernelGetAttribute(&raw mut value, which, kernel, context::handle(context::device()?)?))?;
    Ok(value)
}

fn size(value: c_int) -> usize {
    usize::try_from(value).unwrap_or(0)
}

pub unsafe fn cudaFuncGetAttributes(attributes: *mut cudaFuncAttributes, function: *const c_void) -> Outcome {
    use Attribute as A;
    let kernel = registry::kernel(function)?;
    give(
        attributes,
        cudaFuncAttributes {
            sharedSizeBytes: size(attribute(kernel, A::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?),
            constSizeBytes: size(attribute(kernel, A::CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES)?),
            localSizeBytes: size(attribute(kernel, A::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?),
            maxThreadsPerBlock: attribute(kernel, A::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            numRegs: attribute(kernel, A::CU_FUNC_ATTRIBUTE_NUM_REGS)?,
            ptxVersion: attribute(kernel, A::CU_FUNC_ATTRIBUTE_PTX_VERSION)?,
            binaryVersion: attribute(kernel, A::CU_FUNC_ATTRIBUTE_BINARY_VERSION)?,
            cacheModeCA: attribute(kernel, A::CU_FUNC_ATTRIBUTE_CACHE_MODE_CA)?,
            maxDynamicSharedSizeBytes: attribute(kernel, A::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)?,
            preferredShmemCarveout: attribute(kernel, A::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT)?,
            clusterDimMustBeSet: attribute(kernel, A::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET)?,
            requiredClusterWidth: attribute(kernel, A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH)?,
            requiredClusterHeight: attribute(kernel, A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT)?,
            requiredClusterDepth: attribute(kernel, A::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)?,
            clusterSchedulingPolicyPreference: attribute(
                kernel,
                A::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
            )?,
            nonPortableClusterSizeAllowed: attribute(kernel, A::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)?,
            reserved: [0; 16],
        },
    )
}

/// The attributes that can be set have the driver's numbers.
unsafe fn set_attribute(kernel: CUkernel, attribute: cudaFuncAttribute, value: c_int, device: c_int) -> Outcome {
    driver!(cuKernelSetAttribute(Attribute(attribute.0), value, kernel, context::handle(device)?))
}

pub unsafe fn cudaFuncSetAttribute(function: *const c_void, attribute: cudaFuncAttribute, value: c_int) -> Outcome {
    let kernel = registry::kernel(function)?;
    set_attribute(kernel, attribute, value, context::device()?)
}

pub unsafe fn cudaKernelSetAttributeForDevice(
    kernel: cudaKernel_t,
    attribute: cudaFuncAttribute,
    value: c_int,
    device: c_int,
) -> Outcome {
    context::ready()?;
    set_attribute(kernel, attribute, value, device)
}

pub unsafe fn cudaFuncSetCacheConfig(function: *const c_void, config: cudaFuncCache) -> Outcome {
    let kernel = registry::kernel(function)?;
    driver!(cuKernelSetCacheConfig(kernel, same(config), context::handle(context::device()?)?))
}

/// Banks of shared memory have had one width since Maxwell.
pub unsafe fn cudaFuncSetSharedMemConfig(function: *const c_void, _config: cudaSharedMemConfig) -> Outcome {
    registry::kernel(function).map(drop)
}

pub unsafe fn cudaFuncGetName(name: *mut *const c_char, function: *const c_void) -> Outcome {
    driver!(cuKernelGetName(name, registry::kernel(function)?))
}

pub unsafe fn cudaFuncGetParamInfo(
    function: *const c_void,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Outcome {
    driver!(cuKernelGetParamInfo(registry::kernel(function)?, index, offset, size))
}

pub unsafe fn cudaGetKernel(kernel: *mut cudaKernel_t, function: *const c_void) -> Outcome {
    give(kernel, registry::kernel(function)?)
}

pub unsafe fn cudaGetFuncBySymbol(found: *mut cudaFunction_t, function: *const c_void) -> Outcome {
    let mut made = CUfunction(core::ptr::null_mut());
    driver!(cuKernelGetFunction(&raw mut made, registry::kernel(function)?))?;
    give(found, made)
}

pub unsafe fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
    blocks: *mut c_int,
    function: *const c_void,
    threads: c_int,
    shared: usize,
) -> Outcome {
    cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, 0)
}

pub unsafe fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    blocks: *mut c_int,
    function: *const c_void,
    threads: c_int,
    shared: usize,
    flags: c_uint,
) -> Outcome {
    let function = as_function(registry::kernel(function)?);
    driver!(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, shared, flags))
}

pub unsafe fn cudaOccupancyAvailableDynamicSMemPerBlock(
    shared: *mut usize,
    function: *const c_void,
    blocks: c_int,
    threads: c_int,
) -> Outcome {
    let function = as_function(registry::kernel(function)?);
    driver!(cuOccupancyAvailableDynamicSMemPerBlock(shared, function, blocks, threads))
}

pub unsafe fn cudaOccupancyMaxActiveClusters(
    clusters: *mut c_int,
    function: *const c_void,
    config: *const cudaLaunchConfig_t,
) -> Outcome {
    require(!config.is_null())?;
    let function = as_function(registry::kernel(function)?);
    let config = driver_config(&*config, LEGACY)?;
    driver!(cuOccupancyMaxActiveClusters(clusters, function, &raw const config))
}

pub unsafe fn cudaOccupancyMaxPotentialClusterSize(
    size: *mut c_int,
    function: *const c_void,
    config: *const cudaLaunchConfig_t,
) -> Outcome {
    require(!config.is_null())?;
    let function = as_function(registry::kernel(function)?);
    let config = driver_config(&*config, LEGACY)?;
    driver!(cuOccupancyMaxPotentialClusterSize(size, function, &raw const config))
}
