"""Kernels of 1 to 50 ms beside the small inference step: sliced by time, held between kernels alone, and with block level.

The kernels are those of samples/long_work: nvcc's PTX, five kinds in several lengths, in one program that is not changed. Two sessions
make a round: one with the bare driver and without MPS, in which the server is alone and time is sliced, and one under DetShare, with a best-effort
program that is held between kernels and another one whose kernels give way. Within a session the arms take turns, kernel by kernel,
beside one and the same server. Blocks write down when they ran, so that here can be told when a kernel gave way to a step; the program
keeps that on the GPU until a stretch is over. Before the server begins, each kernel runs alone: that tells its share later. And so it does
after the server has ended, beside a latency tenant that does nothing: that tells what the version costs that was chosen in the meantime.

A round is begun if it fits into --limit by what the one before took, or by an estimate; what does not fit is left out, and that is said.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from block_level_figures import ARMS, P99_MOST, Figures
from daemon_under_test import DetShare, Failed, Wanted, clean_environment
from sharing import table

ROOT = Path(__file__).resolve().parent
LENGTHS_MS = (1.5, 40)
# Rows of softmax are bound by memory: longer ones would not fit into it.
LENGTHS_OF_MS = {"softmax": (1.5, 10)}
FUNCTIONS = {"matmul": "multiply", "convolution": "convolve", "nbody": "attract", "softmax": "softmax", "chain": "chain"}
UNDECIDED = ("the original is measured first", "versions are being measured")

# Seconds.
READY_LIMIT = 90
ANSWER_LIMIT = 60
END_LIMIT = 20
WARM_UP = 1.5
LEARNING = 0.25  # between two looks at what was learned
LEARNING_LIMIT = 8  # of one kernel
RESERVE = 12  # to end what runs, and write
SET_UP = 18  # of a session: a framework is loaded, a model is made
IDLE_SET_UP = 3  # of a tenant that does nothing
LEARNED_IN = 1.5  # usually, of one kernel
TOLD_IN = 0.5  # when the blocks of a stretch ran

PUBLISHED = "on the 99th percentile of inference beside best-effort training, as its authors report it; other programs and GPUs"

PERIOD_MS = 6
HELD_TIMES = 10  # as long as it takes, at most, is what a launch takes that others hold up


@dataclass(frozen=True)
class Kernel:
    """One kind in one length."""

    kind: str
    milliseconds: float
    units: int
    blocks: int
    fitted_ms: float  # what it really takes, alone

    @property
    def name(self):
        return f"{self.kind} {self.milliseconds:g} ms"


class Process:
    """A program that this one started, in an environment of its own."""

    def __init__(self, command, environment, log, **streams):
        self.log = open(log, "w+")
        streams = {"stdin": subprocess.DEVNULL, "stdout": self.log} | streams
        environment = clean_environment() | environment
        self.child = subprocess.Popen(list(map(str, command)), env=environment, stderr=self.log, **streams)

    def said(self):
        self.log.flush()
        self.log.seek(0)
        return self.log.read()[-800:]

    def end(self, limit=END_LIMIT):
        try:
            code = self.child.wait(limit)
        except subprocess.TimeoutExpired:
            self.kill()
            code = f"nothing within {limit} s"
        if code != 0:
            raise Failed(f"{self.child.args[-3:]} ended with {code}: {self.said()}")

    def kill(self):
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()


class Work(Process):
    """The program with the kernels, which does as it is told."""

    def __init__(self, options, command, environment, folder, name):
        arguments = [options.work, "--commands", *(["--small"] if options.small else [])]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.record = folder / f"{name}.record"
        # It may be linked against the runtime as a library; the server has a runtime of its own.
        paths = [str(options.runtime), (os.environ | environment).get("LD_LIBRARY_PATH")]
        own = {"LD_LIBRARY_PATH": ":".join(filter(None, paths)), "DETSHARE_RECORD": str(self.record)}
        environment = environment | own
        super().__init__([*command, *arguments], environment, folder / f"{name}.log", **pipes)

    def ask(self, *words):
        # A program that does not answer is ended, and with it the wait for its answer.
        limit = threading.Timer(ANSWER_LIMIT, self.child.kill)
        limit.start()
        try:
            self.child.stdin.write(" ".join(map(str, words)) + "\n")
            self.child.stdin.flush()
            line = self.child.stdout.readline()
        except OSError as error:
            raise Failed(f"{words}: {error}, {self.said()}") from error
        finally:
            limit.cancel()
        if not line:
            raise Failed(f"{words}: no answer, {self.said()}")
        return json.loads(line)

    def work(self, kernel, seconds, *more):
        return self.ask("work", kernel.kind, kernel.units, seconds, *more)

    def stop(self):
        self.child.stdin.close()
        self.end()

    def parts(self):
        """When its kernels and their parts were let pass, in seconds, and whether with all SMs; known of a tenant that has ended."""
        lines = [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []
        full = {lane["lane"] for line in lines[:1] for lane in line["lanes"] if lane["name"] == "full"}
        return [(line["at"] / 1e9, line["lane"] in full) for line in lines if "launch" in line]


class Server(Process):
    """The server, or what stands for it where there is no PyTorch."""

    def __init__(self, options, command, environment, folder):
        self.start_file, self.stop_file, self.out = (folder / name for name in ("start", "stop", "served"))
        files = ["--start-file", self.start_file, "--stop-file", self.stop_file, "--out", self.out]
        if options.steps:
            kernels = ["--kernels", options.step_kernels, "--work", options.step_work]
            program = [options.steps, "--steps", 1 << 40, *kernels, "--pause-us", PERIOD_MS * 1000]
        else:
            arrivals = ["--arrivals", "periodic", "--period-ms", PERIOD_MS, "--requests", 1 << 30, "--seed", 1]
            program = [sys.executable, options.workloads / "bench_serve.py", "--shape", "small", *arrivals]
        self.record = folder / "record"
        # Under DetShare, when its steps began as others saw it.
        environment = environment | {"DETSHARE_RECORD": str(self.record)}
        super().__init__([*command, *program, *files], environment, folder / "server.log")

    def steps(self):
        """When its steps began, in seconds; of a bare program nobody knows."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [json.loads(line)["at"] / 1e9 for line in lines if '"step":"began"' in line]

    def until_ready(self, deadline):
        ready, end = self.start_file.with_name("start.ready"), min(time.monotonic() + READY_LIMIT, deadline)
        while not ready.exists():
            if self.child.poll() is not None or time.monotonic() > end:
                raise Failed(f"the server is not ready: {self.said()}")
            time.sleep(0.02)

    def start(self):
        self.start_file.touch()
        time.sleep(WARM_UP)

    def stop(self):
        """What it noted."""
        self.stop_file.touch()
        self.end()
        return json.loads(self.out.read_text())


class Bench:
    """All sessions, and what was found in them."""

    def __init__(self, options, scratch):
        self.options, self.scratch = options, scratch
        self.deadline = time.monotonic() + options.limit
        self.detshare = DetShare(options, scratch, self.deadline)
        # Of the software GPU, where a grid of few blocks is to be more than all SMs hold.
        self.sms = {"DETSHARE_SOFTGPU_SMS": str(options.softgpu_sms)} if options.softgpu_sms else {}
        self.detshare.settings |= self.sms
        self.kernels, self.records, self.requests, self.steps, self.digests = [], [], {}, {}, {}
        self.failures, self.left_out, self.explained, self.parts = [], [], {}, {}
        self.started, self.round_took = [], None

    def left(self):
        return self.deadline - time.monotonic()

    def begin(self, process):
        self.started.append(process)
        return process

    def folder(self, name):
        folder = self.scratch / name
        folder.mkdir()
        return folder

    def note(self, session, arm, kernel, did, work=None):
        """A stretch with a kernel; with the version that was chosen, where a program chooses one."""
        launches = did["launches"]
        what = {"begin": launches[0][0], "end": launches[-1][1], "fitted_ms": kernel.fitted_ms}
        if work and (shape := self.shape_of(work, kernel)):
            what |= {"version": shape["chosen"], "because": shape["because"]}
        self.records.append({"session": session, "arm": arm, "name": kernel.name, **what, **did})

    def pause(self, session, arm):
        begin = time.monotonic()
        time.sleep(self.options.pause)
        self.records.append({"session": session, "arm": arm, "begin": begin, "end": time.monotonic()})

    def fits(self, what, seconds):
        """Whether there is time for it; says so where there is not."""
        if self.left() - RESERVE >= seconds:
            return True
        self.left_out.append(f"{what}: {seconds:.0f} s would be needed and {max(self.left() - RESERVE, 0):.0f} s are left")
        print("left out:", self.left_out[-1], flush=True)
        return False

    def turns(self, session, server, arms, alone):
        """Each kernel in each arm, beside the server, with pauses in which it is alone."""
        server.start()
        stretches = self.options.pause + self.options.seconds * len(arms)
        for kernel in self.kernels:
            last = len(arms) * HELD_TIMES * kernel.milliseconds / 1000
            if self.fits(f"{session}, {kernel.name}", stretches + last):
                self.pause(session, alone)
                for arm, work in arms:
                    did = work.work(kernel, self.options.seconds, "stamps")
                    self.note(session, arm, kernel, did, work if arm == "block level" else None)
        served = server.stop()
        self.requests[session], self.digests[session] = served["requests"], served.get("result_digests", [])
        self.steps[session] = server.steps()

    def bare(self, number):
        """The bare driver: alone, and sliced by time."""
        session, environment = f"bare {number}", {}
        folder = self.folder(session)
        if self.options.softgpu:
            (folder / "libcuda.so.1").symlink_to(self.options.softgpu)
            environment = {"LD_LIBRARY_PATH": str(folder)} | self.sms
        server = self.begin(Server(self.options, [], environment, folder))
        work = self.begin(Work(self.options, [], environment, folder, "work"))
        server.until_ready(self.deadline)
        if not self.kernels:
            self.fit(work)
        for kernel in self.kernels:
            self.note(session, "work alone", kernel, work.work(kernel, self.options.reference))
        self.turns(session, server, [("time-slicing", work)], "alone")
        work.stop()

    def fit(self, work):
        for kind in self.options.kinds:
            for milliseconds in self.options.lengths or LENGTHS_OF_MS.get(kind, LENGTHS_MS):
                size = work.ask("fit", kind, milliseconds)
                self.kernels.append(Kernel(kind, milliseconds, size["units"], size["blocks"], size["ms"]))
                print(f"{self.kernels[-1].name}: {size['blocks']} blocks take {size['ms']:.2f} ms", flush=True)

    def shared(self, number):
        """Under DetShare: held between kernels, and with kernels that give way."""
        session = f"detshare {number}"
        folder = self.folder(session)
        self.detshare.serve(Wanted(isolation=self.options.isolation), self.failures)
        run = [self.detshare.program, "run"]
        server = Server(self.options, [*run, "--class", "latency", "--name", "serve", "--"], self.detshare.settings, folder)
        self.begin(server)
        best_effort, works = [*run, "--class", "best-effort"], {}
        for name, flags in (("held", []), ("gives-way", ["--block-level"])):
            command = [*best_effort, "--name", name, *flags, "--"]
            works[name] = self.begin(Work(self.options, command, self.detshare.settings, folder, name))
        server.until_ready(self.deadline)
        for kernel in self.kernels:
            self.learn(works["gives-way"], kernel)
            self.idle(session, works, kernel)
        arms = [("holding", works["held"]), ("block level", works["gives-way"])]
        # Who comes first takes turns as well.
        self.turns(session, server, arms if number % 2 else arms[::-1], "detshare alone")
        # Somebody to give way to has to be there, or the original runs.
        waits = [*run, "--class", "latency", "--name", "idle", "--", self.options.idle, "--start-file", folder / "never"]
        nobody = self.begin(Process(waits, self.detshare.settings, folder / "idle.log"))
        if self.detshare.until((folder / "never.ready").exists, READY_LIMIT):
            for kernel in self.kernels:
                if self.fits(f"{session}, {kernel.name} idle again", 2 * self.options.reference):
                    self.idle(session, works, kernel)
        else:
            self.failures.append(f"the idle tenant is not ready: {nobody.said()}")
        nobody.kill()
        self.explained[session] = self.kernels_of(works["gives-way"])
        for name, work in works.items():
            work.stop()
            self.parts[session, {"held": "holding", "gives-way": "block level"}[name]] = work.parts()

    def idle(self, session, works, kernel):
        """What the original and the chosen version take with nobody who wants the GPU."""
        for arm, name in (("original idle", "held"), ("version idle", "gives-way")):
            did = works[name].work(kernel, self.options.reference)
            self.note(session, arm, kernel, did, works[name] if arm == "version idle" else None)

    def kernels_of(self, work):
        """What block level says of a program's kernels: what `detshare explain` shows of it, and who stopped them."""
        code, text, _ = self.detshare.call("explain", str(work.child.pid), "--format", "json")
        return (json.loads(text).get("block_level") if code == 0 else None) or {"shapes": []}

    def shape_of(self, work, kernel):
        """What is said of one of them."""
        shapes = [one for one in self.kernels_of(work)["shapes"] if FUNCTIONS[kernel.kind] in one["kernel"]]
        return next((one for one in shapes if one["blocks"] == kernel.blocks), None)

    def learn(self, work, kernel):
        """Launches it until a version is chosen."""
        end = time.monotonic() + LEARNING_LIMIT
        while time.monotonic() < min(end, self.deadline - RESERVE):
            work.work(kernel, LEARNING)
            shape = self.shape_of(work, kernel)
            if shape and shape["because"] not in UNDECIDED:
                return
        self.failures.append(f"{kernel.name}: no version was chosen within {LEARNING_LIMIT} s")

    def round_seconds(self):
        """What a round takes: as the one before, or by what it does."""
        if self.round_took:
            return self.round_took
        kernels = len(self.options.kinds) * len(self.options.lengths or LENGTHS_MS)
        bare = self.options.reference + self.options.pause + self.options.seconds + TOLD_IN
        shared = LEARNED_IN + 4 * self.options.reference + self.options.pause + 2 * (self.options.seconds + TOLD_IN)
        return 2 * (SET_UP + WARM_UP) + IDLE_SET_UP + kernels * (bare + shared)

    def run(self):
        print(f"a round is to take about {self.round_seconds():.0f} s", flush=True)
        try:
            for number in range(1, self.options.rounds + 1):
                if not self.fits(f"round {number}", self.round_seconds()):
                    break
                began = time.monotonic()
                self.bare(number)
                self.shared(number)
                self.round_took = time.monotonic() - began
        except (Failed, ValueError, KeyError, OSError) as error:
            self.failures.append(f"{type(error).__name__}: {error}")
        for process in self.started:
            process.kill()
        if self.detshare.is_up:
            self.failures += self.detshare.down()
        self.failures += self.detshare.sweep()

    def server_bits(self):
        """Whether the server's results are the same in all sessions, as far as all have come."""
        together = [set(same) for same in zip(*self.digests.values())]
        if len(self.digests) < 2 or not together:
            return "not compared"
        return "identical" if all(len(same) == 1 for same in together) else "differ"

    def report(self):
        figures = Figures(self.records, self.requests, self.steps, self.parts)
        rows = figures.verdicts()
        not_met = [one for one in rows if one["verdict"] == "not met"]
        summary = f"{sum(one['verdict'] == 'met' for one in rows)} met, {len(not_met)} not met"
        return {
            "summary": f"{summary}; server's bits {self.server_bits()}",
            "failures": self.failures,
            "left_out": self.left_out,
            "server_bits": self.server_bits(),
            "server_alone": figures.alone(),
            "give_way_us": {arm: figures.give_way_quantiles(arm) for arm in ARMS[1:]},
            "published": {"Tally": {"p99_overhead": P99_MOST, "what": PUBLISHED}},
            "kernels": [figures.figures(name) for name in figures.names()],
            "records": figures.stretches(),
            "verdicts": rows,
            "explained": self.explained,
            "table": table(list(map(figures.row, figures.names()))),
        }


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--detshare", type=Path, default=ROOT / "bin/detshare")
    parser.add_argument("--work", type=Path, default=ROOT / "bin/long_work", help="the program with the kernels")
    parser.add_argument("--runtime", type=Path, default=ROOT / "runtime", help="the folder where that one finds libcudart")
    parser.add_argument("--idle", type=Path, default=ROOT / "bin/steps", help="the program steps, as a tenant that does nothing")
    parser.add_argument("--workloads", type=Path, default=ROOT / "workloads", help="where bench_serve.py lies")
    parser.add_argument("--steps", type=Path, help="the program steps, which stands for the server where there is no PyTorch")
    parser.add_argument("--step-kernels", type=int, default=20)
    parser.add_argument("--step-work", type=int, default=2_000)
    parser.add_argument("--softgpu", type=Path, help="a driver without a GPU, to see that it runs")
    parser.add_argument("--softgpu-sms", type=int, help="how many SMs that one has")
    parser.add_argument("--small", action="store_true", help="kernels of few instructions, for the software GPU")
    parser.add_argument("--isolation", default="mps")
    parser.add_argument("--kinds", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS), metavar="KIND")
    parser.add_argument("--lengths", type=float, nargs="+", metavar="MS", help="of the kernels, in place of each kind's own")
    parser.add_argument("--rounds", type=int, default=2, metavar="N")
    parser.add_argument("--seconds", type=float, default=2, metavar="S", help="of each kernel in each arm of a round")
    parser.add_argument("--pause", type=float, default=0.3, metavar="S", help="in which the server is alone, before each kernel")
    parser.add_argument("--reference", type=float, default=0.3, metavar="S", help="of each kernel without company")
    parser.add_argument("--limit", type=float, default=450, metavar="SECONDS", help="for all of it")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    for name in ("detshare", "work", "runtime", "idle", "workloads", "steps", "softgpu"):
        if getattr(options, name):
            setattr(options, name, getattr(options, name).resolve())
    return options


def main():
    options, began = parse_arguments(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="detshare-block-level-") as scratch:
        bench = Bench(options, Path(scratch))
        bench.run()
        report = bench.report()
    report["seconds"] = round(time.monotonic() - began, 1)
    options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(report["table"], table(report["verdicts"]), report["summary"], *report["failures"], sep="\n")
    differ = report["server_bits"] == "differ" or any(one["bits"] == "differ" for one in report["kernels"])
    return 1 if report["failures"] or differ else 0


if __name__ == "__main__":
    sys.exit(main())
