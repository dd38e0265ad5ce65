//! LLM servers against alone for people, request by request; and how near to alone they could be.

use super::arm::ALONE;
use super::bound::Ideal;
use super::paired::{Interval, Ratios};
use super::replay::Replay;
use super::summary::{ArmSummary, ProgramSummary};
use super::words;
use crate::table::Align;
use serde::Serialize;

pub(crate) const COLUMNS: usize = 9;
pub(crate) const HEADINGS: [(&str, Align); COLUMNS] = [
    ("arm", Align::Left),
    ("server", Align::Left),
    ("requests", Align::Right),
    ("times TTFT alone", Align::Right),
    ("times TPOT alone", Align::Right),
    ("times latency alone", Align::Right),
    ("TTFT p99 added", Align::Right),
    ("TPOT p99 added", Align::Right),
    ("steps told apart", Align::Right),
];
pub(crate) const ABOUT: &str = "Request by request against alone: median / p90 / p99 of how many times as long each took. The ranges are where \
     95 of 100 draws among these requests would be.";

/// The arm that others are held against.
const TIME_SLICING: &str = "time-slicing";

/// A row for each server of each arm but alone, under [`HEADINGS`].
pub(crate) fn rows(arms: &[ArmSummary]) -> Vec<[String; COLUMNS]> {
    let of = |arm| move |program| row(arm, program);
    let others = arms.iter().filter(|arm| arm.arm != ALONE);
    others.flat_map(|arm| arm.programs.iter().filter_map(of(arm))).collect()
}

fn row(arm: &ArmSummary, program: &ProgramSummary) -> Option<[String; COLUMNS]> {
    let service = program.service.as_ref()?;
    let nothing = || "-".to_string();
    let times = |ratios: Option<Ratios>| {
        ratios.map_or_else(nothing, |Ratios { median, p90, p99, .. }| format!("{median:.2} / {p90:.2} / {p99:.2}"))
    };
    let range = |interval: Option<Interval>| {
        interval.map_or_else(nothing, |one| format!("{} … {}", words::added(one.low), words::added(one.high)))
    };
    Some([
        arm.name.clone(),
        program.program.to_string(),
        service.latency_ratios.map_or_else(nothing, |ratios| ratios.requests.to_string()),
        times(service.ttft_ratios),
        times(service.tpot_ratios),
        times(service.latency_ratios),
        range(service.ttft_p99_overhead_interval),
        range(service.tpot_p99_overhead_interval),
        program.told_apart.as_ref().map_or_else(nothing, |found| format!("{} of {}", found.right, found.steps)),
    ])
}

/// What is possible at a load.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Bound {
    pub(crate) load: Option<f64>,
    /// How long all servers were busy alone, added up: above 1 they cannot all be as fast as alone.
    pub(crate) busy: Option<f64>,
    /// The most by which the mean latency can be below that of time-slicing, as nothing is faster than alone.
    pub(crate) below_time_slicing_at_most: Option<f64>,
    /// By how much it would be on a GPU that loses nothing.
    pub(crate) ideal_below_time_slicing: Option<f64>,
    pub(crate) ideal: Option<Ideal>,
}

impl Bound {
    /// At each load that servers were sent.
    pub(crate) fn all(replays: &[Replay], ideals: &[Ideal], arms: &[ArmSummary]) -> Vec<Self> {
        let mut loads: Vec<Option<f64>> = Vec::new();
        for replay in replays {
            if !loads.contains(&replay.load) {
                loads.push(replay.load);
            }
        }
        loads.into_iter().map(|load| Self::of(load, replays, ideals, arms)).collect()
    }

    fn of(load: Option<f64>, replays: &[Replay], ideals: &[Ideal], arms: &[ArmSummary]) -> Self {
        let at_load = replays.iter().filter(|replay| replay.load == load);
        let busy: Option<Vec<f64>> = at_load.map(|replay| replay.busy_alone).collect();
        let ideal = ideals.iter().find(|ideal| ideal.load == load).cloned();
        let mean_of = |name: &str| mean_latency(arms.iter().find(|arm| arm.arm == name && arm.load == load)?);
        let sliced = mean_of(TIME_SLICING).filter(|sliced| *sliced > 0.0);
        let below = |mean: f64| sliced.map(|sliced| 1.0 - mean / sliced);
        Self {
            load,
            busy: busy.map(|parts| parts.iter().sum()),
            below_time_slicing_at_most: mean_of(ALONE).and_then(below),
            ideal_below_time_slicing: ideal.as_ref().and_then(|ideal| below(ideal.ideal_ms())),
            ideal,
        }
    }

    /// In a line; nothing if nothing is known.
    pub(crate) fn in_words(&self) -> Option<String> {
        let busy =
            self.busy.map(|busy| format!("alone servers are busy {} of the time, added up", words::percent(busy)));
        let most = self.below_time_slicing_at_most.map(|part| {
            format!(
                "no mean latency can be more than {} below that of time-slicing, where it is that of alone",
                words::percent(part)
            )
        });
        let ideal = self.ideal.as_ref().map(|ideal| {
            let servers = ideal.servers.iter().map(|one| format!("{} {:.2}", one.program, one.times_alone));
            let below = self
                .ideal_below_time_slicing
                .map_or(String::new(), |part| format!(", {} below that of time-slicing", words::percent(part)));
            format!(
                "with turns that cost nothing it is {:.2} times that of alone ({}; {}){below}",
                ideal.ideal_ms() / ideal.alone_ms(),
                servers.collect::<Vec<_>>().join(", "),
                ideal.order
            )
        });
        let known: Vec<String> = [busy, most, ideal].into_iter().flatten().collect();
        let load = self.load.map_or(String::new(), |load| format!("load {load}: "));
        (!known.is_empty()).then(|| format!("{load}{}", known.join("; ")))
    }
}

/// Of all servers, added up.
fn mean_latency(arm: &ArmSummary) -> Option<f64> {
    let services = arm.programs.iter().filter_map(|program| program.service.as_ref());
    let means: Option<Vec<f64>> = services.map(|service| Some(service.mean_latency_ms?.median)).collect();
    means.filter(|means| !means.is_empty()).map(|means| means.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::super::arm;
    use super::super::bound::IdealServer;
    use super::super::replay::tests::replay;
    use super::super::scenario::SCENARIOS;
    use super::super::summary::summarise;
    use super::super::summary::tests as examples;
    use super::super::told_apart::ToldApart;
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn each_server_stands_against_itself_alone() {
        let mut runs = [examples::llm_run("alone", 1, None, 10.0), examples::llm_run("mps", 1, None, 25.0)];
        let taken = BTreeMap::from([("decode".to_string(), 49), ("prefill".to_string(), 1)]);
        let taken = BTreeMap::from([("decode".to_string(), taken)]);
        runs[1].stretches[0].programs[0].told_apart = Some(ToldApart { steps: 50, right: 49, taken });
        let rows = rows(&summarise(&examples::arms(), &runs));
        assert_eq!(rows[0][8], "49 of 50");
        assert_eq!(rows.len(), 1, "alone against alone says nothing");
        assert_eq!(
            rows[0][..8].join("|"),
            "mps|serve|10|2.50 / 2.50 / 2.50|2.50 / 2.50 / 2.50|2.50 / 2.50 / 2.50|+150 % … +150 %|+150 % … +150 %"
        );
    }

    #[test]
    fn what_is_possible_is_said_with_the_load() {
        let llm = SCENARIOS.iter().find(|one| one.name == "llm-llm").unwrap();
        let arms = arm::choose(llm, &["alone", "time-slicing"].map(String::from)).unwrap();
        let runs =
            [examples::llm_run("alone", 1, Some(0.5), 10.0), examples::llm_run("time-slicing", 1, Some(0.5), 40.0)];
        let arms = summarise(&arms, &runs);
        let servers =
            vec![IdealServer { program: "chat", alone_ms: 200.0, alone_on_paper_ms: 190.0, times_alone: 1.2 }];
        let ideal = Ideal { load: Some(0.5), order: "chat first".to_string(), servers };
        let mut sent = replay(None).at_rate(6.0, 30).of_load(Some(0.5));
        sent.busy_alone = Some(0.8);
        let found = Bound::all(&[sent.clone()], &[ideal], &arms);
        assert_eq!(
            found[0].in_words().unwrap(),
            "load 0.5: alone servers are busy 80 % of the time, added up; no mean latency can be more than 75 % below that of \
             time-slicing, where it is that of alone; with turns that cost nothing it is 1.20 times that of alone (chat 1.20; \
             chat first), 70 % below that of time-slicing"
        );
        sent.busy_alone = None;
        assert_eq!(Bound::all(&[sent], &[], &arms[..1])[0].in_words(), None);
    }
}
