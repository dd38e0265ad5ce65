//! `detshare completions`: what a shell needs to complete our commands.

use crate::table::{self, OutputError};
use clap::Args;
use clap_complete::Shell;

/// Print the completions for a shell
///
/// For bash: detshare completions bash >~/.local/share/bash-completion/completions/detshare
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

/// Prints them.
pub(crate) fn run(arguments: Arguments, mut command: clap::Command) -> Result<u8, OutputError> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "detshare", &mut script);
    table::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
