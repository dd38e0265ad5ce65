//! Traces that cannot be: each gives an error that says what is wrong and where.

use detshare_sim::trace::{Trace, TraceError, VERSION};
use detshare_sim::{Costs, Error, Settings, Simulator, Way, synthetic};
use proptest::prelude::*;
use serde_json::{Value, json};

/// One that can be.
fn trace() -> Value {
    json!({
        "version": VERSION,
        "gpu": { "name": "H200", "sms": 132 },
        "kernels": [
            { "id": "a", "nodes": 200, "bound": "memory", "durations": [{ "sms": 64, "ns": 1_600_000 }, { "sms": 132, "ns": 1_200_000 }] },
            { "id": "b", "durations": [{ "sms": 132, "ns": 300_000 }] },
        ],
        "tenants": [
            { "name": "serve", "class": "latency", "steps": [[{ "kernel": 0 }]], "arrivals": { "kind": "periodic", "period_ns": 6_000_000 } },
            { "name": "train", "class": "best-effort", "steps": [[{ "kernel": 1, "gap_ns": 4_000 }, { "kernel": 1 }]] },
        ],
    })
}

/// One with an LLM server that can be.
fn with_server() -> Value {
    let mut trace = trace();
    trace["tenants"][0] = json!({ "name": "chat", "class": "latency", "server": {
        "host_ns": 600_000, "prefill": [{ "kernel": 1 }], "decode": [{ "spans": 32, "kernel": 0 }, { "spans": 64, "kernel": 0 }],
        "requests": [{ "at_ns": 0, "prompt": 700, "output": 3 }, { "at_ns": 5, "prompt": 1, "output": 1 }],
    } });
    trace
}

/// The same, with something else at a place. `null` removes it.
fn with(pointer: &str, value: Value) -> Result<Trace, TraceError> {
    changed(trace(), pointer, value)
}

fn changed(mut trace: Value, pointer: &str, value: Value) -> Result<Trace, TraceError> {
    let (parent, last) = pointer.rsplit_once('/').expect("a place in something");
    let parent = trace.pointer_mut(parent).expect("there is such a place");
    match parent {
        Value::Object(fields) if value.is_null() => _ = fields.remove(last),
        Value::Object(fields) => _ = fields.insert(last.to_owned(), value),
        Value::Array(items) => items[last.parse::<usize>().expect("a number")] = value,
        _ => panic!("{pointer} is in nothing"),
    }
    Trace::from_json(&trace.to_string())
}

#[test]
fn one_that_can_be_is_read() {
    let trace = Trace::from_json(&trace().to_string()).expect("it can be");
    assert_eq!((trace.kernels[1].nodes, trace.tenants[1].weight, trace.tenants[1].queue), (1, 100, 1_024));
    assert!(trace.tenants[1].waits);
    assert!(Simulator::new(&trace, Settings { run_ns: 1_000_000, ..Settings::default() }).is_ok());
}

#[test]
fn so_is_one_with_a_server() {
    let trace = Trace::from_json(&with_server().to_string()).expect("it can be");
    let server = trace.tenants[0].server.as_ref().expect("it has one");
    assert_eq!((server.rows, server.chunk, server.interleave, server.cache_tokens), (32, 512, true, 65_536));
    assert_eq!(Trace::from_json(&trace.to_json()), Ok(trace.clone()));
    let settings = Settings { run_ns: 100_000_000, ..Settings::default() };
    let report = Simulator::new(&trace, settings).expect("it can be simulated").run(Way::Mps);
    assert_eq!(report.latency[0].requests, 2);
    assert!(report.to_json().contains("\"ttft_violations\": 0"));
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    let cases: &[(&str, Value, &str)] = &[
        ("rows", json!(0), "server.rows: 0 is not between 1 and 65536"),
        ("chunk", json!(0), "server.chunk: 0 is not"),
        ("cache_tokens", json!(4_000_000_000_u32), "server.cache_tokens: 4000000000 is not"),
        ("host_ns", json!(u64::MAX), "server.host_ns: 18446744073709551615 is not"),
        ("prefill", json!([]), "server.prefill: it launches nothing"),
        ("prefill_host_ns", json!([0, u64::MAX]), "server.prefill_host_ns[1]: "),
        ("prefill/0/kernel", json!(2), "server.prefill[0].kernel: 2 is none of the 2 kernels"),
        ("decode", json!([]), "server.decode: there are no decode steps"),
        ("decode/1/spans", json!(32), "server.decode[1].spans: 32 is not between 33"),
        ("decode/1/kernel", json!(7), "server.decode[1].kernel: 7 is none"),
        ("requests", json!(null), "missing field `requests`"),
        ("requests/0/at_ns", json!(6), "server.requests[1].at_ns: 5 is not between 6"),
        ("requests/1/prompt", json!(0), "server.requests[1].prompt: 0 is not between 1"),
        ("requests/1/output", json!(0), "server.requests[1].output: 0 is not between 1"),
        ("requests/1/prompt", json!(u32::MAX), "server.requests[1].prompt: 4294967295 is not"),
        ("pages", json!(1), "unknown field `pages`"),
    ];
    for (place, value, expected) in cases {
        let error = changed(with_server(), &format!("/tenants/0/server/{place}"), value.clone()).expect_err(place);
        assert!(error.to_string().contains(expected), "{place}: {error}");
    }
    for (place, value) in [
        ("class", json!("best-effort")),
        ("steps", json!([[{ "kernel": 0 }]])),
        ("arrivals", json!({ "kind": "poisson", "mean_ns": 5_000_000 })),
    ] {
        let error = changed(with_server(), &format!("/tenants/0/{place}"), value).expect_err(place);
        assert!(error.to_string().contains("tenants[0].server: a server is a latency tenant"), "{place}: {error}");
    }
}

#[test]
fn an_error_says_what_and_where() {
    let cases: &[(&str, Value, &str)] = &[
        ("/version", json!(2), "version: 2 is not known here; this reads version 1"),
        ("/version", json!(null), "missing field `version`"),
        ("/gpu/sms", json!(0), "gpu.sms: 0 is not between 1 and 1024"),
        ("/gpu/sms", json!(4_000_000_000_u32), "gpu.sms: 4000000000 is not between 1 and 1024"),
        ("/gpu/sms", json!(144), "kernels[0].durations: none is on all 144 SMs"),
        ("/kernels/0/durations/0/sms", json!(0), "kernels[0].durations[0].sms: 0 is not between 1 and 132"),
        ("/kernels/0/durations/0/sms", json!(132), "kernels[0].durations[1].sms: 132 is not between 133 and 132"),
        ("/kernels/0/durations/1/ns", json!(0), "kernels[0].durations[1].ns: 0 is not between 1 and 10000000000"),
        ("/kernels/0/durations/1/ns", json!(u64::MAX), "kernels[0].durations[1].ns: 18446744073709551615 is not"),
        ("/kernels/0/durations", json!([]), "kernels[0].durations: none is on all 132 SMs"),
        ("/kernels/0/nodes", json!(0), "kernels[0].nodes: 0 is not between 1 and 1048576"),
        ("/kernels/1/id", json!("a"), "kernels[1].id: another kernel has the same"),
        ("/kernels/0/bound", json!("speed"), "unknown variant `speed`"),
        ("/kernels", json!([]), "tenants[0].steps[0][0].kernel: 0 is none of the 0 kernels"),
        ("/tenants", json!([]), "tenants: there are none"),
        ("/tenants/1/name", json!("serve"), "tenants[1].name: another tenant has the same"),
        ("/tenants/1/name", json!(""), "tenants[1].name: it is empty"),
        ("/tenants/1/weight", json!(0), "tenants[1].weight: 0 is not between 1 and 10000"),
        ("/tenants/1/queue", json!(0), "tenants[1].queue: 0 is not between 1 and 1048576"),
        ("/tenants/1/class", json!("urgent"), "unknown variant `urgent`"),
        ("/tenants/1/steps", json!([]), "tenants[1].steps: there are none"),
        ("/tenants/1/steps/0", json!([]), "tenants[1].steps[0]: it launches nothing"),
        ("/tenants/1/steps/0/1/kernel", json!(2), "tenants[1].steps[0][1].kernel: 2 is none of the 2 kernels"),
        ("/tenants/1/steps/0/0/gap_ns", json!(u64::MAX), "tenants[1].steps[0][0].gap_ns: 18446744073709551615 is not"),
        ("/tenants/1/steps/0/0/gap_ns", json!(-1), "invalid value: integer `-1`"),
        ("/tenants/1/steps/0/0/lane", json!(1), "unknown field `lane`"),
        ("/tenants/0/arrivals", json!(null), "tenants[0].arrivals: a latency tenant needs some"),
        (
            "/tenants/1/arrivals",
            json!({ "kind": "poisson", "mean_ns": 5_000_000 }),
            "tenants[1].arrivals: a best-effort",
        ),
        ("/tenants/0/arrivals/period_ns", json!(0), "tenants[0].arrivals.period_ns: 0 is not between 1000 and"),
        (
            "/tenants/0/arrivals/jitter_ns",
            json!(7_000_000),
            "tenants[0].arrivals.jitter_ns: 7000000 is not between 0 and 6000000",
        ),
        ("/tenants/0/arrivals/kind", json!("sometimes"), "unknown variant `sometimes`"),
        ("/tenants/0/arrivals", json!({ "kind": "poisson", "mean_ns": 1 }), "tenants[0].arrivals.mean_ns: 1 is not"),
        (
            "/tenants/0/arrivals",
            json!({ "kind": "recorded", "at_ns": [5, 4] }),
            "tenants[0].arrivals.at_ns[1]: 4 is not between 5 and",
        ),
        (
            "/tenants/0/arrivals",
            json!({ "kind": "recorded", "at_ns": [u64::MAX] }),
            "tenants[0].arrivals.at_ns[0]: 18446744073709551615",
        ),
        (
            "/tenants/0/arrivals",
            json!({ "kind": "pause", "pause_ns": u64::MAX }),
            "tenants[0].arrivals.pause_ns: 18446744073709551615",
        ),
    ];
    for (pointer, value, expected) in cases {
        let error = with(pointer, value.clone()).expect_err(pointer).to_string();
        assert!(error.contains(expected), "{pointer} = {value}: {error}");
    }
}

#[test]
fn too_many_tenants_are_refused() {
    let mut trace = synthetic::small_beside_training(synthetic::one_client());
    let another = |number: usize| {
        let mut tenant = trace.tenants[1].clone();
        tenant.name = format!("train-{number}");
        tenant
    };
    let more: Vec<_> = (0..63).map(another).collect();
    trace.tenants.extend(more);
    assert_eq!(trace.check().expect_err("65").to_string(), "tenants: there are more than 64");
    trace.tenants.pop();
    assert_eq!(trace.check(), Ok(()));
}

#[test]
fn what_is_not_json_is_told_by_line_and_column() {
    let error = Trace::from_json("{\n  \"version\": 1,\n  \"gpu\": }").expect_err("it is not JSON");
    assert_eq!(error, TraceError::Json { line: 3, column: 10, what: "expected value".to_owned() });
    assert_eq!(error.to_string(), "line 3, column 10: expected value");
    assert!(Trace::from_json("").is_err());
    assert!(Trace::from_json("[1]").is_err());
    let deep = "[".repeat(100_000);
    assert!(Trace::from_json(&deep).is_err());
    let deep = format!("{{\"version\":1,\"gpu\":{}", "{\"a\":".repeat(100_000));
    assert!(Trace::from_json(&deep).is_err());
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let trace = synthetic::small_beside_training(synthetic::one_client());
    let usual = Settings::default;
    let cases = [
        Settings { run_ns: 0, ..usual() },
        Settings { run_ns: u64::MAX, ..usual() },
        Settings { longest_hold_ns: 0, ..usual() },
        Settings { longest_hold_ns: u64::MAX, ..usual() },
        Settings { ladder: vec![64, 32], ..usual() },
        Settings { ladder: vec![0, 64], ..usual() },
        Settings { ladder: vec![64, 132], ..usual() },
        Settings { costs: Costs { launch_ns: u64::MAX, ..Costs::H200 }, ..usual() },
        Settings { costs: Costs { slice_ns: 0, ..Costs::H200 }, ..usual() },
        Settings { costs: Costs { cold_part: 1_001, ..Costs::H200 }, ..usual() },
    ];
    for settings in cases {
        let error = Simulator::new(&trace, settings.clone()).expect_err("it cannot be");
        assert!(matches!(error, Error::Settings(_)), "{settings:?}: {error}");
    }
    let mut broken = trace.clone();
    broken.tenants[1].steps.clear();
    let error = Simulator::new(&broken, usual()).expect_err("it cannot be");
    assert_eq!(error.to_string(), "trace: tenants[1].steps: there are none");
}

/// Costs of nothing: time goes on all the same.
#[test]
fn nothing_may_cost_nothing() {
    let trace = synthetic::small_beside_training(synthetic::one_client());
    let costs = Costs {
        launch_ns: 0,
        move_ns: 0,
        busy_seen_ns: 0,
        idle_seen_ns: 0,
        look_ns: 0,
        wake_ns: 0,
        slice_ns: 1,
        switch_ns: 0,
        block_ns: 0,
        cold_part: 0,
        cold_ns: 0,
        compute_bandwidth: 0,
        memory_on_half: 0,
    };
    let settings = Settings { run_ns: 20_000_000, costs, ..Settings::default() };
    let simulator = Simulator::new(&trace, settings).expect("it can be simulated");
    for way in ["alone", "time-slicing", "mps", "slo-aware", "exclusive", "fair"] {
        let way = Way::named(way).expect("there is one of that name");
        assert!(simulator.run(way).ended > 0, "{}", way.name());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is cut off, or changed anywhere, is read or refused; what is read can be simulated.
    #[test]
    fn broken_traces_do_no_harm(cut in any::<prop::sample::Index>(), changed in any::<(prop::sample::Index, u8)>(), is_cut in any::<bool>()) {
        let mut text = trace().to_string().into_bytes();
        if is_cut {
            text.truncate(cut.index(text.len()));
        } else {
            let place = changed.0.index(text.len());
            text[place] = changed.1;
        }
        if let Ok(trace) = Trace::from_json(&String::from_utf8_lossy(&text)) {
            let settings = Settings { run_ns: 1_000_000, ..Settings::default() };
            match Simulator::new(&trace, settings) {
                Ok(simulator) => {
                    for way in ["time-slicing", "mps", "slo-aware"] {
                        let _ = simulator.run(Way::named(way).expect("there is one of that name"));
                    }
                }
                Err(error) => prop_assert!(matches!(error, Error::Settings(_)), "{}", error),
            }
        }
    }
}
