//! What was recorded on an H200: a server beside the training of a transformer. The ways of sharing come out in the order that
//! was measured there. Kernels' durations are those that the shim had learned.

use detshare_sim::record::together;
use detshare_sim::report::Report;
use detshare_sim::trace::Trace;
use detshare_sim::{Settings, Simulator, Way};

fn simulated(scenario: &str, way: &str) -> Report {
    let read = |part: &str| {
        let path = format!("{}/tests/traces/h200-{scenario}-{part}.json", env!("CARGO_MANIFEST_DIR"));
        Trace::from_json(&std::fs::read_to_string(path).expect("it is there")).expect("it is a trace")
    };
    let trace = together(vec![read("serve"), read("train")]).expect("two traces");
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
