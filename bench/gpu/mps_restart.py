"""MPS and what goes wrong with it: a stranger to it is told of, and one that dies comes back when nobody needs the dead one.

In turn, under one daemon with a folder of its own:

1. a program that was started by hand, with LD_PRELOAD and another pipe directory, joins and is reported as no client;
2. a tenant runs; when it has gone, NVIDIA's control program and its servers are killed, those of this daemon alone. The
   daemon must start another one, and a program that comes then must be its client and compute the same;
3. they are killed while a tenant is there. MPS is down, and stays so until that tenant has ended: a new one would be no good
   to it. Then it runs again, and the next tenant is its client.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from daemon_under_test import DetShare, Failed, clean_environment

LIMIT = 60  # seconds, for all of it
# Seconds that MPS is seen to stay down: several beats of the daemon, and longer than it takes to start it.
STAYS_DOWN = 1.5
STEP = ("begin", "open", "stream")


@dataclass(frozen=True)
class Wanted:
    policy: str = "fair"
    isolation: str = "mps"


class Check:
    """The daemon, the program, and what was found."""

    def __init__(self, options, scratch):
        self.detshare = DetShare(options, scratch, time.monotonic() + LIMIT)
        self.program, self.shim, self.scratch = options.program.resolve(), options.shim.resolve(), scratch
        self.failures, self.figures = [], {}

    def fail_unless(self, is_so, what):
        if not is_so:
            self.failures.append(what)

    def run(self):
        self.detshare.serve(Wanted(), self.failures)
        self.figures["by_hand"] = self.by_hand()
        self.fail_unless(self.figures["by_hand"][1] is False, f"one with another pipe directory: {self.figures['by_hand']}")
        self.figures["before"] = self.by_run()
        self.until_nobody()
        self.figures["killed"], self.figures["seconds_until_it_runs_again"] = self.kill_unused()
        self.figures["after"] = self.by_run()
        self.until_nobody()
        self.figures |= self.kill_in_use()
        self.figures["after_its_end"] = self.by_run()
        before = self.figures["before"]
        self.fail_unless(before[1] is True, f"before: {before}")
        for when in ("after", "after_its_end"):
            self.fail_unless(self.figures[when] == before, f"before {before}, {when} {self.figures[when]}")

    def by_run(self):
        """A program as a tenant: what it said, and whether it is a client."""
        with self.probe([str(self.detshare.program), "run", "--"], {}) as running:
            return self.step(running)

    def by_hand(self):
        """The same with the shim preloaded and a pipe directory in which there is no MPS."""
        elsewhere = self.scratch / "elsewhere"
        elsewhere.mkdir()
        settings = {"LD_PRELOAD": str(self.shim), "CUDA_MPS_PIPE_DIRECTORY": str(elsewhere)}
        with self.probe([], settings) as running:
            found = self.step(running)
        self.until_nobody()
        return found

    @contextmanager
    def probe(self, prefix, settings):
        """A running program that does what it is told."""
        env = clean_environment() | self.detshare.settings | settings
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen([*prefix, str(self.program)], env=env, text=True, **streams) as running:
            try:
                yield running
            finally:
                running.stdin.close()

    def step(self, running):
        """What it says when it does a step, and whether the daemon says that it is a client."""
        said = running.stdout.readline()
        for word in STEP:
            running.stdin.write(word + "\n")
            running.stdin.flush()
            said += running.stdout.readline()
        seen = lambda: any(one["mps_client"] is not None for one in self.detshare.tenants())
        if not self.detshare.until(seen, LIMIT):
            raise Failed(f"nobody looked whether it is a client of MPS; it said {said.split()}")
        return [said.split(), all(one["mps_client"] for one in self.detshare.tenants())]

    def until_nobody(self):
        if not self.detshare.until(lambda: not self.detshare.tenants(), LIMIT):
            raise Failed("the tenant is still on the list")

    def mps(self):
        return self.detshare.status()["mps"]

    def kill_mps(self):
        """Ends the control program and its servers, as a crash does; returns what they were, and the control's pid."""
        control = self.mps()["pid"]
        ours = {pid: name for pid, name in self.detshare.processes().items() if "nvidia-cuda-mps" in name}
        if not ours:
            raise Failed("there is no MPS of this daemon")
        for pid in ours:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # servers end with their control
                pass
        return sorted(ours.values()), control

    def until_another(self, killed):
        another = lambda: (one := self.mps())["state"] == "running" and one["pid"] != killed
        if not self.detshare.until(another, LIMIT):
            raise Failed(f"not started again: {self.mps()}")

    def kill_unused(self):
        names, control = self.kill_mps()
        killed = time.monotonic()
        self.until_another(control)
        return names, round(time.monotonic() - killed, 3)

    def kill_in_use(self):
        with self.probe([str(self.detshare.program), "run", "--"], {}) as running:
            self.step(running)
            restarts = self.mps()["restarts"]
            _, control = self.kill_mps()
            killed = time.monotonic()
            if not self.detshare.until(lambda: self.mps()["state"] == "down", LIMIT):
                raise Failed(f"killed while a tenant is there, MPS is not down: {self.mps()}")
            down_after, looks = time.monotonic() - killed, 0
            while time.monotonic() < killed + down_after + STAYS_DOWN and running.poll() is None:
                one, looks = self.mps(), looks + 1
                self.fail_unless(one["state"] == "down" and one["restarts"] == restarts, f"started under a tenant: {one}")
            if running.poll() is not None:
                raise Failed(f"the tenant ended by itself with {running.returncode}: nothing was seen")
            # It has lost the GPU and may hang at its end.
            running.kill()
            ended = time.monotonic()
            self.until_another(control)
        return {
            "down_after_s": round(down_after, 3),
            "looks_while_down": looks,
            "seconds_after_the_tenants_end": round(time.monotonic() - ended, 3),
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--shim", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True, help="`step_probe`")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.softgpu = None
    options.detshare = options.detshare.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        check = Check(options, Path(scratch))
        try:
            check.run()
        except Failed as failed:
            check.failures.append(str(failed))
        finally:
            check.failures += check.detshare.down() + check.detshare.sweep()
    summary = (
        f"a stranger is told of; again after {check.figures['seconds_until_it_runs_again']} s; killed in use it stays down, and"
        f" runs {check.figures['seconds_after_the_tenants_end']} s after the tenant's end"
        if not check.failures
        else "; ".join(check.failures)
    )
    options.out.write_text(json.dumps(check.figures | {"failures": check.failures, "summary": summary}, indent=1))
    print(json.dumps(check.figures), *check.failures, sep="\n")
    return bool(check.failures)


if __name__ == "__main__":
    sys.exit(main())
