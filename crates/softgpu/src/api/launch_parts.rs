//! Launches as before CUDA 4: shape, shared memory and parameters are set one after the other, and stay with the kernel.

use super::launch::{BUFFER_POINTER, BUFFER_SIZE, Wanted, launch};
use super::require;
use crate::boundary::Outcome;
use crate::device;
use crate::exports::LEGACY;
use crate::module::{self, Function};
use crate::operation::Attributes;
use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{null_mut, without_provenance_mut};
use detshare_cuda::types::{CUfunction, CUresult, CUstream};

/// Bytes of parameters that any kernel can have.
const MOST_PARAMETERS: usize = 32_764;

fn unsigned(value: c_int) -> Outcome<u32> {
    u32::try_from(value).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuFuncSetBlockShape(function: CUfunction, x: c_int, y: c_int, z: c_int) -> Outcome {
    let function = module::find_function(function)?;
    let block = [unsigned(x)?, unsigned(y)?, unsigned(z)?];
    require(block.iter().zip(device::MOST_BLOCK).all(|(size, most)| (1..=most).contains(size)))?;
    require(block.iter().product::<u32>() <= device::MOST_THREADS_PER_BLOCK)?;
    function.prepared().block = block;
    Ok(())
}

pub(crate) unsafe fn cuFuncSetSharedSize(function: CUfunction, bytes: c_uint) -> Outcome {
    let function = module::find_function(function)?;
    function.prepared().dynamic_shared = bytes;
    Ok(())
}

pub(crate) unsafe fn cuParamSetSize(function: CUfunction, bytes: c_uint) -> Outcome {
    let function = module::find_function(function)?;
    let size = bytes as usize;
    require(size <= MOST_PARAMETERS)?;
    function.prepared().parameters.resize(size, 0);
    Ok(())
}

/// Sets some bytes of the parameters. Programs may say how many there are before or afterwards.
fn set(function: &Function, offset: c_int, bytes: &[u8]) -> Outcome {
    let start = unsigned(offset)? as usize;
    let end = start + bytes.len();
    require(end <= MOST_PARAMETERS)?;
    let parameters = &mut function.prepared().parameters;
    if parameters.len() < end {
        parameters.resize(end, 0);
    }
    parameters[start..end].copy_from_slice(bytes);
    Ok(())
}

pub(crate) unsafe fn cuParamSeti(function: CUfunction, offset: c_int, value: c_uint) -> Outcome {
    let function = module::find_function(function)?;
    set(&function, offset, &value.to_ne_bytes())
}

pub(crate) unsafe fn cuParamSetf(function: CUfunction, offset: c_int, value: f32) -> Outcome {
    let function = module::find_function(function)?;
    set(&function, offset, &value.to_ne_bytes())
}

pub(crate) unsafe fn cuParamSetv(function: CUfunction, offset: c_int, from: *mut c_void, bytes: c_uint) -> Outcome {
    let function = module::find_function(function)?;
    require(!from.is_null() && bytes as usize <= MOST_PARAMETERS)?;
    set(&function, offset, core::slice::from_raw_parts(from.cast_const().cast(), bytes as usize))
}

pub(crate) unsafe fn cuLaunch(function: CUfunction) -> Outcome {
    launch_prepared(function, [1, 1, 1], LEGACY)
}

pub(crate) unsafe fn cuLaunchGrid(function: CUfunction, width: c_int, height: c_int) -> Outcome {
    launch_prepared(function, [unsigned(width)?, unsigned(height)?, 1], LEGACY)
}

pub(crate) unsafe fn cuLaunchGridAsync(function: CUfunction, width: c_int, height: c_int, stream: CUstream) -> Outcome {
    launch_prepared(function, [unsigned(width)?, unsigned(height)?, 1], stream)
}

/// What `cuLaunchKernel` does, with what was set before.
unsafe fn launch_prepared(handle: CUfunction, grid: [u32; 3], stream: CUstream) -> Outcome {
    let mut prepared = module::find_function(handle)?.prepared().clone();
    let mut size = prepared.parameters.len();
    let mut extra = [
        without_provenance_mut(BUFFER_POINTER),
        prepared.parameters.as_mut_ptr().cast(),
        without_provenance_mut(BUFFER_SIZE),
        (&raw mut size).cast(),
        null_mut(),
    ];
    let wanted = Wanted {
        grid,
        block: prepared.block,
        dynamic_shared: prepared.dynamic_shared,
        parameters: null_mut(),
        extra: extra.as_mut_ptr(),
    };
    launch(handle, stream, &wanted, Attributes::new())
}
