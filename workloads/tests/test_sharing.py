"""Tests of bench/gpu/sharing.py: what it makes of results that nobody measured."""

import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

# In the checkout, or in the bundle for a GPU machine.
ABOVE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ABOVE / "bench" / "gpu" if (ABOVE / "bench").is_dir() else ABOVE))

import sharing


def spread(value):
    return {"median": value, "min": value, "max": value, "rounds": 1}


def server(name, tail=0.05, mean_ms=100.0, missed=10.0, bits="identical"):
    service = {"ttft_p99_overhead": spread(tail), "tpot_p99_overhead": spread(tail), "mean_latency_ms": spread(mean_ms)}
    service |= {"ttft_violations": spread(missed), "tpot_violations": spread(missed)}
    verdict = {"verdict": bits} | ({"different": 3, "compared": 40} if bits == "different" else {})
    return {"program": name, "service": service, "share": None, "p99_overhead": None, "bits": verdict}


def training(share):
    return {"program": "train", "service": None, "share": spread(share), "p99_overhead": None, "bits": {"verdict": "identical"}}


def arm(name, *programs, load=0.5):
    return {"arm": name, "name": name, "load": load, "aggressiveness": None, "programs": list(programs)}


def run_named(name):
    return next(run for run in sharing.RUNS if run.name == name)


def by_asked(rows):
    return {(row["load"], row["arm"], row["asked"]): row["verdict"] for row in rows}


class VerdictsTest(unittest.TestCase):
    def test_each_load_is_judged_by_itself(self):
        """The same arm at two loads: one overwrote the other."""
        arms = []
        for load, missed, mean_ms in ((0.3, 5.0, 20.0), (0.7, 9.0, 60.0)):
            arms.append(arm("throughput", server("chat"), server("code"), load=load))
            arms.append(arm("time-slicing", server("chat"), server("code"), load=load))
            mine = [server(name, missed=missed, mean_ms=mean_ms) for name in ("chat", "code")]
            arms.append(arm("tpot-first", *mine, load=load))
        found = by_asked(sharing.verdicts(run_named("llm-llm"), {"arms": arms}))
        fewer, faster = "tpot_violations at most 0.78 of throughput", "mean_latency_ms at most 0.31 of time-slicing"
        self.assertEqual(found[0.3, "tpot-first", fewer], "met")
        self.assertEqual(found[0.7, "tpot-first", fewer], "not met")
        self.assertEqual(found[0.3, "tpot-first", faster], "met")
        self.assertEqual(found[0.7, "tpot-first", faster], "not met")

    def test_the_share_is_held_against_time_slicing_at_the_same_load(self):
        arms = [arm("time-slicing", server("chat", tail=2.0), training(0.4)), arm("tpot-first", server("chat"), training(0.41))]
        arms += [arm("time-slicing", server("chat"), training(0.5), load=0.7), arm("tpot-first", server("chat"), training(0.41), load=0.7)]
        rows = sharing.verdicts(run_named("llm-train"), {"arms": arms})
        found = by_asked(rows)
        self.assertEqual(found[0.5, "tpot-first", "share at least 0.4"], "met")
        self.assertEqual(found[0.7, "tpot-first", "share at least 0.5"], "not met")
        self.assertEqual(found[0.5, "tpot-first", "ttft_p99 at most +7%"], "met")
        missing = [row["arm"] for row in rows if row["verdict"] == "missing"]
        self.assertEqual(missing, ["slo-aware", "slo-aware"])

    def test_other_tokens_are_counted(self):
        (row, *_) = sharing.verdicts(run_named("llm-llm"), {"arms": [arm("mps", server("chat", bits="different"))]})
        self.assertEqual((row["verdict"], row["measured"]), ("differs", "3 of 40"))

    def test_what_is_asked_without_servers_has_no_load(self):
        step = {"program": "serve", "service": None, "share": None, "p99_overhead": spread(0.06), "bits": {"verdict": "identical"}}
        found = by_asked(sharing.verdicts(run_named("small"), {"arms": [arm("slo-aware", step, training(0.8), load=None)]}))
        self.assertEqual(found["", "slo-aware", "p99 at most +7%"], "met")
        self.assertEqual(found["", "slo-aware", "share at least 0.76"], "met")

    def test_a_run_that_failed_says_so(self):
        rows = sharing.verdicts(run_named("llm-llm"), {"failed": "exit code 2"})
        self.assertEqual([(row["verdict"], row["measured"]) for row in rows], [("missing", "exit code 2")])


class RunsTest(unittest.TestCase):
    def test_all_ways_are_compared_where_they_make_sense(self):
        everywhere = {"alone", "time-slicing", "mps", "throughput", "slo-aware", "tpot-first"}
        for name in ("llm-train", "llm-llm", "llm-llm-train"):
            run = run_named(name)
            known = set(run.arms) | {arm for arm, _ in run.without}
            self.assertEqual(everywhere | {"mps-priority"}, known - {"detshare-alone"}, name)
        self.assertEqual([arm for arm, _ in run_named("llm-llm").without], ["mps-priority"])

    def test_the_report_has_what_was_asked_for_and_why_an_arm_is_none(self):
        results = {"arms": [arm("alone", server("chat")), arm("tpot-first", server("chat"))], "runs": ["long"]}
        asked = []

        def ran(command, **_):
            asked.append(command)
            if "--out" in command:
                folder = Path(command[command.index("--out") + 1])
                folder.mkdir(parents=True)
                (folder / "results.json").write_text(json.dumps(results))
            known = "llm-llm has no arm: it has alone, tpot-first, throughput, time-slicing"
            return SimpleNamespace(stderr=known, returncode=0)

        with tempfile.TemporaryDirectory() as out:
            words = ["sharing.py", "--out", out, "--only", "llm-llm", "--load", "0.3,0.5", "--again", "2", "--leave-out", "throughput"]
            with mock.patch.object(sys, "argv", words), mock.patch.object(sharing.subprocess, "run", ran):
                with contextlib.redirect_stdout(io.StringIO()):
                    sharing.main()
            report = json.loads((Path(out) / "sharing.json").read_text())
        bench = asked[-1]
        self.assertEqual(bench[bench.index("--arms") + 1], "alone,tpot-first,time-slicing")
        self.assertEqual((bench[bench.index("--load") + 1], bench[bench.index("--again") + 1]), ("0.3,0.5", "2"))
        run = report["runs"]["llm-llm"]
        self.assertIn("same class", run["without"]["mps-priority"])
        self.assertNotIn("runs", run)

    def test_several_loads_take_as_many_times_as_long(self):
        run = run_named("llm-llm")
        ahead = run.seconds(8, 0)
        self.assertEqual(run.seconds(8, 1, 3) - ahead, 3 * (run.seconds(8, 1) - ahead))


if __name__ == "__main__":
    unittest.main()
