//! Calling the driver by name and judging what it returns.

use anyhow::{Error, Result, anyhow};
use core::panic::Location;
use detshare_cuda::entry::Entry;
use detshare_cuda::types::CUresult;
use detshare_cuda::{Driver, functions, result_name};
use std::fmt;

/// Why a test does not apply here.
#[derive(Debug)]
pub(crate) struct Skipped(pub(crate) String);

impl fmt::Display for Skipped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Skipped {}

/// The driver's function. A driver older than the function is excused, another one is not.
pub(crate) fn function<F: Copy>(driver: &Driver, entry: Entry<F>) -> Result<F> {
    driver.function(entry).ok_or_else(|| {
        let function = &functions()[entry.index()];
        if i64::from(function.since) > i64::from(driver.version()) {
            Error::new(Skipped(format!("{} came with CUDA {}", function.name, function.since)))
        } else {
            anyhow!("the driver has no {}", function.name)
        }
    })
}

/// The code with its name.
pub(crate) fn describe(code: CUresult) -> String {
    let name = result_name(code).map_or_else(|| "an unknown code".into(), |name| name.to_string_lossy().into_owned());
    format!("{name} ({})", code.0)
}

/// Stops unless the code is among the expected ones, and says where in the test that was.
#[track_caller]
pub(crate) fn judge(call: &str, code: CUresult, expected: &[CUresult]) -> Result<()> {
    if expected.contains(&code) {
        return Ok(());
    }
    let expected: Vec<_> = expected.iter().map(|code| describe(*code)).collect();
    let place = Location::caller();
    let file = place.file().rsplit('/').next().unwrap_or_default();
    let (line, expected) = (place.line(), expected.join(" or "));
    Err(anyhow!("{file}:{line}: {call} returned {} instead of {expected}", describe(code)))
}

/// Calls a function of the driver and gives its code.
macro_rules! cu {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::call::function(&$driver, detshare_cuda::entry::$function)?;
        // SAFETY: arguments as the driver API's manual asks for, or wrong in a way that it answers with a code;
        // everything they point to is alive.
        unsafe { function($($argument),*) }
    }};
}

/// Calls a function of the driver that must succeed.
macro_rules! ok {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?)) => {
        expect!($driver, $function($($argument),*) => CUDA_SUCCESS)
    };
}

/// Calls a function of the driver that must return this code, or one of these.
macro_rules! expect {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?) => $($code:ident)|+) => {{
        let code = cu!($driver, $function($($argument),*));
        let expected = [$(detshare_cuda::types::CUresult::$code),+];
        $crate::call::judge(stringify!($function), code, &expected)?;
    }};
}

/// Calls a function of the driver, writes down its code and gives it.
macro_rules! noted {
    ($driver:expr, $function:ident($($argument:expr),* $(,)?), $what:expr) => {{
        let code = cu!($driver, $function($($argument),*));
        note!("{}: {} gives {}", $what, stringify!($function), $crate::call::describe(code));
        code
    }};
}

/// Writes down what was seen, for the reader of the results.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::runner::note(&format!($($text)*))
    };
}

/// Ends the test because it does not apply here.
macro_rules! skip {
    ($($text:tt)*) => {
        return Err($crate::call::Skipped(format!($($text)*)).into())
    };
}

/// The table of a file's tests, named after file and function.
macro_rules! tests {
    ($file:ident: $($test:ident),+ $(,)?) => {
        /// What this file tests.
        pub(crate) const TESTS: &[$crate::Test] =
            &[$((concat!(stringify!($file), "::", stringify!($test)), $test)),+];
    };
}
