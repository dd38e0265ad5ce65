"""Tests of bench/gpu/llm.py: what it would run on a GPU machine, and what it makes of what it finds."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

# In the checkout, or in the bundle for a GPU machine.
ABOVE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ABOVE / "bench" / "gpu" if (ABOVE / "bench").is_dir() else ABOVE))

import llm

LONGEST_COMMAND, ALL_COMMANDS = 590, 1650  # seconds that one may take, and all together


def results(exit_code=0, arms=()):
    replay = {"program": "chat", "requests": 40, "per_second": 5.0, "load": 0.5, "saturated": 8.0, "busy_alone": 0.6}
    return {"exit_code": exit_code, "summary": "1 arm", "arms": list(arms), "replays": [replay], "bounds": []}


def word_after(command, flag):
    return command[command.index(flag) + 1]


class Machine:
    """In place of one with a GPU: notes what is run, and finds what it is told to."""

    def __init__(self, seconds_each=0.0, finds=True):
        self.now, self.seconds_each, self.finds = 0.0, seconds_each, finds
        self.benches, self.others = [], []

    def start(self, command, env, **_):
        self.now += self.seconds_each
        if command[1] == "bench":
            self.benches.append(command)
            folder = Path(word_after(command, "--out"))
            folder.mkdir(parents=True)
            if self.finds:
                (folder / "results.json").write_text(json.dumps(results()))
        else:
            self.others.append((command, env))
            summary = {"summary": "all of them", "steps": [["decode", 0.0, 0.01, 3, 3], ["prefill", 0.01, 0.06, 1, 512]]}
            Path(word_after(command, "--out")).write_text(json.dumps(summary))
        child = mock.MagicMock()
        child.__enter__.return_value.wait.return_value = 0
        return child

    def part(self, number, *more):
        """What it prints, its report, and its exit code."""
        with tempfile.TemporaryDirectory() as out, contextlib.ExitStack() as stack:
            words = ["llm.py", "--part", str(number), "--out", out, *more]
            stack.enter_context(mock.patch.object(sys, "argv", words))
            stack.enter_context(mock.patch.object(llm.subprocess, "Popen", self.start))
            stack.enter_context(mock.patch.object(llm.time, "monotonic", lambda: self.now))
            printed = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            code = llm.main()
            report = json.loads((Path(out) / f"part-{number}.json").read_text())
            files = sorted(path.name for path in Path(out).iterdir())
        return printed.getvalue(), report, code, files


class PartsTest(unittest.TestCase):
    def test_every_arm_of_every_scenario_is_in_some_part(self):
        measured = {}
        for number in llm.PARTS:
            machine = Machine()
            machine.part(number)
            for bench in machine.benches:
                measured.setdefault(bench[2], set()).update(word_after(bench, "--arms").split(","))
        everywhere = {"alone", "time-slicing", "throughput", "slo-aware", "tpot-first"}
        self.assertEqual(measured["llm-train"], everywhere | {"mps", "mps-priority"})
        self.assertEqual(measured["llm-llm"], everywhere | {"mps"})
        self.assertEqual(measured["llm-llm-train"], everywhere)

    def test_all_parts_fit_into_a_session(self):
        self.assertLess(max(llm.LIMITS.values()), LONGEST_COMMAND)
        self.assertLess(sum(llm.LIMITS.values()), ALL_COMMANDS)
        for number in llm.PARTS:
            machine = Machine(seconds_each=60.0)
            machine.part(number)
            for place, bench in enumerate(machine.benches):
                limit = float(word_after(bench, "--limit").rstrip("s"))
                self.assertLessEqual(60.0 * place + limit, llm.LIMITS[number] - llm.PACKING + 1)

    def test_part_1_stops_where_nothing_is_found(self):
        machine = Machine(finds=False)
        printed, report, code, _ = machine.part(1)
        self.assertEqual((len(machine.benches), len(machine.others), code), (1, 0, 1))
        self.assertIn("llm-train: no results", printed)
        self.assertEqual(report["runs"], {})

    def test_part_1_has_two_loads(self):
        machine = Machine()
        machine.part(1)
        asked = [(word_after(bench, "--load"), word_after(bench, "--seconds")) for bench in machine.benches]
        self.assertEqual(asked, [("0.5", "60"), ("0.7", "20")])

    def test_part_1_has_a_server_on_each_width(self):
        machine = Machine()
        printed, report, code, files = machine.part(1)
        self.assertEqual([env["DETSHARE_SCHEDULE"] for _, env in machine.others], ["front32", "front64", "front96"])
        server = machine.others[0][0]
        self.assertEqual((word_after(server, "--shape"), word_after(server, "--requests")), ("8b", "20"))
        self.assertEqual(report["step_times"]["front64"]["decode"]["p50_ms_by_size"], {"3": 10.0})
        self.assertEqual(code, 0)
        self.assertIn("for part 3: --rates-8b 5", printed)
        self.assertLessEqual(len(files), 6, files)

    def test_part_2_sends_both_servers_three_loads(self):
        machine = Machine()
        _, report, code, files = machine.part(2)
        (bench,) = machine.benches
        self.assertEqual((word_after(bench, "--load"), word_after(bench, "--seconds")), ("0.5,0.3,0.7", "14"))
        (phases, _), = machine.others
        flags = [word_after(phases, flag) for flag in ("--policy", "--isolation", "--company")]
        self.assertEqual(flags, ["tpot-first", "mps", "server"])
        self.assertEqual((report["phases"]["summary"], code), ("all of them", 0))
        self.assertLessEqual(len(files), 6, files)

    def test_part_3_sends_the_same_requests_as_the_others(self):
        machine = Machine()
        machine.part(3, "--rates-8b", "0.25", "--rates-1b", "3,4")
        rates = [(bench[2], word_after(bench, "--rates")) for bench in machine.benches]
        self.assertEqual(rates, [("llm-llm-train", "3,4"), ("llm-train", "0.25"), ("llm-llm", "3,4")])

    def test_what_does_not_fit_is_said(self):
        machine = Machine(seconds_each=200.0)
        printed, *_ = machine.part(1)
        self.assertIn("front64: left out", printed)
        self.assertEqual(len(machine.others), 1)


class TableTest(unittest.TestCase):
    def test_a_line_for_each_program(self):
        spread = {"median": 0.05, "min": 0.05, "max": 0.05, "rounds": 1}
        names = ("ttft_p99_ms", "ttft_p99_overhead", "tpot_p99_ms", "tpot_p99_overhead", "mean_latency_ms", "goodput")
        service = {name: spread for name in names} | {"ttft_violations": spread, "tpot_violations": None}
        service["latency_ratios"] = {"median": 1.02, "p99": 1.31}
        told = {"right": 98, "steps": 100}
        server = {"program": "chat", "requests": 40, "service": service, "share": None, "told_apart": told}
        server["bits"] = {"verdict": "different", "different": 3, "compared": 40}
        training = {"program": "train", "service": None, "share": spread, "told_apart": None, "bits": {"verdict": "identical"}}
        arms = [{"name": "tpot-first", "programs": [server, training], "failures": []},
                {"name": "mps", "programs": [], "failures": ["no MPS"]}]  # fmt: skip
        lines = llm.table(results(arms=arms)).splitlines()
        self.assertEqual(lines[1].split()[-5:], ["-", "98/100", "3", "of", "40"])
        self.assertIn("+5.0%", lines[1])
        self.assertEqual(lines[2].split()[-3:], ["0.050", "-", "identical"])
        self.assertEqual(lines[3].split(), ["mps", "no", "figures:", "no", "MPS"])


if __name__ == "__main__":
    unittest.main()
