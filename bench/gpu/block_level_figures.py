"""What block_level_sharing.py measured, as figures: latencies, shares, and when kernels gave way. Needs nothing but its records.

A record is one stretch of time: which arm it was, which kernels ran in it and when, what they computed. The requests of the server
are one list for each session, in seconds of the clock that all processes share, and so are the times at which its steps began and ended. When
kernels and their parts were let pass, and whether with all SMs, is a list for each session and arm.
"""

from bisect import bisect_right
from statistics import median

# Seconds after a stretch began until its requests count: policies and caches have to see what is new.
SETTLING = 0.05
P99_MOST = 0.072  # what Tally, whose idea this is, reports
GIVES_WAY_MOST_US = 100
SLOWDOWN_MEDIAN_MOST, SLOWDOWN_MOST = 0.05, 0.20
SHARE_LEAST = 1.3

LONGER = ", longer"  # behind the arms in which kernels may take longer to give way
ARMS = ("time-slicing", "holding", "block level", f"block level{LONGER}")
SLOWEST = 10  # requests of a stretch that are told one by one
HEADINGS = (
    "kernel", *(f"p99 {arm}" for arm in ARMS), "requests behind each", *(f"gives way p99 us, {arm}" for arm in ARMS[1:]),
    "slowdown", f"slowdown{LONGER}", *(f"share {arm}" for arm in ARMS), "times holding", "bits",
)  # fmt: skip


def quantile(values, part):
    """The value below which that part of them lies; None if there are none."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)] if ordered else None


def within(record, requests):
    """The requests that arrived while it went on."""
    begin, end = record["begin"] + SETTLING, record["end"]
    return [request for request in requests if begin <= request[0] <= end]


def latencies(record, requests):
    return [end - arrival for arrival, _, end in within(record, requests)]


def had_all(moment, parts):
    """Whether what was let pass last by then has all SMs."""
    number = bisect_right(parts, (moment, True))
    return number == 0 or parts[number - 1][1]


def within_stretch(record, steps):
    begin, end = record["begin"] + SETTLING, record["end"]
    return [step for step in steps if begin <= step[0] <= end]


def times_to_give_way(record, steps, parts):
    """Of each step that found the kernel running: how long blocks of it ran on, without a pause, and whether they were to give
    way. What has only some of the SMs may run on beside a step."""
    spans = record.get("spans", [])
    return [
        (last - step, had_all(step, parts))
        for step, _ in within_stretch(record, steps)
        for first, last in spans
        if first <= step < last
    ]


def overlap(spans, begin, end):
    """How long there was one of them in that time."""
    return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in spans)


def beside_steps(record, steps, parts):
    """Of each step: how long between its begin and its end blocks ran that were let pass with all SMs, those that were begun in it too."""
    spans = [span for span in record.get("spans", []) if had_all(span[0], parts)]
    return [overlap(spans, begin, end) for begin, end in within_stretch(record, steps)]


def slowest(record, requests, period):
    """The requests that took longest, in milliseconds from where the stretch began, and what of the kernel ran beside them."""
    found, spans, origin = [], record.get("spans", []), record["begin"]
    all_requests = sorted(requests)
    for arrival, begin, end in sorted(within(record, requests), key=lambda one: one[0] - one[2])[:SLOWEST]:
        number = bisect_right(all_requests, [arrival])
        before = all_requests[number - 1][0] if number else None
        found.append({
            "arrival_ms": (arrival - origin) * 1e3, "begin_ms": (begin - origin) * 1e3, "end_ms": (end - origin) * 1e3,
            "took_ms": (end - arrival) * 1e3,
            # Against the period, by the one before.
            "arrival_error_ms": None if before is None else (arrival - before - period) * 1e3,
            "blocks_at_begin": any(first <= begin < last for first, last in spans),
            "blocks_ran_us": overlap(spans, begin, end) * 1e6,
        })  # fmt: skip
    return found


def rate(record):
    """Launches in a second."""
    launches = record["launches"]
    return len(launches) / (launches[-1][1] - launches[0][0]) if launches else 0.0


def launch_seconds(record):
    return median(end - begin for begin, end in record["launches"])


class Figures:
    """The figures of all records; a record without a kernel is of no kernel."""

    def __init__(self, records, requests, steps, parts, period):
        self.records, self.requests, self.steps, self.period = records, requests, steps, period
        self.parts = {which: sorted(all_of_it) for which, all_of_it in parts.items()}

    def of(self, arm, name=None):
        return [one for one in self.records if one["arm"] == arm and name in (None, one.get("name"))]

    def latencies(self, arm, name=None):
        """Of all stretches of an arm, together."""
        return [
            value for one in self.of(arm, name) for value in latencies(one, self.requests.get(one["session"], []))
        ]

    def of_steps(self, what, arm, name=None):
        """What there is of each step in the stretches of an arm."""
        return [
            value
            for one in self.of(arm, name)
            for value in what(one, self.steps.get(one["session"], []), self.parts.get((one["session"], arm), []))
        ]

    def met_by_steps(self, arm, name=None):
        """How long kernels ran on that a step found running, and whether they were to give way."""
        return self.of_steps(times_to_give_way, arm, name)

    def times_to_give_way(self, arm, name=None):
        return [ran_on for ran_on, was_to in self.met_by_steps(arm, name) if was_to]

    def p99(self, arm, name=None):
        return quantile(self.latencies(arm, name), 0.99)

    def overhead(self, arm, name=None):
        alone, beside = self.p99("alone"), self.p99(arm, name)
        return None if not alone or beside is None else beside / alone - 1

    def gives_way(self, arm, name=None):
        return quantile(self.times_to_give_way(arm, name), 0.99)

    def share(self, arm, name):
        """Of what it gets done with the GPU to itself."""
        alone, beside = ([rate(record) for record in self.of(it, name)] for it in ("work alone", arm))
        return median(beside) / median(alone) if alone and beside and median(alone) else None

    def slowdown(self, name, suffix=""):
        """Of the version that ran beside the server, with nobody who wants the GPU; of any that ran so, where that one did not."""
        chosen = {one.get("version") for one in self.of(f"block level{suffix}", name)}
        idle = self.of(f"version idle{suffix}", name)
        version = [one for one in idle if one.get("version") in chosen] or idle
        original, version = (list(map(launch_seconds, it)) for it in (self.of("original idle", name), version))
        return median(version) / median(original) - 1 if original and version else None

    def stretches(self):
        """What was found in each stretch with a kernel, without the lists that it is made of."""
        kept = ("session", "arm", "name", "fitted_ms", "version", "because", "begin", "end", "clock_drift_ns", "checksums")
        return [
            {key: one[key] for key in kept if key in one}
            | {"launches": len(one["launches"]), "launch_ms": launch_seconds(one) * 1e3}
            | {"requests": len(within(one, self.requests.get(one["session"], []))), "spans": len(one["spans"])}
            | {"slowest": slowest(one, self.requests.get(one["session"], []), self.period)}
            for one in self.records
            if "name" in one
        ]

    def pauses(self):
        """The stretches in which the server was alone."""
        return [
            {key: one[key] for key in ("session", "arm", "begin", "end")}
            | {"slowest": slowest(one, self.requests.get(one["session"], []), self.period)}
            for one in self.records
            if "name" not in one
        ]

    def times(self, name):
        holding, block_level = self.share("holding", name), self.share("block level", name)
        return block_level / holding if holding and block_level is not None else None

    def bits(self, name):
        """Whether every round of launches, in every arm, left the same."""
        found = {checksum for one in self.records if one.get("name") == name for checksum in one.get("checksums", [])}
        return {0: "none", 1: "identical"}.get(len(found), "differ")

    def names(self):
        return list(dict.fromkeys(one["name"] for one in self.records if "name" in one))

    def row(self, name):
        """What there is to say of one kernel."""
        cells = [name, *(percent(self.overhead(arm, name)) for arm in ARMS)]
        cells.append("/".join(str(len(self.latencies(arm, name))) for arm in ARMS))
        cells += [number(self.gives_way(arm, name), 1e6, "{:.0f}") for arm in ARMS[1:]]
        cells += [percent(self.slowdown(name)), percent(self.slowdown(name, LONGER)), *(number(self.share(arm, name), 1, "{:.3f}") for arm in ARMS)]
        return dict(zip(HEADINGS, [*cells, number(self.times(name), 1, "{:.2f}"), self.bits(name)]))

    def figures(self, name):
        """The same for programs."""
        return {
            "kernel": name,
            "p99_ms": {arm: scaled(self.p99(arm, name), 1e3) for arm in ARMS},
            "p50_ms": {arm: scaled(quantile(self.latencies(arm, name), 0.5), 1e3) for arm in ARMS},
            "p99_overhead": {arm: self.overhead(arm, name) for arm in ARMS},
            "requests": {arm: len(self.latencies(arm, name)) for arm in ARMS},
            "gives_way_us": {arm: self.give_way_quantiles(arm, name) for arm in ARMS[1:]},
            "beside_step_us": {arm: self.beside_step_quantiles(arm, name) for arm in ARMS[1:]},
            "slowdown": self.slowdown(name),
            "slowdown_longer": self.slowdown(name, LONGER),
            "share": {arm: self.share(arm, name) for arm in ARMS},
            "share_times_holding": self.times(name),
            "bits": self.bits(name),
        }

    def give_way_quantiles(self, arm, name=None):
        met = self.met_by_steps(arm, name)
        found = [ran_on for ran_on, was_to in met if was_to]
        parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        # Some run on beside a step, on SMs of their own, because the policy lets them.
        counts = {"times": len(found), "beside": len(met) - len(found), "over_1_ms": sum(it > 1e-3 for it in found)}
        return counts | {key: scaled(quantile(found, part), 1e6) for key, part in parts.items()}

    def beside_step_quantiles(self, arm, name=None):
        found = self.of_steps(beside_steps, arm, name)
        parts = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
        counts = {"steps": len(found), "beside_blocks": sum(it > 0 for it in found)}
        return counts | {key: scaled(quantile(found, part), 1e6) for key, part in parts.items()}

    def alone(self):
        """The server's p99 without company, bare and as a tenant, in milliseconds."""
        arms = ("alone", "detshare alone")
        return {arm: {"p99_ms": scaled(self.p99(arm), 1e3), "requests": len(self.latencies(arm))} for arm in arms}

    def verdicts(self):
        """A row for each figure that is asked for, with how many requests or times to give way are behind it."""
        rows, arm = [], "block level"
        for name in self.names():
            rows.append(row(name, "bits", "identical", self.bits(name), self.bits(name) == "identical"))
            gave_way, requests = len(self.times_to_give_way(arm, name)), len(self.latencies(arm, name))
            rows += judged(name, "gives way p99, us", scaled(self.gives_way(arm, name), 1e6), GIVES_WAY_MOST_US, gave_way)
            lanes, beside = self.overhead("holding", name), self.overhead(arm, name)
            if lanes is not None and lanes > P99_MOST:
                rows += judged(name, f"p99 overhead, {percent(lanes)} by lanes alone", beside, P99_MOST, requests)
            rows += judged(name, "slowdown", self.slowdown(name), SLOWDOWN_MOST)
            rows += judged(name, "share, times that of holding", self.times(name), SHARE_LEAST, is_least=True)
        slowdowns = [it for it in map(self.slowdown, self.names()) if it is not None]
        rows += judged("all", "slowdown, median", median(slowdowns) if slowdowns else None, SLOWDOWN_MEDIAN_MOST)
        gave_way = len(self.times_to_give_way(arm))
        rows += judged("all", "gives way p99, us", scaled(self.gives_way(arm), 1e6), GIVES_WAY_MOST_US, gave_way)
        rows += judged("all", "p99 overhead", self.overhead(arm), P99_MOST, len(self.latencies(arm)))
        times = [it for it in map(self.times, self.names()) if it is not None]
        least = median(times) if times else None
        rows += judged("all", "share, times that of holding, median", least, SHARE_LEAST, is_least=True)
        return rows


def judged(name, what, found, limit, behind="", is_least=False):
    """One row; not measured where there is nothing."""
    asked = f"{'at least' if is_least else 'at most'} {limit:g}"
    if found is None:
        return [row(name, what, asked, "-", None, behind)]
    return [row(name, what, asked, round(found, 4), found >= limit if is_least else found <= limit, behind)]


def row(name, what, asked, found, met, behind=""):
    verdict = {None: "not measured", True: "met", False: "not met"}[met]
    return {"kernel": name, "what": what, "asked": asked, "measured": found, "behind": behind, "verdict": verdict}


def scaled(value, factor):
    return None if value is None else value * factor


def number(value, factor, form):
    return "-" if value is None else form.format(value * factor)


def percent(value):
    return "-" if value is None else f"{value:+.1%}"
