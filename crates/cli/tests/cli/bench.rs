//! `detshare bench` from outside.

use crate::bench_stage::{BenchStage, assert_nothing_is_left};
use crate::daemon::{built, until};
use crate::stage::{Stage, outcome};
use detshare_policy::POLICIES;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

const FILES: [&str; 5] = ["results.json", "index.html", "frontier.svg", "latency.svg", "timeline.svg"];

fn arm<'a>(results: &'a Value, name: &str) -> &'a Value {
    let arms = results["arms"].as_array().unwrap();
    arms.iter().find(|arm| arm["name"] == name).unwrap_or_else(|| panic!("no {name} in {results:#}"))
}

/// Every program of the arm has figures, and computed what it computes alone.
fn assert_measured(results: &Value, name: &str) {
    let programs = arm(results, name)["programs"].as_array().unwrap();
    assert!(!programs.is_empty(), "{name}: {results:#}");
    for program in programs {
        assert!(program["per_second"]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{program:#}");
        assert_ne!(program["bits"]["verdict"], "different", "{program:#}");
        assert_ne!(program["bits"]["verdict"], "unknown", "{program:#}");
        match program["class"].as_str() {
            Some("latency") => assert!(program["p99_overhead"]["median"].is_number(), "{program:#}"),
            _ => assert!(program["share"]["median"].is_number(), "{program:#}"),
        }
    }
}

#[test]
fn arms_are_compared_with_alone() {
    let bench = BenchStage::with_mps();
    let flags =
        ["--seconds", "1", "--rounds", "2", "--arms", "mps-priority,mps,alone,time-slicing", "--format", "json"];
    let ended = bench.bench("small", &flags);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(results, bench.results());
    for name in ["alone", "time-slicing", "mps", "mps-priority"] {
        assert_measured(&results, name);
        assert!(ended.stderr.contains(&format!(": {name} … about ")), "{}", ended.stderr);
    }
    assert_eq!(results["runs"].as_array().unwrap().len(), 8);
    assert_eq!(results["runs"][4]["arm"], "mps", "the second round begins elsewhere");
    assert_eq!(arm(&results, "mps")["programs"][0]["p99_overhead"]["rounds"], 2);
    for file in FILES {
        let text = std::fs::read_to_string(bench.stage.path("out").join(file)).unwrap();
        assert!(!text.is_empty() && !text.contains("NaN"), "{file}");
    }
    let page = std::fs::read_to_string(bench.stage.path("out/index.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("All computed the same bits as alone."), "{page}");
    bench.assert_nothing_is_left();
}

#[test]
fn every_arm_gives_programs_what_it_stands_for_and_nothing_else() {
    let bench = BenchStage::with_mps();
    let mut command = bench.stage.detshare();
    bench.prepare(&mut command);
    // Of whoever runs it.
    command
        .env("DETSHARE_SCHEDULE", "cycle")
        .env("DETSHARE_CLASS", "latency")
        .env("CUDA_MPS_PIPE_DIRECTORY", "/theirs");
    let arguments =
        BenchStage::arguments("small", &["--seconds", "1", "--rounds", "1", "--arms", "alone,mps,mps-priority"]);
    let ended = outcome(command.args(arguments));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let log = bench.log();
    let given = |number: usize, name: &str| log[number]["given"][name].as_str().map(str::to_string);
    assert_eq!(log.len(), 6);
    for plain in 0..2 {
        let ours = ["DETSHARE_SHIM"];
        let names: Vec<_> = log[plain]["given"].as_object().unwrap().keys().collect();
        assert_eq!(names, ours, "{log:#?}");
    }
    let temporary = bench.stage.path("temporary").display().to_string();
    for client in 2..6 {
        assert!(given(client, "CUDA_MPS_PIPE_DIRECTORY").unwrap().starts_with(&temporary), "{log:#?}");
        assert_eq!(given(client, "LD_PRELOAD"), None);
    }
    for (number, priority) in [(2, None), (3, None), (4, Some("0")), (5, Some("1"))] {
        // Both of an arm start at the same time, so which of them writes first is anybody's guess.
        let is_server = log[number]["program"] == "bench_serve.py";
        let priority = priority.map(|_| if is_server { "0" } else { "1" });
        assert_eq!(given(number, "CUDA_MPS_CLIENT_PRIORITY").as_deref(), priority, "{log:#?}");
    }
    assert_eq!(std::fs::read_to_string(bench.mps_log()).unwrap(), "started\nended\nstarted\nended\n");
    bench.assert_nothing_is_left();
}

#[test]
fn other_bits_are_named_and_make_it_fail() {
    let bench = BenchStage::with_mps();
    bench.tell("other-bits");
    let ended = bench.bench("small", &["--seconds", "1", "--rounds", "1", "--arms", "alone,time-slicing,mps"]);
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("train under mps is different: the loss of step 3 ("), "{}", ended.stdout);
    assert_measured(&bench.results(), "time-slicing");
    bench.assert_nothing_is_left();
}

#[test]
fn an_arm_that_cannot_run_is_one_line_and_the_others_go_on() {
    let bench = BenchStage::new();
    let arms = "alone,mps,fixed-64,time-slicing";
    let ended = bench.bench("small", &["--seconds", "1", "--rounds", "1", "--arms", arms]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    for arm in ["mps", "fixed-64"] {
        let line = format!("{arm}: there is no nvidia-cuda-mps-control on PATH: install it with NVIDIA's driver");
        assert!(ended.stdout.lines().any(|said| said.starts_with(&line)), "{}", ended.stdout);
    }
    assert!(ended.stdout.contains("no figures of mps, fixed-64"), "{}", ended.stdout);
    assert_measured(&bench.results(), "time-slicing");
    bench.assert_nothing_is_left();
}

/// Programs that make no use of CUDA are nobody's tenants, and not put on lanes: their figures would say nothing.
#[test]
fn figures_of_programs_that_were_not_shared_are_refused() {
    let bench = BenchStage::with_mps();
    let mut command = bench.stage.detshare();
    bench.prepare(&mut command);
    let more = ["--seconds", "1", "--rounds", "1", "--arms", "alone,fixed-64,exclusive", "--isolation", "process"];
    let arguments = BenchStage::arguments("small", &more);
    let ended = outcome(command.args(arguments).env("DETSHARE_DAEMON", built("detshared")));
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("fixed-64: serve did not run on front64"), "{}", ended.stdout);
    assert!(ended.stdout.contains("exclusive: serve was not seen as a tenant"), "{}{}", ended.stdout, ended.stderr);
    let schedules: Vec<_> = bench.log().iter().map(|one| one["given"]["DETSHARE_SCHEDULE"].clone()).collect();
    assert!(schedules.contains(&"front64".into()) && schedules.contains(&"rest64".into()), "{schedules:?}");
    bench.assert_nothing_is_left();
}

#[test]
fn at_each_level_only_what_comes_after_settling_counts() {
    let bench = BenchStage::new();
    let mut command = bench.stage.detshare();
    bench.prepare(&mut command);
    bench.on_software_gpu(&mut command);
    let more = ["--seconds", "1", "--rounds", "1", "--arms", "alone,slo-aware", "--isolation", "process"];
    let arguments = BenchStage::arguments("small", &[&more[..], &["--aggressiveness", "0,1"]].concat());
    let ended = outcome(command.args(arguments));
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = bench.results();
    let requests = |name: &str| arm(&results, name)["programs"][0]["requests"].as_u64().unwrap();
    // The server answers for two seconds at each level, a request each 6 ms.
    let (answered, counted) = (2 * 2 * 1000 / 6, requests("slo-aware@0") + requests("slo-aware@1"));
    assert!(counted > 0 && counted < answered * 3 / 4, "{counted} of {answered}");
    bench.assert_nothing_is_left();
}

#[test]
fn a_daemon_that_will_not_do_as_it_is_told_is_one_line() {
    let bench = BenchStage::new();
    let mut command = bench.stage.detshare();
    bench.prepare(&mut command);
    let more = ["--seconds", "1", "--rounds", "1", "--arms", "fair", "--isolation", "process"];
    let ended = outcome(command.args(BenchStage::arguments("small", &more)).env("DETSHARE_DAEMON", "/no/such/daemon"));
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("fair: no daemon: DETSHARE_DAEMON names /no/such/daemon"), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

/// It is no tenant, but that is not what is wrong with it.
#[test]
fn a_program_that_fails_as_soon_as_it_is_started_is_told_by_its_own_last_words() {
    const STEPS: &str = "#!/bin/sh\necho 'this GPU is not for me' >&2\nexit 3\n";
    let stage = Stage::new();
    std::fs::create_dir_all(stage.path("programs")).unwrap();
    std::fs::create_dir(stage.path("temporary")).unwrap();
    let program = stage.path("programs/steps");
    std::fs::write(&program, STEPS).unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let mut command = stage.detshare();
    command
        .args(["bench", "soft", "--seconds", "1", "--rounds", "1", "--out", "out", "--arms", "fair", "--workloads"])
        .arg("programs")
        .env("TMPDIR", stage.path("temporary"))
        .env("DETSHARE_SHIM", built("libdetshare_shim.so"))
        .env("DETSHARE_SOFTGPU", built("libdetshare_softgpu.so"))
        .env("DETSHARE_DAEMON", built("detshared"));
    let ended = outcome(&mut command);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(
        ended.stdout.contains(" failed with exit code 3: this GPU is not for me"),
        "{}{}",
        ended.stdout,
        ended.stderr
    );
    assert_nothing_is_left(&stage.path("temporary"));
}

#[test]
fn without_a_gpu_what_to_do_is_said() {
    let bench = BenchStage::new();
    bench.tell("no-gpu");
    let ended = bench.bench("small", &["--seconds", "1", "--rounds", "1", "--arms", "alone,time-slicing"]);
    assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("alone: serve found no GPU: use `detshare bench soft`"), "{}", ended.stdout);
    bench.assert_nothing_is_left();
}

#[test]
fn what_does_not_fit_into_the_limit_is_left_out() {
    let bench = BenchStage::new();
    for seconds in [&["--seconds", "60"][..], &[]] {
        let ended = bench.bench("small", &[&["--limit", "5s", "--arms", "alone"], seconds].concat());
        assert_eq!(ended.code, Some(2), "{}{}", ended.stdout, ended.stderr);
        assert!(ended.stdout.contains("alone: no time is left for it: raise --limit"), "{}", ended.stdout);
        assert!(!ended.stdout.contains("were measured for less"), "it was not measured at all: {}", ended.stdout);
        std::fs::remove_dir_all(bench.stage.path("out")).unwrap();
    }
    assert!(bench.log().is_empty(), "nothing was started");
}

#[test]
fn interrupted_in_the_middle_it_ends_everything_and_keeps_what_it_has() {
    const START: &str = "import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])";
    let bench = BenchStage::with_mps();
    let mut command = Command::new("python3");
    command.args(["-c", START, env!("CARGO_BIN_EXE_detshare")]);
    command.args(BenchStage::arguments("small", &["--seconds", "2", "--rounds", "1", "--arms", "alone,mps"]));
    bench.prepare(&mut command);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    until("both under MPS", || bench.log().len() == 4);
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let interrupted = 130;
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(interrupted), "{said}");
    assert!(said.ends_with("ended by signal 2, and everything with it; what was measured is in out\n"), "{said}");
    assert_measured(&bench.results(), "alone");
    assert_eq!(std::fs::read_to_string(bench.mps_log()).unwrap(), "started\nended\n");
    bench.assert_nothing_is_left();
}

#[test]
fn what_makes_no_sense() {
    let bench = BenchStage::new();
    let refused = |more: &[&str], code: i32, reason: &str| {
        let mut command = bench.stage.detshare();
        bench.prepare(&mut command);
        let ended = outcome(command.arg("bench").args(more));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(code), ""), "{}", ended.stderr);
        assert!(ended.stderr.contains(reason) && ended.stderr.lines().count() == 1, "{}", ended.stderr);
    };
    refused(&["huge"], 64, "two-latency");
    refused(&["small", "--workloads", "workloads", "--arms", "magic"], 64, "small has no arm \"magic\"");
    refused(&["small", "--workloads", "elsewhere"], 66, "no bench_serve.py: looked into elsewhere");
    refused(&["small", "--workloads", "workloads", "--out", "workloads"], 64, "is not empty");
}

/// The server's steps are apart, each launch has its lane and its reason, and the training's were held.
fn assert_timeline(results: &Value) {
    let timeline = &results["timeline"];
    let [serve, train] = &timeline["tenants"].as_array().unwrap_or_else(|| panic!("{}", results["no_timeline"]))[..]
    else {
        panic!("{timeline:#}")
    };
    assert_eq!((&serve["tenant"], &train["tenant"]), (&"serve".into(), &"train".into()));
    let steps: Vec<[f64; 2]> = serde_json::from_value(serve["steps"].clone()).unwrap();
    assert!(steps.len() > 1, "several in 60 ms: {steps:?}");
    assert!(steps.iter().all(|[begin, end]| 0.0 <= *begin && begin < end && *end <= 60.0), "{steps:?}");
    assert!(steps.is_sorted_by(|[_, end], [begin, _]| end < begin), "{steps:?}");
    for tenant in [serve, train] {
        assert_eq!(tenant["bits"]["verdict"], "identical", "{tenant:#}");
        let launches = tenant["launches"].as_array().unwrap();
        assert!(!launches.is_empty(), "{tenant:#}");
        for launch in launches {
            assert!(launch[0].is_number() && launch[1].is_string() && launch[2] != "nobody knows", "{launch}");
            assert_eq!(launch[3].as_f64().unwrap() > 0.0, launch[4].is_string(), "held for a reason: {launch}");
        }
    }
}

/// The real thing, as far as it goes without a GPU.
#[test]
fn on_the_software_gpu() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("temporary")).unwrap();
    let policies: Vec<_> = POLICIES.iter().map(|policy| policy.name).collect();
    // What is first is shown.
    let arms = format!("alone,shared,slo-aware,{}", policies.join(","));
    let steps = built("steps");
    let mut command = stage.detshare();
    command
        .args(["bench", "soft", "--seconds", "2", "--rounds", "1", "--out", "out", "--arms", &arms, "--workloads"])
        .arg(steps.parent().unwrap())
        .env("TMPDIR", stage.path("temporary"))
        .env("DETSHARE_SHIM", built("libdetshare_shim.so"))
        .env("DETSHARE_SOFTGPU", built("libdetshare_softgpu.so"))
        .env("DETSHARE_DAEMON", built("detshared"));
    let ended = outcome(&mut command);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    let results = std::fs::read_to_string(stage.path("out/results.json")).unwrap();
    let results: Value = serde_json::from_str(&results).unwrap();
    for arm in arms.split(',') {
        assert_measured(&results, arm);
    }
    assert_eq!(results["machine"]["gpu"], "DetShare Software GPU");
    assert!(ended.stdout.contains("every program computed the same bits as alone"), "{}", ended.stdout);
    assert_eq!(results["timeline"]["arm"], "slo-aware");
    assert_timeline(&results);
    for file in FILES {
        assert!(std::fs::metadata(stage.path("out").join(file)).is_ok_and(|found| found.len() > 0), "{file}");
    }
    assert_nothing_is_left(&stage.path("temporary"));
    assert!(!stage.runtime_folder().exists(), "the user's own folder was not used");
}
