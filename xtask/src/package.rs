//! `cargo xtask package`: the library as it is shipped.

use crate::build;
use crate::process::target;
use anyhow::Result;

/// Builds the shim for old and new systems alike and lays it out as it is installed.
pub(crate) fn run() -> Result<()> {
    let built = build::portable()?;
    let folder = target().join("package/lib/detshare");
    std::fs::create_dir_all(&folder)?;
    for name in [build::SHIM, "libcuda.so.1"] {
        std::fs::copy(built.join(build::SHIM), folder.join(name))?;
    }
    println!("{}: the shim, also under the driver's name for LD_LIBRARY_PATH", folder.display());
    Ok(())
}
