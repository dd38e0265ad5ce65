"""Long best-effort kernels beside short steps: held between kernels alone, and with block level in the middle of them.

For each length of the kernels three runs: the latency tenant alone, beside kernels as they are, and beside kernels that give
way. Tells the steps' percentiles, how many kernels the best-effort tenant got done, and how it gave way: how often a step
stopped a kernel, how often before any thread of the program did, and how long that took. The program itself checks that
every block ran exactly once.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon_under_test import DetShare, Failed, Wanted, clean_environment

BLOCKS = 13_200  # a hundred for each SM of an H200
FIRST_ROUNDS = 2_000  # of the kernels that tell how fast the machine is
PAUSE_MS = 5


class Program:
    """A tenant that runs by itself."""

    def __init__(self, detshare, flags, program, arguments, log):
        command = [str(detshare.program), "run", *flags, "--", str(program), *map(str, arguments)]
        self.log = open(log, "w+")
        env = clean_environment() | detshare.settings
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def end(self, limit):
        try:
            code = self.process.wait(max(limit, 1))
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self.log.seek(0)
        said = self.log.read()
        self.log.close()
        if code != 0:
            raise Failed(f"{self.process.args[-4:]} ended with {code}: {said[-500:]}")
        return said


def launches(said):
    return int(re.search(r"(\d+) launches", said)[1])


def long_kernels(options, detshare, flags, rounds, seconds, log):
    """Starts the best-effort tenant."""
    arguments = ["--blocks", BLOCKS, "--rounds", rounds, "--for-ms", int(seconds * 1000), "--wait", "--progress"]
    return Program(detshare, ["--class", "best-effort", *flags], options.kernels, arguments, log)


def rounds_of(options, detshare, scratch, milliseconds):
    """Rounds of a kernel that takes about so long alone."""
    took = 1000 / launches(long_kernels(options, detshare, [], FIRST_ROUNDS, 1, scratch / "first").end(60))
    return max(1, int(FIRST_ROUNDS * milliseconds / took)), took


def steps_of(detshare, pid):
    """The steps of a tenant so far, as the daemon sees them; None if it is not there."""
    found = [tenant for tenant in detshare.tenants() if tenant["pid"] == pid]
    return {name: found[0][name] for name in ("step_p50_ns", "step_p99_ns")} if found else None


def beside(options, detshare, scratch, flags, rounds):
    """One run; without rounds the latency tenant is alone."""
    count = int(options.seconds * 1000 / (PAUSE_MS + 1))
    work = None
    if rounds:
        # What it learns of its kernels at first is not what is asked for.
        lasts = options.seconds + options.lead
        work = long_kernels(options, detshare, flags, rounds, lasts, scratch / "kernels")
        time.sleep(options.lead / 2)
    arguments = ["--steps", count, "--kernels", options.step_kernels, "--work", options.step_work]
    arguments += ["--pause-us", PAUSE_MS * 1000]
    steps = Program(detshare, ["--class", "latency"], options.steps, arguments, scratch / "steps")
    figures, report = {}, {}
    while steps.process.poll() is None and time.monotonic() < detshare.deadline:
        figures = steps_of(detshare, steps.process.pid) or figures
        if work:
            path = detshare.folder / "block-level" / f"{work.process.pid}.json"
            report = json.loads(path.read_text()) if path.exists() else report
        time.sleep(0.1)
    steps.end(1)
    if work:
        figures["kernels"] = launches(work.end(detshare.deadline - time.monotonic()))
        figures["by_others"] = report.get("by_others", 0)
        figures["shapes"] = report.get("shapes", [])
    return figures


def told(run):
    """One run in a few words."""
    beside = f" {run['kernel_ms']:g} ms" if "kernel_ms" in run else ""
    got = f", {run['kernels']} kernels" if "kernels" in run else ""
    return f"{run['way']}{beside}: p99 {(run.get('step_p99_ns') or 0) / 1e6:.2f} ms{got}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--kernels", type=Path, required=True, help="the program long_kernels")
    parser.add_argument("--steps", type=Path, required=True, help="the program steps")
    parser.add_argument("--softgpu", type=Path)
    parser.add_argument("--isolation", default="mps")
    parser.add_argument("--lengths", type=float, nargs="+", default=[2, 20], help="of the kernels, in milliseconds")
    parser.add_argument("--seconds", type=float, default=5, help="of one run")
    parser.add_argument("--lead", type=float, default=4, help="seconds that the kernels run longer")
    parser.add_argument("--step-kernels", type=int, default=20)
    parser.add_argument("--step-work", type=int, default=2_000)
    parser.add_argument("--limit", type=float, default=240, help="seconds for all of it")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for name in ("detshare", "kernels", "steps"):
        setattr(options, name, getattr(options, name).resolve())
    failures, runs = [], []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = Path(scratch)
        detshare = DetShare(options, scratch, time.monotonic() + options.limit)
        try:
            detshare.serve(Wanted(isolation=options.isolation), failures)
            runs.append({"way": "alone", **beside(options, detshare, scratch, [], 0)})
            print(runs[-1], flush=True)
            for milliseconds in options.lengths:
                rounds, took = rounds_of(options, detshare, scratch, milliseconds)
                for way, flags in (("as it is", []), ("block level", ["--block-level"])):
                    figures = beside(options, detshare, scratch, flags, rounds)
                    about = {"way": way, "kernel_ms": milliseconds, "rounds": rounds, "first_took_ms": took}
                    runs.append(about | figures)
                    print({name: value for name, value in runs[-1].items() if name != "shapes"}, flush=True)
        except (Failed, ValueError, OSError) as error:
            failures.append(str(error))
        failures += detshare.down() + detshare.sweep()
    summary = "; ".join(map(told, runs))
    options.out.write_text(json.dumps({"summary": summary, "failures": failures, "runs": runs}, indent=1) + "\n")
    print(summary, *failures, sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
