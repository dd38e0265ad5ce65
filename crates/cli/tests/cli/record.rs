//! What programs did on the software GPU, recorded and shared in simulated time; and why launches went as they did.

use crate::daemon::{DaemonStage, built};
use crate::stage::{Outcome, Stage, outcome};
use serde_json::Value;

fn detshare(house: &DaemonStage, arguments: &[&str]) -> Outcome {
    let mut command = house.command(arguments);
    command.env("DETSHARE_SHIM", built("libdetshare_shim.so")).env("DETSHARE_DRIVER", built("libdetshare_softgpu.so"));
    outcome(&mut command)
}

#[test]
fn recorded_programs_share_in_simulated_time() {
    let house = DaemonStage::new();
    let folder = tempfile::tempdir().unwrap();
    let (serve, train) = (folder.path().join("serve.json"), folder.path().join("train.json"));
    let (serve, train) = (serve.to_str().unwrap(), train.to_str().unwrap());
    let steps = built("steps");
    let steps = steps.to_str().unwrap();
    let flags = ["record", "--class", "latency", "--name", "serve", "--out", serve, "--", steps];
    let recorded = detshare(&house, &[&flags[..], &["--steps", "40", "--kernels", "3", "--pause-us", "500"]].concat());
    assert_eq!(recorded.code, Some(0), "{}{}", recorded.stdout, recorded.stderr);
    assert!(recorded.stdout.contains("steps with"), "{}", recorded.stdout);
    let flags = ["record", "--out", train, "--", steps, "--steps", "40", "--kernels", "5"];
    assert_eq!(detshare(&house, &flags).code, Some(0));

    let simulate = ["sim", serve, train, "--time", "1s", "--ways", "alone,slo-aware", "--format", "json"];
    let (first, second) = (detshare(&house, &simulate), detshare(&house, &simulate));
    assert_eq!((first.code, &first.stdout), (Some(0), &second.stdout), "the same again: {}", first.stderr);
    let reports: Value = serde_json::from_str(&first.stdout).unwrap();
    assert_eq!((&reports[0]["way"], &reports[1]["way"]), (&"alone".into(), &"slo-aware".into()));
    assert_eq!(
        (&reports[1]["latency"][0]["name"], &reports[1]["best_effort"][0]["name"]),
        (&"serve".into(), &"steps".into())
    );
    let csv = detshare(&house, &[&simulate[..simulate.len() - 1], &["csv"]].concat());
    let rows: Vec<Vec<&str>> = csv.stdout.lines().map(|line| line.split(',').collect()).collect();
    let headings = ["way", "name", "class", "p50_ns", "p99_ns", "p99_overhead", "requests", "steps", "share"];
    assert_eq!((csv.code, &rows[0][..]), (Some(0), &headings[..]), "{}{}", csv.stdout, csv.stderr);
    let serve_row = rows.iter().find(|row| row[..3] == ["slo-aware", "serve", "latency"]).expect("a row");
    let train_row = rows.iter().find(|row| row[..3] == ["slo-aware", "steps", "best-effort"]).expect("a row");
    assert_eq!(serve_row[4], reports[1]["latency"][0]["times"]["p99_ns"].to_string(), "{}", csv.stdout);
    assert_eq!(train_row[8], reports[1]["best_effort"][0]["share"].to_string(), "{}", csv.stdout);
    assert!(detshare(&house, &["sim", serve, train, "--time", "1s"]).stdout.contains("time-slicing"));
}

#[test]
fn what_cannot_be_recorded_or_simulated_is_said() {
    let house = DaemonStage::new();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("trace.json");
    let out = out.to_str().unwrap();
    let nothing = detshare(&house, &["record", "--out", out, "--", "true"]);
    assert!(nothing.code == Some(74) && nothing.stderr.contains("detshare: "), "{}", nothing.stderr);
    let failed = detshare(&house, &["record", "--out", out, "--", "sh", "-c", "exit 5"]);
    assert!(failed.code == Some(5) && failed.stderr.contains("exit code 5"), "{}", failed.stderr);
    std::fs::write(out, "{}").unwrap();
    let broken = detshare(&house, &["sim", out]);
    assert!(broken.code == Some(74) && broken.stderr.contains("is no trace"), "{}", broken.stderr);
    assert_eq!(detshare(&house, &["sim", "/nowhere/trace.json"]).code, Some(74));
    assert_eq!(detshare(&house, &["sim", out, "--ways", "magic"]).code, Some(64));
    let nobody = detshare(&house, &["explain", "nobody"]);
    assert!(nobody.code == Some(69) || nobody.stderr.contains("detshare ps"), "{}", nobody.stderr);
}

#[test]
fn what_was_measured_is_compared_with_the_same_isolation() {
    let stage = Stage::new();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let trace = |name: &str| format!("{root}/crates/sim/tests/traces/h200-{name}.json");
    let (serve, train) = (trace("small-serve"), trace("train"));
    let simulated = |scenario: &str, more: &[&str]| {
        let measured = format!("{root}/bench/results/h200-sharing/{scenario}/results.json");
        let fixed = ["sim", &serve, &train, "--time", "200ms", "--format", "json", "--measured", &measured];
        outcome(stage.detshare().args(fixed).args(more))
    };
    let process = simulated("small-process", &["--isolation", "process"]);
    assert_eq!(process.code, Some(0), "{}", process.stderr);
    let compared: Value = serde_json::from_str(&process.stdout).unwrap();
    let tenants: Vec<_> = compared["compared"].as_array().unwrap().iter().map(|one| &one["tenant"]).collect();
    assert_eq!(tenants, ["serve", "train"], "{compared:#}");
    let refused = simulated("small-process", &[]);
    assert_eq!(refused.code, Some(64), "{}", refused.stdout);
    assert!(refused.stderr.contains("say --isolation process"), "{}", refused.stderr);
    assert_eq!(simulated("small", &[]).code, Some(0));
}
