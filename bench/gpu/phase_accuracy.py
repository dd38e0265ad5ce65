"""Are the steps of an LLM server told apart as the server itself has them in its log?

A server replays a trace as a latency tenant, alone, beside a training or beside a second server. The shim writes down when each
step ended and what it took it for; the server's log says what it did at that time.
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

from daemon_under_test import DetShare, Failed, Wanted, clean_environment

ROOT = Path(__file__).resolve().parent
LIMIT = 200  # seconds, for all of it
SET_UP_LIMIT = 120  # until a program's model is made
ASKED = 0.98
# Prefill is a hundredth of all steps at low load: who always says decode has 98 % of all, and nothing of that kind.
ASKED_OF_EACH = 0.95
KINDS = {"decode", "prefill"}
FIRST = 50  # steps in which nothing can be known yet
SHOWN = 20  # of those that were taken for something else
RATE = 4  # requests a second of the server, and of another one beside it
SEED, OTHER_SEED = 1, 2
COMPANY = {"alone": "alone", "train": "beside a training", "server": "beside a server"}


def main():
    options = parse_arguments()
    failures, found = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        detshare = DetShare(options, scratch, time.monotonic() + options.limit)
        try:
            detshare.serve(Wanted(options.policy, options.isolation), failures)
            for company in options.company:
                found[COMPANY[company]] = told_apart(detshare, scratch / company, options, company)
        # A log or a record that is not there or cut short is no reason to lose what was found before.
        except (Failed, subprocess.SubprocessError, OSError, ValueError) as error:
            failures.append(f"{type(error).__name__}: {error}")
        finally:
            failures += detshare.down()
    parts = [f"{name}: {in_words(one)}" for name, one in found.items()]
    summary = f"{options.policy}, {options.isolation}; {'; '.join(parts)}; asked are {ASKED:.0%} of all, {ASKED_OF_EACH:.0%} of each kind"
    settings = {name: str(value) for name, value in vars(options).items()}
    report = {"summary": summary, "settings": settings, "failures": failures, "found": found}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(summary, *failures, sep="\n")
    return 0 if len(found) == len(options.company) and all(map(is_right, found.values())) and not failures else 1


def is_right(one):
    return are_told_apart(one["part"], {kind: of_kind["part"] for kind, of_kind in one["recall"].items()})


def are_told_apart(part, recall):
    """Whether enough of all steps, and of each kind, were taken for what they were; there must be some of each."""
    return part >= ASKED and set(recall) >= KINDS and min(recall.values()) >= ASKED_OF_EACH


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--policy", default=Wanted.policy)
    parser.add_argument("--isolation", choices=["process", "mps", "none"], default=Wanted.isolation)
    parser.add_argument("--shape", default="1b", help="of the servers")
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--trace", type=Path, metavar="FILE.csv", help="whose requests are replayed; without this, made up")
    parser.add_argument("--skip", type=int, default=0, help="requests of the trace to leave out first")
    parser.add_argument("--prefill-chunk", type=int, metavar="TOKENS", help="of a prompt in a step, with decode steps between")
    parser.add_argument("--company", default="alone,train", metavar="NAME[,NAME]", help=f"each of {', '.join(COMPANY)}")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for all of it")
    parser.add_argument("--workloads", type=Path, default=ROOT / "workloads", metavar="DIR")
    parser.add_argument("--softgpu", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.company = options.company.split(",")
    unknown = [name for name in options.company if name not in COMPANY]
    if unknown:
        parser.error(f"no company {', '.join(unknown)}; there are {', '.join(COMPANY)}")
    options.detshare = options.detshare.resolve()
    return options


def in_words(one):
    kinds = ", ".join(f"{kind} {of_kind['right']} of {of_kind['steps']}" for kind, of_kind in one["recall"].items())
    return f"{one['right']} of {one['steps']} steps, {one['part']:.2%} ({kinds})"


def server_command(options, seed, requests):
    command = [sys.executable, str(options.workloads / "llm_server.py"), "--shape", options.shape, "--seed", str(seed)]
    command += ["--requests", str(requests)]
    if options.trace:
        # Whole requests, however long.
        command += ["--trace", str(options.trace), "--skip", str(options.skip), "--at-rate", str(RATE), "--longest-context", "16384"]
    else:
        command += ["--rate", str(RATE), "--longest-prompt", "2048", "--longest-output", "100"]
    return command + (["--prefill-chunk", str(options.prefill_chunk)] if options.prefill_chunk else [])


def company_command(options, company):
    """What runs beside the server until it is told to stop."""
    if company == "server":
        return "latency", server_command(options, OTHER_SEED, round(options.limit * RATE))
    command = [sys.executable, str(options.workloads / "bench_train.py"), "--model", "transformer"]
    return "best-effort", [*command, "--seconds", str(round(options.limit))]


def told_apart(detshare, folder, options, company):
    folder.mkdir()
    env = clean_environment() | detshare.settings
    run = [str(detshare.program), "run", "--class"]
    log, record, start, stop = (folder / name for name in ("log.json", "record", "start", "stop"))
    beside = None
    if company != "alone":
        kind, command = company_command(options, company)
        command += ["--out", str(folder / "beside.json"), "--start-file", str(start), "--stop-file", str(stop)]
        beside = subprocess.Popen([*run, kind, "--", *command], env=env, stdout=subprocess.DEVNULL)
    try:
        if beside:
            is_ready = start.with_name(start.name + ".ready").exists
            if not detshare.until(lambda: is_ready() or beside.poll() is not None, SET_UP_LIMIT) or beside.poll() is not None:
                raise Failed(f"{COMPANY[company]}: that was not set up")
            start.touch()
        command = [*server_command(options, SEED, options.requests), "--out", str(log)]
        recorded = env | {"DETSHARE_RECORD": str(record)}
        left = max(detshare.deadline - time.monotonic(), 1)
        subprocess.run([*run, "latency", "--", *command], env=recorded, check=True, timeout=left, stdout=subprocess.DEVNULL)
    finally:
        if beside:
            stop.touch()
            beside.wait(SET_UP_LIMIT)
    return compare(json.loads(log.read_text())["steps"], record.read_text().splitlines())


def compare(logged, recorded):
    """How many of the server's steps were what the shim took them for: the last step that ended within each."""
    steps = list(steps_of(recorded))
    ends = [step["end"] for step in steps]
    matrix, wrong = collections.Counter(), []
    for kind, begin, end, *_ in logged[FIRST:]:
        last = bisect.bisect_right(ends, end) - 1
        step = steps[last] if last >= 0 and ends[last] >= begin else {"phase": "nothing"}
        matrix[kind, step["phase"]] += 1
        if step["phase"] != kind:
            wrong.append({"kind": kind, **step})
    total = sum(matrix.values())
    right = total - len(wrong)
    by_kind = {f"{kind} taken for {phase}": count for (kind, phase), count in matrix.items()}
    found = {"steps": total, "right": right, "part": right / max(total, 1), "recall": recall(matrix)}
    return found | {"by_kind": by_kind, "wrong": wrong[:SHOWN]}


def recall(matrix):
    """Of each kind, how many were taken for what they were: prefills are few, and easily lost among all."""
    found = {}
    for kind in sorted({kind for kind, _ in matrix}):
        steps = sum(count for (it, _), count in matrix.items() if it == kind)
        found[kind] = {"steps": steps, "right": matrix[kind, kind], "part": matrix[kind, kind] / steps}
    return found


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
