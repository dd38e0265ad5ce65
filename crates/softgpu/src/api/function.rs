//! What is known of a kernel.

use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::device;
use crate::module::{self, Function};
use core::ffi::{c_char, c_int};
use detshare_cuda::types::{
    CUfunc_cache, CUfunction, CUfunction_attribute as Attribute, CUfunctionLoadingState, CUmodule, CUresult,
    CUsharedconfig,
};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{LazyLock, Mutex};

pub(crate) unsafe fn cuFuncGetAttribute(value: *mut c_int, attribute: Attribute, function: CUfunction) -> Outcome {
    attribute_of(&*module::find_function(function)?, value, attribute)
}

/// What is known of it.
pub(super) unsafe fn attribute_of(function: &Function, value: *mut c_int, attribute: Attribute) -> Outcome {
    let set = *function.attributes.lock().expect("no panic while it is held");
    give(value, set.value(&function.kernel.properties, attribute).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?)
}

fn cluster_axis(attribute: Attribute) -> usize {
    match attribute {
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH => 0,
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT => 1,
        _ => 2,
    }
}

pub(crate) unsafe fn cuFuncSetAttribute(function: CUfunction, attribute: Attribute, value: c_int) -> Outcome {
    set_attribute(&*module::find_function(function)?, attribute, value)
}

pub(super) fn set_attribute(function: &Function, attribute: Attribute, value: c_int) -> Outcome {
    let mut set = function.attributes.lock().expect("no panic while it is held");
    match attribute {
        Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES => {
            let most = device::SHARED_PER_BLOCK_OPTIN.saturating_sub(function.kernel.properties.shared_bytes);
            require(u32::try_from(value).is_ok_and(|value| value <= most))?;
            set.most_dynamic_shared = value;
        }
        Attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT => {
            require((-1..=100).contains(&value))?;
            set.carveout = value;
        }
        Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED => {
            require((0..=1).contains(&value))?;
            set.large_clusters = value != 0;
        }
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH
        | Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT
        | Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH => {
            // What the compiler was told stays.
            require(value >= 0 && function.kernel.properties.required_cluster.is_none())?;
            set.cluster[cluster_axis(attribute)] = value;
        }
        Attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE => {}
        _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    Ok(())
}

pub(crate) unsafe fn cuFuncSetCacheConfig(function: CUfunction, _config: CUfunc_cache) -> Outcome {
    module::find_function(function).map(|_| ())
}

pub(crate) unsafe fn cuFuncSetSharedMemConfig(function: CUfunction, _config: CUsharedconfig) -> Outcome {
    module::find_function(function).map(|_| ())
}

pub(crate) unsafe fn cuFuncGetModule(module: *mut CUmodule, function: CUfunction) -> Outcome {
    give(module, CUmodule(as_pointer(module::find_function(function)?.module)))
}

/// Names as the program can keep them: for ever.
pub(super) fn lasting_name(function: &Function) -> *const c_char {
    static NAMES: LazyLock<Mutex<HashMap<usize, CString>>> = LazyLock::new(Mutex::default);
    let mut names = NAMES.lock().expect("no panic while it is held");
    let name = || CString::new(function.kernel.properties.name.as_str()).unwrap_or_default();
    names.entry(function.handle).or_insert_with(name).as_ptr()
}

pub(crate) unsafe fn cuFuncGetName(name: *mut *const c_char, function: CUfunction) -> Outcome {
    let function = module::find_function(function)?;
    give(name, lasting_name(&function))
}

pub(crate) unsafe fn cuFuncGetParamInfo(
    function: CUfunction,
    index: usize,
    offset: *mut usize,
    size: *mut usize,
) -> Outcome {
    parameter(&*module::find_function(function)?, index, offset, size)
}

/// Where one of its parameters lies.
pub(super) unsafe fn parameter(function: &Function, index: usize, offset: *mut usize, size: *mut usize) -> Outcome {
    require(!offset.is_null())?;
    let parameter = function.kernel.properties.parameters.get(index).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    give(offset, parameter.offset)?;
    give_if_asked(size, parameter.size);
    Ok(())
}

pub(crate) unsafe fn cuFuncIsLoaded(state: *mut CUfunctionLoadingState, function: CUfunction) -> Outcome {
    module::find_function(function)?;
    give(state, CUfunctionLoadingState::CU_FUNCTION_LOADING_STATE_LOADED)
}

pub(crate) unsafe fn cuFuncLoad(function: CUfunction) -> Outcome {
    module::find_function(function).map(|_| ())
}
