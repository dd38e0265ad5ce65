//! The software GPU's library, opened as a program's driver.

use detshare_cuda::Driver;
use detshare_cuda::driver::Visibility;
use std::path::{Path, PathBuf};

/// Built by `cargo xtask test`, or by `cargo build --release`.
pub(crate) fn softgpu() -> Driver {
    let folder = std::env::var_os("DETSHARE_BUILT")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release"), PathBuf::from);
    let path = folder.join("libdetshare_softgpu.so").canonicalize();
    let path = path.expect("run the tests by `cargo xtask test`, which builds the library");
    Driver::open(&path, Visibility::Local).expect("the software GPU is a driver")
}

/// Calls a function of the driver by its name.
#[macro_export]
macro_rules! cu {
    ($driver:expr, $function:ident($($argument:expr),*)) => {{
        let function = $driver.function(entry::$function).expect(stringify!($function));
        #[allow(clippy::macro_metavars_in_unsafe, reason = "the arguments are the test's own, a line away")]
        // SAFETY: places to write to, and handles that the software GPU only looks up.
        let result = unsafe { function($($argument),*) };
        result
    }};
}
