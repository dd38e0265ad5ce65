//! Which requests an LLM server is sent, and how fast: the same in every arm.

use super::answers::Answers;
use super::scenario::{Program, Trace};
use super::schedule::LLM_WARM_UP_SECONDS;
use super::service::Objectives;
use crate::quantity;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Requests that come as good as at once, to see how fast a server can be: twice as many as it takes at a time.
const AT_ONCE_REQUESTS: u32 = 64;
const AT_ONCE_PER_SECOND: f64 = 1e6;

/// Fewer requests say little of how a server does.
const FEWEST_COUNTED: u32 = 10;

/// What a server is sent at one load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Replay {
    pub(crate) program: &'static str,
    /// For which part of the time all servers are to be busy alone, added up; nothing if only requests a second were asked for.
    pub(crate) load: Option<f64>,
    /// How many it answered in a second when all came at once, if that was seen.
    pub(crate) saturated: Option<f64>,
    /// The part of the time in which it was busy alone, while requests came.
    pub(crate) busy_alone: Option<f64>,
    /// All that are sent.
    pub(crate) requests: u32,
    /// How many of them come first and do not count.
    pub(crate) warm_up: u32,
    pub(crate) per_second: f64,
    /// Nothing where the server makes requests up.
    pub(crate) trace: Option<PathBuf>,
    /// As which the server makes them up.
    synthetic: &'static str,
    skip: u32,
    even: Option<u32>,
    model: Option<&'static str>,
    /// What it is to keep to, as far as that is known by now.
    pub(crate) objectives: Objectives,
    /// What was asked for; the rest is taken from alone.
    asked: Objectives,
}

/// What is the same at every load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The folder of traces.
    pub(crate) folder: Option<&'a Path>,
    pub(crate) model: Option<&'static str>,
    pub(crate) objectives: Objectives,
}

impl Replay {
    /// Requests at once, so that the server is never without work.
    pub(crate) fn at_once(program: &Program, trace: Trace, source: Source<'_>) -> Self {
        Self {
            program: program.name,
            load: None,
            saturated: None,
            busy_alone: None,
            requests: AT_ONCE_REQUESTS,
            warm_up: 0,
            per_second: AT_ONCE_PER_SECOND,
            trace: source.folder.map(|folder| folder.join(trace.file)),
            synthetic: trace.synthetic,
            skip: trace.skip,
            even: trace.even,
            model: source.model,
            objectives: source.objectives,
            asked: source.objectives,
        }
    }

    /// The same server at so many requests a second, for so long and, before that, for as long as requests do not count.
    pub(crate) fn at_rate(&self, per_second: f64, seconds: u32) -> Self {
        let warm_up = requests_in(per_second, LLM_WARM_UP_SECONDS);
        let requests = (warm_up + requests_in(per_second, seconds)).max(1);
        Self { requests, warm_up: warm_up.min(requests - 1), per_second, ..self.clone() }
    }

    /// What of the answers counts.
    pub(crate) fn counted(&self, answers: &Answers) -> Answers {
        let mut requests = answers.requests.clone();
        let first = requests.len().min(self.warm_up as usize);
        requests.drain(..first);
        Answers { requests, not_arrived: answers.not_arrived, ..Answers::default() }
    }

    /// The same, of a load.
    pub(crate) fn of_load(self, load: Option<f64>) -> Self {
        Self { load, ..self }
    }

    /// For the server's command line.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let (name, value) = match &self.trace {
            Some(file) => ("--trace", file.display().to_string()),
            None => ("--synthetic", self.synthetic.to_string()),
        };
        let mut arguments = vec![name.to_string(), value];
        let mut add = |name: &str, value: String| arguments.extend([name.to_string(), value]);
        add("--skip", self.skip.to_string());
        add("--requests", self.requests.to_string());
        add("--at-rate", self.per_second.to_string());
        if let Some(model) = self.model {
            add("--shape", model.to_string());
        }
        arguments
    }

    /// For `detshare run`.
    pub(crate) fn run_arguments(&self) -> Vec<String> {
        let objectives = [("--ttft", self.objectives.ttft_ms), ("--tpot", self.objectives.tpot_ms)];
        let known = objectives.into_iter().filter_map(|(name, limit)| Some((name, limit?)));
        known.flat_map(|(name, limit)| [name.to_string(), format!("{limit:.3}ms")]).collect()
    }

    /// Where the requests come from.
    pub(crate) fn source(&self) -> String {
        match &self.trace {
            Some(file) => file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned(),
            None => format!("a synthetic {} trace, as there is no --trace-folder", self.synthetic),
        }
    }

    /// In a line: what it was sent, and what it is to keep to.
    pub(crate) fn in_words(&self) -> String {
        let known = [
            self.load.map(|load| format!("load {load}")),
            self.saturated.map(|rate| format!("with all at once it did {}", quantity::number(rate))),
            self.busy_alone.map(|part| format!("alone it is busy {} of the time", super::words::percent(part))),
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        let load = if known.is_empty() { String::new() } else { format!(" ({})", known.join("; ")) };
        let rate = quantity::number(self.per_second);
        format!(
            "{}: {} requests of {}, {rate} a second{load}; {}",
            self.program,
            self.requests - self.warm_up,
            self.source(),
            self.limits()
        )
    }

    /// What would be misread without it.
    pub(crate) fn warning(&self) -> Option<String> {
        self.too_few().or_else(|| self.beyond_what_is_even())
    }

    fn too_few(&self) -> Option<String> {
        let counted = self.requests - self.warm_up;
        let counts = if counted == 1 { "request counts" } else { "requests count" };
        (counted < FEWEST_COUNTED).then(|| {
            let seconds = (f64::from(FEWEST_COUNTED) / self.per_second).ceil();
            format!("{}: only {counted} {counts}: raise --seconds to {seconds}, or the load", self.program)
        })
    }

    fn beyond_what_is_even(&self) -> Option<String> {
        let even = self.even.filter(|even| self.trace.is_some() && self.requests > *even)?;
        Some(format!(
            "{}: after the first {even} of its {} requests {} has a long pause, in which nothing comes: lower --seconds or --load",
            self.program,
            self.requests,
            self.source()
        ))
    }

    fn limits(&self) -> String {
        let limit = |name: &str, limit: Option<f64>, asked: Option<f64>, times: f64| {
            let from = if asked.is_some() { String::new() } else { format!(" ({times} times its p99 alone)") };
            limit.map(|limit| format!("{name} within {}{from}", super::words::milliseconds(limit)))
        };
        let Objectives { ttft_ms, tpot_ms } = self.objectives;
        let known = [
            limit("TTFT", ttft_ms, self.asked.ttft_ms, super::service::TTFT_TIMES_ALONE),
            limit("TPOT", tpot_ms, self.asked.tpot_ms, super::service::TPOT_TIMES_ALONE),
        ];
        let known: Vec<String> = known.into_iter().flatten().collect();
        if known.is_empty() {
            return "no objectives, as it did not run alone: add the arm, or give --ttft and --tpot".to_string();
        }
        format!("objectives: {}", known.join(", "))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of requests, within its limits")]
fn requests_in(per_second: f64, seconds: u32) -> u32 {
    // Half of all numbers, so that two of them can be added.
    (per_second * f64::from(seconds)).round().clamp(0.0, f64::from(u32::MAX / 2)) as u32
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::scenario::SCENARIOS;
    use super::*;

    pub(crate) fn replay(folder: Option<&Path>) -> Replay {
        let scenario = SCENARIOS.iter().find(|one| one.name == "llm-llm").unwrap();
        let (program, trace) = scenario.servers().next().unwrap();
        Replay::at_once(program, trace, Source { folder, model: None, objectives: Objectives::default() })
    }

    #[test]
    fn so_many_come_as_there_is_time_for() {
        let one = replay(None).at_rate(6.0, 30);
        assert_eq!((one.requests, one.warm_up, one.per_second), (192, 12, 6.0));
        let slow = replay(None).at_rate(0.001, 5);
        assert_eq!((slow.requests, slow.warm_up), (1, 0));
    }

    #[test]
    fn the_first_requests_do_not_count() {
        use super::super::answers::tests::answer;
        let requests = (0..6).map(|index| answer(index, 0.0, 0.1, 0.1, 3)).collect();
        let answers = Answers { requests, not_arrived: 1, ..Answers::default() };
        let counted = replay(None).at_rate(2.0, 1).counted(&answers);
        assert_eq!((counted.requests.len(), counted.requests[0].index, counted.not_arrived), (2, 4, 1));
        assert!(replay(None).at_rate(9.0, 1).counted(&answers).requests.is_empty());
    }

    #[test]
    fn the_server_is_told_what_to_replay() {
        let line = replay(None).at_rate(2.5, 4).arguments().join(" ");
        assert_eq!(line, "--synthetic conversation --skip 500 --requests 15 --at-rate 2.5");
        let mut with_trace = replay(Some(Path::new("/traces"))).at_rate(2.5, 4);
        with_trace.model = Some("8b");
        let line = with_trace.arguments().join(" ");
        assert_eq!(line, "--trace /traces/azure-llm-2023-conv.csv --skip 500 --requests 15 --at-rate 2.5 --shape 8b");
    }

    #[test]
    fn a_run_beyond_what_comes_evenly_is_said_to_be_one() {
        let scenario = SCENARIOS.iter().find(|one| one.name == "llm-llm").unwrap();
        let (program, trace) = scenario.servers().nth(1).unwrap();
        let of = |folder, seconds| {
            let source = Source { folder, model: None, objectives: Objectives::default() };
            Replay::at_once(program, trace, source).at_rate(10.0, seconds).warning()
        };
        let folder = Some(Path::new("/traces"));
        assert_eq!(of(folder, 46), None);
        let said = of(folder, 47).unwrap();
        assert!(
            said.starts_with("code: after the first 480 of its 490 requests azure-llm-2023-code.csv has"),
            "{said}"
        );
        assert_eq!(of(None, 47), None, "what is made up has none");
        assert_eq!(replay(folder).at_rate(10.0, 60).warning(), None);
    }

    #[test]
    fn objectives_go_to_the_shim_once_they_are_known() {
        let mut replay = replay(None).at_rate(6.0, 30).of_load(Some(0.5));
        assert!(replay.run_arguments().is_empty());
        assert!(
            replay
                .in_words()
                .ends_with("no objectives, as it did not run alone: add the arm, or give --ttft and --tpot")
        );
        replay.objectives = Objectives { ttft_ms: Some(300.0), tpot_ms: Some(12.3456) };
        (replay.saturated, replay.busy_alone) = (Some(9.0), Some(0.625));
        replay.asked.ttft_ms = Some(300.0);
        assert_eq!(replay.run_arguments().join(" "), "--ttft 300.000ms --tpot 12.346ms");
        assert_eq!(
            replay.in_words(),
            "chat: 180 requests of a synthetic conversation trace, as there is no --trace-folder, 6.00 a second (load 0.5; \
             with all at once it did 9.00; alone it is busy 62 % of the time); objectives: TTFT within 300 ms, TPOT within 12.3 ms (1.25 times its p99 alone)"
        );
    }
}
