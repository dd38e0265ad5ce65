//! Libraries and their kernels: modules that belong to no context.

use super::jit::Options;
use super::module::{file_image, loads_lazily};
use super::{as_pointer, function, require, text};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::handle::{self, Table};
use crate::memory;
use crate::module::{self, Module};
use core::ffi::{c_char, c_int, c_uint, c_void};
use detshare_cuda::types::{
    CUdevice, CUdeviceptr, CUdeviceptr_v2, CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option, CUkernel,
    CUlibrary, CUlibraryOption, CUmodule, CUresult,
};
use std::sync::Arc;

/// Libraries whose text is broken, which a program is told when it uses something of them, and with which code.
static BROKEN: Table<CUresult> = Table::new();

fn find(library: CUlibrary) -> Outcome<Arc<Module>> {
    match BROKEN.get(library.0.addr()) {
        Some(code) => Err(*code),
        None => module::find(library.0.addr()),
    }
}

pub(crate) unsafe fn cuLibraryLoadData(
    loaded: *mut CUlibrary,
    image: *const c_void,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    _library_options: *mut CUlibraryOption,
    _library_values: *mut *mut c_void,
    _library_count: c_uint,
) -> Outcome {
    require(!loaded.is_null())?;
    let wanted = Options::find(count, options, values);
    let handle = match wanted.report(Module::load(&wanted.apply(module::sources(image)?), None)) {
        Err(code) if code == CUresult::CUDA_ERROR_INVALID_PTX && loads_lazily() => {
            let handle = handle::new();
            BROKEN.insert(handle, Arc::new(code));
            handle
        }
        library => library?.handle,
    };
    give(loaded, CUlibrary(as_pointer(handle)))
}

pub(crate) unsafe fn cuLibraryLoadFromFile(
    loaded: *mut CUlibrary,
    file: *const c_char,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    count: c_uint,
    library_options: *mut CUlibraryOption,
    library_values: *mut *mut c_void,
    library_count: c_uint,
) -> Outcome {
    let image = file_image(file)?;
    let image = image.as_ptr().cast();
    cuLibraryLoadData(loaded, image, options, values, count, library_options, library_values, library_count)
}

pub(crate) unsafe fn cuLibraryUnload(library: CUlibrary) -> Outcome {
    match BROKEN.remove(library.0.addr()) {
        Some(_) => {}
        None => find(library)?.unload(),
    }
    Ok(())
}

pub(crate) unsafe fn cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char) -> Outcome {
    let library = find(library)?;
    give(kernel, CUkernel(as_pointer(library.function(text(name)?)?.as_kernel)))
}

pub(crate) unsafe fn cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary) -> Outcome {
    let library = find(library)?;
    give(count, c_uint::try_from(library.kernel_names().len()).unwrap_or(c_uint::MAX))
}

pub(crate) unsafe fn cuLibraryEnumerateKernels(kernels: *mut CUkernel, room: c_uint, library: CUlibrary) -> Outcome {
    let library = find(library)?;
    require(!kernels.is_null())?;
    for (index, name) in library.kernel_names().into_iter().take(room as usize).enumerate() {
        kernels.add(index).write(CUkernel(as_pointer(library.function(name)?.as_kernel)));
    }
    Ok(())
}

/// One object serves as library and as module.
pub(crate) unsafe fn cuLibraryGetModule(module: *mut CUmodule, library: CUlibrary) -> Outcome {
    give(module, CUmodule(as_pointer(find(library)?.handle)))
}

pub(crate) unsafe fn cuLibraryGetGlobal(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    let library = find(library)?;
    let global = library.global(text(name)?)?;
    give_if_asked(address, CUdeviceptr_v2(global.address));
    give_if_asked(bytes, usize::try_from(global.size).unwrap_or(usize::MAX));
    Ok(())
}

/// A variable that is declared as managed.
pub(crate) unsafe fn cuLibraryGetManaged(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    library: CUlibrary,
    name: *const c_char,
) -> Outcome {
    let place = find(library)?.global(text(name)?)?.address;
    if memory::find(place).is_none_or(|range| range.kind != memory::Kind::Managed) {
        return Err(CUresult::CUDA_ERROR_NOT_FOUND);
    }
    cuLibraryGetGlobal(address, bytes, library, name)
}

pub(crate) unsafe fn cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel) -> Outcome {
    give(function, CUfunction(as_pointer(module::find_kernel(kernel)?.handle)))
}

pub(crate) unsafe fn cuKernelGetLibrary(library: *mut CUlibrary, kernel: CUkernel) -> Outcome {
    give(library, CUlibrary(as_pointer(module::find_kernel(kernel)?.module)))
}

pub(crate) unsafe fn cuKernelGetName(name: *mut *const c_char, kernel: CUkernel) -> Outcome {
    give(name, function::lasting_name(&*module::find_kernel(kernel)?))
}

pub(crate) unsafe fn cuKernelGetParamInfo(
    kernel: CUkernel,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Outcome {
    function::parameter(&*module::find_kernel(kernel)?, index, offset, size)
}

pub(crate) unsafe fn cuKernelGetAttribute(
    value: *mut c_int,
    attribute: CUfunction_attribute,
    kernel: CUkernel,
    device: CUdevice,
) -> Outcome {
    super::device::number(device)?;
    function::attribute_of(&*module::find_kernel(kernel)?, value, attribute)
}

pub(crate) unsafe fn cuKernelSetAttribute(
    attribute: CUfunction_attribute,
    value: c_int,
    kernel: CUkernel,
    device: CUdevice,
) -> Outcome {
    super::device::number(device)?;
    function::set_attribute(&*module::find_kernel(kernel)?, attribute, value)
}

pub(crate) unsafe fn cuKernelSetCacheConfig(kernel: CUkernel, _config: CUfunc_cache, device: CUdevice) -> Outcome {
    super::device::number(device)?;
    module::find_kernel(kernel).map(|_| ())
}
