"""Structured types: records as arguments and in arrays, nested arrays, tuples, enumerations."""

import enum
from collections import namedtuple

import numpy as np
from numba import cuda

PARTICLE = np.dtype(
    [("position", np.float32, (3,)), ("mass", np.float64), ("charge", np.int16), ("alive", np.bool_)], align=True
)
# Fields with room before and between them.
LOOSE = np.dtype(
    {"names": ["small", "large"], "formats": [np.uint8, np.uint32], "offsets": [3, 12], "itemsize": 24}
)


@cuda.jit
def advance(particles, steps):
    i = cuda.grid(1)
    if i < particles.size and particles[i].alive:
        for axis in range(3):
            particles[i].position[axis] += steps[axis] * particles[i].charge
        particles[i]["mass"] *= 0.5


def arrays_of_records():
    particles = np.zeros(50, PARTICLE)
    particles["position"] = np.arange(150, dtype=np.float32).reshape(50, 3)
    particles["mass"], particles["charge"] = np.arange(50.0), np.arange(50) % 5 - 2
    particles["alive"] = np.arange(50) % 3 != 0
    expected = particles.copy()
    steps = np.array([1, 2, 4], np.float32)
    alive = expected["alive"]
    expected["position"][alive] += steps * expected["charge"][alive, None]
    expected["mass"][alive] *= 0.5
    advance[1, 64](particles, steps)
    np.testing.assert_array_equal(particles, expected)


@cuda.jit
def take_apart(loose, sums):
    i = cuda.grid(1)
    if i < loose.size:
        sums[i] = loose[i].small + loose[i].large
        loose[i].large = loose[i].small


def loose_records():
    loose = np.zeros(20, LOOSE)
    loose["small"], loose["large"] = np.arange(20), np.arange(20) * 1_000_003
    sums = np.zeros(20, np.int64)
    expected = loose["small"].astype(np.int64) + loose["large"]
    take_apart[1, 32](loose, sums)
    np.testing.assert_array_equal(sums, expected)
    np.testing.assert_array_equal(loose["large"], np.arange(20))


@cuda.jit
def scale_record(record, factor):
    record["mass"] = record["mass"] * factor
    record["charge"] = -record["charge"]


def one_record():
    record = np.zeros(1, PARTICLE)
    record["mass"], record["charge"] = 2.5, 7
    scale_record[1, 1](record[0], 4)
    assert (record[0]["mass"], record[0]["charge"]) == (10, -7)


Point = namedtuple("Point", ["x", "y"])


class Mode(enum.IntEnum):
    ADD = 0
    MULTIPLY = 1


@cuda.jit
def use_tuples(points, offsets, mode, out):
    i = cuda.grid(1)
    if i < out.size:
        total = points.x[i] * points.y[i] if mode == Mode.MULTIPLY else points.x[i] + points.y[i]
        for offset in offsets:
            total += offset
        out[i] = total


def tuples_and_enumerations():
    x, y = np.arange(10), np.arange(10) * 3
    for mode, expected in ((Mode.ADD, x + y), (Mode.MULTIPLY, x * y)):
        out = np.zeros(10, np.int64)
        use_tuples[1, 32](Point(x, y), (1, 2, 3), mode, out)
        np.testing.assert_array_equal(out, expected + 6)


PROGRAMS = [arrays_of_records, loose_records, one_record, tuples_and_enumerations]
