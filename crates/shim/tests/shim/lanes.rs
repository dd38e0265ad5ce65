//! Lanes and moves, on the software GPU: what the stats say of them, and which launches stay on all SMs.

use crate::stage::{built, shim, succeed};
use serde_json::Value;
use std::process::Command;

/// Runs a program through the shim with a schedule; what it printed, and its stats.
fn run(program: &str, arguments: &[&str], settings: &[(&str, &str)]) -> (String, Value) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let stats = folder.path().join("stats.json");
    let mut command = Command::new(built(program));
    command.args(arguments).env_clear().env("LD_PRELOAD", shim()).env("DETSHARE_STATS", &stats);
    command.env("DETSHARE_DRIVER", built("libdetshare_softgpu.so")).envs(settings.iter().copied());
    let said = succeed(&mut command);
    let text = std::fs::read_to_string(stats).expect("the stats are written at exit");
    (said, serde_json::from_str(&text).expect("the stats are JSON"))
}

fn launches(stats: &Value, lane: &str) -> u64 {
    let lanes = stats["lanes"]["each"].as_array().expect("a list of lanes");
    lanes.iter().find(|it| it["name"] == lane).and_then(|it| it["launches"].as_u64()).expect("the lane is there")
}

#[test]
fn the_ladder_is_made_and_used() {
    let (_, stats) = run("slow_once", &["10"; 22], &[("DETSHARE_SCHEDULE", "cycle")]);
    let lanes = stats["lanes"]["each"].as_array().expect("a list of lanes");
    let widths: Vec<_> = lanes.iter().map(|lane| lane["width"].as_u64().expect("a number")).collect();
    assert_eq!(widths, [132, 16, 116, 32, 100, 48, 84, 64, 68, 96, 36]);
    // Two rounds; the first time on a lane its stream may still be on order, and the launch stays on all SMs.
    assert!(lanes.iter().all(|lane| lane["launches"].as_u64().expect("a number") >= 1), "{lanes:?}");
    assert!(stats["lanes"]["moves"].as_u64().expect("a number") >= 20, "{stats}");
}

#[test]
fn a_small_device_is_split_too() {
    let small = [("DETSHARE_SCHEDULE", "cycle"), ("DETSHARE_SOFTGPU_SMS", "32")];
    let (_, stats) = run("slow_once", &["10"; 8], &small);
    let lanes = stats["lanes"]["each"].as_array().expect("a list of lanes");
    let widths: Vec<_> = lanes.iter().map(|lane| lane["width"].as_u64().expect("a number")).collect();
    assert_eq!(widths, [32, 8, 24, 16, 16, 24, 8]);
}

#[test]
fn without_a_schedule_there_are_no_lanes() {
    let (_, stats) = run("slow_once", &["10"], &[]);
    assert_eq!(stats["lanes"], Value::Null);
}

#[test]
fn a_schedule_that_makes_no_sense_is_ignored_and_said() {
    for schedule in ["random", "random:x", "sometimes", "front"] {
        let mut command = Command::new(built("slow_once"));
        command.arg("10").env_clear().env("LD_PRELOAD", shim()).env("DETSHARE_LOG", "1");
        command.env("DETSHARE_DRIVER", built("libdetshare_softgpu.so")).env("DETSHARE_SCHEDULE", schedule);
        let output = command.output().expect("it can be started");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.contains("DETSHARE_SCHEDULE") || said.contains("there is no lane"), "{schedule}: {said}");
    }
}

/// Forked before the driver is touched, as workers are.
#[test]
fn a_forked_child_has_lanes_of_its_own() {
    let mut command = Command::new(built("quota_probe"));
    command.args(["fork", "init", "alloc:1000", "async:1000", "info"]).env_clear().env("LD_PRELOAD", shim());
    command.env("DETSHARE_DRIVER", built("libdetshare_softgpu.so")).env("DETSHARE_SCHEDULE", "cycle");
    let output = command.env("DETSHARE_LOG", "1").output().expect("it can be started");
    let (said, log) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !said.contains("ERROR"), "{said}{log}");
    assert!(log.contains("11 lanes are ready"), "{log}");
}

#[test]
fn one_lane_by_name() {
    let (_, stats) = run("slow_once", &["10"; 5], &[("DETSHARE_SCHEDULE", "rest96")]);
    assert_eq!(launches(&stats, "rest96"), 5, "{stats}");
    let (_, stats) = run("slow_once", &["10"; 5], &[("DETSHARE_SCHEDULE", "front7")]);
    assert_eq!(launches(&stats, "full"), 5, "a lane that is not there: {stats}");
}

/// As many blocks as the whole device can hold at once, and one more: on a narrow lane only the codes of the whole device
/// are right.
#[test]
fn a_cooperative_launch_that_a_lane_cannot_hold_runs_on_all_sms() {
    let mut command = Command::new(built("conformance"));
    command.arg("--driver").arg(shim()).arg("cooperative").env_clear();
    command.env("DETSHARE_DRIVER", built("libdetshare_softgpu.so")).env("DETSHARE_SCHEDULE", "front16");
    let said = succeed(&mut command);
    assert!(said.trim_end().ends_with("0 failed, 0 skipped") && !said.contains("\n0 passed"), "{said}");
}

/// Twice round all lanes, and on all SMs; then on the next lane, nearly as wide, where it takes forty times as long. It takes long enough
/// everywhere that what a busy machine adds is no ten times of it.
#[test]
fn a_kernel_that_takes_too_long_on_a_lane_is_reported_and_stays_off() {
    const USUAL: &str = "500000";
    const LONG: &str = "20000000";
    let rounds = [&[USUAL; 24][..], &[LONG], &[USUAL; 22]].concat();
    let moving = [("DETSHARE_SCHEDULE", "cycle")];
    let (said, stats) = run("slow_once", &rounds, &moving);
    assert_eq!(stats["lanes"]["kernels_reported"], 1, "{stats}");
    assert!(launches(&stats, "full") >= 3 + 20, "it ran on lanes after that: {stats}");
    assert_eq!(said, run("slow_once", &rounds, &[]).0, "other bits");
    let (_, stats) = run("slow_once", &[USUAL; 24], &moving);
    assert_eq!(stats["lanes"]["kernels_reported"], 0, "{stats}");
    assert_eq!((&stats["lanes"]["kernels"], &stats["lanes"]["kernels_without_module"]), (&1.into(), &0.into()));
}
