//! The scenarios of `bench` in small, on the software GPU: a server beside a training, under each policy. Judged by what
//! the training launched while the server had a step under way, and by the bits; not by the clock.

use crate::daemon::{DaemonStage, built};
use crate::stage::outcome;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A server: its steps, and what comes between them.
struct Scenario {
    name: &'static str,
    servers: &'static [&'static [&'static str]],
    /// As without MPS: there are no partitions, and policies that need them are refused.
    process: bool,
}

const REGULAR: Scenario = Scenario {
    name: "regular, by graph",
    servers: &[&["--kernels", "30", "--graph", "--pause-us", "4000"]],
    process: false,
};
const SCENARIOS: [Scenario; 6] = [
    REGULAR,
    Scenario {
        name: "regular, long steps",
        servers: &[&["--kernels", "60", "--graph", "--pause-us", "8000"]],
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

/// What it prints without DetShare, which is found out once for all policies.
fn alone(arguments: &[&str]) -> String {
    static KNOWN: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let compute = || {
        let mut command = Command::new(built("steps"));
        let ended = outcome(command.args(arguments).env_clear().env("LD_PRELOAD", built("libdetshare_softgpu.so")));
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        ended.stdout
    };
    // Whoever panicked with it left what had been found out before.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry(arguments.join(" ")).or_insert_with(compute).clone()
}

/// What a policy did in a scenario.
#[derive(Debug)]
struct Shared {
    /// The training's launches while servers were there, those of them that were made while one had a step under way, and those that had
    /// a part of the SMs only.
    launches: usize,
    inside: usize,
    apart: usize,
    /// How often a server was held.
    servers_held: usize,
}

fn share(policy: &str, scenario: &Scenario) -> Shared {
    share_at("", policy, scenario)
}

/// The same, with the dial where a line of the configuration says.
fn share_at(dial: &str, policy: &str, scenario: &Scenario) -> Shared {
    let house = DaemonStage::new();
    // The isolation that a machine without an NVIDIA device has; and no share at any price, for servers that are always busy.
    let isolation = if scenario.process { "process" } else { "auto" };
    let configuration = format!("policy = \"{policy}\"\nisolation = \"{isolation}\"\nleast_share = 0.0\n{dial}");
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
    let narrow = narrow_lanes(&record);
    let launches: Vec<(u64, bool)> = record
        .iter()
        .filter(|line| line["launch"].is_string())
        .filter_map(|line| Some((line["at"].as_u64()?, narrow.contains(&line["lane"].as_u64()?))))
        .filter(|(at, _)| (from..to).contains(at))
        .collect();
    let is_inside = |at: u64| busy.iter().any(|(began, ended)| (*began..*ended).contains(&at));
    let inside = launches.iter().filter(|(at, _)| is_inside(*at)).count();
    let apart = launches.iter().filter(|(_, is_narrow)| *is_narrow).count();
    Shared { launches: launches.len(), inside, apart, servers_held }
}

/// The lanes that are not all SMs.
fn narrow_lanes(record: &[Value]) -> Vec<u64> {
    let lanes = record[0]["lanes"].as_array().expect("a record begins with its lanes");
    let width = |lane: &&Value| lane["width"].as_u64().expect("a width");
    let all = lanes.iter().map(|lane| width(&lane)).max().expect("one lane at least");
    lanes.iter().filter(|lane| width(lane) < all).filter_map(|lane| lane["lane"].as_u64()).collect()
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
        let [throughput, exclusive, slo_aware, fair] =
            ["throughput", "exclusive", "slo-aware", "fair"].map(|policy| share(policy, scenario));
        let all = format!("{}: {throughput:?} {exclusive:?} {slo_aware:?} {fair:?}", scenario.name);
        assert!(throughput.inside > 2 * slo_aware.inside, "slo-aware keeps out of steps: {all}");
        assert!(throughput.inside > 2 * exclusive.inside, "exclusive keeps out of steps: {all}");
        assert!(throughput.launches > slo_aware.launches, "the training gets on best where it need not wait: {all}");
        assert!(slo_aware.launches > 0 && exclusive.launches > 0, "it gets on under each: {all}");
        assert_eq!((throughput.servers_held, slo_aware.servers_held), (0, 0), "servers are never held: {all}");
        assert!(fair.inside > 2 * slo_aware.inside, "who has an equal part is not kept out of steps: {all}");
        assert!(fair.apart > 0, "each has its side: {all}");
        assert_eq!((throughput.apart, exclusive.apart), (0, 0), "all SMs for all, or for one: {all}");
        assert!(fair.servers_held == 0 || scenario.servers.len() > 1, "two sides are enough for two: {all}");
        println!("{all}");
    }
}

#[test]
fn the_further_the_dial_is_turned_the_more_steps_are_disturbed() {
    let [never, always] = ["0.0", "1.0"].map(|dial| {
        let dial = format!("aggressiveness = {dial}\n");
        share_at(&dial, "slo-aware", &REGULAR)
    });
    let both = format!("{never:?} {always:?}");
    assert!(always.inside > 2 * never.inside, "at 0 it keeps out of steps: {both}");
    assert!(always.launches > never.launches, "at 1 the training need not wait: {both}");
    assert!(never.launches > 0, "it gets on at 0 too: {both}");
    println!("{both}");
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
