"""Tests of bench/gpu/llm.py and llm_plan.py: what they would run on a GPU machine, how long that takes, and what they make of what they
find."""

import contextlib
import io
import json
import math
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

# In the checkout, or in the bundle for a GPU machine.
ABOVE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ABOVE / "bench" / "gpu" if (ABOVE / "bench").is_dir() else ABOVE))

import llm
import llm_plan

RECORDED = ABOVE / "bench" / "results" / "h200-sharing"
LONGEST_COMMAND = 590  # seconds that one may take
STAY, SHORT_STAY, STARTING = 1500, 1100, 75  # and all together, with the machine's start
SHORT_SECOND = 440  # of the second part in the short one

# Requests a second by load. Of the 8B server on paper, with the step times of an H200, and at its edges; of two 1B servers with
# decode steps of 4, 2.5 and 2 ms, and as the simulator has them.
RATES_8B = [{0.5: [0.25], 0.7: [0.45]}, {0.5: [0.272], 0.7: [0.487]}, {0.5: [0.32], 0.7: [0.49]}]
RATES_1B = [
    {0.5: [0.295, 2.47], 0.7: [0.443, 3.7], 0.9: [0.62, 5.0]},
    {0.5: [0.47, 4.4], 0.7: [0.705, 6.6], 0.9: [1.0, 9.0]},
    {0.5: [0.6, 6.0], 0.7: [0.9, 9.0], 0.9: [1.3, 12.0]},
    {0.5: [0.93, 6.0], 0.7: [1.3, 9.0], 0.9: [1.9, 12.0]},
]
BOTH = {"8b": RATES_8B[1], "1b": RATES_1B[1]}


def spread(value):
    return {"median": value, "min": value, "max": value, "rounds": 1}


def server(name, bits="identical", right=98):
    figures = ("ttft_p99_ms", "ttft_p99_overhead", "tpot_p99_ms", "tpot_p99_overhead", "mean_latency_ms", "goodput", "ttft_violations")
    service = {name: spread(0.05) for name in figures} | {"tpot_violations": None}
    ratios = {"median": 1.02, "p99": 1.31, "median_interval": {"low": 0.98, "high": 1.07}}
    service |= {"latency_ratios": ratios, "ttft_ratios": ratios, "tpot_ratios": None}
    told = {"right": right, "steps": 100, "taken": {"decode": {"decode": 90}, "prefill": {"prefill": right - 90, "decode": 100 - right}}}
    found = {"program": name, "class": "latency", "requests": 40, "service": service, "share": None, "told_apart": told}
    return found | {"p99_overhead": None, "per_second": spread(2.0), "bits": {"verdict": bits}}


def training(share=0.05):
    found = {"program": "train", "class": "best-effort", "service": None, "share": share and spread(share), "told_apart": None}
    return found | {"p99_overhead": None, "per_second": spread(5.5), "bits": {"verdict": "identical"}}


def arm_of(name, programs, load=0.5, failures=()):
    return {"arm": name, "name": name, "load": load, "aggressiveness": None, "programs": programs, "failures": list(failures)}


def results_of(run, rates, without=()):
    """As the benchmark leaves them."""
    names = ["chat", "code"][: llm_plan.SERVERS[run.scenario]]
    arms = []
    for name in run.arms:
        programs = [server(one) for one in names]
        if run.scenario in llm_plan.WITH_TRAINING and not (name == "alone" and run.servers_alone):
            programs.append(training(None if run.servers_alone else 0.5))
        arms.append(arm_of(name, [] if name in without else programs, run.load, ["no MPS"] if name in without else ()))
    replays = [
        {"program": name, "load": run.load, "per_second": rate, "requests": round(2 * rate) + round(rate * run.seconds),
         "warm_up": round(2 * rate), "saturated": None, "busy_alone": 0.5, "objectives": {"ttft_ms": 460.0, "tpot_ms": 55.0}}
        for name, rate in zip(names, rates)
    ]  # fmt: skip
    scenario = {"name": run.scenario}
    return {"exit_code": 0, "summary": "arms", "scenario": scenario, "arms": arms, "replays": replays, "bounds": []}


def word_after(command, flag):
    return command[command.index(flag) + 1]


class Machine:
    """In place of one with a GPU: everything takes what it took when it was recorded, or so many times that."""

    def __init__(self, rates=BOTH, slower=1.0, finds=True, without=()):
        self.now, self.rates, self.slower, self.finds, self.without = 0.0, rates, slower, finds, without
        self.benches, self.others, self.runs = [], [], []

    def start(self, command, env=None, **_):
        limit = math.inf
        if command[1] == "bench":
            self.benches.append(command)
            limit = float(word_after(command, "--limit").rstrip("s"))
            folder = Path(word_after(command, "--out"))
            folder.mkdir(parents=True)
            took, found = self.finding(command) if "--find-rates" in command else self.measuring(command)
            if self.finds:
                (folder / "results.json").write_text(json.dumps(found))
        else:
            self.others.append((command, env))
            steps = [["decode", 0.0, 0.01, 3, 3], ["prefill", 0.01, 0.06, 1, 512]]
            Path(word_after(command, "--out")).write_text(json.dumps({"steps": steps}))
            took = llm.WIDTH_SECONDS
        self.now += min(took * self.slower, limit)
        child = mock.MagicMock()
        child.__enter__.return_value.wait.return_value = 0
        return child

    def finding(self, command):
        scenario = command[2]
        loads = [float(load) for load in word_after(command, "--loads").split(",")]
        of = self.rates[llm.SIZES[scenario]]
        found = [{"program": name, "load": load, "per_second": of[load][place]}
                 for place, name in enumerate(["chat", "code"][: llm_plan.SERVERS[scenario]]) for load in loads]  # fmt: skip
        servers = llm_plan.SERVERS[scenario]
        return servers * (llm_plan.SET_UP[scenario]["alone"] + llm_plan.AT_ONCE[scenario]), {"rates": found}

    def measuring(self, command):
        arms, load = tuple(word_after(command, "--arms").split(",")), float(word_after(command, "--load"))
        seconds, alone = int(word_after(command, "--seconds")), "--servers-alone" in command
        run = llm_plan.Run(command[2], load, arms, seconds, alone)
        rates = [float(rate) for rate in word_after(command, "--rates").split(",")]
        self.runs.append((run, rates))
        return sum(llm_plan.session_seconds(run, arm) for arm in arms), results_of(run, rates, self.without)

    def part(self, number, *more):
        """What it prints, its report, its exit code and its files."""
        with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as stack:
            words = ["llm.py", "--part", str(number), "--out", out, *more]
            stack.enter_context(mock.patch.object(sys, "argv", words))
            stack.enter_context(mock.patch.object(llm.subprocess, "Popen", self.start))
            stack.enter_context(mock.patch.object(llm.time, "monotonic", lambda: self.now))
            stack.enter_context(mock.patch.object(llm.signal, "signal"))
            printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            code = llm.main()
            report = json.loads((Path(out) / f"part-{number}.json").read_text())
            files = sorted(path.name for path in Path(out).iterdir())
        return printed.getvalue(), report, code, files

    def stay(self, *limits):
        """One part after the other, each told what those before it found; the report of each, and how long it took."""
        known, reports = [], []
        for number, limit in enumerate(limits, 1):
            began = self.now
            _, report, code, _ = self.part(number, "--limit", str(limit), *known)
            known += ["--known", json.dumps(report["known"])]
            reports.append((report, self.now - began, code))
        return reports


def arms_of(machine):
    """What was measured, by scenario and load."""
    found = {}
    for run, _ in machine.runs:
        found.setdefault((run.scenario, run.load), set()).update(run.arms)
    return found


ALL_LIMITS = [llm.LIMITS[number] for number in llm.PARTS]


class RehearsalTest(unittest.TestCase):
    """A whole stay, with what programs took to be set up when that was recorded."""

    def test_a_stay_and_a_short_one_are_long_enough_for_their_parts(self):
        self.assertLess(max(llm.LIMITS.values()), LONGEST_COMMAND)
        self.assertLessEqual(sum(ALL_LIMITS) + STARTING, STAY)
        self.assertLessEqual(ALL_LIMITS[0] + SHORT_SECOND + STARTING, SHORT_STAY)

    def test_every_server_has_ten_requests_in_every_arm_and_every_part_ends_in_time(self):
        for rates_8b in RATES_8B:
            for rates_1b in RATES_1B:
                for limits in (ALL_LIMITS, [ALL_LIMITS[0], SHORT_SECOND]):
                    machine = Machine({"8b": rates_8b, "1b": rates_1b})
                    for limit, (report, took, code) in zip(limits, machine.stay(*limits)):
                        self.assertLessEqual(took, limit - llm.PACKING, report["plan"])
                        self.assertEqual(code, 0)
                    for run, rates in machine.runs:
                        for rate in rates:
                            self.assertGreaterEqual(round(rate * run.seconds), 10, run)

    def test_even_where_all_takes_a_tenth_longer_no_part_goes_beyond_its_time(self):
        for slower in (1.1, 1.5, 3.0):
            machine = Machine(slower=slower)
            for limit, (_, took, _) in zip(ALL_LIMITS, machine.stay(*ALL_LIMITS)):
                self.assertLessEqual(took, limit, slower)

    def test_what_matters_most_is_measured_in_any_stay(self):
        """All ways beside a training at half load, and two servers in the ways that are judged, unless steps take long at two loads."""
        for rates_8b in RATES_8B[:2]:
            for rates_1b in RATES_1B:
                machine = Machine({"8b": rates_8b, "1b": rates_1b})
                machine.stay(ALL_LIMITS[0], SHORT_SECOND)
                measured = arms_of(machine)
                ways = {"alone", "time-slicing", "mps", "mps-priority", "throughput", "slo-aware", "tpot-first"}
                self.assertEqual(measured["llm-train", 0.5], ways, rates_8b)
                self.assertLessEqual(set(llm.TOGETHER), measured["llm-llm", 0.5])
                if rates_1b is not RATES_1B[0]:
                    self.assertLessEqual(set(llm.TOGETHER), measured["llm-llm", 0.7])

    def test_a_whole_stay_sweeps_the_load(self):
        for rates_1b in RATES_1B[1:]:
            machine = Machine({"8b": RATES_8B[0], "1b": rates_1b})
            machine.stay(*ALL_LIMITS)
            measured = arms_of(machine)
            loads = [load for scenario, load in measured if scenario == "llm-llm"]
            self.assertEqual(sorted(loads), [0.5, 0.7, 0.9], rates_1b)
            self.assertLessEqual({"slo-aware", "mps"}, measured["llm-llm", 0.5])

    def test_what_the_first_part_had_no_time_for_is_in_the_third_with_the_same_requests(self):
        machine = Machine({"8b": {0.5: [0.2], 0.7: [0.45]}, "1b": RATES_1B[3]})
        (first, *_), _, (third, *_) = machine.stay(*ALL_LIMITS)
        self.assertIn("llm-train-0.5: mps: no time is left for it", first["missing"])
        began = next(run for run, _ in machine.runs if run.scenario == "llm-train")
        again = next(bench for bench in machine.benches if "--ttft" in bench)
        self.assertEqual(word_after(again, "--arms"), "alone,mps")
        self.assertEqual(word_after(again, "--seconds"), str(began.seconds))
        self.assertEqual((word_after(again, "--ttft"), word_after(again, "--tpot")), ("460000us", "55000us"))
        self.assertIn("--servers-alone", again)
        self.assertIn("llm-train-0.5-others", third["runs"])

    def test_rates_are_found_out_once_and_no_training_runs_alone_again(self):
        machine = Machine()
        machine.stay(*ALL_LIMITS)
        finding = [bench[2] for bench in machine.benches if "--find-rates" in bench]
        self.assertEqual(finding, ["llm-train", "llm-llm"])
        alone = [run.servers_alone for run, _ in machine.runs if run.scenario in llm_plan.WITH_TRAINING]
        self.assertEqual(alone[0], False)
        self.assertTrue(all(alone[1:]), alone)
        self.assertTrue(all("--no-timeline" in bench for bench in machine.benches if "--find-rates" not in bench))

    @unittest.skipUnless(RECORDED.is_dir(), "the bundle for a GPU machine is without the records")
    def test_what_sessions_take_is_what_was_recorded(self):
        def of(scenario, arm, measured):
            """Seconds of a session beside what was planned for it, where `measured` are those of each."""
            results = json.loads((RECORDED / scenario / "results.json").read_text())
            found = next(run for run in results["runs"] if run["arm"] == arm and not run["failure"])
            return (found["seconds"] - sum(measured)) / len(measured)

        server = llm_plan.SET_UP["llm-train"]
        recorded = {arm: of("llm-train", arm, [14]) for arm in ("tpot-first", "time-slicing")}
        self.assertAlmostEqual(server["alone"], of("llm-train", "alone", [14, 10]), delta=0.1)
        self.assertAlmostEqual(server["tpot-first"], recorded["tpot-first"], delta=0.1)
        self.assertAlmostEqual(server[llm_plan.OTHERS], recorded["time-slicing"], delta=0.1)
        two, three = llm_plan.SET_UP["llm-llm"], llm_plan.SET_UP["llm-llm-train"]
        self.assertGreater(two["alone"], of("small", "alone", [7, 7]) + 1)
        for arm in ("time-slicing", "mps", "mps-priority"):
            self.assertGreater(two.get(arm, two[llm_plan.OTHERS]), of("small", arm, [7]) + 0.3, arm)
        self.assertGreater(three["alone"], of("two-latency", "alone", [9, 9, 9]) + 0.5)
        for arm in ("time-slicing", "slo-aware"):
            self.assertGreater(three[llm_plan.OTHERS], of("two-latency", arm, [9]) + 2, arm)


class PlanTest(unittest.TestCase):
    def fitting(self, left, wanted=None, rates=BOTH):
        return llm_plan.fitting(wanted or llm.FIRST, lambda scenario, load: rates[llm.SIZES[scenario]].get(load), left)

    def test_what_is_named_first_goes_before(self):
        runs, left_out = self.fitting(250)
        self.assertEqual([run.arms for run in runs], [llm.BESIDE_TRAINING])
        self.assertEqual([one.arms for one in left_out], [("slo-aware",), ("mps-priority",), ("throughput",), ("mps",)])

    def test_an_arm_is_not_measured_without_one_alone(self):
        runs, left_out = self.fitting(100)
        self.assertEqual((runs, len(left_out)), ([], 5))

    def test_what_is_left_makes_the_first_run_longer_up_to_what_is_enough(self):
        (run,), _ = self.fitting(10_000)
        self.assertEqual(run.seconds, math.ceil(llm_plan.MOST / 0.272))
        (short,), _ = self.fitting(560)
        self.assertTrue(10 / 0.272 <= short.seconds < run.seconds)
        self.assertLessEqual(short.needs(), 560)
        (least,), _ = llm_plan.fitting(llm.FIRST, lambda *_: [0.272], 560, spare=560)
        self.assertEqual((least.seconds, least.arms), (math.ceil(llm_plan.FEWEST / 0.272), short.arms))

    def test_a_load_of_which_no_rate_is_known_is_left_out(self):
        runs, left_out = self.fitting(10_000, [llm_plan.Wanted("llm-train", 0.2, llm.BESIDE_TRAINING)])
        self.assertEqual((runs, len(left_out)), ([], 1))


class PartsTest(unittest.TestCase):
    def test_part_1_stops_where_nothing_is_found(self):
        machine = Machine(finds=False)
        printed, report, code, _ = machine.part(1)
        self.assertEqual((len(machine.benches), code), (1, 1))
        self.assertIn("missing: llm-train-rates: no results, exit code 0", printed)
        self.assertIn("missing: llm-train-0.5: alone, tpot-first, time-slicing: its rates are not known", printed)
        self.assertEqual(report["runs"], {})

    def test_what_later_parts_need_is_printed_last(self):
        machine = Machine()
        printed, report, code, files = machine.part(1)
        last = printed.rstrip().splitlines()[-1]
        self.assertLess(len(last), 700, "what is printed is pasted into a command")
        self.assertEqual((last.split("--known ")[1].strip("'"), code), (json.dumps(report["known"], separators=(",", ":")), 0))
        self.assertEqual(report["known"]["rates"]["8b"], {"0.5": [0.272], "0.7": [0.487]})
        self.assertEqual(report["known"]["training"], {"train": 5.5})
        self.assertEqual(files, ["part-1.json", "part-1.tar.gz", "part-1.txt"])
        self.assertIn("nothing is missing of what was planned", printed)

    def test_what_has_no_figures_is_missing(self):
        _, report, *_ = Machine(without=("mps",)).part(1)
        self.assertEqual(report["missing"], ["llm-train-0.5: mps: no MPS"])
        self.assertNotIn("mps", report["known"]["done"]["llm-train 0.5"]["arms"])

    def test_something_nobody_thought_of_loses_nothing_that_was_measured(self):
        machine = Machine()
        with mock.patch.object(llm, "widths", side_effect=KeyError("steps")):
            printed, report, code, _ = machine.part(3)
        self.assertEqual((code, report["missing"][-1]), (1, "all after KeyError: 'steps'"))
        self.assertTrue(report["runs"] and "goodput of llm-train" in printed, printed)

    def test_what_was_printed_and_the_file_are_known_alike(self):
        known = {"rates": {"8b": {"0.5": [0.25]}}, "done": {}, "training": {}}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "part-1.json"
            file.write_text(json.dumps({"known": known, "runs": {}}))
            self.assertEqual(llm.known(str(file)), llm.known(json.dumps(known)))
        with self.assertRaises(llm.argparse.ArgumentTypeError):
            llm.known("no-such-file.json")

    def test_a_share_is_held_against_the_training_alone_of_an_earlier_part(self):
        known = {"rates": {"8b": {"0.5": [0.25], "0.7": [0.45]}}, "done": {}, "training": {"train": 11.0}}
        _, report, *_ = Machine().part(3, "--limit", "3000", "--known", json.dumps(known))
        run = next(run for name, run in report["runs"].items() if name.startswith("llm-llm-train"))
        shares = [one["share"]["median"] for arm in run["arms"] for one in arm["programs"] if one["share"]]
        self.assertEqual(set(shares), {0.5})

    def test_a_server_runs_on_few_sms_where_there_is_time(self):
        machine = Machine({"8b": RATES_8B[0], "1b": RATES_1B[3]})
        _, report, *_ = machine.part(3, "--limit", "3000")
        self.assertEqual([env["DETSHARE_SCHEDULE"] for _, env in machine.others], ["front64", "front96", "front32"])
        self.assertEqual(word_after(machine.others[0][0], "--shape"), "8b")
        self.assertEqual(report["step_times"]["front64"]["decode"]["p50_ms_by_size"], {"3": 10.0})


class TableTest(unittest.TestCase):
    def test_a_line_for_each_program(self):
        chat = server("chat") | {"bits": {"verdict": "different", "different": 3, "compared": 40}}
        arms = [arm_of("tpot-first", [chat, training()]), arm_of("mps", [], failures=["no MPS"])]
        replay = {"program": "chat", "requests": 40, "per_second": 5.0, "load": 0.5, "saturated": 8.0, "busy_alone": 0.6}
        lines = llm.table({"summary": "1 arm", "arms": arms, "replays": [replay], "bounds": []}).splitlines()
        self.assertEqual(lines[1].split()[-5:], ["-", "98/100", "3", "of", "40"])
        self.assertIn("+5.0%", lines[1])
        self.assertIn("1.02 (0.98-1.07)/1.31", lines[1])
        self.assertEqual(lines[2].split()[-3:], ["0.050", "-", "identical"])
        self.assertEqual(lines[3].split(), ["mps", "no", "figures:", "no", "MPS"])


if __name__ == "__main__":
    unittest.main()
