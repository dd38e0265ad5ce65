//! Many copies at once.

use super::forward;
use crate::convert::at_mut;
use crate::types::*;
use core::ffi::{c_ulonglong, c_void};

forward! {
    fn cudaMemcpyBatchAsync(
        to: *const *mut c_void, from: *const *const c_void, sizes: *const usize, count: usize,
        attributes: *mut cudaMemcpyAttributes, indices: *mut usize, attribute_count: usize, stream: cudaStream_t,
    ) => cuMemcpyBatchAsync_v2(
        to.cast_mut().cast(), from.cast_mut().cast(), sizes.cast_mut(), count, at_mut(attributes), indices,
        attribute_count, stream
    );
    fn cudaMemcpy3DBatchAsync(
        count: usize, operations: *mut cudaMemcpy3DBatchOp, flags: c_ulonglong, stream: cudaStream_t,
    ) => cuMemcpy3DBatchAsync_v2(count, at_mut(operations), flags, stream);
}
