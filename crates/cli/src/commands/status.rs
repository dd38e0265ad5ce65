//! `detshare status`: how the daemon does.

use crate::daemon::{self, DaemonError};
use crate::quantity;
use crate::table::{self, Format, OutputError};
use clap::Args;
use detshare_api::Status;

/// Show how the daemon does: policy, isolation, tenants, configuration
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl StatusError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Asks and prints.
pub(crate) fn run(arguments: Arguments) -> Result<u8, StatusError> {
    let status = daemon::client()?.status().map_err(DaemonError::from)?;
    table::print(&match arguments.format {
        Format::Table => table::facts(&facts(&status)),
        Format::Json => table::json(&status),
        Format::Csv => {
            let rows: Vec<_> = facts(&status).into_iter().map(|(name, value)| [name.to_string(), value]).collect();
            table::csv(["name", "value"], &rows)
        }
    })?;
    Ok(0)
}

fn facts(status: &Status) -> Vec<(&'static str, String)> {
    let uptime = quantity::age(quantity::approximate(status.uptime_s));
    let mut facts = vec![
        ("daemon", format!("pid {}, version {}, up {uptime} since {}", status.pid, status.version, status.started)),
        ("folder", status.folder.display().to_string()),
        ("policy", with_reason(&status.policy, status.policy_reason.as_deref())),
        ("isolation", status.isolation.to_string()),
    ];
    if let Some(mps) = &status.mps {
        let pid = mps.pid.map_or(String::new(), |pid| format!(", pid {pid}"));
        let pipes = mps.pipe_directory.display();
        facts.push(("MPS", format!("{}{pid}, {} restarts, pipes in {pipes}", mps.state, mps.restarts)));
    }
    facts.push(("tenants", format!("{} of at most {}", status.tenants, status.slots)));
    let file = status.config.file.as_ref().map_or("none".to_string(), |file| file.display().to_string());
    facts.push(("configuration", file));
    if let Some(error) = &status.config.error {
        facts.push(("  is broken", format!("the settings from before are in force: {error}")));
    }
    let profiles = status.profiles.folder.as_ref().map_or("nowhere".to_string(), |folder| folder.display().to_string());
    let set_aside = match status.profiles.set_aside {
        0 => String::new(),
        set_aside => format!(", {set_aside} unreadable and set aside"),
    };
    facts.push(("profiles", format!("{} files in {profiles}{set_aside}", status.profiles.files)));
    facts
}

/// A policy, and why it is in force if it was not asked for.
pub(crate) fn with_reason(policy: &str, reason: Option<&str>) -> String {
    reason.map_or(policy.to_string(), |reason| format!("{policy} ({reason})"))
}
