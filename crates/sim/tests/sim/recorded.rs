//! What was recorded on an H200: a server beside the training of a transformer. The ways of sharing come out in the order that
//! was measured there. Kernels' durations are those that the shim had learned.

use detshare_policy::rhythm::Learner;
use detshare_sim::record::together;
use detshare_sim::report::Report;
use detshare_sim::trace::{Arrivals, Trace};
use detshare_sim::{Settings, Simulator, Way};

fn recorded(scenario: &str, part: &str) -> Trace {
    let path = format!("{}/tests/traces/h200-{scenario}-{part}.json", env!("CARGO_MANIFEST_DIR"));
    Trace::from_json(&std::fs::read_to_string(path).expect("it is there")).expect("it is a trace")
}

fn simulated(scenario: &str, way: &str) -> Report {
    let trace = together(vec![recorded(scenario, "serve"), recorded(scenario, "train")]).expect("two traces");
    let settings = Settings { run_ns: 5_000_000_000, ..Settings::default() };
    Simulator::new(&trace, settings).expect("it can be simulated").run(Way::named(way).expect("there is one"))
}

/// The server's p99 against alone, and the training's share, in thousandths.
fn outcome(scenario: &str, way: &str) -> (i64, u64) {
    let report = simulated(scenario, way);
    (report.latency[0].p99_overhead, report.best_effort[0].share)
}

#[test]
fn the_ways_come_in_the_order_that_was_measured() {
    for scenario in ["small", "7b"] {
        let of = |way| outcome(scenario, way);
        let (slo_aware, time_slicing, throughput) = (of("slo-aware"), of("time-slicing"), of("throughput"));
        assert!(slo_aware.0 < throughput.0 && slo_aware.0 < time_slicing.0, "{scenario}: the steadiest tail");
        assert!(of("fair").0 > slo_aware.0 && of("exclusive").0 > slo_aware.0, "{scenario}: the steadiest tail");
        assert!(throughput.1 > slo_aware.1, "{scenario}: who protects nobody trains the most");
    }
}

/// Steps as they began on the GPU, under a server that answers by the clock: 49 of 50 are known to a tenth of a
/// millisecond, some programs are late themselves.
#[test]
fn when_a_step_is_due_was_known_on_the_gpu() {
    for (scenario, lasts_ns) in [("small", 1_200_000), ("7b", 4_500_000)] {
        let trace = recorded(scenario, "serve");
        let Some(Arrivals::Recorded { at_ns }) = &trace.tenants[0].arrivals else { panic!("it was recorded") };
        let mut learner = Learner::new();
        let mut errors = Vec::new();
        for began in at_ns {
            errors.extend(learner.rhythm().due_ns.map(|due| due.abs_diff(*began)));
            learner.began(*began);
            learner.ended(began + lasts_ns, None);
        }
        errors.sort_unstable();
        assert!(errors.len() + 16 >= at_ns.len(), "{scenario}: {} of {} were predicted", errors.len(), at_ns.len());
        let (middle, most) = (errors[errors.len() / 2], errors[errors.len() * 49 / 50]);
        assert!(middle < 20_000 && most < 100_000, "{scenario}: {middle} ns in the middle, {most} ns for 49 of 50");
    }
}
