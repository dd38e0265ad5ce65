//! The subcommands: one file and one row in [`Command`] for each.

pub(crate) mod verify;

use clap::Subcommand;

/// What `detshare` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Verify(verify::Arguments),
}

/// Why a subcommand has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Verify(#[from] verify::VerifyError),
}

impl Command {
    /// Does it; returns the exit code.
    pub(crate) fn run(self) -> Result<u8, CommandError> {
        match self {
            Self::Verify(arguments) => Ok(verify::run(arguments)?),
        }
    }
}

impl CommandError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Verify(error) => error.exit_code(),
        }
    }
}
