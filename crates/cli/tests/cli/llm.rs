//! LLM servers in small, on the software GPU: alone, beside a training and beside each other, under the policies that they are
//! for. Their tokens must be those of a run without DetShare, whatever happens to their neighbours.

use crate::daemon::{DaemonStage, LONGEST, built, until};
use crate::sharing::soft;
use crate::stage::outcome;
use detshare_api::Tenant;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, channel};

const SERVER: [&str; 6] = ["--requests", "30", "--longest-output", "40", "--seed", "1"];
const OTHER_SERVER: [&str; 6] = ["--requests", "15", "--longest-output", "40", "--seed", "2"];
const LONG_SERVER: [&str; 8] = ["--requests", "40", "--longest-prompt", "80", "--longest-output", "80", "--seed", "3"];
const TRAINING: [&str; 5] = ["--steps", "600", "--kernels", "10", "--progress"];

/// What they say without DetShare.
static TOKENS: LazyLock<String> = LazyLock::new(|| alone("llm_probe", &SERVER));
static OTHER_TOKENS: LazyLock<String> = LazyLock::new(|| alone("llm_probe", &OTHER_SERVER));
static TRAINED: LazyLock<String> = LazyLock::new(|| result(&alone("steps", &TRAINING)));

/// A training does less than all of its steps before somebody reads of them.
const PIPE: usize = 4096;

/// A folder with a daemon under a policy.
struct House {
    daemon: DaemonStage,
    folder: tempfile::TempDir,
}

impl House {
    fn new(policy: &str) -> Self {
        let daemon = DaemonStage::new();
        // The isolation that a machine without an NVIDIA device has.
        std::fs::write(daemon.stage.path(".config/detshare/detshare.toml"), format!("policy = \"{policy}\"\n"))
            .unwrap();
        assert_eq!(daemon.detshare(&["up"]).code, Some(0));
        Self { daemon, folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tenants(&self) -> Vec<Tenant> {
        let listed = self.daemon.detshare(&["ps", "--format", "json"]);
        assert_eq!(listed.code, Some(0), "{}", listed.stderr);
        serde_json::from_str(&listed.stdout).unwrap()
    }

    fn tenant(&self, name: &str) -> Option<Tenant> {
        self.tenants().into_iter().find(|tenant| tenant.name == name)
    }

    fn command(&self, name: &str, class: &str, program: &str) -> Command {
        // An objective with time to spare: `tpot-first` has the training run beside tokens.
        let objective: &[&str] = if class == "latency" { &["--ttft", "10s", "--tpot", "1s"] } else { &[] };
        let flags = ["run", "--class", class, "--name", name];
        let mut command = self.daemon.command(&[&flags, objective, &["--"]].concat());
        command.arg(built(program));
        soft(&mut command);
        command
    }

    fn server(&self, name: &str, arguments: &[&str]) -> Server {
        let mut command = self.command(name, "latency", "llm_probe");
        command.args(arguments).arg("--log").arg(self.path(&format!("{name}.log")));
        command.env("DETSHARE_RECORD", self.path(&format!("{name}.record")));
        let (said, errors) = (self.path(&format!("{name}.out")), self.path(&format!("{name}.err")));
        command.stdout(File::create(&said).unwrap()).stderr(File::create(&errors).unwrap());
        Server { process: Process(command.spawn().expect("it can be started")), said, errors }
    }

    /// One that is under way.
    fn training(&self) -> Training {
        let mut command = self.command("train", "best-effort", "steps");
        let mut child = command.args(TRAINING).stdout(Stdio::piped()).spawn().expect("it can be started");
        let stdout = child.stdout.take().expect("a pipe");
        rustix::pipe::fcntl_setpipe_size(&stdout, PIPE).unwrap();
        let mut training = Training { process: Process(child), stdout: BufReader::new(stdout) };
        let mut line = String::new();
        training.stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "step 1\n");
        training
    }
}

/// A process that does not outlive the test.
struct Process(Child);

impl Process {
    fn end(&mut self) -> ExitStatus {
        let mut status = None;
        until("the end of a program", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// The state that `/proc` has: `T` is stopped.
    fn state(&self) -> Option<char> {
        let status = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).ok()?;
        status.rsplit(") ").next()?.chars().next()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Server {
    process: Process,
    said: PathBuf,
    errors: PathBuf,
}

impl Server {
    /// Until it has stopped itself.
    fn until_stalled(&self) {
        until("a server that has stopped itself", || self.process.state() == Some('T'));
    }

    fn go_on(&self) {
        let told = Command::new("kill").args(["-CONT", &self.process.0.id().to_string()]).status().unwrap();
        assert!(told.success());
    }

    /// The tokens of each request.
    fn tokens(mut self) -> String {
        let status = self.process.end();
        assert!(status.success(), "{status}: {}", std::fs::read_to_string(&self.errors).unwrap());
        std::fs::read_to_string(&self.said).unwrap()
    }
}

/// It goes on for as long as somebody reads what it says.
struct Training {
    process: Process,
    stdout: BufReader<ChildStdout>,
}

impl Training {
    /// Lets it go on to its end.
    fn go_on(self) -> Going {
        let Self { process, mut stdout } = self;
        let (sender, rest) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            if stdout.read_to_string(&mut text).is_ok() {
                // If the test has given up, nobody listens.
                let _ = sender.send(text);
            }
        });
        Going { process, rest }
    }
}

struct Going {
    process: Process,
    rest: Receiver<String>,
}

impl Going {
    /// What it computed.
    fn said(mut self) -> String {
        let rest = self.rest.recv_timeout(LONGEST).expect("the training comes to its end");
        assert!(self.process.end().success(), "{rest}");
        result(&rest)
    }
}

/// What a training says last.
fn result(said: &str) -> String {
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("checksum "), "{said}");
    last.to_string()
}

/// What a program says without DetShare.
fn alone(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(built(program));
    let ended = outcome(command.args(arguments).env_clear().env("LD_PRELOAD", built("libdetshare_softgpu.so")));
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    ended.stdout
}

#[test]
fn tokens_and_training_are_the_same_under_each_policy() {
    assert_eq!(TOKENS.lines().count(), 30);
    for policy in ["slo-aware", "tpot-first", "throughput"] {
        let house = House::new(policy);
        let training = house.training().go_on();
        // It waits in the middle of a step until its phase was seen, however long that takes here.
        let server = house.server("serve", &[&SERVER[..], &["--stall-after", "150"]].concat());
        server.until_stalled();
        let phase = || house.tenant("serve").and_then(|tenant| tenant.phase);
        until("a phase", || phase().is_some_and(|phase| ["decode", "prefill"].contains(&phase.as_str())));
        server.go_on();
        assert_eq!(server.tokens(), *TOKENS, "{policy}");
        assert_eq!(training.said(), *TRAINED, "{policy}");
    }
}

#[test]
fn two_servers_and_a_training_have_the_same_bits() {
    let house = House::new("tpot-first");
    let training = house.training().go_on();
    let (first, second) = (house.server("serve", &SERVER), house.server("other", &OTHER_SERVER));
    assert_eq!(second.tokens(), *OTHER_TOKENS);
    assert_eq!(first.tokens(), *TOKENS);
    assert_eq!(training.said(), *TRAINED);
}

/// Steps of a server in which nothing can be known yet.
const FIRST: usize = 50;

/// How many steps were what the shim took them for, as the server itself has them: the last one that ended within each.
#[derive(Debug)]
struct ToldApart {
    steps: usize,
    wrong: usize,
    /// By kind, and what they were taken for.
    taken: BTreeMap<(String, String), usize>,
}

impl ToldApart {
    fn of(house: &House, name: &str) -> Self {
        let read = |what: &str| -> Vec<Value> {
            let text = std::fs::read_to_string(house.path(&format!("{name}.{what}"))).expect(what);
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
        };
        let (logged, recorded) = (read("log"), read("record"));
        let ended: Vec<(u64, &str)> = recorded
            .iter()
            .filter(|line| line["step"] == "ended")
            .filter_map(|line| Some((line["at"].as_u64()?, line["phase"].as_str()?)))
            .collect();
        let mut found = Self { steps: 0, wrong: 0, taken: BTreeMap::new() };
        for step in &logged[FIRST..] {
            let within = step["begin"].as_u64().unwrap()..=step["end"].as_u64().unwrap();
            let last = ended.iter().rfind(|(at, _)| within.contains(at)).map_or("nothing", |(_, phase)| phase);
            let kind = step["kind"].as_str().unwrap();
            found.steps += 1;
            found.wrong += usize::from(kind != last);
            *found.taken.entry((kind.to_string(), last.to_string())).or_default() += 1;
        }
        found
    }

    /// Whether so many percent of all steps are right, and at least half of each kind: few steps are prefills.
    fn is_at_least(&self, percent: usize) -> bool {
        const HALF: usize = 50;
        let is_half_right = |kind: &str| {
            let steps: usize = self.taken.iter().filter(|((it, _), _)| it == kind).map(|(_, count)| count).sum();
            let right = self.taken.get(&(kind.to_string(), kind.to_string())).copied().unwrap_or(0);
            right * 100 >= steps * HALF
        };
        let right = self.steps - self.wrong;
        right * 100 >= self.steps * percent && ["decode", "prefill"].into_iter().all(is_half_right)
    }
}

#[test]
fn steps_are_told_apart_as_the_server_has_them() {
    let house = House::new("slo-aware");
    house.server("alone", &LONG_SERVER).tokens();
    let found = ToldApart::of(&house, "alone");
    println!("alone: {found:?}");
    assert!(found.is_at_least(98), "alone: {found:?}");
    let training = house.training().go_on();
    house.server("beside", &LONG_SERVER).tokens();
    let found = ToldApart::of(&house, "beside");
    println!("beside a training: {found:?}");
    assert!(found.is_at_least(90), "beside a training: {found:?}");
    training.said();
}

/// A server whose GPU never waits for its host: between two steps there is no idle time by which they could be told apart.
#[test]
fn steps_that_are_launched_ahead_are_told_apart_too() {
    let ahead = [&LONG_SERVER[..], &["--ahead"]].concat();
    let tokens = alone("llm_probe", &LONG_SERVER);
    assert_eq!(alone("llm_probe", &ahead), tokens);
    let house = House::new("tpot-first");
    assert_eq!(house.server("alone", &ahead).tokens(), tokens);
    let found = ToldApart::of(&house, "alone");
    println!("alone: {found:?}");
    assert!(found.is_at_least(95), "alone: {found:?}");
    let training = house.training().go_on();
    assert_eq!(house.server("beside", &ahead).tokens(), tokens);
    let found = ToldApart::of(&house, "beside");
    println!("beside a training: {found:?}");
    assert!(found.is_at_least(90), "beside a training: {found:?}");
    assert_eq!(training.said(), *TRAINED);
}

#[test]
fn a_server_that_crashes_takes_nobody_along() {
    let house = House::new("tpot-first");
    let training = house.training();
    let other = house.server("other", &OTHER_SERVER);
    let mut crashing = house.server("crashing", &[&SERVER[..], &["--crash-after", "20"]].concat());
    let aborted = 6;
    assert_eq!(crashing.process.end().signal(), Some(aborted));
    until("its absence", || house.tenant("crashing").is_none());
    assert!(house.tenant("train").is_some());
    assert_eq!(training.go_on().said(), *TRAINED);
    assert_eq!(other.tokens(), *OTHER_TOKENS);
}

#[test]
fn a_server_that_stalls_holds_nobody_up() {
    let house = House::new("slo-aware");
    let training = house.training();
    let begin = house.path("begin");
    let waits = ["--begin-when", begin.to_str().unwrap(), "--stall-after", "20"];
    let stalled = house.server("stalled", &[&SERVER[..], &waits].concat());
    until("it is a tenant", || house.tenant("stalled").is_some());
    std::fs::write(&begin, "").unwrap();
    stalled.until_stalled();
    let seen = house.tenant("stalled").expect("it is there");
    assert!(seen.busy, "in the middle of a step: {seen:?}");
    let other = house.server("other", &OTHER_SERVER);
    assert_eq!(training.go_on().said(), *TRAINED);
    assert_eq!(other.tokens(), *OTHER_TOKENS);
    assert_eq!(stalled.process.state(), Some('T'));
    until("it is seen to stand still", || house.tenant("stalled").is_some_and(|tenant| tenant.stalled));
    stalled.go_on();
    until("it is seen to go on", || house.tenant("stalled").is_none_or(|tenant| !tenant.stalled));
    assert_eq!(stalled.tokens(), *TOKENS);
}

#[test]
fn objectives_that_make_no_sense_are_one_line_and_64() {
    let house = House::new("tpot-first");
    let shown = ["'0ms'", "'-1s'", "'1000000h'", "'banana'"];
    let flags = [["--tpot", "0ms"], ["--ttft", "-1s"], ["--tpot", "1000000h"], ["--tpot", "banana"]];
    for (flag, value) in flags.iter().zip(shown) {
        let run = [&["run"], &flag[..], &["--", "true"]].concat();
        let set = [&["set", "serve"], &flag[..]].concat();
        for arguments in [run, set] {
            let refused = house.daemon.detshare(&arguments);
            assert_eq!((refused.code, refused.stdout.as_str()), (Some(64), ""), "{arguments:?}: {}", refused.stderr);
            assert_eq!(refused.stderr.lines().count(), 1, "{arguments:?}: {}", refused.stderr);
            let expected = format!("detshare: invalid value {value} for '{} <TIME>': ", flag[0]);
            assert!(refused.stderr.starts_with(&expected), "{arguments:?}: {}", refused.stderr);
        }
    }
}
