//! `detshare man`: the manual, made from the help.

use crate::exit;
use crate::table::{self, OutputError};
use clap::Args;
use std::path::PathBuf;

/// Print the manual page, or write those of all commands into a folder
///
/// To read it: detshare man | man -l -
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The folder for detshare.1, detshare-run.1 and so on; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// Why there is no manual.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManError {
    #[error("cannot write the manual into {}: {source}; choose a folder that can be written to", .folder.display())]
    NotWritten { folder: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl ManError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotWritten { .. } => exit::FILES,
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Prints or writes it.
pub(crate) fn run(arguments: Arguments, command: clap::Command) -> Result<u8, ManError> {
    let command = command.disable_help_subcommand(true);
    match arguments.folder {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page).map_err(OutputError::from)?;
            table::print(&String::from_utf8_lossy(&page))?;
        }
        Some(folder) => {
            let written = std::fs::create_dir_all(&folder).and_then(|()| clap_mangen::generate_to(command, &folder));
            written.map_err(|source| ManError::NotWritten { folder, source })?;
        }
    }
    Ok(0)
}
