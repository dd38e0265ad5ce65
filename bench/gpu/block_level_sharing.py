"""Kernels of 1 to 50 ms beside the small inference step: sliced by time, held between kernels alone, and with block level.

The kernels are those of samples/long_work: nvcc's PTX, five kinds in several lengths, in one program that is not changed. Two sessions
make a round: one with the bare driver and without MPS, in which the server is alone and time is sliced, and one under DetShare, with a best-effort
program that is held between kernels and another one whose kernels give way. Within a session the arms take turns, kernel by kernel,
beside one and the same server. Blocks write down when they ran, so that here can be told when a kernel gave way to a step; the program
keeps that on the GPU until a stretch is over. Before the server begins, each kernel runs alone: that tells its share later. And so it does
after the server has ended, beside a latency tenant that does nothing: that tells what the version costs that was chosen in the meantime.
Where there is time, a third session has the same kernels with a longer turnaround.

What fails for one kernel is noted, and the others go on. What was found so far is written after each session. A round is begun if it fits
into --limit by what the one before took, or by an estimate; what does not fit is left out, and that is said.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from block_level_figures import ARMS, LONGER, P99_MOST, Figures
from daemon_under_test import DetShare, Failed, Wanted, clean_environment
from sharing import table

ROOT = Path(__file__).resolve().parent
LENGTHS_MS = (1.5, 40)
# Rows of softmax are bound by memory: longer ones would not fit into it.
LENGTHS_OF_MS = {"softmax": (1.5, 10)}
FUNCTIONS = {"matmul": "multiply", "convolution": "convolve", "nbody": "attract", "softmax": "softmax", "chain": "chain"}
DIGEST = "digest"  # what makes the checksums
UNDECIDED = ("the original is measured first", "versions are being measured")

# Seconds.
READY_LIMIT = 90
ANSWER_LIMIT = 60
END_LIMIT = 20
KILL_LIMIT = 10
WARM_UP = 1.5
LEARNING = 0.25  # between two looks at what was learned
LEARNING_LIMIT = 8  # of one kernel
RESERVE = 12  # to end what runs, and write
SET_UP = 18  # of a session: a framework is loaded, a model is made
IDLE_SET_UP = 3  # of a tenant that does nothing
LEARNED_IN = 1.5  # usually, of one kernel
TOLD_IN = 0.5  # when the blocks of a stretch ran

PUBLISHED = "on the 99th percentile of inference beside best-effort training, as its authors report it; other programs and GPUs"

NOT_DONE = (Failed, ValueError, KeyError, OSError)

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
            try:
                self.child.wait(KILL_LIMIT)
            except subprocess.TimeoutExpired:
                # It hangs in the driver; nobody can do anything about that.
                print(f"{self.child.args[-3:]} does not end when it is killed", flush=True)


class Work(Process):
    """The program with the kernels, which does as it is told."""

    def __init__(self, options, command, environment, folder, name):
        arguments = [options.work, "--commands", *(["--small"] if options.small else [])]
        # It may be linked against the runtime as a library; the server has a runtime of its own.
        paths = [str(options.runtime), (os.environ | environment).get("LD_LIBRARY_PATH")]
        self.environment = environment | {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
        self.command, self.folder, self.name = [*command, *arguments], folder, name
        self.records, self.explained = [], None
        self.again()

    def again(self):
        """Starts it, anew where it has ended before its time."""
        self.records.append(self.folder / f"{self.name}.{len(self.records)}.record")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        environment = self.environment | {"DETSHARE_RECORD": str(self.records[-1])}
        super().__init__(self.command, environment, self.folder / f"{self.name}.{len(self.records)}.log", **pipes)

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
        if self.child.poll() is not None:
            self.again()
        return self.ask("work", kernel.kind, kernel.units, seconds, *more)

    def stop(self):
        try:
            self.child.stdin.close()
        except OSError:  # it has ended, as is said next
            pass
        self.end()

    def parts(self):
        """When its kernels and their parts were let pass, in seconds, and whether with all SMs; known of a tenant that has ended."""
        found = []
        for lines in map(records_in, self.records):
            full = {lane["lane"] for line in lines[:1] for lane in line["lanes"] if lane["name"] == "full"}
            found += [(line["at"] / 1e9, line["lane"] in full) for line in lines if "launch" in line]
        return found


def records_in(file):
    """The lines of a record; the last one of a program that was killed may not be whole."""
    found = []
    for line in file.read_text().splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


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
        """When its steps began and ended, in seconds; of a bare program nobody knows."""
        steps, began = [], None
        for line in records_in(self.record):
            if line.get("step") == "began":
                began = line["at"] / 1e9
            elif line.get("step") == "ended" and began is not None:
                steps.append((began, line["at"] / 1e9))
                began = None
        return steps

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
        self.began = time.monotonic()
        self.deadline = self.began + options.limit
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

    def tried(self, what, do, *arguments):
        """What that returns; where it fails, that is noted and everything else goes on."""
        try:
            return do(*arguments)
        except NOT_DONE as error:
            self.failures.append(f"{what}: {type(error).__name__}: {error}")
            print("failed:", self.failures[-1], flush=True)
            return None

    def turns(self, session, server, arms, alone):
        """Each kernel in each arm, beside the server, with pauses in which it is alone."""
        try:
            server.start()
            stretches = self.options.pause + self.options.seconds * len(arms)
            for kernel in self.kernels:
                last = len(arms) * HELD_TIMES * kernel.milliseconds / 1000
                if self.fits(f"{session}, {kernel.name}", stretches + last):
                    self.pause(session, alone)
                    for arm, work in arms:
                        self.tried(f"{session}, {arm}, {kernel.name}", self.stretch, session, arm, kernel, work)
        finally:
            # All of its requests are known only now.
            served = server.stop()
            self.requests[session], self.digests[session] = served["requests"], served.get("result_digests", [])
            self.steps[session] = server.steps()

    def stretch(self, session, arm, kernel, work):
        did = work.work(kernel, self.options.seconds, "stamps")
        self.note(session, arm, kernel, did, work if arm.startswith("block level") else None)

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
            did = self.tried(f"{session}, {kernel.name}", work.work, kernel, self.options.reference)
            if did:
                self.note(session, "work alone", kernel, did)
        self.tried(session, self.turns, session, server, [("time-slicing", work)], "alone")
        self.tried(session, work.stop)

    def fit(self, work):
        for kind in self.options.kinds:
            for milliseconds in self.options.lengths or LENGTHS_OF_MS.get(kind, LENGTHS_MS):
                size = work.ask("fit", kind, milliseconds)
                self.kernels.append(Kernel(kind, milliseconds, size["units"], size["blocks"], size["ms"]))
                print(f"{self.kernels[-1].name}: {size['blocks']} blocks take {size['ms']:.2f} ms", flush=True)

    def shared(self, number, turnaround=None):
        """Under DetShare: held between kernels, and with kernels that give way; with another turnaround only the latter."""
        session, suffix = (f"detshare {number}", "") if turnaround is None else (f"detshare {number}, {turnaround}", LONGER)
        folder = self.folder(session)
        self.detshare.serve(Wanted(isolation=self.options.isolation, turnaround=turnaround), self.failures)
        run = [self.detshare.program, "run"]
        server = Server(self.options, [*run, "--class", "latency", "--name", "serve", "--"], self.detshare.settings, folder)
        self.begin(server)
        best_effort, works = [*run, "--class", "best-effort"], {}
        for name, flags in (("held", []), ("gives-way", ["--block-level"])):
            if name == "gives-way" or turnaround is None:
                command = [*best_effort, "--name", name, *flags, "--"]
                works[name] = self.begin(Work(self.options, command, self.detshare.settings, folder, name))
        server.until_ready(self.deadline)
        for kernel in self.kernels:
            self.tried(f"{session}, {kernel.name}", self.learn, works["gives-way"], kernel)
            self.tried(f"{session}, {kernel.name}", self.idle, session, works, kernel, suffix)
        arms = {name: arm for name, arm in (("held", "holding"), ("gives-way", f"block level{suffix}")) if name in works}
        turns = [(arm, works[name]) for name, arm in arms.items()]
        # Who comes first takes turns as well.
        self.tried(session, self.turns, session, server, turns if number % 2 else turns[::-1], "detshare alone")
        self.tried(session, self.idle_again, session, works, suffix, run, folder)
        self.tried(session, self.kernels_of, works["gives-way"])
        self.explained[session] = works["gives-way"].explained
        for name, work in works.items():
            self.tried(f"{session}, {arms[name]}", work.stop)
            self.parts[session, arms[name]] = self.tried(f"{session}, {arms[name]}", work.parts) or []

    def idle_again(self, session, works, suffix, run, folder):
        """With the versions that were chosen beside the server."""
        # Somebody to give way to has to be there, or the original runs.
        waits = [*run, "--class", "latency", "--name", "idle", "--", self.options.idle, "--start-file", folder / "never"]
        nobody = self.begin(Process(waits, self.detshare.settings, folder / "idle.log"))
        if self.detshare.until((folder / "never.ready").exists, READY_LIMIT):
            for kernel in self.kernels:
                if self.fits(f"{session}, {kernel.name} idle again", len(works) * self.options.reference):
                    self.tried(f"{session}, {kernel.name}", self.idle, session, works, kernel, suffix)
        else:
            self.failures.append(f"the idle tenant is not ready: {nobody.said()}")
        nobody.kill()

    def idle(self, session, works, kernel, suffix):
        """What the original and the chosen version take with nobody who wants the GPU."""
        for arm, name in (("original idle", "held"), (f"version idle{suffix}", "gives-way")):
            if name in works:
                did = works[name].work(kernel, self.options.reference)
                self.note(session, arm, kernel, did, works[name] if name == "gives-way" else None)

    def kernels_of(self, work):
        """What block level says of a program's kernels: what `detshare explain` shows of it, and who stopped them."""
        code, text, _ = self.detshare.call("explain", str(work.child.pid), "--format", "json")
        said = json.loads(text).get("block_level") if code == 0 else None
        # Of a program that has ended nothing is said; what was said of it before is worth something.
        work.explained = said or work.explained
        return said or {"shapes": []}

    def shape_of(self, work, kernel):
        """What is said of one of them."""
        shapes = [one for one in self.kernels_of(work)["shapes"] if FUNCTIONS[kernel.kind] in one["kernel"]]
        return next((one for one in shapes if one["blocks"] == kernel.blocks), None)

    def learn(self, work, kernel):
        """Launches it until a version is chosen."""
        end, is_decided = time.monotonic() + LEARNING_LIMIT, False
        while time.monotonic() < min(end, self.deadline - RESERVE):
            work.work(kernel, LEARNING)
            shapes = self.kernels_of(work)["shapes"]
            shape = self.shape_of(work, kernel)
            is_decided = bool(shape) and shape["because"] not in UNDECIDED
            # It runs between the launches that are measured, and would be tried in several versions there.
            sums = [one for one in shapes if DIGEST in one["kernel"] and one["because"] in UNDECIDED]
            if is_decided and not sums:
                return
        if not is_decided:
            raise Failed(f"no version was chosen within {LEARNING_LIMIT} s")
        self.left_out.append(f"{kernel.name}: the version of {DIGEST} was not chosen within {LEARNING_LIMIT} s")

    def round_seconds(self):
        """What a round takes: as the one before, or by what it does."""
        if self.round_took:
            return self.round_took
        kernels = len(self.options.kinds) * len(self.options.lengths or LENGTHS_MS)
        bare = self.options.reference + self.options.pause + self.options.seconds + TOLD_IN
        shared = LEARNED_IN + 4 * self.options.reference + self.options.pause + 2 * (self.options.seconds + TOLD_IN)
        return 2 * (SET_UP + WARM_UP) + IDLE_SET_UP + kernels * (bare + shared)

    def longer_seconds(self):
        """What a session with another turnaround takes; the daemon knows the kernels by then."""
        each = LEARNED_IN + 2 * self.options.reference + self.options.pause + self.options.seconds + TOLD_IN
        return SET_UP + WARM_UP + IDLE_SET_UP + len(self.kernels) * each

    def run(self):
        print(f"a round is to take about {self.round_seconds():.0f} s", flush=True)
        for number in range(1, self.options.rounds + 1):
            if not self.fits(f"round {number}", self.round_seconds()):
                break
            began = time.monotonic()
            self.session(f"bare {number}", self.bare, number)
            if not self.kernels:
                break
            self.session(f"detshare {number}", self.shared, number)
            self.round_took = time.monotonic() - began
        turnaround = self.options.longer
        if turnaround and self.kernels and self.fits(f"turnaround {turnaround}", self.longer_seconds()):
            self.session(f"turnaround {turnaround}", self.shared, 1, turnaround)
        if self.detshare.is_up:
            self.failures += self.tried("detshare down", self.detshare.down) or []
        self.failures += self.tried("what is left", self.detshare.sweep) or []

    def session(self, what, do, *arguments):
        """Does one, ends what it started, and writes what was found so far."""
        self.tried(what, do, *arguments)
        for process in self.started:
            process.kill()
        self.started.clear()
        self.write()

    def write(self):
        """In one go, and always JSON: whoever ends this in the middle finds the last one that was whole."""
        report = plain(self.report())
        draft = self.options.out.with_suffix(".draft")
        draft.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n")
        draft.rename(self.options.out)
        return report

    def server_bits(self):
        """Whether the server's results are the same in all sessions, as far as all have come."""
        together = [set(same) for same in zip(*self.digests.values())]
        if len(self.digests) < 2 or not together:
            return "not compared"
        return "identical" if all(len(same) == 1 for same in together) else "differ"

    def report(self):
        found = {
            "seconds": round(time.monotonic() - self.began, 1),
            "failures": self.failures,
            "left_out": self.left_out,
            "server_bits": self.server_bits(),
            "published": {"Tally": {"p99_overhead": P99_MOST, "what": PUBLISHED}},
            "explained": self.explained,
        }
        try:
            return found | self.figures()
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # What was measured is worth more than what is made of it.
            self.failures.append(f"the figures: {type(error).__name__}: {error}")
            measured = {"requests": self.requests, "steps": self.steps, "measured": self.records}
            return found | measured | {"summary": "no figures", "kernels": [], "table": "", "verdicts": []}

    def figures(self):
        figures = Figures(self.records, self.requests, self.steps, self.parts, PERIOD_MS / 1e3)
        rows = figures.verdicts()
        not_met = [one for one in rows if one["verdict"] == "not met"]
        summary = f"{sum(one['verdict'] == 'met' for one in rows)} met, {len(not_met)} not met"
        return {
            "summary": f"{summary}; server's bits {self.server_bits()}",
            "server_alone": figures.alone(),
            "give_way_us": {arm: figures.give_way_quantiles(arm) for arm in ARMS[1:]},
            "beside_step_us": {arm: figures.beside_step_quantiles(arm) for arm in ARMS[1:]},
            "kernels": [figures.figures(name) for name in figures.names()],
            "records": figures.stretches(),
            "pauses": figures.pauses(),
            "table": table(list(map(figures.row, figures.names()))),
            "verdicts": rows,
        }


def plain(value):
    """The same with null for what JSON has no number for."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument("--seconds", type=float, default=6, metavar="S", help="of each kernel in each arm of a round; 1,000 requests")
    parser.add_argument("--longer", default="48us", metavar="TIME", help="a turnaround for a last session, if there is time; empty for none")
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
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="detshare-block-level-") as scratch:
        bench = Bench(options, Path(scratch))
        bench.run()
        report = bench.write()
    print(report["table"], *report["left_out"], *report["failures"], report["summary"], table(report["verdicts"]), sep="\n")
    differ = report["server_bits"] == "differ" or any(one["bits"] == "differ" for one in report["kernels"])
    return 1 if report["failures"] or differ else 0


if __name__ == "__main__":
    sys.exit(main())
