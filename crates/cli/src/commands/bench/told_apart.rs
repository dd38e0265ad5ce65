//! Were the steps of an LLM server told apart as the server itself has them in its log?
//!
//! With `DETSHARE_RECORD` the shim writes down when each step ended and what it was taken for. The server's log says what it
//! did at that time: the last step that ended within one of its own is the one that counts.

use super::answers::{ServerStep, StepKind};
use super::records::{Of, Record, RecordsError};
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// Until when it has them.
    known_until: f64,
}

/// How many steps were what they were taken for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ToldApart {
    pub(crate) steps: usize,
    pub(crate) right: usize,
    /// By what the server did, and what it was taken for.
    pub(crate) taken: BTreeMap<String, BTreeMap<String, usize>>,
}

impl Taken {
    /// What a program wrote down in that folder; nothing where it was not told to.
    pub(crate) fn read(folder: &Path) -> Result<Option<Self>, RecordsError> {
        Ok(Record::read(folder, Of::Steps)?.map(Self::of).filter(|taken| !taken.ends.is_empty()))
    }

    fn of(record: Record) -> Self {
        let known_until = record.known_until();
        Self { ends: record.steps.into_iter().map(|step| (step.ended, step.phase)).collect(), known_until }
    }

    /// Against the server's own log.
    pub(crate) fn against(&self, steps: &[ServerStep]) -> Option<ToldApart> {
        let mut found = ToldApart::default();
        for ServerStep(kind, begin, end, ..) in steps.iter().skip(FIRST).filter(|step| step.2 <= self.known_until) {
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
    use super::super::records::tests::record as read;
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
            lines.push(format!("{{\"at\":{},\"launch\":\"00\",\"held\":0}}", number * 1_000_000 + 200_000));
            lines.push(format!("{{\"at\":{},\"step\":\"ended\",\"phase\":\"{phase}\"}}", number * 1_000_000 + 800_000));
        }
        lines
    }

    fn taken(lines: &[String]) -> Taken {
        Taken::of(read(&lines.join("\n")))
    }

    #[test]
    fn each_step_counts_by_what_it_was_taken_for() {
        let phase = |number: u64| match number {
            60 => "decode",
            61 => "prefill",
            number if number.is_multiple_of(10) => "prefill",
            _ => "decode",
        };
        let all = taken(&record(true, (0..150).filter(|number| *number != 62).map(|number| (number, phase(number)))));
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
            taken(&record(false, ends())).against(&log(150)).unwrap().in_words(),
            "49 of 49 (prefill 5 of 5, decode 44 of 44)"
        );
        assert_eq!(taken(&record(true, ends())).against(&log(150)).unwrap().steps, 100);
        assert_eq!(taken(&record(true, ends())).against(&log(50)), None, "nothing can be known yet");
    }

    #[test]
    fn what_is_kept_of_a_record_is_when_steps_ended() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Taken::read(folder.path()).unwrap(), None);
        let of = |count: u64| record(true, (0..count).map(|number| (number, "decode"))).join("\n");
        std::fs::write(folder.path().join("5.record"), of(0)).unwrap();
        assert_eq!(Taken::read(folder.path()).unwrap(), None, "nothing ended");
        std::fs::write(folder.path().join("5.record"), of(9)).unwrap();
        let taken = Taken::read(folder.path()).unwrap().unwrap();
        assert_eq!((taken.ends.len(), taken.ends[1].clone()), (9, (0.0018, "decode".to_string())));
    }
}
