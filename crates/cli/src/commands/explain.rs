//! `detshare explain`: why a tenant's launches went as they did.

mod versions;

use crate::commands::ps;
use crate::daemon::{self, DaemonError};
use crate::quantity;
use crate::table::{self, Align, Format, OutputError};
use clap::Args;
use detshare_api::{DecisionMade, Explanation, StepLength};

/// Show a tenant's last decisions: which launches ran where, which were held, for how long and why
///
/// Each decision of a best-effort tenant beside a latency tenant is written down, and each hold; otherwise a decision that
/// differs from the one before it. "predicted" is what a kernel was expected to take, "measured" what that launch took. Few
/// launches are measured while nobody asks; asking has those measured that are decided within the next second, and the answer
/// waits for them, for 0.3 s at most. Nothing is predicted otherwise because of that. Where block level is on, its kernels
/// follow: whether each was rewritten or why not, and which version of it runs.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The tenant's name or process, as `detshare ps` shows them
    #[arg(value_name = "NAME")]
    name: String,

    /// How many of the last decisions
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    last: usize,

    /// How to print them
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplainError {
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl ExplainError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Daemon(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
        }
    }
}

const HEADINGS: [(&str, Align); 7] = [
    ("ago", Align::Right),
    ("kernel", Align::Left),
    ("SMs", Align::Right),
    ("predicted", Align::Right),
    ("measured", Align::Right),
    ("held", Align::Right),
    ("why", Align::Left),
];

/// Prints them.
pub(crate) fn run(arguments: Arguments) -> Result<u8, ExplainError> {
    let mut explanation = daemon::client()?.explain(&arguments.name).map_err(DaemonError::from)?;
    let first = explanation.decisions.len().saturating_sub(arguments.last);
    explanation.decisions.drain(..first);
    table::print(&match arguments.format {
        Format::Table => for_people(&explanation),
        Format::Json => table::json(&explanation),
        Format::Csv => for_programs(&explanation.decisions),
    })?;
    Ok(0)
}

fn for_people(explanation: &Explanation) -> String {
    let Explanation { tenant, policy, aggressiveness, decisions, block_level } = explanation;
    let name = table::harmless(&tenant.name);
    let mut text = format!("{name}, {}, policy {policy}, aggressiveness {aggressiveness}\n", tenant.class);
    if let (Some(phase), Some(pace_ns)) = (&tenant.phase, tenant.pace_ns) {
        let pace = quantity::nanoseconds(pace_ns);
        text.push_str(&format!(
            "an LLM server, it seems: {} now; its decode steps have {pace} of work\n",
            table::harmless(phase)
        ));
    }
    if !tenant.step_lengths.is_empty() {
        let each = |length: &StepLength| format!("{} on {} SMs", quantity::nanoseconds(length.ns), length.width);
        let lengths: Vec<_> = tenant.step_lengths.iter().map(each).collect();
        text.push_str(&format!("a step is expected to last {}\n", lengths.join(", ")));
    }
    if tenant.quarantined {
        text.push_str("quarantined: its kernels keep running over three times as long as predicted\n");
    }
    if tenant.doubts {
        text.push_str("doubted: it has published what cannot be; something sensible was taken instead\n");
    }
    if ps::is_stalled(tenant) {
        text.push_str(
            "stalled: its step stands still for far longer than steps last; nobody makes way for it until it goes on\n",
        );
    }
    if tenant.strained {
        let missed = ps::objectives(tenant);
        text.push_str(&format!("misses its objectives ({missed}): others make way, by class and weight\n"));
    }
    if decisions.is_empty() {
        text.push_str(
            "nothing had to be decided yet: it has launched nothing, or nobody else was on its GPU when it did\n",
        );
    } else {
        text.push_str(&table::columns(HEADINGS, &decisions.iter().map(row).collect::<Vec<_>>()));
    }
    if let Some(block_level) = block_level {
        text.push_str(&versions::for_people(block_level));
    }
    text
}

/// The decisions, under the names of the API's fields.
fn for_programs(decisions: &[DecisionMade]) -> String {
    let number = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let row = |decision: &DecisionMade| {
        [
            decision.ago_ns.to_string(),
            text(&decision.kernel),
            decision.lane_width.to_string(),
            decision.reason.clone(),
            decision.held_ns.to_string(),
            text(&decision.held_for),
            text(&decision.because_of),
            number(decision.predicted_ns),
            number(decision.assumed_ns),
            text(&decision.assumed_because),
            decision.due_not_believed.to_string(),
            number(decision.measured_ns),
        ]
    };
    let headings = [
        "ago_ns",
        "kernel",
        "lane_width",
        "reason",
        "held_ns",
        "held_for",
        "because_of",
        "predicted_ns",
        "assumed_ns",
        "assumed_because",
        "due_not_believed",
        "measured_ns",
    ];
    table::csv(headings, &decisions.iter().map(row).collect::<Vec<_>>())
}

fn row(decision: &DecisionMade) -> [String; HEADINGS.len()] {
    let time = quantity::nanoseconds;
    let known = |ns: Option<u64>, otherwise: &str| ns.map_or_else(|| otherwise.to_string(), time);
    let kernel = decision.kernel.as_deref().unwrap_or("never measured");
    let mut why = match (&decision.held_for, &decision.because_of) {
        (Some(held_for), Some(tenant)) => format!("{held_for} ({tenant}); then {}", decision.reason),
        (Some(held_for), None) => format!("{held_for}; then {}", decision.reason),
        (None, _) => decision.reason.clone(),
    };
    if let (Some(ns), Some(because)) = (decision.assumed_ns, &decision.assumed_because) {
        why.push_str(&format!("; taken for {}: {because}", time(ns)));
    }
    if decision.due_not_believed {
        why.push_str("; when a step is due was not believed");
    }
    [
        time(decision.ago_ns),
        kernel.chars().take(40).collect(),
        decision.lane_width.to_string(),
        known(decision.predicted_ns, "-"),
        known(decision.measured_ns, "not measured"),
        if decision.held_ns == 0 { "-".to_string() } else { time(decision.held_ns) },
        why,
    ]
}
