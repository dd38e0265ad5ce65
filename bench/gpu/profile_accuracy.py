"""How well the shim knows what kernels take after ten launches of each, and what measuring them costs.

Kernels of known names, some bound by compute and some by memory, from microseconds to milliseconds. What each takes is
measured by events round many launches in a row without the shim; then a program launches each ten times as a tenant, and
what the shim has learned by then is compared. What measuring costs is the time of a training's step as a tenant against
the plain one, processes alternating; a latency tenant that does nothing is there on both sides, because nothing is measured
for long where nobody is to be made way for, and the aggressiveness is 1, at which nothing is held for it.

Then the same kernels run under MPS at an aggressiveness at which it matters what binds a kernel: those that are long enough
must have been seen on few SMs too, and be known for what they are.
"""

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon_under_test import DetShare, Wanted, clean_environment

ROOT = Path(__file__).resolve().parent
LIMIT = 200  # seconds, for all of it
LAUNCHES = 10
JUDGED_US = 5  # of shorter ones the host makes fewer than the GPU could do, so what they take in a row is not known
ASKED_ERROR = 0.05  # in the middle of those that are judged
ASKED_COST = 0.01
EXPLORED_AT = "0.6"  # the aggressiveness at which it matters what binds a kernel
EXPLORED_S = 10  # for a few launches of each on few SMs, within the part of the time that the shim has for that
# What takes so long on all SMs is seen on few: neither too short to matter nor too long to be in nobody's way there.
EXPLORED_US = (30, 400)
ASKED_SLOWER = 0.15  # compute-bound kernels take as much longer as SMs are fewer, to within this part of it

# Rounds of the loop, and megabytes that are read and written.
COMPUTE = {f"compute_{rounds}": rounds for rounds in (1_000, 3_000, 10_000, 30_000, 100_000, 300_000)}
MEMORY = {f"memory_{size}": size for size in (8, 32, 128, 512, 2_048)}

PROBE = """
import sys, json
import cupy
import time
compute, memory = json.loads(sys.argv[1]), json.loads(sys.argv[2])
launches, seconds = int(sys.argv[3]), float(sys.argv[4])
source = "".join(
    'extern "C" __global__ void ' + name + '(float *data, long count) {'
    ' float x = threadIdx.x; for (long i = 0; i < count; i++) x = fmaf(x, 1.0001f, 0.5f);'
    ' if (x == -1.0f) data[0] = x; }\\n' for name in compute
) + "".join(
    'extern "C" __global__ void ' + name + '(float *data, long count) {'
    ' long step = (long)gridDim.x * blockDim.x;'
    ' for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < count; i += step) data[i] += 1.0f; }\\n' for name in memory
)
module = cupy.RawModule(code=source)
data = cupy.zeros(2048 << 18, dtype=cupy.float32)
found, all_of_them = {}, []
for name, count in {**compute, **{name: size << 18 for name, size in memory.items()}}.items():
    kernel = module.get_function(name)
    launch = lambda kernel=kernel, count=count: kernel((528,), (256,), (data, count))
    all_of_them.append(launch)
    if seconds:
        continue
    if launches:
        for _ in range(launches):
            launch()
        cupy.cuda.Device().synchronize()
        continue
    for _ in range(20):
        launch()
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()
    begin.record()
    for _ in range(100):
        launch()
    end.record()
    end.synchronize()
    found[name] = cupy.cuda.get_elapsed_time(begin, end) * 1e6 / 100
end = time.monotonic() + seconds
while time.monotonic() < end:
    for launch in all_of_them:
        launch()
    cupy.cuda.Device().synchronize()
print(json.dumps(found))
"""

# A tenant that has the GPU open and does nothing until its input ends.
IDLE = """
import sys
import cupy
cupy.zeros(1)
cupy.cuda.Device().synchronize()
print("ready", flush=True)
sys.stdin.read()
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3, help="of the training, plain and as a tenant")
    options = parser.parse_args()
    options.softgpu = None
    options.detshare = options.detshare.resolve()
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        detshare = DetShare(options, Path(scratch), time.monotonic() + LIMIT)
        detshare.serve(Wanted(), failures)
        try:
            kernels = accuracy(detshare, Path(scratch))
            detshare.ask("policy", "slo-aware", "--aggressiveness", "1")
            with idle_server(detshare):
                cost, steps = sampling_cost(detshare, Path(scratch), options.rounds)
            detshare.serve(Wanted(isolation="mps"), failures)
            detshare.ask("policy", "slo-aware", "--aggressiveness", EXPLORED_AT)
            with idle_server(detshare):
                bounds = explored(detshare, Path(scratch), kernels)
        finally:
            failures += detshare.down()
    judged = [kernel["error"] for kernel in kernels.values() if kernel["error"] is not None and kernel["us"] >= JUDGED_US]
    middle, worst = statistics.median(judged), max(judged)
    summary = (
        f"after {LAUNCHES} launches {len(judged)} kernels of {JUDGED_US} us and more are known to {middle:.1%} in the middle"
        f" of {ASKED_ERROR:.0%}, {worst:.1%} at worst; a training's step as a tenant takes {cost:+.2%} of {ASKED_COST:+.0%}"
        f" (plain ones differ by {max(steps['plain']) / min(steps['plain']) - 1:.2%})"
    )
    if len(judged) < len(COMPUTE):
        failures.append(f"only {len(judged)} kernels can be judged")
    failures += judge_bounds(bounds)
    summary += f"; what binds {len(bounds)} of them is known from few SMs"
    figures = {"summary": summary, "failures": failures, "kernels": kernels, "training_step_s": steps, "cost": cost,
               "bounds": bounds}  # fmt: skip
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    print(summary, *failures, sep="\n")
    return 0 if not failures and middle <= ASKED_ERROR and cost <= ASKED_COST else 1


def accuracy(detshare, scratch):
    """What each kernel takes, and what the shim says."""
    truth = json.loads(run([*probe(0)], clean_environment()))
    trace = scratch / "trace.json"
    command = [str(detshare.program), "record", "--out", str(trace), "--", *probe(LAUNCHES)]
    run(command, clean_environment() | detshare.settings)
    known = {kernel["name"]: kernel["durations"][-1]["ns"] for kernel in json.loads(trace.read_text())["kernels"]}
    return {
        name: {"us": ns / 1e3, "known_us": known[name] / 1e3 if name in known else None,
               "error": abs(known[name] / ns - 1) if name in known else None}
        for name, ns in truth.items()
    }  # fmt: skip


def explored(detshare, scratch, kernels):
    """What the shim says of kernels that are long enough: what binds them, and how much slower they are on few SMs."""
    trace = scratch / "explored.json"
    command = [str(detshare.program), "record", "--out", str(trace), "--", *probe(LAUNCHES, EXPLORED_S)]
    run(command, clean_environment() | detshare.settings)
    found = {}
    for kernel in json.loads(trace.read_text())["kernels"]:
        name, durations = kernel["name"], kernel["durations"]
        if name in kernels and EXPLORED_US[0] <= kernels[name]["us"] <= EXPLORED_US[1]:
            few, full = durations[0], durations[-1]
            is_seen = few["sms"] < full["sms"]
            found[name] = {"bound": kernel.get("bound"), "sms": few["sms"] if is_seen else None,
                           "slower": few["ns"] / full["ns"] if is_seen else None,
                           "fewer": full["sms"] / few["sms"]}  # fmt: skip
    return found


def judge_bounds(bounds):
    """What is wrong with them."""
    failures = []
    for name, known in bounds.items():
        wanted = name.partition("_")[0]
        if known["bound"] != wanted:
            failures.append(f"{name} is known as bound by {known['bound']}: {known}")
        elif wanted == "compute" and abs(known["slower"] / known["fewer"] - 1) > ASKED_SLOWER:
            failures.append(f"{name} takes {known['slower']:.2f} times as long on 1/{known['fewer']:.2f} of the SMs")
    for kind in ("compute", "memory"):
        if not any(name.startswith(kind) for name in bounds):
            failures.append(f"no kernel that is bound by {kind} was long enough to be explored")
    return failures


@contextlib.contextmanager
def idle_server(detshare):
    """A latency tenant that does nothing is there meanwhile."""
    command = [str(detshare.program), "run", "--class", "latency", "--name", "idle", "--", sys.executable, "-c", IDLE]
    env = clean_environment() | detshare.settings
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        if server.stdout.readline().strip() != "ready":
            raise RuntimeError("the idle latency tenant did not start")
        yield
        server.stdin.close()


def probe(launches, seconds=0):
    return [sys.executable, "-c", PROBE, json.dumps(COMPUTE), json.dumps(MEMORY), str(launches), str(seconds)]


def sampling_cost(detshare, scratch, rounds):
    """How much longer a step of a training is as a tenant, and the steps."""
    steps = {"plain": [], "tenant": []}
    for number in range(rounds):
        for side in steps:
            out = scratch / f"{side}-{number}.json"
            command = [sys.executable, str(ROOT / "workloads" / "bench_train.py"), "--model", "transformer"]
            command += ["--seconds", "6", "--out", str(out)]
            if side == "tenant":
                command = [str(detshare.program), "run", "--", *command]
            run(command, clean_environment() | (detshare.settings if side == "tenant" else {}))
            ends = [end for end, _ in json.loads(out.read_text())["steps"]]
            steps[side].append(statistics.median(after - before for before, after in zip(ends, ends[1:])))
    return statistics.median(steps["tenant"]) / statistics.median(steps["plain"]) - 1, steps


def run(command, env):
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True, timeout=LIMIT).stdout


if __name__ == "__main__":
    sys.exit(main())
