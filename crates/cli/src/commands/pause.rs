//! `detshare pause`: a tenant's launches are held.

use crate::daemon::{self, DaemonError};
use crate::table::{self, OutputError};
use clap::Args;
use detshare_api::TenantPatch;

/// Hold a tenant's launches until `detshare resume`
///
/// What the GPU has already begun of it is finished. The program waits in its next launch, and keeps its memory.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The tenant's name or process, as `detshare ps` shows them
    #[arg(value_name = "NAME")]
    name: String,
}

/// Why it was not paused, or not resumed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PauseError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl PauseError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Pauses it.
pub(crate) fn run(arguments: Arguments) -> Result<u8, PauseError> {
    let tenant = set_paused(&arguments.name, true)?;
    table::print(&format!("paused {tenant}\n"))?;
    Ok(0)
}

/// Changes it; returns which tenant it was.
pub(crate) fn set_paused(name: &str, paused: bool) -> Result<String, DaemonError> {
    let patch = TenantPatch { paused: Some(paused), ..TenantPatch::default() };
    let tenant = daemon::client()?.change(name, &patch)?;
    Ok(table::harmless(&format!("{} (pid {})", tenant.name, tenant.pid)))
}
