"""Is a tenant busy from its first launch until the GPU has finished, however the program notices?

A program that does what it is told (`step_probe`) launches kernels that run until they are let go: into a stream, the legacy stream, its
thread's own, as a graph. It learns of their end in each of the ways that programs do, or in none. What others see of it is asked
of the daemon (`detshare ps --format json`), which reads the tenant's page at that moment: idle before, busy after the launch call
has returned, and idle as soon as the program has noticed the end. Each is one step, and all that was launched is finished.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from daemon_under_test import DetShare, Failed, Wanted, clean_environment

LIMIT = 60  # seconds, for all of it

# The same as in crates/shim/tests/shim/tenants.rs.
WAYS = {
    "begin": ("stream", "event", "context", "query", "event-query"),
    "begin-null": ("stream", "event", "context", "query", "event-query", "copy"),
    "begin-thread": ("stream", "event", "context", "query", "event-query"),
    "begin-graph": ("stream", "event", "context", "query", "event-query"),
}
UNNOTICED = "nobody asks"
HOST_FUNCTION = "host"


class Program:
    """The tenant, and what is seen of it."""

    def __init__(self, detshare, program):
        command = [str(detshare.program), "run", "--class", "latency", "--name", "probe", "--", str(program)]
        env = clean_environment() | detshare.settings
        self.detshare = detshare
        self.child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear("ready")

    def hear(self, expected):
        said = self.child.stdout.readline().strip()
        if said != expected:
            raise Failed(f"the program said {said!r}, not {expected!r}")

    def does(self, *words):
        """Tells it words, each of which it has answered when this returns."""
        for word in words:
            self.child.stdin.write(word + "\n")
            self.child.stdin.flush()
            self.hear("ok")

    def seen(self):
        listed = [one for one in self.detshare.tenants() if one["pid"] == self.child.pid]
        if not listed:
            raise Failed("it is not on the list")
        return listed[0]

    def end(self):
        self.child.stdin.close()
        try:
            if self.child.wait(LIMIT) != 0:
                raise Failed(f"the program ended with {self.child.returncode}")
        finally:
            self.child.kill()


def play(program, begin, end):
    """One step; returns what was seen, and what is wrong with it."""
    before = program.seen()
    program.does(begin)
    during = program.seen()
    program.does("open")
    if end != UNNOTICED:
        program.does(end)
    after = program.seen()
    if end in (UNNOTICED, HOST_FUNCTION):
        # Nobody has told the driver that it is noticed: the shim finds out by itself, a little later.
        program.detshare.until(lambda: not program.seen()["busy"], LIMIT)
        after = program.seen()
    states = {when: one["busy"] for when, one in (("before", before), ("during", during), ("after", after))}
    wrong = [] if states == {"before": False, "during": True, "after": False} else [f"busy {states}"]
    if after["step"] != before["step"] + 1:
        wrong.append(f"{after['step'] - before['step']} steps, not one")
    if after["launches"] != before["launches"] + 1 or after["finished"] != after["launches"]:
        wrong.append(f"launches {before['launches']} to {after['launches']}, finished {after['finished']}")
    return {"begin": begin, "end": end, "busy": states, "wrong": wrong}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--detshare", type=Path, required=True)
    parser.add_argument("--program", type=Path, required=True, help="`step_probe`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--softgpu", type=Path, help="on this driver, to try the script")
    options = parser.parse_args()
    options.detshare = options.detshare.resolve()
    options.softgpu = options.softgpu.resolve() if options.softgpu else None
    failures, steps = [], []
    with tempfile.TemporaryDirectory() as scratch:
        detshare = DetShare(options, Path(scratch), time.monotonic() + LIMIT)
        try:
            detshare.serve(Wanted(), failures)
            program = Program(detshare, options.program.resolve())
            try:
                for begin, ends in WAYS.items():
                    for end in (*ends, UNNOTICED, HOST_FUNCTION):
                        steps.append(play(program, begin, end))
            finally:
                program.end()
        except Failed as failed:
            failures.append(str(failed))
        finally:
            failures += detshare.down() + detshare.sweep()
    failures += [f"{one['begin']}, {one['end']}: {'; '.join(one['wrong'])}" for one in steps if one["wrong"]]
    wanted = sum(len(ends) + 2 for ends in WAYS.values())
    if len(steps) != wanted and not failures:
        failures.append(f"{len(steps)} of {wanted} ways were played")
    fine = sum(not one["wrong"] for one in steps)
    summary = f"busy and idle at the right moments in {fine} of {wanted} ways" + "".join(f"; {each}" for each in failures)
    options.out.write_text(json.dumps({"summary": summary, "failures": failures, "steps": steps}, indent=1) + "\n")
    print(summary)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
