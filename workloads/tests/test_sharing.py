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


FASTER = "mean_latency_ms at most 0.31 of time-slicing, or 75% of the way to the ideal"


def spread(value):
    return {"median": value, "min": value, "max": value, "rounds": 1}


def server(name, tail=0.05, mean_ms=100.0, missed=10.0, bits="identical"):
    service = {"ttft_p99_overhead": spread(tail), "tpot_p99_overhead": spread(tail), "mean_latency_ms": spread(mean_ms)}
    service |= {"ttft_violations": spread(missed), "tpot_violations": spread(missed)}
    verdict = {"verdict": bits} | ({"different": 3, "compared": 40} if bits == "different" else {})
    service |= {"goodput": spread(2.0)}
    return {"program": name, "class": "latency", "service": service, "share": None, "p99_overhead": None, "bits": verdict}


def training(share):
    found = {"program": "train", "class": "best-effort", "service": None, "share": share and spread(share)}
    return found | {"p99_overhead": None, "bits": {"verdict": "identical"}}


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
        fewer, faster = "tpot_violations at most 0.78 of throughput", FASTER
        self.assertEqual(found[0.3, "tpot-first", fewer], "met")
        self.assertEqual(found[0.7, "tpot-first", fewer], "not met")
        self.assertEqual(found[0.3, "tpot-first", faster], "met")
        self.assertEqual(found[0.7, "tpot-first", faster], "not met")
        lines = sharing.loads_in_words(sharing.verdicts(run_named("llm-llm"), {"arms": arms}))
        self.assertIn(f"tpot-first, all servers, {fewer}: holds at load 0.3; not at 0.7", lines)
        goodput = sharing.goodput_in_words([{"arms": arms, "scenario": {"name": "llm-llm"}}])
        self.assertEqual(goodput[1], "goodput of llm-llm at load 0.7: throughput 4, time-slicing 4, tpot-first 4")

    def test_where_the_other_was_left_out_nothing_is_judged_and_that_is_said(self):
        """Without time-slicing what was asked of the share was not there at all."""
        rows = sharing.verdicts(run_named("llm-train"), {"arms": [arm("tpot-first", server("chat"), training(0.41))]})
        found = {(row["arm"], row["asked"]): (row["measured"], row["verdict"]) for row in rows}
        share = "share at least that of time-slicing"
        self.assertEqual(found["tpot-first", share], ("no share of time-slicing", "missing"))
        both = [arm("tpot-first", server("chat"), training(None)), arm("time-slicing", server("chat"), training(0.5))]
        rows = sharing.verdicts(run_named("llm-train"), {"arms": both})
        found = {(row["arm"], row["asked"]): (row["measured"], row["verdict"]) for row in rows}
        self.assertEqual(found["tpot-first", share], ("no share of tpot-first", "missing"))
        rows = sharing.verdicts(run_named("llm-llm"), {"arms": [arm("tpot-first", server("chat"), server("code"))]})
        said = [(row["verdict"], row["measured"]) for row in rows]
        nobody = [("missing", "no figures of throughput")] * 2
        self.assertEqual(said, [*nobody, ("missing", "no figures of time-slicing")])
        rows = sharing.verdicts(run_named("two-full"), {"arms": [arm("slo-aware", training(0.5), training(0.5), load=None)]})
        self.assertEqual([row["verdict"] for row in rows], ["missing"])

    def test_where_0_31_cannot_be_it_is_judged_how_near_to_the_ideal_it_is(self):
        def judged(mine, sliced, times=1.2, alone=100.0):
            arms = [arm("time-slicing", server("chat", mean_ms=sliced)), arm("tpot-first", server("chat", mean_ms=mine))]
            bound = {"load": 0.5, "ideal": {"servers": [{"program": "chat", "alone_ms": alone, "times_alone": times}]}}
            rows = sharing.verdicts(run_named("llm-llm"), {"arms": arms, "bounds": [bound]})
            return next((row["measured"], row["verdict"]) for row in rows if row["asked"] == FASTER)

        self.assertEqual(judged(130.0, 160.0), ("0.812; 75% of the way (130, of 160 to 120 ms, alone 100)", "met"))
        self.assertEqual(judged(131.0, 160.0)[1], "not met")
        self.assertEqual(judged(170.0, 160.0), ("1.062; -25% of the way (170, of 160 to 120 ms, alone 100)", "not met"))
        self.assertEqual(judged(48.0, 160.0)[1], "met", "what is asked first")
        # Time-slicing is as good as can be: who is there too is near.
        self.assertEqual(judged(121.0, 121.0)[1], "met")
        self.assertEqual(judged(119.0, 118.0), ("1.008; no way to go (119, of 118 to 120 ms, alone 100)", "met"))
        self.assertEqual(judged(130.0, 118.0)[1], "not met")

    def test_fewer_than_none_there_cannot_be(self):
        arms = [arm(name, server("chat", missed=missed)) for name, missed in (("throughput", 0.0), ("tpot-first", 0.0))]
        rows = sharing.verdicts(run_named("llm-llm"), {"arms": arms})
        found = {row["asked"]: (row["measured"], row["verdict"]) for row in rows}
        self.assertEqual(found["tpot_violations at most 0.78 of throughput"], ("0 and 0", "met"))
        arms[1] = arm("tpot-first", server("chat", missed=2.0))
        found = {row["asked"]: row["verdict"] for row in sharing.verdicts(run_named("llm-llm"), {"arms": arms})}
        self.assertEqual(found["ttft_violations at most 1.00 of throughput"], "not met")

    def test_steps_are_told_apart_by_each_kind(self):
        def judged(taken, **more):
            steps = sum(count for phases in taken.values() for count in phases.values())
            right = sum(phases.get(kind, 0) for kind, phases in taken.items())
            chat = server("chat") | {"told_apart": {"steps": steps, "right": right, "taken": taken} if taken else None}
            rows = sharing.verdicts(run_named("llm-train"), {"arms": [arm("tpot-first", chat, training(0.5))]} | more)
            return [(row["measured"], row["verdict"]) for row in rows if row["asked"].startswith("steps told apart")]

        always = {"decode": {"decode": 990}, "prefill": {"decode": 10}}
        self.assertEqual(judged(always), [("0.9900, decode 1.0000, prefill 0.0000", "not met")])
        found = judged({"decode": {"decode": 990}, "prefill": {"prefill": 19, "decode": 1}})
        self.assertEqual(found, [("0.9990, decode 1.0000, prefill 0.9500", "met")])
        self.assertEqual(judged({"decode": {"decode": 990}})[0][1], "not met", "without a prefill nobody knows")
        self.assertEqual(judged({}), [])
        self.assertEqual(judged({}, command=["bench", "--keep", "k"]), [("no record", "missing")])

    def test_the_share_is_held_against_time_slicing_at_the_same_load(self):
        arms = [arm("time-slicing", server("chat", tail=2.0), training(0.4)), arm("tpot-first", server("chat"), training(0.41))]
        arms += [arm("time-slicing", server("chat"), training(0.5), load=0.7), arm("tpot-first", server("chat"), training(0.41), load=0.7)]
        rows = sharing.verdicts(run_named("llm-train"), {"arms": arms})
        found = by_asked(rows)
        self.assertEqual(found[0.5, "tpot-first", "share at least that of time-slicing"], "met")
        self.assertEqual(found[0.7, "tpot-first", "share at least that of time-slicing"], "not met")
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
            with contextlib.ExitStack() as stack:
                stack.enter_context(mock.patch.object(sys, "argv", words))
                stack.enter_context(mock.patch.object(sharing.subprocess, "run", ran))
                stack.enter_context(mock.patch.object(sharing, "run_for", lambda command, _: ran(command)))
                stack.enter_context(mock.patch.object(sharing.signal, "signal"))
                stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
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
