"""The requests that llm_server.py is sent: read from a trace or made from a seed. It needs no GPU.

A trace is a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens, as the Azure LLM
inference traces have them. It holds only lengths: the tokens of a prompt come from a seed and the request's
index.
"""

import csv
import itertools
import math
import sys
from array import array
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
COLUMNS = (TIME, PROMPT, OUTPUT)

EXIT_BAD_TRACE = 65
EXIT_NO_TRACE = 66


@dataclass(frozen=True)
class Arrival:
    """A request of a trace; its index is its place in the whole trace, its offset counts from the start."""

    index: int
    offset: float  # seconds
    prompt_length: int
    output_length: int
    line: int = 0  # of the file; 0 in a synthetic trace


@dataclass(frozen=True)
class LogNormal:
    """How lengths spread: half are below the median, and `spread` is the deviation of their logarithm."""

    median: float
    spread: float

    def draw(self, random):
        return max(1, round(random.lognormvariate(math.log(self.median), self.spread)))


# Prompt and output lengths, near those of the Azure LLM inference traces of 2023.
SYNTHETIC = {
    "conversation": (LogNormal(1000, 0.75), LogNormal(130, 0.9)),
    "code": (LogNormal(1500, 1.0), LogNormal(13, 1.1)),
}


class BadTrace(Exception):
    """A trace that cannot be replayed; the message says where it is wrong and what to do."""

    def __init__(self, message, exit_code=EXIT_BAD_TRACE):
        super().__init__(message)
        self.exit_code = exit_code


def read_trace(file, complain=None):
    """All requests of a trace, in the order of their times, the first at 0."""
    complain = complain or say
    try:
        with open(file, newline="", encoding="utf-8-sig") as lines:
            rows = list(read_rows(file, lines))
    except OSError as error:
        raise BadTrace(
            f"{file}: cannot be read: {error.strerror}; give another --trace", EXIT_NO_TRACE
        ) from None
    except UnicodeDecodeError:
        raise BadTrace(f"{file}: is not UTF-8 text; give a trace in CSV") from None
    if not rows:
        raise BadTrace(f"{file}: line 1: no requests follow the header; give a trace with at least one")
    late = sum(time < earlier for (earlier, *_), (time, *_) in itertools.pairwise(rows))
    if late:
        complain(
            f"{file}: {late} requests have an earlier time than the line before; sorted them by their times"
        )
        rows.sort(key=lambda row: row[0])
    start = rows[0][0]
    return [Arrival(index, time - start, *rest) for index, (time, *rest) in enumerate(rows)]


def read_rows(file, lines):
    """Time, prompt length, output length and line number of each row."""
    reader = csv.reader(lines)
    try:
        header = [name.strip() for name in next(reader, [])]
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise BadTrace(
                f"{file}: line 1: no column {', '.join(missing)}; the header must have {', '.join(COLUMNS)}"
            )
        for row in reader:
            if row:
                yield read_row(file, reader.line_num, header, row)
    except csv.Error as error:
        raise BadTrace(
            f"{file}: line {reader.line_num}: is not CSV: {error}; correct or remove the line"
        ) from None


def read_row(file, line, header, row):
    values = dict(zip(header, row))
    if any(name not in values for name in COLUMNS):
        raise bad_line(file, line, f"has {len(row)} of {len(header)} fields")
    try:
        time = read_time(values[TIME].strip())
    except ValueError:
        raise bad_line(file, line, f"{TIME} {values[TIME]!r} is no time") from None
    lengths = [read_length(file, line, name, values[name]) for name in (PROMPT, OUTPUT)]
    return time, *lengths, line


def read_time(text):
    """Seconds of a number, or of a date and a time of day with a fraction of any length."""
    try:
        seconds = float(text)
    except ValueError:
        whole, point, rest = text.partition(".")
        digits = "".join(itertools.takewhile(str.isdecimal, rest))
        if point and not digits:
            raise
        moment = datetime.fromisoformat(whole + rest[len(digits) :])
        seconds = (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds()
        seconds += float(f"0.{digits or 0}")
    if not math.isfinite(seconds):
        raise ValueError(text)
    return seconds


def read_length(file, line, name, text):
    try:
        length = int(text)
    except ValueError:
        raise bad_line(file, line, f"{name} {text!r} is no whole number") from None
    if length < 1:
        raise bad_line(file, line, f"{name} is {length}, but a request has at least 1 token")
    return length


def bad_line(file, line, what):
    return BadTrace(f"{file}: line {line}: {what}; correct or remove the line")


def say(line):
    print(line, file=sys.stderr, flush=True)


def synthetic_trace(kind, rate, seed, count):
    """`count` requests, `rate` of them per second on average, as independent clients would send them."""
    random = Random(seed)
    prompt_lengths, output_lengths = SYNTHETIC[kind]
    offset = 0.0
    arrivals = []
    for index in range(count):
        arrivals.append(Arrival(index, offset, prompt_lengths.draw(random), output_lengths.draw(random)))
        offset += random.expovariate(rate)
    return arrivals


def select(arrivals, skip, count, speed):
    """`count` of the requests, or all, after the first `skip`; the first of them arrives at 0."""
    chosen = arrivals[skip:] if count is None else arrivals[skip : skip + count]
    return [replace(arrival, offset=(arrival.offset - chosen[0].offset) / speed) for arrival in chosen]


def speed_for(arrivals, rate):
    """How many times as fast these requests must be for `rate` of them to arrive per second on average."""
    span = arrivals[-1].offset - arrivals[0].offset if arrivals else 0.0
    return span * rate / (len(arrivals) - 1) if span > 0 else 1.0


@dataclass
class Cut:
    """How many prompts and outputs were longer than allowed and are replayed shorter."""

    prompts: int = 0
    outputs: int = 0


def cut(arrivals, longest_prompt, longest_output):
    """The requests with lengths of at most so much each, and how many had more."""
    longest_prompt, longest_output = longest_prompt or math.inf, longest_output or math.inf
    counts = Cut(
        prompts=sum(arrival.prompt_length > longest_prompt for arrival in arrivals),
        outputs=sum(arrival.output_length > longest_output for arrival in arrivals),
    )
    shorter = [
        replace(
            arrival,
            prompt_length=min(arrival.prompt_length, longest_prompt),
            output_length=min(arrival.output_length, longest_output),
        )
        for arrival in arrivals
    ]
    return shorter, counts


def prompt_tokens(seed, index, length, vocabulary):
    """The prompt of the request with this index: the same in every run, whatever else is replayed."""
    words = array("I", Random(f"{seed} {index}").randbytes(length * array("I").itemsize))
    return array("q", [word % vocabulary for word in words])
