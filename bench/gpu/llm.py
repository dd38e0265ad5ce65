"""All that is measured of LLM servers, in three parts that each fit into one command of a short stay on a GPU machine.

What matters most comes first, in each part and of the parts: a server beside a training at half load, in all ways of sharing; two servers
at half load and above; then what the first two had no time for, a third load, both servers beside a training, and a server on few SMs.
How many requests a load is is found out first, and llm_plan.py says what fits into --limit and for how long; what does not is left out,
and that is said. Each part leaves three files in its folder: `part-N.txt`, its tables, which are also printed last; `part-N.json`, what
every run found; `part-N.tar.gz`, all that the runs left, with every request and step. Who ends the script by SIGTERM gets what was
measured until then. Each part ends with a line of what is known by then, for the --known of those after it.
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
import traceback
from pathlib import Path

import llm_plan
import sharing
from llm_plan import ALONE, Wanted
from sharing import OVERTIME, Stopped

ROOT = Path(__file__).resolve().parent
TRACES = ROOT / "traces"
CONVERSATION = "azure-llm-2023-conv.csv"
SKIPPED = 500  # conversations, as the benchmark does

# Seconds. All together, with a minute until the machine is there, are 25 minutes; the first two, with 440 for the second, 18.
LIMITS = {1: 585, 2: 490, 3: 350}
PACKING = 10  # of that
# What a run is started for at least; less would only be cut short.
LEAST = 20

WIDTHS = (64, 96, 32)
# What a server takes that is started by itself, with its model made; and what it is sent.
WIDTH_SECONDS = 26
WIDTH_REQUESTS, WIDTH_RATE = 8, 2

# Where rates of one scenario are those of another: the same servers with the same part of the load.
SIZES = {"llm-train": "8b", "llm-llm": "1b", "llm-llm-train": "1b"}
LOADS = {"llm-train": (0.5, 0.7), "llm-llm": (0.5, 0.7, 0.9)}
BESIDE_TRAINING = (ALONE, "tpot-first", "time-slicing")
TOGETHER = (ALONE, "tpot-first", "throughput", "time-slicing")

# By part, what matters most first.
FIRST = [
    Wanted("llm-train", 0.5, BESIDE_TRAINING),
    *(Wanted("llm-train", 0.5, (arm,)) for arm in ("slo-aware", "mps-priority", "throughput", "mps")),
]
SECOND = [
    Wanted("llm-llm", 0.5, TOGETHER),
    Wanted("llm-llm", 0.7, TOGETHER),
    *(Wanted("llm-llm", 0.5, (arm,)) for arm in ("slo-aware", "mps")),
    Wanted("llm-llm", 0.9, TOGETHER),
]
THIRD = [
    Wanted("llm-llm-train", 0.5, BESIDE_TRAINING),
    *(Wanted("llm-llm-train", 0.5, (arm,)) for arm in ("throughput", "slo-aware")),
    Wanted("llm-train", 0.7, BESIDE_TRAINING),
]


class Part:
    """What was run, and what came of it."""

    def __init__(self, options):
        self.options = options
        self.deadline = time.monotonic() + options.limit - PACKING
        self.folder = options.out / "runs"
        self.known = merged(options.known)
        self.report = {"part": options.part, "command": sys.argv, "plan": [], "runs": {}, "verdicts": [], "missing": [], "said": []}
        self.tables, self.failed, self.is_stopped = [], False, False

    def left(self):
        return 0 if self.is_stopped else self.deadline - time.monotonic()

    def say(self, line):
        self.report["said"].append(line)
        print(line, flush=True)

    def lacks(self, line):
        """Says what is not there of all that was wanted."""
        self.report["missing"].append(line)
        print(f"missing: {line}", flush=True)

    def rates_of(self, scenario, load):
        return self.known["rates"].get(SIZES[scenario], {}).get(str(load))

    def run_all(self, wanted, spare=0):
        """As many of these as there is time for, with `spare` seconds left before any is longer than it needs to be."""
        if self.options.small:
            wanted = [one for one in wanted if one.load == LOADS["llm-train"][0]]
        for scenario in dict.fromkeys(one.scenario for one in wanted):
            if any(one.scenario == scenario and not self.rates_of(scenario, one.load) for one in wanted):
                self.find_rates("llm-llm" if SIZES[scenario] == "1b" else scenario)
        sizes = {"fewest": 1, "most": 1} if self.options.small else {}
        runs, left_out = llm_plan.fitting(wanted, self.rates_of, self.left() - OVERTIME, spare, **sizes)
        for run in runs:
            self.report["plan"].append({**vars(run), "needs_s": round(run.needs())})
            print(f"planned: {named(run)}, {', '.join(run.arms)}: {run.seconds} s each, {run.needs():.0f} s", flush=True)
        for one in left_out:
            why = "no time is left for it" if self.rates_of(one.scenario, one.load) else "its rates are not known"
            self.lacks(f"{named(one)}: {', '.join(one.arms)}: {why}")
        self.write()
        for place, run in enumerate(runs):
            self.bench(run, llm_plan.needed(runs[place + 1 :]))

    def find_rates(self, scenario):
        folder = self.folder / f"{scenario}-rates"
        loads = LOADS[scenario][:1] if self.options.small else LOADS[scenario]
        limit = self.left() - OVERTIME
        if limit < LEAST:
            return
        command = [*self.command(scenario, folder), "--find-rates", "--loads", ",".join(map(str, loads)), "--limit", f"{limit:.0f}s"]
        results = self.results(folder.name, folder, command, limit)
        found = {}
        for rate in results["rates"] if results else []:
            # Short enough for a command line, and the same in every part.
            found.setdefault(str(rate["load"]), []).append(float(f"{rate['per_second']:.6g}"))
        self.known["rates"].setdefault(SIZES[scenario], {}).update(found)

    def command(self, scenario, folder):
        isolation = "process" if self.options.small else "mps"
        command = [str(self.options.detshare), "bench", scenario, "--workloads", str(self.options.workloads)]
        command += ["--isolation", isolation, "--out", str(folder)]
        return command + (["--trace-folder", str(self.options.trace_folder)] if self.options.trace_folder else [])

    def bench(self, run, reserve):
        """Runs the benchmark, with `reserve` seconds left for what comes after it."""
        # What goes on with a run from before has a name of its own, as the tables of both are read together.
        name = named(run) + ("-others" if run.objectives else "")
        limit = self.left() - OVERTIME - reserve
        if limit < LEAST:
            self.lacks(f"{name}: {', '.join(run.arms)}: {limit:.0f} s are left")
            return
        folder = self.folder / name
        rates = ",".join(f"{rate:.6g}" for rate in self.rates_of(run.scenario, run.load))
        command = [*self.command(run.scenario, folder), "--arms", ",".join(run.arms), "--seconds", str(run.seconds)]
        command += ["--rounds", "1", "--load", str(run.load), "--rates", rates, "--no-timeline", "--keep", str(folder / "kept")]
        command += ["--servers-alone"] if run.servers_alone else []
        if run.objectives:
            command += [word for flag, ms in zip(("--ttft", "--tpot"), run.objectives) for word in (flag, f"{1e3 * ms:.0f}us")]
        results = self.results(name, folder, [*command, "--limit", f"{limit:.0f}s"], limit)
        if results:
            self.judge(name, run, results)

    def results(self, name, folder, command, limit):
        """What a command left in its folder, or nothing."""
        ended = self.run(name, command, limit)
        file = folder / "results.json"
        try:
            return json.loads(file.read_text())
        except (OSError, ValueError):
            self.failed = True
            self.lacks(f"{name}: no results, {ended}")
            return None

    def judge(self, name, run, results):
        share_against(results, self.known["training"])
        self.report["runs"][name] = sharing.without_samples(results)
        self.failed |= results["exit_code"] == 1
        self.tables.append((name, table(results)))
        asked = next(one for one in sharing.RUNS if one.name == run.scenario)
        self.report["verdicts"] += [row | {"run": name} for row in sharing.verdicts(asked, results) if row["arm"] in run.arms]
        measured = [arm["arm"] for arm in results["arms"] if arm["programs"]]
        for arm in results["arms"]:
            if not arm["programs"]:
                self.lacks(f"{name}: {arm['arm']}: {'; '.join(arm['failures'])[:160] or 'it was ended before'}")
        for replay in results["replays"]:
            counted = replay["requests"] - replay["warm_up"]
            if counted < llm_plan.FEWEST and not self.options.small:
                self.say(f"{name}: {replay['program']} had {counted} requests an arm")
        self.learn(run, measured, results)
        self.write()

    def learn(self, run, measured, results):
        """What runs after this one need not find out again."""
        objectives = [replay["objectives"] for replay in results["replays"]]
        done = self.known["done"].setdefault(key_of(run), {"arms": [], "seconds": run.seconds})
        done["arms"] += [arm for arm in measured if arm not in done["arms"]]
        if len(objectives) == 1 and all(objectives[0].values()):
            done.setdefault("objectives", [round(objectives[0][name], 3) for name in ("ttft_ms", "tpot_ms")])
        alone = next((arm for arm in results["arms"] if arm["arm"] == ALONE), {"programs": []})
        for program in alone["programs"]:
            if not program["service"] and program["per_second"]:
                self.known["training"].setdefault(program["program"], round(program["per_second"]["median"], 4))

    def run(self, name, command, limit, env=None):
        """How it ended, in words."""
        print(f"== {name}, {self.left():.0f} s left: {' '.join(map(str, command))}", flush=True)
        try:
            return sharing.run_for(command, limit, stdout=subprocess.DEVNULL, env=os.environ | (env or {}))
        except Stopped:
            self.is_stopped = self.failed = True
            return "stopped"

    def write(self):
        """After each run, so that one that is cut short leaves what it found."""
        number = self.options.part
        report = self.report | {"known": self.known}
        sharing.write(self.options.out / f"part-{number}.json", json.dumps(report, indent=1) + "\n")
        sharing.write(self.options.out / f"part-{number}.txt", self.text())

    def text(self):
        rows, runs = self.report["verdicts"], self.report["runs"].values()
        parts = [f"{name}\n{lines}" for name, lines in self.tables]
        lines = [*sharing.loads_in_words(rows), *sharing.goodput_in_words(runs), *self.report["said"]]
        missing = [f"missing: {line}" for line in self.report["missing"]] or ["nothing is missing of what was planned"]
        known = f"for the parts after it: --known '{json.dumps(self.known, separators=(',', ':'))}'"
        return "\n\n".join([*parts, *filter(None, [sharing.table(rows)]), "\n".join([*lines, *missing, known])]) + "\n"

    def pack(self):
        self.write()
        if self.folder.exists():
            with tarfile.open(self.options.out / f"part-{self.options.part}.tar.gz", "w:gz") as archive:
                archive.add(self.folder, "runs")
            shutil.rmtree(self.folder)


def named(run):
    return f"{run.scenario}-{run.load}"


def key_of(run):
    return f"{run.scenario} {run.load}"


def merged(all_known):
    """What earlier parts found, all of them together."""
    known = {"rates": {}, "done": {}, "training": {}}
    for one in all_known:
        for name, of in known.items():
            of.update(one.get(name, {}))
    return known


def share_against(results, training):
    """Where a training did not run alone, its share is against what it did alone in an earlier part."""
    for program in (program for arm in results["arms"] for program in arm["programs"]):
        if program["program"] in training and not program["share"] and program["per_second"]:
            part = program["per_second"]["median"] / training[program["program"]]
            program["share"] = {"median": part, "min": part, "max": part, "rounds": program["per_second"]["rounds"]}


def first(part):
    """An 8B server beside a training, at half load, in all ways."""
    part.run_all(FIRST)


def second(part):
    """Two 1B servers at half load and above."""
    part.run_all(SECOND)


def third(part):
    """What the first two parts had no time for; then a third load, two servers beside a training, and a server on few SMs."""
    wanted = [*left_of(part, FIRST), *left_of(part, SECOND), *servers_alone(part, left_of(part, THIRD))]
    part.run_all(wanted, spare=len(WIDTHS) * WIDTH_SECONDS)
    widths(part)


PARTS = {1: first, 2: second, 3: third}


def left_of(part, wanted):
    """Without what an earlier part has: what goes on with a run of it does so with the same requests and objectives."""
    left = []
    for one in wanted:
        done = part.known["done"].get(key_of(one))
        arms = tuple(arm for arm in one.arms if not done or arm not in done["arms"])
        if done and arms:
            arms = arms if ALONE in arms or any(key_of(it) == key_of(one) for it in left) else (ALONE, *arms)
            is_known = one.scenario in llm_plan.WITH_TRAINING and bool(part.known["training"])
            one = Wanted(one.scenario, one.load, arms, is_known, done["seconds"], tuple(done.get("objectives", ())))
        left += [one] if arms else []
    return left


def servers_alone(part, wanted):
    """The training was measured alone by an earlier part, if there was one."""
    is_known = bool(part.known["training"])
    return [one if one.seconds else Wanted(one.scenario, one.load, one.arms, is_known) for one in wanted]


def widths(part):
    """The steps of an 8B server that has a part of the SMs for good: what the simulator does not know of its graphs."""
    found = {}
    for width in WIDTHS:
        if part.left() < (1 if part.options.small else WIDTH_SECONDS + OVERTIME):
            part.lacks(f"a server on front{width}: {part.left():.0f} s are left")
            continue
        folder = part.folder / f"front{width}"
        folder.mkdir(parents=True)
        out = folder / "server.json"
        command = [sys.executable, str(part.options.workloads / "llm_server.py"), "--shape", "8b", "--longest-context", "16384"]
        command += ["--prefill-chunk", "512", "--seed", "1", "--skip", str(SKIPPED), "--requests", str(WIDTH_REQUESTS)]
        command += ["--at-rate", str(WIDTH_RATE), "--out", str(out), *conversation(part)]
        env = {"LD_PRELOAD": str(part.options.shim), "DETSHARE_SCHEDULE": f"front{width}", "DETSHARE_STATS": str(folder / "%p.stats")}
        ended = part.run(f"front{width}", command, part.left() - OVERTIME, env)
        try:
            steps = json.loads(out.read_text())["steps"]
        except (OSError, ValueError, KeyError):
            part.failed = True
            part.lacks(f"a server on front{width}: no results, {ended}")
            continue
        found[f"front{width}"] = step_times(steps)
        with gzip.open(folder / "server.json.gz", "wb") as packed:
            packed.write(out.read_bytes())
        out.unlink()
    if not found:
        return
    part.report["step_times"] = found
    lines = [f"{lane:8} {kind:8} {one['steps']:6} steps  p50 {one['p50_ms']:8.3f}  p90 {one['p90_ms']:8.3f} ms"
             for lane, kinds in found.items() for kind, one in kinds.items()]  # fmt: skip
    part.tables.append(("steps of an 8B server by lane", "\n".join(lines)))


def conversation(part):
    folder = part.options.trace_folder
    return ["--trace", str(folder / CONVERSATION)] if folder else ["--synthetic", "conversation"]


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


COLUMNS = ["arm", "program", "n", "TTFT p99", "added", "times alone", "TPOT p99", "added", "times alone", "mean", "times alone",
           "missed", "good/s", "share", "told", "bits"]  # fmt: skip


def table(results):
    """Short: what is on the page in full."""
    rows = [COLUMNS]
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
        return [arm["name"], program["program"], *["-"] * (len(COLUMNS) - 5), share, told, bits]
    missed = "/".join(figure(service[f"{name}_violations"], "{:.0f}") for name in ("ttft", "tpot"))
    cells = [str(program["requests"])]
    for name in ("ttft", "tpot"):
        cells += [figure(service[f"{name}_p99_ms"], "{:.4g} ms"), figure(service[f"{name}_p99_overhead"], "{:+.1%}")]
        cells += [times(service.get(f"{name}_ratios"))]
    cells += [figure(service["mean_latency_ms"], "{:.4g} ms"), times(service["latency_ratios"]), missed]
    cells += [figure(service["goodput"], "{:.3g}")]
    return [arm["name"], program["program"], *cells, share, told, bits]


def times(ratios):
    """How many times as long as alone requests took: the median with its interval, and p99. Of few requests p99 is the slowest one."""
    if not ratios:
        return "-"
    interval = ratios["median_interval"]
    return f"{ratios['median']:.2f} ({interval['low']:.2f}-{interval['high']:.2f})/{ratios['p99']:.2f}"


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
    parser.add_argument("--known", type=known, action="append", default=[], metavar="JSON",
                        help="what an earlier part found, as its last line says, or its part-N.json; once for each")  # fmt: skip
    parser.add_argument("--trace-folder", type=Path, default=TRACES if TRACES.is_dir() else None, metavar="DIR",
                        help="without this, traces beside this script, or requests that are made up")  # fmt: skip
    parser.add_argument("--detshare", type=Path, default=ROOT / "bin" / "detshare")
    parser.add_argument("--shim", type=Path, default=ROOT / "lib" / "libdetshare_shim.so")
    parser.add_argument("--workloads", type=Path, default=ROOT / "workloads", metavar="DIR")
    parser.add_argument("--small", action="store_true", help="a second of each, and no MPS under tenants: to see that it runs")
    options = parser.parse_args(arguments)
    options.limit = options.limit or LIMITS[options.part]
    return options


def known(text):
    """What an earlier part found: as it was printed, or in the file that it left."""
    try:
        found = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"neither JSON nor a file of it: {error}") from error
    return found.get("known", found)


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    part = Part(options)
    signal.signal(signal.SIGTERM, sharing.stop)
    try:
        PARTS[options.part](part)
    except Stopped:
        part.failed = True
        part.lacks("what was still to come when it was ended")
    except Exception as error:  # whatever it is: what was measured is worth more
        part.failed = True
        part.lacks(f"all after {type(error).__name__}: {error}")
        traceback.print_exc()
    finally:
        part.pack()
    print("\n" + part.text())
    return 1 if part.failed else 0


if __name__ == "__main__":
    sys.exit(main())
