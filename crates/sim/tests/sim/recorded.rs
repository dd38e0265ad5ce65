//! What was recorded on an H200: servers and trainings, each alone, here together. The ways of sharing come out in the order
//! that was measured there. Kernels' durations are those that the shim had learned.

use detshare_policy::rhythm::Learner;
use detshare_sim::record::together;
use detshare_sim::report::Report;
use detshare_sim::trace::{Arrivals, Trace};
use detshare_sim::{Settings, Simulator, Way};

/// The training of a transformer that fills the GPU.
const TRAIN: &str = "train";

fn recorded(program: &str) -> Trace {
    let path = format!("{}/tests/traces/h200-{program}.json", env!("CARGO_MANIFEST_DIR"));
    Trace::from_json(&std::fs::read_to_string(path).expect("it is there")).expect("it is a trace")
}

fn simulated(programs: &[&str], way: &str) -> Report {
    let mut traces: Vec<_> = programs.iter().map(|program| recorded(program)).collect();
    for (number, trace) in traces.iter_mut().enumerate() {
        trace.tenants[0].name += &number.to_string();
    }
    let trace = together(traces).expect("traces of one GPU");
    let settings = Settings { run_ns: 5_000_000_000, ..Settings::default() };
    Simulator::new(&trace, settings).expect("it can be simulated").run(Way::named(way).expect("there is one"))
}

/// The server's p99 against alone, and the training's share, in thousandths.
fn outcome(server: &str, way: &str) -> (i64, u64) {
    let report = simulated(&[server, TRAIN], way);
    (report.latency[0].p99_overhead, report.best_effort[0].share)
}

#[test]
fn the_ways_come_in_the_order_that_was_measured() {
    for server in ["small-serve", "7b-serve", "small-poisson-serve", "7b-poisson-serve", "small-eager-serve"] {
        let of = |way| outcome(server, way);
        let (slo_aware, time_slicing, throughput) = (of("slo-aware"), of("time-slicing"), of("throughput"));
        assert!(slo_aware.0 < throughput.0 && slo_aware.0 < time_slicing.0, "{server}: the steadiest tail");
        assert!(of("fair").0 > slo_aware.0 && of("exclusive").0 > slo_aware.0, "{server}: the steadiest tail");
        assert!(throughput.1 > slo_aware.1, "{server}: who protects nobody trains the most");
    }
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

/// Steps as they began on the GPU, under a server that answers by the clock: 49 of 50 are known to a tenth of a
/// millisecond, some programs are late themselves.
#[test]
fn when_a_step_is_due_was_known_on_the_gpu() {
    for (server, lasts_ns) in [("small-serve", 1_200_000), ("7b-serve", 4_500_000)] {
        let trace = recorded(server);
        let Some(Arrivals::Recorded { at_ns }) = &trace.tenants[0].arrivals else { panic!("it was recorded") };
        let mut learner = Learner::new();
        let mut errors = Vec::new();
        for began in at_ns {
            errors.extend(learner.rhythm().due_ns.map(|due| due.abs_diff(*began)));
            learner.began(*began);
            learner.ended(began + lasts_ns, None);
        }
        errors.sort_unstable();
        assert!(errors.len() + 16 >= at_ns.len(), "{server}: {} of {} were predicted", errors.len(), at_ns.len());
        let (middle, most) = (errors[errors.len() / 2], errors[errors.len() * 49 / 50]);
        assert!(middle < 20_000 && most < 100_000, "{server}: {middle} ns in the middle, {most} ns for 49 of 50");
    }
}
