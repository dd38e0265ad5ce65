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
    let built = build::shipped()?;
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
    let detshared = programs.join("detshared");
    write(manual.join("detshared.1"), printed(Command::new(&detshared).arg("--manual"))?)?;
    for (program, name, flag) in [(&detshare, "detshare", "completions"), (&detshared, "detshared", "--completions")] {
        for (shell, file) in [
            ("bash", format!("share/bash-completion/completions/{name}")),
            ("zsh", format!("share/zsh/site-functions/_{name}")),
            ("fish", format!("share/fish/vendor_completions.d/{name}.fish")),
        ] {
            let file = folder.join(file);
            create_dir_all(file.parent().context("it lies in a folder")?)?;
            write(&file, printed(Command::new(program).args([flag, shell]))?)?;
        }
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

/// What a program prints; one that fails, or says nothing, has nothing to be packaged.
fn printed(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    ensure!(!output.stdout.is_empty(), "{command:?} printed nothing");
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// Programs and libraries as they are built, played by scripts; `shell` has no completions of the daemon.
    fn built(folder: &Path, shell: &str) {
        let script = |name: &str, text: String| {
            let path = folder.join(name);
            write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("set");
        };
        script("detshare", "#!/bin/sh\necho $0 $*\n".to_string());
        script("detshared", format!("#!/bin/sh\n[ \"$2\" != {shell} ] || exit 64\necho $0 $*\n"));
        for name in [build::SHIM, build::SOFTGPU, build::CUDART_12, build::CUDART_13] {
            write(folder.join(name), "").expect("written");
        }
    }

    #[test]
    fn both_programs_have_completions_or_there_is_no_package() {
        let place = tempfile::tempdir().expect("a folder");
        let (programs, folder) = (place.path().join("built"), place.path().join("package"));
        create_dir_all(&programs).expect("made");
        built(&programs, "none");
        lay_out(&programs, &folder).expect("laid out");
        for file in [
            "share/bash-completion/completions/detshare",
            "share/bash-completion/completions/detshared",
            "share/zsh/site-functions/_detshare",
            "share/zsh/site-functions/_detshared",
            "share/fish/vendor_completions.d/detshare.fish",
            "share/fish/vendor_completions.d/detshared.fish",
        ] {
            let text = std::fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert!(text.contains("completions"), "{file}: {text}");
        }
        built(&programs, "zsh");
        let refused = lay_out(&programs, &folder).expect_err("one is missing").to_string();
        assert!(refused.contains("zsh") && refused.contains("64"), "{refused}");
    }
}
