//! Modules that the program loads itself.

use super::forward;
use crate::boundary::Outcome;
use crate::convert::at_mut;
use crate::driver::driver;
use crate::types::*;
use crate::{context, registry};
use core::ffi::{c_char, c_uint, c_void};

forward! {
    fn cudaLibraryLoadData(
        library: *mut cudaLibrary_t, code: *const c_void, jit_options: *mut cudaJitOption,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut cudaLibraryOption, values: *mut *mut c_void,
        count: c_uint,
    ) => cuLibraryLoadData(library, code, at_mut(jit_options), jit_values, jit_count, at_mut(options), values, count);
    fn cudaLibraryLoadFromFile(
        library: *mut cudaLibrary_t, file: *const c_char, jit_options: *mut cudaJitOption,
        jit_values: *mut *mut c_void, jit_count: c_uint, options: *mut cudaLibraryOption, values: *mut *mut c_void,
        count: c_uint,
    ) => cuLibraryLoadFromFile(
        library, file, at_mut(jit_options), jit_values, jit_count, at_mut(options), values, count
    );
    fn cudaLibraryUnload(library: cudaLibrary_t) => cuLibraryUnload(library);
    fn cudaLibraryGetKernelCount(count: *mut c_uint, library: cudaLibrary_t)
        => cuLibraryGetKernelCount(count, library);
    fn cudaLibraryGetGlobal(pointer: *mut *mut c_void, size: *mut usize, library: cudaLibrary_t, name: *const c_char)
        => cuLibraryGetGlobal(at_mut(pointer), size, library, name);
    fn cudaLibraryGetManaged(pointer: *mut *mut c_void, size: *mut usize, library: cudaLibrary_t, name: *const c_char)
        => cuLibraryGetManaged(at_mut(pointer), size, library, name);
}

pub unsafe fn cudaLibraryGetKernel(kernel: *mut cudaKernel_t, library: cudaLibrary_t, name: *const c_char) -> Outcome {
    context::ready()?;
    driver!(cuLibraryGetKernel(kernel, library, name))?;
    registry::add_handle(*kernel);
    Ok(())
}

pub unsafe fn cudaLibraryEnumerateKernels(
    kernels: *mut cudaKernel_t,
    count: c_uint,
    library: cudaLibrary_t,
) -> Outcome {
    context::ready()?;
    let mut there = 0;
    driver!(cuLibraryGetKernelCount(&raw mut there, library))?;
    driver!(cuLibraryEnumerateKernels(kernels, count, library))?;
    let written = usize::try_from(count.min(there)).unwrap_or(0);
    (0..written).for_each(|index| registry::add_handle(*kernels.add(index)));
    Ok(())
}
