"""Tests of bench/gpu/phase_accuracy.py: what it makes of a log and a record that nobody wrote."""

import sys
import unittest
from pathlib import Path

# In the checkout, or in the bundle for a GPU machine.
ABOVE = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ABOVE / "bench" / "gpu" if (ABOVE / "bench").is_dir() else ABOVE))

import phase_accuracy

NEEDED = ["--detshare", "detshare", "--out", "out.json"]


def steps(count):
    """A prefill step in each ten, each for a millisecond."""
    return [("decode" if number % 10 else "prefill", number / 1e3, number / 1e3 + 0.0009, 1, 1) for number in range(count)]


def record(phases):
    for number, phase in enumerate(phases):
        yield f'{{"at":{number * 1000000 + 200000},"launch":"00","expected":5000}}'
        yield f'{{"at":{number * 1000000 + 800000},"step":"ended","phase":"{phase}"}}'


class CompareTest(unittest.TestCase):
    def test_each_kind_has_its_own_part(self):
        phases = [kind for kind, *_ in steps(150)]
        phases[60] = phases[70] = "decode"
        phases[61] = "unknown"
        found = phase_accuracy.compare(steps(150), record(phases))
        self.assertEqual((found["steps"], found["right"]), (100, 97))
        self.assertEqual(found["recall"]["prefill"], {"steps": 10, "right": 8, "part": 0.8})
        self.assertEqual(found["recall"]["decode"]["right"], 89)
        self.assertEqual(found["by_kind"]["prefill taken for decode"], 2)
        self.assertEqual(found["wrong"][0]["work_us"], 5.0)
        self.assertIn("(decode 89 of 90, prefill 8 of 10)", phase_accuracy.in_words(found))


class OptionsTest(unittest.TestCase):
    def test_the_server_is_told_what_to_replay(self):
        words = ["--trace", "conv.csv", "--skip", "500", "--prefill-chunk", "512", "--company", "server", "--shape", "8b"]
        options = phase_accuracy.parse_arguments([*NEEDED, *words])
        command = " ".join(phase_accuracy.server_command(options, 1, 60))
        self.assertIn("--trace conv.csv --skip 500 --at-rate 4", command)
        self.assertTrue(command.endswith("--prefill-chunk 512"), command)
        self.assertNotIn("--longest-output", command)
        kind, beside = phase_accuracy.company_command(options, "server")
        self.assertEqual((kind, beside[beside.index("--seed") + 1]), ("latency", "2"))

    def test_without_flags_it_is_as_ever(self):
        options = phase_accuracy.parse_arguments(NEEDED)
        self.assertEqual((options.company, options.policy, options.isolation), (["alone", "train"], "slo-aware", "process"))
        self.assertEqual(phase_accuracy.company_command(options, "train")[0], "best-effort")


if __name__ == "__main__":
    unittest.main()
