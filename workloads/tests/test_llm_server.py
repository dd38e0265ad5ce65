"""Tests of llm_server.py, llm_scheduler.py and llm_http.py; some are skipped where PyTorch is missing."""

import contextlib
import http.client
import importlib.util
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from array import array
from pathlib import Path
from random import Random

WORKLOADS = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(WORKLOADS))

import bench_program
import llm_http
import llm_server
from llm_scheduler import (
    BLOCK,
    CANCELLED,
    COMPLETE,
    DECODE,
    PREFILL,
    STOPPED,
    TOO_LONG,
    BlockPool,
    Limits,
    Request,
    Scheduler,
    run_steps,
)

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
# Seconds.
PATIENCE = 600  # for what takes a moment, however busy the machine is
UNHURRIED = llm_http.CLIENT_LOOK / 2  # for a step of a request that must not end by itself; its tokens keep coming

needs_torch = unittest.skipUnless(importlib.util.find_spec("torch"), "needs PyTorch")


def request(index=0, prompt=20, output=5):
    return Request(index, 0.0, array("q", range(prompt)), output)


def scheduler(blocks=100, **limits):
    limits = {"rows": 4, "longest_context": 4096} | limits
    return Scheduler(Limits(**limits), BlockPool(blocks))


def do_step(scheduler, now=1.0):
    """Do the next step; as its tokens, each request gets its own index."""
    step = scheduler.next_step()
    if step:
        is_last = step.kind == DECODE or step.end == len(step.requests[0].prompt)
        scheduler.step_done(step, [one.index for one in step.requests] if is_last else [], now, now)
    return step


class SchedulerTest(unittest.TestCase):
    """Admission, the order of steps, and where the blocks are."""

    def test_prefill_comes_first(self):
        one = scheduler()
        for index in range(2):
            one.submit(request(index, output=3))
        kinds = [do_step(one).kind for _ in range(4)]
        self.assertEqual(kinds, [PREFILL, PREFILL, DECODE, DECODE])
        self.assertIsNone(do_step(one))
        self.assertEqual([ended.ended for ended in one.ended], [COMPLETE, COMPLETE])

    def test_chunks(self):
        one = scheduler(chunk=16)
        one.submit(request(prompt=40, output=1))
        steps = [do_step(one) for _ in range(3)]
        self.assertEqual([(step.begin, step.end) for step in steps], [(0, 16), (16, 32), (32, 40)])
        self.assertEqual(len(one.ended[0].tokens), 1)

    def test_chunks_between_decode_steps(self):
        one = scheduler(chunk=16, interleave=True)
        one.submit(request(0, prompt=10, output=9))
        do_step(one)
        one.submit(request(1, prompt=40, output=2))
        kinds = [do_step(one).kind for _ in range(6)]
        self.assertEqual(kinds, [DECODE, PREFILL, DECODE, PREFILL, DECODE, PREFILL])

    def test_a_request_waits_for_its_blocks(self):
        one = scheduler(blocks=4)
        one.submit(request(0, prompt=3 * BLOCK - 2, output=2))
        one.submit(request(1, prompt=2 * BLOCK - 2, output=2))
        one.submit(request(2, prompt=2, output=2))
        self.assertEqual([do_step(one).requests[0].index for _ in range(2)], [0, 0])
        self.assertEqual(do_step(one).requests[0].index, 1, "in the order of arrival")

    def test_rows_are_a_limit(self):
        one = scheduler(rows=2)
        for index in range(3):
            one.submit(request(index))
        do_step(one)
        self.assertEqual((len(one.prefilling) + len(one.running), len(one.waiting)), (2, 1))

    def test_too_long(self):
        one = scheduler(blocks=4, longest_context=1000)
        one.submit(request(0, prompt=4 * BLOCK, output=1))
        one.submit(request(1, prompt=4 * BLOCK - 1, output=1))
        refused = request(2)
        refused.refused = True
        one.submit(refused)
        self.assertEqual([(ended.index, ended.ended) for ended in one.ended], [(0, TOO_LONG), (2, TOO_LONG)])
        self.assertFalse(scheduler(longest_context=20).fits(21))

    def test_cancelled_wherever_it_is(self):
        one = scheduler(rows=2, chunk=16)
        requests = [request(index, prompt=40) for index in range(3)]
        for each in requests:
            one.submit(each)
        for _ in range(4):
            do_step(one)
        for each in requests:
            each.cancelled = True
        self.assertIsNone(one.next_step())
        self.assertEqual([each.ended for each in requests], [CANCELLED] * 3)
        self.assertEqual(len(one.pool.free), one.pool.count)

    def test_blocks_given_back_twice(self):
        pool = BlockPool(2)
        blocks = pool.take(1)
        pool.give_back(blocks)
        with self.assertRaises(ValueError):
            pool.give_back(blocks)

    def test_random_requests(self):
        """No block has two owners, none is lost, and every request ends with all its tokens."""
        for seed in range(20):
            random = Random(seed)
            one = scheduler(
                blocks=random.randint(20, 60),
                rows=random.randint(1, 8),
                chunk=random.choice([0, 16, 32]),
                interleave=random.random() < 0.5,
            )
            coming = [request(i, random.randint(1, 200), random.randint(1, 60)) for i in range(60)]
            everyone = list(coming)
            while coming or one.busy():
                while coming and random.random() < 0.3:
                    one.submit(coming.pop())
                if random.random() < 0.02 and one.running:
                    random.choice(one.running).cancelled = True
                do_step(one)
                self.check_blocks(one)
            self.assertEqual(len(one.ended), len(everyone))
            self.assertEqual(len(one.pool.free), one.pool.count)
            for each in everyone:
                self.assertIn(each.ended, [COMPLETE, CANCELLED, TOO_LONG])
                if each.ended == COMPLETE:
                    self.assertEqual(each.tokens, [each.index] * each.output_length)

    def check_blocks(self, one):
        held = [block for each in [*one.prefilling, *one.running] for block in each.blocks]
        self.assertEqual(len(held), len(set(held)))
        self.assertEqual(sorted([*held, *one.pool.free]), list(range(one.pool.count)))
        for each in one.running:
            self.assertLess(each.position, len(each.blocks) * BLOCK)
        self.assertLessEqual(len(one.prefilling) + len(one.running), one.limits.rows)


class CountingEngine:
    """An engine without a model: each request's tokens count up."""

    def __init__(self, pause=0.0):
        self.pause = pause

    def run(self, step):
        time.sleep(self.pause)
        if step.kind == PREFILL and step.end < len(step.requests[0].prompt):
            return []
        return [len(each.tokens) for each in step.requests]


class ReportTest(unittest.TestCase):
    """A replay without a model, and what is noted of it."""

    def replay(self, requests, stop=None):
        log = llm_server.Log()
        source = llm_server.Replay(requests)
        run_steps(CountingEngine(), scheduler(chunk=16), source, log, stop or bench_program.Stop())
        return log

    def test_report(self):
        start = time.monotonic()
        requests = [Request(i, start + 0.01 * i, array("q", range(20)), 3) for i in range(4)]
        requests.append(Request(4, start, range(5000), 3))
        log = self.replay(sorted(requests, key=lambda each: each.arrival))
        report = json.loads(json.dumps(log.report()))
        self.assertEqual([each["index"] for each in report["requests"]], [0, 1, 2, 3, 4])
        for each in report["requests"][:4]:
            self.assertEqual(each["tokens"], [0, 1, 2])
            self.assertEqual((each["ended"], each["prompt_length"], each["output_length"]), (COMPLETE, 20, 3))
            moments = [each["arrival"], each["begin"], *each["token_times"]]
            self.assertEqual(moments, sorted(moments))
            self.assertEqual(each["first_token"], each["token_times"][0])
        self.assertEqual(
            (report["requests"][4]["ended"], report["requests"][4]["first_token"]), (TOO_LONG, None)
        )
        for kind, begin, end, rows, tokens in report["steps"]:
            self.assertLessEqual(begin, end)
            self.assertEqual(tokens, rows if kind == DECODE else tokens)
        prompt_tokens = sum(tokens for kind, *_, tokens in report["steps"] if kind == PREFILL)
        self.assertEqual(prompt_tokens, 4 * 20)
        for part in ("5 requests, 4 complete", "TTFT p50", "TPOT p50", "gaps p50", "tokens/s"):
            self.assertIn(part, log.summary())

    def test_nothing_arrives_early(self):
        start = time.monotonic()
        log = self.replay([Request(0, start + 0.05, array("q", [1]), 1)])
        self.assertGreaterEqual(log.requests[0].begin, start + 0.05)

    def test_stop(self):
        stop = bench_program.Stop()
        stop.ask()
        log = self.replay(
            [Request(0, 0.0, array("q", [1]), 1), Request(1, time.monotonic() + 99, [1], 1)], stop
        )
        self.assertEqual([(each.index, each.ended) for each in log.requests], [(0, STOPPED)])
        self.assertIn("0 complete", log.summary())

    def test_empty_summary(self):
        self.assertEqual(llm_server.Log().summary(), "0 requests, 0 complete, 0.0 tokens/s")


class ArgumentTest(unittest.TestCase):
    """Defaults that depend on other options, and what is refused."""

    def test_defaults(self):
        for arguments, expected in {
            "": (32, 512, False),
            "--serve 0": (0, 0, False),
            "--fixed-batch 0": (0, 0, False),
            "--fixed-batch 8": (8, 512, False),
            "--prefill-chunk 256": (32, 256, True),
            "--chunk 0": (0, 0, False),
        }.items():
            options = llm_server.parse_arguments(arguments.split())
            self.assertEqual((options.fixed_batch, options.chunk, options.interleave), expected, arguments)

    def test_refused(self):
        for arguments in (
            "--cpu",
            "--chunk 100",
            "--fixed-batch 8 --chunk 0",
            "--speed 0",
            "--at-rate 0",
            "--at-rate 2 --speed 2",
            "--rate nan",
            "--requests 0",
            "--serve 70000",
            "--trace a.csv --serve 0",
            "--cache-tokens 3",
        ):
            with self.subTest(arguments), contextlib.redirect_stderr(io.StringIO()):
                with self.assertRaises(SystemExit) as caught:
                    llm_server.parse_arguments(arguments.split())
                self.assertEqual(caught.exception.code, 2)


class ArrivalTest(unittest.TestCase):
    """Which requests are replayed, and how fast."""

    def arrivals(self, *arguments):
        return llm_server.read_arrivals(llm_server.parse_arguments(list(map(str, arguments))))

    def test_a_rate_is_that_of_the_chosen_requests(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.csv"
            trace.write_text(HEADER + "".join(f"{time},5,5\n" for time in (0, 100, 101, 104, 900)))
            chosen, source = self.arrivals("--trace", trace, "--skip", 1, "--requests", 3, "--at-rate", 10)
            self.assertEqual([round(one.offset, 9) for one in chosen], [0, 0.05, 0.2])
            self.assertEqual((source["file"], source["speed"], source["skip"]), ("trace.csv", 20, 1))
            with self.assertRaises(llm_server.llm_trace.BadTrace):
                self.arrivals("--trace", trace, "--skip", 5)

    def test_synthetic(self):
        chosen, source = self.arrivals("--requests", 50, "--skip", 7, "--at-rate", 10)
        self.assertEqual((len(chosen), chosen[0].index, chosen[0].offset), (50, 7, 0))
        self.assertAlmostEqual(chosen[-1].offset, 4.9)
        self.assertEqual((source["kind"], source["like"]), ("synthetic", "conversation"))
        self.assertEqual(len(self.arrivals()[0]), llm_server.SYNTHETIC_REQUESTS)


class HttpTest(unittest.TestCase):
    """The endpoint in front of an engine without a model, which takes a moment for each step."""

    def setUp(self):
        self.scheduler = scheduler(blocks=40)
        self.inbox = llm_http.Inbox(512, self.scheduler.fits)
        self.server = llm_http.HttpServer(0, self.inbox, "tiny")
        self.server.start()
        self.addCleanup(self.server.stop)
        self.stop = bench_program.Stop()
        self.log = llm_server.Log()
        self.engine = CountingEngine(pause=0.002)
        arguments = (self.engine, self.scheduler, self.inbox, self.log, self.stop)
        self.steps = threading.Thread(target=run_steps, args=arguments)
        self.steps.start()
        self.addCleanup(self.steps.join)
        self.addCleanup(self.stop.ask)

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(llm_http.ADDRESS, self.server.server_port, timeout=PATIENCE)
        self.addCleanup(connection.close)
        body = json.dumps(body) if isinstance(body, dict | list) else body
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read().decode()

    def complete(self, **fields):
        status, body = self.ask("POST", "/v1/completions", fields)
        self.assertEqual(status, 200, body)
        return body

    def test_health(self):
        self.assertEqual(self.ask("GET", "/health"), (200, '{"status": "ok"}'))
        self.assertEqual(self.ask("GET", "/other")[0], 404)
        self.assertEqual(self.ask("POST", "/other", {})[0], 404)

    def test_completion(self):
        answer = json.loads(self.complete(prompt="Grüße", max_tokens=4))
        (choice,) = answer["choices"]
        self.assertEqual((choice["token_ids"], choice["finish_reason"]), ([0, 1, 2, 3], "length"))
        self.assertEqual(choice["text"], "\0\1\2\3")
        self.assertEqual(answer["usage"], {"prompt_tokens": 8, "completion_tokens": 4, "total_tokens": 12})
        self.assertEqual((answer["object"], answer["model"]), ("text_completion", "tiny"))

    def test_stop_token(self):
        (choice,) = json.loads(self.complete(prompt=[1], max_tokens=400))["choices"]
        self.assertEqual(choice["token_ids"], list(range(llm_http.END_TOKEN + 1)))
        self.assertEqual(choice["finish_reason"], "stop")

    def test_stream(self):
        events = self.complete(prompt=[5, 6], max_tokens=3, stream=True).split("\n\n")
        self.assertEqual(events[3:], ["data: [DONE]", ""])
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events[:3]]
        self.assertEqual([choice["token_ids"] for choice in choices], [[0], [1], [2]])
        self.assertEqual([choice["finish_reason"] for choice in choices], [None, None, "length"])

    def test_several_clients(self):
        """More than the cache holds at once."""
        answers = {}

        def client(number):
            body = self.complete(prompt=[1] * 100, max_tokens=number, stream=number % 2 == 0)
            answers[number] = body.count("data: {") or len(json.loads(body)["choices"][0]["token_ids"])

        clients = [threading.Thread(target=client, args=(number,)) for number in range(1, 21)]
        for each in clients:
            each.start()
        for each in clients:
            each.join(PATIENCE)
        self.assertEqual(answers, {number: number for number in range(1, 21)})
        self.assert_all_blocks_come_back()

    def test_clients_that_leave(self):
        """One of each kind leaves while it runs; their blocks come back and others are still answered."""
        for stream in (True, False):
            self.engine.pause = UNHURRIED
            client = socket.create_connection((llm_http.ADDRESS, self.server.server_port))
            body = json.dumps({"prompt": [1] * 300, "max_tokens": 250, "stream": stream})
            client.sendall(
                f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            self.wait_for(lambda: self.scheduler.running)
            client.close()
            self.complete(prompt=[1], max_tokens=2)
            self.wait_for(lambda: not self.scheduler.running)
        self.assert_all_blocks_come_back()
        how = [each.ended for each in self.log.requests]
        self.assertEqual((how.count(CANCELLED), how.count(COMPLETE)), (2, 2))

    def test_stopped(self):
        self.engine.pause = UNHURRIED

        def stop_it():
            self.wait_for(lambda: self.scheduler.running)
            self.stop.ask()

        stopping = threading.Thread(target=stop_it)
        stopping.start()
        self.addCleanup(stopping.join)
        status, body = self.ask("POST", "/v1/completions", {"prompt": [1] * 300, "max_tokens": 250})
        self.assertEqual(status, 503)
        self.assertIn("stopped before", body)

    def test_bad_requests(self):
        for body, sentence in (
            ("{", "is not JSON"),
            ("[" * 100000, "is not JSON"),
            ([], "must be a JSON object"),
            ({}, "prompt must be"),
            ({"prompt": []}, "prompt must be"),
            ({"prompt": 5}, "prompt must be"),
            ({"prompt": [1, "a"]}, "from 0 to 511"),
            ({"prompt": [True]}, "from 0 to 511"),
            ({"prompt": [512]}, "from 0 to 511"),
            ({"prompt": [-1]}, "from 0 to 511"),
            ({"prompt": "\ud800"}, "surrogate"),
            ({"prompt": "a", "max_tokens": 0}, "max_tokens must be"),
            ({"prompt": "a", "max_tokens": True}, "max_tokens must be"),
            ({"prompt": "a", "max_tokens": "5"}, "max_tokens must be"),
            ({"prompt": "a", "stream": 1}, "stream must be"),
            ({"prompt": "a" * 1000}, "too long for this server"),
        ):
            status, answer = self.ask("POST", "/v1/completions", body)
            self.assertEqual(status, 400, body)
            message = json.loads(answer)["error"]["message"]
            self.assertIn(sentence, message)
            self.assertTrue(message.endswith("."))
        status, answer = self.ask("POST", "/v1/completions", headers={"Content-Length": "99999999999"})
        self.assertEqual(status, 400)
        self.complete(prompt="still there")

    def test_text(self):
        tokens = [*"é".encode(), 300, llm_http.END_TOKEN]
        self.assertEqual(llm_http.text_of_tokens(tokens), "é<300>")
        self.assertEqual(llm_http.text_of_tokens([0xFF]), "\ufffd")

    def assert_all_blocks_come_back(self):
        self.wait_for(lambda: len(self.scheduler.pool.free) == self.scheduler.pool.count)

    def wait_for(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)


@needs_torch
class ProgramTest(unittest.TestCase):
    """The whole program, as a process of its own, with the tiny model on the CPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.trace = self.folder / "trace.csv"

    def start(self, *arguments):
        command = [sys.executable, WORKLOADS / "llm_server.py", "--shape", "tiny", "--cpu", *arguments]
        process = subprocess.Popen(
            list(map(str, command)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_program(self, *arguments):
        process = self.start(*arguments)
        output, errors = process.communicate(timeout=3 * PATIENCE)
        return process.returncode, output, errors

    def test_replay_of_a_trace(self):
        self.trace.write_text(HEADER + "1,50,3\n0,400,5\n2,3000,5\n2.1,5,90\n")
        out, start = self.folder / "out.json", self.folder / "start"
        limits = ("--cache-tokens", 1024, "--longest-output", 9)
        process = self.start(
            "--trace", self.trace, "--speed", 10, *limits, "--out", out, "--start-file", start
        )
        deadline = time.monotonic() + PATIENCE
        while not Path(f"{start}.ready").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        start.touch()
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("llm_server tiny eager trace: 4 requests, 3 complete", output)
        self.assertIn("1 requests have an earlier time", errors)
        self.assertIn("line 4: a prompt of 3000 tokens", errors)
        report = json.loads(out.read_text())
        self.assertEqual(
            [each["ended"] for each in report["requests"]], [COMPLETE, COMPLETE, TOO_LONG, COMPLETE]
        )
        self.assertEqual([len(each["tokens"]) for each in report["requests"]], [5, 3, 0, 9])
        source = {
            "kind": "trace",
            "file": "trace.csv",
            "speed": 10.0,
            "skip": 0,
            "cut_prompts": 0,
            "cut_outputs": 1,
        }
        self.assertEqual(report["source"], source)
        self.assertEqual((report["fixed_batch"], report["chunk"], report["cache_tokens"]), (32, 512, 1024))

    def test_prompts_beyond_the_longest(self):
        self.trace.write_text(HEADER + "0,50,3\n0,40,3\n")
        out = self.folder / "out.json"
        for what, ended, lengths in (("cut", COMPLETE, [45, 40]), ("refuse", TOO_LONG, [50, 40])):
            arguments = ("--trace", self.trace, "--longest-prompt", 45, "--too-long", what, "--out", out)
            code, _, errors = self.run_program(*arguments)
            self.assertEqual(code, 0, errors)
            requests = json.loads(out.read_text())["requests"]
            self.assertEqual([each["ended"] for each in requests], [ended, COMPLETE])
            self.assertEqual([each["prompt_length"] for each in requests], lengths)

    def test_bad_trace(self):
        self.trace.write_text(HEADER + "0,50,0\n")
        code, output, errors = self.run_program("--trace", self.trace)
        self.assertEqual((code, output), (65, ""))
        message = "GeneratedTokens is 0, but a request has at least 1 token; correct or remove the line"
        self.assertEqual(errors, f"{self.trace}: line 2: {message}\n")

    def test_clients(self):
        out = self.folder / "out.json"
        process = self.start("--serve", 0, "--cache-tokens", 2048, "--out", out)
        line = process.stdout.readline()
        self.assertRegex(line, r"serving on http://127.0.0.1:\d+")
        port = int(line.rpartition(":")[2])
        left = socket.create_connection((llm_http.ADDRESS, port))
        body = json.dumps({"prompt": [1] * 500, "max_tokens": 1500, "stream": True})
        left.sendall(f"POST /v1/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        self.assertIn(b"200 OK", left.recv(100))
        left.close()
        answers = []

        def client():
            connection = http.client.HTTPConnection(llm_http.ADDRESS, port, timeout=PATIENCE)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "Hello", "max_tokens": 6}))
            answers.append(json.loads(connection.getresponse().read())["choices"][0]["token_ids"])
            connection.close()

        clients = [threading.Thread(target=client) for _ in range(4)]
        for each in clients:
            each.start()
        for each in clients:
            each.join(PATIENCE)
        self.assertEqual([len(answer) for answer in answers], [6] * 4)
        process.terminate()
        output, errors = process.communicate(timeout=PATIENCE)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("llm_server tiny eager http: 5 requests, 4 complete", output)
        report = json.loads(out.read_text())
        self.assertEqual([each["ended"] for each in report["requests"]], [CANCELLED] + [COMPLETE] * 4)

    def test_without_a_gpu(self):
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, str(WORKLOADS / "llm_server.py"), "--shape", "1b"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE)
        self.assertEqual((done.returncode, done.stdout), (77, "skipped: no GPU\n"))


if __name__ == "__main__":
    unittest.main()
