//! Modules and libraries: what their kernels are known by, and what has to be over before they go.

use super::replace;
use crate::block_level::{self, Origin};
use crate::boundary::guarded;
use crate::call::is_ok;
use crate::{bind, coroutine, handed, kernel, module, settings};
use core::ffi::{c_char, c_int, c_uint, c_void};
use detshare_cuda::types::{
    CUdevice, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel, CUlibrary, CUlibraryOption,
    CUmodule, CUresult,
};
use std::borrow::Cow;

replace! {
    fn cuModuleLoad(module: *mut CUmodule, name: *const c_char) {
        let code = cu!(cuModuleLoad(module, name));
        // SAFETY: the driver has opened that file, and written there.
        unsafe { loaded_from_file(code, module.cast(), name, Kind::MODULE) }
    }
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void) {
        let code = cu!(cuModuleLoadData(module, image));
        // SAFETY: the driver has read the image, and written there.
        unsafe { loaded(code, module.cast(), image, Kind::MODULE) }
    }
    fn cuModuleLoadDataEx(
        module: *mut CUmodule, image: *const c_void, count: c_uint, options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) {
        let code = cu!(cuModuleLoadDataEx(module, image, count, options, values));
        // SAFETY: as above; the driver has read so many options.
        unsafe { loaded(code, module.cast(), image, Kind { options, values, count, ..Kind::MODULE }) }
    }
    fn cuModuleLoadFatBinary(module: *mut CUmodule, image: *const c_void) {
        let code = cu!(cuModuleLoadFatBinary(module, image));
        // SAFETY: as above.
        unsafe { loaded(code, module.cast(), image, Kind::MODULE) }
    }
    fn cuLibraryLoadData(
        library: *mut CUlibrary, image: *const c_void, options: *mut CUjit_option, values: *mut *mut c_void,
        count: c_uint, more_options: *mut CUlibraryOption, more_values: *mut *mut c_void, more_count: c_uint,
    ) {
        let code = cu!(cuLibraryLoadData(
            library, image, options, values, count, more_options, more_values, more_count
        ));
        // SAFETY: as above.
        unsafe { loaded(code, library.cast(), image, Kind { is_library: true, options, values, count }) }
    }
    fn cuLibraryLoadFromFile(
        library: *mut CUlibrary, name: *const c_char, options: *mut CUjit_option, values: *mut *mut c_void,
        count: c_uint, more_options: *mut CUlibraryOption, more_values: *mut *mut c_void, more_count: c_uint,
    ) {
        let code = cu!(cuLibraryLoadFromFile(
            library, name, options, values, count, more_options, more_values, more_count
        ));
        // SAFETY: the driver has opened that file, and written there.
        unsafe { loaded_from_file(code, library.cast(), name, Kind { is_library: true, options, values, count }) }
    }
    fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) {
        let code = cu!(cuModuleGetFunction(function, module, name));
        // SAFETY: the driver has written there.
        unsafe { got(code, function.cast(), || 1, module.0.addr()) }
    }
    fn cuModuleEnumerateFunctions(functions: *mut CUfunction, count: c_uint, module: CUmodule) {
        let code = cu!(cuModuleEnumerateFunctions(functions, count, module));
        // SAFETY: as above, as many as there are and have room.
        unsafe { got(code, functions.cast(), || functions_in(module).min(count), module.0.addr()) }
    }
    fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) {
        let code = cu!(cuLibraryGetKernel(kernel, library, name));
        // SAFETY: the driver has written there.
        unsafe { got(code, kernel.cast(), || 1, library.0.addr()) }
    }
    fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary) {
        let code = cu!(cuLibraryEnumerateKernels(kernels, count, library));
        // SAFETY: as above, as many as there are and have room.
        unsafe { got(code, kernels.cast(), || kernels_in(library).min(count), library.0.addr()) }
    }
    fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) {
        let code = cu!(cuLibraryGetModule(module, library));
        // SAFETY: the driver has written there.
        unsafe { got(code, module.cast(), || 1, library.0.addr()) }
    }
    fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) {
        let code = cu!(cuKernelGetFunction(function, kernel));
        // SAFETY: the driver has written there.
        unsafe { got(code, function.cast(), || 1, kernel.0.addr()) }
    }
    fn cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int) {
        set(cu!(cuFuncSetAttribute(function, attribute, value)), function.0.addr())
    }
    fn cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice) {
        set(cu!(cuKernelSetAttribute(attribute, value, kernel, device)), kernel.0.addr())
    }
    fn cuFuncSetCacheConfig(function: CUfunction, config: CUfunc_cache) {
        cache_set(cu!(cuFuncSetCacheConfig(function, config)), function, config)
    }
    fn cuKernelSetCacheConfig(kernel: CUkernel, config: CUfunc_cache, device: CUdevice) {
        cache_set(cu!(cuKernelSetCacheConfig(kernel, config, device)), CUfunction(kernel.0.cast()), config)
    }
    fn cuModuleUnload(module: CUmodule) {
        unloading(module.0.addr());
        cu!(cuModuleUnload(module))
    }
    fn cuLibraryUnload(library: CUlibrary) {
        unloading(library.0.addr());
        cu!(cuLibraryUnload(library))
    }
}

/// Handles are pointers, as programs see them.
type Handle = *mut c_void;

/// What the program has loaded, and with which options.
#[derive(Clone, Copy)]
struct Kind {
    is_library: bool,
    options: *const CUjit_option,
    values: *const *mut c_void,
    count: c_uint,
}

impl Kind {
    const MODULE: Self = Self { is_library: false, options: core::ptr::null(), values: core::ptr::null(), count: 0 };

    /// # Safety
    /// There are as many options as it says.
    unsafe fn origin(self, bytes: Option<Cow<'_, [u8]>>) -> Origin<'_> {
        // SAFETY: the caller's promise.
        let is_plain = unsafe { block_level::are_harmless(self.options, self.values, self.count) };
        Origin { bytes, is_library: self.is_library, is_plain }
    }
}

/// A module or library is there, from memory.
///
/// # Safety
/// If the code says that all went well, the driver has read the image and the options, and written the handle.
unsafe fn loaded(code: CUresult, handle: *const Handle, image: *const c_void, kind: Kind) -> CUresult {
    if is_ok(code) && settings::get().binds() {
        // SAFETY: the caller's promise.
        let handle = unsafe { *handle }.addr();
        // SAFETY: likewise.
        guarded((), || unsafe { module::loaded(handle, image) });
        if block_level::is_wanted() {
            guarded((), || {
                // SAFETY: likewise.
                let bytes = unsafe { module::image_in(image.cast()) }.map(Cow::Borrowed);
                // SAFETY: likewise.
                block_level::loaded(handle, unsafe { kind.origin(bytes) });
            });
        }
    }
    code
}

/// A module or library is there, from a file.
///
/// # Safety
/// If the code says that all went well, the driver has opened that file, read the options and written the handle.
unsafe fn loaded_from_file(code: CUresult, handle: *const Handle, name: *const c_char, kind: Kind) -> CUresult {
    if is_ok(code) && settings::get().binds() {
        // SAFETY: the caller's promise.
        let handle = unsafe { *handle }.addr();
        // SAFETY: likewise.
        guarded((), || unsafe { module::loaded_from_file(handle, name) });
        if block_level::is_wanted() {
            guarded((), || {
                // SAFETY: likewise.
                let bytes = unsafe { module::read_file(name) }.map(Cow::Owned);
                // SAFETY: likewise.
                block_level::loaded(handle, unsafe { kind.origin(bytes) });
            });
        }
    }
    code
}

/// Handles came out of another one.
///
/// # Safety
/// If the code says that all went well, the driver has written so many.
unsafe fn got(code: CUresult, handles: *const Handle, count: impl FnOnce() -> c_uint, from: usize) -> CUresult {
    if is_ok(code) && settings::get().binds() && !handles.is_null() {
        // SAFETY: the caller's promise.
        for handle in unsafe { handed::list(handles, count() as usize) } {
            module::got(handle.addr(), from);
        }
    }
    code
}

/// Something of a function or kernel was set.
fn set(code: CUresult, handle: usize) -> CUresult {
    if is_ok(code) && block_level::is_wanted() {
        block_level::attributes_changed(handle);
    }
    code
}

/// What a function or kernel prefers, which no driver can be asked for.
fn cache_set(code: CUresult, function: CUfunction, config: CUfunc_cache) -> CUresult {
    if is_ok(code) && block_level::is_wanted() {
        block_level::cache_config_changed(function, config);
    }
    code
}

fn functions_in(module: CUmodule) -> c_uint {
    let mut count = 0;
    cu!(cuModuleGetFunctionCount(&raw mut count, module));
    count
}

fn kernels_in(library: CUlibrary) -> c_uint {
    let mut count = 0;
    cu!(cuLibraryGetKernelCount(&raw mut count, library));
    count
}

/// Kernels are about to go that may still run on lanes.
fn unloading(owner: usize) {
    if coroutine::active() {
        bind::everything();
        block_level::unloading(owner);
        kernel::forget();
        module::unloaded(owner);
    }
}
