//! A trace of what a program did on a GPU, from what the shim wrote down (`DETSHARE_RECORD`).
//!
//! A record is a JSON object a line: the process with its lanes, each kernel with what it takes on each lane, then launches and
//! steps with their times. From that come the tenant's steps: everything up to the time when it had nothing left to do. Of the
//! time between two launches only what a program needs is kept: the rest it spent waiting for the GPU or for others.

use crate::speed::told_by_durations;
use crate::trace::{Arrivals, Bound, Class, Gpu, Kernel, Launch, OnSms, Tenant, Trace, VERSION};
use core::fmt;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The version of the records that are read.
const RECORD: u32 = 1;
/// What a program needs between two launches at most; more is waiting.
const LONGEST_GAP_NS: u64 = 20_000;
/// What the driver takes for a launch, which the simulator counts by itself.
const LAUNCH_NS: u64 = 3_000;
/// Steps that are kept; they are repeated.
const MOST_STEPS: usize = 64;
/// A kernel that was never measured.
const USUAL_NS: u64 = 100_000;

/// One line of a record.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// What it is of; the first line.
    Process {
        /// The version of the record.
        record: u32,
        /// What the tenant is called.
        name: String,
        /// Whether it has all up to the end of the process: there is room for so many lines.
        #[serde(default = "is_whole_unless_it_says_otherwise")]
        whole: bool,
        /// Those that it can run on.
        lanes: Vec<Lane>,
    },
    /// A kernel or graph that it launched.
    Kernel {
        /// By which it is known.
        kernel: String,
        /// For people.
        name: String,
        /// Of a graph.
        nodes: Option<u32>,
        /// What it takes on each lane; 0 where nobody knows.
        ns: Vec<u64>,
    },
    /// A launch, as it was decided.
    Launch(Launched),
    /// A step that began or ended.
    Step {
        /// When.
        at: u64,
        /// Which of the two.
        step: Edge,
        /// What one that ended was taken for.
        #[serde(default)]
        phase: Option<String>,
    },
}

fn is_whole_unless_it_says_otherwise() -> bool {
    true
}

/// A lane of a process.
#[derive(Debug, Deserialize)]
pub struct Lane {
    /// By which launches name it.
    pub lane: usize,
    /// For people.
    #[serde(default)]
    pub name: String,
    /// Its SMs.
    pub width: u32,
}

/// A launch, as it was decided. Times are nanoseconds of the clock that all processes of the machine share.
#[derive(Debug, Deserialize)]
pub struct Launched {
    /// When it was let through.
    pub at: u64,
    /// The kernel.
    pub launch: String,
    /// Where it runs.
    #[serde(default)]
    pub lane: usize,
    /// Why it may run there, as the policy numbers reasons.
    #[serde(default)]
    pub reason: u8,
    /// How long it was held before.
    pub held: u64,
    /// Why it was held; 0 if it was not.
    #[serde(default)]
    pub held_for: u8,
    /// What it was expected to take; 0 if nobody knew.
    #[serde(default)]
    pub expected: u64,
    /// What the process was expected to have on the GPU before it.
    #[serde(default)]
    pub in_flight: u64,
}

/// An end of a step.
#[derive(Debug, Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Edge {
    /// Its first launch.
    Began,
    /// Nothing was left to do.
    Ended,
}

/// The lines of a record's text.
pub fn lines(text: &str) -> impl Iterator<Item = Result<Line, RecordError>> {
    text.lines().enumerate().map(|(index, text)| line(index + 1, text))
}

/// One line of a record; `number` is its place, from 1.
pub fn line(number: usize, text: &str) -> Result<Line, RecordError> {
    match serde_json::from_str(text).map_err(|error| RecordError::Line { line: number, what: error.to_string() })? {
        Line::Process { record, .. } if record != RECORD => Err(RecordError::Version { found: record }),
        line => Ok(line),
    }
}

/// Whether a line is a launch, as most are; told without reading it.
#[must_use]
pub fn is_launch(text: &str) -> bool {
    text.contains("\"launch\":")
}

/// Why there is no trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordError {
    /// A line that is none of a record.
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// Of another version.
    Version {
        /// Which.
        found: u32,
    },
    /// It does not say what the process is.
    NoProcess,
    /// There is no step that came to its end.
    NoSteps,
}

impl fmt::Display for RecordError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { line, what } => write!(out, "line {line} is none of a record: {what}"),
            Self::Version { found } => write!(out, "it is a record of version {found}, this reads version {RECORD}"),
            Self::NoProcess => write!(out, "it does not say which process it is of: it is no record, or was cut off"),
            Self::NoSteps => write!(out, "it has no step that came to its end: let the program run for longer"),
        }
    }
}

impl core::error::Error for RecordError {}

/// Makes a trace of one tenant from the text of a record.
pub fn trace(text: &str, name: &str, class: Class) -> Result<Trace, RecordError> {
    let (mut process, mut kernels, mut launches) = (None, Vec::new(), Vec::new());
    let (mut began, mut ended) = (Vec::new(), Vec::new());
    for line in lines(text) {
        match line? {
            Line::Process { name, lanes, .. } => process = Some((name, lanes)),
            Line::Kernel { kernel, name, nodes, ns } => kernels.push((kernel, name, nodes, ns)),
            Line::Launch(Launched { at, launch, held, .. }) => launches.push((at, launch, held)),
            Line::Step { at, step: Edge::Began, .. } => began.push(at),
            Line::Step { at, step: Edge::Ended, .. } => ended.push(at),
        }
    }
    let (own_name, lanes) = process.ok_or(RecordError::NoProcess)?;
    let widths: BTreeMap<usize, u32> = lanes.iter().map(|lane| (lane.lane, lane.width)).collect();
    let sms = widths.get(&0).copied().unwrap_or(1).max(1);
    let mut places = BTreeMap::new();
    let mut known = Vec::new();
    for (id, name, nodes, ns) in kernels {
        places.entry(id.clone()).or_insert_with(|| {
            let nodes = nodes.unwrap_or(1).max(1);
            known.push(Kernel { nodes, ..kernel(id, name, &ns, &widths, sms) });
            known.len() - 1
        });
    }
    launches.sort_by_key(|(at, ..)| *at);
    ended.sort_unstable();
    began.sort_unstable();
    let steps = steps(&launches, &ended, |id| {
        *places.entry(id.to_string()).or_insert_with(|| {
            known.push(kernel(id.to_string(), String::new(), &[], &widths, sms));
            known.len() - 1
        })
    });
    if steps.is_empty() {
        return Err(RecordError::NoSteps);
    }
    // The first steps are slow in many ways.
    let first = (steps.len() / 4).min(steps.len() - 1);
    let kept: Vec<Vec<Launch>> = steps.into_iter().skip(first).take(MOST_STEPS).collect();
    let arrivals = (class == Class::Latency).then(|| {
        let since = began.get(first).copied().unwrap_or(0);
        let mut at_ns: Vec<u64> = began.iter().skip(first).map(|at| at - since).collect();
        at_ns.dedup();
        Arrivals::Recorded { at_ns }
    });
    let name = if name.is_empty() { own_name } else { name.to_string() };
    let name = if name.is_empty() { "tenant".to_string() } else { name };
    let tenant = Tenant {
        name,
        class,
        weight: 100,
        queue: 1_024,
        waits: true,
        steps: kept,
        arrivals,
        ttft_ns: None,
        tpot_ns: None,
        server: None,
    };
    Ok(Trace { version: VERSION, gpu: Gpu { name: String::new(), sms }, kernels: known, tenants: vec![tenant] })
}

fn kernel(id: String, name: String, ns: &[u64], widths: &BTreeMap<usize, u32>, sms: u32) -> Kernel {
    let measured = ns.iter().enumerate().filter(|(_, ns)| **ns != 0);
    let by_width = measured.filter_map(|(lane, ns)| Some((*widths.get(&lane).filter(|width| **width != 0)?, *ns)));
    let mut by_width: BTreeMap<u32, u64> = by_width.collect();
    let is_measured = by_width.contains_key(&sms);
    by_width.entry(sms).or_insert(USUAL_NS);
    let durations: Vec<OnSms> =
        by_width.into_iter().filter(|(width, _)| *width <= sms).map(|(sms, ns)| OnSms { sms, ns }).collect();
    let bound = told_by_durations(&durations).filter(|_| is_measured).map(|bound| match bound {
        detshare_policy::Bound::Compute => Bound::Compute,
        detshare_policy::Bound::Memory => Bound::Memory,
    });
    Kernel { id, name, nodes: 1, bound, durations }
}

/// The launches up to each end.
fn steps(launches: &[(u64, String, u64)], ended: &[u64], mut place: impl FnMut(&str) -> usize) -> Vec<Vec<Launch>> {
    let (mut steps, mut next, mut before) = (Vec::new(), 0, None);
    for end in ended {
        let mut step = Vec::new();
        while let Some((at, id, held)) = launches.get(next).filter(|(at, ..)| at <= end) {
            let waited = before.map_or(0, |before| at.saturating_sub(before)).saturating_sub(*held);
            let gap_ns = waited.saturating_sub(LAUNCH_NS).min(LONGEST_GAP_NS);
            step.push(Launch { kernel: u32::try_from(place(id)).unwrap_or(0), gap_ns });
            (before, next) = (Some(*at), next + 1);
        }
        before = Some(*end);
        if !step.is_empty() {
            steps.push(step);
        }
    }
    steps
}

/// Puts the tenants of several traces on one GPU.
#[must_use]
pub fn together(traces: Vec<Trace>) -> Option<Trace> {
    let mut traces = traces.into_iter();
    let mut all = traces.next()?;
    for trace in traces {
        let mut places = Vec::new();
        for kernel in trace.kernels {
            let known = all.kernels.iter().position(|other| other.id == kernel.id);
            places.push(known.unwrap_or(all.kernels.len()));
            if known.is_none() {
                all.kernels.push(kernel);
            }
        }
        for mut tenant in trace.tenants {
            let server = tenant.server.as_mut();
            let (prefill, decode) = server.map_or((None, None), |it| (Some(&mut it.prefill), Some(&mut it.decode)));
            let launched = tenant.steps.iter_mut().chain(prefill).flatten().map(|launch| &mut launch.kernel);
            for kernel in launched.chain(decode.into_iter().flatten().map(|decode| &mut decode.kernel)) {
                let at = usize::try_from(*kernel).ok().and_then(|at| places.get(at)).copied().unwrap_or(0);
                *kernel = u32::try_from(at).unwrap_or(0);
            }
            all.tenants.push(tenant);
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD_TEXT: &str = r#"{"record":1,"pid":7,"name":"train","whole":true,"lanes":[{"lane":0,"name":"full","width":132},{"lane":1,"name":"front16","width":16}]}
{"kernel":"a1","name":"matmul","ns":[300000,2400000],"measured":[20,10]}
{"kernel":"b2","name":"add","nodes":40,"ns":[0,0],"measured":[0,0]}
{"at":1000,"launch":"a1","stream":"1","lane":0,"reason":1,"held_for":0,"held":0,"expected":0,"in_flight":0}
{"at":1100,"step":"began"}
{"at":9000,"launch":"b2","stream":"1","lane":0,"reason":1,"held_for":0,"held":0,"expected":0,"in_flight":0}
{"at":400000,"step":"ended"}
{"at":900000,"launch":"a1","stream":"1","lane":0,"reason":1,"held_for":9,"held":400000,"expected":300000,"in_flight":0}
{"at":900100,"step":"began"}
{"at":1300000,"step":"ended"}
{"at":1400000,"launch":"a1","stream":"1","lane":0,"reason":1,"held_for":0,"held":0,"expected":300000,"in_flight":0}
"#;

    #[test]
    fn steps_end_where_nothing_was_left_to_do() {
        let trace = trace(RECORD_TEXT, "", Class::BestEffort).unwrap();
        trace.check().unwrap();
        assert_eq!(trace.tenants[0].name, "train");
        let steps = &trace.tenants[0].steps;
        assert_eq!(steps.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(steps[0][1], Launch { kernel: 1, gap_ns: 5_000 });
        assert_eq!(steps[1][0].gap_ns, LONGEST_GAP_NS, "what it waited is no work of its own");
        let on = |sms, ns| OnSms { sms, ns };
        assert_eq!(trace.kernels[0].durations, [on(16, 2_400_000), on(132, 300_000)]);
        assert_eq!(trace.kernels[1].durations, [on(132, USUAL_NS)]);
        assert_eq!((trace.kernels[0].bound, trace.kernels[1].bound), (Some(Bound::Compute), None));
        let faster = super::trace(&RECORD_TEXT.replace("2400000", "350000"), "", Class::BestEffort).unwrap();
        assert_eq!(faster.kernels[0].bound, Some(Bound::Memory));
        assert_eq!([trace.kernels[0].nodes, trace.kernels[1].nodes], [1, 40]);
    }

    #[test]
    fn requests_come_when_steps_began() {
        let trace = trace(RECORD_TEXT, "serve", Class::Latency).unwrap();
        trace.check().unwrap();
        assert_eq!(trace.tenants[0].arrivals, Some(Arrivals::Recorded { at_ns: vec![0, 899_000] }));
    }

    #[test]
    fn tenants_of_two_traces_share_kernels() {
        let one = trace(RECORD_TEXT, "serve", Class::Latency).unwrap();
        let mut other = trace(RECORD_TEXT, "train", Class::BestEffort).unwrap();
        other.kernels[1].id = "c3".to_string();
        let all = together(vec![one, other]).unwrap();
        all.check().unwrap();
        assert_eq!((all.kernels.len(), all.tenants.len()), (3, 2));
        assert_eq!(all.tenants[1].steps[0].iter().map(|launch| launch.kernel).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let error = |text: &str| trace(text, "", Class::BestEffort).unwrap_err();
        assert_eq!(error(""), RecordError::NoProcess);
        assert!(matches!(error("nonsense"), RecordError::Line { line: 1, .. }));
        assert_eq!(error(&RECORD_TEXT.replacen("\"record\":1", "\"record\":9", 1)), RecordError::Version { found: 9 });
        let first: String = RECORD_TEXT.lines().take(3).collect::<Vec<_>>().join("\n");
        assert_eq!(error(&first), RecordError::NoSteps);
        let wild =
            RECORD_TEXT.replace("400000", "18446744073709551615").replace("\"width\":16", "\"width\":4000000000");
        let _ = trace(&wild, "", Class::Latency).map(|trace| trace.check());
    }
}
