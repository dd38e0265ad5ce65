//! Programs that are measured and compute nothing, and an MPS that shares nothing: they keep to what `detshare bench`
//! expects of the real ones, and write down what they were given.

use crate::daemon::built;
use crate::stage::{Outcome, Stage, outcome, write_program};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What both programs do first: say what they were given, register with MPS, say that they are ready, and wait.
const PROGRAM: &str = r#"
import argparse, hashlib, json, os, sys, time
from gpu import Gpu
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
    options.gpu = Gpu.if_told()
    options.start_file.with_name(options.start_file.name + ".ready").touch()
    while not options.start_file.exists() and not options.stop_file.exists():
        time.sleep(0.001)
    return options
"#;

/// What launches a kernel that does nothing, if it is told to.
const GPU: &str = r#"
import ctypes
from pathlib import Path

KERNEL = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry nothing() { ret; }\n"

class Gpu:
    @classmethod
    def if_told(cls):
        return cls() if (Path(__file__).parent / "on-gpu").exists() else None

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self.call("cuCtxSetCurrent", context)
        self.call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"nothing")

    def call(self, name, *arguments):
        code = getattr(self.driver, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def step(self):
        self.call("cuLaunchKernel", self.kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None)
        self.call("cuCtxSynchronize")
"#;

/// Answers each request a millisecond after its arrival.
const SERVE: &str = r#"
from program import *
options = begin("--shape", "--arrivals", "--period-ms", "--requests", "--warm-up")
gpu = options.gpu
requests, digest, running = [], hashlib.sha256(), []
arrival = time.monotonic()
for number in range(-int(options.warm_up), int(options.requests)):
    if options.stop_file.exists():
        break
    arrival += float(options.period_ms) / 1000
    time.sleep(max(arrival - time.monotonic(), 0) + 0.001)
    if gpu:
        gpu.step()
    if number < 0:
        continue
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
gpu = options.gpu
differs = (Path(__file__).parent / "other-bits").exists() and "CUDA_MPS_PIPE_DIRECTORY" in os.environ
steps = []
while not options.stop_file.exists():
    if gpu:
        gpu.step()
    time.sleep(0.005)
    loss = 1 / (len(steps) + 1) + (1 if differs and len(steps) >= 2 else 0)
    steps.append([time.monotonic(), loss.hex()])
options.out.write_text(json.dumps({"steps": steps, "parameters_digest": {"1": "ab"}, "paused": []}))
"#;

/// Stands in for `workload.py` of the real LLM server: there is a GPU unless it is told otherwise.
const WORKLOAD: &str = r#"
import json, os, sys
from pathlib import Path

def skip_without_gpu():
    here = Path(__file__).parent
    if (here / "no-gpu").exists():
        print("skipped: no GPU")
        sys.exit(77)
    given = {name: value for name, value in os.environ.items() if name.startswith(("CUDA_MPS_", "DETSHARE_", "LD_PRELOAD"))}
    with (here / "log").open("a") as log:
        log.write(json.dumps({"program": "llm_server.py", "arguments": sys.argv[1:], "given": given}) + "\n")
    if "CUDA_MPS_PIPE_DIRECTORY" in given:
        Path(given["CUDA_MPS_PIPE_DIRECTORY"], f"client-{os.getpid()}").touch()
"#;

/// Stands in for `llm_model.py` of the real LLM server: a prompt takes two milliseconds, and each decode step one; four times
/// that under MPS. Under MPS it gives a request other tokens, if it is told to; and if it is told to, each step launches a kernel
/// that does nothing.
const LLM_MODEL: &str = r#"
import os, time
from pathlib import Path
from types import SimpleNamespace
from gpu import Gpu

SHAPES = {name: SimpleNamespace(vocabulary=512, token_bytes=1) for name in ("1b", "8b")}
EngineOptions = SimpleNamespace
IS_MPS = "CUDA_MPS_PIPE_DIRECTORY" in os.environ
DIFFERS = IS_MPS and (Path(__file__).parent / "other-bits").exists()
class Engine:
    def __init__(self, shape, options):
        self.shape, self.block_count = shape, options.cache_tokens // 16
        self.gpu = None

    def set_up(self):
        self.gpu = Gpu.if_told()

    def run(self, step):
        if self.gpu:
            self.gpu.step()
        time.sleep((0.002 if step.kind == "prefill" else 0.001) * (4 if IS_MPS else 1))
        if step.kind == "prefill" and step.end < len(step.requests[0].prompt):
            return []
        return [self.token(request.index, len(request.tokens)) for request in step.requests]

    def token(self, index, number):
        return 500 if DIFFERS and index % 10 == 3 and number == 1 else (31 * index + number) % 500
"#;

/// What of the LLM server is the real one.
const LLM_SERVER: [&str; 5] = ["llm_server.py", "llm_scheduler.py", "llm_trace.py", "llm_http.py", "bench_program.py"];

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
        let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
        for name in LLM_SERVER {
            std::fs::copy(workloads.join(name), stage.path("workloads").join(name)).unwrap();
        }
        for (name, text) in [("gpu.py", GPU), ("workload.py", WORKLOAD), ("llm_model.py", LLM_MODEL)] {
            std::fs::write(stage.path("workloads").join(name), text).unwrap();
        }
        std::os::unix::fs::symlink(python(), stage.path("tools/python3")).unwrap();
        Self { stage }
    }

    /// The programs launch their steps on the software GPU, and `command` finds it, the shim and the daemon.
    pub(crate) fn on_software_gpu(&self, command: &mut Command) {
        self.tell("on-gpu");
        let softgpu = built("libdetshare_softgpu.so");
        let link = self.stage.path("driver/libcuda.so.1");
        std::fs::create_dir(self.stage.path("driver")).unwrap();
        std::os::unix::fs::symlink(&softgpu, link).unwrap();
        command
            .env("LD_LIBRARY_PATH", self.stage.path("driver"))
            .env("DETSHARE_DRIVER", softgpu)
            .env("DETSHARE_SHIM", built("libdetshare_shim.so"))
            .env("DETSHARE_DAEMON", built("detshared"));
    }

    /// With an MPS on `PATH`.
    pub(crate) fn with_mps() -> Self {
        let bench = Self::new();
        let program = bench.stage.path("tools/nvidia-cuda-mps-control");
        write_program(&program, &MPS_CONTROL.replace("LOG", &bench.mps_log().display().to_string()));
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

    /// A folder with two traces, whose lines come after `header`.
    pub(crate) fn traces(&self, header: &str, rows: usize) -> String {
        let folder = self.stage.path("traces");
        std::fs::create_dir_all(&folder).unwrap();
        let lines: String = (0..rows).map(|row| format!("{}.5,{},{}\n", row, 20 + row % 30, 2 + row % 7)).collect();
        for file in ["azure-llm-2023-conv.csv", "azure-llm-2023-code.csv"] {
            std::fs::write(folder.join(file), format!("{header}\n{lines}")).unwrap();
        }
        folder.display().to_string()
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
