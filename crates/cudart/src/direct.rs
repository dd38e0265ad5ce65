//! What nvcc's generated code calls before `main` and at each `<<<>>>`, and the functions that are no calls of the driver.
//!
//! Each function has the contract of the CUDA runtime for its arguments, which the program's compiler keeps.

#![allow(
    non_snake_case,
    missing_docs,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    reason = "names and arguments are the C API's, and so is their meaning"
)]

use crate::api::{Configuration, push_configuration};
use crate::types::{cudaChannelFormatDesc, cudaChannelFormatKind, cudaError_t, cudaStream_t, dim3};
use crate::{boundary, error, registry};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};

pub extern "C" fn cudaGetLastError() -> cudaError_t {
    boundary::take_last()
}

pub extern "C" fn cudaPeekAtLastError() -> cudaError_t {
    boundary::last()
}

pub extern "C" fn cudaGetErrorName(error: cudaError_t) -> *const c_char {
    error::name(error).as_ptr()
}

pub extern "C" fn cudaGetErrorString(error: cudaError_t) -> *const c_char {
    error::text(error).as_ptr()
}

pub extern "C" fn cudaCreateChannelDesc(
    x: c_int,
    y: c_int,
    z: c_int,
    w: c_int,
    f: cudaChannelFormatKind,
) -> cudaChannelFormatDesc {
    cudaChannelFormatDesc { x, y, z, w, f }
}

pub extern "C" fn __cudaPushCallConfiguration(grid: dim3, block: dim3, shared: usize, stream: cudaStream_t) -> c_uint {
    push_configuration(Configuration { grid, block, shared, stream });
    0
}

/// A handle is the number of the fat binary.
pub extern "C" fn __cudaRegisterFatBinary(wrapper: *const c_void) -> *mut *mut c_void {
    core::ptr::without_provenance_mut(registry::add_binary(wrapper))
}

pub extern "C" fn __cudaRegisterFatBinaryEnd(_handle: *mut *mut c_void) {}

pub extern "C" fn __cudaUnregisterFatBinary(handle: *mut *mut c_void) {
    registry::remove_binary(handle.addr());
}

pub unsafe extern "C" fn __cudaRegisterFunction(
    handle: *mut *mut c_void,
    function: *const c_void,
    _device_function: *mut c_char,
    name: *const c_char,
    _thread_limit: c_int,
    _thread: *mut c_void,
    _block: *mut c_void,
    _block_shape: *mut dim3,
    _grid_shape: *mut dim3,
    _warp_size: *mut c_int,
) {
    function.expose_provenance();
    // SAFETY: a terminated name.
    registry::add_kernel(handle.addr(), function, unsafe { CStr::from_ptr(name) });
}

pub unsafe extern "C" fn __cudaRegisterVar(
    handle: *mut *mut c_void,
    variable: *const c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _is_external: c_int,
    _size: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    // SAFETY: a terminated name.
    registry::add_variable(handle.addr(), variable, unsafe { CStr::from_ptr(name) }, false);
}

/// The program keeps a managed variable's address at `place`, which also stands for the variable.
pub unsafe extern "C" fn __cudaRegisterManagedVar(
    handle: *mut *mut c_void,
    place: *mut *mut c_void,
    _device_address: *mut c_char,
    name: *const c_char,
    _is_external: c_int,
    _size: usize,
    _is_constant: c_int,
    _is_global: c_int,
) {
    place.expose_provenance();
    // SAFETY: a terminated name.
    registry::add_variable(handle.addr(), place.cast(), unsafe { CStr::from_ptr(name) }, true);
}

/// Called before the program first touches a managed variable, which it then does whatever this returns. Without an
/// address it would go on at NULL; the error is what the next call returns.
pub unsafe extern "C" fn __cudaInitModule(handle: *mut *mut c_void) -> c_char {
    let error = boundary::call(|| {
        for (place, address) in registry::managed_variables(handle.addr())? {
            let address = core::ptr::with_exposed_provenance_mut(usize::try_from(address.0).unwrap_or(0));
            // SAFETY: where the program keeps the address.
            unsafe { place.write(address) };
        }
        Ok(())
    });
    c_char::from(error == cudaError_t::cudaSuccess)
}

/// A variable of the host that kernels can see by its address; they can anyway, if they can see the host's memory.
pub extern "C" fn __cudaRegisterHostVar(
    _handle: *mut *mut c_void,
    _name: *const c_char,
    _variable: *mut c_char,
    _size: usize,
) {
}

/// Tables of functions that host and device share, of which nothing is documented.
pub extern "C" fn __cudaRegisterUnifiedTable(_handle: *mut *mut c_void, _table: *mut c_void) {}
