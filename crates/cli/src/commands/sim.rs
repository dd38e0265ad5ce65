//! `detshare sim`: recorded programs share a model of a GPU, in every way, in seconds.

mod measured;

use crate::exit;
use crate::quantity;
use crate::table::{self, Align, Format, OutputError};
use clap::{Args, ValueEnum};
use detshare_policy::{Dial, POLICIES};
use detshare_sim::record::together;
use detshare_sim::report::Report;
use detshare_sim::trace::{Trace, TraceError};
use detshare_sim::{Settings, Simulator, Way};
use measured::{Measured, compare};
use std::path::{Path, PathBuf};
use std::time::Duration;

const WAYS: [&str; 7] = ["time-slicing", "mps", "throughput", "fair", "exclusive", "slo-aware", "tpot-first"];

/// Simulate how recorded programs would share a GPU
///
/// The tenants of all traces share one GPU, under each way of sharing; what they lose is told against each alone. The policies
/// are the real ones, the GPU is a model: see docs/sim.md for what it leaves out. The same traces and seed give the same result.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Traces, as `detshare record` writes them
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,

    /// Ways of sharing: alone, time-slicing, mps, or policies; separated by commas
    #[arg(long, value_name = "WAY,...", value_delimiter = ',', value_parser = way)]
    ways: Vec<Way>,

    /// What keeps the tenants of policies apart; with process they are time-sliced, and policies that need MPS are left out
    #[arg(long, value_enum, value_name = "ISOLATION", default_value_t)]
    isolation: Isolation,

    /// How much time to simulate
    #[arg(long, value_name = "TIME", value_parser = quantity::parse_duration, default_value = "10s")]
    time: Duration,

    /// How much best-effort tenants may disturb, from 0 (never) to 1 (use everything)
    #[arg(long, value_name = "PART", value_parser = super::policy::part)]
    aggressiveness: Option<f64>,

    /// Arrivals at random follow from this
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// What was measured: `results.json` of a `detshare bench`, to be compared by the names of ways and tenants
    #[arg(long, value_name = "FILE")]
    measured: Option<PathBuf>,

    /// How to print it
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

/// What keeps tenants apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Isolation {
    /// Tenants run side by side
    #[default]
    Mps,
    /// The driver gives the GPU to one at a time
    Process,
}

impl Isolation {
    /// As the results of a benchmark say it.
    fn name(self) -> &'static str {
        match self {
            Self::Mps => "mps",
            Self::Process => "process",
        }
    }

    /// The ways that are simulated if nobody names any.
    fn usual_ways(self) -> Vec<Way> {
        let needs_mps =
            |name: &str| name == "mps" || POLICIES.iter().any(|policy| policy.name == name && policy.shares);
        let names = WAYS.iter().filter(|name| self == Self::Mps || !needs_mps(name));
        names.filter_map(|name| Way::named(name)).collect()
    }
}

fn way(name: &str) -> Result<Way, String> {
    Way::named(name).ok_or_else(|| format!("there is no way {name:?}: say alone, time-slicing, mps or a policy's name"))
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SimError {
    #[error("cannot read {}: {source}", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("{} is no trace: {source}; make one with `detshare record`", .path.display())]
    Trace { path: PathBuf, source: TraceError },
    #[error("{} is no result of a benchmark: {source}; take `results.json` of a `detshare bench`", .path.display())]
    Measured { path: PathBuf, source: serde_json::Error },
    #[error("{} was measured with isolation {measured}: say --isolation {measured}", .path.display())]
    OtherIsolation { path: PathBuf, measured: String },
    #[error("these traces cannot be simulated: {0}")]
    Simulator(#[from] detshare_sim::Error),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl SimError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::OtherIsolation { .. } => exit::USAGE,
            Self::File { .. } | Self::Trace { .. } | Self::Measured { .. } | Self::Simulator(_) => exit::FILES,
            Self::Output(error) => error.exit_code(),
        }
    }
}

fn read(path: &Path) -> Result<String, SimError> {
    std::fs::read_to_string(path).map_err(|source| SimError::File { path: path.to_path_buf(), source })
}

/// Simulates each way, and prints what came of it.
pub(crate) fn run(arguments: Arguments) -> Result<u8, SimError> {
    let mut traces = Vec::new();
    for path in &arguments.traces {
        let text = read(path)?;
        let trace = Trace::from_json(&text).map_err(|source| SimError::Trace { path: path.clone(), source })?;
        traces.push(trace);
    }
    let measured = arguments.measured.as_ref().map(|path| {
        serde_json::from_str(&read(path)?).map_err(|source| SimError::Measured { path: path.clone(), source })
    });
    let measured: Option<Measured> = measured.transpose()?;
    if let (Some(path), Some(found)) = (&arguments.measured, measured.as_ref().and_then(Measured::isolation))
        && found != arguments.isolation.name()
    {
        return Err(SimError::OtherIsolation { path: path.clone(), measured: found.to_string() });
    }
    let Some(trace) = together(traces) else { return Ok(0) };
    let ways: Vec<Way> =
        if arguments.ways.is_empty() { arguments.isolation.usual_ways() } else { arguments.ways.clone() };
    let mut settings = Settings {
        run_ns: crate::flags::nanoseconds(arguments.time),
        seed: arguments.seed,
        mps: arguments.isolation == Isolation::Mps,
        ..Settings::default()
    };
    settings.ladder.retain(|width| *width < trace.gpu.sms);
    if let Some(part) = arguments.aggressiveness {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
        let thousandths = (part * f64::from(Dial::MOST)).round() as u16;
        settings.dial = Dial::new(thousandths);
    }
    let simulator = Simulator::new(&trace, settings)?;
    let reports: Vec<Report> = ways.into_iter().map(|way| simulator.run(way)).collect();
    let rows: Vec<_> = reports.iter().flat_map(rows).collect();
    let compared = measured.map(|measured| compare(&reports, &measured));
    table::print(&match (arguments.format, &compared) {
        (Format::Table, None) => table::columns(HEADINGS, &rows),
        (Format::Table, Some(compared)) => {
            format!("{}\n{}", table::columns(HEADINGS, &rows), measured::table(compared))
        }
        (Format::Json, None) => table::json(&reports),
        (Format::Json, Some(compared)) => table::json(&serde_json::json!({ "reports": reports, "compared": compared })),
        (Format::Csv, _) => for_programs(&reports),
    })?;
    Ok(0)
}

const HEADINGS: [(&str, Align); 7] = [
    ("way", Align::Left),
    ("tenant", Align::Left),
    ("p50", Align::Right),
    ("p99", Align::Right),
    ("p99 added", Align::Right),
    ("steps", Align::Right),
    ("share", Align::Right),
];

fn rows(report: &Report) -> Vec<[String; HEADINGS.len()]> {
    let none = || "-".to_string();
    let latency = report.latency.iter().map(|tenant| {
        [
            report.way.to_string(),
            table::harmless(&tenant.name),
            quantity::nanoseconds(tenant.times.p50_ns),
            quantity::nanoseconds(tenant.times.p99_ns),
            in_percent(tenant.p99_overhead),
            tenant.requests.to_string(),
            none(),
        ]
    });
    let best_effort = report.best_effort.iter().map(|tenant| {
        let share = format!("{:.0} %", quantity::approximate(tenant.share) / 10.0);
        let name = table::harmless(&tenant.name);
        [report.way.to_string(), name, none(), none(), none(), tenant.steps.to_string(), share]
    });
    latency.chain(best_effort).collect()
}

/// A row for each tenant under each way, under the names of the fields in JSON.
fn for_programs(reports: &[Report]) -> String {
    let row = |report: &Report| {
        let latency = report.latency.iter().map(|tenant| {
            let (class, name, none) = ("latency".to_string(), tenant.name.clone(), String::new());
            let [p50_ns, p99_ns] = [tenant.times.p50_ns, tenant.times.p99_ns].map(|ns| ns.to_string());
            let [overhead, requests] = [tenant.p99_overhead.to_string(), tenant.requests.to_string()];
            [report.way.to_string(), name, class, p50_ns, p99_ns, overhead, requests, none.clone(), none]
        });
        let best_effort = report.best_effort.iter().map(|tenant| {
            let (class, name, none) = ("best-effort".to_string(), tenant.name.clone(), String::new);
            let [steps, share] = [tenant.steps.to_string(), tenant.share.to_string()];
            [report.way.to_string(), name, class, none(), none(), none(), none(), steps, share]
        });
        latency.chain(best_effort).collect::<Vec<_>>()
    };
    let headings = ["way", "name", "class", "p50_ns", "p99_ns", "p99_overhead", "requests", "steps", "share"];
    table::csv(headings, &reports.iter().flat_map(row).collect::<Vec<_>>())
}

/// Of thousandths.
fn in_percent(thousandths: i64) -> String {
    let sign = if thousandths < 0 { '-' } else { '+' };
    format!("{sign}{:.1} %", quantity::approximate(thousandths.unsigned_abs()) / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_mps_only_ways_that_do_without_are_usual() {
        let names = |isolation: Isolation| isolation.usual_ways().into_iter().map(Way::name).collect::<Vec<_>>();
        assert_eq!(names(Isolation::Mps), WAYS);
        assert_eq!(names(Isolation::Process), ["time-slicing", "exclusive", "slo-aware", "tpot-first"]);
    }
}
