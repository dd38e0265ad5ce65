//! Calling the driver by name. Every call must succeed, and is counted.

use anyhow::{Context, Result, bail};
use core::sync::atomic::{AtomicU64, Ordering};
use detshare_cuda::entry::Entry;
use detshare_cuda::types::CUresult;
use detshare_cuda::{Driver, functions, result_name};
use std::sync::LazyLock;

/// How often each function was called.
static CALLS: LazyLock<Vec<AtomicU64>> = LazyLock::new(|| functions().iter().map(|_| AtomicU64::new(0)).collect());

/// The driver's function.
pub(crate) fn function<F: Copy>(driver: &Driver, entry: Entry<F>) -> Result<F> {
    CALLS[entry.index()].fetch_add(1, Ordering::Relaxed);
    driver.function(entry).with_context(|| format!("the driver has no {}", functions()[entry.index()].name))
}

/// The functions that were called, with how often.
pub(crate) fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    let counts = CALLS.iter().map(|count| count.load(Ordering::Relaxed));
    functions().iter().map(|function| function.name).zip(counts).filter(|(_, count)| *count > 0)
}

/// Stops unless the call succeeded.
pub(crate) fn judge(call: &str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    let name = result_name(code).map_or_else(|| "an unknown code".into(), |name| name.to_string_lossy().into_owned());
    bail!("{call} returned {name} ({})", code.0)
}

/// Calls a function of the driver and gives its code.
macro_rules! cu {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::call::function(&$driver, detshare_cuda::entry::$function)?;
        // SAFETY: arguments as the driver API's manual asks for; everything they point to is alive.
        unsafe { function($($argument),*) }
    }};
}

/// Calls a function of the driver that must succeed.
macro_rules! ok {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::call::judge(stringify!($function), cu!($driver, $function($($argument),*)))?
    };
}

/// Calls a function, or its variant in which NULL means the thread's own stream. It must succeed.
macro_rules! ok_on {
    ($driver:expr, $on:expr, $plain:ident | $variant:ident($($argument:expr),* $(,)?)) => {
        if $on.per_thread_variant {
            ok!($driver, $variant($($argument),*))
        } else {
            ok!($driver, $plain($($argument),*))
        }
    };
}
