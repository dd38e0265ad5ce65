"""Tests of llm_trace.py."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import llm_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


class TraceTest(unittest.TestCase):
    """The trace reader, with good input and bad."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name) / "trace.csv"
        self.complaints = []

    def read(self, text):
        self.file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return llm_trace.read_trace(self.file, self.complaints.append)

    def refused(self, text, *parts, exit_code=65):
        with self.assertRaises(llm_trace.BadTrace) as caught:
            self.read(text)
        message = str(caught.exception)
        self.assertEqual(caught.exception.exit_code, exit_code)
        self.assertNotIn("\n", message)
        for part in (str(self.file), *parts):
            self.assertIn(part, message)

    def test_times_count_from_the_first(self):
        arrivals = self.read(
            HEADER + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:18:04.0319600,3180,8\n\n"
        )
        self.assertEqual([arrival.line for arrival in arrivals], [2, 3])
        self.assertEqual([arrival.prompt_length for arrival in arrivals], [4808, 3180])
        self.assertEqual([arrival.output_length for arrival in arrivals], [10, 8])
        self.assertEqual(arrivals[0].offset, 0)
        self.assertAlmostEqual(arrivals[1].offset, 60.052, places=5)

    def test_other_forms(self):
        """Another order of columns and one more, a mark of byte order, a zone, numbers as times."""
        text = "\ufeffContextTokens,who,TIMESTAMP,GeneratedTokens\r\n3,a,{},4\r\n5,b,{},6\r\n"
        for times in (("2024-05-10 00:00:00.5+00:00", "2024-05-10 00:00:02+00:00"), ("7.5", "9")):
            arrivals = self.read(text.format(*times))
            self.assertEqual([arrival.offset for arrival in arrivals], [0, 1.5])
            self.assertEqual([arrival.prompt_length for arrival in arrivals], [3, 5])

    def test_times_out_of_order_are_sorted(self):
        arrivals = self.read(HEADER + "3,30,1\n1,10,1\n2,20,1\n")
        self.assertEqual([arrival.prompt_length for arrival in arrivals], [10, 20, 30])
        self.assertEqual([arrival.line for arrival in arrivals], [3, 4, 2])
        self.assertEqual([arrival.index for arrival in arrivals], [0, 1, 2])
        self.assertEqual(len(self.complaints), 1)
        self.assertIn("1 requests have an earlier time", self.complaints[0])

    def test_bad_headers(self):
        self.refused("", "line 1", "TIMESTAMP, ContextTokens, GeneratedTokens")
        self.refused("TIMESTAMP,GeneratedTokens\n1,2\n", "line 1", "no column ContextTokens")
        self.refused(HEADER, "no requests")

    def test_bad_lines(self):
        for row, what in {
            "yesterday,5,5": "TIMESTAMP 'yesterday' is no time",
            "nan,5,5": "TIMESTAMP 'nan' is no time",
            "2023-11-16 18:17:03.,5,5": "is no time",
            ",5,5": "TIMESTAMP '' is no time",
            "2,0,5": "ContextTokens is 0",
            "2,-3,5": "ContextTokens is -3",
            "2,5,0": "GeneratedTokens is 0",
            "2,5,-1": "GeneratedTokens is -1",
            "2,5.5,1": "ContextTokens '5.5' is no whole number",
            "2,5,many": "GeneratedTokens 'many' is no whole number",
            "2,5": "has 2 of 3 fields",
        }.items():
            with self.subTest(row):
                self.refused(HEADER + "1,5,5\n" + row + "\n", "line 3", what, "correct or remove the line")

    def test_bad_files(self):
        self.refused(b"\xff\xfe\x00", "is not UTF-8")
        with self.assertRaises(llm_trace.BadTrace) as caught:
            llm_trace.read_trace(self.file.with_name("elsewhere.csv"))
        self.assertEqual(caught.exception.exit_code, 66)

    def test_selection_and_speed(self):
        arrivals = self.read(HEADER + "".join(f"{time},5,5\n" for time in (0, 10, 20, 30)))
        chosen = llm_trace.select(arrivals, skip=1, count=2, speed=4)
        self.assertEqual([(arrival.index, arrival.offset) for arrival in chosen], [(1, 0), (2, 2.5)])
        self.assertEqual(llm_trace.select(arrivals, skip=9, count=None, speed=1), [])

    def test_speed_for_a_rate(self):
        arrivals = self.read(HEADER + "0,5,5\n1,5,5\n10,5,5\n")
        speed = llm_trace.speed_for(arrivals, rate=4)
        self.assertEqual(speed, 20)
        offsets = [arrival.offset for arrival in llm_trace.select(arrivals, 0, None, speed)]
        self.assertEqual(offsets, [0, 0.05, 0.5])
        self.assertEqual(llm_trace.speed_for(arrivals[:1], rate=4), 1)
        self.assertEqual(llm_trace.speed_for([], rate=4), 1)

    def test_cut(self):
        arrivals = self.read(HEADER + "1,500,50\n2,5,5\n")
        shorter, counts = llm_trace.cut(arrivals, 100, 10)
        self.assertEqual(
            [(arrival.prompt_length, arrival.output_length) for arrival in shorter], [(100, 10), (5, 5)]
        )
        self.assertEqual(counts, llm_trace.Cut(prompts=1, outputs=1))
        self.assertEqual(llm_trace.cut(arrivals, None, None), (arrivals, llm_trace.Cut()))

    def test_synthetic_lengths(self):
        for kind, (prompts, outputs) in llm_trace.SYNTHETIC.items():
            arrivals = llm_trace.synthetic_trace(kind, rate=10, seed=1, count=2000)
            middle = len(arrivals) // 2
            self.assertAlmostEqual(
                sorted(a.prompt_length for a in arrivals)[middle] / prompts.median, 1, delta=0.1
            )
            self.assertAlmostEqual(
                sorted(a.output_length for a in arrivals)[middle] / outputs.median, 1, delta=0.2
            )
            self.assertAlmostEqual(arrivals[-1].offset, 200, delta=20)
            self.assertEqual(arrivals, llm_trace.synthetic_trace(kind, rate=10, seed=1, count=2000))

    def test_a_prompt_depends_on_seed_and_index_alone(self):
        prompt = llm_trace.prompt_tokens(1, 2, 50, 512)
        self.assertEqual(prompt, llm_trace.prompt_tokens(1, 2, 50, 512))
        self.assertNotEqual(prompt, llm_trace.prompt_tokens(1, 3, 50, 512))
        self.assertNotEqual(prompt, llm_trace.prompt_tokens(2, 2, 50, 512))
        self.assertTrue(all(0 <= token < 512 for token in prompt))


if __name__ == "__main__":
    unittest.main()
