//! All arms once, then again in another order, for as long as there is time.

use super::arm::{self, Arm};
use super::bound::Ideal;
use super::estimates::Estimates;
use super::figures::Figures;
use super::flags::Settings;
use super::replay::Replay;
use super::runner::{ArmRun, Runner, Stretch, Turn};
use super::service::Times;
use super::session::SessionError;
use super::timeline::Timeline;
use super::unrest::Unrest;
use crate::quantity;
use std::io::Write;
use std::time::{Duration, Instant};

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
    /// What tenants did, or why nobody knows; nothing if we were asked to end before.
    pub(crate) timeline: Option<Result<Timeline, String>>,
}

/// Who runs arms.
pub(crate) trait Stage {
    /// In seconds, until all is to be over.
    fn left(&self) -> f64;
    /// An error only if we are to end.
    fn run(&mut self, turn: Turn) -> Result<ArmRun, SessionError>;
    /// Shows what the tenants of an arm do.
    fn record(&mut self, arm: Arm, load: Option<f64>) -> Result<Timeline, SessionError>;
}

impl Stage for Runner<'_> {
    fn left(&self) -> f64 {
        self.deadline.saturating_duration_since(Instant::now()).as_secs_f64()
    }

    fn run(&mut self, turn: Turn) -> Result<ArmRun, SessionError> {
        self.measured(turn)
    }

    fn record(&mut self, arm: Arm, load: Option<f64>) -> Result<Timeline, SessionError> {
        self.timeline(arm, load)
    }
}

/// Runs all of them, and shows what the tenants of one do. What is there when we are asked to end stays.
pub(crate) fn run(
    stage: &mut impl Stage,
    settings: &Settings,
    measured: &mut Measurements,
) -> Result<(), SessionError> {
    let mut estimates = Estimates::new(settings);
    for round in 1..=settings.rounds {
        let turns = turns(settings, round);
        let arms: Vec<Arm> = turns.iter().map(|(arm, _)| *arm).collect();
        if round > 1 && estimates.seconds(&arms, round, stage.left()).is_none() {
            measured.dropped_rounds = settings.rounds - round + 1;
            say(&format!("no time for the last {}: raise --limit for more", rounds_in_words(measured.dropped_rounds)));
            break;
        }
        for (place, (arm, load)) in turns.iter().enumerate() {
            // Those that are left come before how long they are measured.
            let seconds = estimates.seconds(&arms[place..], round, stage.left()).unwrap_or(settings.least_seconds);
            let turn = Turn { arm: *arm, round, load: *load, seconds };
            let later: f64 = (round + 1..=settings.rounds).map(|later| estimates.of(&arms, later, seconds)).sum();
            let rest = estimates.of(&arms[place..], round, seconds) + later + estimates.recording();
            say(&progress(settings, &turn, (place + 1, turns.len()), Duration::from_secs_f64(rest)));
            let mut run = run_one(stage, settings, &mut estimates, turn, &arms[place..])?;
            // Not before it is known which of several runs counts.
            for kept in std::mem::take(&mut run.kept) {
                if let Some(Err(error)) = settings.keep.as_ref().map(|folder| kept.write(folder)) {
                    say(&format!("  {error}"));
                }
            }
            measured.runs.push(run);
        }
    }
    measured.timeline = Some(timeline(stage, settings, &estimates, &measured.runs)?);
    Ok(())
}

/// An arm, and again if the machine was not at rest and there is time; `rest` are those that are still to come, with this one.
fn run_one(
    stage: &mut impl Stage,
    settings: &Settings,
    estimates: &mut Estimates<'_>,
    turn: Turn,
    rest: &[Arm],
) -> Result<ArmRun, SessionError> {
    if estimates.of(&[turn.arm], turn.round, turn.seconds) > stage.left() {
        let run = ArmRun::left_out(turn);
        say(&outcome(&run));
        return Ok(run);
    }
    let mut run = stage.run(turn)?;
    estimates.learn(&turn.arm, &run);
    say(&outcome(&run));
    for _ in 0..settings.again {
        // What is still to come goes before.
        let has_time = estimates.of(rest, turn.round, turn.seconds) <= stage.left();
        if run.unrest().is_none_or(|unrest| !unrest.is_great()) || !has_time {
            break;
        }
        say("  again: the machine itself was not at rest");
        let other = stage.run(turn)?;
        say(&outcome(&other));
        run = calmer(run, other);
    }
    Ok(run)
}

/// What the tenants do in the first arm in which all programs are tenants at the same time, or why nobody knows.
fn timeline(
    stage: &mut impl Stage,
    settings: &Settings,
    estimates: &Estimates<'_>,
    runs: &[ArmRun],
) -> Result<Result<Timeline, String>, SessionError> {
    if !settings.has_timeline {
        return Ok(Err("it was left out with --no-timeline".to_string()));
    }
    let has_figures = |arm: &Arm| runs.iter().find(|run| run.arm == arm.name && run.failure.is_none());
    let Some((arm, run)) = settings.tenants_together().find_map(|arm| Some((*arm, has_figures(arm)?))) else {
        return Ok(Err("no arm of DetShare with several tenants was measured".to_string()));
    };
    if estimates.recording() > stage.left() {
        return Ok(Err("no time was left for it, raise --limit".to_string()));
    }
    say(&format!("a timeline of {} …", arm.name));
    match stage.record(arm, run.load) {
        Ok(timeline) => Ok(Ok(timeline)),
        Err(error @ SessionError::Interrupted { .. }) => Err(error),
        Err(error) => {
            say(&format!("  there is none: {error}"));
            Ok(Err(error.to_string()))
        }
    }
}

/// What is run in a round, in that order: all arms at one load, then at the next.
fn turns(settings: &Settings, round: usize) -> Vec<(Arm, Option<f64>)> {
    let order = arm::order(settings.arms.len(), round - 1, settings.rounds);
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

pub(crate) fn say(line: &str) {
    // A closed standard error is no reason to give up. Tests play whole runs, and nobody waits for their progress.
    if !cfg!(test) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

/// `round 1 of 2, arm 3 of 9: mps … about 3m 20s left`.
fn progress(settings: &Settings, turn: &Turn, (place, turns): (usize, usize), rest: Duration) -> String {
    let shortened = if turn.seconds < settings.seconds {
        format!(", {} s in place of {}", turn.seconds, settings.seconds)
    } else {
        String::new()
    };
    format!(
        "round {} of {}, arm {place} of {turns}: {}{}{shortened} … about {} left",
        turn.round,
        settings.rounds,
        turn.arm.name,
        turn.load.map_or(String::new(), |load| format!(" at load {load}")),
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
    fn left_out(Turn { arm, round, load, seconds }: Turn) -> Self {
        let failure = Some("no time is left for it: raise --limit, or lower --seconds".to_string());
        let (stretches, tenants, discarded, samples, kept) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (arm, measured_s) = (arm.name, seconds);
        Self { arm, round, load, measured_s, seconds: 0.0, stretches, failure, tenants, discarded, samples, kept }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LAST_PART;
    use super::super::arm::BARE_ALONE;
    use super::super::estimates::tests::set_up;
    use super::super::flags::tests::resolved;
    use super::super::llm_flags::Offered;
    use super::super::scenario::{Program, SCENARIOS};
    use super::super::schedule::Schedule;
    use super::super::summary::tests as examples;
    use super::super::timeline::tests::example as timeline_example;
    use super::*;
    use std::collections::BTreeMap;

    /// Where each session takes what it took when it was recorded, or so many times that, in no time.
    struct Rehearsal<'a> {
        settings: &'a Settings,
        beside: BTreeMap<&'static str, f64>,
        slower: f64,
        left: f64,
    }

    impl Rehearsal<'_> {
        fn pass(&mut self, arm: &Arm, planned: &[Duration]) -> f64 {
            let one = |planned: &Duration| planned.as_secs_f64() + self.beside[arm.name] * self.slower;
            let passed = planned.iter().map(one).sum();
            self.left -= passed;
            passed
        }

        /// Alone each program has a session of its own.
        fn planned(&self, Turn { arm, round, seconds, .. }: Turn) -> Vec<Duration> {
            let programs: Vec<&Program> = self.settings.scenario.programs.iter().collect();
            let alone: Vec<&Program> = self.settings.alone().collect();
            let sessions: Vec<&[&Program]> =
                if arm.is_alone { alone.iter().map(std::slice::from_ref).collect() } else { vec![&programs] };
            let session = |programs| Schedule::of_session(self.settings, &arm, (round, seconds), programs).end();
            sessions.into_iter().map(session).collect()
        }

        /// What LLM servers are to get is found out before: each answers so many requests at once, as fast as it was recorded.
        fn plan(&mut self) {
            const AT_ONCE: f64 = 64.0;
            const RECORDED_PER_SECOND: f64 = 4.7;
            if matches!(self.settings.llm.as_ref().map(|llm| &llm.offered), Some(Offered::Rates(..))) {
                return;
            }
            for _ in self.settings.scenario.servers() {
                self.left -= self.beside[BARE_ALONE.name] + AT_ONCE / RECORDED_PER_SECOND;
            }
        }
    }

    impl Stage for Rehearsal<'_> {
        fn left(&self) -> f64 {
            self.left
        }

        fn run(&mut self, turn: Turn) -> Result<ArmRun, SessionError> {
            let mut run = examples::run(turn.arm.name, turn.round, 1.0, 1.0, None);
            let planned = self.planned(turn);
            (run.seconds, run.measured_s) = (self.pass(&turn.arm, &planned), turn.seconds);
            // Whoever is still at it then is ended.
            run.failure = (self.left < 0.0).then(|| "the time is over".to_string());
            Ok(run)
        }

        fn record(&mut self, arm: Arm, _: Option<f64>) -> Result<Timeline, SessionError> {
            self.pass(&arm, &[Schedule::recorded(self.settings, &arm).end()]);
            Ok(timeline_example())
        }
    }

    /// What is measured in eight minutes on a machine that is so many times as slow as that of the recorded runs, and what is
    /// left of the time.
    fn rehearsed(line: &str, slower: f64) -> (Measurements, f64) {
        let settings = resolved(line).unwrap();
        let left = (settings.limit - settings.limit / LAST_PART).as_secs_f64();
        let mut stage = Rehearsal { settings: &settings, beside: set_up(&settings), slower, left };
        stage.plan();
        let mut measured = Measurements::default();
        run(&mut stage, &settings, &mut measured).unwrap();
        (measured, stage.left)
    }

    /// For how long each run was measured.
    fn seconds(measured: &Measurements) -> Vec<u32> {
        measured.runs.iter().map(|run| run.measured_s).collect()
    }

    const ARMS: usize = 8;

    #[test]
    fn two_rounds_fit_into_eight_minutes_as_fast_as_programs_were_set_up_when_it_was_recorded() {
        for scenario in ["small", "7b"] {
            let (measured, left) = rehearsed(scenario, 1.0);
            assert_eq!((seconds(&measured), measured.dropped_rounds), (vec![4; 2 * ARMS], 0), "{scenario}");
            assert!(measured.timeline.as_ref().is_some_and(Result::is_ok), "{scenario}");
            assert!(left > 60.0, "{scenario}: {left} s of 480 are left");
            let (without, more_left) = rehearsed(&format!("{scenario} --no-timeline"), 1.0);
            assert!(without.timeline.as_ref().is_some_and(Result::is_err) && more_left > left + 10.0, "{scenario}");
        }
    }

    #[test]
    fn on_a_slower_machine_arms_are_measured_for_less_time_and_on_a_slow_one_once() {
        let (shorter, _) = rehearsed("small", 1.25);
        assert_eq!((shorter.runs.len(), shorter.dropped_rounds), (2 * ARMS, 0));
        assert!(seconds(&shorter).contains(&3), "{:?}", seconds(&shorter));
        let (once, _) = rehearsed("small", 2.0);
        assert_eq!((once.runs.len(), once.dropped_rounds), (ARMS, 1));
        for scenario in ["small", "7b"] {
            for percent in (100..=250).step_by(5) {
                let (measured, left) = rehearsed(scenario, f64::from(percent) / 100.0);
                assert!(left >= 0.0, "{scenario} at {percent} %: {left} s");
                assert!(measured.runs.iter().all(|run| run.failure.is_none()), "{scenario} at {percent} %");
                assert!(measured.runs.len() >= ARMS && measured.timeline.unwrap().is_ok(), "{scenario} at {percent} %");
            }
        }
    }

    /// The commands that `bench/gpu/llm.py` plans for its first two parts, with the limits that it gives them: what is learnt on the way
    /// about later arms leaves none of them out.
    #[test]
    fn arms_that_were_planned_from_recorded_times_are_all_run() {
        let ways = "alone,tpot-first,time-slicing,slo-aware,mps-priority,throughput,mps";
        for (line, arms) in [
            (format!("llm-train --arms {ways} --seconds 42 --load 0.5 --rates 0.25 --limit 535s"), 7),
            (
                "llm-llm --arms alone,tpot-first,throughput,time-slicing,slo-aware --seconds 24 --load 0.5 --rates 0.47,4.4 \
                 --limit 264s"
                    .to_string(),
                5,
            ),
            (
                "llm-llm --arms alone,tpot-first,throughput,time-slicing --seconds 15 --load 0.7 --rates 0.7,6.6 --limit 172s"
                    .to_string(),
                4,
            ),
        ] {
            let (measured, left) = rehearsed(&format!("{line} --rounds 1 --no-timeline"), 1.0);
            let run = measured.runs.iter().filter(|run| run.failure.is_none()).count();
            assert_eq!(run, arms, "{line}: {left} s are left");
        }
    }

    /// How often all arms have figures, and for how long the shortest was measured; or how many have any.
    #[derive(PartialEq, Eq)]
    enum Enough {
        Rounds(usize, u32),
        Arms(usize),
    }

    fn enough(line: &str) -> Enough {
        let (measured, _) = rehearsed(line, 1.0);
        let failed = |round: usize| measured.runs.iter().any(|run| run.round == round && run.failure.is_some());
        let last = measured.runs.iter().map(|run| run.round).max().unwrap();
        let rounds = (1..=last).take_while(|round| !failed(*round)).count();
        let whole = measured.runs.iter().filter(|run| run.round <= rounds).map(|run| run.measured_s).min();
        let arms = measured.runs.iter().filter(|run| run.round == 1 && run.failure.is_none()).count();
        whole.map_or(Enough::Arms(arms), |seconds| Enough::Rounds(rounds, seconds))
    }

    /// A row of the table in the documentation: what eight minutes are enough for, and what two rounds need.
    fn row(name: &str) -> String {
        /// With less there is no tail to speak of.
        const LEAST_SECONDS: u32 = 3;
        const MOST_MINUTES: u32 = 60;
        let settings = resolved(name).unwrap();
        let (all, usual) = (settings.rounds, settings.seconds);
        let is_enough_for =
            |flags: &str, rounds, seconds| enough(&format!("{name} {flags}")) == Enough::Rounds(rounds, seconds);
        if is_enough_for("", all, usual) {
            return format!("| `{name}` | {all} rounds of {usual} s | | |");
        }
        let by_default = match enough(name) {
            Enough::Rounds(1, seconds) => format!("one round of {seconds} s"),
            Enough::Rounds(rounds, seconds) => format!("{rounds} rounds of {seconds} s"),
            Enough::Arms(arms) => format!("{arms} of {} arms, once", settings.arms.len()),
        };
        let shorter = |rounds| {
            let mut seconds = (LEAST_SECONDS..usual).rev();
            seconds.find(|seconds| is_enough_for(&format!("--rounds {rounds} --seconds {seconds}"), rounds, *seconds))
        };
        let shorter = match (shorter(all), enough(name)) {
            (Some(seconds), _) => format!("`--seconds {seconds}`"),
            (None, Enough::Arms(_)) => {
                shorter(1).map_or(String::new(), |seconds| format!("`--rounds 1 --seconds {seconds}`"))
            }
            (None, Enough::Rounds(..)) => "no".to_string(),
        };
        let longer = (9..MOST_MINUTES).find(|minutes| is_enough_for(&format!("--limit {minutes}m"), all, usual));
        format!("| `{name}` | {by_default} | {shorter} | `--limit {}m` |", longer.unwrap())
    }

    /// Of scenarios of which nothing was kept with the set-up of `small`.
    #[test]
    fn what_eight_minutes_are_enough_for_is_in_the_documentation() {
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/bench.md"));
        let rows: Vec<String> = SCENARIOS.iter().map(|scenario| row(scenario.name)).collect();
        let missing: Vec<&String> = rows.iter().filter(|row| !page.contains(row.as_str())).collect();
        assert!(missing.is_empty(), "{missing:#?}");
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
        let left_out = outcome(&ArmRun::left_out(Turn { arm: BARE_ALONE, round: 1, load: None, seconds: 4 }));
        assert!(
            left_out.starts_with("  alone has no figures: no time is left") && !left_out.contains('\n'),
            "{left_out}"
        );
    }
}
