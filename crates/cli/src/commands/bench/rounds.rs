//! All arms once, then again in another order, for as long as there is time.

use super::arm::{self, Arm};
use super::bound::Ideal;
use super::figures::Figures;
use super::flags::Settings;
use super::replay::Replay;
use super::runner::{ArmRun, Runner, Stretch};
use super::scenario::Program;
use super::schedule::Schedule;
use super::service::Times;
use super::session::SessionError;
use super::unrest::Unrest;
use crate::quantity;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

/// What a program takes at least beside the time in which it is measured, as long as nothing is known of it.
const LEAST_SET_UP: f64 = 1.0;

/// What was measured.
#[derive(Debug, Default)]
pub(crate) struct Measurements {
    pub(crate) runs: Vec<ArmRun>,
    /// What LLM servers were sent, and what they were to keep to.
    pub(crate) replays: Vec<Replay>,
    /// How near to alone LLM servers could come.
    pub(crate) ideals: Vec<Ideal>,
    /// Rounds that were left out, for want of time.
    pub(crate) dropped_rounds: usize,
}

/// Runs them. What is there when we are asked to end stays.
pub(crate) fn run(
    runner: &mut Runner<'_>,
    settings: &Settings,
    measured: &mut Measurements,
) -> Result<(), SessionError> {
    let mut estimates = Estimates::new(settings);
    for round in 0..settings.rounds {
        let turns = turns(settings, round);
        let arms: Vec<Arm> = turns.iter().map(|(arm, _)| *arm).collect();
        if round > 0 && !fits(estimates.of(&arms, round + 1), runner.deadline) {
            measured.dropped_rounds = settings.rounds - round;
            say(&format!("no time for the last {}: raise --limit for more", rounds_in_words(measured.dropped_rounds)));
            return Ok(());
        }
        for (place, (arm, load)) in turns.iter().enumerate() {
            let later: f64 = (round + 1..settings.rounds).map(|later| estimates.of(&arms, later + 1)).sum();
            let rest = estimates.of(&arms[place..], round + 1) + later;
            say(&progress(settings, round, (place, &turns), Duration::from_secs_f64(rest)));
            let mut run = if fits(estimates.of(&[*arm], round + 1), runner.deadline) {
                runner.run(*arm, round + 1, *load)?
            } else {
                ArmRun::left_out(arm.name, round + 1, *load)
            };
            estimates.learn(arm, &run);
            say(&outcome(&run));
            for _ in 0..settings.again {
                // What is still to come goes before.
                let rest = estimates.of(&arms[place..], round + 1);
                if run.unrest().is_none_or(|unrest| !unrest.is_great()) || !fits(rest, runner.deadline) {
                    break;
                }
                say("  again: the machine itself was not at rest");
                let other = runner.run(*arm, round + 1, *load)?;
                say(&outcome(&other));
                run = calmer(run, other);
            }
            // Not before it is known which of several runs counts.
            for kept in std::mem::take(&mut run.kept) {
                if let Some(Err(error)) = settings.keep.as_ref().map(|folder| kept.write(folder)) {
                    say(&format!("  {error}"));
                }
            }
            measured.runs.push(run);
        }
    }
    Ok(())
}

/// What is run in a round, in that order: all arms at one load, then at the next.
fn turns(settings: &Settings, round: usize) -> Vec<(Arm, Option<f64>)> {
    let order = arm::order(settings.arms.len(), round, settings.rounds);
    let at = |load: Option<f64>| order.iter().map(move |place| (settings.arms[*place], load));
    settings.loads().into_iter().flat_map(at).collect()
}

/// The one in which the machine was more at rest; it remembers the other.
fn calmer(first: ArmRun, second: ArmRun) -> ArmRun {
    let late = |run: &ArmRun| run.unrest().map_or(f64::INFINITY, |unrest| unrest.late_per_second);
    let (mut kept, left) = if late(&second) < late(&first) { (second, first) } else { (first, second) };
    kept.discarded.extend(left.discarded.iter().copied().chain(left.unrest()));
    kept
}

fn fits(seconds: f64, deadline: Instant) -> bool {
    Instant::now() + Duration::from_secs_f64(seconds) <= deadline
}

/// How long arms take, as far as that is known: what is planned, and what it takes beside that to set programs up, wait for
/// those that are late, and take all down again.
#[derive(Debug)]
struct Estimates<'a> {
    settings: &'a Settings,
    /// What an arm took beside what was planned for each of its sessions, by name.
    beside: BTreeMap<&'static str, f64>,
}

impl<'a> Estimates<'a> {
    fn new(settings: &'a Settings) -> Self {
        Self { settings, beside: BTreeMap::new() }
    }

    fn learn(&mut self, arm: &Arm, run: &ArmRun) {
        if run.failure.is_none() {
            let beside = (run.seconds - self.planned(arm, run.round)) / sessions(self.settings, arm);
            self.beside.insert(arm.name, beside.max(0.0));
        }
    }

    /// Of these in the round with that number, from 1. One that was not seen yet is taken to need as much as the others did.
    fn of(&self, arms: &[Arm], round: usize) -> f64 {
        let known = quantity::approximate(self.beside.len() as u64);
        let usual = if known > 0.0 { self.beside.values().sum::<f64>() / known } else { LEAST_SET_UP };
        let beside = |arm: &Arm| self.beside.get(arm.name).copied().unwrap_or(usual);
        arms.iter().map(|arm| self.planned(arm, round) + beside(arm) * sessions(self.settings, arm)).sum()
    }

    fn planned(&self, arm: &Arm, round: usize) -> f64 {
        let lasts =
            |programs: &[&Program]| Schedule::of_session(self.settings, arm, round, programs).end().as_secs_f64();
        let all: Vec<&Program> = self.settings.scenario.programs.iter().collect();
        if arm.is_alone { all.iter().map(|program| lasts(&[program])).sum() } else { lasts(&all) }
    }
}

/// How often programs are set up for an arm: once, or each by itself.
fn sessions(settings: &Settings, arm: &Arm) -> f64 {
    if arm.is_alone { quantity::approximate(settings.scenario.programs.len() as u64) } else { 1.0 }
}

pub(crate) fn say(line: &str) {
    // A closed standard error is no reason to give up.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// `round 1 of 2, arm 3 of 9: mps, 10 s … about 3m 20s left`.
fn progress(
    settings: &Settings,
    round: usize,
    (place, turns): (usize, &[(Arm, Option<f64>)]),
    rest: Duration,
) -> String {
    let (arm, load) = turns[place];
    format!(
        "round {} of {}, arm {} of {}: {}{} … about {} left",
        round + 1,
        settings.rounds,
        place + 1,
        turns.len(),
        arm.name,
        load.map_or(String::new(), |load| format!(" at load {load}")),
        quantity::age(rest.as_secs_f64()),
    )
}

/// What came of it, in a line.
fn outcome(run: &ArmRun) -> String {
    if let Some(failure) = &run.failure {
        return format!("  {} has no figures: {failure}", run.arm);
    }
    let stretches = run.stretches.iter().map(stretch_in_words);
    let unrest =
        run.unrest().filter(Unrest::is_great).map_or(String::new(), |unrest| format!("; {}", unrest.in_words()));
    format!("  {} ({:.1} s{unrest})", stretches.collect::<Vec<_>>().join("; "), run.seconds)
}

fn stretch_in_words(stretch: &Stretch) -> String {
    let words = stretch.programs.iter().map(|program| match &program.figures {
        Some(Figures::Requests(found)) => {
            format!("{} p50 {:.2} p99 {:.2} ms", program.program, found.p50_ms, found.p99_ms)
        }
        Some(Figures::Steps(found)) => {
            format!("{} {} steps/s", program.program, quantity::number(found.per_second))
        }
        Some(Figures::Tokens(found)) => {
            let p99 =
                |times: &Option<Times>| times.as_ref().map_or("-".to_string(), |one| format!("{:.2}", one.p99_ms));
            format!("{} p99 TTFT {} TPOT {} ms", program.program, p99(&found.ttft), p99(&found.tpot))
        }
        None => format!("{} did too little", program.program),
    });
    let level = stretch.aggressiveness.map_or(String::new(), |level| format!("at {level}: "));
    format!("{level}{}", words.collect::<Vec<_>>().join(", "))
}

pub(crate) fn rounds_in_words(rounds: usize) -> String {
    if rounds == 1 { "round".to_string() } else { format!("{rounds} rounds") }
}

impl ArmRun {
    /// One for which there was no time.
    fn left_out(arm: &'static str, round: usize, load: Option<f64>) -> Self {
        let failure = Some("no time is left for it: raise --limit, or lower --seconds".to_string());
        let (stretches, tenants, discarded, samples, kept) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { arm, round, load, seconds: 0.0, stretches, failure, tenants, discarded, samples, kept }
    }
}

#[cfg(test)]
mod tests {
    use super::super::flags::tests::resolved;
    use super::super::summary::tests as examples;
    use super::*;

    #[test]
    fn what_was_not_seen_takes_as_much_longer_as_what_was() {
        let settings = resolved("small --arms alone,mps,slo-aware --seconds 9").unwrap();
        let [alone, mps, policy] = settings.arms[..] else { panic!("{:?}", settings.arms) };
        let mut estimates = Estimates::new(&settings);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        close(estimates.of(&[alone], 1), 2.0 * (10.0 + LEAST_SET_UP));
        let mut run = examples::run("mps", 1, 1.0, 1.0, None);
        run.seconds = 17.0;
        estimates.learn(&mps, &run);
        close(estimates.of(&settings.arms, 1), 2.0 * (10.0 + 7.0) + 17.0 + (12.0 + 7.0));
        run.failure = Some("it broke".to_string());
        run.seconds = 0.1;
        estimates.learn(&mps, &run);
        close(estimates.of(&[mps], 1), 17.0);
        close(estimates.of(&[policy], 2), 19.0);
    }

    #[test]
    fn a_round_without_levels_is_not_taken_to_last_as_long_as_one_with_them() {
        let settings = resolved("small").unwrap();
        let dial = *settings.arms.iter().find(|arm| arm.has_dial()).unwrap();
        let mut estimates = Estimates::new(&settings);
        let mut run = examples::run("slo-aware", 1, 1.0, 1.0, None);
        run.seconds = estimates.planned(&dial, 1) + 13.0;
        estimates.learn(&dial, &run);
        let expected = Schedule::of(&settings, &dial, 2).end().as_secs_f64() + 13.0;
        assert!((estimates.of(&[dial], 2) - expected).abs() < 1e-9, "{}", estimates.of(&[dial], 2));
    }

    fn unrest(late_per_second: f64) -> Unrest {
        Unrest { late_per_second, latest_ms: 4.0, stolen_ms_per_second: 0.0 }
    }

    #[test]
    fn the_run_counts_in_which_the_machine_was_at_rest() {
        let of = |latency_ms: f64, late: f64| {
            let mut run = examples::run("mps", 1, latency_ms, 9.0, None);
            run.stretches[0].programs[1].unrest = Some(unrest(late));
            run
        };
        // By the machine's own unrest, whatever the latencies.
        for (first, second) in [(of(1.0, 5.0), of(2.0, 3.0)), (of(2.0, 3.0), of(1.0, 5.0))] {
            let kept = calmer(first, second);
            assert_eq!(kept.unrest(), Some(unrest(3.0)));
            assert_eq!(kept.discarded, [unrest(5.0)]);
            assert_eq!(calmer(kept, of(3.0, 1.0)).discarded, [unrest(5.0), unrest(3.0)]);
        }
    }

    #[test]
    fn what_came_of_an_arm_is_one_line() {
        let run = examples::run("mps", 1, 2.5, 9.0, None);
        assert_eq!(outcome(&run), "  serve p50 2.50 p99 2.50 ms, train 9.00 steps/s (1.0 s)");
        let level = examples::run("fair", 1, 2.5, 9.0, Some(0.25));
        assert!(outcome(&level).starts_with("  at 0.25: serve p50"), "{}", outcome(&level));
        let mut restless = examples::run("mps", 1, 2.5, 9.0, None);
        restless.stretches[0].programs[0].unrest = Some(unrest(2.0));
        let said = outcome(&restless);
        assert!(said.ends_with("(1.0 s; threads were woken late 2.0 times a second, up to 4.0 ms)"), "{said}");
        let left_out = outcome(&ArmRun::left_out("mps", 1, None));
        assert!(
            left_out.starts_with("  mps has no figures: no time is left") && !left_out.contains('\n'),
            "{left_out}"
        );
    }
}
