//! How long arms take, and so what there is time for.

use super::arm::Arm;
use super::flags::Settings;
use super::runner::ArmRun;
use super::scenario::Program;
use super::schedule::Schedule;
use crate::quantity;
use std::collections::BTreeMap;

/// What a program takes at least beside the time in which it is measured, as long as nothing is known of it.
const LEAST_SET_UP: f64 = 1.0;
/// What is to fit may take so many times what it is expected to: programs take some percent longer at one time than at another.
const MARGIN: f64 = 1.05;

/// How long arms take, as far as that is known: what is planned, and what it takes beside that to set programs up, wait for
/// those that are late, and take all down again.
#[derive(Debug)]
pub(crate) struct Estimates<'a> {
    settings: &'a Settings,
    /// What an arm took beside what was planned for each of its sessions, by name.
    beside: BTreeMap<&'static str, f64>,
}

impl<'a> Estimates<'a> {
    pub(crate) fn new(settings: &'a Settings) -> Self {
        Self { settings, beside: BTreeMap::new() }
    }

    pub(crate) fn learn(&mut self, arm: &Arm, run: &ArmRun) {
        if run.failure.is_none() {
            let beside = (run.seconds - self.planned(arm, run.round, run.measured_s)) / self.sessions(arm);
            self.beside.insert(arm.name, beside.max(0.0));
        }
    }

    /// For how long arms can be measured if all of these are to fit into the seconds that are left, and what their tenants do is to
    /// be shown; nothing if even the least is too long.
    pub(crate) fn seconds(&self, arms: &[Arm], round: usize, left: f64) -> Option<u32> {
        let fits = |seconds: &u32| self.of(arms, round, *seconds) * MARGIN + self.recording() <= left;
        (self.settings.least_seconds..=self.settings.seconds).rev().find(fits)
    }

    /// What these take in the round with that number, from 1, if they are measured for so long.
    pub(crate) fn of(&self, arms: &[Arm], round: usize, seconds: u32) -> f64 {
        let one = |arm: &Arm| self.planned(arm, round, seconds) + self.beside(arm) * self.sessions(arm);
        arms.iter().map(one).sum()
    }

    /// What it takes to show what tenants do.
    pub(crate) fn recording(&self) -> f64 {
        if !self.settings.has_timeline {
            return 0.0;
        }
        let one = |arm: &Arm| Schedule::recorded(self.settings, arm).end().as_secs_f64() + self.beside(arm);
        self.settings.tenants_together().next().map_or(0.0, one)
    }

    /// One that was not seen yet is taken to need as much as the others did.
    fn beside(&self, arm: &Arm) -> f64 {
        let known = quantity::approximate(self.beside.len() as u64);
        let usual = if known > 0.0 { self.beside.values().sum::<f64>() / known } else { LEAST_SET_UP };
        self.beside.get(arm.name).copied().unwrap_or(usual)
    }

    fn planned(&self, arm: &Arm, round: usize, seconds: u32) -> f64 {
        let lasts = |programs: &[&Program]| {
            Schedule::of_session(self.settings, arm, (round, seconds), programs).end().as_secs_f64()
        };
        let all: Vec<&Program> = self.settings.scenario.programs.iter().collect();
        if arm.is_alone { self.settings.alone().map(|program| lasts(&[program])).sum() } else { lasts(&all) }
    }

    /// How often programs are set up for an arm: once, or each by itself.
    fn sessions(&self, arm: &Arm) -> f64 {
        if arm.is_alone { quantity::approximate(self.settings.alone().count() as u64) } else { 1.0 }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::arm;
    use super::super::flags::tests::resolved;
    use super::super::summary::tests as examples;
    use super::*;

    /// What each session took beside what was planned for it, on an H200: by arm, from a run that was kept.
    pub(crate) fn recorded(scenario: &str) -> BTreeMap<&'static str, f64> {
        let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results/h200-sharing");
        let text = std::fs::read_to_string(format!("{results}/{scenario}/results.json")).unwrap();
        let results: serde_json::Value = serde_json::from_str(&text).unwrap();
        let words: Vec<&str> = results["command"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
        // The trace is on the machine where it was measured.
        let line = words[2..].join(" ").replace("--trace-folder traces", "");
        let settings = resolved(&line).unwrap();
        let mut estimates = Estimates::new(&settings);
        for ran in results["runs"].as_array().unwrap() {
            let arm = settings.arms.iter().find(|arm| ran["arm"] == arm.name).unwrap();
            let number = |name: &str| ran[name].as_u64();
            // Levels of the dial are measured in the first round alone, and what does not fit for less time than was asked.
            let round = number("round").unwrap().try_into().unwrap();
            let mut run = examples::run(arm.name, round, 1.0, 1.0, None);
            run.seconds = ran["seconds"].as_f64().unwrap();
            run.measured_s = number("measured_s").map_or(settings.seconds, |seconds| seconds.try_into().unwrap());
            estimates.learn(arm, &run);
        }
        estimates.beside
    }

    /// The same for every arm that the scenario has. An arm that was not kept of it takes what it took in `small`, a policy as much as
    /// `slo-aware`, and no less than any other one of its own took that runs its programs as that one does, alone or together.
    pub(crate) fn set_up(settings: &Settings) -> BTreeMap<&'static str, f64> {
        let small = recorded("small");
        let own = if has_record(settings.scenario.name) { recorded(settings.scenario.name) } else { BTreeMap::new() };
        let known = arm::known(settings.scenario);
        let is_alone = |name: &str| known.iter().any(|arm| arm.name == name && arm.is_alone);
        let one = |arm: &Arm| {
            let of_small = small.get(arm.name).copied().unwrap_or(small["slo-aware"]);
            let alike = own.iter().filter(|(name, _)| is_alone(name) == arm.is_alone).map(|(_, beside)| *beside);
            own.get(arm.name).copied().unwrap_or(alike.fold(of_small, f64::max))
        };
        settings.arms.iter().map(|arm| (arm.name, one(arm))).collect()
    }

    pub(crate) fn has_record(scenario: &str) -> bool {
        let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/results/h200-sharing");
        std::path::Path::new(results).join(scenario).join("results.json").is_file()
    }

    #[test]
    fn what_sessions_took_on_an_h200() {
        for scenario in ["small", "7b"] {
            let beside = recorded(scenario);
            let range = |names: &[&str]| {
                let all: Vec<f64> = names.iter().map(|name| beside[name]).collect();
                (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(0.0, f64::max))
            };
            let (least, most) = range(&["alone", "detshare-alone"]);
            assert!(least > 8.0 && most < 11.0, "{scenario}, a program by itself: {least} to {most}");
            // One that cannot keep up is waited for.
            let (least, most) = range(&["time-slicing", "mps-priority", "fixed-64", "fixed-96", "slo-aware"]);
            assert!(least > 11.0 && most < 16.0, "{scenario}, two together: {least} to {most}");
        }
    }

    #[test]
    fn what_was_not_seen_takes_as_much_longer_as_what_was() {
        let settings = resolved("small --arms alone,mps,slo-aware --seconds 9").unwrap();
        let [alone, mps, policy] = settings.arms[..] else { panic!("{:?}", settings.arms) };
        let mut estimates = Estimates::new(&settings);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        close(estimates.of(&[alone], 1, 9), 2.0 * (10.0 + LEAST_SET_UP));
        let mut run = examples::run("mps", 1, 1.0, 1.0, None);
        (run.seconds, run.measured_s) = (17.0, 9);
        estimates.learn(&mps, &run);
        close(estimates.of(&settings.arms, 1, 9), 2.0 * (10.0 + 7.0) + 17.0 + (12.0 + 7.0));
        run.failure = Some("it broke".to_string());
        run.seconds = 0.1;
        estimates.learn(&mps, &run);
        close(estimates.of(&[mps], 1, 9), 17.0);
        close(estimates.of(&[policy], 2, 9), 19.0);
    }

    #[test]
    fn a_round_without_levels_is_not_taken_to_last_as_long_as_one_with_them() {
        let settings = resolved("small").unwrap();
        let dial = *settings.arms.iter().find(|arm| arm.has_dial()).unwrap();
        let mut estimates = Estimates::new(&settings);
        let mut run = examples::run("slo-aware", 1, 1.0, 1.0, None);
        (run.seconds, run.measured_s) = (estimates.planned(&dial, 1, 4) + 13.0, 4);
        estimates.learn(&dial, &run);
        let expected = Schedule::of(&settings, &dial, 2, 4).end().as_secs_f64() + 13.0;
        assert!((estimates.of(&[dial], 2, 4) - expected).abs() < 1e-9, "{}", estimates.of(&[dial], 2, 4));
    }

    #[test]
    fn what_is_left_out_takes_no_time() {
        let settings = resolved("llm-train --arms alone,tpot-first --seconds 60").unwrap();
        let [alone, policy] = settings.arms[..] else { panic!("{:?}", settings.arms) };
        let whole = Estimates::new(&settings);
        let shorter = resolved("llm-train --arms alone,tpot-first --seconds 60 --no-timeline --servers-alone").unwrap();
        let shorter = Estimates::new(&shorter);
        assert_eq!((whole.recording() > 0.0, shorter.recording()), (true, 0.0));
        // A training alone, for ten seconds.
        assert_eq!(whole.of(&[alone], 1, 60) - shorter.of(&[alone], 1, 60), 10.0 + LEAST_SET_UP);
        assert_eq!(whole.of(&[policy], 1, 60), shorter.of(&[policy], 1, 60));
    }

    #[test]
    fn what_is_left_decides_how_long_arms_are_measured() {
        let settings = resolved("small --arms alone,slo-aware").unwrap();
        let estimates = Estimates::new(&settings);
        let needed = |seconds: u32| estimates.of(&settings.arms, 1, seconds) * MARGIN + estimates.recording();
        assert_eq!(estimates.seconds(&settings.arms, 1, 480.0), Some(4));
        assert_eq!(estimates.seconds(&settings.arms, 1, needed(4) - 0.1), Some(3));
        assert_eq!(estimates.seconds(&settings.arms, 1, needed(2)), Some(2));
        assert_eq!(estimates.seconds(&settings.arms, 1, needed(2) - 0.1), None);
        for line in ["small --seconds 4", "soft", "llm-train"] {
            let asked = resolved(line).unwrap();
            assert_eq!(asked.least_seconds, asked.seconds, "{line}");
        }
    }
}
