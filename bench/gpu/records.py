"""Record the programs of the benchmark's scenarios, each alone on the GPU, as traces for the simulator (`detshare sim`).

Leaves one trace for each program in the folder, named as in the simulator's tests: `h200-SCENARIO-PROGRAM.json`. What does not fit
into --limit is left out, and that is said.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
DETSHARE = ROOT / "bin" / "detshare"
WORKLOADS = ROOT / "workloads"
SECONDS = 5
WARM_UP_SECONDS = 2
# What a program takes beside that: a framework is loaded, and a model is made.
SET_UP_SECONDS = 13
# Stands in a command for where requests come from.
TRACE_OF = "--trace-of"
TRACES = {"conversation": "azure-llm-2023-conv.csv", "code": "azure-llm-2023-code.csv"}
# The bundle has them where they lay beside the checkout.
TRACE_FOLDER = ROOT / "traces"


def serve(shape, period_ms, arrivals="periodic", *more):
    counts = {"--requests": SECONDS * 1000 // period_ms, "--warm-up": WARM_UP_SECONDS * 1000 // period_ms}
    command = ["bench_serve.py", "--shape", shape, "--arrivals", arrivals, "--seed", "1", "--period-ms", str(period_ms)]
    return "latency", command + [word for name, count in counts.items() for word in (name, str(count))] + list(more)


def train(model, seed=1):
    return "best-effort", ["bench_train.py", "--model", model, "--seed", str(seed), "--seconds", str(SECONDS)]


def llm(shape, kind, skip, rate):
    """A server that answers so many requests a second, made up unless there is a folder of traces."""
    command = ["llm_server.py", "--shape", shape, "--longest-context", "16384", "--prefill-chunk", "512", "--seed", "1"]
    command += [TRACE_OF, kind, "--skip", str(skip), "--at-rate", str(rate), "--requests", str(SECONDS * rate)]
    return "latency", command


# As in the scenarios of `detshare bench`. The training is the same in all but two of them.
PROGRAMS = {
    "small-serve": serve("small", 6),
    "train": train("transformer"),
    "7b-serve": serve("7b", 10),
    "small-poisson-serve": serve("small", 6, "poisson"),
    "7b-poisson-serve": serve("7b", 10, "poisson"),
    "small-eager-serve": serve("small", 30, "periodic", "--eager"),
    "two-latency-7b": serve("7b", 20),
    "two-half-train": train("narrow"),
    "llm-8b-chat": llm("8b", "conversation", 500, 8),
    "llm-1b-chat": llm("1b", "conversation", 500, 16),
    "llm-1b-code": llm("1b", "code", 2000, 16),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", default=",".join(PROGRAMS), metavar="NAME[,NAME]")
    parser.add_argument("--trace-folder", type=Path, default=TRACE_FOLDER if TRACE_FOLDER.is_dir() else None, metavar="DIR",
                        help="with the traces for LLM servers; without this, traces beside this script, or made up")
    parser.add_argument("--limit", type=float, default=600, metavar="SECONDS", help="for all of it")
    options = parser.parse_args()
    unknown = [name for name in options.only.split(",") if name not in PROGRAMS]
    if unknown:
        parser.error(f"no program {', '.join(unknown)}; there are {', '.join(PROGRAMS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    deadline, failed = time.monotonic() + options.limit, []
    with tempfile.TemporaryDirectory(prefix="detshare-records-") as scratch:
        environment = os.environ | {"DETSHARE_DIR": f"{scratch}/run", "XDG_STATE_HOME": f"{scratch}/state"}
        for name in options.only.split(","):
            left = deadline - time.monotonic()
            if left < SECONDS + WARM_UP_SECONDS + SET_UP_SECONDS:
                print(f"{name}: left out, {left:.0f} s are left", flush=True)
                failed.append(name)
            elif not record(name, options, scratch, environment, left):
                failed.append(name)
        try:
            subprocess.run([str(DETSHARE), "down"], env=environment, check=False, timeout=60)
        except subprocess.TimeoutExpired:
            print("the daemon did not end within 60 s", flush=True)
    names = options.only.split(",")
    print(f"recorded: {', '.join(name for name in names if name not in failed) or 'nothing'}")
    print(f"missing: {', '.join(failed) or 'nothing'}")
    return 1 if failed else 0


def record(name, options, scratch, environment, limit):
    file = options.out / f"h200-{name}.json"
    kind, (script, *arguments) = PROGRAMS[name]
    if TRACE_OF in arguments:
        place = arguments.index(TRACE_OF)
        folder, wanted = options.trace_folder, arguments[place + 1]
        source = ["--trace", str(folder / TRACES[wanted])] if folder else ["--synthetic", wanted]
        arguments[place : place + 2] = source
    program = [sys.executable, str(WORKLOADS / script), *arguments, "--out", f"{scratch}/{name}"]
    command = [str(DETSHARE), "record", "--out", str(file), "--class", kind, "--name", name.rpartition("-")[2], "--", *program]
    try:
        ran = subprocess.run(command, env=environment, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        print(f"{name}: not over within {limit:.0f} s", flush=True)
        return False
    return ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
