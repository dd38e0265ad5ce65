//! The driver's functions. Whatever `libcuda.so.1` the loader finds is the driver: the shim, the software GPU, or NVIDIA's.

use crate::boundary::Outcome;
use crate::types::cudaError_t;
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use detshare_cuda::driver::as_function;
use detshare_cuda::entry::{Entry, cuInit};
use detshare_cuda::functions;
use detshare_cuda::types::CUresult;
use std::ffi::CString;
use std::sync::OnceLock;

/// More than the table of functions has.
const MOST_FUNCTIONS: usize = 1024;

/// NULL until a function is first called.
static ADDRESSES: [AtomicPtr<c_void>; MOST_FUNCTIONS] = [const { AtomicPtr::new(null_mut()) }; MOST_FUNCTIONS];

/// The library's handle.
struct Library(*mut c_void);

// SAFETY: a handle of the loader, which any thread may use.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

fn library() -> Outcome<*mut c_void> {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let open = || {
        // SAFETY: a terminated name; a driver's constructors are written to be run by the loader.
        Library(unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NODELETE) })
    };
    let handle = LIBRARY.get_or_init(open).0;
    if handle.is_null() { Err(cudaError_t::cudaErrorInsufficientDriver) } else { Ok(handle) }
}

/// The function, if the driver has it.
pub(crate) fn function<F: Copy>(entry: Entry<F>) -> Outcome<F> {
    let slot = &ADDRESSES[entry.index()];
    // Relaxed: the loader has put the function there before it hands out the address, in whichever thread.
    let mut address = slot.load(Ordering::Relaxed);
    if address.is_null() {
        let name = CString::new(functions()[entry.index()].name).map_err(|_| cudaError_t::cudaErrorSymbolNotFound)?;
        // SAFETY: an open handle and a terminated name.
        address = unsafe { libc::dlsym(library()?, name.as_ptr()) };
        if address.is_null() {
            return Err(cudaError_t::cudaErrorNotSupported);
        }
        slot.store(address, Ordering::Relaxed);
    }
    // SAFETY: the function that is exported under the entry's name.
    Ok(unsafe { as_function(entry, address) })
}

/// The runtime's numbers of the errors that both have are the driver's.
pub(crate) fn ok(result: CUresult) -> Outcome {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(cudaError_t(result.0)) }
}

/// Initialises the driver, once.
pub(crate) fn initialised() -> Outcome {
    static RESULT: OnceLock<Outcome> = OnceLock::new();
    // SAFETY: it takes no flags, and may be called at any time.
    *RESULT.get_or_init(|| ok(unsafe { function(cuInit)?(0) }))
}

/// Calls a function of the driver by its exported name.
macro_rules! driver {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::ok($crate::driver::function(detshare_cuda::entry::$name)?($($argument),*))
    };
}
pub(crate) use driver;

/// Calls a function of the driver that works on the default stream without taking one, in the variant of that stream.
macro_rules! synchronous {
    ($default:expr, $legacy:ident | $per_thread:ident($($argument:expr),* $(,)?)) => {
        if $default == $crate::boundary::PER_THREAD {
            $crate::driver::driver!($per_thread($($argument),*))
        } else {
            $crate::driver::driver!($legacy($($argument),*))
        }
    };
}
pub(crate) use synchronous;
