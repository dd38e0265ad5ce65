//! The versions of one module, compiled and loaded beside the original.

use super::cache::{KernelParts, Layout, Parts, VersionParts};
use super::source::of_device;
use super::{as_value, natural, versions};
use crate::call::is_ok;
use crate::kernel;
use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{
    CUdevice_attribute, CUdeviceptr_v2, CUfunction, CUfunction_attribute, CUjit_option, CUjitInputType, CUkernel,
    CUlibrary, CUlinkState, CUmodule, CUresult,
};
use detshare_ptx::block_level::{Limit, limit_registers};
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
    /// A thread's, of the original, the sliced and the preemptible version; 0 is unknown, or there is none.
    pub(super) registers: [u32; 3],
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

/// How many registers the versions may have, so that an SM holds as many of their blocks as of the original's. Asking may load
/// the originals.
pub(super) fn limits(parts: &Parts, owner: usize, is_library: bool) -> Vec<Limit> {
    use CUdevice_attribute as Attribute;
    /// Registers are given out in such portions, and no thread has more than [`MOST`].
    const PORTION: u32 = 8;
    const MOST: u32 = 255;
    // With so many an SM is full of threads.
    let registers = of_device(Attribute::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
    let threads = of_device(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR).max(1);
    let few = (registers / threads / PORTION * PORTION).min(MOST);
    let mut limits = Vec::new();
    for kernel in &parts.kernels {
        let versions = [&kernel.sliced, &kernel.preemptible].into_iter().filter_map(|version| version.as_ref().ok());
        let names: Vec<_> = versions.map(|version| version.name.clone()).collect();
        let count = if names.is_empty() { None } else { registers_of(owner, is_library, &kernel.name) };
        if let Some(count) = count {
            let most = count.next_multiple_of(PORTION).clamp(few, MOST);
            limits.extend(names.into_iter().map(|name| (name, most)));
        }
    }
    limits
}

/// What a thread of the original has.
fn registers_of(owner: usize, is_library: bool, kernel: &str) -> Option<u32> {
    let name = CString::new(kernel).ok()?;
    let handle = core::ptr::with_exposed_provenance_mut::<c_void>(owner);
    let mut function = CUfunction(null_mut());
    let code = if is_library {
        let mut kernel = CUkernel(null_mut());
        let code = cu!(cuLibraryGetKernel(&raw mut kernel, CUlibrary(handle.cast()), name.as_ptr()));
        function = CUfunction(kernel.0.cast());
        code
    } else {
        cu!(cuModuleGetFunction(&raw mut function, CUmodule(handle.cast()), name.as_ptr()))
    };
    if is_ok(code) { registers(function) } else { None }
}

fn registers(function: CUfunction) -> Option<u32> {
    let count = kernel::attribute(function, CUfunction_attribute::CU_FUNC_ATTRIBUTE_NUM_REGS).map(natural);
    count.filter(|count| *count != 0)
}

/// Machine code of the versions, which have no more registers than this if the compiler can do with them; or what it says.
pub(super) fn compile(source: &str, limits: &[Limit]) -> Result<Vec<u8>, String> {
    let limited = limit_registers(source, limits).ok().and_then(|source| compile_text(source).ok());
    limited.map_or_else(|| compile_text(source.to_string()), Ok)
}

fn compile_text(source: String) -> Result<Vec<u8>, String> {
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
        let kernels = parts.kernels.iter().map(|kernel| {
            let (sliced, preemptible) = (callable(&kernel.sliced), callable(&kernel.preemptible));
            let of = |version: &Callable| version.as_ref().ok().and_then(|it| registers(it.function)).unwrap_or(0);
            let has_any = sliced.is_ok() || preemptible.is_ok();
            let original = if has_any { registers_of(owner, is_library, &kernel.name) } else { None };
            KernelVersions {
                name: kernel.name.clone(),
                registers: [original.unwrap_or(0), of(&sliced), of(&preemptible)],
                layout: versions::interned(&kernel.layout),
                sliced,
                preemptible,
            }
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
        registers: [0; 3],
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
