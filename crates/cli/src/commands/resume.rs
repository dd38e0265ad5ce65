//! `detshare resume`: a paused tenant goes on.

use super::pause::{PauseError, set_paused};
use crate::table;
use clap::Args;

/// Let a paused tenant go on
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The tenant's name or process, as `detshare ps` shows them
    #[arg(value_name = "NAME")]
    name: String,
}

/// Resumes it.
pub(crate) fn run(arguments: Arguments) -> Result<u8, PauseError> {
    let tenant = set_paused(&arguments.name, false)?;
    table::print(&format!("resumed {tenant}\n"))?;
    Ok(0)
}
