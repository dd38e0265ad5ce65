"""Which runs of llm.py fit into the time there is, and for how long their arms are measured: arithmetic, and nothing else.

What matters most is named first. All of it is planned with the fewest requests that say something, as far as that fits; what is left
of the time makes the first runs longer. A run is all arms of a scenario at one load: they share one run alone and its objectives.
"""

import math
from dataclasses import dataclass

ALONE = "alone"
OTHERS = "others"
# Seconds of a session beside the time in which it is measured, as recorded on an H200, with the answers that are still under way when
# the last request has come. `llm-train` was, sent as much as it can do; two servers (1B) are taken to need what `small` did, and three
# programs what `two-latency` did, and those answers. Where nobody protects the server it takes as long as by time-slicing.
SET_UP = {
    "llm-train": {ALONE: 16.0, "tpot-first": 17.5, "slo-aware": 17.5, OTHERS: 27.0},
    "llm-llm": {ALONE: 12.0, "mps": 22.0, OTHERS: 16.0},
    "llm-llm-train": {ALONE: 12.0, OTHERS: 20.0},
}
SERVERS = {"llm-train": 1, "llm-llm": 2, "llm-llm-train": 2}
WITH_TRAINING = ("llm-train", "llm-llm-train")
# 64 requests at once, from which it is found out how many are a load: recorded (8B), and on paper (1B).
AT_ONCE = {"llm-train": 14.0, "llm-llm": 6.0}
# What the benchmark leaves out at first, and how long a training runs alone.
WARM_UP, TRAINING_ALONE = 2, 10
# Programs take some percent longer at one time than at another; and a part of its limit the benchmark keeps for the end.
MARGIN = 1.05 * 60 / 59
STARTING = 2
# With fewer, a server cannot be told from one that was lucky; and what more would add is not worth the time.
FEWEST, MOST = 10, 24


@dataclass(frozen=True)
class Run:
    """All arms of a scenario at one load."""

    scenario: str
    load: float
    arms: tuple
    seconds: int
    # Whether the training alone was measured before.
    servers_alone: bool = False
    # Where it goes on with a run from before, which had these: milliseconds to the first token and between tokens.
    objectives: tuple = ()

    def needs(self):
        return STARTING + MARGIN * sum(session_seconds(self, arm) for arm in self.arms)


def session_seconds(run, arm):
    """What an arm takes, as recorded: alone, each program by itself."""
    set_up = SET_UP[run.scenario]
    measured = WARM_UP + run.seconds
    if arm != ALONE:
        return set_up.get(arm, set_up[OTHERS]) + measured
    training = 0 if run.servers_alone or run.scenario not in WITH_TRAINING else set_up[ALONE] + min(measured, TRAINING_ALONE)
    return SERVERS[run.scenario] * (set_up[ALONE] + measured) + training


def finding_rates(scenario):
    """What it takes to find out how many requests a load is."""
    return STARTING + MARGIN * SERVERS[scenario] * (SET_UP[scenario][ALONE] + AT_ONCE[scenario])


def seconds_for(requests, rates):
    """So many requests of each server."""
    return max(math.ceil(requests / min(rates)), 1)


@dataclass(frozen=True)
class Wanted:
    """Arms of a scenario at a load; those of a run that is wanted before only if that fits."""

    scenario: str
    load: float
    arms: tuple
    servers_alone: bool = False
    seconds: int = 0  # as many as a run from before had
    objectives: tuple = ()


def fitting(wanted, rates_of, left, spare=0, fewest=FEWEST, most=MOST):
    """The runs that fit into the seconds that are left, and what does not. `rates_of` says what servers are sent at a load; `spare`
    seconds are for something else before runs are longer than they need to be."""
    runs, left_out = {}, []
    for one in wanted:
        key, rates = (one.scenario, one.load), rates_of(one.scenario, one.load)
        if not rates:
            left_out.append(one)
            continue
        if key in runs:
            run = Run(*key, runs[key].arms + one.arms, runs[key].seconds, runs[key].servers_alone, runs[key].objectives)
        elif ALONE in one.arms:
            run = Run(*key, one.arms, one.seconds or seconds_for(fewest, rates), one.servers_alone, one.objectives)
        else:
            left_out.append(one)
            continue
        if needed({**runs, key: run}.values()) <= left:
            runs[key] = run
        else:
            left_out.append(one)
    for key, run in runs.items():
        if any(one.seconds for one in wanted if (one.scenario, one.load) == key):
            continue
        for seconds in range(seconds_for(most, rates_of(*key)), run.seconds, -1):
            longer = Run(*key, run.arms, seconds, run.servers_alone, run.objectives)
            if needed({**runs, key: longer}.values()) <= left - spare:
                runs[key] = longer
                break
    return list(runs.values()), left_out


def needed(runs):
    return sum(run.needs() for run in runs)
