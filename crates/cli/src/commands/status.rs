//! `detshare status`: how the daemon does.

use crate::daemon::{self, DaemonError};
use crate::quantity;
use crate::table::{self, Format, OutputError};
use clap::Args;
use detshare_api::Status;
use std::path::PathBuf;

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
        Format::Csv => for_programs(status),
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

/// One row, under the names of the API's fields.
fn for_programs(status: Status) -> String {
    let path = |path: Option<PathBuf>| path.map_or(String::new(), |path| path.display().to_string());
    let Status { config, mps, profiles, .. } = status;
    let columns = [
        ("version", status.version),
        ("pid", status.pid.to_string()),
        ("started", status.started),
        ("uptime_s", status.uptime_s.to_string()),
        ("policy", status.policy),
        ("policy_reason", status.policy_reason.unwrap_or_default()),
        ("aggressiveness", status.aggressiveness.to_string()),
        ("isolation", status.isolation.to_string()),
        ("folder", path(Some(status.folder))),
        ("config_file", path(config.file)),
        ("config_error", config.error.unwrap_or_default()),
        ("tenants", status.tenants.to_string()),
        ("slots", status.slots.to_string()),
        ("mps_state", mps.as_ref().map_or(String::new(), |mps| mps.state.to_string())),
        ("mps_pid", mps.as_ref().and_then(|mps| mps.pid).map_or(String::new(), |pid| pid.to_string())),
        ("mps_restarts", mps.as_ref().map_or(String::new(), |mps| mps.restarts.to_string())),
        ("mps_pipe_directory", path(mps.map(|mps| mps.pipe_directory))),
        ("profiles_folder", path(profiles.folder)),
        ("profiles_files", profiles.files.to_string()),
        ("profiles_set_aside", profiles.set_aside.to_string()),
    ];
    table::csv(columns.each_ref().map(|(name, _)| *name), &[columns.map(|(_, value)| value)])
}

/// A policy, and why it is in force if it was not asked for.
pub(crate) fn with_reason(policy: &str, reason: Option<&str>) -> String {
    reason.map_or(policy.to_string(), |reason| format!("{policy} ({reason})"))
}
