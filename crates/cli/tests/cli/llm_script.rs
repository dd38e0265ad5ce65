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

#[test]
fn a_server_beside_training_and_on_few_sms() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "1", &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for run in ["llm-train", "llm-train-loads"] {
        assert_eq!(arms(&report, run), ["alone", "tpot-first", "time-slicing"], "{run}: {}", ended.stdout);
    }
    let lanes: Vec<&String> = report["step_times"].as_object().unwrap().keys().collect();
    assert_eq!(lanes, ["front32", "front64", "front96", "full"], "{report:#}");
    assert!(ended.stdout.contains("for part 3: --rates-8b "), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn two_servers_and_their_phases() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "2", &[]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    // Without MPS there is no `throughput`, and that is said.
    assert_eq!(arms(&report, "llm-llm"), ["alone", "tpot-first", "time-slicing"], "{}", ended.stdout);
    assert!(ended.stdout.contains("throughput    no figures: "), "{}", ended.stdout);
    assert!(
        report["phases"]["found"]["beside a server"]["steps"].as_u64().is_some_and(|steps| steps > 0),
        "{report:#}"
    );
    assert!(ended.stdout.contains("below time-slicing at most"), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

/// In the third part each run has so much of the time that those after it have some.
#[test]
fn the_other_ways_at_the_rates_of_the_first_parts() {
    let bench = BenchStage::new();
    let (ended, report) = part(&bench, "3", &["--rates-8b", "8", "--rates-1b", "8,8"]);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let runs: Vec<&String> = report["runs"].as_object().unwrap().keys().collect();
    assert_eq!(runs, ["llm-llm-others", "llm-llm-train", "llm-train-others"], "{report:#}");
    let replays = report["runs"]["llm-llm-train"]["replays"].as_array().unwrap();
    assert!(replays.iter().all(|replay| replay["per_second"] == 8.0 && replay["load"] == 0.5), "{replays:#?}");
    // Without MPS there are no others.
    assert_eq!(arms(&report, "llm-train-others"), ["alone", "slo-aware"], "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn what_was_measured_until_it_is_ended_is_there() {
    let bench = BenchStage::new();
    let mut command = script(&bench, "1", &["--limit", "3000"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    // What an arm did is kept when it is over.
    let kept = bench.stage.path("out/runs/llm-train/kept/alone-0.5-chat.json.gz");
    while !kept.exists() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "before anything was kept: {ended:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let ended = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(ended.success() && child.wait().unwrap().code() == Some(1));
    let text = std::fs::read_to_string(bench.stage.path("out/part-1.json")).unwrap();
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(arms(&report, "llm-train")[0], "alone", "{report:#}");
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
    assert!(ended.stdout.contains("llm-train: no results, exit code 2"), "{}", ended.stdout);
}
