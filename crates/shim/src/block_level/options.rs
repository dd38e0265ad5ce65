//! What a program tells the driver's compiler.

use core::ffi::{c_uint, c_void};
use detshare_cuda::types::CUjit_option;

/// Options of the compiler that do not change what it makes.
const HARMLESS: [CUjit_option; 11] = [
    CUjit_option::CU_JIT_WALL_TIME,
    CUjit_option::CU_JIT_INFO_LOG_BUFFER,
    CUjit_option::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
    CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
    CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
    CUjit_option::CU_JIT_TARGET_FROM_CUCONTEXT,
    CUjit_option::CU_JIT_LOG_VERBOSE,
    CUjit_option::CU_JIT_GENERATE_LINE_INFO,
    CUjit_option::CU_JIT_CACHE_MODE,
    CUjit_option::CU_JIT_FALLBACK_STRATEGY,
    CUjit_option::CU_JIT_MAX_REGISTERS,
];

/// Whether these make of a text what a GPU of that architecture has of it without any.
///
/// # Safety
/// There are so many options, and as many values; of none, the pointers may be anything.
pub(super) unsafe fn are_harmless(
    options: *const CUjit_option,
    values: *const *mut c_void,
    count: c_uint,
    architecture: impl Fn() -> u32,
) -> bool {
    // The driver looks at neither then: a program may have left them as they were.
    if count == 0 {
        return true;
    }
    if options.is_null() || values.is_null() {
        return false;
    }
    // SAFETY: the caller's promise.
    let options = unsafe { core::slice::from_raw_parts(options, count as usize) };
    // SAFETY: likewise.
    let values = unsafe { core::slice::from_raw_parts(values, count as usize) };
    let is_this_gpu = |value: &*mut c_void| value.addr() == architecture() as usize;
    let is_harmless = |(option, value): (&CUjit_option, _)| {
        HARMLESS.contains(option) || (*option == CUjit_option::CU_JIT_TARGET && is_this_gpu(value))
    };
    options.iter().zip(values).all(is_harmless)
}
