//! Calling the driver by name.

use anyhow::{Result, anyhow};
use detshare_cuda::entry::Entry;
use detshare_cuda::types::CUresult;
use detshare_cuda::{Driver, functions, result_name};
use std::fmt;

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) call: String,
    pub(crate) code: CUresult,
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} returned {} ({})", self.call, code_name(self.code), self.code.0)
    }
}

impl std::error::Error for Refused {}

pub(crate) fn code_name(code: CUresult) -> String {
    result_name(code).map_or_else(|| "an unknown code".into(), |name| name.to_string_lossy().into_owned())
}

pub(crate) fn function<F: Copy>(driver: &Driver, entry: Entry<F>) -> Result<F> {
    driver.function(entry).ok_or_else(|| anyhow!("the driver has no {}", functions()[entry.index()].name))
}

/// That the call succeeded.
pub(crate) fn succeeded(call: &str, code: CUresult) -> Result<()> {
    if code == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(Refused { call: call.into(), code }.into()) }
}

/// Calls a function of the driver that must succeed; [`Refused`] is the error otherwise.
macro_rules! ok {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::call::function($driver, detshare_cuda::entry::$function)?;
        // SAFETY: arguments as the driver API's manual asks for; everything they point to is alive.
        let code = unsafe { function($($argument),*) };
        $crate::call::succeeded(stringify!($function), code)?;
    }};
}
