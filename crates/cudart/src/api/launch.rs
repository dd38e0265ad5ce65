//! Launches: by `<<<>>>`, by name, with attributes, and functions of the host.

use super::forward;
use crate::boundary::{Outcome, explicit, give, require};
use crate::convert::{at_mut, same};
use crate::driver::driver;
use crate::types::*;
use crate::{context, registry};
use core::cell::RefCell;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUdevice_attribute as Attribute, CUfunction, CUkernel, CUlaunchConfig};

/// What stands between `<<<` and `>>>`.
#[derive(Clone, Copy)]
pub struct Configuration {
    pub grid: dim3,
    pub block: dim3,
    pub shared: usize,
    pub stream: cudaStream_t,
}

thread_local! {
    /// From `<<<>>>` until the stub of the kernel takes it.
    static PENDING: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

pub fn push_configuration(configuration: Configuration) {
    // A thread that has ended its variables already launches nothing any more.
    let _ = PENDING.try_with(|pending| pending.borrow_mut().push(configuration));
}

pub unsafe fn __cudaPopCallConfiguration(
    grid: *mut dim3,
    block: *mut dim3,
    shared: *mut usize,
    stream: *mut c_void,
) -> Outcome {
    let taken = PENDING.try_with(|pending| pending.borrow_mut().pop()).ok().flatten();
    let taken = taken.ok_or(cudaError_t::cudaErrorMissingConfiguration)?;
    give(grid, taken.grid)?;
    give(block, taken.block)?;
    give(shared, taken.shared)?;
    give(stream.cast(), taken.stream)
}

pub unsafe fn __cudaGetKernel(kernel: *mut cudaKernel_t, function: *const c_void) -> Outcome {
    give(kernel, registry::kernel(function)?)
}

/// A kernel goes where a function goes.
pub(super) fn as_function(kernel: CUkernel) -> CUfunction {
    CUfunction(kernel.0.cast())
}

fn attribute(which: Attribute) -> Outcome<c_uint> {
    let mut value: c_int = 0;
    // SAFETY: a place for a number.
    unsafe { driver!(cuDeviceGetAttribute(&raw mut value, which, context::handle(context::device()?)?)) }?;
    Ok(value.unsigned_abs())
}

/// Whether the device could have such a grid of such blocks at all.
fn is_possible(grid: &dim3, block: &dim3) -> Outcome<bool> {
    use Attribute as A;
    let sides = [
        (grid.x, A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X),
        (grid.y, A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
        (grid.z, A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z),
        (block.x, A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X),
        (block.y, A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
        (block.z, A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z),
    ];
    for (side, most) in sides {
        if side == 0 || side > attribute(most)? {
            return Ok(false);
        }
    }
    let threads = u64::from(block.x) * u64::from(block.y) * u64::from(block.z);
    Ok(threads <= u64::from(attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?))
}

/// The driver has one error for whatever is wrong with a launch, the runtime one of its own for impossible shapes.
pub(super) fn told_apart(result: Outcome, grid: &dim3, block: &dim3) -> Outcome {
    match result {
        Err(cudaError_t::cudaErrorInvalidValue) if !is_possible(grid, block)? => {
            Err(cudaError_t::cudaErrorInvalidConfiguration)
        }
        result => result,
    }
}

fn shared_bytes(size: usize) -> Outcome<c_uint> {
    c_uint::try_from(size).map_err(|_| cudaError_t::cudaErrorInvalidValue)
}

unsafe fn launch(kernel: CUkernel, how: &Configuration, arguments: *mut *mut c_void) -> Outcome {
    let Configuration { grid, block, shared, stream } = *how;
    let shared = shared_bytes(shared)?;
    let launched = driver!(cuLaunchKernel(
        as_function(kernel),
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        shared,
        stream,
        arguments,
        null_mut()
    ));
    told_apart(launched, &grid, &block)
}

pub unsafe fn __cudaLaunchKernel(
    kernel: cudaKernel_t,
    grid: dim3,
    block: dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: cudaStream_t,
) -> Outcome {
    context::ready()?;
    if kernel.0.is_null() {
        // Why it was not found is the last error already, and the one that counts.
        return Err(match crate::boundary::last() {
            cudaError_t::cudaSuccess => cudaError_t::cudaErrorInvalidDeviceFunction,
            error => error,
        });
    }
    launch(kernel, &Configuration { grid, block, shared, stream }, arguments)
}

pub unsafe fn cudaLaunchKernel(
    function: *const c_void,
    grid: dim3,
    block: dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: cudaStream_t,
) -> Outcome {
    launch(registry::kernel(function)?, &Configuration { grid, block, shared, stream }, arguments)
}

pub unsafe fn cudaLaunchCooperativeKernel(
    function: *const c_void,
    grid: dim3,
    block: dim3,
    arguments: *mut *mut c_void,
    shared: usize,
    stream: cudaStream_t,
) -> Outcome {
    let kernel = registry::kernel(function)?;
    let shared = shared_bytes(shared)?;
    let launched = driver!(cuLaunchCooperativeKernel(
        as_function(kernel),
        grid.x,
        grid.y,
        grid.z,
        block.x,
        block.y,
        block.z,
        shared,
        stream,
        arguments
    ));
    told_apart(launched, &grid, &block)
}

/// The runtime's launch attributes are the driver's by another name.
pub(super) unsafe fn driver_config(config: &cudaLaunchConfig_t, default: cudaStream_t) -> Outcome<CUlaunchConfig> {
    Ok(CUlaunchConfig {
        gridDimX: config.gridDim.x,
        gridDimY: config.gridDim.y,
        gridDimZ: config.gridDim.z,
        blockDimX: config.blockDim.x,
        blockDimY: config.blockDim.y,
        blockDimZ: config.blockDim.z,
        sharedMemBytes: shared_bytes(config.dynamicSmemBytes)?,
        hStream: explicit(config.stream, default),
        attrs: at_mut(config.attrs),
        numAttrs: config.numAttrs,
    })
}

pub unsafe fn cudaLaunchKernelExC(
    default: cudaStream_t,
    config: *const cudaLaunchConfig_t,
    function: *const c_void,
    arguments: *mut *mut c_void,
) -> Outcome {
    require(!config.is_null())?;
    let kernel = registry::kernel(function)?;
    let how = driver_config(&*config, default)?;
    let launched = driver!(cuLaunchKernelEx(&raw const how, as_function(kernel), arguments, null_mut()));
    told_apart(launched, &(*config).gridDim, &(*config).blockDim)
}

forward! {
    fn cudaLaunchHostFunc(stream: cudaStream_t, function: cudaHostFn_t, data: *mut c_void)
        => cuLaunchHostFunc(stream, same(function), data);
}
