"""All that is measured of LLM servers, in three parts that each fit into one short stay on a GPU machine.

What matters most comes first, in each part and of the parts. Each leaves three files in its folder: `part-N.txt`, its tables, which
are also printed last; `part-N.json`, what every run found; `part-N.tar.gz`, all that the runs left, with every request and step. What does
not fit into --limit is left out, the last arms first, and that is said; who ends the script by SIGTERM gets what was measured until then.
The first two parts end with the rates that are half load: given to the third, it sends servers the same requests.
"""

import argparse
import collections
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import sharing

ROOT = Path(__file__).resolve().parent
TRACES = ROOT / "traces"
CONVERSATION = "azure-llm-2023-conv.csv"
SKIPPED = 500  # conversations, as the benchmark does
LOAD = 0.5

# Seconds. Of each part, and of it what is kept for packing; all together are 25 minutes.
LIMITS = {1: 530, 2: 530, 3: 440}
PACKING = 5
# What a run is started for at least; less would only be cut short.
LEAST = 20
# What one server takes that is started by itself, with its model made.
SERVER_SECONDS = 30
PHASES_SECONDS = 70

WIDTHS = (32, 64, 96)
WIDTH_SECONDS = 4
# A benchmark that was told how long it may take ends by itself, about; this is for one that does not, and to end then.
OVERTIME = 15


@dataclass(frozen=True)
class Sizes:
    """How long things are measured."""

    train: int = 60
    train_again: int = 20
    servers: int = 14
    servers_again: int = 10
    three: int = 8
    loads: str = "0.5,0.3,0.7"
    other_load: str = "0.7"
    load: str = str(LOAD)
    isolation: str = "mps"
    phase_isolation: str = "mps"
    phase_requests: int = 60


# To see that all of it runs, where there is no GPU.
SMALL = Sizes(1, 1, 1, 1, 1, "0.5", "0.5", "0.5", "process", "none", 12)


class Stopped(Exception):
    """Somebody wants the script to end."""


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


class Part:
    """What was run, and what came of it."""

    def __init__(self, options):
        self.options = options
        self.sizes = SMALL if options.small else Sizes()
        self.deadline = time.monotonic() + options.limit - PACKING
        self.folder = options.out / "runs"
        self.report = {"part": options.part, "command": sys.argv, "runs": {}, "verdicts": [], "said": []}
        self.tables, self.failed, self.is_stopped = [], False, False

    def left(self):
        return 0 if self.is_stopped else self.deadline - time.monotonic()

    def lacks(self, seconds):
        return self.left() < (1 if self.options.small else seconds)

    def say(self, line):
        self.report["said"].append(line)
        print(line, flush=True)

    def bench(self, name, scenario, arms, seconds, load, reserve=0, rates=None):
        """Runs the benchmark, with `reserve` seconds left for what comes after it; what it found, or nothing."""
        limit = self.left() - reserve
        if limit < LEAST:
            self.say(f"{name}: left out, {limit:.0f} s are left")
            return None
        folder = self.folder / name
        command = [str(self.options.detshare), "bench", scenario, "--workloads", str(self.options.workloads)]
        command += ["--arms", arms, "--seconds", str(seconds), "--rounds", "1", "--limit", f"{limit:.0f}s"]
        command += ["--isolation", self.sizes.isolation, "--out", str(folder), "--keep", str(folder / "kept")]
        command += ["--load", load, *(["--rates", rates] if rates else [])]
        command += ["--trace-folder", str(self.options.trace_folder)] if self.options.trace_folder else []
        ended = self.run(name, command, limit)
        file = folder / "results.json"
        if not file.exists():
            self.failed = True
            self.say(f"{name}: no results, {ended}")
            return None
        results = json.loads(file.read_text())
        self.report["runs"][name] = sharing.without_samples(results)
        self.failed |= results["exit_code"] == 1
        self.tables.append((name, table(results)))
        run = next(run for run in sharing.RUNS if run.name == scenario)
        asked_of = arms.split(",")
        self.report["verdicts"] += [row | {"run": name} for row in sharing.verdicts(run, results) if row["arm"] in asked_of]
        self.write()
        return results

    def run(self, name, command, limit, env=None):
        """How it ended, in words. What takes too long is asked to end, and leaves what it has."""
        print(f"== {name}, {self.left():.0f} s left: {' '.join(map(str, command))}", flush=True)
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
        with subprocess.Popen(command, env=os.environ | (env or {}), **streams) as child:
            try:
                return f"exit code {child.wait(limit + OVERTIME)}"
            except (subprocess.TimeoutExpired, Stopped) as error:
                child.terminate()
                try:
                    child.wait(OVERTIME)
                except subprocess.TimeoutExpired:
                    child.kill()
                if isinstance(error, Stopped):
                    self.is_stopped = self.failed = True
                return "stopped" if self.is_stopped else f"not over within {limit:.0f} s"

    def write(self):
        """After each run, so that one that is cut short leaves what it found."""
        number = self.options.part
        (self.options.out / f"part-{number}.json").write_text(json.dumps(self.report, indent=1) + "\n")
        (self.options.out / f"part-{number}.txt").write_text(self.text())

    def text(self):
        parts = [f"{name}\n{lines}" for name, lines in self.tables]
        return "\n\n".join([*parts, sharing.table(self.report["verdicts"]), "\n".join(self.report["said"])]) + "\n"

    def pack(self):
        self.write()
        if self.folder.exists():
            with tarfile.open(self.options.out / f"part-{self.options.part}.tar.gz", "w:gz") as archive:
                archive.add(self.folder, "runs")
            shutil.rmtree(self.folder)


def first(part):
    """An 8B server beside training, at half load and at a higher one."""
    sizes = part.sizes
    arms = "alone,tpot-first,time-slicing"
    results = part.bench("llm-train", "llm-train", arms, sizes.train, sizes.load, 0, part.options.rates_8b)
    if results:
        say_rates(part, "--rates-8b", results)
        part.bench("llm-train-loads", "llm-train", arms, sizes.train_again, sizes.other_load)
        widths(part, results["replays"][0]["per_second"])


def second(part):
    """Two 1B servers at three loads, and whether their steps are told apart."""
    sizes = part.sizes
    arms = "alone,tpot-first,throughput,time-slicing"
    results = part.bench("llm-llm", "llm-llm", arms, sizes.servers, sizes.loads)
    if results:
        say_rates(part, "--rates-1b", results)
    phases(part)


def third(part):
    """Two servers beside training, and the other ways of sharing."""
    sizes, options = part.sizes, part.options
    part.bench("llm-llm-train", "llm-llm-train", "alone,tpot-first,time-slicing,throughput,slo-aware", sizes.three, sizes.load,
               part.left() * 0.6, options.rates_1b)
    part.bench("llm-train-others", "llm-train", "alone,slo-aware,mps-priority,throughput,mps", sizes.servers_again, sizes.load,
               part.left() * 0.35, options.rates_8b)
    part.bench("llm-llm-others", "llm-llm", "alone,slo-aware,mps", sizes.servers_again, sizes.load, 0, options.rates_1b)


PARTS = {1: first, 2: second, 3: third}


def say_rates(part, flag, results):
    rates = [replay["per_second"] for replay in results["replays"] if replay["load"] == float(part.sizes.load)]
    if rates:
        part.say(f"for part 3: {flag} {','.join(f'{rate:.6g}' for rate in rates)}")


def widths(part, per_second):
    """The steps of an 8B server that has a part of the SMs for good: what the simulator does not know of its graphs."""
    found = {"full": step_times(kept_steps(part.folder / "llm-train" / "kept", "alone", "chat"))}
    for width in WIDTHS:
        if part.lacks(SERVER_SECONDS):
            part.say(f"front{width}: left out, {part.left():.0f} s are left")
            continue
        folder = part.folder / f"front{width}"
        folder.mkdir(parents=True)
        out = folder / "server.json"
        requests = max(round(per_second * WIDTH_SECONDS), 2)
        command = [sys.executable, str(part.options.workloads / "llm_server.py"), "--shape", "8b", "--longest-context", "16384"]
        command += ["--prefill-chunk", "512", "--seed", "1", "--skip", str(SKIPPED), "--requests", str(requests)]
        command += ["--at-rate", str(per_second), "--out", str(out), *conversation(part)]
        env = {"LD_PRELOAD": str(part.options.shim), "DETSHARE_SCHEDULE": f"front{width}", "DETSHARE_STATS": str(folder / "%p.stats")}
        ended = part.run(f"front{width}", command, part.left(), env)
        if not out.exists():
            part.failed = True
            part.say(f"front{width}: no results, {ended}")
            continue
        found[f"front{width}"] = step_times(json.loads(out.read_text())["steps"])
        with gzip.open(folder / "server.json.gz", "wb") as packed:
            packed.write(out.read_bytes())
        out.unlink()
    part.report["step_times"] = found
    lines = [f"{lane:8} {kind:8} {one['steps']:6} steps  p50 {one['p50_ms']:8.3f}  p90 {one['p90_ms']:8.3f} ms"
             for lane, kinds in found.items() for kind, one in kinds.items()]  # fmt: skip
    part.tables.append(("steps of an 8B server by lane", "\n".join(lines)))


def conversation(part):
    folder = part.options.trace_folder
    return ["--trace", str(folder / CONVERSATION)] if folder else ["--synthetic", "conversation"]


def kept_steps(folder, arm, program):
    """A server's steps in the first run of an arm, as the benchmark kept them."""
    for file in sorted(folder.glob(f"{arm}-*{program}.json.gz")):
        with gzip.open(file) as packed:
            return json.load(packed)["server"]["steps"]
    return []


def step_times(steps):
    """By kind and, of decode steps, by their requests."""
    by_kind = collections.defaultdict(list)
    for kind, begin, end, rows, tokens in steps:
        by_kind[kind].append((1000 * (end - begin), rows, tokens))
    found = {}
    for kind, times in sorted(by_kind.items()):
        sizes = collections.defaultdict(list)
        for milliseconds, rows, tokens in times:
            sizes[rows if kind == "decode" else tokens].append(milliseconds)
        all_ms = sorted(milliseconds for milliseconds, *_ in times)
        found[kind] = {"steps": len(all_ms), "p50_ms": quantile(all_ms, 0.5), "p90_ms": quantile(all_ms, 0.9)}
        found[kind]["p50_ms_by_size"] = {size: quantile(sorted(of), 0.5) for size, of in sorted(sizes.items())}
    return found


def quantile(rising, part):
    return round(rising[min(int(len(rising) * part), len(rising) - 1)], 4)


def phases(part):
    if part.lacks(PHASES_SECONDS):
        part.say(f"phases beside a server: left out, {part.left():.0f} s are left")
        return
    part.folder.mkdir(parents=True, exist_ok=True)
    out = part.folder / "phases.json"
    command = [sys.executable, str(ROOT / "phase_accuracy.py"), "--detshare", str(part.options.detshare), "--out", str(out)]
    command += ["--workloads", str(part.options.workloads), "--policy", "tpot-first", "--isolation", part.sizes.phase_isolation]
    command += ["--shape", "1b", "--prefill-chunk", "512", "--company", "server", "--requests", str(part.sizes.phase_requests)]
    folder = part.options.trace_folder
    command += ["--trace", str(folder / CONVERSATION), "--skip", str(SKIPPED)] if folder else []
    ended = part.run("phases", [*command, "--limit", f"{part.left():.0f}"], part.left())
    found = json.loads(out.read_text()) if out.exists() else {"summary": f"no results, {ended}"}
    part.failed |= not out.exists()
    part.report["phases"] = found
    part.say(f"phases: {found['summary']}")


def table(results):
    """Short: what is on the page in full."""
    rows = [["arm", "program", "n", "TTFT p99", "added", "TPOT p99", "added", "mean", "times", "missed", "good/s", "share", "told", "bits"]]
    for arm in results["arms"]:
        rows += [row(arm, program) for program in arm["programs"]] or [[arm["name"], f"no figures: {'; '.join(arm['failures'])[:90]}"]]
    widths_of = [max((len(line[column]) for line in rows if column < len(line) > 2), default=0) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(line, widths_of)).rstrip() for line in rows]
    servers = [f"{one['program']}: {one['requests']} requests, {short(one['per_second'])}/s, load {one['load']}, "
               f"all at once {short(one['saturated'])}/s, busy alone {short(one['busy_alone'])}"
               for one in results["replays"]]  # fmt: skip
    return "\n".join([*lines, *servers, *map(bound, results.get("bounds", [])), results["summary"]])


def row(arm, program):
    service, told = program["service"], program["told_apart"]
    bits = program["bits"]["verdict"] if program["bits"]["verdict"] != "different" else sharing.different(program["bits"])
    share = figure(program["share"], "{:.3f}")
    told = f"{told['right']}/{told['steps']}" if told else "-"
    if not service:
        return [arm["name"], program["program"], *["-"] * 9, share, told, bits]
    ratio = service["latency_ratios"]
    times = f"{ratio['median']:.2f}/{ratio['p99']:.2f}" if ratio else "-"
    missed = "/".join(figure(service[f"{name}_violations"], "{:.0f}") for name in ("ttft", "tpot"))
    cells = [str(program["requests"])]
    for name in ("ttft", "tpot"):
        cells += [figure(service[f"{name}_p99_ms"], "{:.4g} ms"), figure(service[f"{name}_p99_overhead"], "{:+.1%}")]
    cells += [figure(service["mean_latency_ms"], "{:.4g} ms"), times, missed, figure(service["goodput"], "{:.3g}")]
    return [arm["name"], program["program"], *cells, share, told, bits]


def short(number):
    return "-" if number is None else f"{number:.4g}"


def figure(spread, form):
    return form.format(spread["median"]) if spread else "-"


def bound(one):
    def part_of(name):
        return "-" if one[name] is None else f"{one[name]:.1%}"

    ideal = one["ideal"]
    servers = ", ".join(f"{it['program']} {it['times_alone']:.3f}" for it in ideal["servers"]) if ideal else "-"
    most, at_best = part_of("below_time_slicing_at_most"), part_of("ideal_below_time_slicing")
    return f"load {one['load']}: busy {part_of('busy')}; below time-slicing at most {most}, ideal {at_best} (times alone: {servers})"


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", type=int, choices=list(PARTS), required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help=f"for all of the part; without this, {LIMITS}")
    parser.add_argument("--rates-8b", metavar="RATE", help="half load of the server of llm-train, as part 1 says")
    parser.add_argument("--rates-1b", metavar="RATE,RATE", help="half load of the servers of llm-llm, as part 2 says")
    parser.add_argument("--trace-folder", type=Path, default=TRACES if TRACES.is_dir() else None, metavar="DIR",
                        help="without this, traces beside this script, or requests that are made up")  # fmt: skip
    parser.add_argument("--detshare", type=Path, default=ROOT / "bin" / "detshare")
    parser.add_argument("--shim", type=Path, default=ROOT / "lib" / "libdetshare_shim.so")
    parser.add_argument("--workloads", type=Path, default=ROOT / "workloads", metavar="DIR")
    parser.add_argument("--small", action="store_true", help="a second of each, and no MPS under tenants: to see that it runs")
    options = parser.parse_args(arguments)
    options.limit = options.limit or LIMITS[options.part]
    return options


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    part = Part(options)
    signal.signal(signal.SIGTERM, stop)
    try:
        PARTS[options.part](part)
    except Stopped:
        part.failed = True
    finally:
        part.pack()
    print("\n" + part.text())
    return 1 if part.failed else 0


if __name__ == "__main__":
    sys.exit(main())
