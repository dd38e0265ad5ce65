"""MPS dies under a daemon: is it started again, and is the next tenant its client?

A tenant runs; when it has gone, NVIDIA's control program and its servers are killed, those of this daemon alone. The
daemon must start another one, and a program that comes then must be its client and compute the same.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from daemon_under_test import DetShare, Failed, clean_environment

LIMIT = 60  # seconds, for all of it


@dataclass(frozen=True)
class Wanted:
    policy: str = "fair"
    isolation: str = "mps"


def tenant(detshare, program):
    """Runs a program that says a line and waits; returns what it said and whether it was a client of MPS."""
    env = clean_environment() | detshare.settings
    command = [str(detshare.program), "run", "--", str(program)]
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            said = running.stdout.readline()
            for word in ("begin", "open", "stream"):
                running.stdin.write(word + "\n")
                running.stdin.flush()
                said += running.stdout.readline()
            seen = lambda: any(one["mps_client"] is not None for one in detshare.tenants())
            if not detshare.until(seen, LIMIT):
                raise Failed("nobody looked whether it is a client of MPS")
            return said.split(), all(one["mps_client"] for one in detshare.tenants())
        finally:
            running.stdin.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.softgpu = None
    options.detshare = options.detshare.resolve()
    failures, figures = [], {}
    with tempfile.TemporaryDirectory() as scratch:
        detshare = DetShare(options, Path(scratch), time.monotonic() + LIMIT)
        try:
            first = detshare.serve(Wanted(), failures)["mps"]
            figures["before"] = tenant(detshare, options.program.resolve())
            if not detshare.until(lambda: not detshare.tenants(), LIMIT):
                raise Failed("the tenant is still on the list")
            ours = {pid: name for pid, name in detshare.processes().items() if "nvidia-cuda-mps" in name}
            figures["killed"], killed = sorted(ours.values()), time.monotonic()
            for pid in ours:
                os.kill(pid, signal.SIGKILL)
            again = lambda: (one := detshare.status()["mps"])["state"] == "running" and one["pid"] != first["pid"]
            if not ours or not detshare.until(again, LIMIT):
                raise Failed(f"not started again: {detshare.status()['mps']}, killed {ours}")
            figures["seconds_until_it_runs_again"] = round(time.monotonic() - killed, 3)
            figures["after"] = tenant(detshare, options.program.resolve())
            if figures["before"] != figures["after"] or not figures["after"][1]:
                failures.append(f"before {figures['before']}, after {figures['after']}")
        except Failed as failed:
            failures.append(str(failed))
        finally:
            failures += detshare.down() + detshare.sweep()
    options.out.write_text(json.dumps(figures | {"failures": failures}, indent=1))
    print(json.dumps(figures), *failures, sep="\n")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
