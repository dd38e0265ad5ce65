//! What was launched, or could be: kernels with what they take, and tenants with what they launch and when.
//!
//! A trace is JSON. It is made from a run on a GPU, or in code ([`crate::synthetic`]). One with a small server beside a
//! training loop of two kernels:
//!
//! ```
//! let trace = detshare_sim::trace::Trace::from_json(r#"{
//!   "version": 1,
//!   "gpu": { "name": "H200", "sms": 132 },
//!   "kernels": [
//!     { "id": "5eb1", "name": "decode", "nodes": 200, "bound": "memory",
//!       "durations": [{ "sms": 64, "ns": 1600000 }, { "sms": 132, "ns": 1187000 }] },
//!     { "id": "90af", "name": "matmul", "bound": "compute", "durations": [{ "sms": 132, "ns": 300000 }] },
//!     { "id": "77c0", "name": "add", "durations": [{ "sms": 132, "ns": 20000 }] }
//!   ],
//!   "tenants": [
//!     { "name": "serve", "class": "latency", "steps": [[{ "kernel": 0 }]],
//!       "arrivals": { "kind": "periodic", "period_ns": 6000000 } },
//!     { "name": "train", "class": "best-effort", "steps": [[{ "kernel": 1, "gap_ns": 4000 }, { "kernel": 2 }]] }
//!   ]
//! }"#)?;
//! assert_eq!(trace.tenants[1].steps[0].len(), 2);
//! # Ok::<(), detshare_sim::trace::TraceError>(())
//! ```
//!
//! The fields are those of [`Trace`] and what it is made of; those with a default may be left out. A file that is broken, or
//! says what cannot be, gives an error that says what is wrong and where.

use core::fmt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// SMs of a GPU, at most.
const MOST_SMS: u32 = 1_024;
/// Tenants, at most: the policies know so many slots.
const MOST_TENANTS: usize = 64;
const MOST_WEIGHT: u32 = 10_000;
const MOST_NODES: u32 = 1 << 20;
const MOST_QUEUE: u32 = 1 << 20;
/// The longest kernel: policies believe no more either.
const LONGEST_KERNEL_NS: u64 = 10_000_000_000;
/// The longest pause of any kind: an hour.
const LONGEST_PAUSE_NS: u64 = 3_600_000_000_000;
/// The shortest distance of arrivals, so that a trace cannot ask for more requests than anybody could wait for.
const SHORTEST_PERIOD_NS: u64 = 1_000;
/// The last time that can be recorded: thirty days.
pub(crate) const LAST_NS: u64 = 30 * 24 * 3_600 * 1_000_000_000;

/// Kernels, and the tenants that launch them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// [`VERSION`].
    pub version: u32,
    /// Where the durations are from.
    pub gpu: Gpu,
    /// All kernels and graphs that are launched.
    pub kernels: Vec<Kernel>,
    /// Who launches them. Their order is that of their slots.
    pub tenants: Vec<Tenant>,
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// How many SMs it has.
    pub sms: u32,
}

/// A kernel, or a graph that is launched as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// Tells it from all others.
    pub id: String,
    /// What people call it.
    #[serde(default)]
    pub name: String,
    /// How many kernels it is: 1, or a graph's nodes. Beside others' work each has to find room on the SMs.
    #[serde(default = "one")]
    pub nodes: u32,
    /// What it needs most. Without it, it is told from the durations, if there are several.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// How long it takes, narrowest first. The last is on all SMs.
    pub durations: Vec<OnSms>,
}

/// How long a kernel takes on so many SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnSms {
    /// On how many.
    pub sms: u32,
    /// How long.
    pub ns: u64,
}

/// What a kernel needs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// SMs.
    Compute,
    /// Memory bandwidth.
    Memory,
}

/// A process that launches kernels.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tenant {
    /// What people call it.
    pub name: String,
    /// How urgent its work is.
    pub class: Class,
    /// Its weight among its equals, 1 to 10000; 100 if left out.
    #[serde(default = "usual_weight")]
    pub weight: u32,
    /// How many launches the driver takes before it makes the program wait; 1024 if left out.
    #[serde(default = "usual_queue")]
    pub queue: u32,
    /// Whether a best-effort tenant waits for the GPU at the end of each step; true if left out. Latency tenants do.
    #[serde(default = "yes")]
    pub waits: bool,
    /// What it launches, step by step; after the last comes the first again.
    pub steps: Vec<Vec<Launch>>,
    /// When a latency tenant's requests come, of which each is a step. A best-effort tenant goes on by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// What an LLM server wants: its first token this long after it began with a request, at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_ns: Option<u64>,
    /// And at most so long between two tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_ns: Option<u64>,
}

/// How urgent a tenant's work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// Answers users and has a deadline.
    Latency,
    /// Takes what is left.
    BestEffort,
}

/// A launch of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launch {
    /// Which kernel: its place among the trace's.
    pub kernel: u32,
    /// What the program does on the host before it, after the launch before.
    #[serde(default)]
    pub gap_ns: u64,
}

/// When requests come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Arrivals {
    /// By a clock, whether the one before is answered or not.
    Periodic {
        /// The distance of two.
        period_ns: u64,
        /// Each comes later than that by up to so much.
        #[serde(default)]
        jitter_ns: u64,
    },
    /// At random, independently of each other.
    Poisson {
        /// Their mean distance.
        mean_ns: u64,
    },
    /// One at a time: the next comes so long after the one before was answered.
    Pause {
        /// How long after.
        pause_ns: u64,
        /// Each comes later than that by up to so much.
        #[serde(default)]
        jitter_ns: u64,
    },
    /// At these times, which rise. None come after the last.
    Recorded {
        /// Since the beginning.
        at_ns: Vec<u64>,
    },
}

fn one() -> u32 {
    1
}

fn usual_weight() -> u32 {
    100
}

fn usual_queue() -> u32 {
    1_024
}

fn yes() -> bool {
    true
}

/// What is wrong with a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceError {
    /// It is not JSON, or not the JSON of a trace.
    Json {
        /// The line, from 1.
        line: usize,
        /// The column there.
        column: usize,
        /// What is wrong there.
        what: String,
    },
    /// Another version of the format.
    Version {
        /// Which.
        found: u32,
    },
    /// It says what cannot be.
    Impossible {
        /// Where, such as `tenants[1].steps[0][3].kernel`.
        place: String,
        /// What.
        what: String,
    },
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json { line, column, what } => write!(f, "line {line}, column {column}: {what}"),
            Self::Version { found } => write!(f, "version: {found} is not known here; this reads version {VERSION}"),
            Self::Impossible { place, what } => write!(f, "{place}: {what}"),
        }
    }
}

impl core::error::Error for TraceError {}

impl From<serde_json::Error> for TraceError {
    fn from(error: serde_json::Error) -> Self {
        let text = error.to_string();
        // The position is said once.
        let what = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
        Self::Json { line: error.line(), column: error.column(), what: what.to_owned() }
    }
}

impl Trace {
    /// Reads a trace and checks it.
    ///
    /// # Errors
    ///
    /// What is wrong with it, and where.
    pub fn from_json(text: &str) -> Result<Self, TraceError> {
        /// What every version has.
        #[derive(Deserialize)]
        struct AnyVersion {
            version: u32,
        }
        // First, or a newer version's fields would be what is complained about.
        let AnyVersion { version } = serde_json::from_str(text)?;
        if version != VERSION {
            return Err(TraceError::Version { found: version });
        }
        let trace: Self = serde_json::from_str(text)?;
        trace.check()?;
        Ok(trace)
    }

    /// As it is read.
    #[must_use]
    pub fn to_json(&self) -> String {
        // There is nothing in it that JSON has no form for.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether it says what can be.
    ///
    /// # Errors
    ///
    /// The first thing that cannot, and where it stands.
    pub fn check(&self) -> Result<(), TraceError> {
        if self.version != VERSION {
            return Err(TraceError::Version { found: self.version });
        }
        within(self.gpu.sms, 1, MOST_SMS, || "gpu.sms".to_owned())?;
        let mut ids = BTreeSet::new();
        for (index, kernel) in self.kernels.iter().enumerate() {
            self.check_kernel(kernel).map_err(|error| error.under(&format!("kernels[{index}]")))?;
            if !ids.insert(kernel.id.as_str()) {
                return Err(impossible(format!("kernels[{index}].id"), "another kernel has the same"));
            }
        }
        if self.tenants.is_empty() {
            return Err(impossible("tenants".to_owned(), "there are none"));
        }
        if self.tenants.len() > MOST_TENANTS {
            return Err(impossible("tenants".to_owned(), "there are more than 64"));
        }
        let mut names = BTreeSet::new();
        for (index, tenant) in self.tenants.iter().enumerate() {
            self.check_tenant(tenant).map_err(|error| error.under(&format!("tenants[{index}]")))?;
            if !names.insert(tenant.name.as_str()) {
                return Err(impossible(format!("tenants[{index}].name"), "another tenant has the same"));
            }
        }
        Ok(())
    }

    fn check_kernel(&self, kernel: &Kernel) -> Result<(), TraceError> {
        within(kernel.nodes, 1, MOST_NODES, || "nodes".to_owned())?;
        let mut narrower = 0;
        for (index, duration) in kernel.durations.iter().enumerate() {
            within(duration.sms, narrower + 1, self.gpu.sms, || format!("durations[{index}].sms"))?;
            within(duration.ns, 1, LONGEST_KERNEL_NS, || format!("durations[{index}].ns"))?;
            narrower = duration.sms;
        }
        if narrower != self.gpu.sms {
            let what = format!("none is on all {} SMs", self.gpu.sms);
            return Err(impossible("durations".to_owned(), &what));
        }
        Ok(())
    }

    fn check_tenant(&self, tenant: &Tenant) -> Result<(), TraceError> {
        if tenant.name.is_empty() {
            return Err(impossible("name".to_owned(), "it is empty"));
        }
        within(tenant.weight, 1, MOST_WEIGHT, || "weight".to_owned())?;
        within(tenant.queue, 1, MOST_QUEUE, || "queue".to_owned())?;
        if tenant.steps.is_empty() {
            return Err(impossible("steps".to_owned(), "there are none"));
        }
        for (step_index, step) in tenant.steps.iter().enumerate() {
            if step.is_empty() {
                return Err(impossible(format!("steps[{step_index}]"), "it launches nothing"));
            }
            for (index, launch) in step.iter().enumerate() {
                let place = |field: &str| format!("steps[{step_index}][{index}].{field}");
                if usize::try_from(launch.kernel).map_or(true, |kernel| kernel >= self.kernels.len()) {
                    let what = format!("{} is none of the {} kernels", launch.kernel, self.kernels.len());
                    return Err(impossible(place("kernel"), &what));
                }
                within(launch.gap_ns, 0, LONGEST_PAUSE_NS, || place("gap_ns"))?;
            }
        }
        match (&tenant.arrivals, tenant.class) {
            (Some(arrivals), Class::Latency) => arrivals.check(),
            (None, Class::Latency) => Err(impossible("arrivals".to_owned(), "a latency tenant needs some")),
            (Some(_), Class::BestEffort) => {
                Err(impossible("arrivals".to_owned(), "a best-effort tenant goes on by itself"))
            }
            (None, Class::BestEffort) => Ok(()),
        }
    }
}

impl Arrivals {
    fn check(&self) -> Result<(), TraceError> {
        let field = |name: &'static str| move || format!("arrivals.{name}");
        match self {
            Self::Periodic { period_ns, jitter_ns } => {
                within(*period_ns, SHORTEST_PERIOD_NS, LONGEST_PAUSE_NS, field("period_ns"))?;
                within(*jitter_ns, 0, *period_ns, field("jitter_ns"))
            }
            Self::Poisson { mean_ns } => within(*mean_ns, SHORTEST_PERIOD_NS, LONGEST_PAUSE_NS, field("mean_ns")),
            Self::Pause { pause_ns, jitter_ns } => {
                within(*pause_ns, 0, LONGEST_PAUSE_NS, field("pause_ns"))?;
                within(*jitter_ns, 0, LONGEST_PAUSE_NS, field("jitter_ns"))
            }
            Self::Recorded { at_ns } => {
                let mut before = 0;
                for (index, at) in at_ns.iter().enumerate() {
                    within(*at, before, LAST_NS, || format!("arrivals.at_ns[{index}]"))?;
                    before = *at;
                }
                Ok(())
            }
        }
    }
}

fn impossible(place: String, what: &str) -> TraceError {
    TraceError::Impossible { place, what: what.to_owned() }
}

fn within<T: PartialOrd + fmt::Display>(
    value: T,
    least: T,
    most: T,
    place: impl FnOnce() -> String,
) -> Result<(), TraceError> {
    if value < least || value > most {
        return Err(impossible(place(), &format!("{value} is not between {least} and {most}")));
    }
    Ok(())
}

impl TraceError {
    /// The same, in a larger thing.
    fn under(self, larger: &str) -> Self {
        match self {
            Self::Impossible { place, what } => Self::Impossible { place: format!("{larger}.{place}"), what },
            other => other,
        }
    }
}
