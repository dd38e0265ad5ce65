"""Kernels in parts through the shim: the same bits as with the bare driver, and steps of another tenant that stop a kernel.

long_kernels loads PTX by the driver's own calls and prints a number that every block of every launch decides. First it runs bare
and with each way of launching in parts that tests can ask for. Then it runs beside a latency tenant, with kernels that no thread of
its own process stops: if they are stopped, the GPU has seen the other tenant's page.

What is judged are bits and counts, no times.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from daemon_under_test import DetShare, Failed, Wanted, clean_environment

ROOT = Path(__file__).resolve().parent
# What is asked of the shim, and what has to be counted then.
WAYS = {
    "random:1": ("sliced", "preemptible", "stopped"),
    "slices:37": ("sliced",),
    "preempt:5": ("preemptible", "stopped"),
}
# Some launches from several threads and streams, by each of the calls that launch.
PROGRAMS = (
    ("--blocks", 970, "--launches", 20),
    ("--blocks", 970, "--launches", 20, "--call", "extra"),
    ("--blocks", 500, "--launches", 20, "--call", "ex", "--wait"),
    ("--threads", 3, "--streams", 2, "--launches", 8),
)

# Seconds.
PROGRAM_LIMIT = 60
PAUSE_US = 3000


def words(*items):
    return list(map(str, items))


def run_once(options, arguments, settings, scratch):
    """What it prints, and what the shim counted of kernels in parts."""
    stats = scratch / "stats.json"
    stats.unlink(missing_ok=True)
    environment = clean_environment() | settings | {"DETSHARE_STATS": str(stats)}
    command = words(options.program, *arguments)
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_LIMIT)
    if run.returncode != 0:
        raise Failed(f"{command} {settings}: exit code {run.returncode}, {run.stderr.strip()}")
    return run.stdout, (json.loads(stats.read_text()).get("block_level") or {}) if stats.exists() else {}


def bits(options, scratch, failures):
    """Each program bare, and in each way; returns what was counted."""
    bare, found = {}, []
    if options.softgpu:
        (scratch / "libcuda.so.1").symlink_to(options.softgpu)
        bare = {"LD_LIBRARY_PATH": str(scratch)}
    through_shim = {"LD_PRELOAD": str(options.shim)}
    if options.softgpu:
        through_shim["DETSHARE_DRIVER"] = str(options.softgpu)
    for arguments in PROGRAMS:
        alone, _ = run_once(options, arguments, bare, scratch)
        for way, counted in WAYS.items():
            printed, stats = run_once(options, arguments, through_shim | {"DETSHARE_BLOCK_LEVEL": way}, scratch)
            what = f"{' '.join(words(*arguments))}, {way}"
            if printed != alone:
                failures.append(f"{what}: '{printed.strip()}' instead of '{alone.strip()}'")
            failures += [f"{what}: nothing {name}" for name in counted if not stats.get(name)]
            found.append({"arguments": words(*arguments), "way": way, "same": printed == alone, "counted": stats})
    return found


def beside_steps(options, scratch, failures):
    """Kernels of one tenant that only the other one's steps stop; returns what was counted."""
    detshare = DetShare(options, scratch, float("inf"))
    detshare.serve(Wanted(isolation=options.isolation), failures)
    start, stop, stats = scratch / "start", scratch / "stop", scratch / "stats.json"
    run = words(options.detshare, "run", "--class")
    steps = words(options.steps, "--steps", 1 << 40, "--kernels", options.step_kernels, "--work", options.step_work)
    steps += words("--pause-us", PAUSE_US, "--start-file", start, "--stop-file", stop)
    environment = clean_environment() | detshare.settings
    server = subprocess.Popen([*run, "latency", "--name", "steps", "--", *steps], env=environment, stdout=subprocess.DEVNULL)
    try:
        if not detshare.until(start.with_name("start.ready").exists, PROGRAM_LIMIT):
            raise Failed("the latency tenant is not ready")
        start.touch()
        kernels = words(options.program, "--blocks", options.blocks, "--rounds", options.rounds, "--wait")
        kernels += words("--for-ms", options.for_ms)
        own = {"DETSHARE_BLOCK_LEVEL": f"others:{options.persistent}", "DETSHARE_STATS": str(stats)}
        command = [*run, "best-effort", "--name", "kernels", "--", *kernels]
        ended = subprocess.run(command, env=environment | own, capture_output=True, text=True, timeout=PROGRAM_LIMIT)
    finally:
        stop.touch()
        try:
            server.wait(PROGRAM_LIMIT)
        except subprocess.TimeoutExpired:
            server.kill()
        failures += detshare.down()
        failures += detshare.sweep()
    # It looks itself whether every block of each launch ran once.
    if ended.returncode != 0:
        failures.append(f"beside steps: exit code {ended.returncode}, {ended.stderr.strip()}")
    counted = (json.loads(stats.read_text()).get("block_level") or {}) if stats.exists() else {}
    if not counted.get("by_others"):
        failures.append(f"no step of the other tenant stopped a kernel: {counted}")
    return counted


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shim", type=Path, default=ROOT / "lib/libdetshare_shim.so")
    parser.add_argument("--detshare", type=Path, default=ROOT / "bin/detshare")
    parser.add_argument("--program", type=Path, default=ROOT / "bin/long_kernels", help="the program long_kernels")
    parser.add_argument("--steps", type=Path, default=ROOT / "bin/steps", help="the program steps")
    parser.add_argument("--step-kernels", type=int, default=20)
    parser.add_argument("--step-work", type=int, default=2_000)
    parser.add_argument("--blocks", type=int, default=20_000, help="of a kernel beside steps")
    parser.add_argument("--rounds", type=int, default=5_000, help="of each of its threads")
    parser.add_argument("--persistent", type=int, default=264, help="blocks that take them one after the other")
    parser.add_argument("--for-ms", type=int, default=4_000, help="how long it goes on beside steps")
    parser.add_argument("--isolation", default="mps")
    parser.add_argument("--softgpu", type=Path, help="a driver without a GPU, to see that it runs")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    for name in ("shim", "detshare", "program", "steps", "softgpu"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).resolve())
    return options


def main():
    options, failures, found, counted = parse_arguments(), [], [], {}
    with tempfile.TemporaryDirectory(prefix="detshare-block-level-") as scratch:
        try:
            found = bits(options, Path(scratch), failures)
            counted = beside_steps(options, Path(scratch), failures)
        except (Failed, OSError, ValueError, subprocess.TimeoutExpired) as error:
            failures.append(f"{type(error).__name__}: {error}")
    same = sum(one["same"] for one in found)
    summary = f"{same} of {len(found)} runs in parts with the same bits; {counted.get('by_others', 0)} times stopped by others' steps"
    report = {"summary": summary, "failures": failures, "runs": found, "beside_steps": counted}
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(summary, *failures, sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
