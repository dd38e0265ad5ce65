"""Which requests of llm_server.py run, and what the next step does. It needs no GPU.

A request is admitted once the cache has blocks for its whole prompt and its whole answer, in the order of
arrival. Its prompt goes through the model in one or more prefill steps; then each decode step gives one token
to every request that runs. Its blocks come back when it ends.
"""

import time
from collections import deque
from dataclasses import dataclass, field

BLOCK = 16  # tokens of a block of the cache
PREFILL, DECODE = "prefill", "decode"

# How a request ended.
COMPLETE = "complete"
TOO_LONG = "too long"
CANCELLED = "cancelled"  # its client went away
STOPPED = "stopped"  # the server was told to stop


class BlockPool:
    """The blocks of the cache that no request holds."""

    def __init__(self, count):
        self.count = count
        self.free = deque(range(count))
        self.held = set()

    def take(self, count):
        """`count` blocks, or None where fewer are free."""
        if count > len(self.free):
            return None
        blocks = [self.free.popleft() for _ in range(count)]
        self.held.update(blocks)
        return blocks

    def give_back(self, blocks):
        if not self.held.issuperset(blocks):
            raise ValueError("a block was given back that nobody held")
        self.held.difference_update(blocks)
        self.free.extend(blocks)


@dataclass(eq=False)
class Request:
    """One request, from its arrival to its end. `prompt` is an array of token ids."""

    index: int
    arrival: float
    prompt: object
    output_length: int
    stop_token: int = -1  # none has this id
    on_token: object = None  # called with each token
    on_end: object = None  # called when it ended
    refused: bool = False  # too long, even if the cache could hold it
    cancelled: bool = False  # set by any thread; the scheduler looks at it before each step
    blocks: list = field(default_factory=list)
    prefilled: int = 0
    begin: float = None
    tokens: list = field(default_factory=list)
    token_times: list = field(default_factory=list)
    ended: str = None
    table_row: object = None  # the engine's

    @property
    def length(self):
        """How many tokens it has in the cache at most."""
        return len(self.prompt) + self.output_length

    @property
    def position(self):
        """Where its newest token stands, which the next decode step puts into the cache."""
        return len(self.prompt) + len(self.tokens) - 1

    def add_token(self, token, now):
        self.tokens.append(token)
        self.token_times.append(now)
        if self.on_token:
            self.on_token(token)

    def finished(self):
        return len(self.tokens) >= self.output_length or self.tokens[-1] == self.stop_token

    def end(self, how):
        self.ended = how
        if self.on_end:
            self.on_end()


@dataclass(frozen=True)
class Limits:
    """How much runs at once, and how prompts are cut into steps."""

    rows: int  # requests that run at once
    longest_context: int
    chunk: int = 0  # prompt tokens of a prefill step; 0: all of them
    interleave: bool = False  # a decode step between two prefill steps


@dataclass(frozen=True)
class Step:
    """A prefill step of the prompt's tokens from `begin` to `end`, or a decode step."""

    kind: str
    requests: list
    begin: int = 0
    end: int = 0

    @property
    def token_count(self):
        return self.end - self.begin if self.kind == PREFILL else len(self.requests)


class Scheduler:
    """All requests that have arrived and not ended."""

    def __init__(self, limits, pool):
        self.limits = limits
        self.pool = pool
        self.waiting = deque()
        self.prefilling = deque()
        self.running = []
        self.ended = deque()  # until somebody takes them from here
        self.last_kind = DECODE

    def submit(self, request):
        if request.refused or not self.fits(request.length):
            self.finish(request, TOO_LONG)
        else:
            self.waiting.append(request)

    def fits(self, length):
        """Whether a request of so many tokens could ever run."""
        return length <= self.limits.longest_context and self.blocks_for(length) <= self.pool.count

    def blocks_for(self, length):
        return -(-length // BLOCK)

    def busy(self):
        return bool(self.waiting or self.prefilling or self.running)

    def next_step(self):
        """What to do next; None where no request is there."""
        self.drop_cancelled()
        self.admit()
        decode_is_due = self.limits.interleave and self.last_kind == PREFILL
        if self.prefilling and not (decode_is_due and self.running):
            step = self.prefill_step(self.prefilling[0])
        elif self.running:
            step = Step(DECODE, list(self.running))
        else:
            return None
        self.last_kind = step.kind
        return step

    def admit(self):
        while self.waiting and len(self.prefilling) + len(self.running) < self.limits.rows:
            blocks = self.pool.take(self.blocks_for(self.waiting[0].length))
            if blocks is None:
                return
            request = self.waiting.popleft()
            request.blocks = blocks
            self.prefilling.append(request)

    def prefill_step(self, request):
        begin, length = request.prefilled, len(request.prompt)
        end = min(begin + self.limits.chunk, length) if self.limits.chunk else length
        return Step(PREFILL, [request], begin, end)

    def step_done(self, step, tokens, begin, now):
        """Note that `step` began at `begin` and gave one token for each of its requests, or none yet."""
        if step.kind == PREFILL:
            (request,) = step.requests
            if request.begin is None:
                request.begin = begin
            request.prefilled = step.end
            if step.end < len(request.prompt):
                return
            self.prefilling.remove(request)
            self.running.append(request)
        for request, token in zip(step.requests, tokens, strict=True):
            request.add_token(token, now)
            if request.finished():
                self.running.remove(request)
                self.finish(request, COMPLETE)

    def drop_cancelled(self):
        self.drop(CANCELLED, lambda request: request.cancelled)

    def stop(self):
        """End all requests that have not ended."""
        self.drop(STOPPED, lambda _: True)

    def drop(self, how, chosen):
        for queue in (self.waiting, self.prefilling, self.running):
            for request in [request for request in queue if chosen(request)]:
                queue.remove(request)
                self.finish(request, how)

    def finish(self, request, how):
        self.pool.give_back(request.blocks)
        request.blocks = []
        self.ended.append(request)
        request.end(how)


def run_steps(engine, scheduler, source, log, stop, clock=time.monotonic):
    """Do step after step until the source has no more requests and all have ended, or until told to stop.

    The source hands over requests when they arrive. The engine does the steps: it returns each decode step's
    tokens, and a prefill step's once the prompt is through.
    """
    while not stop.requested() and (scheduler.busy() or not source.over()):
        for request in source.arrived(clock()):
            scheduler.submit(request)
        step = scheduler.next_step()
        if step:
            begin = clock()
            tokens = engine.run(step)
            now = clock()
            scheduler.step_done(step, tokens, begin, now)
            log.add_step(step, begin, now)
        log.add_ended(scheduler.ended)
        if not step:
            source.wait(stop)
    for request in source.arrived(clock()):
        scheduler.submit(request)
    scheduler.stop()
    log.add_ended(scheduler.ended)
