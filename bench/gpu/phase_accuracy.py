"""Are the steps of an LLM server told apart as the server itself has them in its log?

A server replays a synthetic trace as a latency tenant, alone or beside a training. The shim writes down when each step ended
and what it took it for; the server's log says what it did at that time.
"""

import argparse
import bisect
import collections
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon_under_test import DetShare, Wanted, clean_environment

ROOT = Path(__file__).resolve().parent
LIMIT = 200  # seconds, for all of it
ASKED = 0.98
FIRST = 50  # steps in which nothing can be known yet
SHOWN = 20  # of those that were taken for something else


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shape", default="1b")
    parser.add_argument("--requests", type=int, default=60)
    options = parser.parse_args()
    options.softgpu = None
    options.detshare = options.detshare.resolve()
    failures, found = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        detshare = DetShare(options, scratch, time.monotonic() + LIMIT)
        detshare.serve(Wanted(), failures)
        try:
            for company in (False, True):
                name = "beside a training" if company else "alone"
                found[name] = told_apart(detshare, scratch / name.replace(" ", "-"), options, company)
        finally:
            failures += detshare.down()
    parts = [f"{name}: {one['right']} of {one['steps']} steps, {one['part']:.2%}" for name, one in found.items()]
    summary = f"{'; '.join(parts)} of {ASKED:.0%}"
    options.out.write_text(json.dumps({"summary": summary, "failures": failures, "found": found}, indent=1) + "\n")
    print(summary, *failures, sep="\n")
    return 0 if not failures and all(one["part"] >= ASKED for one in found.values()) else 1


def told_apart(detshare, folder, options, company):
    folder.mkdir()
    env = clean_environment() | detshare.settings
    run = [str(detshare.program), "run", "--class"]
    log, record = folder / "log.json", folder / "record"
    training = None
    if company:
        command = [sys.executable, str(ROOT / "workloads" / "bench_train.py"), "--model", "transformer"]
        command += ["--seconds", str(LIMIT), "--out", str(folder / "train.json"), "--stop-file", str(folder / "stop")]
        training = subprocess.Popen([*run, "best-effort", "--", *command], env=env, stdout=subprocess.DEVNULL)
    try:
        command = [sys.executable, str(ROOT / "workloads" / "llm_server.py"), "--shape", options.shape, "--out", str(log)]
        command += ["--rate", "4", "--requests", str(options.requests), "--longest-prompt", "2048", "--longest-output", "100"]
        server = [*run, "latency", "--", *command]
        recorded = env | {"DETSHARE_RECORD": str(record)}
        subprocess.run(server, env=recorded, check=True, timeout=LIMIT, stdout=subprocess.DEVNULL)
    finally:
        if training:
            (folder / "stop").touch()
            training.wait(LIMIT)
    return compare(json.loads(log.read_text())["steps"], record.read_text().splitlines())


def compare(logged, recorded):
    """How many of the server's steps were what the shim took them for: the last step that ended within each."""
    steps = list(steps_of(recorded))
    ends = [step["end"] for step in steps]
    matrix, wrong = collections.Counter(), []
    for kind, begin, end, *_ in logged[FIRST:]:
        last = bisect.bisect_right(ends, end) - 1
        step = steps[last] if last >= 0 and ends[last] >= begin else {"phase": "nothing"}
        matrix[f"{kind} taken for {step['phase']}"] += 1
        if step["phase"] != kind:
            wrong.append({"kind": kind, **step})
    right = sum(matrix.values()) - len(wrong)
    part = right / max(sum(matrix.values()), 1)
    return {"steps": sum(matrix.values()), "right": right, "part": part, "by_kind": dict(matrix), "wrong": wrong[:SHOWN]}


def steps_of(recorded):
    """What each step launched, as far as it was written down, and what it was taken for."""
    expected = []
    for line in recorded:
        if '"launch"' in line:
            expected.append(json.loads(line)["expected"])
        elif '"step":"ended"' in line:
            line = json.loads(line)
            work = {"launches": len(expected), "unknown": expected.count(0), "largest_us": max(expected, default=0) / 1e3}
            yield {"end": line["at"] / 1e9, "phase": line["phase"], "work_us": sum(expected) / 1e3, **work}
            expected = []


if __name__ == "__main__":
    sys.exit(main())
