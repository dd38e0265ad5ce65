"""What bench_serve.py, bench_train.py and llm_server.py share, and all of the first two that needs no GPU.

A benchmark starts several of these programs at once. Each sets itself up, waits until it may start, works until it has
done enough or is told to stop, and writes what it noted as JSON. Times are seconds of CLOCK_MONOTONIC, which all
processes of a machine share.
"""

import argparse
import hashlib
import itertools
import json
import math
import signal
import time
from pathlib import Path
from random import Random

import workload

DEVICE = "cuda"

# Seconds.
STOP_LOOK = 0.05  # between two looks at whether the stop file is there
START_LOOK = 0.001
SPIN = 0.0003  # before a request arrives, as a sleeper is woken a little late

REQUESTS_PER_DIGEST = 100
DIGEST_CHARACTERS = 16
PARAMETER_STEPS = (20, 100, 500)  # after these many steps the parameters are kept for their digest


def argument_parser(description):
    """The options that these programs have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--tiny", action="store_true", help="sizes that take no time, to check the program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write what was noted to FILE, as JSON")
    parser.add_argument(
        "--start-file",
        type=Path,
        metavar="FILE",
        help="after the set-up make FILE.ready, and start when FILE is there",
    )
    parser.add_argument("--stop-file", type=Path, metavar="FILE", help="stop when FILE is there, as after SIGTERM")
    return parser


def run(program, options):
    """Run `program`, which returns its report and a line about it; write the one and print the other."""
    stop = Stop(options.stop_file)
    signal.signal(signal.SIGTERM, lambda *_: stop.ask())
    workload.skip_without_gpu()
    report, summary = program(options, stop)
    if options.out:
        write_json(options.out, report)
    print(summary, flush=True)


class Stop:
    """Whether the program was told to stop, by a call or by a file."""

    def __init__(self, file=None, clock=time.monotonic):
        self.file = file
        self.clock = clock
        self.asked = False
        self.next_look = -math.inf

    def ask(self):
        self.asked = True

    def requested(self):
        """Cheap enough for a loop that spins: it looks for the file only now and then."""
        if self.file and not self.asked and self.clock() >= self.next_look:
            self.next_look = self.clock() + STOP_LOOK
            if self.file.exists():
                self.ask()
        return self.asked


def wait_for_start(start_file, stop, sleep=time.sleep):
    """Say that the set-up is done, and wait until all may start."""
    if not start_file:
        return
    beside(start_file, ".ready").touch()
    while not start_file.exists() and not stop.requested():
        sleep(START_LOOK)


def write_json(file, value):
    """Who finds the file finds all of it."""
    partial = beside(file, ".partial")
    partial.write_text(json.dumps(value) + "\n")
    partial.replace(file)


def beside(file, ending):
    return file.with_name(file.name + ending)


def encoder(layers, width, heads):
    """A pre-norm transformer encoder in bfloat16, without dropout, with the weights of torch's seed."""
    import torch

    return torch.nn.Sequential(
        *(
            torch.nn.TransformerEncoderLayer(
                width,
                heads,
                dim_feedforward=4 * width,
                dropout=0.0,
                batch_first=True,
                norm_first=True,
                device=DEVICE,
                dtype=torch.bfloat16,
            )
            for _ in range(layers)
        )
    )


def arrival_rule(options, start):
    """A function from the end of one request to the arrival of the next.

    In a closed loop the next one comes a pause later. In the open loops requests come when they come, whether or not
    the ones before are answered.
    """
    if options.arrivals == "closed":
        pause = options.pause_ms / 1000
        return lambda previous_end: previous_end + pause
    offsets = arrival_offsets(options.arrivals, options.period_ms / 1000, options.seed)
    return lambda _: start + next(offsets)


def arrival_offsets(arrivals, period, seed):
    """When the requests of an open loop arrive, in seconds from its start."""
    if arrivals == "periodic":
        return (index * period for index in itertools.count())
    random = Random(seed)
    return itertools.accumulate(random.expovariate(1 / period) for _ in itertools.count())


def wait_until(moment, stop, clock, sleep):
    """Sleep until shortly before `moment` and then spin; return early if the program is to stop."""
    while (left := moment - clock()) > 0 and not stop.requested():
        if left > SPIN:
            sleep(min(left - SPIN, STOP_LOOK))


def serve(answer, options, stop, clock=time.monotonic, sleep=time.sleep):
    """Answer requests in the order in which they arrive: first those of the warm-up, then those that count.

    `answer` takes a request's index, negative in the warm-up, and returns its result as `bytes`.
    """
    log = RequestLog()
    end = clock()
    next_arrival = arrival_rule(options, start=end)
    for index in range(-options.warm_up, options.requests):
        arrival = next_arrival(end)
        wait_until(arrival, stop, clock, sleep)
        if stop.requested():
            break
        begin = clock()
        result = answer(index)
        end = clock()
        if index < 0:
            log.warm_up += 1
        else:
            log.add(arrival, begin, end, result)
    return log


class RequestLog:
    """The requests that counted: when each arrived, was begun and was answered, and a digest of the results."""

    def __init__(self):
        self.warm_up = 0
        self.times = []
        self.results = hashlib.sha256()
        self.running_digests = []

    def add(self, arrival, begin, end, result):
        self.times.append((arrival, begin, end))
        self.results.update(result)
        if len(self.times) % REQUESTS_PER_DIGEST == 0:
            self.running_digests.append(self.results.hexdigest()[:DIGEST_CHARACTERS])

    def report(self):
        return {
            "warm_up": self.warm_up,
            "requests": self.times,
            "digest": self.results.hexdigest(),
            "result_digests": self.running_digests,
        }

    def summary(self):
        if not self.times:
            return "0 requests"
        latencies = sorted((end - arrival) * 1000 for arrival, _, end in self.times)
        median, tail = (latencies[len(latencies) * percent // 100] for percent in (50, 99))
        return f"{len(latencies)} requests, p50 {median:.3f} ms, p99 {tail:.3f} ms"


def train(step, keep_parameters, options, stop, clock=time.monotonic):
    """Do the steps of the warm-up, and then count steps until there are enough or the time is over.

    `step` returns its loss. `keep_parameters` is called with the number of steps that counted, for some of them; the
    time that it takes does not count.
    """
    for _ in range(options.warm_up_steps):
        if stop.requested():
            break
        step()
    log = StepLog(begin=clock())
    while (
        len(log.steps) < options.steps
        and clock() - log.begin - log.paused_seconds() < options.seconds
        and not stop.requested()
    ):
        loss = step()
        log.steps.append((clock(), loss.hex()))
        if len(log.steps) in PARAMETER_STEPS:
            pause_begin = clock()
            keep_parameters(len(log.steps))
            log.paused.append((pause_begin, clock()))
    return log


class StepLog:
    """The steps that counted: when each ended and its loss, and when the program did something else."""

    def __init__(self, begin):
        self.begin = begin
        self.steps = []
        self.paused = []

    def paused_seconds(self):
        return sum(end - begin for begin, end in self.paused)

    def report(self):
        return {"begin_s": self.begin, "steps": self.steps, "paused": self.paused}

    def summary(self):
        if not self.steps:
            return "0 steps"
        last_end, _ = self.steps[-1]
        paused = sum(end - begin for begin, end in self.paused if end <= last_end)
        rate = len(self.steps) / (last_end - self.begin - paused)
        return f"{len(self.steps)} steps, {rate:.2f} steps/s"
