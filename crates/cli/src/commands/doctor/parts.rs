//! DetShare's own parts, its runtime folder and its daemon.

use super::Finding;
use crate::commands::ps;
use crate::daemon::{self, DaemonError};
use crate::part;
use crate::shim;
use detshare_api::{FolderError, Isolation, RuntimeFolder, Status, Tenant};
use std::path::Path;
use std::process::{Command, Stdio};

const OUR_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether the shim is there, and the loader takes it.
pub(super) fn shim() -> Finding {
    const CHECK: &str = "shim library";
    let shim = match shim::find() {
        Ok(shim) => shim,
        Err(error) => return Finding::problem(CHECK, "missing", error.to_string()),
    };
    match preload_complaint(&shim) {
        None => Finding::ok(CHECK, shim.display().to_string()),
        Some(complaint) => Finding::problem(
            CHECK,
            format!("{} cannot be loaded ({complaint})", shim.display()),
            "build or install it again for this system, or set DETSHARE_SHIM to another one",
        ),
    }
}

/// What the loader says about a library when it is to be preloaded; it goes on without it, so that only words tell.
fn preload_complaint(library: &Path) -> Option<String> {
    let executable = std::env::current_exe().ok()?;
    let mut command = Command::new(executable);
    let tried = command.arg("--version").env("LD_PRELOAD", library).stdin(Stdio::null()).output().ok()?;
    if !tried.status.success() {
        return Some(format!("a program with it ended with {}", tried.status));
    }
    let words = String::from_utf8_lossy(&tried.stderr);
    let complaint = words.lines().find(|line| line.contains("cannot be preloaded"))?;
    let reason = complaint.split_once("cannot be preloaded").map_or(complaint, |(_, reason)| reason);
    Some(reason.trim_matches([' ', ':', '.', '(', ')']).to_string())
}

/// Whether the software GPU is there; few need it.
pub(super) fn softgpu() -> Finding {
    const CHECK: &str = "software GPU";
    match part::SOFTGPU.find() {
        Ok(library) => Finding::ok(CHECK, library.display().to_string()),
        Err(part::FindError::Nowhere { .. }) => {
            Finding::ok(CHECK, "not installed; only `detshare run --device soft` needs it")
        }
        Err(error) => Finding::warning(CHECK, "missing", error.to_string()),
    }
}

/// Whether `detshare up` would find the daemon's program.
pub(super) fn daemon_program() -> Finding {
    const CHECK: &str = "daemon program";
    let program = match part::DAEMON.find() {
        Ok(program) => program,
        Err(error) => return Finding::problem(CHECK, "missing", error.to_string()),
    };
    let found = program.display().to_string();
    let asked = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    match asked {
        Err(error) => Finding::problem(CHECK, format!("{found} does not run ({error})"), "install it again"),
        Ok(said) => {
            let said = String::from_utf8_lossy(&said.stdout);
            match said.split_whitespace().last() {
                Some(OUR_VERSION) => Finding::ok(CHECK, found),
                Some(version) => Finding::warning(
                    CHECK,
                    format!("{found} has version {version}, this is {OUR_VERSION}"),
                    "install both from the same release",
                ),
                None => Finding::problem(CHECK, format!("{found} is not a daemon of ours"), "install it again"),
            }
        }
    }
}

/// Whether the runtime folder is ours alone.
pub(super) fn runtime_folder() -> Finding {
    const CHECK: &str = "runtime folder";
    let path = daemon::folder();
    match RuntimeFolder::open(&path) {
        Ok(_) => Finding::ok(CHECK, path.display().to_string()),
        Err(FolderError::Missing(_)) => match path.parent() {
            Some(above) if above.is_dir() => {
                Finding::ok(CHECK, format!("{} is not there yet; `detshare up` makes it", path.display()))
            }
            _ => Finding::problem(
                CHECK,
                format!("the folder above {} does not exist", path.display()),
                "make it, or set DETSHARE_DIR to another folder",
            ),
        },
        Err(error) => Finding::problem(CHECK, "cannot be used", error.to_string()),
    }
}

/// Whether a daemon answers, and is of our version.
pub(super) fn running_daemon(status: &Result<Status, DaemonError>) -> Finding {
    const CHECK: &str = "daemon";
    match status {
        Ok(status) if !status.sees_you => Finding::problem(
            CHECK,
            format!("runs (pid {} there) and does not see us: we are in different containers", status.pid),
            "start it outside of the tenants' containers, or in one that has the host's processes (hostPID)",
        ),
        Ok(status) if status.version == OUR_VERSION => {
            Finding::ok(CHECK, format!("runs (pid {}), {} tenants", status.pid, status.tenants))
        }
        Ok(status) => Finding::warning(
            CHECK,
            format!("runs (pid {}) with version {}, this is {OUR_VERSION}", status.pid, status.version),
            "restart it with `detshare down` and `detshare up`",
        ),
        Err(error) if error.is_absence() => {
            Finding::ok(CHECK, "does not run; `detshare run` and `detshare up` start it")
        }
        Err(error) => Finding::problem(CHECK, "does not answer", error.to_string()),
    }
}

/// Whether the running daemon understood its configuration.
pub(super) fn configuration(status: &Result<Status, DaemonError>) -> Finding {
    const CHECK: &str = "configuration";
    let Ok(status) = status else { return Finding::ok(CHECK, "unknown while no daemon runs") };
    let file = status.config.file.as_ref().map_or("none".to_string(), |file| file.display().to_string());
    match &status.config.error {
        None => Finding::ok(CHECK, file),
        Some(error) => Finding::warning(
            CHECK,
            format!("{file} is broken ({error}), the settings from before are in force"),
            "correct it; it is read again by itself",
        ),
    }
}

/// What keeps tenants apart.
pub(super) fn isolation(status: &Result<Status, DaemonError>) -> Finding {
    const CHECK: &str = "isolation";
    let Ok(status) = status else { return Finding::ok(CHECK, "unknown while no daemon runs") };
    match status.isolation {
        Isolation::None => Finding::ok(CHECK, "none: there is no NVIDIA device"),
        Isolation::Mps => Finding::ok(CHECK, "mps: an illegal access of one tenant ends all"),
        Isolation::Process => Finding::warning(
            CHECK,
            "process: no partitions, and best-effort tenants take turns",
            "if that was not meant, install nvidia-cuda-mps-control or set isolation = \"mps\"",
        ),
    }
}

/// Whether all tenants that should be are clients of the daemon's MPS.
pub(super) fn mps_clients(tenants: &[Tenant]) -> Finding {
    const CHECK: &str = "MPS clients";
    let strays = tenants.iter().filter(|tenant| ps::is_stray(tenant));
    let strays: Vec<_> = strays.map(|tenant| format!("{} (pid {})", tenant.name, tenant.pid)).collect();
    match tenants.iter().filter(|tenant| tenant.mps_client == Some(true)).count() {
        _ if !strays.is_empty() => Finding::warning(
            CHECK,
            format!("no client of the daemon's MPS, so that the GPU's time is sliced: {}", strays.join(", ")),
            "end it and start it with `detshare run`, which gives it the right CUDA_MPS_PIPE_DIRECTORY",
        ),
        0 => Finding::ok(CHECK, "no tenant needs MPS"),
        clients => Finding::ok(CHECK, format!("{clients} of {} tenants", tenants.len())),
    }
}
