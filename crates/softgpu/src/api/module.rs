//! Modules.

use super::jit::Options;
use super::{as_pointer, require, text};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::context;
use crate::module::{self, Module};
use core::ffi::{c_char, c_uint, c_void};
use detshare_cuda::types::{
    CUdeviceptr, CUdeviceptr_v2, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult,
};

pub(crate) unsafe fn cuModuleLoadData(loaded: *mut CUmodule, image: *const c_void) -> Outcome {
    cuModuleLoadDataEx(loaded, image, 0, core::ptr::null_mut(), core::ptr::null_mut())
}

pub(crate) unsafe fn cuModuleLoadDataEx(
    loaded: *mut CUmodule,
    image: *const c_void,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Outcome {
    let context = context::healthy()?;
    require(!loaded.is_null())?;
    let wanted = Options::find(count, options, values);
    let module = wanted.report(Module::load(&wanted.apply(module::sources(image)?), Some(context)))?;
    give(loaded, CUmodule(as_pointer(module.handle)))
}

pub(crate) unsafe fn cuModuleLoadFatBinary(loaded: *mut CUmodule, image: *const c_void) -> Outcome {
    cuModuleLoadData(loaded, image)
}

pub(crate) unsafe fn cuModuleLoad(loaded: *mut CUmodule, file: *const c_char) -> Outcome {
    let image = file_image(file)?;
    cuModuleLoadData(loaded, image.as_ptr().cast())
}

/// A file's bytes with a terminator.
pub(super) unsafe fn file_image(file: *const c_char) -> Outcome<Vec<u8>> {
    let mut image = std::fs::read(text(file)?).map_err(|_| CUresult::CUDA_ERROR_FILE_NOT_FOUND)?;
    image.push(0);
    Ok(image)
}

pub(crate) unsafe fn cuModuleUnload(module: CUmodule) -> Outcome {
    let found = module::find(module.0.addr())?;
    if let Some(context) = &found.context {
        // What runs may use it; what failed does not keep it.
        let _ = context.synchronise();
    }
    found.unload();
    Ok(())
}

pub(crate) unsafe fn cuModuleGetFunction(function: *mut CUfunction, module: CUmodule, name: *const c_char) -> Outcome {
    let (module, name) = (module::find(module.0.addr())?, text(name)?);
    require(!name.is_empty())?;
    give(function, CUfunction(as_pointer(module.function(name)?.handle)))
}

pub(crate) unsafe fn cuModuleGetFunctionCount(count: *mut c_uint, module: CUmodule) -> Outcome {
    let module = module::find(module.0.addr())?;
    give(count, c_uint::try_from(module.kernel_names().len()).unwrap_or(c_uint::MAX))
}

pub(crate) unsafe fn cuModuleEnumerateFunctions(functions: *mut CUfunction, room: c_uint, module: CUmodule) -> Outcome {
    let module = module::find(module.0.addr())?;
    require(!functions.is_null())?;
    for (index, name) in module.kernel_names().into_iter().take(room as usize).enumerate() {
        functions.add(index).write(CUfunction(as_pointer(module.function(name)?.handle)));
    }
    Ok(())
}

pub(crate) unsafe fn cuModuleGetGlobal_v2(
    address: *mut CUdeviceptr,
    bytes: *mut usize,
    module: CUmodule,
    name: *const c_char,
) -> Outcome {
    let (module, name) = (module::find(module.0.addr())?, text(name)?);
    require(!module.kernel_names().contains(&name))?;
    let global = module.global(name)?;
    give_if_asked(address, CUdeviceptr_v2(global.address));
    give_if_asked(bytes, usize::try_from(global.size).unwrap_or(usize::MAX));
    Ok(())
}

/// Whether libraries are looked into when something of them is used first, as a driver does it unless it is told otherwise.
pub(super) fn loads_lazily() -> bool {
    std::env::var_os("CUDA_MODULE_LOADING").is_none_or(|wish| wish != "EAGER")
}

pub(crate) unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> Outcome {
    let (lazy, eager) = (CUmoduleLoadingMode::CU_MODULE_LAZY_LOADING, CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING);
    give(mode, if loads_lazily() { lazy } else { eager })
}
