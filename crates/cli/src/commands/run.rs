//! `detshare run`: a program as a tenant.
//!
//! We prepare the environment and then become the program, so that nothing stands between it and whoever started it:
//! exit code, signals, terminal, standard streams and process number are its own.
//!
//! On the software GPU a program that nobody wants to share with needs neither shim nor daemon: it gets the software GPU
//! as its driver. Either way, programs that are linked against CUDA's runtime get ours: NVIDIA's works on NVIDIA's driver alone.

mod flags;
mod inherited;

pub(crate) use flags::Arguments;

use crate::daemon::{self, DaemonError};
use crate::exec;
use crate::executable::{self, ExecutableError};
use crate::exit;
use crate::part;
use crate::shim;
use detshare_api::{Status, places};
use flags::{Device, Settings};
use inherited::InheritedError;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Restricts a program to some GPUs; the daemon is for all of them, whoever starts it.
const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// Why the program was not started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Inherited(#[from] InheritedError),
    #[error(transparent)]
    Program(#[from] ExecutableError),
    #[error(transparent)]
    Shim(#[from] shim::FindError),
    #[error(transparent)]
    Part(#[from] part::FindError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("cannot start the daemon: {0}; start it with `detshare up`")]
    NotUp(#[source] std::io::Error),
    /// What `detshare up` said.
    #[error("no daemon for the program: {reason}")]
    Up { reason: String, code: u8 },
    #[error(
        "the daemon does not see this process and could not watch over it: one of them is in a container; start the daemon outside \
         of it, or in one that has the host's processes (docker run --pid=host, hostPID)"
    )]
    Unseen,
    #[error("{program} was not found at the last moment: try again")]
    Vanished { program: String },
    #[error("the system did not start {program} ({source}): check its arguments and limits, and try again")]
    NotStarted { program: String, source: std::io::Error },
}

impl RunError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Inherited(_) => exit::USAGE,
            Self::Program(error) => error.exit_code(),
            Self::Shim(_) | Self::Part(_) | Self::Unseen => exit::UNAVAILABLE,
            Self::Daemon(error) => error.exit_code(),
            Self::Up { code, .. } => *code,
            Self::Vanished { .. } => exit::NO_PROGRAM,
            Self::NotUp(_) | Self::NotStarted { .. } => exit::SYSTEM,
        }
    }
}

/// Becomes the program; returns only if it cannot.
pub(crate) fn run(arguments: Arguments) -> Result<u8, RunError> {
    let settings = Settings::from(arguments);
    inherited::check(&settings, std::env::var_os)?;
    let (name, arguments) = settings.program.split_first().expect("the command line asks for a program");
    let file = executable::find(name, std::env::var_os("PATH").as_deref())?;
    let driver = settings.device.map(|Device::Soft| part::SOFTGPU.find()).transpose()?;
    let mut command = Command::new(&file);
    command.arg0(name).args(arguments);
    match driver {
        Some(driver) if !settings.shares() && !daemon_runs() => be_the_driver(&mut command, driver)?,
        driver => be_a_tenant(&mut command, &settings, driver)?,
    }
    let source = exec::become_program(&mut command);
    let program = name.to_string_lossy().into_owned();
    Err(match source.kind() {
        ErrorKind::NotFound => RunError::Vanished { program },
        _ => RunError::NotStarted { program, source },
    })
}

/// The software GPU takes the driver's place; there is nobody to share it with.
fn be_the_driver(command: &mut Command, driver: PathBuf) -> Result<(), RunError> {
    let runtimes = runtimes(&driver);
    preload(command, shim::loadable(driver)?, runtimes);
    Ok(())
}

/// The shim takes the driver's place, and the daemon has its say.
fn be_a_tenant(command: &mut Command, settings: &Settings, driver: Option<PathBuf>) -> Result<(), RunError> {
    let shim = shim::find()?;
    let status = daemon_status()?;
    if !status.sees_you {
        return Err(RunError::Unseen);
    }
    let folder = daemon::folder();
    preload(command, shim, driver.as_deref().map(runtimes).unwrap_or_default());
    command
        .envs(settings.environment())
        .envs(status.environment.iter().map(|(name, value)| (name, as_seen_here(value, &status.folder, &folder))))
        .env(places::FOLDER_VARIABLE, &folder)
        .env("DETSHARE_RUN", std::process::id().to_string());
    if let Some(driver) = driver {
        command.env("DETSHARE_DRIVER", driver);
    }
    Ok(())
}

/// What the daemon says of its folder, where that has another place for us: in a container, say.
fn as_seen_here(value: &str, theirs: &Path, ours: &Path) -> OsString {
    let inside = Path::new(value).strip_prefix(theirs);
    inside.map_or_else(|_| value.into(), |inside| ours.join(inside).into())
}

/// CUDA's runtimes for the software GPU, which lie beside it: one for each release that programs are linked against.
fn runtimes(driver: &Path) -> Vec<PathBuf> {
    let files = ["libdetshare_cudart_12.so", "libdetshare_cudart_13.so"].map(|name| driver.with_file_name(name));
    files.into_iter().filter(|file| file.is_file() && !part::breaks_in_list(file)).collect()
}

/// The driver's place is taken first of all.
fn preload(command: &mut Command, driver: PathBuf, runtimes: Vec<PathBuf>) {
    let libraries: Vec<_> = [driver].into_iter().chain(runtimes).collect();
    command.env("LD_PRELOAD", shim::preload(&libraries, std::env::var_os("LD_PRELOAD").as_deref()));
}

/// Whether there is a daemon, or something in its place that has to be looked at.
fn daemon_runs() -> bool {
    !matches!(ask_daemon(), Err(error) if error.is_absence())
}

fn ask_daemon() -> Result<Status, DaemonError> {
    Ok(daemon::client()?.status()?)
}

/// Asks the daemon, and starts one first where none runs.
fn daemon_status() -> Result<Status, RunError> {
    match ask_daemon() {
        Err(error) if error.is_absence() => {
            up()?;
            Ok(ask_daemon()?)
        }
        status => Ok(status?),
    }
}

/// As a process of its own: were the daemon our child, it would be the program's, which knows nothing of it.
fn up() -> Result<(), RunError> {
    let executable = std::env::current_exe().map_err(RunError::NotUp)?;
    let up = Command::new(executable).arg("up").env_remove(VISIBLE_DEVICES).stdin(Stdio::null()).output();
    let up = up.map_err(RunError::NotUp)?;
    if up.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&up.stderr);
    let reason = words.lines().rev().find(|line| !line.is_empty()).unwrap_or("`detshare up` does not say why");
    let code = up.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::UNAVAILABLE);
    Err(RunError::Up { reason: reason.strip_prefix("detshare: ").unwrap_or(reason).to_string(), code })
}

impl Settings {
    /// Whether a flag says how the program is to share the GPU with others.
    fn shares(&self) -> bool {
        !self.environment().is_empty()
    }

    /// What the shim reads. What no flag says is left as it stands in our environment.
    fn environment(&self) -> BTreeMap<&'static str, OsString> {
        let number = |number: Option<u64>| number.map(|number| number.to_string());
        let variables = [
            ("DETSHARE_CLASS", self.class.map(|class| class.to_string())),
            ("DETSHARE_NAME", self.name.clone()),
            ("DETSHARE_P99", number(self.p99_ns)),
            ("DETSHARE_TTFT", number(self.ttft_ns)),
            ("DETSHARE_TPOT", number(self.tpot_ns)),
            ("DETSHARE_MEM", number(self.memory)),
            ("DETSHARE_BLOCK_LEVEL", self.block_level.then(|| "on".to_string())),
        ];
        variables.into_iter().filter_map(|(name, value)| Some((name, value?.into()))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_folder_is_named_as_it_is_called_here() {
        let (theirs, ours) = (Path::new("/run/user/1000/detshare"), Path::new("/detshare"));
        assert_eq!(as_seen_here("/run/user/1000/detshare/mps/pipe", theirs, ours), "/detshare/mps/pipe");
        assert_eq!(as_seen_here("/run/user/1000/detshare-2/pipe", theirs, ours), "/run/user/1000/detshare-2/pipe");
        assert_eq!(as_seen_here("0", theirs, ours), "0");
    }
}
