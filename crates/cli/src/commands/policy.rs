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

    /// How much best-effort tenants may disturb, from 0 (never) to 1 (use everything)
    #[arg(long, value_name = "PART", value_parser = part)]
    aggressiveness: Option<f64>,

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
    aggressiveness: f64,
}

pub(crate) fn part(text: &str) -> Result<f64, String> {
    let part = text.parse().ok().filter(|part| (0.0..=1.0).contains(part));
    part.ok_or_else(|| "a number from 0 to 1, such as 0.25".to_string())
}

/// Switches if asked to, and prints what is then in force.
pub(crate) fn run(arguments: Arguments) -> Result<u8, PolicyError> {
    let client = daemon::client()?;
    let mut status = match &arguments.policy {
        Some(policy) => client.set_policy(policy),
        None => client.status(),
    };
    if let (Some(part), Ok(_)) = (arguments.aggressiveness, &status) {
        status = client.set_aggressiveness(part);
    }
    let status = status.map_err(DaemonError::from)?;
    let aggressiveness = status.aggressiveness;
    let in_force = InForce { policy: status.policy, policy_reason: status.policy_reason, aggressiveness };
    table::print(&match arguments.format {
        Format::Table => {
            let policy = with_reason(&in_force.policy, in_force.policy_reason.as_deref());
            format!("{policy}\naggressiveness {aggressiveness}\n")
        }
        Format::Json => table::json(&in_force),
        Format::Csv => {
            let row = [in_force.policy, in_force.policy_reason.unwrap_or_default(), aggressiveness.to_string()];
            table::csv(["policy", "policy_reason", "aggressiveness"], &[row])
        }
    })?;
    Ok(0)
}
