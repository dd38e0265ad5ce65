//! A tenant, and what can be changed of it.

use crate::BlockLevel;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// How urgent a tenant's work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Answers users and has a deadline.
    Latency,
    /// Takes what is left.
    BestEffort,
}

impl Class {
    /// As it stands in JSON, in the configuration and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::BestEffort => "best-effort",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // So that columns can be aligned.
        out.pad(self.name())
    }
}

/// No class has that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no class {0:?}: it is latency or best-effort")]
pub struct UnknownClass(pub String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(name: &str) -> Result<Self, UnknownClass> {
        let known = [Self::Latency, Self::BestEffort].into_iter().find(|class| class.name() == name);
        known.ok_or_else(|| UnknownClass(name.to_string()))
    }
}

/// What a tenant wants to keep to, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Objective {
    /// The 99th percentile of its steps.
    #[serde(default)]
    pub p99_ns: Option<u64>,
    /// Time to the first token.
    #[serde(default)]
    pub ttft_ns: Option<u64>,
    /// Time for each further token.
    #[serde(default)]
    pub tpot_ns: Option<u64>,
}

/// For each objective, the part of the steps of the last 10 s that missed it, from 0 to 1; nothing where there is no such objective
/// or no step said anything about it. The time between tokens is that between the ends of decode steps; of the time to the first
/// token only the prefill is seen.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Missed {
    /// Of the 99th percentile of steps.
    #[serde(default)]
    pub p99: Option<f64>,
    /// Of the time to the first token.
    #[serde(default)]
    pub ttft: Option<f64>,
    /// Of the time between tokens.
    #[serde(default)]
    pub tpot: Option<f64>,
}

/// `GET /v1/tenants/{name-or-pid}`. Rates are over the last 10 s; so are the quantiles, or over its whole life if no step
/// ended in that time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tenant {
    /// Unique among those that are here.
    pub name: String,
    /// Its process.
    pub pid: u32,
    /// Its slot on the board.
    pub slot: usize,
    /// What it was given.
    pub class: Class,
    /// Whether its launches are held until it is resumed.
    pub paused: bool,
    /// Whether the GPU has work of it.
    pub busy: bool,
    /// The lane that it is bound to: `full`, `front16`, `rest16` and so on.
    pub lane: String,
    /// That lane's SMs; 0 if it did not say.
    pub lane_width: u32,
    /// Steps so far.
    pub step: u64,
    /// Steps in a second.
    pub steps_per_second: f64,
    /// The median step.
    #[serde(default)]
    pub step_p50_ns: Option<u64>,
    /// The 99th percentile.
    #[serde(default)]
    pub step_p99_ns: Option<u64>,
    /// Launches so far.
    pub launches: u64,
    /// Launches in a second.
    pub launches_per_second: f64,
    /// Launches that the GPU has finished.
    pub finished: u64,
    /// Whether a launch is being held now.
    pub holding: bool,
    /// Launches that were held so far.
    pub holds: u64,
    /// Those in a second.
    pub holds_per_second: f64,
    /// How long launches were held, all together.
    pub held_ns: u64,
    /// Bytes of the GPU's memory that it has allocated.
    pub memory: u64,
    /// The most that it may have.
    #[serde(default)]
    pub memory_limit: Option<u64>,
    /// Its weight among its equals.
    pub weight: u32,
    /// What it wants to keep to.
    pub objective: Objective,
    /// The GPU's model.
    pub gpu: String,
    /// The GPU's SMs.
    pub width: u32,
    /// Whether it is a client of our MPS; nothing where there is no MPS or nobody has looked yet.
    #[serde(default)]
    pub mps_client: Option<bool>,
    /// When it came, by RFC 3339.
    pub joined: String,
    /// Its command line.
    pub command: String,
    /// What the step under way is, or the last one was, of one whose steps are of two kinds: `decode` or `prefill`.
    #[serde(default)]
    pub phase: Option<String>,
    /// What its short steps have to do on the GPU.
    #[serde(default)]
    pub pace_ns: Option<u64>,
    /// How long a step is expected to last at each width that it may have; nothing of best-effort tenants, of those whose steps are of two
    /// kinds, and where nobody knows.
    #[serde(default)]
    pub step_lengths: Vec<StepLength>,
    /// Whether its kernels keep running far longer than predicted, so that it is kept on few SMs.
    #[serde(default)]
    pub quarantined: bool,
    /// What part of its steps missed its objectives.
    #[serde(default)]
    pub missed: Missed,
    /// Whether that is more than they allow, so that others make way.
    #[serde(default)]
    pub strained: bool,
    /// Whether its step stands still, so that nobody makes way for it.
    #[serde(default)]
    pub stalled: bool,
    /// Whether it has published something that cannot be.
    pub doubts: bool,
}

/// How long a step is expected to last on so many SMs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLength {
    /// How many.
    pub width: u32,
    /// How long.
    pub ns: u64,
}

/// `GET /v1/tenants/{name-or-pid}/decisions`: why a tenant's last launches went as they did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The tenant.
    pub tenant: Tenant,
    /// The policy in force.
    pub policy: String,
    /// How much best-effort tenants may disturb, from 0 to 1.
    pub aggressiveness: f64,
    /// The last decisions, oldest first. Where there is nobody else none are written down.
    pub decisions: Vec<DecisionMade>,
    /// What becomes of its kernels, where block level is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_level: Option<BlockLevel>,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionMade {
    /// How long ago.
    pub ago_ns: u64,
    /// The kernel's name, once it was measured.
    #[serde(default)]
    pub kernel: Option<String>,
    /// The SMs that it got.
    pub lane_width: u32,
    /// Why it ran then.
    pub reason: String,
    /// How long it was held.
    pub held_ns: u64,
    /// Why it was held at first.
    #[serde(default)]
    pub held_for: Option<String>,
    /// The tenant that it was held for.
    #[serde(default)]
    pub because_of: Option<String>,
    /// How long it was expected to take; nothing where nobody knew.
    #[serde(default)]
    pub predicted_ns: Option<u64>,
    /// What it was taken to last where nobody knew, and why nobody did.
    #[serde(default)]
    pub assumed_ns: Option<u64>,
    /// See above.
    #[serde(default)]
    pub assumed_because: Option<String>,
    /// Whether it was said when a step is due, and that was not believed.
    #[serde(default)]
    pub due_not_believed: bool,
    /// How long this very launch took; nothing where that was not measured, or it has not ended. Asking has the tenant measure its
    /// launches for a second.
    #[serde(default)]
    pub measured_ns: Option<u64>,
}

/// What `PATCH /v1/tenants/{name-or-pid}` takes: what is absent stays as it is. In the doubly optional ones `null` (here
/// `Some(None)`) takes a limit or an objective away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantPatch {
    /// Another class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<Class>,
    /// Another weight, from 1 to 10000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
    /// Whether it is to be paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The most memory that it may have, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub memory: Option<Option<u64>>,
    /// The 99th percentile that it wants to keep to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub p99_ns: Option<Option<u64>>,
    /// Its time to the first token.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub ttft_ns: Option<Option<u64>>,
    /// Its time for each further token.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub tpot_ns: Option<Option<u64>>,
}

impl TenantPatch {
    /// Lets a later change follow this one.
    pub fn extend(&mut self, later: &Self) {
        self.class = later.class.or(self.class);
        self.weight = later.weight.or(self.weight);
        self.paused = later.paused.or(self.paused);
        self.memory = later.memory.or(self.memory);
        self.p99_ns = later.p99_ns.or(self.p99_ns);
        self.ttft_ns = later.ttft_ns.or(self.ttft_ns);
        self.tpot_ns = later.tpot_ns.or(self.tpot_ns);
    }
}

/// A field that is there, be it `null`: `serde` alone would take `null` for an absent one.
fn present<'de, D: Deserializer<'de>>(field: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(field).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_takes_away_and_absent_leaves() {
        let patch: TenantPatch = serde_json::from_str(r#"{"memory": null, "p99_ns": 5}"#).unwrap();
        assert_eq!((patch.memory, patch.p99_ns, patch.ttft_ns), (Some(None), Some(Some(5)), None));
        assert_eq!(serde_json::to_string(&patch).unwrap(), r#"{"memory":null,"p99_ns":5}"#);
        assert!(serde_json::from_str::<TenantPatch>(r#"{"wieght": 5}"#).is_err());
    }

    #[test]
    fn a_later_change_wins_and_leaves_the_rest() {
        let mut patch = TenantPatch { weight: Some(1), memory: Some(Some(7)), ..TenantPatch::default() };
        patch.extend(&TenantPatch { memory: Some(None), paused: Some(true), ..TenantPatch::default() });
        assert_eq!((patch.weight, patch.memory, patch.paused), (Some(1), Some(None), Some(true)));
    }

    #[test]
    fn a_class_reads_as_it_is_written() {
        for class in [Class::Latency, Class::BestEffort] {
            assert_eq!(class.to_string().parse(), Ok(class));
            assert_eq!(serde_json::to_string(&class).unwrap(), format!("{:?}", class.name()));
        }
        assert!("Latency".parse::<Class>().is_err());
    }
}
