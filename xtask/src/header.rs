//! CUDA's headers and libclang, fetched from PyPI into the build folder. Nothing of them is committed.

use crate::process::{run, target};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The header that the committed table was made from: the release whose driver the table was compared with.
const HEADER: &str = "nvidia-cuda-runtime==13.0.96";
const LIBCLANG: &str = "libclang==18.1.1";

/// The folder with `cuda.h`.
pub(crate) fn cuda_include() -> Result<PathBuf> {
    Ok(package(HEADER)?.join("nvidia/cu13/include"))
}

/// The folder with `libclang.so`.
pub(crate) fn libclang() -> Result<PathBuf> {
    Ok(package(LIBCLANG)?.join("clang/native"))
}

/// Installs one PyPI package below the build folder, once.
fn package(requirement: &str) -> Result<PathBuf> {
    let folder = target().join("pypi").join(requirement.replace("==", "-"));
    if !folder.exists() {
        let unfinished = folder.with_extension("part");
        remove(&unfinished)?;
        run(Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"])
            .args(["--no-deps", "--target"])
            .arg(&unfinished)
            .arg(requirement))
        .with_context(|| format!("cannot install {requirement} from PyPI (it needs python3 with pip, and network)"))?;
        std::fs::rename(&unfinished, &folder)?;
    }
    Ok(folder)
}

fn remove(folder: &Path) -> Result<()> {
    if folder.exists() {
        std::fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(())
}
