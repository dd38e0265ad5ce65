//! Keeps the opening of the driver and a fork apart.
//!
//! A child that is forked while another thread is inside the loader inherits a loader in the middle of its
//! work, and opening the driver there ends the process. So a fork waits until the driver is open. Once it is, calls
//! do not come near this lock.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};

/// One thread may take it again: opening a driver can call back into the library, or fork.
struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: made to be shared between threads.
unsafe impl Sync for Mutex {}

static OPENING: Mutex = Mutex(UnsafeCell::new(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP));

/// Held while the driver is opened.
pub(crate) struct Held(());

/// Waits until no other thread is opening the driver, and no fork is under way.
pub(crate) fn begin() -> Held {
    lock();
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        unlock();
    }
}

extern "C" fn lock() {
    // SAFETY: an initialised mutex. A recursive one fails only after 2^32 rounds.
    unsafe { libc::pthread_mutex_lock(OPENING.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: an initialised mutex; where this thread does not hold it, nothing happens.
    unsafe { libc::pthread_mutex_unlock(OPENING.0.get()) };
}

/// In the child its only thread is another one for the mutex than the one that took it, so it starts anew.
extern "C" fn renew_in_child() {
    crate::coroutine::deactivate();
    crate::tenant::forked();
    crate::digest::forked();
    crate::record::forked();
    crate::quota::renew_in_child();
    // SAFETY: the child has one thread, which is here.
    unsafe { OPENING.0.get().write(libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP) };
}

unsafe extern "C" {
    /// What `pthread_atfork` calls; by this name it is in every glibc's libc.so itself.
    fn __register_atfork(
        prepare: extern "C" fn(),
        parent: extern "C" fn(),
        child: extern "C" fn(),
        library: *mut c_void,
    ) -> c_int;
}

/// Has every fork of the process wait for the opening. The library is never unloaded, so this is for good.
pub(crate) fn watch_forks() {
    // SAFETY: functions that only touch the mutex, and no library to forget them with.
    unsafe { __register_atfork(lock, unlock, renew_in_child, core::ptr::null_mut()) };
}
