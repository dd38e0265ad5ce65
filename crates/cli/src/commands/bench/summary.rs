//! What came of all rounds: each arm's figures against those alone of the same round, and how much they vary.

use super::arm::{ALONE, Arm};
use super::figures::{Figures, Latencies, quantiles};
use super::identity::Identity;
use super::runner::{ArmRun, ProgramRun, Stretch};
use super::service_summary::ServiceSummary;
use super::told_apart::ToldApart;
use super::unrest::Unrest;
use detshare_api::Class;
use serde::Serialize;

/// A figure over the rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) rounds: usize,
}

impl Spread {
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        // Of an even number, between the two in the middle.
        let middle = [values[(values.len() - 1) / 2], values[values.len() / 2]];
        Some(Self { median: f64::midpoint(middle[0], middle[1]), min, max, rounds: values.len() })
    }

    /// Each figure changed in the same way, which keeps their order.
    pub(crate) fn map(self, change: impl Fn(f64) -> f64) -> Self {
        Self { median: change(self.median), min: change(self.min), max: change(self.max), rounds: self.rounds }
    }
}

/// An arm at one load, or one of its levels of aggressiveness.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ArmSummary {
    /// With the level, where there is one, and with the load, where there are several.
    pub(crate) name: String,
    pub(crate) arm: &'static str,
    /// Of LLM servers.
    pub(crate) load: Option<f64>,
    pub(crate) about: &'static str,
    /// The programs ran one after the other.
    pub(crate) is_alone: bool,
    pub(crate) aggressiveness: Option<f64>,
    pub(crate) programs: Vec<ProgramSummary>,
    /// Why rounds of it have no figures, and what to do.
    pub(crate) failures: Vec<String>,
    /// The machine in the round in which it was least at rest.
    pub(crate) unrest: Option<Unrest>,
}

/// A program in an arm, over the rounds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProgramSummary {
    pub(crate) program: &'static str,
    pub(crate) class: Class,
    /// Requests or steps a second.
    pub(crate) per_second: Option<Spread>,
    /// Of a latency program, as is all up to the best-effort share.
    pub(crate) requests: Option<usize>,
    pub(crate) p50_ms: Option<Spread>,
    pub(crate) p90_ms: Option<Spread>,
    pub(crate) p99_ms: Option<Spread>,
    pub(crate) max_ms: Option<Spread>,
    /// How much more than alone: 0.05 is 5 % more.
    pub(crate) p50_overhead: Option<Spread>,
    pub(crate) p99_overhead: Option<Spread>,
    /// Of the requests of all rounds.
    pub(crate) quantiles_ms: Option<Vec<f64>>,
    /// Of an LLM server.
    pub(crate) service: Option<ServiceSummary>,
    /// Of a best-effort program: the part that is left of its steps a second alone.
    pub(crate) share: Option<Spread>,
    /// The worst of the rounds.
    pub(crate) bits: Identity,
    /// Of an LLM server, over all rounds: whether its steps were told apart, if that was written down.
    pub(crate) told_apart: Option<ToldApart>,
}

impl ProgramSummary {
    /// How much longer than alone the slowest take: requests, or tokens where they come one by one.
    pub(crate) fn tail_overhead(&self) -> Option<Spread> {
        self.service.as_ref().map_or(self.p99_overhead, |service| service.tpot_p99_overhead)
    }
}

/// All arms, in the order in which they were asked for; at one load, then at the next.
pub(crate) fn summarise(arms: &[Arm], runs: &[ArmRun]) -> Vec<ArmSummary> {
    let mut loads: Vec<Option<f64>> = Vec::new();
    for run in runs {
        if !loads.contains(&run.load) {
            loads.push(run.load);
        }
    }
    if loads.is_empty() {
        loads.push(None);
    }
    // Whichever was run first.
    loads.sort_by(|one, other| one.unwrap_or(0.0).total_cmp(&other.unwrap_or(0.0)));
    let are_several = loads.len() > 1;
    let at = |load: Option<f64>| {
        let runs: Vec<&ArmRun> = runs.iter().filter(|run| run.load == load).collect();
        let mut all: Vec<ArmSummary> = arms.iter().flat_map(|arm| summaries_of(arm, &runs)).collect();
        for summary in &mut all {
            summary.load = load;
            if let Some(load) = load.filter(|_| are_several) {
                summary.name = format!("{} at {load}", summary.name);
            }
        }
        all
    };
    loads.into_iter().flat_map(at).collect()
}

/// Of the runs at one load.
fn summaries_of(arm: &Arm, runs: &[&ArmRun]) -> Vec<ArmSummary> {
    let mine: Vec<&ArmRun> = runs.iter().copied().filter(|run| run.arm == arm.name).collect();
    let failures: Vec<String> = mine.iter().filter_map(|run| run.failure.clone()).collect();
    let mut levels: Vec<Option<f64>> = Vec::new();
    for stretch in mine.iter().flat_map(|run| &run.stretches) {
        if !levels.contains(&stretch.aggressiveness) {
            levels.push(stretch.aggressiveness);
        }
    }
    let unrest_at = |level: Option<f64>| {
        let stretches = mine.iter().flat_map(|run| &run.stretches).filter(|one| one.aggressiveness == level);
        Unrest::greatest(stretches.flat_map(|stretch| &stretch.programs).filter_map(|program| program.unrest))
    };
    let summary = |level: Option<f64>, programs: Vec<ProgramSummary>| ArmSummary {
        name: level.map_or(arm.name.to_string(), |level| format!("{}@{level}", arm.name)),
        arm: arm.name,
        load: None,
        about: arm.about,
        is_alone: arm.is_alone,
        aggressiveness: level,
        programs,
        failures: failures.clone(),
        unrest: unrest_at(level),
    };
    if levels.is_empty() {
        return vec![summary(None, Vec::new())];
    }
    levels.into_iter().map(|level| summary(level, programs_of(&mine, level, runs))).collect()
}

fn programs_of(mine: &[&ArmRun], level: Option<f64>, runs: &[&ArmRun]) -> Vec<ProgramSummary> {
    let stretch = |run: &&ArmRun| -> Option<(usize, Stretch)> {
        let found = run.stretches.iter().find(|stretch| stretch.aggressiveness == level)?;
        Some((run.round, found.clone()))
    };
    let stretches: Vec<(usize, Stretch)> = mine.iter().filter_map(stretch).collect();
    let Some((_, first)) = stretches.first() else { return Vec::new() };
    let of = |program: &'static str| -> Vec<(usize, &ProgramRun)> {
        let find = |stretch: &'_ Stretch| stretch.programs.iter().position(|one| one.program == program);
        stretches.iter().filter_map(|(round, one)| Some((*round, &one.programs[find(one)?]))).collect()
    };
    first.programs.iter().map(|program| summarise_program(program, &of(program.program), runs)).collect()
}

fn summarise_program(program: &ProgramRun, rounds: &[(usize, &ProgramRun)], runs: &[&ArmRun]) -> ProgramSummary {
    let spread =
        |value: &dyn Fn(&ProgramRun) -> Option<f64>| Spread::of(rounds.iter().filter_map(|(_, run)| value(run)));
    // A figure against the one alone of the same round.
    let against = |value: &dyn Fn(&ProgramRun) -> Option<f64>| {
        Spread::of(rounds.iter().filter_map(|(round, run)| {
            let alone = value(alone_in(runs, *round, program.program)?)?;
            (alone > 0.0).then_some(value(run)? / alone)
        }))
    };
    let overhead =
        |value: &dyn Fn(&ProgramRun) -> Option<f64>| against(value).map(|times| times.map(|times| times - 1.0));
    let p50 = |run: &ProgramRun| Some(latencies(run)?.p50_ms);
    let p99 = |run: &ProgramRun| Some(latencies(run)?.p99_ms);
    let all = rounds.iter().filter_map(|(_, run)| latencies(run));
    let mut pooled: Vec<f64> = all.flat_map(|one| one.all_ms.iter().copied()).collect();
    pooled.sort_by(f64::total_cmp);
    let is_latency = program.class == Class::Latency;
    ProgramSummary {
        program: program.program,
        class: program.class,
        per_second: spread(&rate),
        requests: is_latency.then_some(pooled.len()),
        p50_ms: spread(&p50),
        p90_ms: spread(&|run| Some(latencies(run)?.p90_ms)),
        p99_ms: spread(&p99),
        max_ms: spread(&|run| Some(latencies(run)?.max_ms)),
        p50_overhead: overhead(&p50),
        p99_overhead: overhead(&p99),
        quantiles_ms: quantiles(&pooled),
        service: ServiceSummary::of(
            &rounds.iter().map(|(_, run)| *run).collect::<Vec<_>>(),
            &rounds
                .iter()
                .filter_map(|(round, run)| Some((alone_in(runs, *round, program.program)?, *run)))
                .collect::<Vec<_>>(),
            &spread,
            &overhead,
        ),
        told_apart: ToldApart::together(rounds.iter().filter_map(|(_, run)| run.told_apart.as_ref())),
        share: if is_latency { None } else { against(&rate) },
        bits: worst(rounds.iter().map(|(_, run)| &run.bits)),
    }
}

fn latencies(run: &ProgramRun) -> Option<&Latencies> {
    match run.figures.as_ref()? {
        Figures::Requests(latencies) => Some(latencies),
        Figures::Tokens(service) => Some(&service.whole),
        Figures::Steps(_) => None,
    }
}

/// Requests or steps a second.
fn rate(run: &ProgramRun) -> Option<f64> {
    Some(match run.figures.as_ref()? {
        Figures::Requests(latencies) => latencies.per_second,
        Figures::Tokens(service) => service.whole.per_second,
        Figures::Steps(rate) => rate.per_second,
    })
}

fn alone_in<'a>(runs: &[&'a ArmRun], round: usize, program: &str) -> Option<&'a ProgramRun> {
    let alone = runs.iter().find(|run| run.arm == ALONE && run.round == round)?;
    alone.stretches.first()?.programs.iter().find(|one| one.program == program)
}

/// A difference, or else that it is not known, or else that there is none.
fn worst<'a>(all: impl Iterator<Item = &'a Identity> + Clone) -> Identity {
    let badness = |identity: &&Identity| match identity {
        Identity::Reference => 0,
        Identity::Identical { .. } => 1,
        Identity::Unknown { .. } => 2,
        Identity::Different { .. } => 3,
    };
    all.max_by_key(badness).cloned().unwrap_or(Identity::unknown("it did not run"))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::arm;
    use super::super::figures::Rate;
    use super::super::scenario::SCENARIOS;
    use super::*;

    /// A run of a server and a training, with that latency for all requests and so many steps a second.
    pub(crate) fn run(arm: &'static str, round: usize, latency_ms: f64, steps: f64, level: Option<f64>) -> ArmRun {
        let all_ms = vec![latency_ms; 100];
        let latencies = Latencies {
            requests: 100,
            per_second: 10.0,
            p50_ms: latency_ms,
            p90_ms: latency_ms,
            p99_ms: latency_ms,
            max_ms: latency_ms,
            quantiles_ms: quantiles(&all_ms).unwrap(),
            all_ms,
        };
        let rate = Rate { steps, per_second: steps, seconds: 1.0 };
        let program = |program, class, figures| ProgramRun {
            program,
            class,
            figures: Some(figures),
            bits: Identity::Identical { compared: 1 },
            unrest: None,
            told_apart: None,
        };
        let programs = vec![
            program("serve", Class::Latency, Figures::Requests(latencies)),
            program("train", Class::BestEffort, Figures::Steps(rate)),
        ];
        let stretches = vec![Stretch { aggressiveness: level, programs }];
        let (tenants, discarded, samples, kept) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        ArmRun {
            arm,
            round,
            load: None,
            measured_s: 1,
            seconds: 1.0,
            stretches,
            failure: None,
            tenants,
            discarded,
            samples,
            kept,
        }
    }

    /// A run of an LLM server whose tokens come that long after each other, and its first ones ten times as long after their
    /// arrivals; it is to keep to 200 ms and 20 ms.
    pub(crate) fn llm_run(arm: &'static str, round: usize, load: Option<f64>, gap_ms: f64) -> ArmRun {
        use super::super::answers::{Answers, tests::answer};
        use super::super::service::{Objectives, kept, service};
        let gap = gap_ms / 1e3;
        let requests =
            (0..10).map(|number: u32| answer(number.into(), 0.1 * f64::from(number), gap * 10.0, gap, 11)).collect();
        let answers = Answers { requests, ..Answers::default() };
        let mut found = service(&answers).unwrap();
        found.kept = kept(&answers, Objectives { ttft_ms: Some(200.0), tpot_ms: Some(20.0) });
        let mut run = run(arm, round, 1.0, 1.0, None);
        run.load = load;
        let programs = &mut run.stretches[0].programs;
        programs.truncate(1);
        programs[0].figures = Some(Figures::Tokens(Box::new(found)));
        run
    }

    pub(crate) fn arms() -> Vec<Arm> {
        arm::choose(&SCENARIOS[0], &["alone", "mps", "fair"].map(String::from)).unwrap()
    }

    #[test]
    fn a_spread_has_its_median_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max, spread.rounds), (2.0, 1.0, 3.0, 3));
        assert_eq!(Spread::of([1.0, 2.0]).unwrap().median, 1.5);
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn figures_stand_against_alone_of_the_same_round() {
        let runs = [
            run("alone", 1, 1.0, 10.0, None),
            run("mps", 1, 2.0, 9.0, None),
            run("mps", 2, 3.0, 10.0, None),
            run("alone", 2, 2.0, 20.0, None),
        ];
        let all = summarise(&arms(), &runs);
        assert_eq!(all.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["alone", "mps", "fair"]);
        let [serve, train] = &all[1].programs[..] else { panic!("{:?}", all[1]) };
        let overhead = serve.p99_overhead.unwrap();
        assert_eq!((overhead.min, overhead.median, overhead.max), (0.5, 0.75, 1.0));
        let share = train.share.unwrap();
        assert_eq!((share.min, share.max, share.rounds), (0.5, 0.9, 2));
        assert_eq!((serve.requests, serve.share, train.p99_ms), (Some(200), None, None));
        assert!(all[2].programs.is_empty(), "it did not run");
    }

    #[test]
    fn a_round_without_alone_stands_against_nothing() {
        let all = summarise(&arms(), &[run("alone", 1, 1.0, 1.0, None), run("mps", 2, 2.0, 2.0, None)]);
        assert_eq!((all[1].programs[0].p99_overhead, all[1].programs[1].share), (None, None));
        assert_eq!(all[1].programs[0].p99_ms.unwrap().median, 2.0);
    }

    #[test]
    fn levels_are_points_of_their_own() {
        let runs = [run("fair", 1, 1.0, 1.0, Some(0.0)), run("fair", 2, 1.0, 1.0, Some(0.25))];
        let names: Vec<_> = summarise(&arms(), &runs).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["alone", "mps", "fair@0", "fair@0.25"]);
    }

    #[test]
    fn an_llm_server_stands_against_alone_at_the_same_load() {
        let runs = [
            llm_run("alone", 1, Some(0.7), 20.0),
            llm_run("alone", 1, Some(0.3), 10.0),
            llm_run("mps", 1, Some(0.3), 15.0),
            llm_run("mps", 1, Some(0.7), 25.0),
        ];
        let all = summarise(&arms(), &runs);
        let names: Vec<_> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["alone at 0.3", "mps at 0.3", "fair at 0.3", "alone at 0.7", "mps at 0.7", "fair at 0.7"]);
        assert_eq!((all[1].arm, all[1].load), ("mps", Some(0.3)));
        let figures = |number: usize| all[number].programs[0].service.as_ref().unwrap();
        let near = |spread: Option<Spread>, value: f64| (spread.unwrap().median - value).abs() < 1e-3;
        assert!(near(figures(1).tpot_p99_overhead, 0.5) && near(figures(1).mean_latency_overhead, 0.5));
        assert!(near(figures(4).ttft_p99_overhead, 0.25), "{:?}", figures(4));
        assert!(near(figures(1).ttft_p99_ms, 150.0) && near(figures(1).mean_latency_ms, 300.0));
        assert!(near(figures(4).tpot_violations, 100.0) && near(figures(4).tpot_violations_part, 1.0));
        assert!(near(figures(4).ttft_violations, 10.0) && near(figures(4).goodput, 0.0));
        let ratios = figures(1).latency_ratios.unwrap();
        assert_eq!((ratios.requests, figures(1).ttft_count, figures(1).tpot_count), (10, 10, 100));
        assert!((ratios.p99 - 1.5).abs() < 1e-3 && (figures(4).tpot_ratios.unwrap().median - 1.25).abs() < 1e-3);
        let interval = figures(1).ttft_p99_overhead_interval.unwrap();
        assert!((interval.low - 0.5).abs() < 1e-3 && (interval.high - 0.5).abs() < 1e-3, "{interval:?}");
        assert!(near(figures(1).tpot_violations, 0.0) && figures(1).goodput.unwrap().median > 7.0);
        let tail = all[1].programs[0].tail_overhead();
        assert!(near(tail, 0.5), "{tail:?}");
        let one_load = summarise(&arms(), &runs[1..2]);
        assert_eq!((one_load[0].name.as_str(), one_load[0].load), ("alone", Some(0.3)));
    }

    #[test]
    fn the_worst_round_says_whether_bits_differ() {
        let mut runs = [run("mps", 1, 1.0, 1.0, None), run("mps", 2, 1.0, 1.0, None)];
        runs[0].stretches[0].programs[0].bits =
            Identity::Different { first: "x".to_string(), different: 1, compared: 2 };
        runs[1].stretches[0].programs[1].bits = Identity::unknown("y");
        let all = summarise(&arms(), &runs);
        assert!(all[1].programs[0].bits.is_different());
        assert!(matches!(all[1].programs[1].bits, Identity::Unknown { .. }));
    }
}
