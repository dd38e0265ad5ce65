//! Modules.

use super::{as_pointer, require, text};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::context;
use crate::module::{self, Module};
use core::ffi::{c_char, c_uint, c_void};
use detshare_cuda::types::{
    CUdeviceptr, CUdeviceptr_v2, CUfunction, CUjit_option, CUmodule, CUmoduleLoadingMode, CUresult,
};

/// Where a program wants to read what went wrong.
#[derive(Clone, Copy)]
pub(super) struct ErrorLog {
    buffer: *mut c_char,
    room: usize,
}

impl ErrorLog {
    /// Out of the program's options.
    pub(super) unsafe fn find(count: c_uint, options: *mut CUjit_option, values: *mut *mut c_void) -> Self {
        let mut log = Self { buffer: core::ptr::null_mut(), room: 0 };
        if options.is_null() || values.is_null() {
            return log;
        }
        for index in 0..count as usize {
            let value = *values.add(index);
            match *options.add(index) {
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER => log.buffer = value.cast(),
                CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES => log.room = value.addr(),
                CUjit_option::CU_JIT_INFO_LOG_BUFFER if !value.is_null() => value.cast::<c_char>().write(0),
                _ => {}
            }
        }
        log.write("");
        log
    }

    unsafe fn write(self, text: &str) {
        if !self.buffer.is_null() && self.room > 0 {
            let length = text.len().min(self.room - 1);
            core::ptr::copy_nonoverlapping(text.as_ptr().cast(), self.buffer, length);
            self.buffer.add(length).write(0);
        }
    }

    /// The code; the words go to the program.
    pub(super) unsafe fn report<T>(self, result: Result<T, (CUresult, String)>) -> Outcome<T> {
        match result {
            Ok(value) => Ok(value),
            Err((code, words)) => {
                self.write(&words);
                Err(code)
            }
        }
    }
}

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
    let log = ErrorLog::find(count, options, values);
    let module = log.report(Module::load(&module::sources(image)?, Some(context)))?;
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
    let module = module::find(module.0.addr())?;
    give(function, CUfunction(as_pointer(module.function(text(name)?)?.handle)))
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
    let module = module::find(module.0.addr())?;
    let global = module.global(text(name)?)?;
    give_if_asked(address, CUdeviceptr_v2(global.address));
    give_if_asked(bytes, usize::try_from(global.size).unwrap_or(usize::MAX));
    Ok(())
}

pub(crate) unsafe fn cuModuleGetLoadingMode(mode: *mut CUmoduleLoadingMode) -> Outcome {
    give(mode, CUmoduleLoadingMode::CU_MODULE_EAGER_LOADING)
}
