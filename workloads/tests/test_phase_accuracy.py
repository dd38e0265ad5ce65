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


class VerdictTest(unittest.TestCase):
    def found(self, prefills, phases):
        """Of 1,000 steps that count, so many are prefills, which are taken for what `phases` says of them."""
        kinds = ["prefill" if place % (1000 // prefills) == 0 else "decode" for place in range(phase_accuracy.FIRST + 1000)]
        logged = [(kind, place / 1e3, place / 1e3 + 0.0009, 1, 1) for place, kind in enumerate(kinds)]
        return phase_accuracy.compare(logged, record(map(phases, kinds)))

    def test_who_always_says_decode_is_not_right(self):
        """99 of 100 steps were right, and no prefill was known."""
        found = self.found(10, lambda kind: "decode")
        self.assertGreaterEqual(found["part"], phase_accuracy.ASKED)
        self.assertFalse(phase_accuracy.is_right(found))
        self.assertTrue(phase_accuracy.is_right(self.found(10, lambda kind: kind)))

    def test_steps_of_one_kind_alone_say_nothing(self):
        self.assertFalse(phase_accuracy.are_told_apart(1.0, {"decode": 1.0}))

    def test_each_kind_has_its_own_least(self):
        self.assertTrue(phase_accuracy.are_told_apart(0.99, {"decode": 0.99, "prefill": 0.95}))
        self.assertFalse(phase_accuracy.are_told_apart(0.99, {"decode": 0.99, "prefill": 0.94}))
        self.assertFalse(phase_accuracy.are_told_apart(0.97, {"decode": 0.97, "prefill": 1.0}))


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
