//! The versions of one module, compiled and loaded beside the original.

use super::as_value;
use super::cache::{KernelParts, Layout, Parts, VersionParts};
use super::versions;
use crate::call::is_ok;
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{
    CUdeviceptr_v2, CUfunction, CUjit_option, CUjitInputType, CUlibrary, CUlinkState, CUmodule, CUresult,
};
use std::ffi::CString;

/// A rewritten module that is not loaded yet.
pub(super) struct Compiled {
    pub(super) parts: Parts,
    /// None if no kernel has a version.
    pub(super) image: Option<Vec<u8>>,
}

/// A version that can be launched, or why there is none.
pub(super) type Callable = Result<Launchable, String>;

/// A version that can be launched.
#[derive(Clone, Copy)]
pub(super) struct Launchable {
    pub(super) function: CUfunction,
    /// Where its extra parameter lies.
    pub(super) work_offset: u32,
    /// Whether the x dimension of a block has to be a multiple of a warp.
    pub(super) whole_rows: bool,
}

/// One kernel of a module that has its versions beside it.
pub(super) struct KernelVersions {
    pub(super) name: String,
    pub(super) layout: &'static Layout,
    pub(super) sliced: Callable,
    pub(super) preemptible: Callable,
}

pub(super) struct Loaded {
    pub(super) module: Option<CUmodule>,
    pub(super) kernels: Vec<KernelVersions>,
}

// SAFETY: handles of the driver, which any thread may use; never changed once it is made.
unsafe impl Sync for Loaded {}
// SAFETY: as above.
unsafe impl Send for Loaded {}

/// Machine code, or what the compiler says.
pub(super) fn compile(source: &str) -> Result<Vec<u8>, String> {
    const LOG: usize = 2048;
    let source = CString::new(source).map_err(|_| "its versions have a zero in their text".to_string())?;
    let mut words = vec![0_u8; LOG];
    let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [words.as_mut_ptr().cast::<c_void>(), as_value(LOG)];
    let mut state = CUlinkState(null_mut());
    let mut code = cu!(cuLinkCreate_v2(2, options.as_mut_ptr(), values.as_mut_ptr(), &raw mut state));
    if !is_ok(code) {
        return Err(format!("the driver has no compiler: error {}", code.0));
    }
    let bytes = source.as_bytes_with_nul();
    let (text, none) = (bytes.as_ptr().cast_mut().cast::<c_void>(), null_mut());
    let kind = CUjitInputType::CU_JIT_INPUT_PTX;
    code = cu!(cuLinkAddData_v2(state, kind, text, bytes.len(), c"versions".as_ptr(), 0, none, null_mut()));
    let (mut image, mut size) = (null_mut(), 0);
    if is_ok(code) {
        code = cu!(cuLinkComplete(state, &raw mut image, &raw mut size));
    }
    let made = if is_ok(code) && !image.is_null() {
        // SAFETY: the driver's image, of that size, until the linker goes.
        Ok(unsafe { core::slice::from_raw_parts(image.cast::<u8>(), size) }.to_vec())
    } else {
        Err(code)
    };
    cu!(cuLinkDestroy(state));
    made.map_err(|code: CUresult| {
        let said = String::from_utf8_lossy(words.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        let line = said.lines().next().unwrap_or_default();
        format!("its versions do not compile: error {} {line}", code.0)
    })
}

impl Loaded {
    /// In the current context.
    pub(super) fn new(compiled: &Compiled, owner: usize, is_library: bool) -> Result<Self, String> {
        let Compiled { parts, image } = compiled;
        let failed = |what: &str, code: CUresult| format!("{what}: error {}", code.0);
        let Some(image) = image else {
            return Ok(Self { module: None, kernels: parts.kernels.iter().map(without).collect() });
        };
        let mut module = CUmodule(null_mut());
        let code = cu!(cuModuleLoadData(&raw mut module, image.as_ptr().cast()));
        if !is_ok(code) {
            return Err(failed("its versions cannot be loaded", code));
        }
        let lent =
            parts.borrowed.iter().try_for_each(|(variable, slot)| lend(owner, is_library, module, variable, slot));
        if let Err(code) = lent {
            cu!(cuModuleUnload(module));
            return Err(failed("its variables cannot be shared", code));
        }
        let callable = |version: &Result<VersionParts, String>| {
            let VersionParts { name, work_offset, whole_rows } = version.as_ref().map_err(String::clone)?;
            let mut function = CUfunction(null_mut());
            let name = CString::new(name.as_str()).map_err(|_| "a name with a zero".to_string())?;
            let code = cu!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
            if !is_ok(code) {
                return Err(failed("it is not in its module", code));
            }
            // Now, and not at the first launch. Older drivers have no such function, and load everything at once.
            cu!(cuFuncLoad(function));
            Ok(Launchable { function, work_offset: *work_offset, whole_rows: *whole_rows })
        };
        let kernels = parts.kernels.iter().map(|kernel| KernelVersions {
            name: kernel.name.clone(),
            layout: versions::interned(&kernel.layout),
            sliced: callable(&kernel.sliced),
            preemptible: callable(&kernel.preemptible),
        });
        Ok(Self { kernels: kernels.collect(), module: Some(module) })
    }
}

/// A kernel of a module that has no versions at all.
fn without(kernel: &KernelParts) -> KernelVersions {
    let reason = |version: &Result<VersionParts, String>| match version {
        Ok(_) => Err("it was not compiled".to_string()),
        Err(reason) => Err(reason.clone()),
    };
    KernelVersions {
        name: kernel.name.clone(),
        layout: versions::interned(&kernel.layout),
        sliced: reason(&kernel.sliced),
        preemptible: reason(&kernel.preemptible),
    }
}

/// Tells the versions where a variable of the original lies.
fn lend(owner: usize, is_library: bool, module: CUmodule, variable: &str, slot: &str) -> Result<(), CUresult> {
    let name = |text: &str| CString::new(text).map_err(|_| CUresult::CUDA_ERROR_NOT_FOUND);
    let (variable, slot) = (name(variable)?, name(slot)?);
    let (mut address, mut place, mut size) = (CUdeviceptr_v2(0), CUdeviceptr_v2(0), 0);
    let handle = core::ptr::with_exposed_provenance_mut::<c_void>(owner);
    let text: *const c_char = variable.as_ptr();
    check(if is_library {
        cu!(cuLibraryGetGlobal(&raw mut address, &raw mut size, CUlibrary(handle.cast()), text))
    } else {
        cu!(cuModuleGetGlobal_v2(&raw mut address, &raw mut size, CUmodule(handle.cast()), text))
    })?;
    check(cu!(cuModuleGetGlobal_v2(&raw mut place, &raw mut size, module, slot.as_ptr())))?;
    check(cu!(cuMemcpyHtoD_v2(place, (&raw const address.0).cast(), size_of::<u64>())))
}

fn check(code: CUresult) -> Result<(), CUresult> {
    if is_ok(code) { Ok(()) } else { Err(code) }
}
