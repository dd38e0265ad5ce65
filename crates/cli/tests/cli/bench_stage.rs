//! Programs that are measured and compute nothing, and an MPS that shares nothing: they keep to what `detshare bench`
//! expects of the real ones, and write down what they were given.

use crate::stage::{Outcome, Stage, outcome};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What both programs do first: say what they were given, register with MPS, say that they are ready, and wait.
const PROGRAM: &str = r#"
import argparse, hashlib, json, os, sys, time
from pathlib import Path

def begin(*more):
    parser = argparse.ArgumentParser()
    for name in ("--out", "--start-file", "--stop-file"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    for name in more:
        parser.add_argument(name)
    options = parser.parse_args()
    here = Path(__file__).parent
    if (here / "no-gpu").exists():
        print("skipped: no GPU")
        sys.exit(77)
    given = {name: value for name, value in os.environ.items() if name.startswith(("CUDA_MPS_", "DETSHARE_", "LD_PRELOAD"))}
    with (here / "log").open("a") as log:
        log.write(json.dumps({"program": Path(sys.argv[0]).name, "pid": os.getpid(), "given": given}) + "\n")
    if "CUDA_MPS_PIPE_DIRECTORY" in given:
        Path(given["CUDA_MPS_PIPE_DIRECTORY"], f"client-{os.getpid()}").touch()
    options.start_file.with_name(options.start_file.name + ".ready").touch()
    while not options.start_file.exists() and not options.stop_file.exists():
        time.sleep(0.001)
    return options
"#;

/// Answers each request a millisecond after its arrival.
const SERVE: &str = r#"
from program import *
options = begin("--shape", "--arrivals", "--period-ms", "--requests", "--warm-up")
requests, digest, running = [], hashlib.sha256(), []
arrival = time.monotonic()
for number in range(int(options.requests)):
    if options.stop_file.exists():
        break
    arrival += float(options.period_ms) / 1000
    time.sleep(max(arrival - time.monotonic(), 0) + 0.001)
    requests.append([arrival, arrival, time.monotonic()])
    digest.update(b"%d" % number)
    if len(requests) % 100 == 0:
        running.append(digest.hexdigest()[:16])
options.out.write_text(json.dumps({"requests": requests, "digest": digest.hexdigest(), "result_digests": running}))
"#;

/// A step each five milliseconds. Under MPS it computes other bits, if it is told to.
const TRAIN: &str = r#"
from program import *
options = begin("--model", "--seconds")
differs = (Path(__file__).parent / "other-bits").exists() and "CUDA_MPS_PIPE_DIRECTORY" in os.environ
steps = []
while not options.stop_file.exists():
    time.sleep(0.005)
    loss = 1 / (len(steps) + 1) + (1 if differs and len(steps) >= 2 else 0)
    steps.append([time.monotonic(), loss.hex()])
options.out.write_text(json.dumps({"steps": steps, "parameters_digest": {"1": "ab"}, "paused": []}))
"#;

/// Serves whoever registers in its folder, until it is told to quit.
const MPS_CONTROL: &str = r#"#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 1
if [ "$1" = -f ]; then
    echo started >>LOG
    touch up
    while [ ! -e quit ]; do sleep 0.02; done
    echo ended >>LOG
    rm up
    exit
fi
[ -e up ] || { echo "Cannot find MPS control daemon process"; exit 1; }
read -r question
case $question in
    get_server_list) echo 4001 ;;
    get_client_list*) for client in client-*; do echo "${client#client-}"; done ;;
    quit) touch quit ;;
    *) exit 1 ;;
esac
"#;

/// A stage with programs to measure.
pub(crate) struct BenchStage {
    pub(crate) stage: Stage,
}

impl BenchStage {
    pub(crate) fn new() -> Self {
        let stage = Stage::new();
        for folder in ["workloads", "tools", "temporary"] {
            std::fs::create_dir(stage.path(folder)).unwrap();
        }
        for (name, text) in [("program.py", PROGRAM), ("bench_serve.py", SERVE), ("bench_train.py", TRAIN)] {
            std::fs::write(stage.path("workloads").join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(python(), stage.path("tools/python3")).unwrap();
        Self { stage }
    }

    /// With an MPS on `PATH`.
    pub(crate) fn with_mps() -> Self {
        let bench = Self::new();
        let program = bench.stage.path("tools/nvidia-cuda-mps-control");
        let text = MPS_CONTROL.replace("LOG", &bench.mps_log().display().to_string());
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        // The shell and what the script needs.
        for tool in ["sh", "sleep", "touch", "rm"] {
            std::os::unix::fs::symlink(Path::new("/bin").join(tool), bench.stage.path("tools").join(tool)).unwrap();
        }
        bench
    }

    /// Tells the programs something.
    pub(crate) fn tell(&self, what: &str) {
        std::fs::write(self.stage.path("workloads").join(what), "").unwrap();
    }

    /// `detshare bench SCENARIO --workloads … --out out` and more.
    pub(crate) fn arguments(scenario: &str, more: &[&str]) -> Vec<String> {
        let fixed = ["bench", scenario, "--workloads", "workloads", "--out", "out"];
        fixed.iter().chain(more).map(ToString::to_string).collect()
    }

    /// Finds no other programs than ours, and leaves nothing elsewhere.
    pub(crate) fn prepare(&self, command: &mut Command) {
        self.stage.prepare(command);
        command.env("PATH", self.stage.path("tools")).env("TMPDIR", self.stage.path("temporary"));
    }

    pub(crate) fn bench(&self, scenario: &str, more: &[&str]) -> Outcome {
        let mut command = self.stage.detshare();
        self.prepare(&mut command);
        outcome(command.args(Self::arguments(scenario, more)))
    }

    /// What each program was given, in the order of their starts: its name and its environment.
    pub(crate) fn log(&self) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(self.stage.path("workloads/log")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    pub(crate) fn mps_log(&self) -> PathBuf {
        self.stage.path("mps-log")
    }

    /// What was left in the folder of results.
    pub(crate) fn results(&self) -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(self.stage.path("out/results.json")).unwrap()).unwrap()
    }

    /// Neither a process nor a file but the results.
    pub(crate) fn assert_nothing_is_left(&self) {
        assert_nothing_is_left(&self.stage.path("temporary"));
    }
}

/// No process has the folder in its environment, as all that are started for a bench have, and nothing is in it.
pub(crate) fn assert_nothing_is_left(temporary: &Path) {
    let name = temporary.display().to_string();
    let processes = Path::new("/proc").read_dir().unwrap().filter_map(Result::ok).map(|entry| entry.path());
    let is_ours = |process: &PathBuf| {
        std::fs::read(process.join("environ")).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&name))
    };
    let left: Vec<_> = processes.filter(is_ours).map(|process| std::fs::read_to_string(process.join("comm"))).collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(temporary.read_dir().unwrap().count(), 0);
}

/// The interpreter itself, not what stands for it on `PATH`.
fn python() -> PathBuf {
    let asked = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
    String::from_utf8(asked.stdout).unwrap().trim().into()
}
