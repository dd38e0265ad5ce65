//! The script that measures LLM servers on a GPU machine, tried without one: the real server with a model that only counts, on
//! the software GPU.

use crate::bench_stage::BenchStage;
use crate::daemon::built;
use crate::stage::{Outcome, outcome};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Runs a part with as little of everything as there can be.
fn part(bench: &BenchStage, number: &str) -> (Outcome, Value) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/gpu/llm.py");
    let mut command = Command::new(bench.stage.path("tools/python3"));
    bench.prepare(&mut command);
    bench.on_software_gpu(&mut command);
    command.arg(script).args(["--small", "--part", number, "--out", "out", "--workloads", "workloads"]);
    command.arg("--shim").arg(built("libdetshare_shim.so"));
    command.arg("--detshare").arg(env!("CARGO_BIN_EXE_detshare"));
    let ended = outcome(&mut command);
    let text = std::fs::read_to_string(bench.stage.path("out").join(format!("part-{number}.json"))).unwrap_or_default();
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{}{}", ended.stdout, ended.stderr));
    let files: Vec<_> = bench.stage.path("out").read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files.len(), 3, "what comes back is packed: {files:?}");
    (ended, report)
}

fn arms(report: &Value, run: &str) -> Vec<String> {
    let arms = report["runs"][run]["arms"].as_array().unwrap_or_else(|| panic!("no {run} in {report:#}"));
    let figures = arms.iter().filter(|arm| arm["programs"].as_array().is_some_and(|all| !all.is_empty()));
    figures.map(|arm| arm["arm"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_server_beside_training_and_on_few_sms() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "1");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(arms(&report, "llm-train"), ["alone", "tpot-first", "time-slicing", "slo-aware"]);
    let lanes: Vec<&String> = report["step_times"].as_object().unwrap().keys().collect();
    assert_eq!(lanes, ["front32", "front64", "front96", "full"], "{report:#}");
    assert!(ended.stdout.contains("for part 3: --capacity-8b chat="), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn two_servers_and_their_phases() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "2");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    // Without MPS there is no `throughput`, and that is said.
    assert_eq!(arms(&report, "llm-llm"), ["alone", "tpot-first", "time-slicing"]);
    assert!(ended.stdout.contains("throughput    no figures: "), "{}", ended.stdout);
    assert!(
        report["phases"]["found"]["beside a server"]["steps"].as_u64().is_some_and(|steps| steps > 0),
        "{report:#}"
    );
    assert!(ended.stdout.contains("below time-slicing at most"), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn nothing_else_is_run_where_the_first_run_fails() {
    let bench = BenchStage::new();
    bench.tell("no-gpu");
    let (ended, report) = part(&bench, "1");
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    let runs: Vec<&String> = report["runs"].as_object().unwrap().keys().collect();
    assert_eq!(runs, ["smoke"], "{report:#}");
    assert!(ended.stdout.contains("smoke: failed, so nothing else was run"), "{}", ended.stdout);
}
