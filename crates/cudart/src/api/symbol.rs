//! Variables of the device, by the variables of the program that stand for them.

use super::{cudaMemcpy, cudaMemcpyAsync};
use crate::boundary::{Outcome, give, require};
use crate::registry;
use crate::types::*;
use core::ffi::c_void;

/// The place in a variable, if so many bytes are there.
pub(super) fn place(symbol: *const c_void, offset: usize, count: usize) -> Outcome<*mut c_void> {
    let (address, size) = registry::variable(symbol)?;
    require(offset.checked_add(count).is_some_and(|end| end <= size))?;
    let address = usize::try_from(address.0).unwrap_or(0);
    Ok(core::ptr::with_exposed_provenance_mut(address.wrapping_add(offset)))
}

pub unsafe fn cudaGetSymbolAddress(pointer: *mut *mut c_void, symbol: *const c_void) -> Outcome {
    give(pointer, place(symbol, 0, 0)?)
}

pub unsafe fn cudaGetSymbolSize(size: *mut usize, symbol: *const c_void) -> Outcome {
    give(size, registry::variable(symbol)?.1)
}

pub unsafe fn cudaMemcpyToSymbol(
    default: cudaStream_t,
    symbol: *const c_void,
    from: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    cudaMemcpy(default, place(symbol, offset, count)?, from, count, kind)
}

pub unsafe fn cudaMemcpyFromSymbol(
    default: cudaStream_t,
    to: *mut c_void,
    symbol: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    cudaMemcpy(default, to, place(symbol, offset, count)?, count, kind)
}

pub unsafe fn cudaMemcpyToSymbolAsync(
    symbol: *const c_void,
    from: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    cudaMemcpyAsync(place(symbol, offset, count)?, from, count, kind, stream)
}

pub unsafe fn cudaMemcpyFromSymbolAsync(
    to: *mut c_void,
    symbol: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
    stream: cudaStream_t,
) -> Outcome {
    cudaMemcpyAsync(to, place(symbol, offset, count)?, count, kind, stream)
}
