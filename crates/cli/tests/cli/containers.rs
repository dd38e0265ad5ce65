//! Tenants in containers: processes with pids, mounts and users of their own, which share the daemon's folder.

use crate::daemon::{DaemonStage, built, until};
use crate::sharing::soft;
use crate::stage::outcome;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// How to start a process as containers do; the first that this system allows.
const WAYS: [&[&str]; 2] = [
    &["--user", "--map-root-user", "--pid", "--mount", "--fork", "--kill-child", "--mount-proc"],
    &["--pid", "--mount", "--fork", "--kill-child", "--mount-proc"],
];

/// `unshare` with such arguments; nothing where no container can be made.
fn container(test: &str) -> Option<Command> {
    let works =
        |way: &&[&str]| Command::new("unshare").args(*way).arg("true").output().is_ok_and(|it| it.status.success());
    let Some(way) = WAYS.into_iter().find(works) else {
        // To where the harness does not keep it: who reads the output must not take it for passed.
        _ = writeln!(std::io::stderr(), "{test}: SKIPPED, nobody may make namespaces here");
        return None;
    };
    let mut command = Command::new("unshare");
    command.args(way);
    Some(command)
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Mostly it has ended. Whoever is in the container ends with it.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn tenants(house: &DaemonStage) -> Vec<Value> {
    let listed = house.detshare(&["ps", "--format", "json"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    serde_json::from_str(&listed.stdout).expect("JSON")
}

fn field<'a>(tenants: &'a [Value], name: &str, field: &str) -> &'a Value {
    tenants.iter().find(|it| it["name"] == name).map_or(&Value::Null, |it| &it[field])
}

/// The pids of a process, from ours down to that in its own namespace.
fn pids(process: u64) -> Vec<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).expect("a number in each namespace");
    line.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

#[test]
fn a_tenant_in_a_container_is_one_like_any_other() {
    let Some(mut contained) = container("a_tenant_in_a_container_is_one_like_any_other") else { return };
    let house = DaemonStage::new();
    assert_eq!(house.detshare(&["up"]).code, Some(0));
    let stop = house.stage.path("stop");
    let steps = |command: &mut Command| {
        command.arg(built("steps")).args(["--steps", "1000000000", "--stop-file"]).arg(&stop);
        command.stdin(Stdio::null()).stdout(Stdio::null());
    };
    // The daemon's folder has another place there.
    let mounted = house.stage.path("mounted");
    std::fs::create_dir(&mounted).expect("a folder");
    let detshare = Path::new(env!("CARGO_BIN_EXE_detshare"));
    house.prepare(&mut contained);
    soft(&mut contained);
    contained.args([
        "sh",
        "-c",
        "mount --bind \"$DETSHARE_DIR\" \"$1\" && export DETSHARE_DIR=\"$1\" && shift && exec \"$@\"",
        "sh",
    ]);
    contained.arg(&mounted).arg(detshare).args(["run", "--name", "inside", "--block-level", "--"]);
    steps(&mut contained);
    let mut outside = house.command(&["run", "--name", "outside", "--block-level", "--"]);
    soft(&mut outside);
    steps(&mut outside);
    let mut running = [contained, outside].map(|mut command| Running(command.spawn().expect("it can be started")));

    let names = ["inside", "outside"];
    until("both work", || {
        let tenants = tenants(&house);
        names.iter().all(|name| field(&tenants, name, "step").as_u64().is_some_and(|step| step > 10))
    });
    let seen = tenants(&house);
    let numbers = pids(field(&seen, "inside", "pid").as_u64().expect("a pid"));
    assert!(numbers.len() > 1 && numbers[0] != numbers[1], "it has another pid in its container: {numbers:?}");
    for name in names {
        until("each is told of by itself", || {
            let told = house.detshare(&["explain", name, "--format", "json"]);
            let told: Value = serde_json::from_str(&told.stdout).expect("JSON");
            told["block_level"]["modules"].as_array().is_some_and(|modules| modules.len() == 1)
        });
    }

    let pid = numbers[0].to_string();
    assert_eq!(house.detshare(&["set", "inside", "--weight", "300"]).code, Some(0));
    assert_eq!(field(&tenants(&house), "inside", "weight"), 300);
    assert!(Command::new("kill").args(["-KILL", &pid]).status().expect("it can be told").success());
    until("its end is seen", || field(&tenants(&house), "inside", "pid").is_null());
    assert!(!running[0].0.wait().expect("it ends").success());

    std::fs::write(&stop, "").expect("written");
    assert!(running[1].0.wait().expect("it ends").success());
    until("they have left", || tenants(&house).is_empty());
}

/// It could not watch over them: nothing would tell it that one has died.
#[test]
fn who_is_outside_of_the_daemons_container_is_told_so() {
    let Some(mut contained) = container("who_is_outside_of_the_daemons_container_is_told_so") else { return };
    let house = DaemonStage::new();
    house.prepare(&mut contained);
    contained.args(["sh", "-c", "\"$0\" up && read -r _", env!("CARGO_BIN_EXE_detshare")]);
    let started = contained.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it can be started");
    let _running = Running(started);
    until("the daemon runs", || house.detshare(&["status"]).code == Some(0));
    let refused = house.detshare(&["run", "--", "true"]);
    assert_eq!(refused.code, Some(69), "{}", refused.stderr);
    assert!(
        refused.stderr.contains("does not see this process") && refused.stderr.lines().count() == 1,
        "{}",
        refused.stderr
    );
    let looked = outcome(&mut house.command(&["doctor", "--format", "json"]));
    let findings: Vec<Value> = serde_json::from_str(&looked.stdout).expect("JSON");
    let daemon = findings.iter().find(|finding| finding["check"] == "daemon").expect("it is looked at");
    assert_eq!(daemon["verdict"], "problem", "{daemon}");
}
