//! `detshare up`: a daemon runs from now on.

use crate::start::{self, Running, StartError};
use crate::table::{self, OutputError};
use clap::Args;
use std::path::PathBuf;

/// Start the daemon, if none runs yet
///
/// It stays until `detshare down`, in a session of its own, and writes its log into the runtime folder. `detshare run`
/// starts it too, where none runs.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Its configuration file; otherwise $DETSHARE_CONFIG, or detshare/detshare.toml in the user's configuration folder
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// Why no daemon runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpError {
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl UpError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Start(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Starts it and says what runs.
pub(crate) fn run(arguments: Arguments) -> Result<u8, UpError> {
    let Running { status, is_new } = start::ensure(arguments.config.as_deref())?;
    let how = if is_new { "started the daemon" } else { "a daemon runs already" };
    table::print(&format!("{how}: pid {}, folder {}\n", status.pid, status.folder.display()))?;
    Ok(0)
}
