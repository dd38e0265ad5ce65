//! What was recorded on an H200: servers and trainings, each alone, here together. Ways of sharing that were measured to
//! differ there differ in the same order here. Kernels' durations are those that the shim had learned.

use detshare_policy::rhythm::Learner;
use detshare_policy::{Dial, Rhythm};
use detshare_sim::record::together;
use detshare_sim::report::Report;
use detshare_sim::trace::{Arrivals, Trace};
use detshare_sim::{Settings, Simulator, Way};
use serde_json::Value;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000_000;

/// The training of a transformer that fills the GPU.
const TRAIN: &str = "train";

fn recorded(program: &str) -> Trace {
    let path = format!("{}/tests/traces/h200-{program}.json", env!("CARGO_MANIFEST_DIR"));
    Trace::from_json(&std::fs::read_to_string(path).expect("it is there")).expect("it is a trace")
}

fn simulated(programs: &[&str], way: &str) -> Report {
    let settings = Settings { run_ns: 5 * SECOND, ..Settings::default() };
    simulated_with(programs, Way::named(way).expect("there is one"), settings)
}

fn simulated_with(programs: &[&str], way: Way, settings: Settings) -> Report {
    let mut traces: Vec<_> = programs.iter().map(|program| recorded(program)).collect();
    for (number, trace) in traces.iter_mut().enumerate() {
        trace.tenants[0].name += &number.to_string();
    }
    let trace = together(traces).expect("traces of one GPU");
    Simulator::new(&trace, settings).expect("it can be simulated").run(way)
}

/// A scenario that was measured (`bench/results/h200-sharing/NAME/results.json`), and the records that it is simulated from.
struct Scenario {
    name: &'static str,
    programs: &'static [&'static str],
    mps: bool,
    seconds: u64,
}

/// As long as it was measured, where arrivals are regular; at random, longer, so that chance plays no part.
const SCENARIOS: [Scenario; 12] = {
    const fn of(name: &'static str, programs: &'static [&'static str]) -> Scenario {
        Scenario { name, programs, mps: true, seconds: 6 }
    }
    [
        of("small", &["small-serve", TRAIN]),
        Scenario { mps: false, ..of("small-process", &["small-serve", TRAIN]) },
        of("7b", &["7b-serve", TRAIN]),
        Scenario { mps: false, ..of("7b-process", &["7b-serve", TRAIN]) },
        Scenario { seconds: 30, ..of("small-poisson", &["small-poisson-serve", TRAIN]) },
        Scenario { seconds: 30, ..of("small-poisson-dial", &["small-poisson-serve", TRAIN]) },
        Scenario { seconds: 30, ..of("7b-poisson", &["7b-poisson-serve", TRAIN]) },
        of("small-eager", &["small-eager-serve", TRAIN]),
        Scenario { mps: false, seconds: 30, ..of("small-poisson-process", &["small-poisson-serve", TRAIN]) },
        // No longer than the records are.
        Scenario { seconds: 5, ..of("two-latency", &["small-serve", "two-latency-7b", TRAIN]) },
        of("two-full", &[TRAIN, TRAIN]),
        of("two-half", &["two-half-train", "two-half-train"]),
    ]
};

/// Arms of the benchmark that the model does not have: it knows no client priorities, no lanes for good, and nothing of what it
/// costs to be a tenant alone.
const NOT_MODELLED: [&str; 4] = ["mps-priority", "fixed-64", "fixed-96", "detshare-alone"];

/// Measured differences that are smaller are no order: one round of some seconds was measured.
const LEAST_DIFFERENCE: f64 = 0.10;

/// What the model gets wrong: scenario, figure, what is measured to be less than what, and why.
const WRONG: &[(&str, &str, &str, &str, &str)] = &[
    ("small", "p99 of serve", "slo-aware@1", "mps", NO_P99),
    ("7b", "p99 of serve", "slo-aware@1", "mps", NO_P99),
    ("two-latency", "p99 of serve-7b", "exclusive", "time-slicing", DEEP_QUEUE),
];
/// At 1 nothing is held, so both are the same in the model, and the server keeps up in neither.
const NO_P99: &str = "the queue grows for as long as is measured, which was longer under MPS";

/// It hands over when that is done, and servers wait for it.
const DEEP_QUEUE: &str = "the model's training launches further ahead in its turn than the real one does";

/// What is compared: of a latency tenant p99 against alone, of a best-effort tenant the share, by its name.
type Figures = BTreeMap<String, f64>;

/// An arm that both have: its name, the way and the dial that it stands for, what was measured and what is simulated.
struct Compared {
    arm: String,
    stands_for: (String, Dial),
    measured: Figures,
    simulated: Figures,
}

fn measured(arm: &Value) -> Figures {
    let figure = |program: &Value| {
        let overhead = program["p99_overhead"]["median"].as_f64().map(|added| ("p99", 1.0 + added));
        let share = program["share"]["median"].as_f64().map(|share| ("share", share));
        let (what, value) = overhead.or(share).expect("an arm with figures");
        (format!("{what} of {}", program["program"].as_str().expect("a name")), value)
    };
    arm["programs"].as_array().expect("programs").iter().map(figure).collect()
}

fn simulated_figures(report: &Report, arm: &Value) -> Figures {
    let thousandths = |value: i64| f64::from(i32::try_from(value).unwrap_or(i32::MAX)) / 1e3;
    let latency = report.latency.iter().map(|one| ("p99", thousandths(1_000 + one.p99_overhead)));
    let shares = report.best_effort.iter().map(|one| ("share", thousandths(i64::try_from(one.share).expect("a part"))));
    // Both have servers first, in the order of the scenario.
    let names =
        arm["programs"].as_array().expect("programs").iter().map(|one| one["program"].as_str().expect("a name"));
    latency.chain(shares).zip(names).map(|((what, value), name)| (format!("{what} of {name}"), value)).collect()
}

fn compared(scenario: &Scenario) -> Vec<Compared> {
    let folder = format!("{}/../../bench/results/h200-sharing", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(format!("{folder}/{}/results.json", scenario.name)).expect("it was measured");
    let results: Value = serde_json::from_str(&text).expect("JSON");
    let arms = results["arms"].as_array().expect("arms").iter();
    let name = |arm: &Value| arm["arm"].as_str().expect("a name").to_string();
    let modelled = arms.filter(|arm| !NOT_MODELLED.contains(&name(arm).as_str()));
    let both = modelled.map(|arm| {
        let way = Way::named(&name(arm)).unwrap_or_else(|| panic!("{}: the model has no such way", name(arm)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1000")]
        let dial = arm["aggressiveness"].as_f64().map_or(Dial::USUAL, |level| Dial::new((level * 1e3).round() as u16));
        let settings = Settings { run_ns: scenario.seconds * SECOND, mps: scenario.mps, dial, ..Settings::default() };
        let report = simulated_with(scenario.programs, way, settings);
        let arm_name = arm["name"].as_str().expect("a name").to_string();
        Compared {
            arm: arm_name,
            stands_for: (name(arm), dial),
            measured: measured(arm),
            simulated: simulated_figures(&report, arm),
        }
    });
    both.collect()
}

/// Every pair of arms that were measured to differ, in every figure: in the model they differ the same way.
#[test]
fn arms_that_were_measured_to_differ_come_in_the_same_order() {
    let (mut pairs, mut wrong) = (0, Vec::new());
    for scenario in &SCENARIOS {
        let arms = compared(scenario);
        let pairs_of_arms = arms.iter().flat_map(|one| arms.iter().map(move |other| (one, other)));
        // A policy at the usual dial is also measured as one of the levels: between the two there is nothing but chance.
        for (one, other) in pairs_of_arms.filter(|(one, other)| one.stands_for != other.stands_for) {
            for (figure, value) in &one.measured {
                if value * (1.0 + LEAST_DIFFERENCE) >= other.measured[figure] {
                    continue;
                }
                pairs += 1;
                let (less, more) = (one.simulated[figure], other.simulated[figure]);
                if less >= more {
                    wrong.push((scenario.name, figure.clone(), one.arm.clone(), other.arm.clone()));
                    println!(
                        "{}: {figure}: measured {} {value:.3} < {} {:.3}, simulated {less:.3} and {more:.3}",
                        scenario.name, one.arm, other.arm, other.measured[figure]
                    );
                }
            }
        }
    }
    let known =
        WRONG.iter().map(|(name, figure, less, more, _)| (*name, (*figure).into(), (*less).into(), (*more).into()));
    assert_eq!(wrong, known.collect::<Vec<_>>(), "of {pairs} pairs");
    assert!(pairs > 50, "{pairs} pairs");
}

#[test]
fn of_two_servers_each_is_better_off_than_by_turns() {
    let of = |way| simulated(&["small-serve", "two-latency-7b", TRAIN], way);
    let (slo_aware, time_slicing) = (of("slo-aware"), of("time-slicing"));
    for (ours, sliced) in slo_aware.latency.iter().zip(&time_slicing.latency) {
        assert!(ours.p99_overhead < sliced.p99_overhead, "{}: the steadier tail", ours.name);
    }
    assert!(slo_aware.best_effort[0].share > 0, "the training gets something");
}

#[test]
fn two_trainings_get_more_done_than_by_turns() {
    let together =
        |training, way| simulated(&[training, training], way).best_effort.iter().map(|one| one.share).sum::<u64>();
    for training in [TRAIN, "two-half-train"] {
        let (slo_aware, time_slicing) = (together(training, "slo-aware"), together(training, "time-slicing"));
        assert!(slo_aware > time_slicing, "{training}: {slo_aware} and {time_slicing} thousandths");
    }
    assert!(together("two-half-train", "slo-aware") > 1_500, "who leaves half of it idle leaves it to the other");
}

/// How long before a step that is due the GPU rests.
const REST_NS: u64 = 100_000;

/// Steps as they began on the GPU, under a server that answers by the clock: 49 of 50 are known to a tenth of a
/// millisecond, some programs are late themselves.
#[test]
fn when_a_step_is_due_was_known_on_the_gpu() {
    for (server, lasts_ns) in [("small-serve", 1_200_000), ("7b-serve", 4_500_000)] {
        let trace = recorded(server);
        let Some(Arrivals::Recorded { at_ns }) = &trace.tenants[0].arrivals else { panic!("it was recorded") };
        let mut learner = Learner::new();
        let (mut errors, mut early) = (Vec::new(), 0);
        for began in at_ns {
            let Rhythm { due_ns, spread_ns, .. } = learner.rhythm();
            errors.extend(due_ns.map(|due| due.abs_diff(*began)));
            // Nothing rests for it yet.
            early += u32::from(due_ns.is_some_and(|due| due.saturating_sub(*began) > spread_ns + REST_NS));
            learner.began(*began);
            learner.ended(began + lasts_ns, None);
        }
        errors.sort_unstable();
        assert!(errors.len() + 16 >= at_ns.len(), "{server}: {} of {} were predicted", errors.len(), at_ns.len());
        let (middle, most) = (errors[errors.len() / 2], errors[errors.len() * 49 / 50]);
        assert!(middle < 20_000 && most < 100_000, "{server}: {middle} ns in the middle, {most} ns for 49 of 50");
        assert_eq!(early, 0, "{server}: no step comes before it is expected, after one that was late neither");
    }
}
