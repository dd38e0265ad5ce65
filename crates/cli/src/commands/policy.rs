//! `detshare policy`: by which rules the tenants share.

use super::status::with_reason;
use crate::daemon::{self, DaemonError};
use crate::flags;
use crate::table::{self, Format, OutputError};
use clap::Args;
use serde::Serialize;

/// Show by which policy the tenants share the GPU, or switch to another
///
/// A switch holds until the daemon ends; to make it last, write it into the configuration.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The policy to switch to
    #[arg(value_name = "POLICY", value_parser = flags::policy())]
    policy: Option<String>,

    /// How to print the one in force
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

/// Why there is no answer, or no change.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl PolicyError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// As these stand in the daemon's status.
#[derive(Debug, Serialize)]
struct InForce {
    policy: String,
    policy_reason: Option<String>,
}

/// Switches if asked to, and prints what is then in force.
pub(crate) fn run(arguments: Arguments) -> Result<u8, PolicyError> {
    let client = daemon::client()?;
    let status = match &arguments.policy {
        Some(policy) => client.set_policy(policy),
        None => client.status(),
    };
    let status = status.map_err(DaemonError::from)?;
    let in_force = InForce { policy: status.policy, policy_reason: status.policy_reason };
    table::print(&match arguments.format {
        Format::Table => format!("{}\n", with_reason(&in_force.policy, in_force.policy_reason.as_deref())),
        Format::Json => table::json(&in_force),
        Format::Csv => {
            let row = [in_force.policy, in_force.policy_reason.unwrap_or_default()];
            table::csv(["policy", "policy_reason"], &[row])
        }
    })?;
    Ok(0)
}
