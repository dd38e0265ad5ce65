//! The script that measures LLM servers on a GPU machine, tried without one: the real server with a model that only counts, on
//! the software GPU.

use crate::bench_stage::BenchStage;
use crate::daemon::built;
use crate::stage::{Outcome, outcome};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// A part with as little of everything as there can be.
fn script(bench: &BenchStage, number: &str, more: &[&str]) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/gpu/llm.py");
    let mut command = Command::new(bench.stage.path("tools/python3"));
    bench.prepare(&mut command);
    bench.on_software_gpu(&mut command);
    command.arg(script).args(["--small", "--part", number, "--out", "out", "--workloads", "workloads"]);
    command.arg("--shim").arg(built("libdetshare_shim.so"));
    command.arg("--detshare").arg(env!("CARGO_BIN_EXE_detshare")).args(more);
    command
}

fn part(bench: &BenchStage, number: &str, more: &[&str]) -> (Outcome, Value) {
    let ended = outcome(&mut script(bench, number, more));
    let text = std::fs::read_to_string(bench.stage.path("out").join(format!("part-{number}.json"))).unwrap_or_default();
    let report: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}{}", ended.stdout, ended.stderr));
    let files: Vec<_> = bench.stage.path("out").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(files.len() == 3 || report["runs"] == serde_json::json!({}), "what comes back is packed: {files:?}");
    (ended, report)
}

fn arms(report: &Value, run: &str) -> Vec<String> {
    let arms = report["runs"][run]["arms"].as_array().unwrap_or_else(|| panic!("no {run} in {report:#}"));
    let figures = arms.iter().filter(|arm| arm["programs"].as_array().is_some_and(|all| !all.is_empty()));
    figures.map(|arm| arm["arm"].as_str().unwrap().to_string()).collect()
}

fn lines(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
}

/// Whether a verdict on an arm begins with these words.
fn is_judged(report: &Value, arm: &str, asked: &str) -> bool {
    let rows = report["verdicts"].as_array().unwrap();
    rows.iter().any(|row| row["arm"] == arm && row["asked"].as_str().is_some_and(|text| text.starts_with(asked)))
}

#[test]
fn a_server_beside_training_in_all_ways() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "1", &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(
        arms(&report, "llm-train-0.5"),
        ["alone", "tpot-first", "time-slicing", "slo-aware"],
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    // Without MPS there are no others, and that is said.
    let missing = lines(&report["missing"]);
    for arm in ["mps-priority", "throughput", "mps"] {
        assert!(missing.iter().any(|line| line.starts_with(&format!("llm-train-0.5: {arm}: "))), "{missing:#?}");
    }
    for asked in ["ttft_p99 at most", "tpot_p99 at most", "share at least that of time-slicing", "steps told apart"] {
        assert!(is_judged(&report, "tpot-first", asked), "{asked}: {report:#}");
    }
    let known = &report["known"];
    assert!(known["rates"]["8b"]["0.5"][0].as_f64() > Some(0.0), "{known:#}");
    assert!(known["training"]["train"].as_f64() > Some(0.0), "{known:#}");
    assert!(ended.stdout.trim_end().lines().last().unwrap().contains("--known '{"), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn two_servers_and_how_near_to_the_ideal_they_are() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "2", &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let arms = arms(&report, "llm-llm-0.5");
    assert_eq!(arms, ["alone", "tpot-first", "time-slicing", "slo-aware"], "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("below time-slicing at most"), "{}", ended.stdout);
    assert!(ended.stdout.contains("goodput of llm-llm at load 0.5: alone "), "{}", ended.stdout);
    assert!(is_judged(&report, "tpot-first", "mean_latency_ms at most 0.31 of time-slicing, or 75%"), "{report:#}");
    // What it is held against is not there.
    let rows = report["verdicts"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["measured"] == "no figures of throughput"), "{rows:#?}");
    let ways = rows.iter().filter_map(|row| row["measured"].as_str()).filter(|text| text.contains("way"));
    assert_eq!(ways.filter(|text| text.contains(" ms, alone ")).count(), 1, "{rows:#?}");
    bench.assert_nothing_is_left();
}

/// What the first parts had no time for is measured with their requests, and what they know is not found out again.
#[test]
fn the_rest_at_the_rates_of_the_first_parts() {
    let bench = BenchStage::new();
    let known = r#"{"rates":{"8b":{"0.5":[8.0]},"1b":{"0.5":[8.0,8.0]}},"training":{"train":150.0},"done":{
        "llm-train 0.5":{"arms":["alone","tpot-first","time-slicing","mps-priority","throughput","mps"],"seconds":2,
            "objectives":[400.0,20.0]},
        "llm-llm 0.5":{"arms":["alone","tpot-first","throughput","time-slicing","slo-aware","mps"],"seconds":2}}}"#;
    let (ended, report) = part(&bench, "3", &["--known", known]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let runs: Vec<&String> = report["runs"].as_object().unwrap().keys().collect();
    assert_eq!(runs, ["llm-llm-train-0.5", "llm-train-0.5-others"], "{report:#}");
    let others = &report["runs"]["llm-train-0.5-others"];
    assert_eq!(arms(&report, "llm-train-0.5-others"), ["alone", "slo-aware"], "{}", ended.stdout);
    let replay = &others["replays"][0];
    assert_eq!((&replay["per_second"], &replay["load"], &replay["requests"]), (&8.0.into(), &0.5.into(), &32.into()));
    assert_eq!(replay["objectives"], serde_json::json!({"ttft_ms": 400.0, "tpot_ms": 20.0}));
    let training = others["arms"][1]["programs"].as_array().unwrap().iter().find(|one| one["program"] == "train");
    assert!(training.is_some_and(|one| one["share"]["median"].as_f64() > Some(0.0)), "{others:#}");
    let lanes: Vec<&String> = report["step_times"].as_object().unwrap().keys().collect();
    assert_eq!(lanes, ["front32", "front64", "front96"], "{report:#}");
    bench.assert_nothing_is_left();
}

#[test]
fn what_was_measured_until_it_is_ended_is_there() {
    let bench = BenchStage::new();
    let mut command = script(&bench, "1", &["--limit", "3000"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    // What an arm did is kept when it is over.
    let kept = bench.stage.path("out/runs/llm-train-0.5/kept/alone-0.5-chat.json.gz");
    while !kept.exists() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "before anything was kept: {ended:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ended = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(ended.success() && child.wait().unwrap().code() == Some(1));
    let text = std::fs::read_to_string(bench.stage.path("out/part-1.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(arms(&report, "llm-train-0.5")[0], "alone", "{report:#}");
    assert!(lines(&report["missing"]).contains(&"llm-train-0.5: tpot-first: it was ended before"), "{report:#}");
    assert!(bench.stage.path("out/part-1.tar.gz").exists() && bench.stage.path("out/part-1.txt").exists());
    bench.assert_nothing_is_left();
}

#[test]
fn without_a_gpu_there_is_nothing_but_what_is_said() {
    let bench = BenchStage::new();
    bench.tell("no-gpu");
    let (ended, report) = part(&bench, "1", &[]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(report["runs"].as_object().unwrap().is_empty(), "{report:#}");
    assert!(ended.stdout.contains("missing: llm-train-rates: no results, exit code 2"), "{}", ended.stdout);
}
