//! `detshare ps`: who shares the GPU.

use crate::daemon::{self, DaemonError};
use crate::quantity;
use crate::table::{self, Align, Format, OutputError};
use clap::Args;
use detshare_api::{Missed, Objective, StepLength, Tenant};

/// List the tenants and how they do
///
/// Rates and step times are those of the last 10 seconds. A tenant whose kernels keep running over three times as long as predicted
/// is quarantined: it is kept on few SMs until they do not. One that is no MPS client has another pipe directory than the daemon's
/// MPS: the GPU's time is sliced between it and all others; start it with `detshare run`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// How to print them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

/// Why there is no list.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PsError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl PsError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Asks and prints.
pub(crate) fn run(arguments: Arguments) -> Result<u8, PsError> {
    let tenants = daemon::client()?.tenants().map_err(DaemonError::from)?;
    table::print(&match arguments.format {
        Format::Table if tenants.is_empty() => "no tenants: start one with `detshare run -- PROGRAM`\n".to_string(),
        Format::Table => for_people(&tenants),
        Format::Json => table::json(&tenants),
        Format::Csv => for_programs(&tenants),
    })?;
    Ok(0)
}

fn for_people(tenants: &[Tenant]) -> String {
    use Align::{Left, Right};
    let mut headings = vec![
        ("name", Left),
        ("pid", Right),
        ("class", Left),
        ("state", Left),
        ("lane", Left),
        ("steps/s", Right),
        ("p50", Right),
        ("p99", Right),
        ("launches/s", Right),
        ("holds/s", Right),
        ("memory", Right),
        ("limit", Right),
    ];
    let time = |time: Option<u64>| time.map_or("-".to_string(), quantity::nanoseconds);
    let has_objectives = tenants.iter().any(|tenant| tenant.objective != Objective::default());
    let row = |tenant: &Tenant| {
        let mut row = vec![
            tenant.name.clone(),
            tenant.pid.to_string(),
            tenant.class.to_string(),
            doing(tenant),
            tenant.lane.clone(),
            quantity::number(tenant.steps_per_second),
            time(tenant.step_p50_ns),
            time(tenant.step_p99_ns),
            quantity::number(tenant.launches_per_second),
            quantity::number(tenant.holds_per_second),
            quantity::size(tenant.memory),
            tenant.memory_limit.map_or("-".to_string(), quantity::size),
        ];
        if has_objectives {
            row.push(objectives(tenant));
        }
        row
    };
    if has_objectives {
        headings.push(("objectives", Left));
    }
    table::columns_of(&headings, &tenants.iter().map(row).collect::<Vec<_>>())
}

/// How a tenant does by its objectives, such as `tpot missed by 3 %`.
pub(crate) fn objectives(tenant: &Tenant) -> String {
    let (Objective { p99_ns, ttft_ns, tpot_ns }, Missed { p99, ttft, tpot }) = (tenant.objective, tenant.missed);
    let all = [("p99", p99_ns, p99), ("ttft", ttft_ns, ttft), ("tpot", tpot_ns, tpot)];
    let missed = all.iter().filter_map(|(name, _, part)| Some((name, part.filter(|part| *part >= ALLOWED)?)));
    let missed: Vec<String> = missed.map(|(name, part)| format!("{name} missed by {:.0} %", part * 100.0)).collect();
    let is_judged = all.iter().any(|(_, wanted, part)| wanted.is_some() && part.is_some());
    match missed.as_slice() {
        _ if !is_judged => "-".to_string(),
        [] => "kept".to_string(),
        missed => missed.join(", "),
    }
}

/// The part of steps that a 99th percentile leaves out.
const ALLOWED: f64 = 0.01;

/// What a tenant is doing, in a word: where it is busy with a phase that is known, that. Behind it, what is wrong with it.
fn doing(tenant: &Tenant) -> String {
    let phase = tenant.phase.as_deref().filter(|_| State::of(tenant) == State::Busy);
    let doing = table::harmless(phase.unwrap_or_else(|| State::of(tenant).name()));
    let quarantined = tenant.quarantined.then(|| "quarantined".to_string());
    let stalled = is_stalled(tenant).then(|| "stalled".to_string());
    let stray = is_stray(tenant).then(|| "no MPS client".to_string());
    [Some(doing), quarantined, stalled, stray].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// Whether it does nothing in the middle of a step.
pub(crate) fn is_stalled(tenant: &Tenant) -> bool {
    tenant.stalled && State::of(tenant) == State::Busy
}

/// Whether it shares the GPU by slices of time with all others, although the daemon has an MPS for it.
pub(crate) fn is_stray(tenant: &Tenant) -> bool {
    tenant.mps_client == Some(false)
}

/// What a tenant is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Paused,
    Holding,
    Busy,
    Idle,
}

impl State {
    pub(crate) fn of(tenant: &Tenant) -> Self {
        match tenant {
            Tenant { paused: true, .. } => Self::Paused,
            Tenant { holding: true, .. } => Self::Holding,
            Tenant { busy: true, .. } => Self::Busy,
            _ => Self::Idle,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Holding => "holding",
            Self::Busy => "busy",
            Self::Idle => "idle",
        }
    }
}

/// Everything, under the names of the API's fields.
fn for_programs(tenants: &[Tenant]) -> String {
    let headings = [
        "name",
        "pid",
        "slot",
        "class",
        "paused",
        "busy",
        "lane",
        "lane_width",
        "step",
        "steps_per_second",
        "step_p50_ns",
        "step_p99_ns",
        "launches",
        "launches_per_second",
        "finished",
        "holding",
        "holds",
        "holds_per_second",
        "held_ns",
        "memory",
        "memory_limit",
        "weight",
        "p99_ns",
        "ttft_ns",
        "tpot_ns",
        "gpu",
        "width",
        "mps_client",
        "joined",
        "command",
        "phase",
        "pace_ns",
        "step_lengths",
        "quarantined",
        "missed_p99",
        "missed_ttft",
        "missed_tpot",
        "strained",
        "stalled",
        "doubts",
    ];
    let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let part = |part: Option<f64>| part.map_or(String::new(), |part| part.to_string());
    // Such as 132:1230000, SMs and nanoseconds.
    let length = |length: &StepLength| format!("{}:{}", length.width, length.ns);
    let row = |tenant: &Tenant| {
        [
            tenant.name.clone(),
            tenant.pid.to_string(),
            tenant.slot.to_string(),
            tenant.class.to_string(),
            tenant.paused.to_string(),
            tenant.busy.to_string(),
            tenant.lane.clone(),
            tenant.lane_width.to_string(),
            tenant.step.to_string(),
            tenant.steps_per_second.to_string(),
            number(tenant.step_p50_ns),
            number(tenant.step_p99_ns),
            tenant.launches.to_string(),
            tenant.launches_per_second.to_string(),
            tenant.finished.to_string(),
            tenant.holding.to_string(),
            tenant.holds.to_string(),
            tenant.holds_per_second.to_string(),
            tenant.held_ns.to_string(),
            tenant.memory.to_string(),
            number(tenant.memory_limit),
            tenant.weight.to_string(),
            number(tenant.objective.p99_ns),
            number(tenant.objective.ttft_ns),
            number(tenant.objective.tpot_ns),
            tenant.gpu.clone(),
            tenant.width.to_string(),
            tenant.mps_client.map_or(String::new(), |client| client.to_string()),
            tenant.joined.clone(),
            tenant.command.clone(),
            tenant.phase.clone().unwrap_or_default(),
            number(tenant.pace_ns),
            tenant.step_lengths.iter().map(length).collect::<Vec<_>>().join(" "),
            tenant.quarantined.to_string(),
            part(tenant.missed.p99),
            part(tenant.missed.ttft),
            part(tenant.missed.tpot),
            tenant.strained.to_string(),
            tenant.stalled.to_string(),
            tenant.doubts.to_string(),
        ]
    };
    table::csv(headings, &tenants.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use detshare_api::Class;

    /// A tenant in the middle of its work.
    pub(crate) fn tenant(name: &str, pid: u32, class: Class) -> Tenant {
        Tenant {
            name: name.to_string(),
            pid,
            slot: 1,
            class,
            paused: false,
            busy: true,
            lane: "front16".to_string(),
            lane_width: 16,
            step: 120,
            steps_per_second: 12.0,
            step_p50_ns: Some(1_230_000),
            step_p99_ns: Some(2_000_000),
            launches: 12_000,
            launches_per_second: 12_345.0,
            finished: 11_990,
            holding: false,
            holds: 3,
            holds_per_second: 0.5,
            held_ns: 1000,
            memory: 40 << 30,
            memory_limit: None,
            weight: 100,
            objective: Objective::default(),
            gpu: "DetShare soft".to_string(),
            width: 132,
            mps_client: None,
            joined: "2026-01-01T00:00:00Z".to_string(),
            command: "python3 serve.py, \"x\"".to_string(),
            phase: None,
            pace_ns: None,
            step_lengths: vec![StepLength { width: 132, ns: 1_230_000 }, StepLength { width: 64, ns: 1_500_000 }],
            quarantined: false,
            missed: Missed::default(),
            strained: false,
            stalled: false,
            doubts: false,
        }
    }

    #[test]
    fn people_read_units() {
        let text = for_people(&[tenant("serve", 7, Class::Latency)]);
        let expected = "\
name   pid  class    state  lane     steps/s      p50      p99  launches/s  holds/s    memory  limit
serve    7  latency  busy   front16     12.0  1.23 ms  2.00 ms       12.3k     0.50  40.0 GiB      -
";
        assert_eq!(text, expected);
    }

    #[test]
    fn objectives_are_shown_where_somebody_has_one() {
        let objective = Objective { p99_ns: None, ttft_ns: Some(1), tpot_ns: Some(1) };
        let with = |ttft, tpot| Tenant {
            objective,
            missed: Missed { p99: None, ttft, tpot },
            ..tenant("llm", 7, Class::Latency)
        };
        assert_eq!(objectives(&with(Some(0.0), Some(0.009))), "kept");
        assert_eq!(objectives(&with(None, Some(0.031))), "tpot missed by 3 %");
        assert_eq!(objectives(&with(Some(0.5), Some(0.01))), "ttft missed by 50 %, tpot missed by 1 %");
        let text = for_people(&[with(None, Some(0.2)), tenant("train", 8, Class::BestEffort)]);
        let ends: Vec<_> = text.lines().map(|line| line.rsplit("  ").next().unwrap()).collect();
        assert_eq!(ends, ["objectives", "tpot missed by 20 %", "-"]);
    }

    #[test]
    fn who_is_busy_may_be_decoding() {
        let decoding = Tenant { phase: Some("decode".to_string()), ..tenant("serve", 7, Class::Latency) };
        assert!(for_people(std::slice::from_ref(&decoding)).contains(" decode  front16 "));
        assert!(for_people(&[Tenant { busy: false, ..decoding }]).contains(" idle "));
    }

    #[test]
    fn who_stands_still_is_marked() {
        let tenant = Tenant { stalled: true, phase: Some("decode".to_string()), ..tenant("serve", 7, Class::Latency) };
        assert!(for_people(std::slice::from_ref(&tenant)).contains(" decode, stalled  front16 "));
    }

    #[test]
    fn who_is_quarantined_is_marked() {
        let tenant = Tenant { quarantined: true, ..tenant("train", 7, Class::BestEffort) };
        assert!(for_people(std::slice::from_ref(&tenant)).contains(" busy, quarantined  front16 "));
    }

    #[test]
    fn who_is_no_client_of_mps_is_marked() {
        let stray = Tenant { mps_client: Some(false), ..tenant("train", 7, Class::BestEffort) };
        assert!(for_people(std::slice::from_ref(&stray)).contains(" busy, no MPS client  front16 "));
        let client = Tenant { mps_client: Some(true), ..stray };
        assert!(for_people(std::slice::from_ref(&client)).contains(" busy   front16 "));
    }

    /// So a field that the API gets is not forgotten in the other form.
    #[test]
    fn csv_has_every_field_of_the_api() {
        let tenant = tenant("serve", 7, Class::Latency);
        let text = for_programs(std::slice::from_ref(&tenant));
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headings: Vec<_> = reader.headers().unwrap().iter().map(String::from).collect();
        let serde_json::Value::Object(mut fields) = serde_json::to_value(&tenant).unwrap() else { panic!("no object") };
        let Some(serde_json::Value::Object(objective)) = fields.remove("objective") else { panic!("no objective") };
        fields.extend(objective);
        let Some(serde_json::Value::Object(missed)) = fields.remove("missed") else { panic!("no parts") };
        fields.extend(missed.into_iter().map(|(name, part)| (format!("missed_{name}"), part)));
        let row = reader.records().next().unwrap().unwrap();
        assert_eq!(headings.len(), fields.len());
        for (heading, cell) in headings.iter().zip(&row) {
            let text = match &fields[heading] {
                serde_json::Value::Null => String::new(),
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Array(lengths) => {
                    let length = |length: &serde_json::Value| format!("{}:{}", length["width"], length["ns"]);
                    lengths.iter().map(length).collect::<Vec<_>>().join(" ")
                }
                serde_json::Value::Number(number) => number.to_string().trim_end_matches(".0").to_string(),
                other => other.to_string(),
            };
            assert_eq!(cell, text, "{heading}");
        }
    }
}
