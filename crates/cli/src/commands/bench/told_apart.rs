//! Were the steps of an LLM server told apart as the server itself has them in its log?
//!
//! With `DETSHARE_RECORD` the shim writes down when each step ended and what it was taken for. The server's log says what it
//! did at that time: the last step that ended within one of its own is the one that counts.

use super::answers::{ServerStep, StepKind};
use super::records;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Steps of a server in which nothing can be known yet.
const FIRST: usize = 50;
/// Where nothing ended within a step.
const NOTHING: &str = "nothing";

/// What the shim took steps for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Taken {
    /// When each ended, in seconds of the clock that all processes share, and what for.
    pub(crate) ends: Vec<(f64, String)>,
    /// Whether it has them up to the end of the process.
    is_whole: bool,
}

/// How many steps were what they were taken for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ToldApart {
    pub(crate) steps: usize,
    pub(crate) right: usize,
    /// By what the server did, and what it was taken for.
    pub(crate) taken: BTreeMap<String, BTreeMap<String, usize>>,
}

/// A line of the record that says when a step ended.
#[derive(Deserialize)]
struct EndedLine {
    at: u64,
    phase: String,
}

#[derive(Deserialize)]
struct FirstLine {
    whole: bool,
}

impl Taken {
    /// What a program's processes left in that folder: of several, the one that did most is the server.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let all =
            records::files(folder).filter_map(|path| Some(Self::of(BufReader::new(File::open(path).ok()?).lines())));
        all.max_by_key(|taken| taken.ends.len()).filter(|taken| !taken.ends.is_empty())
    }

    fn of(lines: impl Iterator<Item = std::io::Result<String>>) -> Self {
        let mut taken = Self::default();
        // Most lines are launches: those are not even parsed.
        for line in lines.map_while(Result::ok) {
            if line.contains("\"step\":\"ended\"") {
                let ended = serde_json::from_str::<EndedLine>(&line);
                taken.ends.extend(ended.map(|ended| (records::seconds(ended.at), ended.phase)));
            } else if line.contains("\"record\":") {
                taken.is_whole = serde_json::from_str::<FirstLine>(&line).is_ok_and(|first| first.whole);
            }
        }
        taken
    }

    /// Against the server's own log.
    pub(crate) fn against(&self, steps: &[ServerStep]) -> Option<ToldApart> {
        let known_until = if self.is_whole { f64::INFINITY } else { self.ends.last()?.0 };
        let mut found = ToldApart::default();
        for ServerStep(kind, begin, end, ..) in steps.iter().skip(FIRST).filter(|step| step.2 <= known_until) {
            let ended = self.ends.partition_point(|(at, _)| at <= end);
            let last = ended.checked_sub(1).map(|last| &self.ends[last]).filter(|(at, _)| at >= begin);
            let taken_for = last.map_or(NOTHING, |(_, phase)| phase.as_str());
            found.add(kind.name(), taken_for, 1);
        }
        (found.steps > 0).then_some(found)
    }
}

impl ToldApart {
    fn add(&mut self, kind: &str, taken_for: &str, steps: usize) {
        self.steps += steps;
        self.right += if kind == taken_for { steps } else { 0 };
        *self.taken.entry(kind.to_string()).or_default().entry(taken_for.to_string()).or_default() += steps;
    }

    /// Of all runs together; nothing where there is none.
    pub(crate) fn together<'a>(all: impl Iterator<Item = &'a Self>) -> Option<Self> {
        let mut sum = Self::default();
        for (kind, taken_for, steps) in all.flat_map(Self::counts) {
            sum.add(kind, taken_for, steps);
        }
        (sum.steps > 0).then_some(sum)
    }

    fn counts(&self) -> impl Iterator<Item = (&str, &str, usize)> {
        self.taken.iter().flat_map(|(kind, taken)| {
            taken.iter().map(move |(taken_for, steps)| (kind.as_str(), taken_for.as_str(), *steps))
        })
    }

    /// `980 of 1000 (prefill 95 of 100)`: those that are few are easily lost among the others.
    pub(crate) fn in_words(&self) -> String {
        let of_kind = |kind: StepKind| {
            let taken = self.taken.get(kind.name())?;
            let (right, steps) = (taken.get(kind.name()).copied().unwrap_or(0), taken.values().sum::<usize>());
            Some(format!("{} {right} of {steps}", kind.name()))
        };
        let kinds: Vec<String> = StepKind::ALL.into_iter().filter_map(of_kind).collect();
        format!("{} of {} ({})", self.right, self.steps, kinds.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A prefill step in each ten, each step for a millisecond; steps of the shim end a little before.
    fn log(count: u32) -> Vec<ServerStep> {
        let step = |number: u32| {
            let kind = if number.is_multiple_of(10) { StepKind::Prefill } else { StepKind::Decode };
            let begin = f64::from(number) / 1e3;
            ServerStep(kind, begin, begin + 0.0009, 1, 1)
        };
        (0..count).map(step).collect()
    }

    fn record(is_whole: bool, ends: impl Iterator<Item = (u64, &'static str)>) -> Vec<String> {
        let mut lines = vec![format!("{{\"record\":1,\"pid\":7,\"name\":\"chat\",\"whole\":{is_whole},\"lanes\":[]}}")];
        for (number, phase) in ends {
            lines.push(format!("{{\"at\":{},\"step\":\"began\"}}", number * 1_000_000 + 100_000));
            lines.push(format!("{{\"at\":{},\"launch\":\"00\",\"expected\":5}}", number * 1_000_000 + 200_000));
            lines.push(format!("{{\"at\":{},\"step\":\"ended\",\"phase\":\"{phase}\"}}", number * 1_000_000 + 800_000));
        }
        lines
    }

    fn taken(lines: Vec<String>) -> Taken {
        Taken::of(lines.into_iter().map(Ok))
    }

    #[test]
    fn each_step_counts_by_what_it_was_taken_for() {
        let phase = |number: u64| match number {
            60 => "decode",
            61 => "prefill",
            number if number.is_multiple_of(10) => "prefill",
            _ => "decode",
        };
        let all = taken(record(true, (0..150).filter(|number| *number != 62).map(|number| (number, phase(number)))));
        let found = all.against(&log(150)).unwrap();
        assert_eq!(found.in_words(), "97 of 100 (prefill 9 of 10, decode 88 of 90)", "{found:?}");
        assert_eq!(found.taken["decode"]["nothing"], 1);
        let twice = ToldApart::together([&found, &found].into_iter()).unwrap();
        assert_eq!((twice.steps, twice.right, twice.taken["prefill"]["decode"]), (200, 194, 2));
        assert_eq!(ToldApart::together([].into_iter()), None);
    }

    #[test]
    fn what_was_not_written_down_any_more_is_not_judged() {
        let ends = || (0..100_u64).map(|number| (number, if number.is_multiple_of(10) { "prefill" } else { "decode" }));
        assert_eq!(
            taken(record(false, ends())).against(&log(150)).unwrap().in_words(),
            "49 of 49 (prefill 5 of 5, decode 44 of 44)"
        );
        assert_eq!(taken(record(true, ends())).against(&log(150)).unwrap().steps, 100);
        assert_eq!(taken(record(true, ends())).against(&log(50)), None, "nothing can be known yet");
    }

    #[test]
    fn the_record_of_the_server_is_the_longest() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Taken::read(folder.path()), None);
        for (file, count) in [("5.record", 3), ("6.record", 9), ("7.stats", 20)] {
            let text = record(true, (0..count).map(|number| (number, "decode"))).join("\n");
            std::fs::write(folder.path().join(file), text).unwrap();
        }
        assert_eq!(Taken::read(folder.path()).unwrap().ends.len(), 9);
    }
}
