"""An LLM server: continuous batching over a paged KV cache, its decode steps by CUDA graph.

It replays a trace, in which requests arrive when they arrive, whether or not the ones before are answered; or
it answers clients over HTTP. It notes when each request got each of its tokens, and when each step began and
ended.
"""

import argparse
import gc
import hashlib
import signal
import sys
import time
from collections import deque
from pathlib import Path

import bench_program
import llm_http
import llm_trace
import workload
from llm_scheduler import BLOCK, COMPLETE, BlockPool, Limits, Request, Scheduler, run_steps

ROWS = 64  # of the largest decode step, unless --fixed-batch says otherwise
FIXED_BATCH = 32  # the default in a replay
FIXED_CHUNK = 512
SYNTHETIC_REQUESTS = 100
GIB = 1 << 30


class Replay:
    """The source of a replay: requests whose times of arrival are known."""

    def __init__(self, requests, clock=time.monotonic, sleep=time.sleep):
        self.requests = deque(requests)
        self.clock = clock
        self.sleep = sleep

    def over(self):
        return not self.requests

    def arrived(self, now):
        while self.requests and self.requests[0].arrival <= now:
            yield self.requests.popleft()

    def wait(self, stop):
        if self.requests:
            bench_program.wait_until(self.requests[0].arrival, stop, self.clock, self.sleep)


class Log:
    """What is noted for the report; without `keep`, only how many requests ended."""

    def __init__(self, keep=True):
        self.keep = keep
        self.ended = 0
        self.requests = []
        self.steps = []

    def add_step(self, step, begin, end):
        if self.keep:
            self.steps.append((step.kind, begin, end, len(step.requests), step.token_count))

    def add_ended(self, requests):
        """Take all requests out of the queue `requests`."""
        while requests:
            request = requests.popleft()
            self.ended += 1
            if self.keep:
                self.requests.append(request)

    def report(self):
        requests = sorted(self.requests, key=lambda request: request.index)
        digest = hashlib.sha256()
        for request in requests:
            digest.update(f"{request.index} {request.tokens}\n".encode())
        return {
            "requests": [request_report(request) for request in requests],
            "steps": self.steps,
            "digest": digest.hexdigest(),
        }

    def summary(self):
        if not self.keep:
            return f"{self.ended} requests"
        complete = [request for request in self.requests if request.ended == COMPLETE]
        parts = [f"{len(self.requests)} requests, {len(complete)} complete"]
        waits = [request.token_times[0] - request.arrival for request in complete]
        if waits:
            parts.append(f"TTFT {percentiles(waits)}")
        gaps = [gaps_of(request) for request in complete if len(request.tokens) > 1]
        if gaps:
            parts.append(f"TPOT {percentiles([sum(of_one) / len(of_one) for of_one in gaps])}")
            parts.append(f"gaps {percentiles([gap for of_one in gaps for gap in of_one])}")
        parts.append(f"{self.token_rate():.1f} tokens/s")
        return ", ".join(parts)

    def token_rate(self):
        """Tokens per second, from the first arrival to the last token."""
        times = [moment for request in self.requests for moment in request.token_times]
        if not times:
            return 0.0
        return len(times) / (max(times) - min(request.arrival for request in self.requests))


def request_report(request):
    return {
        "index": request.index,
        "arrival": request.arrival,
        "begin": request.begin,
        "first_token": request.token_times[0] if request.token_times else None,
        "token_times": request.token_times,
        "prompt_length": len(request.prompt),
        "output_length": request.output_length,
        "tokens": request.tokens,
        "ended": request.ended,
    }


def gaps_of(request):
    times = request.token_times
    return [later - earlier for earlier, later in zip(times, times[1:])]


def percentiles(seconds):
    milliseconds = sorted(1000 * value for value in seconds)
    median, tail = (milliseconds[len(milliseconds) * percent // 100] for percent in (50, 99))
    return f"p50 {median:.3f} p99 {tail:.3f} ms"


def read_arrivals(options):
    """The requests of a replay, and what the report says about where they come from."""
    if options.trace:
        source = {"kind": "trace", "file": options.trace.name}
        all_arrivals = llm_trace.read_trace(options.trace)
        if options.skip >= len(all_arrivals):
            raise llm_trace.BadTrace(
                f"{options.trace}: has {len(all_arrivals)} requests, and the first {options.skip} are left out; "
                "give a longer trace or a smaller --skip"
            )
    else:
        source = {"kind": "synthetic", "like": options.synthetic, "rate": options.rate, "seed": options.seed}
        count = SYNTHETIC_REQUESTS if options.requests is None else options.requests
        all_arrivals = llm_trace.synthetic_trace(
            options.synthetic, options.rate, options.seed, options.skip + count
        )
    speed = options.speed
    if options.at_rate:
        as_recorded = llm_trace.select(all_arrivals, options.skip, options.requests, speed=1)
        speed = llm_trace.speed_for(as_recorded, options.at_rate)
    arrivals = llm_trace.select(all_arrivals, options.skip, options.requests, speed)
    source |= {"speed": speed, "skip": options.skip}
    longest_prompt = options.longest_prompt if options.too_long == "cut" else None
    arrivals, cut = llm_trace.cut(arrivals, longest_prompt, options.longest_output)
    return arrivals, source | {"cut_prompts": cut.prompts, "cut_outputs": cut.outputs}


def warn_of_too_long(arrivals, options, scheduler):
    """Say on one line which request of a trace will be answered as too long, and how many more."""
    too_long = [arrival for arrival in arrivals if not accepted(arrival, options, scheduler)]
    if too_long:
        first = too_long[0]
        where = f"{options.trace}: line {first.line}" if options.trace else f"synthetic request {first.index}"
        llm_trace.say(
            f"{where}: a prompt of {first.prompt_length} tokens and {first.output_length} more are too long, "
            f"as are {len(too_long) - 1} other requests; the report has them as too long. "
            "Raise --longest-prompt, --longest-context or --cache-tokens, or cut them by --longest-prompt"
        )


def accepted(arrival, options, scheduler):
    is_short = not options.longest_prompt or arrival.prompt_length <= options.longest_prompt
    return is_short and scheduler.fits(arrival.prompt_length + arrival.output_length)


def make_request(arrival, options, scheduler, vocabulary):
    """The request of an arrival; one that will be refused needs no more than its length."""
    if accepted(arrival, options, scheduler):
        prompt = llm_trace.prompt_tokens(options.seed, arrival.index, arrival.prompt_length, vocabulary)
        return Request(arrival.index, arrival.offset, prompt, arrival.output_length)
    prompt = range(arrival.prompt_length)
    return Request(arrival.index, arrival.offset, prompt, arrival.output_length, refused=True)


def replay(engine, scheduler, arrivals, options, stop):
    requests = [make_request(arrival, options, scheduler, engine.shape.vocabulary) for arrival in arrivals]
    freeze_garbage_collection()
    bench_program.wait_for_start(options.start_file, stop)
    log = Log()
    start = time.monotonic()
    for request in requests:
        request.arrival += start
    source = Replay(requests)
    run_steps(engine, scheduler, source, log, stop)
    return log, {"begin_s": start, "not_arrived": len(source.requests)}


def freeze_garbage_collection():
    """Or collections, while requests wait, would go through all that the imports left."""
    gc.collect()
    gc.freeze()


def serve(engine, scheduler, options, stop):
    freeze_garbage_collection()
    bench_program.wait_for_start(options.start_file, stop)
    log = Log(keep=options.out is not None)
    start = time.monotonic()
    inbox = llm_http.Inbox(engine.shape.vocabulary, scheduler.fits)
    try:
        server = llm_http.HttpServer(options.serve, inbox, options.shape)
    except OSError as error:
        sys.exit(f"port {options.serve} of {llm_http.ADDRESS}: {error.strerror}; give another --serve")
    server.start()
    print(f"serving on {server.url}", flush=True)
    run_steps(engine, scheduler, inbox, log, stop)
    server.stop()
    return log, {"begin_s": start}


def make_engine(options, limits):
    import llm_model

    shape = llm_model.SHAPES[options.shape]
    cache_tokens = (
        int(options.cache_gib * GIB) // shape.token_bytes if options.cache_gib else options.cache_tokens
    )
    engine_options = llm_model.EngineOptions(
        device="cpu" if options.cpu else bench_program.DEVICE,
        cache_tokens=cache_tokens,
        longest_context=limits.longest_context,
        rows=limits.rows,
        fixed_batch=bool(options.fixed_batch),
        chunk=limits.chunk,
        eager=options.eager,
        plain_attention=options.plain_attention,
        seed=options.seed,
    )
    return llm_model.Engine(shape, engine_options)


def program(options, stop):
    arrivals, source = ([], {"kind": "http"}) if options.serve is not None else read_arrivals(options)
    limits = Limits(
        rows=options.fixed_batch or options.rows,
        longest_context=options.longest_context,
        chunk=options.chunk,
        interleave=options.interleave,
    )
    engine = make_engine(options, limits)
    engine.set_up()
    scheduler = Scheduler(limits, BlockPool(engine.block_count))
    if options.serve is None:
        warn_of_too_long(arrivals, options, scheduler)
        log, times = replay(engine, scheduler, arrivals, options, stop)
    else:
        log, times = serve(engine, scheduler, options, stop)
    mode = "eager" if options.eager or options.cpu else "graph"
    report = {
        "program": "llm_server",
        "shape": options.shape,
        "mode": mode,
        "source": source,
        "seed": options.seed,
        "fixed_batch": options.fixed_batch,
        "chunk": options.chunk,
        "interleave": options.interleave,
        "cache_tokens": engine.block_count * BLOCK,
        "longest_context": options.longest_context,
        **times,
        **log.report(),
    }
    return report, f"llm_server {options.shape} {mode} {source['kind']}: {log.summary()}"


def parse_arguments(arguments=None):
    parser = bench_program.argument_parser(__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=["8b", "1b", "tiny"], default="8b")
    parser.add_argument("--cpu", action="store_true", help="without a GPU; with the shape tiny only")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    parser.add_argument(
        "--plain-attention",
        action="store_true",
        help="attention of decode steps from matrix products, should the device lack the fused kernel",
    )
    add_request_arguments(parser)
    add_batch_arguments(parser)
    options = parser.parse_args(arguments)
    if options.tiny:
        options.shape = "tiny"
    refuse_bad_arguments(parser, options)
    set_batch_defaults(options)
    return options


def add_request_arguments(parser):
    requests = parser.add_argument_group("requests")
    where_from = requests.add_mutually_exclusive_group()
    where_from.add_argument("--trace", type=Path, metavar="FILE.csv", help="replay a trace, Azure's columns")
    where_from.add_argument(
        "--synthetic",
        choices=list(llm_trace.SYNTHETIC),
        default="conversation",
        help="without a trace: replay one made from the seed",
    )
    where_from.add_argument(
        "--serve",
        type=port,
        metavar="PORT",
        help=f"answer HTTP clients on {llm_http.ADDRESS}; 0: any free port",
    )
    requests.add_argument(
        "--rate", type=positive, default=1.0, help="of a synthetic trace: requests per second"
    )
    how_fast = requests.add_mutually_exclusive_group()
    how_fast.add_argument("--speed", type=positive, default=1.0, help="replay so many times as fast")
    how_fast.add_argument(
        "--at-rate",
        type=positive,
        metavar="RATE",
        help="replay as fast as it takes for so many requests per second on average",
    )
    requests.add_argument(
        "--skip", type=not_negative, default=0, help="requests of the trace to leave out first"
    )
    requests.add_argument(
        "--requests",
        type=at_least_one,
        help=f"at most; default: all of a trace, {SYNTHETIC_REQUESTS} synthetic ones",
    )
    requests.add_argument("--longest-prompt", type=at_least_one, metavar="TOKENS", help="see --too-long")
    requests.add_argument(
        "--longest-output", type=at_least_one, metavar="TOKENS", help="outputs are cut to this"
    )
    requests.add_argument(
        "--too-long",
        choices=["cut", "refuse"],
        default="cut",
        help="what becomes of prompts beyond --longest-prompt; what the cache cannot hold is always refused",
    )


def add_batch_arguments(parser):
    batches = parser.add_argument_group("batches and cache")
    cache = batches.add_mutually_exclusive_group()
    cache.add_argument("--cache-tokens", type=at_least_one, default=65536, metavar="TOKENS")
    cache.add_argument("--cache-gib", type=positive, metavar="GIB")
    batches.add_argument(
        "--longest-context",
        type=at_least_one,
        default=8192,
        metavar="TOKENS",
        help="of a prompt and its output",
    )
    batches.add_argument("--rows", type=at_least_one, default=ROWS, help="requests that run at once, at most")
    batches.add_argument(
        "--fixed-batch",
        type=not_negative,
        metavar="ROWS",
        help="decode steps always have so many rows, and prefill steps always a whole chunk, so that a "
        "request's tokens do not depend on what else runs; 0: steps as large as needed, which is faster, but "
        f"tokens then depend on the timing. Default: {FIXED_BATCH} in a replay, 0 with --serve",
    )
    chunks = batches.add_mutually_exclusive_group()
    chunks.add_argument(
        "--chunk",
        type=not_negative,
        metavar="TOKENS",
        help=f"of a prompt in a prefill step; 0: all. Default: {FIXED_CHUNK} with a fixed batch, else all",
    )
    chunks.add_argument(
        "--prefill-chunk",
        type=at_least_one,
        metavar="TOKENS",
        help="as --chunk, with a decode step between two prefill steps",
    )


def refuse_bad_arguments(parser, options):
    if options.cpu and options.shape != "tiny":
        parser.error("--cpu is for --shape tiny")
    if (options.chunk or options.prefill_chunk or 0) % BLOCK:
        parser.error(f"a chunk must be a multiple of {BLOCK} tokens")
    if options.fixed_batch and options.chunk == 0:
        parser.error("a fixed batch needs a --chunk")
    if not options.cache_gib and options.cache_tokens < BLOCK:
        parser.error(f"--cache-tokens must be at least {BLOCK}")


def set_batch_defaults(options):
    if options.fixed_batch is None:
        options.fixed_batch = FIXED_BATCH if options.serve is None and options.chunk != 0 else 0
    options.interleave = options.prefill_chunk is not None
    options.chunk = options.prefill_chunk or options.chunk
    if options.chunk is None:
        options.chunk = FIXED_CHUNK if options.fixed_batch else 0


def positive(text):
    return checked(float(text), lambda value: 0 < value < float("inf"), "must be more than 0")


def at_least_one(text):
    return checked(int(text), lambda value: value >= 1, "must be at least 1")


def not_negative(text):
    return checked(int(text), lambda value: value >= 0, "must not be negative")


def port(text):
    return checked(int(text), lambda value: 0 <= value < 1 << 16, "is no port")


def checked(value, is_right, otherwise):
    if not is_right(value):
        raise argparse.ArgumentTypeError(otherwise)
    return value


def run(options):
    stop = bench_program.Stop(options.stop_file)
    signal.signal(signal.SIGTERM, lambda *_: stop.ask())
    if options.serve is not None:
        signal.signal(signal.SIGINT, lambda *_: stop.ask())
    if not options.cpu:
        workload.skip_without_gpu()
    try:
        report, summary = program(options, stop)
    except llm_trace.BadTrace as error:
        llm_trace.say(error)
        sys.exit(error.exit_code)
    if options.out:
        bench_program.write_json(options.out, report)
    print(summary, flush=True)


if __name__ == "__main__":
    run(parse_arguments())
