//! `detshare down`: no daemon runs from now on.

use crate::daemon::{self, DaemonError};
use crate::exit;
use crate::start;
use crate::table::{self, OutputError};
use clap::Args;
use detshare_api::{Client, RuntimeFolder};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Ending takes as long as MPS takes to end.
const LONGEST_END: Duration = Duration::from_secs(20);
/// Between two looks at the lock, which does not announce that it is free.
const PAUSE: Duration = Duration::from_millis(10);

/// Stop the daemon
///
/// Its tenants go on at full width, unshared, and join the next daemon that is started.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Why the daemon may still run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DownError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(
        "the daemon (pid {pid}) was asked to end, and has not within {} s: look into {}, or end it with `kill {pid}`",
        LONGEST_END.as_secs(), .log.display()
    )]
    StillThere { pid: u32, log: PathBuf },
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl DownError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::StillThere { .. } => exit::SYSTEM,
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Stops it and waits until the next one could start.
pub(crate) fn run(_: Arguments) -> Result<u8, DownError> {
    let stopped = match stop() {
        Err(DownError::Daemon(error)) if error.is_absence() => {
            table::print(&format!("no daemon runs in {}\n", daemon::folder().display()))?;
            return Ok(0);
        }
        stopped => stopped?,
    };
    let alone = match stopped.tenants {
        0 => String::new(),
        1 => "; its tenant goes on alone".to_string(),
        tenants => format!("; its {tenants} tenants go on, each alone"),
    };
    table::print(&format!("stopped the daemon: pid {}{alone}\n", stopped.pid))?;
    Ok(0)
}

struct Stopped {
    pid: u32,
    tenants: usize,
}

fn stop() -> Result<Stopped, DownError> {
    let folder = RuntimeFolder::open(&daemon::folder()).map_err(DaemonError::from)?;
    let client = Client::new(&folder).map_err(DaemonError::from)?;
    let status = client.status().map_err(DaemonError::from)?;
    client.shutdown().map_err(DaemonError::from)?;
    let until = Instant::now() + LONGEST_END;
    while start::is_locked(&folder) {
        if Instant::now() >= until {
            return Err(DownError::StillThere { pid: status.pid, log: folder.log() });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(Stopped { pid: status.pid, tenants: status.tenants })
}
