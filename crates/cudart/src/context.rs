//! Which device a thread uses, and its context there.
//!
//! The runtime works in the primary context of a device, which is made at the first call that needs one. A context that
//! the program made current by the driver's own functions is used as it is.

use crate::boundary::Outcome;
use crate::driver::{driver, initialised};
use crate::types::cudaError_t;
use core::cell::Cell;
use core::ffi::{c_int, c_uint};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, Ordering};
use detshare_cuda::types::{CUcontext, CUdevice, CUdevice_v1};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A primary context that is held.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Primary(CUcontext);

// SAFETY: a handle, which any thread may use.
unsafe impl Send for Primary {}

/// The primary contexts that are held, by device.
static HELD: Mutex<BTreeMap<c_int, Primary>> = Mutex::new(BTreeMap::new());

/// Contexts that were reset: a thread that still has one of them needs a new one.
static RESET: Mutex<Vec<Primary>> = Mutex::new(Vec::new());

/// Few programs reset anything, and every call asks.
static ANY_RESET: AtomicBool = AtomicBool::new(false);

const FIRST: c_int = 0;

thread_local! {
    /// What `cudaSetDevice` said.
    static CHOSEN: Cell<Option<c_int>> = const { Cell::new(None) };
}

fn lock<T>(mutex: &'static Mutex<T>) -> MutexGuard<'static, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where this thread's context is not there yet, it is made. Nearly every function begins with this.
pub(crate) fn ready() -> Outcome {
    if has_context()? { Ok(()) } else { use_primary(CHOSEN.get().unwrap_or(FIRST)) }
}

/// Whether this thread has a context that can still be used.
fn has_context() -> Outcome<bool> {
    initialised()?;
    let mut current = CUcontext(null_mut());
    // SAFETY: a place for a handle.
    unsafe { driver!(cuCtxGetCurrent(&raw mut current)) }?;
    // Acquire: pairs with the release in `reset`, before which the context was put into the list.
    let is_reset = ANY_RESET.load(Ordering::Acquire) && lock(&RESET).contains(&Primary(current));
    Ok(!current.0.is_null() && !is_reset)
}

fn use_primary(device: c_int) -> Outcome {
    let context = primary(device)?;
    // SAFETY: a context that is held.
    unsafe { driver!(cuCtxSetCurrent(context)) }
}

/// The device's primary context.
pub(crate) fn primary(device: c_int) -> Outcome<CUcontext> {
    initialised()?;
    let mut held = lock(&HELD);
    if let Some(context) = held.get(&device) {
        return Ok(context.0);
    }
    let mut context = CUcontext(null_mut());
    // SAFETY: a place for a handle.
    unsafe { driver!(cuDevicePrimaryCtxRetain(&raw mut context, handle(device)?)) }?;
    held.insert(device, Primary(context));
    lock(&RESET).retain(|reset| *reset != Primary(context));
    Ok(context)
}

/// How many devices there are.
pub(crate) fn count() -> Outcome<c_int> {
    initialised()?;
    let mut count = 0;
    // SAFETY: a place for a number.
    unsafe { driver!(cuDeviceGetCount(&raw mut count)) }?;
    Ok(count)
}

/// The driver's handle of a device.
pub(crate) fn handle(device: c_int) -> Outcome<CUdevice> {
    if device < 0 || device >= count()? {
        return Err(cudaError_t::cudaErrorInvalidDevice);
    }
    let mut handle = CUdevice_v1(0);
    // SAFETY: a place for a handle.
    unsafe { driver!(cuDeviceGet(&raw mut handle, device)) }?;
    Ok(handle)
}

/// The device that this thread uses, whether or not it has a context there.
pub(crate) fn device() -> Outcome<c_int> {
    if !has_context()? {
        return Ok(CHOSEN.get().unwrap_or(FIRST));
    }
    let mut device = CUdevice_v1(0);
    // SAFETY: a place for a handle.
    unsafe { driver!(cuCtxGetDevice(&raw mut device)) }?;
    Ok(device.0)
}

/// From now on this thread uses that device.
pub(crate) fn choose(device: c_int) -> Outcome {
    handle(device)?;
    CHOSEN.set(Some(device));
    use_primary(device)
}

/// Flags of a device's primary context.
pub(crate) fn set_flags(device: c_int, flags: c_uint) -> Outcome {
    // SAFETY: numbers.
    unsafe { driver!(cuDevicePrimaryCtxSetFlags_v2(handle(device)?, flags)) }
}

/// Ends everything of this thread's device. The next call begins anew.
pub(crate) fn reset() -> Outcome {
    let device = device()?;
    CHOSEN.set(Some(device));
    // SAFETY: a device.
    unsafe { driver!(cuDevicePrimaryCtxReset_v2(handle(device)?)) }?;
    // SAFETY: no context any more.
    unsafe { driver!(cuCtxSetCurrent(CUcontext(null_mut()))) }?;
    if let Some(context) = lock(&HELD).remove(&device) {
        // SAFETY: a device; that it was reset already is no error of the program.
        let _ = unsafe { driver!(cuDevicePrimaryCtxRelease_v2(handle(device)?)) };
        lock(&RESET).push(context);
        ANY_RESET.store(true, Ordering::Release);
    }
    Ok(())
}
