//! Packages from PyPI, installed once below the build folder. Nothing of them is committed.

use crate::process::{run, target};
use anyhow::{Context, Result};
use std::path::PathBuf;
use std::process::Command;

/// Installs packages together into one folder, which the first names, and returns it.
pub(crate) fn install(requirements: &[&str]) -> Result<PathBuf> {
    let folder = target().join("pypi").join(requirements.join("+").replace("==", "-"));
    if folder.exists() {
        return Ok(folder);
    }
    // Of its own: others may fetch the same meanwhile.
    std::fs::create_dir_all(target().join("pypi"))?;
    let unfinished = tempfile::Builder::new().prefix("unfinished-").tempdir_in(target().join("pypi"))?;
    println!("installing {} from PyPI", requirements.join(", "));
    run(Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--root-user-action=ignore"])
        .args(["--no-deps", "--target"])
        .arg(unfinished.path())
        .args(requirements))
    .with_context(|| format!("{} from PyPI (needs python3 with pip, and network)", requirements.join(", ")))?;
    match std::fs::rename(unfinished.path(), &folder) {
        // Somebody else was faster.
        Err(_) if folder.exists() => {}
        moved => moved?,
    }
    Ok(folder)
}
