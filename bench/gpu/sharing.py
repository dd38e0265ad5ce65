"""Run `detshare bench` on one scenario after another, and hold what was measured against what was asked.

Leaves `sharing.json`, the verdicts and the summary of each run, and `sharing.tar.gz`, all that the runs left: pages, plots
and every figure. What does not fit into --limit is left out, and that is said.
"""

import argparse
import json
import signal
import subprocess
import sys
import tarfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import phase_accuracy
from daemon_under_test import source

ROOT = Path(__file__).resolve().parent
DETSHARE = ROOT / "bin" / "detshare"
# The bundle has them where they lay beside the checkout.
TRACES = ROOT / "traces"
RIVALS = ["time-slicing", "mps", "mps-priority", "fixed-64", "fixed-96"]
LEVELS = "0,0.25,0.5,0.75,1"
# What one session of programs takes beside the time in which it is measured, and the requests before that.
SET_UP_SECONDS = 13
# The same for a session with an LLM server, whose model is larger.
LLM_SET_UP_SECONDS = 30
# The session of the timeline, beside its set-up.
RECORDED_SECONDS = 4
# Requests of LLM servers are few in a second, and their tail wants some.
LLM_SECONDS = 30
# A benchmark that was told how long it may take ends by itself, about; this is for one that does not, and to end then.
OVERTIME = 10


@dataclass(frozen=True)
class Against:
    """A figure of an arm's LLM servers, all together, and the most that it may be of the same figure of another arm."""

    arm: str
    figure: str
    other: str
    most: float
    # Where the load does not allow that: the least part of the way from the other arm to what is possible at best.
    way: float | None = None

    def words(self):
        near = f", or {self.way:.0%} of the way to the ideal" if self.way else ""
        return f"{self.figure} at most {self.most:.2f} of {self.other}{near}"


@dataclass(frozen=True)
class Run:
    """One run of the benchmark, and what its arms are to show."""

    name: str
    scenario: str
    arms: list
    programs: int = 2
    # Of these programs.
    llm_servers: int = 0
    load: float = 0.5
    isolation: str = "mps"
    levels: str = ""
    # By arm: the most that p99 may grow (of LLM servers, of which times), and the least share of the best-effort programs,
    # as a number or as that of another arm.
    asked: dict = field(default_factory=dict)
    against: tuple = ()
    # Why an arm that all others have is none here.
    without: tuple = ()
    # By arm: the least throughput of all programs together, against that of another arm.
    together: dict = field(default_factory=dict)

    def without_rivals(self):
        """With no other arms than those that something is asked of, or that it is asked against."""
        against = {other for other, _ in self.together.values()}
        against |= {asked["share_of"] for asked in self.asked.values() if "share_of" in asked}
        against |= {name for one in self.against for name in (one.arm, one.other)}
        arms = [arm for arm in self.arms if arm in ("alone", *self.asked, *self.together, *against)]
        return replace(self, arms=arms, levels="")

    def measured_seconds(self, asked):
        return max(asked, LLM_SECONDS) if self.llm_servers else asked

    def seconds(self, asked, rounds, loads=1):
        """What all of it takes, about."""
        sessions = sum(self.programs if arm.endswith("alone") else 1 for arm in self.arms)
        stretches = sessions + (len(self.levels.split(",")) - 1 if self.levels else 0)
        set_up = LLM_SET_UP_SECONDS if self.llm_servers else SET_UP_SECONDS
        # What servers can do is measured once, beside the rounds.
        once = self.llm_servers * (set_up + asked)
        # In the end tenants write down what they launch, for the timeline.
        once += set_up + RECORDED_SECONDS if {POLICY, TPOT_FIRST} & set(self.arms) else 0
        rounds *= loads if self.llm_servers else 1
        return once + rounds * (sessions * set_up + stretches * self.measured_seconds(asked))


POLICY = "slo-aware"
TPOT_FIRST = "tpot-first"
POLICIES = (POLICY, TPOT_FIRST, "throughput", "fair", "exclusive")
BEST_EFFORT = "best-effort"
LLM_TAIL = {"ttft_p99": 0.07, "tpot_p99": 0.07}
LLM_BESIDE_TRAINING = {**LLM_TAIL, "share_of": "time-slicing"}
LLM_TOGETHER = (
    Against(TPOT_FIRST, "tpot_violations", "throughput", 0.78),
    Against(TPOT_FIRST, "ttft_violations", "throughput", 1.0),
    # Two servers that are busy at the same time cannot both be as fast as alone. The ideal is a GPU that turns from one to the
    # other at no cost, which none does.
    Against(TPOT_FIRST, "mean_latency_ms", "time-slicing", 0.31, way=0.75),
)
# Who is this near to the ideal is there, also where time-slicing is hardly further away.
IDEAL_WITHIN = 0.02
ALONE = {"detshare-alone": {"p99": 0.01, "share": 0.98}}
RUNS = [
    Run("small", "small", ["alone", "detshare-alone", *RIVALS, POLICY], levels=LEVELS,
        asked={POLICY: {"p99": 0.07, "share": 0.76}, **ALONE}),
    Run("7b", "7b", ["alone", "detshare-alone", *RIVALS, POLICY], levels=LEVELS,
        asked={POLICY: {"p99": 0.05, "share": 0.50}, **ALONE}),
    Run("small-poisson", "small-poisson", ["alone", "time-slicing", POLICY],
        asked={POLICY: {"p99": 0.20, "share": 0.70}}),
    Run("7b-poisson", "7b-poisson", ["alone", "time-slicing", POLICY],
        asked={POLICY: {"p99": 0.20, "share": 0.45}}),
    Run("small-eager", "small-eager", ["alone", "time-slicing", POLICY],
        asked={POLICY: {"p99": 0.10, "share": 0.70}}),
    Run("two-latency", "two-latency", ["alone", "time-slicing", POLICY, "exclusive", "fair"], programs=3,
        asked={POLICY: {"p99": 0.15, "share": 0.0}}),
    Run("small-process", "small", ["alone", "detshare-alone", POLICY], isolation="process",
        asked={POLICY: {"p99": 0.10, "share": 0.65}, **ALONE}),
    Run("7b-process", "7b", ["alone", "detshare-alone", POLICY], isolation="process",
        asked={POLICY: {"p99": 0.10, "share": 0.40}, **ALONE}),
    # Whether random steps fare better where the GPU's caches are not shared.
    Run("small-poisson-process", "small-poisson", ["alone", POLICY], isolation="process",
        asked={POLICY: {"p99": 0.20, "share": 0.70}}),
    Run("two-half", "two-half", ["alone", "time-slicing", POLICY], together={POLICY: ("time-slicing", 1.8)}),
    Run("two-full", "two-full", ["alone", "time-slicing", POLICY], together={POLICY: ("time-slicing", 0.97)}),
    # What matters most comes first: the last arms are what --limit leaves out.
    Run("llm-train", "llm-train", ["alone", TPOT_FIRST, "time-slicing", POLICY, "throughput", "mps-priority", "mps", "detshare-alone"],
        llm_servers=1, asked={POLICY: LLM_BESIDE_TRAINING, TPOT_FIRST: LLM_BESIDE_TRAINING}),
    Run("llm-llm", "llm-llm", ["alone", TPOT_FIRST, "throughput", "time-slicing", POLICY, "mps", "detshare-alone"], llm_servers=2,
        against=LLM_TOGETHER, without=(("mps-priority", "both servers are of the same class: none has priority"),)),
    Run("llm-llm-train", "llm-llm-train", ["alone", TPOT_FIRST, "throughput", POLICY, "time-slicing", "mps", "mps-priority"],
        programs=3, llm_servers=2, asked={POLICY: {"share": 0.0}, TPOT_FIRST: {"share": 0.0}}),
]


class Stopped(Exception):
    """Somebody wants the script to end."""


def stop(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stopped


def main():
    options = parse_arguments()
    options.out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, stop)
    report = {"source": source(), "command": sys.argv, "runs": {}, "left_out": {}, "verdicts": []}
    try:
        run_all(options, report)
    except Stopped:
        report["left_out"]["all after that"] = "it was ended"
    write(options.out / "sharing.json", json.dumps(report, indent=1) + "\n")
    with tarfile.open(options.out / "sharing.tar.gz", "w:gz") as archive:
        if (options.out / "runs").exists():
            archive.add(options.out / "runs", "runs")
    print("\n" + "\n".join(filter(None, [table(report["verdicts"]), *loads_in_words(report["verdicts"])])))
    for name, why in report["left_out"].items():
        print(f"{name}: left out, {why}")
    return 1 if any(row["verdict"] == "differs" for row in report["verdicts"]) else 0


def run_all(options, report):
    deadline = time.monotonic() + options.limit
    for run in RUNS:
        if run.name not in options.only:
            continue
        run = without_unknown(run.without_rivals() if options.no_rivals else run)
        run = replace(run, arms=[arm for arm in run.arms if arm not in options.leave_out])
        left = deadline - time.monotonic()
        needed = run.seconds(options.seconds, options.rounds, len(options.load.split(",")) if options.load else 1)
        if needed > left:
            words = f"{needed:.0f} s would be needed and {left:.0f} s are left"
            print(f"{run.name}: left out, {words}", flush=True)
            report["left_out"][run.name] = words
            write(options.out / "sharing.json", json.dumps(report, indent=1) + "\n")
            continue
        folder = options.out / "runs" / run.name
        results = bench(run, options, folder, left)
        report["runs"][run.name] = without_samples(results) | {"without": dict(run.without)}
        report["verdicts"] += verdicts(run, results)
        # Written after each run, so that one that is cut short leaves what it found.
        write(options.out / "sharing.json", json.dumps(report, indent=1) + "\n")
        print(table([row for row in report["verdicts"] if row["run"] == run.name]), flush=True)


def parse_arguments():
    names = [run.name for run in RUNS]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default="sharing-results", metavar="DIR")
    parser.add_argument("--only", default=",".join(names), metavar="NAME[,NAME]")
    parser.add_argument("--rounds", type=int, default=1, metavar="N")
    parser.add_argument("--again", type=int, default=0, metavar="N", help="times, where the machine was not at rest")
    parser.add_argument("--seconds", type=int, default=8, metavar="N", help="that each arm is measured")
    parser.add_argument("--load", metavar="X[,X]", help="of LLM servers, in place of each run's own")
    parser.add_argument("--trace-folder", type=Path, default=TRACES if TRACES.is_dir() else None, metavar="DIR",
                        help="with the traces for LLM servers; without this, traces beside this script, or made up")
    parser.add_argument("--no-rivals", action="store_true", help="leave out what nothing is asked of")
    parser.add_argument("--leave-out", default="", metavar="ARM[,ARM]", help="these as well")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="for all of it")
    options = parser.parse_args()
    if options.load and not all(is_number(load) for load in options.load.split(",")):
        parser.error(f"--load {options.load}: a number such as 0.5, or several separated by commas")
    options.only, options.leave_out = options.only.split(","), options.leave_out.split(",")
    unknown = [name for name in options.only if name not in names]
    if unknown:
        parser.error(f"no run {', '.join(unknown)}; there are {', '.join(names)}")
    return options


def is_number(text):
    try:
        return float(text) > 0
    except ValueError:
        return False


def without_unknown(run):
    """Without arms that this `detshare` does not have: what is asked of them is then said to be missing."""
    # An arm that there cannot be, so that it says which there are.
    command = [str(DETSHARE), "bench", run.scenario, "--arms", "?"]
    said = subprocess.run(command, check=False, capture_output=True, text=True).stderr
    known = said.strip().rpartition("it has ")[2].split(", ")
    return replace(run, arms=[arm for arm in run.arms if arm in known]) if "alone" in known else run


def bench(run, options, folder, limit):
    """What the benchmark found, or why it found nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [str(DETSHARE), "bench", run.scenario, "--workloads", str(ROOT / "workloads")]
    command += ["--arms", ",".join(run.arms), "--isolation", run.isolation, "--rounds", str(options.rounds)]
    command += ["--seconds", str(run.measured_seconds(options.seconds)), "--limit", f"{limit:.0f}s"]
    command += ["--again", str(options.again), "--out", str(folder)]
    command += ["--aggressiveness", run.levels] if run.levels else []
    if run.llm_servers:
        command += ["--load", options.load or str(run.load)]
        command += ["--trace-folder", str(options.trace_folder)] if options.trace_folder else []
    print(f"== {run.name}: {' '.join(command[1:3])}, {', '.join(run.arms)}", flush=True)
    ended = run_for(command, limit)
    try:
        return json.loads((folder / "results.json").read_text())
    except (OSError, ValueError):
        return {"failed": ended}


def run_for(command, limit, **how):
    """How it ended, in words. What takes too long is asked to end, and leaves what it has; so is it when we are to end."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, **how) as child:
        try:
            return f"exit code {child.wait(max(limit, 0) + OVERTIME / 2)}"
        except (subprocess.TimeoutExpired, Stopped) as error:
            child.terminate()
            try:
                child.wait(OVERTIME / 2)
            except subprocess.TimeoutExpired:
                child.kill()
            if isinstance(error, Stopped):
                raise
            return f"not over within {limit:.0f} s"


def write(file, text):
    """Whoever is ended in the middle of it leaves what was there before."""
    unfinished = file.with_name(file.name + ".new")
    unfinished.write_text(text)
    unfinished.replace(file)


def without_samples(results):
    """Without what only plots need."""
    if isinstance(results, dict):
        kept = {key: value for key, value in results.items() if not key.endswith("quantiles_ms") and key not in ("runs", "timeline")}
        return {key: without_samples(value) for key, value in kept.items()}
    return [without_samples(value) for value in results] if isinstance(results, list) else results


def verdicts(run, results):
    """A row for each figure that was asked for at each load, and one where bits differ."""
    arms = {(arm["arm"], arm["aggressiveness"], arm["load"]): arm for arm in results.get("arms", [])}
    loads = list(dict.fromkeys(load for _, _, load in arms)) or [None]
    return [row for load in loads for row in verdicts_at(run, load, results, arms)]


def verdicts_at(run, load, results, all_arms):
    arms = {(name, level): arm for (name, level, of), arm in all_arms.items() if of == load}
    rows = []
    for (name, level), arm in arms.items():
        for program in arm["programs"]:
            bits = program["bits"]["verdict"]
            if bits not in ("identical", "reference"):
                verdict = "differs" if bits == "different" else "not compared"
                rows.append(row(run, load, name, program["program"], "the same bits", different(program["bits"]), verdict))
        if level in (None, 0.25):
            rows += figures(run, name, arm, run.asked.get(name, {}), arms)
        rows += told_apart(run, load, arm, "--keep" in results.get("command", []))
    for name, (other, least) in run.together.items():
        mine, theirs = (throughput(arms.get((arm, None))) for arm in (name, other))
        words = f"at least {least} of {other}"
        if mine and theirs:
            rows.append(judged(run, load, name, "all", words, mine / theirs, mine / theirs >= least))
        elif mine:
            rows.append(row(run, load, name, "all", words, f"no figures of {other}", "missing"))
    ideal = next((bound["ideal"] for bound in results.get("bounds", []) if bound["load"] == load), None)
    for one in run.against:
        mine, theirs = (of_servers(arms.get((arm, None)), one.figure) for arm in (one.arm, one.other))
        if mine is not None and theirs is not None:
            rows.append(row(run, load, one.arm, "all servers", one.words(), *held_against(one, mine, theirs, ideal)))
        elif mine is not None:
            rows.append(row(run, load, one.arm, "all servers", one.words(), f"no figures of {one.other}", "missing"))
    asked = {**run.asked, **run.together, **{one.arm: one for one in run.against}}
    missing = [name for name in asked if not any(key[0] == name and arm["programs"] for key, arm in arms.items())]
    nothing = results.get("failed", "none")
    return rows + [row(run, load, name, "all", "figures", nothing, "missing") for name in missing]


def held_against(one, mine, theirs, ideal):
    """What was measured, and the verdict."""
    # Of none there cannot be fewer.
    part = mine / theirs if theirs else float(mine > 0)
    is_met = mine <= theirs * one.most
    if not one.way:
        return (round(part, 4) if theirs else f"{mine:g} and {theirs:g}"), in_a_word(is_met)
    if not ideal:
        return f"{part:.3f}; what is possible is not known", in_a_word(is_met)
    best = sum(server["alone_ms"] * server["times_alone"] for server in ideal["servers"])
    alone = sum(server["alone_ms"] for server in ideal["servers"])
    # Who was no further from the ideal than that has no way to go.
    to_go, gone = theirs - best, theirs - mine
    is_near = mine <= best * (1 + IDEAL_WITHIN) or (to_go > 0 and gone >= one.way * to_go)
    way = f"{gone / to_go:.0%} of the way" if to_go > 0 else "no way to go"
    there = f"{theirs:.0f} to {best:.0f} ms, alone {alone:.0f}"
    return f"{part:.3f}; {way} ({mine:.0f}, of {there})", in_a_word(is_met or is_near)


def told_apart(run, load, arm, is_kept):
    """A row for each server whose steps were written down; one who always says decode is mostly right as well."""
    rows = []
    for program in arm["programs"]:
        found = program.get("told_apart")
        if found:
            part, kinds = found["right"] / found["steps"], recall(found["taken"])
            are_right = phase_accuracy.are_told_apart(part, kinds)
            measured = ", ".join([f"{part:.4f}", *(f"{kind} {of_kind:.4f}" for kind, of_kind in sorted(kinds.items()))])
            rows.append(row(run, load, arm["arm"], program["program"], told_apart_in_words(), measured, in_a_word(are_right)))
        elif is_kept and program.get("service") and arm["arm"] in POLICIES:
            rows.append(row(run, load, arm["arm"], program["program"], told_apart_in_words(), "no record", "missing"))
    return rows


def told_apart_in_words():
    return f"steps told apart: {phase_accuracy.ASKED:.0%}, {phase_accuracy.ASKED_OF_EACH:.0%} of each kind"


def recall(taken):
    """Of each kind of steps, which part was taken for what it was."""
    return {kind: phases.get(kind, 0) / sum(phases.values()) for kind, phases in taken.items() if sum(phases.values())}


def loads_in_words(rows):
    """At which loads each thing that is asked holds, where it was judged at several."""
    judged_at = {}
    for one in rows:
        if one["load"] != "" and one["verdict"] in ("met", "not met", "missing"):
            key = (one["arm"], one["program"], one["asked"])
            judged_at.setdefault(key, {}).setdefault(one["load"], []).append(one["verdict"] == "met")
    lines = []
    for (arm, program, asked), loads in judged_at.items():
        if len(loads) > 1:
            holds = [str(load) for load, met in sorted(loads.items()) if all(met)]
            not_at = [str(load) for load, met in sorted(loads.items()) if not all(met)]
            words = [f"holds at load {', '.join(holds)}"] if holds else []
            words += [f"not at {', '.join(not_at)}"] if not_at else []
            lines.append(f"{arm}, {program}, {asked}: {'; '.join(words)}")
    return lines


def goodput_in_words(all_results):
    """Requests a second of all servers together that kept to both objectives, by load and arm."""
    lines = []
    for results in all_results:
        for load in dict.fromkeys(arm["load"] for arm in results["arms"]):
            arms = [arm for arm in results["arms"] if arm["load"] == load]
            found = [(arm["name"], of_servers(arm, "goodput")) for arm in arms]
            words = ", ".join(f"{name} {goodput:.3g}" for name, goodput in found if goodput is not None)
            scenario = results.get("scenario", {}).get("name", "")
            lines += [f"goodput of {scenario} at load {load}: {words}"] if words else []
    return lines


def different(bits):
    """How many differ, where that is known."""
    return f"{bits['different']} of {bits['compared']}" if "different" in bits else bits["verdict"]


def figures(run, name, arm, asked, arms):
    rows = []
    of_other = throughput(arms.get((asked.get("share_of"), None)))
    for program in arm["programs"]:
        overhead, share, service = (program.get(name) for name in ("p99_overhead", "share", "service"))
        for name_of_time in ("ttft_p99", "tpot_p99") if service else ():
            grown = service[f"{name_of_time}_overhead"]
            if name_of_time in asked:
                most = asked[name_of_time]
                words = f"{name_of_time} at most +{most:.0%}"
                if grown:
                    verdict = in_a_word(grown["median"] <= most)
                    rows.append(row(run, arm["load"], name, program["program"], words, tail_in_words(service, name_of_time), verdict))
                else:
                    rows.append(row(run, arm["load"], name, program["program"], words, "not known beside alone", "missing"))
        if overhead and "p99" in asked:
            found, most = overhead["median"], asked["p99"]
            rows.append(judged(run, arm["load"], name, program["program"], f"p99 at most +{most:.0%}", found, found <= most))
        if share and "share" in asked:
            found, least = share["median"], asked["share"]
            met = found > least if least == 0 else found >= least
            rows.append(judged(run, arm["load"], name, program["program"], f"share at least {least:.3g}", found, met))
        if program.get("class") == BEST_EFFORT and "share_of" in asked:
            words = f"share at least that of {asked['share_of']}"
            if share and of_other is not None:
                measured, verdict = f"{share['median']:.4f} against {of_other:.4f}", in_a_word(share["median"] >= of_other)
            else:
                measured, verdict = f"no share of {asked['share_of'] if share else name}", "missing"
            rows.append(row(run, arm["load"], name, program["program"], words, measured, verdict))
    return rows


def of_servers(arm, figure):
    """The sum of a figure over an arm's LLM servers: of latencies, as good as their mean."""
    services = [program["service"] for program in arm["programs"] if program.get("service")] if arm else []
    values = [service[figure]["median"] for service in services if service[figure]]
    return sum(values) if values else None


def tail_in_words(service, name):
    """With where it would be with other requests of the kind: of fewer than a hundred, p99 is the slowest one."""
    found, interval = service[f"{name}_overhead"]["median"], service.get(f"{name}_overhead_interval")
    of = service.get(f"{name.removesuffix('_p99')}_count")
    return f"{found:.4f} ({interval['low']:+.3f} to {interval['high']:+.3f}, of {of})" if interval else round(found, 4)


def throughput(arm):
    """The shares of all programs together, which are alike."""
    shares = [program["share"]["median"] for program in arm["programs"] if program["share"]] if arm else []
    return sum(shares) if shares else None


def judged(run, load, arm, program, asked, found, met):
    return row(run, load, arm, program, asked, round(found, 4), in_a_word(met))


def in_a_word(met):
    return "met" if met else "not met"


def row(run, load, arm, program, asked, measured, verdict):
    columns = {"run": run.name, "load": "" if load is None else load, "arm": arm, "program": program, "asked": asked}
    return columns | {"measured": measured, "verdict": verdict}


def table(rows):
    lines = [list(rows[0])] if rows else []
    lines += [[str(value) for value in one.values()] for one in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))] if lines else []
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(line, widths)).rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main())
