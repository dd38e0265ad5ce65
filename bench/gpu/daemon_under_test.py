"""A daemon with a folder and a configuration of its own, and the commands that are given to it; and what was built from what."""

import json
import os
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

# Seconds.
COMMAND_LIMIT = 35
GONE_LIMIT = 5  # until a dead tenant is off the list, or one is back on it
LEFT_LIMIT = 15  # until MPS has ended with the daemon
SAMPLE_EVERY = 0.2

TAIL_CHARACTERS = 3000

# What stands in the configuration for an isolation that cannot be asked for.
CONFIGURED = {"none": "auto"}

# What would make a program a tenant of somebody else, or tell the shim something else.
FOREIGN = ("LD_PRELOAD", "CUDA_MPS_", "XDG_", "DETSHARE_")
KEPT = ("DETSHARE_SHIM", "DETSHARE_DAEMON", "DETSHARE_DRIVER")


def source():
    """What the programs beside this file were built from, as the bundle says."""
    file = Path(__file__).resolve().parent / "source"
    return file.read_text().strip() if file.exists() else "unknown"


class Failed(Exception):
    """A pass cannot go on; what was found so far stays."""


@dataclass(frozen=True)
class Wanted:
    """What a daemon is to be configured with."""

    policy: str = "slo-aware"
    isolation: str = "process"
    # Within what time best-effort kernels are to give way; None for the daemon's own.
    turnaround: str | None = None


class DetShare:
    """The command line, with a folder and a configuration of its own."""

    def __init__(self, options, scratch, deadline):
        self.program, self.deadline = options.detshare, deadline
        self.folder, self.config = scratch / "run", scratch / "detshare.toml"
        settings = {"DETSHARE_DIR": self.folder, "DETSHARE_CONFIG": self.config, "XDG_STATE_HOME": scratch / "state"}
        self.settings = {name: str(value) for name, value in settings.items()}
        if options.softgpu:
            self.settings["DETSHARE_DRIVER"] = str(options.softgpu)
        self.is_up, self.isolation, self.daemons = False, None, []

    def call(self, *arguments, limit=COMMAND_LIMIT):
        """Runs a command; returns its exit code and what it printed, on both streams."""
        command, env = [str(self.program), *arguments], clean_environment() | self.settings
        try:
            # Into files: a daemon that it starts must not keep a pipe of ours open.
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
                streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": errors}
                code = subprocess.run(command, env=env, timeout=limit, **streams).returncode
                for stream in (out, errors):
                    stream.seek(0)
                return code, out.read().decode(errors="replace"), errors.read().decode(errors="replace")
        except subprocess.TimeoutExpired:
            return None, "", f"no answer within {limit:.0f} s"

    def ask(self, *arguments):
        """What a command prints; it must succeed."""
        code, out, errors = self.call(*arguments)
        if code != 0:
            raise Failed(f"detshare {shlex.join(arguments)}: exit code {code}, {errors.strip()}")
        return out

    def status(self):
        return json.loads(self.ask("status", "--format", "json"))

    def tenants(self):
        return json.loads(self.ask("ps", "--format", "json"))

    def until(self, is_so, limit):
        """Whether it came to be so in time."""
        end = min(time.monotonic() + limit, self.deadline)
        while not is_so():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def serve(self, one, failures):
        """A daemon runs with what the pass wants; returns its status."""
        if self.is_up and self.isolation != one.isolation:
            failures += self.down()
        if self.is_up and self.call("status")[0] == 0:
            self.configure(one)
        else:
            self.up(one)
        if not self.until(lambda: self.status()["policy"] == one.policy, GONE_LIMIT):
            failures.append("the daemon did not read its changed configuration")
            self.ask("policy", one.policy)
        status = self.status()
        if status["isolation"] != one.isolation:
            failures.append(f"isolation is {status['isolation']}, not {one.isolation}")
        if one.isolation == "mps" and (status.get("mps") or {}).get("state") != "running":
            failures.append(f"MPS does not run: {status.get('mps')}")
        return status

    def configure(self, one):
        isolation = CONFIGURED.get(one.isolation, one.isolation)
        # In one go: the daemon may look at any time.
        draft = self.config.with_suffix(".draft")
        lines = [f'policy = "{one.policy}"', f'isolation = "{isolation}"']
        # Others than `Wanted` have no wish.
        if turnaround := getattr(one, "turnaround", None):
            lines += ["[classes.best-effort]", f'turnaround = "{turnaround}"']
        draft.write_text("\n".join(lines) + "\n")
        draft.rename(self.config)

    def up(self, one):
        self.configure(one)
        self.is_up, self.isolation = True, one.isolation
        said = self.ask("up")
        code, doctor, _ = self.call("doctor")
        self.daemons.append({"up": said.strip(), "status": self.status(), "doctor": doctor, "doctor_exit_code": code})

    def kill_daemon(self, status):
        # It is ours by its folder.
        if Path(status["folder"]).resolve() != self.folder.resolve():
            raise Failed(f"the daemon that answers is another one's: {status['folder']}")
        os.kill(status["pid"], signal.SIGKILL)

    def down(self):
        """Stops the daemon; returns what is wrong or left then."""
        self.is_up = False
        code, _, errors = self.call("down")
        failures = [] if code == 0 else [f"detshare down: exit code {code}, {errors.strip()}"]
        end = time.monotonic() + LEFT_LIMIT
        while (left := self.left()) and time.monotonic() < end:
            time.sleep(0.05)
        failures += [f"left after `detshare down`: {each}" for each in left]
        if self.daemons:
            self.daemons[-1]["log_tail"] = read_text(self.folder / "detshared.log")[-TAIL_CHARACTERS:]
            self.daemons[-1]["files_left"] = sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*"))
        return failures

    def left(self):
        """Processes with our folder in their environment, and sockets in it that somebody listens at."""
        left = [f"process {pid} ({name})" for pid, name in self.processes().items()]
        for path in self.folder.rglob("*"):
            if path.name in ("daemon.sock", "tenants.sock") or (path.is_socket() and is_listened_at(path)):
                left.append(str(path.relative_to(self.folder)))
        return left

    def processes(self):
        ours, found = os.fsencode(self.folder), {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    if ours in (entry / "environ").read_bytes():
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:80]
                except OSError:  # it has ended, or is another user's
                    pass
        return found

    def sweep(self):
        """Ends by force whatever is still there of what was started here; each is a failure."""
        left = self.processes()
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        return [f"had to be killed: process {pid} ({name})" for pid, name in left.items()]


def is_listened_at(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        try:
            client.connect(str(path))
        except OSError:
            return False
    return True


SAMPLE_COLUMNS = "seconds name pid busy holding lane lane_width holds steps/s p50_ms p99_ms launches memory_mib mps_client"


class Sampler(threading.Thread):
    """Looks at the tenants several times in a second."""

    def __init__(self, detshare):
        super().__init__(daemon=True)
        self.detshare, self.lines, self.tenants = detshare, [], {}
        self.began, self.ending = time.monotonic(), threading.Event()
        self.start()

    def run(self):
        while not self.ending.wait(SAMPLE_EVERY):
            try:
                tenants = self.detshare.tenants()
            except (Failed, ValueError):  # while there is no daemon
                continue
            for tenant in tenants:
                self.take(tenant)

    def take(self, tenant):
        one = self.tenants.setdefault(
            tenant["pid"], {"samples": 0, "lanes": set(), "holds": 0, "mps_client": None, "doubts": False}
        )
        one["samples"] += 1
        one["lanes"].add(tenant["lane"])
        one["holds"] = max(one["holds"], tenant["holds"])
        one["doubts"] |= tenant["doubts"]
        # Nothing before somebody has looked; a daemon that has just come has not.
        if tenant["mps_client"] is not None:
            one["mps_client"] = tenant["mps_client"]
        milliseconds = ["-" if ns is None else f"{ns / 1e6:.3f}" for ns in (tenant["step_p50_ns"], tenant["step_p99_ns"])]
        words = [
            f"{time.monotonic() - self.began:.2f}", tenant["name"], tenant["pid"], int(tenant["busy"]),
            int(tenant["holding"]), tenant["lane"], tenant["lane_width"], tenant["holds"],
            f"{tenant['steps_per_second']:.1f}", *milliseconds, tenant["launches"], tenant["memory"] >> 20,
            tenant["mps_client"],
        ]  # fmt: skip
        self.lines.append(" ".join(map(str, words)))

    def stop(self):
        self.ending.set()
        self.join(COMMAND_LIMIT)

    def seen(self, mine):
        """What was seen of each program's last process."""
        nothing = {"samples": 0, "lanes": set(), "holds": 0, "mps_client": None, "doubts": False}
        seen = {name: self.tenants.get(run.pid, nothing) for name, run in mine.items()}
        return {name: tenant | {"lanes": sorted(tenant["lanes"])} for name, tenant in seen.items()}


def clean_environment():
    return {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(FOREIGN)}


def read_text(path):
    return path.read_text(errors="replace") if path.exists() else ""
