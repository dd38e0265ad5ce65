//! `cargo xtask package`: everything as it is installed.

use crate::build;
use crate::process::{root, run, target};
use anyhow::{Context, Result, ensure};
use std::fs::{copy, create_dir_all, read_dir, write};
use std::path::Path;
use std::process::Command;

/// Builds for old and new systems alike, and lays it out as it is installed: programs, libraries, manual, completions,
/// the daemon's unit, and the programs that `detshare bench` runs.
pub(crate) fn package() -> Result<()> {
    let built = build::portable()?;
    let folder = target().join("package");
    lay_out(&built, &folder)?;
    println!("{}: copy it to /usr/local or ~/.local", folder.display());
    Ok(())
}

/// The programs are also run, for their manual and completions.
pub(crate) fn lay_out(built: &Path, folder: &Path) -> Result<()> {
    let [programs, libraries] = ["bin", "lib/detshare"].map(|name| folder.join(name));
    [&programs, &libraries].into_iter().try_for_each(create_dir_all)?;
    for name in ["detshare", "detshared"] {
        copy(built.join(name), programs.join(name)).with_context(|| format!("{name} was not built"))?;
    }
    // Also under the driver's name, for LD_LIBRARY_PATH.
    let own_names = [build::SHIM, build::SOFTGPU, build::CUDART_12, build::CUDART_13].map(|name| (name, name));
    for (name, library) in own_names.into_iter().chain([("libcuda.so.1", build::SHIM)]) {
        copy(built.join(library), libraries.join(name))?;
    }
    let detshare = programs.join("detshare");
    let manual = folder.join("share/man/man1");
    create_dir_all(&manual)?;
    run(Command::new(&detshare).arg("man").arg(&manual))?;
    let page = Command::new(programs.join("detshared")).arg("--manual").output()?;
    ensure!(page.status.success(), "detshared has no manual: it ended with {}", page.status);
    write(manual.join("detshared.1"), page.stdout)?;
    for (shell, file) in [
        ("bash", "share/bash-completion/completions/detshare"),
        ("zsh", "share/zsh/site-functions/_detshare"),
        ("fish", "share/fish/vendor_completions.d/detshare.fish"),
    ] {
        let file = folder.join(file);
        create_dir_all(file.parent().context("it lies in a folder")?)?;
        write(&file, Command::new(&detshare).args(["completions", shell]).output()?.stdout)?;
    }
    let unit = folder.join("lib/systemd/user");
    create_dir_all(&unit)?;
    copy(root().join("packaging/detshared.service"), unit.join("detshared.service"))?;
    let workloads = folder.join("share/detshare/workloads");
    create_dir_all(&workloads)?;
    for entry in read_dir(root().join("workloads"))? {
        let path = entry?.path();
        if let (Some(name), true) = (path.file_name(), path.extension().is_some_and(|extension| extension == "py")) {
            copy(&path, workloads.join(name))?;
        }
    }
    Ok(())
}
