//! Where a program's call enters: initialised or not, codes out, panics kept in, and the log.

use crate::system;
use core::fmt::Arguments;
use core::sync::atomic::{AtomicBool, Ordering};
use detshare_cuda::types::CUresult;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Once, OnceLock};

/// What a function of the driver comes to.
pub(crate) type Outcome<T = ()> = Result<T, CUresult>;

static INITIALISED: AtomicBool = AtomicBool::new(false);

/// These work before `cuInit`.
const BEFORE_INIT: [&str; 7] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGetProcAddress",
    "cuGetProcAddress_v2",
    "cuGetExportTable",
];

/// A child that was forked after the driver was initialised has the memory of its parent and none of its threads: it
/// cannot use the driver, as on a GPU.
static FORKED: AtomicBool = AtomicBool::new(false);

pub(crate) fn initialise() -> Outcome {
    static WATCHES_FORKS: Once = Once::new();
    if FORKED.load(Ordering::Acquire) {
        return Err(CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    WATCHES_FORKS.call_once(|| {
        // SAFETY: a function that may run in a child: it only writes two words.
        unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    });
    INITIALISED.store(true, Ordering::Release);
    Ok(())
}

extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::Release);
    INITIALISED.store(false, Ordering::Release);
}

/// Runs one function of the driver for a program.
pub(crate) fn call(name: &'static str, body: impl FnOnce() -> Outcome) -> CUresult {
    if !INITIALISED.load(Ordering::Acquire) && !BEFORE_INIT.contains(&name) {
        return CUresult::CUDA_ERROR_NOT_INITIALIZED;
    }
    if crate::engine::in_host_function() && !BEFORE_INIT.contains(&name) {
        return CUresult::CUDA_ERROR_NOT_PERMITTED;
    }
    system::flush_before(name);
    let outcome = catch_unwind(AssertUnwindSafe(body));
    system::flush_after(name);
    match outcome {
        Ok(Ok(())) => CUresult::CUDA_SUCCESS,
        Ok(Err(code)) => code,
        Err(_) => {
            log(format_args!("internal error in {name}"));
            CUresult::CUDA_ERROR_UNKNOWN
        }
    }
}

/// What a function returns that is not there.
pub(crate) fn not_supported(name: &'static str) -> CUresult {
    let reason = crate::unsupported::reason(name).unwrap_or_default();
    log(format_args!("{name} is not supported. {reason}"));
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

/// One line on standard error, if `DETSHARE_LOG` is set.
pub(crate) fn log(text: Arguments<'_>) {
    static ASKED: OnceLock<bool> = OnceLock::new();
    let asked =
        ASKED.get_or_init(|| std::env::var_os("DETSHARE_LOG").is_some_and(|value| !value.is_empty() && value != "0"));
    if *asked {
        tell(text);
    }
}

/// One line on standard error, whoever asked: what a person has to know who looks for a mistake in a program.
pub(crate) fn tell(text: Arguments<'_>) {
    let line = format!("detshare-softgpu[{}]: {text}\n", std::process::id());
    // A closed standard error is not the program's problem.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Writes a result where the program wants it.
///
/// # Safety
/// `place` is NULL or can be written.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) -> Outcome {
    if place.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: not NULL, and the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a result if the program wants it.
///
/// # Safety
/// `place` is NULL or can be written.
pub(crate) unsafe fn give_if_asked<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: not NULL, and the caller's promise.
        unsafe { place.write(value) };
    }
}
