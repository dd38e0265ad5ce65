//! What `detshare run` leaves to the program: everything.

use crate::daemon::{DaemonStage, built};
use crate::fake::FakeDaemon;
use crate::stage::{Stage, outcome, write_program};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

/// `detshare run -- sh -c SCRIPT` on a stage where somebody answers as the daemon.
fn run(stage: &Stage, script: &str) -> Command {
    let mut command = stage.detshare();
    command.args(["run", "--", "sh", "-c", script]);
    command
}

#[test]
fn the_exit_code_is_the_programs() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    for code in [0, 1, 42, 64, 255] {
        let ended = outcome(&mut run(&stage, &format!("exit {code}")));
        assert_eq!((ended.code, ended.stdout.as_str(), ended.stderr.as_str()), (Some(code), "", ""));
    }
}

#[test]
fn the_process_is_the_programs() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let mut child = run(&stage, "echo $$ $DETSHARE_RUN; read line; kill -TERM $$")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    child.stdin.take().unwrap().write_all(b"go on\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{pid} {pid}\n"));
    let terminated = 15;
    assert_eq!((output.status.code(), output.status.signal()), (None, Some(terminated)));
}

#[test]
fn signals_reach_the_program() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let mut child = run(&stage, "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.1; done");
    let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
    let mut reader = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    assert_eq!(line, "ready\n");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    std::io::Read::read_to_string(&mut reader, &mut line).unwrap();
    assert_eq!((line.as_str(), child.wait().unwrap().code()), ("ready\ncaught\n", Some(3)));
}

#[test]
fn standard_input_is_the_programs() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let text: String = (0..10_000).map(|line| format!("line {line}\n")).collect();
    std::fs::write(stage.path("input"), &text).unwrap();
    let input = std::fs::File::open(stage.path("input")).unwrap();
    let echoed = outcome(stage.detshare().args(["run", "--", "cat"]).stdin(input));
    assert_eq!(echoed.stdout, text);
}

/// The environment that a program prints.
fn environment(text: &str) -> BTreeMap<String, String> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(name, value)| (name.into(), value.into())).collect()
}

#[test]
fn the_environment_is_the_same_but_for_ours() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let mut plain = Command::new("env");
    stage.prepare(&mut plain);
    let before = environment(&outcome(plain.env("MINE", "a b=c")).stdout);
    let flags =
        ["--class", "latency", "--name", "serve", "--p99", "5ms", "--ttft", "1s", "--tpot", "50ms", "--mem", "1GiB"];
    let mut tenant = stage.detshare();
    let tenant = tenant.env("MINE", "a b=c").arg("run").args(flags).args(["--", "env"]);
    let mut after = environment(&outcome(tenant).stdout);
    let folder = stage.runtime_folder().display().to_string();
    let shim = stage.shim().display().to_string();
    for (name, value) in [
        ("LD_PRELOAD", shim.as_str()),
        ("DETSHARE_DIR", &folder),
        ("DETSHARE_CLASS", "latency"),
        ("DETSHARE_NAME", "serve"),
        ("DETSHARE_P99", "5000000"),
        ("DETSHARE_TTFT", "1000000000"),
        ("DETSHARE_TPOT", "50000000"),
        ("DETSHARE_MEM", "1073741824"),
        ("CUDA_MPS_PIPE_DIRECTORY", "/run/pipes"),
    ] {
        assert_eq!(after.remove(name).as_deref(), Some(value), "{name}");
    }
    assert!(after.remove("DETSHARE_RUN").is_some());
    let before: BTreeMap<_, _> = before.into_iter().filter(|(name, _)| name != "DETSHARE_DIR").collect();
    assert_eq!(after, before);
}

#[test]
fn the_software_gpu_is_named_as_the_driver() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let mut command = stage.detshare();
    command.env("DETSHARE_SOFTGPU", stage.shim()).args(["run", "--device", "soft", "--", "env"]);
    let environment = environment(&outcome(&mut command).stdout);
    assert_eq!(environment["DETSHARE_DRIVER"], stage.shim().display().to_string());
}

#[test]
fn alone_on_the_software_gpu_nobody_else_is_needed() {
    let stage = Stage::new();
    let mut command = stage.detshare();
    command.env("DETSHARE_SOFTGPU", stage.shim()).env("DETSHARE_SHIM", "/no/such/file").env("LD_PRELOAD", "");
    let environment = environment(&outcome(command.args(["run", "--device", "soft", "--", "env"])).stdout);
    assert_eq!(environment["LD_PRELOAD"], stage.shim().display().to_string());
    assert!(!environment.contains_key("DETSHARE_DRIVER") && !environment.contains_key("DETSHARE_RUN"));
    assert!(!stage.runtime_folder().exists(), "no daemon was started");
}

#[test]
fn the_runtimes_beside_the_software_gpu_come_along() {
    let stage = Stage::new();
    let [driver, runtime] = ["libdetshare_softgpu.so", "libdetshare_cudart_13.so"].map(|name| stage.path(name));
    for library in [&driver, &runtime] {
        std::fs::copy(stage.shim(), library).unwrap();
    }
    let mut command = stage.detshare();
    command.env("DETSHARE_SOFTGPU", &driver).env("LD_PRELOAD", "");
    let environment = environment(&outcome(command.args(["run", "--device", "soft", "--", "env"])).stdout);
    assert_eq!(environment["LD_PRELOAD"], format!("{}:{}", driver.display(), runtime.display()));
}

#[test]
fn a_program_runs_alone_on_the_software_gpu() {
    let stage = Stage::new();
    let mut command = stage.detshare();
    command.env("DETSHARE_SOFTGPU", built("libdetshare_softgpu.so")).args(["run", "--device", "soft", "--"]);
    let ended = outcome(command.arg(built("vector_add")));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(!stage.runtime_folder().exists(), "no daemon was started");
}

#[test]
fn sharing_the_software_gpu_takes_a_daemon() {
    let house = DaemonStage::new();
    let mut command = house.command(&["run", "--device", "soft", "--class", "latency", "--", "env"]);
    command.env("DETSHARE_SOFTGPU", built("libdetshare_softgpu.so"));
    let environment = environment(&outcome(&mut command).stdout);
    assert_eq!(environment["DETSHARE_DRIVER"], built("libdetshare_softgpu.so").display().to_string());
    assert!(house.pid().is_some(), "a daemon was started");
}

#[test]
fn a_script_and_its_name() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    write_program(&stage.path("script"), "#!/bin/sh\necho $0 $*\n");
    assert_eq!(outcome(stage.detshare().args(["run", "--", "./script", "--", "-x"])).stdout, "./script -- -x\n");
    let named = outcome(stage.detshare().args(["run", "--", "sh", "-c", "tr '\\0' ' ' </proc/$$/cmdline"]));
    assert!(named.stdout.starts_with("sh -c "), "{}{}", named.stdout, named.stderr);
}

/// What a shell or a supervisor has set to be ignored stays so, and nothing else is.
#[test]
fn ignored_signals_stay_so() {
    let stage = Stage::new();
    let _daemon = FakeDaemon::start(&stage);
    let program = "
import os, signal, sys
for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_IGN if str(int(number)) in sys.argv[1].split(',') else signal.SIG_DFL)
os.execvp(sys.argv[2], sys.argv[2:])";
    let ignored = |signals: &str, through: &[&str]| {
        let mut python = Command::new("python3");
        stage.prepare(&mut python);
        python.args(["-c", program, signals]).args(through).args(["grep", "SigIgn", "/proc/self/status"]);
        outcome(&mut python).stdout
    };
    let through = [env!("CARGO_BIN_EXE_detshare"), "run", "--"];
    for signals in ["0", "13", "1", "1,13"] {
        assert_eq!(ignored(signals, &through), ignored(signals, &[]), "{signals}");
    }
}

#[test]
fn it_starts_the_daemon_that_is_not_there() {
    let stage = DaemonStage::new();
    let program = "
import os
try:
    os.wait()
except ChildProcessError:
    print('no children')";
    let ran = stage.detshare(&["run", "--", "python3", "-c", program]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "no children\n", ""));
    assert_eq!(stage.detshare(&["status"]).code, Some(0));
    let status = std::fs::read_to_string(format!("/proc/{}/stat", stage.pid().unwrap())).unwrap();
    let session = status.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap();
    assert_eq!(session, stage.pid().unwrap().to_string(), "it has a session of its own");
}

/// One that would have been started in vain: somebody meant another program, or has another CUDA in mind.
#[test]
fn a_program_without_cuda_runs_and_is_told_of() {
    let stage = DaemonStage::new();
    let line = "detshare: the program did not use CUDA, so there was nothing to share\n";
    for daemon in ["is started", "is there"] {
        let mut command = stage.command(&["run", "--", "true"]);
        let ended = outcome(command.env("DETSHARE_SHIM", built("libdetshare_shim.so")));
        assert_eq!(
            (ended.code, ended.stdout.as_str(), ended.stderr.as_str()),
            (Some(0), "", line),
            "the daemon {daemon}"
        );
    }
    let program = "import subprocess; subprocess.run(['true'])";
    let mut command = stage.command(&["run", "--", "python3", "-c", program]);
    let with_a_child = outcome(command.env("DETSHARE_SHIM", built("libdetshare_shim.so")));
    assert_eq!((with_a_child.code, with_a_child.stderr.as_str()), (Some(0), ""), "the child may have used CUDA");
}

#[test]
fn with_a_real_daemon_too_everything_is_the_programs() {
    let stage = DaemonStage::new();
    std::fs::write(stage.stage.path("input"), "from the input\n").unwrap();
    for _ in ["starts the daemon", "finds it"] {
        let input = std::fs::File::open(stage.stage.path("input")).unwrap();
        let script = "cat; echo $MINE $DETSHARE_NAME >&2; exit 7";
        let mut command = stage.command(&["run", "--name", "shell", "--", "sh", "-c", script]);
        let ended = outcome(command.stdin(input).env("MINE", "mine"));
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(7), "from the input\n"));
        assert_eq!(ended.stderr, "mine shell\n");
        let killed = stage.command(&["run", "--", "sh", "-c", "kill -KILL $$"]).status().unwrap();
        let kill = 9;
        assert_eq!(killed.signal(), Some(kill));
    }
}

#[test]
fn two_at_once_start_one_daemon() {
    let stage = DaemonStage::new();
    let start = || {
        let mut command = stage.command(&["run", "--", "sh", "-c", "cat $DETSHARE_DIR/lock"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children = [start(), start(), start()];
    let outputs = children.map(|child| child.wait_with_output().unwrap());
    let pid = stage.pid().unwrap().to_string();
    for output in outputs {
        let (said, wrong) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert_eq!((output.status.code(), said.trim(), wrong.as_str()), (Some(0), pid.as_str(), ""));
    }
}
