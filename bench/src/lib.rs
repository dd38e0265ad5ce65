//! What the benchmarks share: calls of an opened driver that stop at an error, figures and what they were taken on.

pub mod figures;
pub mod machine;
pub mod program;

use anyhow::{Result, ensure};
use detshare_cuda::result_name;
use detshare_cuda::types::CUresult;

/// Stops at anything but success, by the name of the call.
pub fn ok(what: &str, result: CUresult) -> Result<()> {
    let name = result_name(result).unwrap_or(c"an unknown code").to_string_lossy();
    ensure!(result == CUresult::CUDA_SUCCESS, "{what} returned {name}");
    Ok(())
}

/// Calls a function of the driver by its name and stops at an error.
#[macro_export]
macro_rules! cu {
    ($driver:expr, $function:ident($($argument:expr),*)) => {{
        let function = $driver.function(detshare_cuda::entry::$function);
        let function = anyhow::Context::context(function, stringify!($function))?;
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are the program's own, a few lines away")]
        // SAFETY: arguments as the driver API's manual asks for, with everything they point to alive.
        let result = unsafe { function($($argument),*) };
        $crate::ok(stringify!($function), result)
    }};
}
