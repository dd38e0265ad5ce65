"""Random numbers on the device: Numba's xoroshiro128+ states, pi by Monte Carlo, normal numbers, a walk."""

import math

import numpy as np
from numba import cuda, float32
from numba.cuda.random import (
    create_xoroshiro128p_states,
    init_xoroshiro128p_states,
    xoroshiro128p_dtype,
    xoroshiro128p_normal_float32,
    xoroshiro128p_normal_float64,
    xoroshiro128p_uniform_float32,
    xoroshiro128p_uniform_float64,
)

MASK = (1 << 64) - 1


@cuda.jit
def estimate_pi(states, rounds, out):
    thread = cuda.grid(1)
    inside = 0
    for _ in range(rounds):
        x = xoroshiro128p_uniform_float32(states, thread)
        y = xoroshiro128p_uniform_float32(states, thread)
        if x * x + y * y <= 1.0:
            inside += 1
    out[thread] = 4.0 * inside / rounds


def pi_by_monte_carlo():
    states = create_xoroshiro128p_states(512, seed=1)
    out = np.zeros(512, np.float32)
    estimate_pi[4, 128](states, 100, out)
    assert abs(out.mean() - math.pi) < 0.02


@cuda.jit
def uniform_numbers(states, out):
    thread = cuda.grid(1)
    for k in range(out.shape[1]):
        out[thread, k] = xoroshiro128p_uniform_float64(states, thread)


def rotated(value, count):
    return (value << count | value >> (64 - count)) & MASK


def uniform_numbers_bit_by_bit():
    states = create_xoroshiro128p_states(8, seed=7)
    begin = states.copy_to_host()
    out = np.zeros((8, 5))
    uniform_numbers[1, 8](states, out)
    for state, row in zip(begin, out):
        s0, s1 = int(state["s0"]), int(state["s1"])
        for value in row:
            assert value == ((s0 + s1 & MASK) >> 11) / (1 << 53)
            s1 ^= s0
            s0, s1 = rotated(s0, 55) ^ s1 ^ (s1 << 14 & MASK), rotated(s1, 36)


@cuda.jit
def normal_numbers(states, singles, doubles):
    thread = cuda.grid(1)
    singles[thread] = xoroshiro128p_normal_float32(states, thread)
    doubles[thread] = xoroshiro128p_normal_float64(states, thread)


def normal_numbers_have_their_moments():
    states = cuda.device_array(4096, xoroshiro128p_dtype)
    init_xoroshiro128p_states(states, seed=3)
    singles, doubles = np.zeros(4096, np.float32), np.zeros(4096)
    normal_numbers[32, 128](states, singles, doubles)
    for numbers in (singles, doubles):
        assert abs(numbers.mean()) < 0.08 and abs(numbers.std() - 1) < 0.08


@cuda.jit
def random_3d(volume, states):
    x, y, z = cuda.grid(3)
    width, height = cuda.gridsize(3)[0], cuda.gridsize(3)[1]
    thread = (z * height + y) * width + x
    if x < volume.shape[0] and y < volume.shape[1] and z < volume.shape[2]:
        volume[x, y, z] = xoroshiro128p_uniform_float32(states, thread)


def volume_of_random_numbers():
    states = create_xoroshiro128p_states(8 * 8 * 8, seed=11)
    volume = np.zeros((8, 8, 8), np.float32)
    random_3d[(2, 2, 2), (4, 4, 4)](volume, states)
    assert np.unique(volume).size > 500 and 0.4 < volume.mean() < 0.6


@cuda.jit
def walk(states, steps, places):
    thread = cuda.grid(1)
    place = float32(0)
    for _ in range(steps):
        place += float32(1) if xoroshiro128p_uniform_float32(states, thread) < 0.5 else float32(-1)
    places[thread] = place


def random_walks():
    states = create_xoroshiro128p_states(1024, seed=5)
    places = np.zeros(1024, np.float32)
    walk[8, 128](states, 64, places)
    assert (places % 2 == 0).all() and abs(places.mean()) < 1 and 6 < places.std() < 10


PROGRAMS = [
    pi_by_monte_carlo,
    uniform_numbers_bit_by_bit,
    normal_numbers_have_their_moments,
    volume_of_random_numbers,
    random_walks,
]
