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
//! An LLM server has requests in place of steps: each has a prompt, which is read in chunks, and then a token with each decode step
//! ([`Server`], as `workloads/llm_server.py` does it). This one has a chunk of two launches, and graphs for decode steps over up to
//! 8 and up to 64 spans of 256 tokens:
//!
//! ```
//! let trace = detshare_sim::trace::Trace::from_json(r#"{
//!   "version": 1,
//!   "gpu": { "name": "H200", "sms": 132 },
//!   "kernels": [
//!     { "id": "c0de", "name": "prefill", "bound": "compute", "durations": [{ "sms": 132, "ns": 9000000 }] },
//!     { "id": "5eb1", "name": "decode-8", "nodes": 420, "bound": "memory", "durations": [{ "sms": 132, "ns": 5700000 }] },
//!     { "id": "5eb2", "name": "decode-64", "nodes": 420, "bound": "memory", "durations": [{ "sms": 132, "ns": 7100000 }] }
//!   ],
//!   "tenants": [
//!     { "name": "chat", "class": "latency", "ttft_ns": 500000000, "tpot_ns": 30000000, "server": {
//!         "rows": 32, "chunk": 512, "interleave": true, "cache_tokens": 65536, "host_ns": 600000,
//!         "prefill": [{ "kernel": 0 }, { "kernel": 0, "gap_ns": 4000 }],
//!         "decode": [{ "spans": 8, "kernel": 1 }, { "spans": 64, "kernel": 2 }],
//!         "requests": [{ "at_ns": 0, "prompt": 1000, "output": 130 }, { "at_ns": 240000000, "prompt": 60, "output": 9 }] } }
//!   ]
//! }"#)?;
//! assert_eq!(trace.tenants[0].server.as_ref().map(|server| server.requests.len()), Some(2));
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
/// Tokens of a request or a cache, and rows, at most: what is beyond that is no server.
const MOST_TOKENS: u32 = 1 << 24;
const MOST_ROWS: u32 = 1 << 16;
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
    /// What it launches, step by step; after the last comes the first again. A server has none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// What makes it an LLM server: requests in place of steps and arrivals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
}

/// An LLM server, which batches requests as they come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// Requests that run at once, at most; 32 if left out. Each decode step has as many rows.
    #[serde(default = "usual_rows")]
    pub rows: u32,
    /// Tokens of a prompt that a prefill step reads; 512 if left out.
    #[serde(default = "usual_chunk")]
    pub chunk: u32,
    /// Whether there is a decode step between two chunks; true if left out.
    #[serde(default = "yes")]
    pub interleave: bool,
    /// Tokens that the cache has room for, in prompts and answers of all that run; 65536 if left out.
    #[serde(default = "usual_cache")]
    pub cache_tokens: u32,
    /// What the host does before each step, while the GPU has nothing of it.
    #[serde(default)]
    pub host_ns: u64,
    /// Decode steps by how much they read, least first.
    pub decode: Vec<Decode>,
    /// What a prefill step launches: as much for the last chunk of a prompt as for any other.
    pub prefill: Vec<Launch>,
    /// What the host does before prefill steps beside that, one after the other; after the last comes the first again. Nothing if
    /// left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefill_host_ns: Vec<u64>,
    /// When requests come, and how long they are; times rise.
    pub requests: Vec<Request>,
}

/// A decode step, one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decode {
    /// Spans of 256 tokens that it has room for: each row has as many as its tokens begin, at least one.
    pub spans: u32,
    /// Which kernel: its place among the trace's.
    pub kernel: u32,
}

/// A request of an LLM server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// When it comes, since the beginning.
    pub at_ns: u64,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Tokens of its answer.
    pub output: u32,
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

fn usual_rows() -> u32 {
    32
}

fn usual_chunk() -> u32 {
    512
}

fn usual_cache() -> u32 {
    65_536
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
        if let Some(server) = &tenant.server {
            if tenant.class != Class::Latency || !tenant.steps.is_empty() || tenant.arrivals.is_some() {
                let what = "a server is a latency tenant, with requests in place of steps and arrivals";
                return Err(impossible("server".to_owned(), what));
            }
            return self.check_server(server).map_err(|error| error.under("server"));
        }
        if tenant.steps.is_empty() {
            return Err(impossible("steps".to_owned(), "there are none"));
        }
        for (index, step) in tenant.steps.iter().enumerate() {
            self.check_launches(step, &format!("steps[{index}]"))?;
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

    fn check_launches(&self, step: &[Launch], place: &str) -> Result<(), TraceError> {
        if step.is_empty() {
            return Err(impossible(place.to_owned(), "it launches nothing"));
        }
        for (index, launch) in step.iter().enumerate() {
            let place = |field: &str| format!("{place}[{index}].{field}");
            self.check_kernel_place(launch.kernel, || place("kernel"))?;
            within(launch.gap_ns, 0, LONGEST_PAUSE_NS, || place("gap_ns"))?;
        }
        Ok(())
    }

    fn check_kernel_place(&self, kernel: u32, place: impl FnOnce() -> String) -> Result<(), TraceError> {
        if usize::try_from(kernel).map_or(true, |kernel| kernel >= self.kernels.len()) {
            let what = format!("{kernel} is none of the {} kernels", self.kernels.len());
            return Err(impossible(place(), &what));
        }
        Ok(())
    }

    fn check_server(&self, server: &Server) -> Result<(), TraceError> {
        within(server.rows, 1, MOST_ROWS, || "rows".to_owned())?;
        within(server.chunk, 1, MOST_TOKENS, || "chunk".to_owned())?;
        within(server.cache_tokens, 1, MOST_TOKENS, || "cache_tokens".to_owned())?;
        within(server.host_ns, 0, LONGEST_PAUSE_NS, || "host_ns".to_owned())?;
        self.check_launches(&server.prefill, "prefill")?;
        for (index, host_ns) in server.prefill_host_ns.iter().enumerate() {
            within(*host_ns, 0, LONGEST_PAUSE_NS, || format!("prefill_host_ns[{index}]"))?;
        }
        if server.decode.is_empty() {
            return Err(impossible("decode".to_owned(), "there are no decode steps"));
        }
        let mut fewer = 0;
        for (index, decode) in server.decode.iter().enumerate() {
            within(decode.spans, fewer + 1, MOST_TOKENS, || format!("decode[{index}].spans"))?;
            self.check_kernel_place(decode.kernel, || format!("decode[{index}].kernel"))?;
            fewer = decode.spans;
        }
        let mut before = 0;
        for (index, request) in server.requests.iter().enumerate() {
            let place = |field: &'static str| move || format!("requests[{index}].{field}");
            within(request.at_ns, before, LAST_NS, place("at_ns"))?;
            within(request.prompt, 1, MOST_TOKENS, place("prompt"))?;
            within(request.output, 1, MOST_TOKENS, place("output"))?;
            before = request.at_ns;
        }
        Ok(())
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
