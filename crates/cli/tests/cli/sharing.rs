//! The scenarios of `bench` in small, on the software GPU: a server beside a training, under each policy. Judged by what
//! the training launched while the server had a step under way, and by the bits; not by the clock.

use crate::daemon::{DaemonStage, built};
use crate::stage::outcome;
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server: its steps, and what comes between them.
struct Scenario {
    name: &'static str,
    servers: &'static [&'static [&'static str]],
    /// As without MPS: there are no partitions, and policies that need them are refused.
    process: bool,
}

const SCENARIOS: [Scenario; 5] = [
    Scenario {
        name: "regular, by graph",
        servers: &[&["--kernels", "30", "--graph", "--pause-us", "4000"]],
        process: false,
    },
    Scenario {
        name: "regular, kernel by kernel",
        servers: &[&["--kernels", "30", "--pause-us", "4000"]],
        process: false,
    },
    Scenario {
        name: "at random",
        servers: &[&["--kernels", "30", "--graph", "--pause-us", "4000", "--random-pauses"]],
        process: false,
    },
    Scenario {
        name: "two servers",
        servers: &[&["--kernels", "20", "--pause-us", "4000"], &["--kernels", "40", "--graph", "--pause-us", "9000"]],
        process: false,
    },
    Scenario {
        name: "regular, without partitions",
        servers: &[&["--kernels", "30", "--graph", "--pause-us", "4000"]],
        process: true,
    },
];
const STEPS: &str = "40";
const TRAINING: [&str; 4] = ["--steps", "200", "--kernels", "10"];
/// What such a program prints, by its arguments alone.
const CHECKSUM: &str = "checksum ";

/// A program that runs as a tenant and leaves a record.
struct Tenant {
    child: Child,
    record: std::path::PathBuf,
}

fn start(house: &DaemonStage, folder: &Path, name: &str, class: &str, arguments: &[&str]) -> Tenant {
    let record = folder.join(name);
    let mut command = house.command(&["run", "--class", class, "--name", name, "--"]);
    command.arg(built("steps")).args(arguments).env("DETSHARE_RECORD", &record);
    soft(&mut command);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    Tenant { child, record }
}

pub(crate) fn soft(command: &mut Command) {
    command.env("DETSHARE_SHIM", built("libdetshare_shim.so")).env("DETSHARE_DRIVER", built("libdetshare_softgpu.so"));
}

/// What it printed, and its record line by line.
fn end(tenant: Tenant) -> (String, Vec<Value>) {
    let output = tenant.child.wait_with_output().expect("it ends");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains(CHECKSUM), "{said}{errors}");
    let text = std::fs::read_to_string(tenant.record).expect("a record");
    (said.into_owned(), text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

/// What it prints without DetShare.
fn alone(arguments: &[&str]) -> String {
    let mut command = Command::new(built("steps"));
    let ended = outcome(command.args(arguments).env_clear().env("LD_PRELOAD", built("libdetshare_softgpu.so")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    ended.stdout
}

/// What a policy did in a scenario.
#[derive(Debug)]
struct Shared {
    /// The training's launches while servers were there, and those of them that were made while one had a step under way.
    launches: usize,
    inside: usize,
    /// How often a server was held.
    servers_held: usize,
}

fn share(policy: &str, scenario: &Scenario) -> Shared {
    let house = DaemonStage::new();
    // The isolation that a machine without an NVIDIA device has; and no share at any price, for servers that are always busy.
    let isolation = if scenario.process { "process" } else { "auto" };
    let configuration = format!("policy = \"{policy}\"\nisolation = \"{isolation}\"\nleast_share = 0.0\n");
    std::fs::write(house.stage.path(".config/detshare/detshare.toml"), configuration).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(house.detshare(&["up"]).code, Some(0));
    let servers: Vec<(String, Vec<&str>)> = scenario
        .servers
        .iter()
        .enumerate()
        .map(|(number, more)| (format!("serve{number}"), [&["--steps", STEPS], *more].concat()))
        .collect();
    let training = start(&house, folder.path(), "train", "best-effort", &TRAINING);
    let started: Vec<Tenant> =
        servers.iter().map(|(name, arguments)| start(&house, folder.path(), name, "latency", arguments)).collect();
    let mut busy = Vec::new();
    let mut servers_held = 0;
    for (tenant, (name, arguments)) in started.into_iter().zip(&servers) {
        let (said, record) = end(tenant);
        assert_eq!(said, alone(arguments), "{policy}, {}: other bits of {name}", scenario.name);
        busy.extend(steps(&record));
        servers_held += record.iter().filter(|line| line["held"].as_u64().is_some_and(|held| held > 0)).count();
    }
    let (said, record) = end(training);
    assert_eq!(said, alone(&TRAINING), "{policy}, {}: other bits of the training", scenario.name);
    let from = busy.iter().map(|(began, _)| *began).min().expect("steps");
    let to = busy.iter().map(|(_, ended)| *ended).max().expect("steps");
    let launches: Vec<u64> = record
        .iter()
        .filter(|line| line["launch"].is_string())
        .filter_map(|line| line["at"].as_u64())
        .filter(|at| (from..to).contains(at))
        .collect();
    let inside = launches.iter().filter(|at| busy.iter().any(|(began, ended)| (*began..*ended).contains(*at))).count();
    Shared { launches: launches.len(), inside, servers_held }
}

/// When each step began and ended.
fn steps(record: &[Value]) -> Vec<(u64, u64)> {
    let edge = |which: &str| -> Vec<u64> {
        let found = record.iter().filter(|line| line["step"] == which).filter_map(|line| line["at"].as_u64());
        found.collect()
    };
    edge("began").into_iter().zip(edge("ended")).collect()
}

#[test]
fn the_policies_disturb_in_the_order_that_they_promise() {
    for scenario in SCENARIOS.iter().filter(|scenario| !scenario.process) {
        let [throughput, exclusive, slo_aware] =
            ["throughput", "exclusive", "slo-aware"].map(|policy| share(policy, scenario));
        let all = format!("{}: {throughput:?} {exclusive:?} {slo_aware:?}", scenario.name);
        assert!(throughput.inside > 2 * slo_aware.inside, "slo-aware keeps out of steps: {all}");
        assert!(throughput.inside > 2 * exclusive.inside, "exclusive keeps out of steps: {all}");
        assert!(throughput.launches > slo_aware.launches, "the training gets on best where it need not wait: {all}");
        assert!(slo_aware.launches > 0 && exclusive.launches > 0, "it gets on under each: {all}");
        assert_eq!((throughput.servers_held, slo_aware.servers_held), (0, 0), "servers are never held: {all}");
        println!("{all}");
    }
}

#[test]
fn without_partitions_they_keep_out_of_steps_too() {
    let scenario = SCENARIOS.iter().find(|scenario| scenario.process).expect("one");
    let beside = share("throughput", &Scenario { process: false, ..*scenario });
    let [exclusive, slo_aware] = ["exclusive", "slo-aware"].map(|policy| share(policy, scenario));
    let all = format!("{beside:?} {exclusive:?} {slo_aware:?}");
    assert!(beside.inside > 2 * slo_aware.inside, "slo-aware keeps out of steps: {all}");
    assert!(beside.inside > 2 * exclusive.inside, "exclusive keeps out of steps: {all}");
    assert!(
        slo_aware.launches > 0 && slo_aware.servers_held == 0,
        "the training gets on, the server is not held: {all}"
    );
}

/// Two trainings: side by side nobody is held; one at a time they are, by turns. Without partitions they take turns under
/// `slo-aware` too.
#[test]
fn trainings_share_as_the_policy_says() {
    for (policy, isolation, are_held) in [
        ("throughput", "auto", false),
        ("slo-aware", "auto", false),
        ("exclusive", "auto", true),
        ("slo-aware", "process", true),
        ("exclusive", "process", true),
    ] {
        let house = DaemonStage::new();
        let configuration = format!("policy = \"{policy}\"\nisolation = \"{isolation}\"\n");
        std::fs::write(house.stage.path(".config/detshare/detshare.toml"), configuration).unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(house.detshare(&["up"]).code, Some(0));
        let trainings = ["one", "other"].map(|name| start(&house, folder.path(), name, "best-effort", &TRAINING));
        let held = trainings.map(|tenant| {
            let (said, record) = end(tenant);
            assert_eq!(said, alone(&TRAINING), "{policy}, {isolation}: other bits");
            record.iter().filter(|line| line["held"].as_u64().is_some_and(|held| held > 0)).count()
        });
        assert_eq!(held.iter().any(|held| *held > 0), are_held, "{policy}, {isolation}: {held:?}");
    }
}
