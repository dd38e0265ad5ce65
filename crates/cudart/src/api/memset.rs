//! Filling memory. The value is one byte, whatever its type.

use crate::boundary::Outcome;
use crate::context;
use crate::convert::address;
use crate::driver::{driver, synchronous};
use crate::types::*;
use core::ffi::{c_int, c_uchar, c_void};

fn byte(value: c_int) -> c_uchar {
    value.to_ne_bytes()[0]
}

pub unsafe fn cudaMemset(default: cudaStream_t, pointer: *mut c_void, value: c_int, count: usize) -> Outcome {
    context::ready()?;
    if count == 0 {
        return Ok(());
    }
    synchronous!(default, cuMemsetD8_v2 | cuMemsetD8_v2_ptds(address(pointer), byte(value), count))
}

pub unsafe fn cudaMemsetAsync(pointer: *mut c_void, value: c_int, count: usize, stream: cudaStream_t) -> Outcome {
    context::ready()?;
    if count == 0 {
        return Ok(());
    }
    driver!(cuMemsetD8Async(address(pointer), byte(value), count, stream))
}

pub unsafe fn cudaMemset2D(
    default: cudaStream_t,
    pointer: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
) -> Outcome {
    context::ready()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    synchronous!(default, cuMemsetD2D8_v2 | cuMemsetD2D8_v2_ptds(address(pointer), pitch, byte(value), width, height))
}

pub unsafe fn cudaMemset2DAsync(
    pointer: *mut c_void,
    pitch: usize,
    value: c_int,
    width: usize,
    height: usize,
    stream: cudaStream_t,
) -> Outcome {
    context::ready()?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    driver!(cuMemsetD2D8Async(address(pointer), pitch, byte(value), width, height, stream))
}

/// The layers of a box as rectangles: its pitch, and where each begins. Layers without rows between them are one.
fn rectangles(pitched: &cudaPitchedPtr, extent: &cudaExtent) -> Vec<(*mut c_void, usize)> {
    if extent.height == pitched.ysize {
        return vec![(pitched.ptr, extent.height.saturating_mul(extent.depth))];
    }
    let layer = pitched.pitch.wrapping_mul(pitched.ysize);
    (0..extent.depth).map(|index| (pitched.ptr.wrapping_byte_add(index.wrapping_mul(layer)), extent.height)).collect()
}

pub unsafe fn cudaMemset3D(
    default: cudaStream_t,
    pitched: cudaPitchedPtr,
    value: c_int,
    extent: cudaExtent,
) -> Outcome {
    for (pointer, rows) in rectangles(&pitched, &extent) {
        cudaMemset2D(default, pointer, pitched.pitch, value, extent.width, rows)?;
    }
    Ok(())
}

pub unsafe fn cudaMemset3DAsync(
    pitched: cudaPitchedPtr,
    value: c_int,
    extent: cudaExtent,
    stream: cudaStream_t,
) -> Outcome {
    for (pointer, rows) in rectangles(&pitched, &extent) {
        cudaMemset2DAsync(pointer, pitched.pitch, value, extent.width, rows, stream)?;
    }
    Ok(())
}
