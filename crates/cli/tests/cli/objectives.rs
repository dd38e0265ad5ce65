//! Objectives that cannot be met are said to be missed, wherever somebody looks; and nobody's bits depend on them.

use crate::daemon::{DaemonStage, built, until};
use serde_json::Value;
use std::process::{Child, Stdio};

/// Until it is killed.
const FOR_EVER: [&str; 4] = ["--steps", "1000000000", "--kernels", "3"];

/// A program that ends with the test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it runs");
    }
}

fn start(house: &DaemonStage, flags: &[&str]) -> Running {
    let mut command = house.command(&[&["run", "--class", "latency", "--name", "serve"], flags, &["--"]].concat());
    command.arg(built("steps")).args(FOR_EVER);
    command.env("DETSHARE_SHIM", built("libdetshare_shim.so")).env("DETSHARE_DRIVER", built("libdetshare_softgpu.so"));
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it can be started"))
}

/// What `ps` says of the one tenant.
fn tenant(house: &DaemonStage) -> Value {
    let listed = house.detshare(&["ps", "--format", "json"]).stdout;
    serde_json::from_str::<Value>(&listed).ok().and_then(|mut all| Some(all.get_mut(0)?.take())).unwrap_or_default()
}

#[test]
fn an_objective_that_cannot_be_met_is_said_to_be_missed() {
    let house = DaemonStage::new();
    assert_eq!(house.detshare(&["up"]).code, Some(0));
    let _server = start(&house, &["--p99", "1us"]);
    until("it misses its objective", || tenant(&house)["strained"] == true);
    until("nearly all of its steps do", || tenant(&house)["missed"]["p99"].as_f64().is_some_and(|part| part > 0.9));
    let table = house.detshare(&["ps"]).stdout;
    assert!(table.contains("  objectives\n") && table.contains("p99 missed by "), "{table}");
    let explained = house.detshare(&["explain", "serve"]).stdout;
    assert!(explained.contains("misses its objectives (p99 missed by "), "{explained}");
    let log = || std::fs::read_to_string(house.stage.runtime_folder().join("detshared.log")).unwrap_or_default();
    until("the log says so", || log().contains("misses its objectives"));
    assert!(log().contains("p99 by "), "{}", log());
    // What can be met is kept, after as many steps as are looked at.
    assert_eq!(house.detshare(&["set", "serve", "--p99", "10s"]).code, Some(0));
    until("it keeps to it", || tenant(&house)["strained"] == false);
    until("the log says so", || log().contains("keeps to its objectives again"));
    assert_eq!(house.detshare(&["set", "serve", "--p99", "none"]).code, Some(0));
    until("nobody asks for anything", || !house.detshare(&["ps"]).stdout.contains("objectives"));
}
