//! What nvcc's generated code says before `main`: which kernels and variables the program has, and in which fat binary.
//! A fat binary goes to the driver when the first of its kernels or variables is used.

use crate::boundary::Outcome;
use crate::context;
use crate::driver::{driver, function, ok};
use crate::types::{cudaError_t, cudaKernel_t};
use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr::{null, null_mut};
use detshare_cuda::entry::{cuLibraryGetGlobal, cuLibraryGetManaged};
use detshare_cuda::types::{CUdeviceptr, CUdeviceptr_v2, CUjitInputType, CUkernel, CUlibrary, CUlinkState};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// What nvcc puts in front of a fat binary.
#[repr(C)]
pub(crate) struct Wrapper {
    magic: c_int,
    version: c_int,
    image: *const c_void,
    /// With separate compilation: the fat binaries that are to be linked, up to NULL.
    parts: *const *const c_void,
}

const MAGIC: c_int = 0x4662_43b1;
/// Several fat binaries, to be linked.
const IN_PARTS: c_int = 2;

/// The number of a registered fat binary; its handle is the number made a pointer.
pub(crate) type Number = usize;

struct Binary {
    wrapper: *const Wrapper,
    library: Option<CUlibrary>,
}

struct Kernel {
    binary: Number,
    name: CString,
    handle: Option<CUkernel>,
}

#[derive(Clone)]
struct Variable {
    binary: Number,
    name: CString,
    is_managed: bool,
}

/// Everything that is registered, by the addresses that stand for it in the program.
#[derive(Default)]
struct Registry {
    binaries: HashMap<Number, Binary>,
    registered: Number,
    kernels: HashMap<usize, Kernel>,
    variables: HashMap<usize, Variable>,
    /// Which of the program's functions a kernel's handle belongs to.
    functions: HashMap<usize, usize>,
}

// SAFETY: handles, and addresses of the program's constant data.
unsafe impl Send for Registry {}

/// Never destroyed: exit handlers still launch.
static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add_binary(wrapper: *const c_void) -> Number {
    let mut all = registry();
    all.registered += 1;
    let number = all.registered;
    all.binaries.insert(number, Binary { wrapper: wrapper.cast(), library: None });
    number
}

pub(crate) fn add_kernel(binary: Number, function: *const c_void, name: &CStr) {
    registry().kernels.insert(function.addr(), Kernel { binary, name: name.to_owned(), handle: None });
}

pub(crate) fn add_variable(binary: Number, variable: *const c_void, name: &CStr, is_managed: bool) {
    registry().variables.insert(variable.addr(), Variable { binary, name: name.to_owned(), is_managed });
}

/// Forgets a fat binary, whose library is about to go, or the whole process.
pub(crate) fn remove_binary(number: Number) {
    let mut all = registry();
    let removed = all.binaries.remove(&number).and_then(|binary| binary.library);
    let Registry { kernels, functions, .. } = &mut *all;
    for kernel in kernels.values().filter(|kernel| kernel.binary == number) {
        kernel.handle.and_then(|handle| functions.remove(&handle.0.addr()));
    }
    kernels.retain(|_, kernel| kernel.binary != number);
    all.variables.retain(|_, variable| variable.binary != number);
    drop(all);
    if let Some(library) = removed {
        // A driver that has ended already holds nothing any more.
        let unload = || {
            // SAFETY: loaded here, and forgotten by now.
            unsafe { driver!(cuLibraryUnload(library)) }
        };
        let _ = unload();
    }
}

/// The kernel that a function of the program stands for. A kernel's own handle is taken as it is.
pub(crate) fn kernel(function: *const c_void) -> Outcome<CUkernel> {
    context::ready()?;
    let mut all = registry();
    let address = function.addr();
    if all.functions.contains_key(&address) {
        return Ok(CUkernel(function.cast_mut().cast()));
    }
    let Some(Kernel { binary, name, handle }) = all.kernels.get(&address) else {
        return Err(cudaError_t::cudaErrorInvalidDeviceFunction);
    };
    if let Some(handle) = handle {
        return Ok(*handle);
    }
    let (number, name) = (*binary, name.clone());
    let library = all.library(number)?;
    let mut found = CUkernel(null_mut());
    // SAFETY: a loaded library and a terminated name.
    let result = unsafe { driver!(cuLibraryGetKernel(&raw mut found, library, name.as_ptr())) };
    result.map_err(|error| not_found_as(error, cudaError_t::cudaErrorInvalidDeviceFunction))?;
    all.functions.insert(found.0.addr(), address);
    if let Some(kernel) = all.kernels.get_mut(&address) {
        kernel.handle = Some(found);
    }
    Ok(found)
}

/// A kernel of a library that the program loaded itself: its handle stands for it.
pub(crate) fn add_handle(kernel: CUkernel) {
    let handle = kernel.0.expose_provenance();
    registry().functions.insert(handle, handle);
}

/// The function of the program that stands for a kernel, or the kernel's handle where none does.
pub(crate) fn function_of(kernel: cudaKernel_t) -> *mut c_void {
    let function = registry().functions.get(&kernel.0.addr()).copied();
    function.map_or(kernel.0.cast(), core::ptr::with_exposed_provenance_mut)
}

/// Address and size of the variable that a variable of the program stands for, in this thread's context.
pub(crate) fn variable(variable: *const c_void) -> Outcome<(CUdeviceptr, usize)> {
    context::ready()?;
    let mut all = registry();
    let known = all.variables.get(&variable.addr()).or_else(|| all.managed_at(variable)).cloned();
    all.find(&known.ok_or(cudaError_t::cudaErrorInvalidSymbol)?)
}

/// The addresses of a fat binary's managed variables, each with where the program keeps it.
pub(crate) fn managed_variables(number: Number) -> Outcome<Vec<(*mut *mut c_void, CUdeviceptr)>> {
    context::ready()?;
    let mut all = registry();
    let managed = all.variables.iter().filter(|(_, variable)| variable.is_managed && variable.binary == number);
    let managed: Vec<_> = managed.map(|(place, variable)| (*place, variable.clone())).collect();
    let found = managed.into_iter().map(|(place, variable)| {
        let (address, _) = all.find(&variable)?;
        Ok((core::ptr::with_exposed_provenance_mut(place), address))
    });
    found.collect()
}

fn not_found_as(error: cudaError_t, instead: cudaError_t) -> cudaError_t {
    if error == cudaError_t::cudaErrorSymbolNotFound { instead } else { error }
}

impl Registry {
    /// In the program's text a managed variable is what its address leads to, and so it is named by that address.
    fn managed_at(&self, address: *const c_void) -> Option<&Variable> {
        let leads_there = |place: usize| {
            let place = core::ptr::with_exposed_provenance::<*const c_void>(place);
            // SAFETY: where the program keeps the address, registered as such.
            unsafe { *place == address }
        };
        let managed = self.variables.iter().filter(|(_, variable)| variable.is_managed);
        managed.into_iter().find(|(place, _)| leads_there(**place)).map(|(_, variable)| variable)
    }

    fn find(&mut self, variable: &Variable) -> Outcome<(CUdeviceptr, usize)> {
        let library = self.library(variable.binary)?;
        let (mut address, mut size) = (CUdeviceptr_v2(0), 0);
        let name = variable.name.as_ptr();
        let get = if variable.is_managed { function(cuLibraryGetManaged)? } else { function(cuLibraryGetGlobal)? };
        // SAFETY: a loaded library, a terminated name, and places for the results.
        let result = ok(unsafe { get(&raw mut address, &raw mut size, library, name) });
        result.map_err(|error| not_found_as(error, cudaError_t::cudaErrorInvalidSymbol))?;
        Ok((address, size))
    }

    /// The fat binary's library, loaded at its first use.
    fn library(&mut self, number: Number) -> Outcome<CUlibrary> {
        let binary = self.binaries.get_mut(&number).ok_or(cudaError_t::cudaErrorInvalidKernelImage)?;
        if let Some(library) = binary.library {
            return Ok(library);
        }
        // SAFETY: what nvcc's code registered lies in the program's constant data until it is removed.
        let wrapper = unsafe { &*binary.wrapper };
        // SAFETY: nvcc's.
        let library = unsafe { load(wrapper) }?;
        binary.library = Some(library);
        Ok(library)
    }
}

/// # Safety
/// The wrapper is nvcc's.
unsafe fn load(wrapper: &Wrapper) -> Outcome<CUlibrary> {
    if wrapper.magic != MAGIC {
        return Err(cudaError_t::cudaErrorInvalidKernelImage);
    }
    if wrapper.version == IN_PARTS && !wrapper.parts.is_null() {
        // SAFETY: as many parts as there are before NULL.
        return unsafe { link(wrapper.image, wrapper.parts) };
    }
    // SAFETY: a fat binary.
    unsafe { load_image(wrapper.image) }
}

/// # Safety
/// An image that the driver can read to its end.
unsafe fn load_image(image: *const c_void) -> Outcome<CUlibrary> {
    let mut library = CUlibrary(null_mut());
    // SAFETY: the caller's image, and no options.
    unsafe {
        driver!(cuLibraryLoadData(&raw mut library, image, null_mut(), null_mut(), 0, null_mut(), null_mut(), 0))
    }?;
    Ok(library)
}

/// Separate compilation: the parts are linked now, since only PTX is in them.
///
/// # Safety
/// `linked` is what nvcc's linker made, and `parts` are fat binaries up to NULL.
unsafe fn link(linked: *const c_void, parts: *const *const c_void) -> Outcome<CUlibrary> {
    let place = |index| parts.wrapping_add(index);
    // SAFETY: none behind NULL is looked at.
    let parts = (0..).map(|index| unsafe { *place(index) }).take_while(|part| !part.is_null());
    let parts: Vec<_> = parts.collect();
    // SAFETY: what nvcc's linker made; without machine code it had nothing to link.
    if unsafe { size_of_fat_binary(linked) } > size_of::<Header>() {
        // SAFETY: as above.
        return unsafe { load_image(linked) };
    }
    let mut state = CUlinkState(null_mut());
    // SAFETY: no options, and a place for the handle.
    unsafe { driver!(cuLinkCreate_v2(0, null_mut(), null_mut(), &raw mut state)) }?;
    let link = || {
        for part in parts {
            // SAFETY: a fat binary, whose size stands in itself.
            match unsafe { add_part(state, part) } {
                // nvcc adds a library of the device's own to all programs. Whoever does need it misses its functions.
                Err(cudaError_t::cudaErrorNoKernelImageForDevice) => {}
                added => added?,
            }
        }
        let (mut image, mut size) = (null_mut(), 0);
        // SAFETY: an open linker, and places for the results.
        unsafe { driver!(cuLinkComplete(state, &raw mut image, &raw mut size)) }?;
        // SAFETY: what was linked, which is there until the linker is destroyed.
        unsafe { load_image(image) }
    };
    let library = link();
    // SAFETY: made above.
    let destroyed = unsafe { driver!(cuLinkDestroy(state)) };
    library.and_then(|library| destroyed.map(|()| library))
}

/// What a fat binary begins with.
#[repr(C)]
struct Header {
    magic: c_uint,
    version: u16,
    header_size: u16,
    size: u64,
}

/// # Safety
/// `image` is a fat binary.
unsafe fn size_of_fat_binary(image: *const c_void) -> usize {
    // SAFETY: the caller's promise.
    let header = unsafe { &*image.cast::<Header>() };
    usize::from(header.header_size) + usize::try_from(header.size).unwrap_or(0)
}

/// # Safety
/// `part` is a fat binary.
unsafe fn add_part(state: CUlinkState, part: *const c_void) -> Outcome {
    // SAFETY: the caller's promise.
    let size = unsafe { size_of_fat_binary(part) };
    let (kind, data) = (CUjitInputType::CU_JIT_INPUT_FATBINARY, part.cast_mut());
    // SAFETY: as many bytes as the header says, and no options.
    unsafe { driver!(cuLinkAddData_v2(state, kind, data, size, null(), 0, null_mut(), null_mut())) }
}
