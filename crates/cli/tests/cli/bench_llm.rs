//! `detshare bench` with LLM servers, from outside: the real server, with a model that only counts.

use crate::bench_stage::BenchStage;
use crate::stage::outcome;
use serde_json::Value;

const COLUMNS: &str = "TIMESTAMP,ContextTokens,GeneratedTokens";
/// More than the scenarios skip.
const ROWS: usize = 2400;

fn server<'a>(results: &'a Value, arm: &str, program: &str) -> &'a Value {
    let arms = results["arms"].as_array().unwrap();
    let arm = arms.iter().find(|one| one["name"] == arm).unwrap_or_else(|| panic!("no {arm} in {results:#}"));
    let programs = arm["programs"].as_array().unwrap();
    programs.iter().find(|one| one["program"] == program).unwrap_or_else(|| panic!("no {program} in {arm:#}"))
}

fn median(figures: &Value, name: &str) -> f64 {
    figures[name]["median"].as_f64().unwrap_or_else(|| panic!("no {name} in {figures:#}"))
}

#[test]
fn two_servers_answer_the_same_requests_in_every_arm() {
    let bench = BenchStage::with_mps();
    let traces = bench.traces(COLUMNS, ROWS);
    let flags = ["--seconds", "1", "--rounds", "1", "--arms", "alone,time-slicing,mps", "--rates", "40,60"];
    // Under MPS the model sleeps for longer than that before each token, however fast the machine is.
    let ended = bench.bench("llm-llm", &[&flags[..], &["--tpot", "3500us", "--trace-folder", &traces]].concat());
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = bench.results();
    for (program, requests) in [("chat", 40), ("code", 60)] {
        for arm in ["alone", "time-slicing", "mps"] {
            let found = server(&results, arm, program);
            assert_eq!(found["requests"], requests, "{found:#}");
            assert_ne!(found["bits"]["verdict"], "different", "{found:#}");
            assert_ne!(found["bits"]["verdict"], "unknown", "{found:#}");
        }
        let alone = &server(&results, "alone", program)["service"];
        let mps = &server(&results, "mps", program)["service"];
        assert!(median(mps, "tpot_p50_ms") >= 4.0 && median(alone, "tpot_p50_ms") >= 1.0, "{mps:#}{alone:#}");
        assert!((median(mps, "tpot_violations_part") - 1.0).abs() < 1e-9, "{mps:#}");
        assert!(median(mps, "tpot_violations") >= median(alone, "tpot_violations"), "{mps:#}{alone:#}");
        assert!(
            median(mps, "mean_latency_overhead").is_finite() && median(alone, "goodput") >= 0.0,
            "{mps:#}{alone:#}"
        );
    }
    for replay in results["replays"].as_array().unwrap() {
        assert_eq!(replay["objectives"]["tpot_ms"], 3.5, "{replay:#}");
        assert!(replay["objectives"]["ttft_ms"].as_f64().is_some_and(|limit| limit > 2.0), "{replay:#}");
    }
    let said = "chat: 40 requests of azure-llm-2023-conv.csv, 40.0 a second (alone it is busy ";
    assert!(ended.stdout.contains(said) && ended.stdout.contains("(1.5 times its p99 alone)"), "{}", ended.stdout);
    assert!(ended.stdout.contains("every program computed the same bits as alone"), "{}", ended.stdout);
    for file in ["results.json", "index.html", "ttft.svg", "tpot.svg", "latency.svg"] {
        let text = std::fs::read_to_string(bench.stage.path("out").join(file)).unwrap();
        assert!(!text.is_empty() && !text.contains("NaN"), "{file}");
    }
    let log = bench.log();
    assert_eq!(log.len(), 6);
    for one in &log {
        let words: Vec<_> = one["arguments"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(words.windows(2).any(|pair| pair == ["--shape", "1b"]), "{words:?}");
        assert!(!words.contains(&"--longest-output") && !words.contains(&"--longest-prompt"), "requests are whole");
    }
    bench.assert_nothing_is_left();
}

#[test]
fn a_load_is_the_part_of_the_time_in_which_a_server_is_busy_alone() {
    let bench = BenchStage::new();
    let flags =
        ["--seconds", "3", "--rounds", "1", "--arms", "alone,time-slicing", "--loads", "0.4,0.2", "--format", "csv"];
    let ended = bench.bench("llm-train", &flags);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stderr.contains("load 0.4 of chat is ") && ended.stderr.contains("alone at load 0.2 …"),
        "{}",
        ended.stderr
    );
    let results = bench.results();
    let replays = results["replays"].as_array().unwrap();
    assert_eq!(replays.len(), 2);
    for (replay, load) in replays.iter().zip([0.4, 0.2]) {
        // A machine with much else to do is later with steps, or not.
        let busy = replay["busy_alone"].as_f64().unwrap();
        assert!((0.3 * load..3.0 * load).contains(&busy) && replay["trace"].is_null(), "{replay:#}");
        let arm = format!("time-slicing at {load}");
        let counted = replay["requests"].as_u64().unwrap() - replay["warm_up"].as_u64().unwrap();
        assert_eq!(server(&results, &arm, "chat")["requests"], counted);
        assert!(server(&results, &arm, "train")["share"]["median"].is_number());
    }
    assert_eq!(ended.stdout.lines().count(), 1 + 2 * 2 * 2, "{}", ended.stdout);
    let goodput = std::fs::read_to_string(bench.stage.path("out/goodput.svg")).unwrap();
    assert_eq!(goodput.matches("<polyline").count(), 2);
    let page = std::fs::read_to_string(bench.stage.path("out/index.html")).unwrap();
    assert!(page.contains("a synthetic conversation trace, as there is no --trace-folder"), "{page}");
    bench.assert_nothing_is_left();
}

/// As far as it goes without a GPU and without a framework: each step launches a kernel on the software GPU.
#[test]
fn servers_are_tenants_with_their_objectives() {
    let bench = BenchStage::new();
    let arms = "alone,detshare-alone,slo-aware,exclusive";
    let flags = ["--seconds", "1", "--rounds", "1", "--arms", arms, "--rates", "20,20", "--isolation", "process"];
    let mut command = bench.stage.detshare();
    bench.prepare(&mut command);
    bench.on_software_gpu(&mut command);
    command.args(BenchStage::arguments("llm-llm", &[&flags[..], &["--ttft", "500ms", "--keep", "kept"]].concat()));
    let ended = outcome(&mut command);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = bench.results();
    for arm in arms.split(',').skip(1) {
        for program in ["chat", "code"] {
            let found = server(&results, arm, program);
            assert_eq!((&found["requests"], &found["bits"]["verdict"]), (&20.into(), &"identical".into()), "{found:#}");
        }
    }
    // Of tenants it was written down what their steps were taken for; alone nobody looks.
    assert!(server(&results, "alone", "chat")["told_apart"].is_null());
    for program in ["chat", "code"] {
        let found = &server(&results, "slo-aware", program)["told_apart"];
        let (steps, right) = (found["steps"].as_u64().unwrap(), found["right"].as_u64().unwrap());
        assert!(steps > 50 && right <= steps, "{found:#}");
        let said = format!("slo-aware: {program}'s steps told apart: {right} of {steps} (");
        let page = std::fs::read_to_string(bench.stage.path("out/index.html")).unwrap();
        assert!(ended.stdout.contains(&said) && page.contains(&format!("{right} of {steps}")), "{}", ended.stdout);
    }
    let mut kept: Vec<String> = bench
        .stage
        .path("kept")
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept.len(), 8, "each arm's programs: {kept:?}");
    assert_eq!(kept[0], "alone-chat.json.gz");
    let bound = &results["bounds"][0];
    let times = bound["ideal"]["servers"][0]["times_alone"].as_f64().unwrap_or_else(|| panic!("{bound:#}"));
    assert!(times >= 0.999 && bound["busy"].as_f64().is_some_and(|busy| busy > 0.0), "{bound:#}");
    let given = |one: &Value, name: &str| one["given"][name].as_str().map(str::to_string);
    let log = bench.log();
    let tenants: Vec<&Value> = log.iter().filter(|one| given(one, "DETSHARE_CLASS").is_some()).collect();
    // Two in each arm, and in the session of the timeline.
    assert_eq!((log.len(), tenants.len()), (10, 8));
    for tenant in tenants {
        assert_eq!(given(tenant, "DETSHARE_CLASS").as_deref(), Some("latency"));
        assert_eq!(given(tenant, "DETSHARE_TTFT").as_deref(), Some("500000000"));
        let tpot: f64 = given(tenant, "DETSHARE_TPOT").unwrap().parse().unwrap();
        assert!(tpot > 1e6, "at least what a decode step takes: {tpot}");
    }
    bench.assert_nothing_is_left();
}

#[test]
fn other_tokens_are_named_by_their_request() {
    let bench = BenchStage::with_mps();
    bench.tell("other-bits");
    let flags = ["--seconds", "1", "--rounds", "1", "--arms", "alone,mps", "--rates", "30,30"];
    let ended = bench.bench("llm-llm", &flags);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let said = "chat under mps is different: token 2 of request 503 (500, alone ";
    assert!(ended.stdout.contains(said), "{}", ended.stdout);
    // 90 requests from the 500th on, and each tenth of them.
    assert!(ended.stdout.contains("; 9 of 90 differ"), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn rates_are_found_out_without_measuring_anything() {
    let bench = BenchStage::new();
    let ended = bench.bench("llm-llm", &["--find-rates", "--loads", "0.5,0.7"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = bench.results();
    let rates: Vec<_> = results["rates"].as_array().unwrap().iter().collect();
    let found: Vec<_> = rates.iter().map(|rate| (rate["program"].as_str().unwrap(), rate["load"].as_f64())).collect();
    assert_eq!(
        found,
        [("chat", Some(0.5)), ("chat", Some(0.7)), ("code", Some(0.5)), ("code", Some(0.7))],
        "{results:#}"
    );
    let said = format!(
        "--load 0.5 --rates {:.6},{:.6}",
        rates[0]["per_second"].as_f64().unwrap(),
        rates[2]["per_second"].as_f64().unwrap()
    );
    assert!(ended.stdout.contains(&said), "{}", ended.stdout);
    assert_eq!(bench.log().len(), 2, "each server answers many requests at once, and no arm was run");
    bench.assert_nothing_is_left();
}

#[test]
fn alone_only_servers_run_if_that_is_asked_for() {
    let bench = BenchStage::new();
    let flags = ["--seconds", "1", "--rounds", "1", "--arms", "alone,time-slicing", "--rates", "20", "--servers-alone"];
    let ended = bench.bench("llm-train", &flags);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = bench.results();
    assert_eq!(results["arms"][0]["programs"].as_array().unwrap().len(), 1, "{results:#}");
    let training = server(&results, "time-slicing", "train");
    assert!(training["share"].is_null() && training["per_second"]["median"].as_f64() > Some(0.0), "{training:#}");
    assert_eq!(training["bits"]["verdict"], "unknown", "{training:#}");
    assert_eq!(server(&results, "time-slicing", "chat")["bits"]["verdict"], "identical");
    bench.assert_nothing_is_left();
}

#[test]
fn objectives_that_nobody_can_keep_to_are_said_to_be_so() {
    let bench = BenchStage::new();
    let flags = ["--seconds", "1", "--rounds", "1", "--arms", "alone,time-slicing", "--rates", "20", "--tpot", "1us"];
    let ended = bench.bench("llm-train", &flags);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("alone: chat misses its objective mostly even so: raise --tpot"), "{}", ended.stdout);
    let found = server(&bench.results(), "time-slicing", "chat")["service"].clone();
    assert_eq!((median(&found, "goodput"), median(&found, "tpot_violations_part")), (0.0, 1.0));
}

#[test]
fn what_is_wrong_with_a_trace_is_one_line() {
    let bench = BenchStage::new();
    let refused = |more: &[&str], code: i32, reason: &str| {
        let ended = bench.bench("llm-train", &[&["--seconds", "1", "--rounds", "1", "--arms", "alone"], more].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{}", ended.stderr);
        let last = ended.stderr.lines().last().unwrap_or_default();
        assert!(last.contains(reason), "{}", ended.stderr);
        assert!(!ended.stderr.contains("Traceback"), "{}", ended.stderr);
        bench.assert_nothing_is_left();
    };
    refused(
        &["--trace-folder", "nowhere"],
        74,
        "azure-llm-2023-conv.csv: name the folder that has it with --trace-folder",
    );
    let traces = bench.traces("TIMESTAMP,GeneratedTokens", ROWS);
    let columns = "line 1: no column ContextTokens; the header must have TIMESTAMP, ContextTokens, GeneratedTokens";
    refused(&["--trace-folder", &traces], 2, columns);
    let traces = bench.traces(COLUMNS, 5);
    refused(&["--trace-folder", &traces], 2, "has 5 requests, and the first 500 are left out; give a longer trace");
    refused(&["--load", "17"], 64, "a load is a number above 0 and up to 0.95");
    refused(&["--ttft", "0s"], 64, "it must be between 1us and 24 hours");
    bench.tell("no-gpu");
    refused(&[], 2, "chat found no GPU");
    // Without a measurement ahead, it is an arm that has no figures.
    let ended = bench.bench("llm-train", &["--seconds", "1", "--rounds", "1", "--arms", "alone", "--rates", "5"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert!(ended.stdout.contains("alone: chat found no GPU"), "{}", ended.stdout);
}
