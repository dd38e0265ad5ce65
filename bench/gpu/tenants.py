"""Several tenants share a GPU: do they still compute what they compute alone, whoever dies?

An inference program (class latency) and a training program (class best-effort) run alone first, without DetShare and
without MPS; what they compute then is what they must compute in every pass, byte for byte. In the passes both run
together as tenants of a daemon in a folder of its own, and in the middle one of them, or the daemon, is killed and
started again, beside a survivor that has enough left to do for both to share the GPU once more. `detshare ps` is
sampled all the while. In the end nothing may be left.

With `--programs soft` the tenants are programs of the driver API on the software GPU, without MPS: that is for
checking this script where there is no GPU.
"""

import argparse
import ctypes
import datetime
import fcntl
import hashlib
import json
import os
import platform
import pty
import shlex
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from daemon_under_test import (
    COMMAND_LIMIT,
    GONE_LIMIT,
    LEFT_LIMIT,
    SAMPLE_COLUMNS,
    TAIL_CHARACTERS,
    DetShare,
    Failed,
    Sampler,
    clean_environment,
    read_text,
    source,
)

ROOT = Path(__file__).resolve().parent
SERVE, TRAIN, DAEMON = "serve", "train", "the daemon"
CLASSES = {SERVE: "latency", TRAIN: "best-effort"}

# Seconds.
TOTAL_LIMIT = 240  # a minute less than the check has, so that there is time to clean up
ALONE_LIMIT = 60
PASS_LIMIT = 90
LONGEST_GAP = 5.0  # between two steps of a survivor; what a hold or a restart may cost is far below

MIDDLE = 0.25  # the part of its steps that a program has done when it is killed
LATE = 0.5  # the daemon no later than when one of them has done so much
STARTED = 5  # steps of each by then

SCREEN = (24, 100)  # rows and columns
SCREEN_SECONDS = 4.0

PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl


@dataclass(frozen=True)
class Pass:
    """Both programs together, under a policy, and who is killed in the middle."""

    policy: str
    victim: str | None
    isolation: str = "mps"

    @property
    def name(self):
        what = f"kill {self.victim.removeprefix('the ')}" if self.victim else "both"
        return f"{self.isolation}, {self.policy}, {what}"


PASSES = [
    Pass("fair", TRAIN),
    Pass("fair", DAEMON),
    Pass("exclusive", SERVE),
    Pass("exclusive", None, isolation="process"),
]
MORE_PASSES = [Pass("fair", SERVE), Pass("exclusive", TRAIN), Pass("exclusive", DAEMON)]
QUICK_PASSES = PASSES[:2]


def main():
    options = parse_arguments()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    started = time.monotonic()
    report = {
        "summary": "it was cut short",
        "passed": False,
        "command": shlex.join(sys.argv),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "source": source(),
        "machine": machine(),
        "sample_columns": SAMPLE_COLUMNS,
        "passes": [],
        "failures": [],
    }
    try:
        with tempfile.TemporaryDirectory(prefix="detshare-tenants-", ignore_cleanup_errors=True) as scratch:
            check(options, Path(scratch), report, started + options.limit)
    except Failed as error:
        report["failures"].append(str(error))
    finally:
        report["seconds"] = round(time.monotonic() - started, 1)
        report["failures"] += [f"{each['name']}: {why}" for each in report["passes"] for why in each["failures"]]
        wanted = len(passes_of(options))
        fine = sum(not each["failures"] for each in report["passes"])
        report["passed"] = not report["failures"] and fine == wanted
        report["summary"] = summary(report, fine, wanted)
        options.out.write_text(json.dumps(report, indent=1) + "\n")
        print_report(report)
    return 0 if report["passed"] else 1


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--detshare", type=Path, required=True, help="the detshare program")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write what was found, as JSON")
    parser.add_argument("--quick", action="store_true", help="one policy, two passes")
    parser.add_argument("--all", action="store_true", help="every policy with every victim")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many steps")
    parser.add_argument("--limit", type=float, default=TOTAL_LIMIT, help="seconds for all of it")
    parser.add_argument("--programs", choices=["torch", "soft"], default="torch")
    parser.add_argument("--softgpu", type=Path, help="with --programs soft: the software GPU's library")
    parser.add_argument("--steps-program", type=Path, help="with --programs soft: workloads/driver_api's `steps`")
    options = parser.parse_args()
    options.detshare = options.detshare.resolve()
    options.out = options.out.resolve()
    for path in filter(None, (options.detshare, options.softgpu, options.steps_program)):
        if not path.exists():
            parser.error(f"there is no {path}")
    if options.programs == "soft":
        if not (options.softgpu and options.steps_program):
            parser.error("--programs soft needs --softgpu and --steps-program")
        options.softgpu, options.steps_program = options.softgpu.resolve(), options.steps_program.resolve()
    return options


def passes_of(options):
    passes = QUICK_PASSES if options.quick else PASSES + (MORE_PASSES if options.all else [])
    if options.programs == "soft":
        return [replace(one, isolation="none") if one.isolation == "mps" else one for one in passes]
    return passes


def check(options, scratch, report, deadline):
    """All of it; whatever was started is gone afterwards."""
    programs = soft_programs(options, scratch) if options.programs == "soft" else torch_programs(options)
    report["programs"] = {name: shlex.join(program.command) for name, program in programs.items()}
    runs, detshare = [], DetShare(options, scratch, deadline)
    try:
        alone = report["alone"] = {}
        for name, program in programs.items():
            alone[name] = run_alone(program, scratch / f"alone-{name}", runs, deadline)
            print(f"{name} alone: {alone[name]['seconds']} s, sha256 {alone[name]['sha256'][:12]}", flush=True)
        for one in passes_of(options):
            found = run_pass(one, programs, scratch, detshare, runs, alone, deadline)
            report["passes"].append(found)
            print(f"{one.name}: {'; '.join(found['failures']) or 'as alone'} ({found['seconds']} s)", flush=True)
    finally:
        for run in runs:
            run.kill()
        report["daemons"] = detshare.daemons
        report["failures"] += detshare.down() if detshare.is_up else []
        report["failures"] += detshare.sweep()


# The programs.


@dataclass(frozen=True)
class Program:
    """A program, how many steps it does, and what it needs in its environment when it runs plainly."""

    command: list
    steps: int
    plain_settings: dict
    has_out: bool


def torch_programs(options):
    # The training takes some 9 s until its first step, and again after it was killed; meanwhile the server goes on.
    requests = 16
    tokens = max(round(200 * options.scale), 10)
    steps = max(round(200 * options.scale), 10)
    workloads = ROOT / "workloads"
    if not workloads.is_dir():  # in the repository, not in the bundle
        workloads = ROOT.parents[1] / "workloads"
    serve = [sys.executable, str(workloads / "tenant_inference.py"), "--requests", str(requests), "--tokens", str(tokens)]
    train = [sys.executable, str(workloads / "tenant_training.py"), "--steps", str(steps)]
    return {SERVE: Program(serve, requests * tokens, {}, True), TRAIN: Program(train, steps, {}, True)}


def soft_programs(options, scratch):
    # About the same work for both: on a busy machine both take longer, and whoever survives has enough left to do.
    serve_steps, train_steps = (max(round(number * options.scale), 20) for number in (800, 200))
    plain = scratch / "plain-driver"
    plain.mkdir()
    (plain / "libcuda.so.1").symlink_to(options.softgpu)
    settings = {"LD_LIBRARY_PATH": str(plain)}
    command = [str(options.steps_program), "--progress"]
    serve = [*command, "--steps", str(serve_steps), "--kernels", "40", "--graph", "--pause-us", "1000", "--seed", "1"]
    serve += ["--work", "300"]
    train = [*command, "--steps", str(train_steps), "--kernels", "60", "--streams", "2", "--work", "300", "--seed", "2"]
    return {SERVE: Program(serve, serve_steps, settings, False), TRAIN: Program(train, train_steps, settings, False)}


class Run:
    """A program that was started, and the times of its steps."""

    def __init__(self, program, folder, settings, prefix=()):
        folder.mkdir(parents=True)
        self.program, self.out, self.log = program, folder / "out", folder / "log"
        command = [*prefix, *program.command, *(["--out", str(self.out)] if program.has_out else [])]
        self.times, self.last_line = [], ""
        self.started = time.monotonic()
        with self.log.open("wb") as errors:
            self.child = subprocess.Popen(
                command,
                env=clean_environment() | settings,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            if line.startswith(b"step "):
                self.times.append(time.monotonic())
            self.last_line = line.decode(errors="replace").strip()

    @property
    def pid(self):
        return self.child.pid

    @property
    def done(self):
        return len(self.times) / self.program.steps

    def has_ended(self):
        return self.child.poll() is not None

    def wait(self, deadline):
        """Its end, or by force at the deadline; returns whether it ended well."""
        try:
            self.child.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        self.reader.join(GONE_LIMIT)
        return self.child.returncode == 0

    def kill(self):
        """Ends it, and whatever it started."""
        if self.child.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
            try:
                self.child.wait(LEFT_LIMIT)
            except subprocess.TimeoutExpired:  # the kernel's driver does not let go of it
                pass
        self.reader.join(GONE_LIMIT)

    def sha256(self):
        """Of what it computed: its file, or else its last line."""
        if not self.program.has_out:
            return hashlib.sha256(self.last_line.encode()).hexdigest()
        content = self.out.read_bytes() if self.out.exists() else b""
        return hashlib.sha256(content).hexdigest() if content else None

    def longest_gap(self, around=None):
        """Seconds between two steps at most, or between those around that time; None if there are none."""
        pairs = zip(self.times, self.times[1:])
        gaps = [later - earlier for earlier, later in pairs if around is None or earlier <= around <= later]
        return round(max(gaps), 3) if gaps else None

    def record(self):
        """For the report."""
        return {
            "pid": self.pid,
            "exit_code": self.child.returncode,
            "steps": len(self.times),
            "sha256": self.sha256() if self.child.returncode == 0 else None,
            "seconds": round((self.times[-1] if self.times else time.monotonic()) - self.started, 2),
            "until_first_step": round(self.times[0] - self.started, 2) if self.times else None,
            "longest_gap_s": self.longest_gap(),
            "errors_tail": self.log.read_text(errors="replace")[-TAIL_CHARACTERS:],
        }


class Screen:
    """`detshare top` in a terminal of its own, and what it draws there, as an asciicast has it."""

    def __init__(self, detshare):
        self.terminal, end = pty.openpty()
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", *SCREEN, 0, 0))
        self.events, self.started = [], time.monotonic()
        self.child = subprocess.Popen(
            [str(detshare.program), "top"],
            env=clean_environment() | detshare.settings | {"TERM": "xterm-256color"},
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        os.close(end)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                drawn = os.read(self.terminal, 65536)
            except OSError:  # nobody is at the other end any more
                return
            at = round(time.monotonic() - self.started, 3)
            self.events.append([at, "o", drawn.decode(errors="replace")])

    def stop(self):
        """Ends it as a person does, after some seconds at least; returns what it has drawn."""
        time.sleep(max(self.started + SCREEN_SECONDS - time.monotonic(), 0))
        os.write(self.terminal, b"q")
        try:
            self.child.wait(GONE_LIMIT)
        except subprocess.TimeoutExpired:
            pass
        self.kill()
        return self.events

    def kill(self):
        if self.child.poll() is None:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait(LEFT_LIMIT)
        self.reader.join(GONE_LIMIT)


def die_with_parent():
    PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL)


def run_alone(program, folder, runs, deadline):
    run = Run(program, folder, program.plain_settings)
    runs.append(run)
    ended_well = run.wait(min(deadline, time.monotonic() + ALONE_LIMIT))
    record = run.record()
    if not ended_well or not record["sha256"]:
        raise Failed(f"alone, {shlex.join(program.command)} failed: {record['exit_code']}, {record['errors_tail']}")
    if record["steps"] != program.steps:
        raise Failed(f"alone, {shlex.join(program.command)} did {record['steps']} of {program.steps} steps")
    return record


# The passes.


def run_pass(one, programs, scratch, detshare, runs, alone, deadline):
    """Both programs together; returns what was found, with everything that is wrong in `failures`."""
    started = time.monotonic()
    deadline = min(deadline, started + PASS_LIMIT)
    found = {"name": one.name, "policy": one.policy, "isolation": one.isolation, "killed": one.victim}
    failures = found["failures"] = []
    sampler, screen, mine = None, None, {}
    try:
        found["status"] = detshare.serve(one, failures)
        sampler = Sampler(detshare)
        for name, program in programs.items():
            mine[name] = start_tenant(name, program, scratch / one.name / name, detshare, runs)
        wait_for_the_middle(one.victim, mine, deadline)
        found["top"] = detshare.ask("top", "--once")
        found["ps"] = detshare.tenants()
        screen = Screen(detshare) if one.victim != DAEMON else None
        if one.victim == DAEMON:
            found["restart"] = restart_daemon(one, mine, detshare, failures)
        elif one.victim:
            found["restart"] = restart_tenant(one.victim, programs, mine, detshare, runs, failures)
        if screen:
            found["screen"] = screen.stop()
            drawn = "".join(text for _, _, text in found["screen"])
            if not all(name in drawn for name in mine):
                failures.append("`detshare top` in a terminal does not show the tenants")
        for name, run in mine.items():
            if not run.wait(deadline):
                failures.append(f"{name} ended with {run.child.returncode}: {last_line(run.log)}")
        if not detshare.until(lambda: not detshare.tenants(), GONE_LIMIT):
            failures.append("tenants are listed that have ended")
    except Failed as error:
        failures.append(str(error))
    for run in [*mine.values(), *filter(None, [screen])]:
        run.kill()
    if sampler:
        sampler.stop()
        found |= {"samples": sampler.lines, "seen": sampler.seen(mine)}
        found["runs"] = {name: run.record() for name, run in mine.items()}
        judge(one, mine, alone, found)
    found["seconds"] = round(time.monotonic() - started, 1)
    return found


def start_tenant(name, program, folder, detshare, runs):
    prefix = [str(detshare.program), "run", "--class", CLASSES[name], "--name", name, "--"]
    run = Run(program, folder, detshare.settings, prefix)
    runs.append(run)
    return run


def wait_for_the_middle(victim, mine, deadline):
    """Until all have begun, and whoever is to be killed has done a part of its work; the daemon, when all have, or one half."""
    killed = [mine[victim]] if victim in mine else list(mine.values())

    def is_middle():
        if any(len(run.times) < STARTED for run in mine.values()):
            return False
        is_late = victim not in mine and any(run.done >= LATE for run in mine.values())
        return is_late or all(run.done >= MIDDLE for run in killed)

    while not is_middle():
        for name, run in mine.items():
            if run.has_ended():
                raise Failed(f"{name} ended before the middle, with {run.child.returncode}: {last_line(run.log)}")
        if time.monotonic() > deadline:
            raise Failed(f"no middle: {', '.join(f'{name} at {run.done:.0%}' for name, run in mine.items())}")
        time.sleep(0.02)


def restart_tenant(victim, programs, mine, detshare, runs, failures):
    killed, survivor = mine[victim], next(run for name, run in mine.items() if name != victim)
    os.kill(killed.pid, signal.SIGKILL)
    at = time.monotonic()
    killed.kill()
    if survivor.has_ended():
        failures.append("nobody was left to survive: the programs' sizes do not match, try another --scale")
    is_gone = detshare.until(lambda: all(tenant["pid"] != killed.pid for tenant in detshare.tenants()), GONE_LIMIT)
    gone_after = time.monotonic() - at
    if not is_gone:
        failures.append(f"{victim} is still listed {GONE_LIMIT} s after its death")
    again = mine[victim] = start_tenant(victim, programs[victim], killed.out.parent / "again", detshare, runs)
    # Until the new one works as well, or has ended.
    detshare.until(lambda: again.times or again.has_ended() or survivor.has_ended(), COMMAND_LIMIT)
    shared_again = bool(again.times) and not survivor.has_ended()
    if not shared_again:
        failures.append(f"{victim}, started again, never worked beside the survivor")
    return {
        "killed_at_step": len(killed.times),
        "survivor_at_step": sum(step <= at for step in survivor.times),
        "off_the_list_after_s": round(gone_after, 3),
        "survivors_gap_at_kill_s": survivor.longest_gap(at),
        "shared_again": shared_again,
    }


def restart_daemon(one, mine, detshare, failures):
    before = detshare.status()
    pids = {run.pid for run in mine.values()}
    detshare.kill_daemon(before)
    at = time.monotonic()
    steps = {name: len(run.times) for name, run in mine.items()}
    # They go on with nobody to look after them.
    went_on = detshare.until(lambda: all(len(run.times) > steps[name] for name, run in mine.items()), GONE_LIMIT)
    if not went_on:
        failures.append("a tenant did not go on without the daemon")
    detshare.up(one)
    up_after = time.monotonic() - at
    is_back = detshare.until(lambda: pids <= {tenant["pid"] for tenant in detshare.tenants()}, GONE_LIMIT)
    back_after = time.monotonic() - at
    if not is_back:
        failures.append(f"the tenants are not listed again {GONE_LIMIT} s after the daemon is back")
    after = detshare.status()
    mps = {when: (status.get("mps") or {}).get("pid") for when, status in (("before", before), ("after", after))}
    if mps["before"] != mps["after"]:
        failures.append(f"MPS is another one after the daemon's restart: {mps}")
    return {
        "killed_at_steps": steps,
        "daemon_up_after_s": round(up_after, 3),
        "listed_again_after_s": round(back_after, 3),
        "mps_pids": mps,
        "survivors_gap_at_kill_s": max((run.longest_gap(at) or 0 for run in mine.values()), default=None),
    }


def judge(one, mine, alone, found):
    """Adds to the failures what the programs and the samples show."""
    failures, seen = found["failures"], found["seen"]
    found["bits_equal"] = all(found["runs"][name]["sha256"] == alone[name]["sha256"] for name in mine)
    if any(run.child.returncode != 0 for run in mine.values()):
        return  # which has been said
    if not found["bits_equal"]:
        failures.append("bits differ from alone")
    survivors = [run for name, run in mine.items() if name != one.victim]
    gaps = [gap for run in survivors if (gap := run.longest_gap()) is not None]
    found["survivors_longest_gap_s"] = max(gaps, default=None)
    if gaps and max(gaps) > LONGEST_GAP:
        failures.append(f"a survivor did nothing for {max(gaps)} s")
    for name, tenant in seen.items():
        if not tenant["samples"]:
            failures.append(f"{name} was never listed")
        elif one.isolation == "mps" and tenant["mps_client"] is not True:
            failures.append(f"{name} is not known as a client of MPS")
        if tenant["doubts"]:
            failures.append(f"{name} has published what cannot be")
    if one.policy == "exclusive" and not sum(tenant["holds"] for tenant in seen.values()):
        failures.append("nobody was ever held")
    lanes = {lane for tenant in seen.values() for lane in tenant["lanes"]}
    if one.policy == "fair" and not lanes - {"full"}:
        failures.append("nobody ever had a part of the GPU only")
    if one.isolation == "process" and lanes - {"full"}:
        failures.append("somebody had a part of the GPU where SMs cannot be partitioned")


# The report.


def machine():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        gpu = subprocess.run(query, capture_output=True, text=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        gpu = ""
    return {"gpu": gpu or None, "cpus": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}


def last_line(path):
    lines = read_text(path).strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def summary(report, fine, wanted):
    gaps = [gap for each in report["passes"] if (gap := each.get("survivors_longest_gap_s")) is not None]
    if report["passed"]:
        return f"{fine} passes with the same bits as alone; survivors' longest gap {max(gaps, default=0):.3f} s; nothing left"
    return f"{fine} of {wanted} passes are fine; {'; '.join(report['failures'])[:600]}"


def print_report(report):
    for each in report["passes"][:1]:
        print("\n" + each.get("top", ""))
    rows = [("pass", "bits equal", "holds", "lanes", "mps client", "gap s", "at kill s", "seconds")]
    for each in report["passes"]:
        seen = each.get("seen", {})
        cells = [{"holds": "-", "lanes": ["-"], "mps_client": "-"} | seen.get(name, {}) for name in CLASSES]
        rows.append((
            each["name"],
            {True: "yes", False: "NO"}.get(each.get("bits_equal"), "-"),
            "/".join(str(cell["holds"]) for cell in cells),
            " / ".join("+".join(cell["lanes"]) for cell in cells),
            "/".join({True: "yes", False: "NO", None: "-"}.get(cell["mps_client"], "-") for cell in cells),
            str(each.get("survivors_longest_gap_s", "-")),
            str(each.get("restart", {}).get("survivors_gap_at_kill_s", "-")),
            str(each["seconds"]),
        ))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip())
    print(f"(holds, lanes and MPS: {' / '.join(CLASSES)}; of what was started again, the second process)")
    for failure in report["failures"]:
        print(f"FAILED {failure}")
    print(report["summary"], flush=True)


if __name__ == "__main__":
    sys.exit(main())
