//! An LLM server that was recorded on an H200, alone, here beside the training that was: arms that were measured to differ come in
//! the same order. Requests, chunks and decode steps are those of that run (`bench/gpu/llm_record.py`).

use detshare_sim::record::together;
use detshare_sim::trace::Trace;
use detshare_sim::{Settings, Simulator, Way};
use serde_json::Value;

/// What is compared: p99 to the first token, p50 and p99 between tokens and mean requests in milliseconds, and the training's share.
const FIGURES: [&str; 5] = ["TTFT p99", "TPOT p50", "TPOT p99", "mean request", "share"];
type Figures = [f64; FIGURES.len()];

/// Until all requests are answered, in every arm.
const LONG_NS: u64 = 120_000_000_000;
/// Measured differences that are smaller are no order: 37 requests were measured, once.
const LEAST_DIFFERENCE: f64 = 0.10;

fn results() -> Value {
    let path = format!("{}/../../bench/results/h200-sharing/llm-train/results.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).expect("it was measured")).expect("JSON")
}

fn recorded(results: &Value) -> Trace {
    let read = |program: &str| {
        let path = format!("{}/tests/traces/h200-{program}.json", env!("CARGO_MANIFEST_DIR"));
        Trace::from_json(&std::fs::read_to_string(path).expect("it is there")).expect("it is a trace")
    };
    let mut trace = together(vec![read("llm-train-chat"), read("train")]).expect("traces of one GPU");
    let objective = |name: &str| {
        let ms = results["replays"][0]["objectives"][name].as_f64().expect("an objective");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than a second")]
        let ns = (ms * 1e6) as u64;
        Some(ns)
    };
    (trace.tenants[0].ttft_ns, trace.tenants[0].tpot_ns) = (objective("ttft_ms"), objective("tpot_ms"));
    trace
}

fn measured(arm: &Value) -> Figures {
    let of = |path: &str| arm.pointer(&format!("/programs/{path}/median")).and_then(Value::as_f64);
    ["0/service/ttft_p99_ms", "0/service/tpot_p50_ms", "0/service/tpot_p99_ms", "0/service/mean_latency_ms", "1/share"]
        .map(|path| of(path).unwrap_or_else(|| panic!("no {path} in {arm:#}")))
}

/// The training's share counts until the last request has come, as in the benchmark.
fn simulated(trace: &Trace, arm: &Value) -> Figures {
    let way = Way::named(arm["arm"].as_str().expect("a name")).expect("the model has it");
    let over = |run_ns: u64| {
        let settings = Settings { run_ns, ..Settings::default() };
        Simulator::new(trace, settings).expect("it can be simulated").run(way)
    };
    let requests = &trace.tenants[0].server.as_ref().expect("it is a server").requests;
    let (whole, window) = (over(LONG_NS), over(requests.last().expect("requests").at_ns));
    let service = whole.latency[0].service.as_ref().expect("it is a server");
    assert_eq!(whole.latency[0].unanswered, 0, "{way:?}");
    let figures = [service.ttft.p99_ns, service.tpot.p50_ns, service.tpot.p99_ns, service.mean_latency_ns];
    #[expect(clippy::cast_precision_loss, reason = "less than an hour")]
    let [ttft, middle, tail, mean] = figures.map(|ns| ns as f64 / 1e6);
    #[expect(clippy::cast_precision_loss, reason = "thousandths")]
    let share = window.best_effort[0].share as f64 / 1e3;
    [ttft, middle, tail, mean, share]
}

#[test]
fn arms_with_a_server_come_in_the_order_that_was_measured() {
    let results = results();
    let trace = recorded(&results);
    let arms = results["arms"].as_array().expect("arms");
    let both: Vec<(&Value, Figures, Figures)> =
        arms.iter().map(|arm| (&arm["arm"], measured(arm), simulated(&trace, arm))).collect();
    for (arm, measured, simulated) in &both {
        println!("{arm}: {FIGURES:?} measured {measured:.3?} simulated {simulated:.3?}");
    }
    let (_, measured, simulated) = &both[0];
    for (figure, (measured, simulated)) in FIGURES.iter().zip(measured.iter().zip(simulated)) {
        assert!(
            (simulated / measured - 1.0).abs() < 0.05,
            "alone, {figure}: measured {measured}, simulated {simulated}"
        );
    }
    let mut pairs = 0;
    for (one, other) in both.iter().flat_map(|one| both.iter().map(move |other| (one, other))) {
        for (place, figure) in FIGURES.iter().enumerate() {
            if one.1[place] * (1.0 + LEAST_DIFFERENCE) < other.1[place] {
                pairs += 1;
                assert!(one.2[place] < other.2[place], "{figure}: {} is less than {}", one.0, other.0);
            }
        }
    }
    assert!(pairs >= 10, "{pairs} pairs");
}
