//! Opens the real driver at the first call and says where calls go.
//!
//! Threads that come at the same time wait for the first. Whoever comes fills the slots: with the same values,
//! so it does not matter who, or how often.

use crate::boundary::guarded;
use crate::published::Published;
use crate::{entries, log, no_driver, opening, settings};
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use detshare_cuda::driver::{self, Driver, DriverError, Search, Visibility};
use detshare_cuda::entry;
use detshare_cuda::types::CUresult;

static OPENED: Published<Result<Driver, DriverError>> = Published::nothing();

/// The driver, or why there is none; None as long as no call came.
pub(crate) fn opened() -> Option<&'static Result<Driver, DriverError>> {
    OPENED.get()
}

/// Where the call of the function with that index goes. Called by the slots' first occupants.
pub(crate) extern "C" fn target(index: u32) -> *mut c_void {
    let refusal = no_driver::refuse as *mut c_void;
    guarded(refusal, || {
        let opened = OPENED.get().unwrap_or_else(|| {
            let _held = opening::begin();
            let opened = OPENED.get_or_make(open);
            crate::digest::driver_is_open();
            opened
        });
        for (index, slot) in entries::SLOTS.iter().enumerate() {
            // Pairs with the acquire in `entries::real`; a jump through the slot needs no more on x86-64.
            slot.store(destination(opened, index), Ordering::Release);
        }
        destination(opened, index as usize)
    })
}

fn open() -> Result<Driver, DriverError> {
    let settings = settings::get();
    let search = Search { named: settings.driver.clone(), library_path: settings.library_path.clone() };
    let opened = driver::find(&search).and_then(|path| Driver::open(&path, visibility()));
    driver::forget_loader_errors();
    match &opened {
        Ok(driver) => log::line(format_args!("driver {} version {}", driver.path().display(), driver.version())),
        Err(error) => log::line(format_args!("{error}")),
    }
    opened
}

/// A program that was linked against a function which the table lacks finds it in the real driver, if that is
/// visible; ours come first all the same, being visible already.
fn visibility() -> Visibility {
    // Not RTLD_DEFAULT: asked from here that finds this library even where nobody else sees it.
    // SAFETY: no name is the program itself, which is open already.
    let program = unsafe { libc::dlopen(core::ptr::null(), libc::RTLD_LAZY) };
    // SAFETY: an open handle and a terminated name.
    let visible = unsafe { libc::dlsym(program, c"cuInit".as_ptr()) };
    if visible == entries::own_entry(entry::cuInit.index()) { Visibility::Global } else { Visibility::Local }
}

/// The real function; where the driver lacks it or there is no driver, one that says so.
fn destination(opened: &Result<Driver, DriverError>, index: usize) -> *mut c_void {
    match opened {
        Err(_) => no_driver::answer(index),
        Ok(driver) => {
            let address = driver.address(index);
            if address.is_null() { requires_newer_driver as *mut c_void } else { address }
        }
    }
}

/// Takes the place of a function that the driver lacks.
extern "C" fn requires_newer_driver() -> CUresult {
    CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
}
