"""Run every GPU check of the bundle and say which ones passed.

The bundle is the folder this file lies in: lib/ holds the shim, workloads/ unmodified CUDA
programs, and bin/ executables, listed in bin/checks.json. A workload passes if it computes the same
bits with the shim as without it, and the shim counts the launches that the framework's own profiler
counts. An executable passes if it exits with 0; 77 means that it skipped itself.

With --jobs, checks of results run beside one another; those that measure time come last, alone.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from daemon_under_test import source

ROOT = Path(__file__).resolve().parent
LIBRARY_FOLDER = ROOT / "lib"
SHIM = LIBRARY_FOLDER / "libdetshare_shim.so"
STUB_DRIVER = ROOT / "bin" / "libdetshare_stub_driver.so"
EXECUTABLE_CHECKS = ROOT / "bin" / "checks.json"
TAIL_CHARACTERS = 4000
# The checks' processes that run now, each the leader of a group.
RUNNING = set()
NO_GPU = {"verdict": "skipped", "seconds": 0.0, "detail": "no GPU"}

# Each workload: the variable that loads the shim in the run that is compared with the plain one,
# and the time limit of its three runs together, in seconds.
WORKLOADS = {
    "torch_eager": ("LD_LIBRARY_PATH", 180),
    "torch_graphs": ("LD_PRELOAD", 180),
    "torch_compile": ("LD_PRELOAD", 300),
    "jax_train": ("LD_PRELOAD", 180),
    "cupy_kernels": ("LD_LIBRARY_PATH", 180),
}

# Loads the driver as any program would, and prints where it lies and whether it finds a GPU.
DRIVER_PROBE = """
import ctypes, json
driver = ctypes.CDLL("libcuda.so.1")
paths = [line.split()[-1] for line in open("/proc/self/maps") if "libcuda.so" in line]
print(json.dumps({"path": paths[0], "cuInit": driver.cuInit(0)}))
"""


def main():
    signal.signal(signal.SIGTERM, end_all)
    driver = json.loads(output_of([sys.executable, "-c", DRIVER_PROBE]) or "{}")
    has_gpu = Path("/dev/nvidia0").exists() or driver.get("cuInit") == 0
    checks = {name: partial(check_workload, name) for name in WORKLOADS}
    timed = set()
    for entry in read_json(EXECUTABLE_CHECKS) or []:
        checks[entry["name"]] = partial(check_executable, entry, driver.get("path"))
        if entry.get("timed"):
            timed.add(entry["name"])
    options = parse_arguments(checks)
    options.out.mkdir(parents=True, exist_ok=True)
    if not has_gpu:
        print("skipped: no GPU", flush=True)
    if not EXECUTABLE_CHECKS.exists():
        print("no bin/checks.json, so no executables to run", flush=True)

    results = []
    report = {"source": source(), "machine": machine(driver), "command": shlex.join(sys.argv), "checks": results}
    names = [name for name in checks if name in options.only]
    for name, result in run_all(names, checks, timed, options.jobs if has_gpu else 0):
        results.append({"name": name, **result})
        progress = f"[{len(results)}/{len(names)}] {name}: {result['verdict']}"
        print(f"{progress} in {result['seconds']} s; {result['detail']}", flush=True)
        # Written after each check, so that a run that is cut short leaves what it found.
        text = json.dumps(report, indent=1).replace(str(ROOT), "BUNDLE")
        (options.out / "results.json").write_text(text + "\n")

    print("\n" + table(results))
    verdicts = [result["verdict"] for result in results]
    print(", ".join(f"{verdicts.count(v)} {v}" for v in ("passed", "failed", "skipped")))
    return 1 if "failed" in verdicts else 0


def parse_arguments(checks):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default="gpu-results", metavar="DIR")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="checks at once")
    parser.add_argument("--only", default=",".join(checks), metavar="NAME[,NAME]")
    options = parser.parse_args()
    options.only = options.only.split(",")
    unknown = [name for name in options.only if name not in checks]
    if unknown:
        parser.error(f"no check {', '.join(unknown)}; there are {', '.join(checks)}")
    return options


def run_all(names, checks, timed, jobs):
    """Yield each check's name and result as it ends; with no jobs, all of them are skipped."""
    if jobs == 0:
        yield from ((name, NO_GPU) for name in names)
        return
    with ThreadPoolExecutor(jobs) as pool:
        beside = {pool.submit(run_check, checks[name]): name for name in names if name not in timed}
        yield from ((beside[done], done.result()) for done in as_completed(beside))
    yield from ((name, run_check(checks[name])) for name in names if name in timed)


def run_check(check):
    """Run a check in a scratch folder of its own, and time it."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        try:
            result = check(Path(scratch))
        except Exception as error:  # say, a program that cannot start: the other checks still run
            result = {"verdict": "failed", "detail": f"{type(error).__name__}: {error}"}
    return {"seconds": round(time.monotonic() - started, 1), **result}


def check_workload(name, scratch):
    shim_variable, limit_s = WORKLOADS[name]
    deadline, runs = time.monotonic() + limit_s, {}
    for label, variable in (("plain", None), ("shim", shim_variable), ("profiled", "LD_PRELOAD")):
        runs[label] = run_workload(name, label, variable, scratch / label, deadline)
        if runs[label]["exit_code"] != 0:
            break
    verdict, detail = judge_workload(runs)
    return {"verdict": verdict, "detail": detail, "runs": runs}


def run_workload(name, label, shim_variable, folder, deadline):
    folder.mkdir()
    out, profile = folder / "out", folder / "profile.json"
    command = [sys.executable, str(ROOT / "workloads" / f"{name}.py"), "--out", str(out)]
    if label == "profiled":
        command += ["--profile", str(profile)]
    settings = shim_settings(shim_variable, folder) | {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }
    run = run_child(command, settings, folder / "log", deadline - time.monotonic())
    return run | {
        "sha256": digest(out),
        # Helpers that the program starts write stats too: only its own count.
        "shim_stats": read_json(folder / f"stats-{run['pid']}.json"),
        "profile": read_json(profile),
    }


def shim_settings(variable, folder):
    """The environment variables that load the shim by `variable`, or none for a plain run."""
    if variable is None:
        return {}
    value = str(SHIM)
    if variable == "LD_LIBRARY_PATH":
        value = ":".join(filter(None, [str(LIBRARY_FOLDER), clean_environment().get(variable)]))
    return {variable: value, "DETSHARE_STATS": str(folder / "stats-%p.json")}


def judge_workload(runs):
    """The verdict on a workload's runs, and one line that says why."""
    for label, run in runs.items():
        if run["exit_code"] != 0:
            return "failed", f"{label} run: {run['ended']}"
        if label != "plain" and not (run["shim_stats"] and run["shim_stats"]["counts"]["launches"]):
            return "failed", f"{label} run: the shim counted no launches"
    same_bits = runs["plain"]["sha256"] == runs["shim"]["sha256"] is not None
    findings = {"bits equal" if same_bits else "bits differ": same_bits}
    counted, recorded = runs["profiled"]["shim_stats"]["counts"], runs["profiled"]["profile"]
    for word, key in (("launches", "launches"), ("graphs", "graph_launches")):
        equal = counted[key] == recorded[key]
        findings[f"{word} {counted[key]} {'=' if equal else '!='} {recorded[key]}"] = equal
    return "passed" if all(findings.values()) else "failed", "; ".join(findings)


def check_executable(entry, driver, scratch):
    out = scratch / "figures.json"
    command = entry["command"]
    placeholders = {"{shim}": SHIM, "{driver}": driver, "{stub}": STUB_DRIVER, "{out}": out}
    for placeholder, path in placeholders.items():
        command = [item.replace(placeholder, str(path)) for item in command]
    run = run_child(command, {}, scratch / "log", entry["timeout_s"])
    verdict = {0: "passed", 77: "skipped"}.get(run["exit_code"], "failed")
    figures = read_json(out) or {}
    summary = figures.get("summary")
    remarks = [summary] if summary and verdict != "failed" else [run["ended"], summary]
    detail = "; ".join(filter(None, remarks))
    return {"verdict": verdict, "detail": detail, "run": run, "figures": figures}


def run_child(command, settings, log, limit_s):
    """Run a command in the bundle's root; past its limit, end it and all that it started."""
    started = time.monotonic()
    with log.open("wb") as output:
        streams = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
        env = clean_environment() | settings
        child = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True, **streams)
        RUNNING.add(child.pid)
        try:
            exit_code = child.wait(max(limit_s, 0))
            ended = f"exit code {exit_code}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            exit_code, ended = None, "stopped at its time limit"
        finally:
            RUNNING.discard(child.pid)
    return {
        "command": command,
        "settings": settings,
        "pid": child.pid,
        "exit_code": exit_code,
        "ended": ended,
        "seconds": round(time.monotonic() - started, 1),
        "output_tail": log.read_text(errors="replace")[-TAIL_CHARACTERS:],
    }


def end_all(number, _frame):
    """Who is told to stop stops what it started: it would disturb whatever is measured next."""
    for group in list(RUNNING):
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os._exit(128 + number)


def clean_environment():
    """This process's environment, without whatever would load a shim or set one up."""
    ours = ("LD_PRELOAD", "LD_LIBRARY_PATH", "DETSHARE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders = [f for f in folders if f and Path(f).resolve() != LIBRARY_FOLDER]
    return kept | ({"LD_LIBRARY_PATH": ":".join(folders)} if folders else {})


def output_of(command):
    """What a command prints, or an empty text if it is not there or fails."""
    try:
        return subprocess.run(
            command, env=clean_environment(), capture_output=True, check=True, text=True, timeout=60
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def machine(driver):
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, _, driver_version = output_of(query).partition("\n")[0].partition(", ")
    return {
        "gpu": gpu or None,
        "driver_version": driver_version or None,
        "driver_path": driver.get("path"),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def digest(path):
    """The SHA-256 of a file, or None where there is nothing to compare."""
    content = path.read_bytes() if path.exists() else b""
    return hashlib.sha256(content).hexdigest() if content else None


def read_json(path):
    return json.loads(path.read_text()) if path.exists() else None


def table(results):
    rows = [("check", "verdict", "seconds", "detail")]
    rows += [(r["name"], r["verdict"], str(r["seconds"]), r["detail"]) for r in results]
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{row[0]:{width}}  {row[1]:7}  {row[2]:>7}  {row[3]}" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
