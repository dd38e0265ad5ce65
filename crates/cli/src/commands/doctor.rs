//! `detshare doctor`: is all there that sharing needs?
//!
//! Each check looks at one thing and says what it found and, unless all is well, what to do. Nothing is changed and
//! nothing started that stays.

mod gpu;
mod host;
mod parts;

pub(crate) use gpu::model as gpu_model;

use crate::daemon;
use crate::table::{self, Align, Format, OutputError};
use clap::Args;
use serde::Serialize;

const FOUND_PROBLEMS: u8 = 1;

const EXIT_CODES: &str = "\
Exit codes:
  0    no problem; there may be warnings
  1    a problem
  64   bad usage
  74   the result could not be printed";

/// Check that everything is there that sharing needs
///
/// Looks at DetShare's parts, the runtime folder, the daemon, the GPU and its driver, MPS and the system, and says what to
/// do about what is missing.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// How to print the findings
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    Ok,
    /// Sharing works, with less than there could be.
    Warning,
    /// Sharing does not work.
    Problem,
}

impl Verdict {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do about it.
    advice: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, found: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, found: found.into(), advice: None }
    }

    fn warning(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Warning, found: found.into(), advice: Some(advice.into()) }
    }

    fn problem(check: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Problem, found: found.into(), advice: Some(advice.into()) }
    }
}

/// Looks at everything and prints it.
pub(crate) fn run(arguments: Arguments) -> Result<u8, OutputError> {
    let status = daemon::client().and_then(|client| Ok(client.status()?));
    // One that did not answer is not waited for again.
    let tenants = status.as_ref().ok().and_then(|_| daemon::client().ok()?.tenants().ok()).unwrap_or_default();
    let gpu = gpu::Gpu::look();
    let findings = [
        parts::shim(),
        parts::softgpu(),
        parts::daemon_program(),
        parts::runtime_folder(),
        parts::running_daemon(&status),
        parts::configuration(&status),
        gpu.driver(),
        gpu.devices(),
        gpu.partitions(),
        gpu.mps_control(),
        parts::isolation(&status),
        parts::mps_clients(&tenants),
        gpu.other_mps(),
        host::kernel(),
        host::open_files(),
    ];
    table::print(&match arguments.format {
        Format::Table => for_people(&findings),
        Format::Json => table::json(&findings),
        Format::Csv => for_programs(&findings),
    })?;
    let has_problem = findings.iter().any(|finding| finding.verdict == Verdict::Problem);
    Ok(if has_problem { FOUND_PROBLEMS } else { 0 })
}

fn for_people(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let advice = finding.advice.as_ref().map_or(String::new(), |advice| format!(": {advice}"));
        [finding.verdict.name().to_string(), finding.check.to_string(), format!("{}{advice}", finding.found)]
    };
    let headings = [("verdict", Align::Left), ("check", Align::Left), ("found", Align::Left)];
    table::columns(headings, &findings.iter().map(row).collect::<Vec<_>>())
}

fn for_programs(findings: &[Finding]) -> String {
    let row = |finding: &Finding| {
        let advice = finding.advice.clone().unwrap_or_default();
        [finding.check.to_string(), finding.verdict.name().to_string(), finding.found.clone(), advice]
    };
    table::csv(["check", "verdict", "found", "advice"], &findings.iter().map(row).collect::<Vec<_>>())
}
