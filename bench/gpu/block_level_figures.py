"""What block_level_sharing.py measured, as figures: latencies, shares, and when kernels gave way. Needs nothing but its records.

A record is one stretch of time: which arm it was, which kernels ran in it and when, what they computed. The requests of the server
are one list for each session, in seconds of the clock that all processes share, and so are the times at which its steps began. When
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

ARMS = ("time-slicing", "holding", "block level")
HEADINGS = (
    "kernel", *(f"p99 {arm}" for arm in ARMS), *(f"gives way p99 us, {arm}" for arm in ARMS[1:]),
    "slowdown", *(f"share {arm}" for arm in ARMS), "times holding", "bits",
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


def times_to_give_way(record, steps, parts):
    """Of each step that found the kernel running: how long blocks of it ran on, without a pause, and whether they were to give
    way. What has only some of the SMs may run on beside a step."""
    begin, end = record["begin"] + SETTLING, record["end"]
    spans, moments = record.get("spans", []), [step for step in steps if begin <= step <= end]
    let_pass = [at for at, _ in parts]

    def has_all(step):
        number = bisect_right(let_pass, step)
        return number == 0 or parts[number - 1][1]

    return [(last - step, has_all(step)) for step in moments for first, last in spans if first <= step < last]


def rate(record):
    """Launches in a second."""
    launches = record["launches"]
    return len(launches) / (launches[-1][1] - launches[0][0]) if launches else 0.0


def launch_seconds(record):
    return median(end - begin for begin, end in record["launches"])


class Figures:
    """The figures of all records; a record without a kernel is of no kernel."""

    def __init__(self, records, requests, steps, parts):
        self.records, self.requests, self.steps = records, requests, steps
        self.parts = {which: sorted(all_of_it) for which, all_of_it in parts.items()}

    def of(self, arm, name=None):
        return [one for one in self.records if one["arm"] == arm and name in (None, one.get("name"))]

    def latencies(self, arm, name=None):
        """Of all stretches of an arm, together."""
        return [
            value for one in self.of(arm, name) for value in latencies(one, self.requests.get(one["session"], []))
        ]

    def met_by_steps(self, arm, name=None):
        """How long kernels ran on that a step found running, and whether they were to give way."""
        return [
            met
            for one in self.of(arm, name)
            for met in times_to_give_way(
                one, self.steps.get(one["session"], []), self.parts.get((one["session"], arm), [])
            )
        ]

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

    def slowdown(self, name):
        """Of the version that ran beside the server, with nobody who wants the GPU; of any that ran so, where that one did not."""
        chosen = {one.get("version") for one in self.of("block level", name)}
        idle = self.of("version idle", name)
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
            for one in self.records
            if "name" in one
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
        cells += [number(self.gives_way(arm, name), 1e6, "{:.0f}") for arm in ARMS[1:]]
        cells += [percent(self.slowdown(name)), *(number(self.share(arm, name), 1, "{:.3f}") for arm in ARMS)]
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
            "slowdown": self.slowdown(name),
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

    def alone(self):
        """The server's p99 without company, bare and as a tenant, in milliseconds."""
        arms = ("alone", "detshare alone")
        return {arm: {"p99_ms": scaled(self.p99(arm), 1e3), "requests": len(self.latencies(arm))} for arm in arms}

    def verdicts(self):
        """A row for each figure that is asked for."""
        rows = []
        for name in self.names():
            rows.append(row(name, "bits", "identical", self.bits(name), self.bits(name) == "identical"))
            rows += judged(name, "gives way p99, us", scaled(self.gives_way("block level", name), 1e6), GIVES_WAY_MOST_US)
            lanes, beside = self.overhead("holding", name), self.overhead("block level", name)
            if lanes is not None and lanes > P99_MOST:
                rows += judged(name, f"p99 overhead, {percent(lanes)} by lanes alone", beside, P99_MOST)
            rows += judged(name, "slowdown", self.slowdown(name), SLOWDOWN_MOST)
            rows += judged(name, "share, times that of holding", self.times(name), SHARE_LEAST, is_least=True)
        slowdowns = [it for it in map(self.slowdown, self.names()) if it is not None]
        rows += judged("all", "slowdown, median", median(slowdowns) if slowdowns else None, SLOWDOWN_MEDIAN_MOST)
        rows += judged("all", "gives way p99, us", scaled(self.gives_way("block level"), 1e6), GIVES_WAY_MOST_US)
        rows += judged("all", "p99 overhead", self.overhead("block level"), P99_MOST)
        times = [it for it in map(self.times, self.names()) if it is not None]
        rows += judged("all", "share, times that of holding, median", median(times) if times else None, SHARE_LEAST, True)
        return rows


def judged(name, what, found, limit, is_least=False):
    """One row; none where nothing was measured."""
    if found is None:
        return [row(name, what, f"{'at least' if is_least else 'at most'} {limit:g}", "-", None)]
    met = found >= limit if is_least else found <= limit
    return [row(name, what, f"{'at least' if is_least else 'at most'} {limit:g}", round(found, 4), met)]


def row(name, what, asked, found, met):
    verdict = {None: "not measured", True: "met", False: "not met"}[met]
    return {"kernel": name, "what": what, "asked": asked, "measured": found, "verdict": verdict}


def scaled(value, factor):
    return None if value is None else value * factor


def number(value, factor, form):
    return "-" if value is None else form.format(value * factor)


def percent(value):
    return "-" if value is None else f"{value:+.1%}"
