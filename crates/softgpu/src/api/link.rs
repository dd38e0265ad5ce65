//! The linker: collects PTX and hands back a container that holds it.

use super::jit::Options;
use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::device_runtime;
use crate::handle::{self, Table};
use crate::module;
use core::ffi::{c_char, c_uint, c_void};
use detshare_cuda::types::{CUjit_option, CUjitInputType, CUlinkState, CUresult};
use std::sync::{Arc, Mutex};

static LINKERS: Table<Linker> = Table::new();

/// Texts on their way to one image.
struct Linker {
    texts: Mutex<Vec<String>>,
    /// Among them where the program reads what went wrong, as long as the linker lives.
    options: Options,
    /// Handed to the program, and its until the linker goes.
    image: Mutex<Option<Vec<u8>>>,
}

fn find(state: CUlinkState) -> Outcome<Arc<Linker>> {
    LINKERS.get(state.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) unsafe fn cuLinkCreate_v2(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    created: *mut CUlinkState,
) -> Outcome {
    crate::context::healthy()?;
    require(!created.is_null())?;
    let options = Options::find(count, options, values);
    let handle = handle::new();
    LINKERS.insert(handle, Arc::new(Linker { texts: Mutex::default(), options, image: Mutex::default() }));
    give(created, CUlinkState(as_pointer(handle)))
}

pub(crate) unsafe fn cuLinkAddData_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    _name: *const c_char,
    _count: c_uint,
    _options: *mut CUjit_option,
    _values: *mut *mut c_void,
) -> Outcome {
    let linker = find(state)?;
    require(!data.is_null() && size > 0)?;
    let bytes = core::slice::from_raw_parts(data.cast::<u8>(), size);
    let texts = match kind {
        CUjitInputType::CU_JIT_INPUT_PTX => {
            let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
            vec![String::from_utf8(text.to_vec()).map_err(|_| CUresult::CUDA_ERROR_INVALID_PTX)?]
        }
        CUjitInputType::CU_JIT_INPUT_FATBINARY => module::sources(data)?,
        CUjitInputType::CU_JIT_INPUT_LIBRARY if device_runtime::is_it(bytes) => vec![device_runtime::TEXT.to_string()],
        CUjitInputType::CU_JIT_INPUT_CUBIN
        | CUjitInputType::CU_JIT_INPUT_OBJECT
        | CUjitInputType::CU_JIT_INPUT_LIBRARY => {
            let words = "machine code and libraries of it: only PTX can be linked\n".to_string();
            return linker.options.refuse((CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU, words));
        }
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    };
    for text in &texts {
        let refused = match kind {
            CUjitInputType::CU_JIT_INPUT_PTX => module::check_part(text),
            _ => module::parse(text).map(drop),
        };
        if let Err(refusal) = refused {
            return linker.options.refuse(refusal);
        }
    }
    linker.texts.lock().expect("no panic while it is held").extend(linker.options.apply(texts));
    Ok(())
}

pub(crate) unsafe fn cuLinkAddFile_v2(
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Outcome {
    let mut image = super::module::file_image(path)?;
    cuLinkAddData_v2(state, kind, image.as_mut_ptr().cast(), image.len(), core::ptr::null(), count, options, values)
}

pub(crate) unsafe fn cuLinkComplete(state: CUlinkState, image: *mut *mut c_void, size: *mut usize) -> Outcome {
    let linker = find(state)?;
    let texts = linker.texts.lock().expect("no panic while it is held");
    // What could not be loaded is not handed out.
    linker.options.report(module::Module::link(&texts))?.unload();
    let mut linked = detshare_ptx::fatbin::link(&texts);
    give(image, linked.as_mut_ptr().cast())?;
    give_if_asked(size, linked.len());
    *linker.image.lock().expect("no panic while it is held") = Some(linked);
    Ok(())
}

pub(crate) unsafe fn cuLinkDestroy(state: CUlinkState) -> Outcome {
    LINKERS.remove(state.0.addr()).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}

pub(crate) unsafe fn cuLinkCreate(
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
    created: *mut CUlinkState,
) -> Outcome {
    cuLinkCreate_v2(count, options, values, created)
}

pub(crate) unsafe fn cuLinkAddData(
    state: CUlinkState,
    kind: CUjitInputType,
    data: *mut c_void,
    size: usize,
    name: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Outcome {
    cuLinkAddData_v2(state, kind, data, size, name, count, options, values)
}

pub(crate) unsafe fn cuLinkAddFile(
    state: CUlinkState,
    kind: CUjitInputType,
    path: *const c_char,
    count: c_uint,
    options: *mut CUjit_option,
    values: *mut *mut c_void,
) -> Outcome {
    cuLinkAddFile_v2(state, kind, path, count, options, values)
}
