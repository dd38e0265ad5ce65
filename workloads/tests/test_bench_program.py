"""What a request's latency counts from, by a clock that stands still unless somebody sleeps or answers."""

import functools
import importlib
import sys
import unittest
from argparse import Namespace
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import bench_program

PERIOD = 0.010
LOOK = 0.000_01  # what looking at the clock takes, or who spins until a moment would do so for ever


class Clock:
    """Time passes by sleeping, by answering and, a little, by looking."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        self.now += LOOK
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def served(answer_seconds, arrivals="periodic", warm_up=0, pause_ms=5.0):
    """The log of a server whose answers take so long each, in turn."""
    clock = Clock()
    answers = iter(answer_seconds)

    def answer(index):
        clock.sleep(next(answers))
        return b"%d" % index

    requests = len(answer_seconds) - warm_up
    options = Namespace(
        arrivals=arrivals, period_ms=PERIOD * 1000, pause_ms=pause_ms, seed=1, requests=requests, warm_up=warm_up
    )
    stop = bench_program.Stop(clock=clock)
    return bench_program.serve(answer, options, stop, clock=clock, sleep=clock.sleep)


def latencies(log):
    return [end - arrival for arrival, _, end in log.times]


class LatencyTest(unittest.TestCase):
    def assert_close(self, found, expected):
        self.assertEqual(len(found), len(expected))
        for one, other in zip(found, expected):
            self.assertAlmostEqual(one, other, delta=0.001)

    def test_an_answer_in_time_counts_alone(self):
        self.assert_close(latencies(served([0.002] * 5)), [0.002] * 5)

    def test_who_comes_while_another_is_answered_waits_and_that_counts(self):
        log = served([0.002, 0.025, 0.002, 0.002, 0.002])
        # The second takes until 35 ms; the third came at 20 ms, the fourth at 30 ms, the fifth at 40 ms.
        self.assert_close(latencies(log), [0.002, 0.025, 0.017, 0.009, 0.002])

    def test_a_server_that_is_too_slow_builds_a_queue(self):
        log = served([0.015] * 20)
        self.assert_close(latencies(log), [0.015 + 0.005 * place for place in range(20)])

    def test_arrivals_do_not_wait_for_answers(self):
        slow, fast = served([0.030] * 10), served([0.001] * 10)
        self.assert_close([arrival for arrival, _, _ in slow.times], [arrival for arrival, _, _ in fast.times])
        slow, fast = served([0.030] * 10, "poisson"), served([0.001] * 10, "poisson")
        self.assert_close([arrival for arrival, _, _ in slow.times], [arrival for arrival, _, _ in fast.times])

    def test_a_queue_from_the_warm_up_is_waited_for_by_who_counts(self):
        log = served([0.030, 0.002, 0.002], warm_up=1)
        # The one that counts first came at 10 ms, and its turn at 30 ms.
        self.assert_close(latencies(log), [0.022, 0.014])
        self.assertEqual(log.warm_up, 1)

    def test_in_a_closed_loop_nobody_waits(self):
        self.assert_close(latencies(served([0.030] * 5, "closed")), [0.030] * 5)

    def test_what_is_said_of_all_is_the_latency_with_the_queue(self):
        self.assertIn("p99 110.", served([0.015] * 20).summary())

    def test_the_server_reports_arrivals_and_not_only_when_it_began(self):
        clock = Clock()
        with mock.patch.dict(sys.modules, {"torch": mock.MagicMock(), "llm_decode": mock.MagicMock()}):
            bench_serve = importlib.import_module("bench_serve")

        def answer(_):
            clock.sleep(0.015)
            return b""

        by_the_clock = functools.partial(bench_program.serve, clock=clock, sleep=clock.sleep)
        arguments = ["--period-ms", "10", "--requests", "10", "--warm-up", "0"]
        with (
            mock.patch.object(bench_serve, "Server", return_value=mock.MagicMock(answer=answer)),
            mock.patch.object(bench_program, "serve", by_the_clock),
            mock.patch("gc.freeze"),
        ):
            report, said = bench_serve.program(bench_serve.parse_arguments(arguments), bench_program.Stop(clock=clock))
        found = [end - arrival for arrival, _, end in report["requests"]]
        self.assert_close(found, [0.015 + 0.005 * place for place in range(10)])
        self.assertIn("p99 60.", said)


if __name__ == "__main__":
    unittest.main()
