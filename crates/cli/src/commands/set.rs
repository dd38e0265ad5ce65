//! `detshare set`: a tenant's class, weight, memory and objective, while it runs.

use crate::daemon::{self, DaemonError};
use crate::flags;
use crate::quantity;
use crate::table::{self, OutputError};
use clap::{ArgGroup, Args, value_parser};
use detshare_api::{Class, Tenant, TenantPatch};
use std::time::Duration;

/// As the API takes them.
const MOST_WEIGHT: i64 = 10_000;

/// Change a tenant while it runs: its class, weight, memory, objective
///
/// It holds until the tenant ends, or the daemon does; to make it last, write it into the configuration.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("change").required(true).multiple(true))]
pub(crate) struct Arguments {
    /// The tenant's name or process, as `detshare ps` shows them
    #[arg(value_name = "NAME")]
    name: String,

    /// How urgent its work is
    #[arg(long, value_name = "CLASS", value_parser = flags::class(), group = "change")]
    class: Option<Class>,

    /// Its share among its equals, relative to theirs
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=MOST_WEIGHT), group = "change")]
    weight: Option<u32>,

    /// The most GPU memory that it may have, such as 40GiB
    #[arg(long, value_name = "SIZE", value_parser = quantity::parse_size, group = "change", conflicts_with = "no_mem")]
    mem: Option<u64>,

    /// No limit on its memory
    #[arg(long, group = "change")]
    no_mem: bool,

    /// The 99th percentile of its steps that it is to keep to, such as 5ms, or none
    #[arg(long, value_name = "TIME", value_parser = time_or_none, allow_hyphen_values = true, group = "change")]
    p99: Option<TimeOrNone>,

    /// The time to the first token that it is to keep to, such as 1s, or none
    #[arg(long, value_name = "TIME", value_parser = time_or_none, allow_hyphen_values = true, group = "change")]
    ttft: Option<TimeOrNone>,

    /// The time for each further token that it is to keep to, such as 50ms, or none
    #[arg(long, value_name = "TIME", value_parser = time_or_none, allow_hyphen_values = true, group = "change")]
    tpot: Option<TimeOrNone>,
}

#[derive(Debug, Clone, Copy)]
struct TimeOrNone(Option<Duration>);

fn time_or_none(text: &str) -> Result<TimeOrNone, String> {
    match text {
        "none" => Ok(TimeOrNone(None)),
        text => quantity::parse_duration(text).map(|time| TimeOrNone(Some(time))),
    }
}

/// What the flags resolve to.
#[derive(Debug, PartialEq, Eq)]
struct Settings {
    name: String,
    patch: TenantPatch,
}

impl From<Arguments> for Settings {
    fn from(arguments: Arguments) -> Self {
        let Arguments { name, class, weight, mem, no_mem, p99, ttft, tpot } = arguments;
        let memory = if no_mem { Some(None) } else { mem.map(Some) };
        let time = |time: Option<TimeOrNone>| time.map(|time| time.0.map(flags::nanoseconds));
        let (p99_ns, ttft_ns, tpot_ns) = (time(p99), time(ttft), time(tpot));
        Self { name, patch: TenantPatch { class, weight, paused: None, memory, p99_ns, ttft_ns, tpot_ns } }
    }
}

/// Why nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl SetError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Has it changed, and prints how it is then.
pub(crate) fn run(arguments: Arguments) -> Result<u8, SetError> {
    let Settings { name, patch } = arguments.into();
    let tenant = daemon::client()?.change(&name, &patch).map_err(DaemonError::from)?;
    table::print(&format!("{}\n", table::harmless(&in_words(&tenant))))?;
    Ok(0)
}

fn in_words(tenant: &Tenant) -> String {
    let mut words = vec![tenant.class.to_string(), format!("weight {}", tenant.weight)];
    words.extend(tenant.memory_limit.map(|limit| format!("at most {}", quantity::size(limit))));
    let objective = tenant.objective;
    for (name, time) in [("p99", objective.p99_ns), ("TTFT", objective.ttft_ns), ("TPOT", objective.tpot_ns)] {
        words.extend(time.map(|time| format!("{name} {}", quantity::nanoseconds(time))));
    }
    if tenant.paused {
        words.push("paused".to_string());
    }
    format!("{} (pid {}): {}", tenant.name, tenant.pid, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::ps;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Set {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn resolved(line: &str) -> Result<TenantPatch, clap::error::ErrorKind> {
        let parsed = Set::try_parse_from(std::iter::once("set").chain(line.split_whitespace()));
        parsed.map(|set| Settings::from(set.arguments).patch).map_err(|error| error.kind())
    }

    #[test]
    fn what_is_not_named_stays() {
        let patch = resolved("train --class latency --weight 7").unwrap();
        let expected = TenantPatch { class: Some(Class::Latency), weight: Some(7), ..TenantPatch::default() };
        assert_eq!(patch, expected);
    }

    #[test]
    fn limits_and_objectives_can_be_taken_away() {
        assert_eq!(resolved("train --mem 1GiB").unwrap().memory, Some(Some(1 << 30)));
        assert_eq!(resolved("train --no-mem").unwrap().memory, Some(None));
        assert_eq!(resolved("train --p99 5ms").unwrap().p99_ns, Some(Some(5_000_000)));
        assert_eq!(resolved("train --ttft none").unwrap().ttft_ns, Some(None));
    }

    #[test]
    fn what_makes_no_sense() {
        use clap::error::ErrorKind;
        assert_eq!(resolved("train"), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!(resolved("train --mem 1GiB --no-mem"), Err(ErrorKind::ArgumentConflict));
        assert_eq!(resolved("train --weight 0"), Err(ErrorKind::ValueValidation));
        assert_eq!(resolved("train --weight 10001"), Err(ErrorKind::ValueValidation));
        assert_eq!(resolved("train --tpot soon"), Err(ErrorKind::ValueValidation));
        assert_eq!(resolved("train --class fast"), Err(ErrorKind::InvalidValue));
    }

    #[test]
    fn a_tenant_in_words() {
        let mut tenant = ps::tests::tenant("train", 9, Class::BestEffort);
        tenant.memory_limit = Some(40 << 30);
        tenant.paused = true;
        tenant.objective.p99_ns = Some(5_000_000);
        assert_eq!(in_words(&tenant), "train (pid 9): best-effort, weight 100, at most 40.0 GiB, p99 5.00 ms, paused");
    }
}
