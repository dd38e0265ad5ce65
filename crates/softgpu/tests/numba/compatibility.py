"""One function for both: the same source compiled for the CPU and for the device gives the same."""

import math

import numpy as np
from numba import cuda, njit

STRIKE, RATE, VOLATILITY = 100.0, 0.03, 0.25


def normal_distribution(x):
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


normal_on_device = cuda.jit(device=True)(normal_distribution)
normal_on_cpu = njit(normal_distribution)


def black_scholes_with(normal):
    def price(spot, years):
        root = VOLATILITY * math.sqrt(years)
        d1 = (math.log(spot / STRIKE) + (RATE + 0.5 * VOLATILITY * VOLATILITY) * years) / root
        return spot * normal(d1) - STRIKE * math.exp(-RATE * years) * normal(d1 - root)

    return price


price_on_device = cuda.jit(device=True)(black_scholes_with(normal_on_device))
price_on_cpu = njit(black_scholes_with(normal_on_cpu))


@cuda.jit
def price_all(spots, years, prices):
    i = cuda.grid(1)
    if i < prices.size:
        prices[i] = price_on_device(spots[i], years[i])


def options_on_both():
    rng = np.random.default_rng(23)
    spots, years = rng.uniform(50, 150, 300), rng.uniform(0.1, 3, 300)
    prices = np.zeros(300)
    price_all[3, 128](spots, years, prices)
    expected = np.array([price_on_cpu(spot, year) for spot, year in zip(spots, years)])
    np.testing.assert_allclose(prices, expected, rtol=1e-12, atol=1e-12)


@njit
def collatz(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


@cuda.jit
def collatz_all(steps):
    # What is compiled for the CPU can be called by name from a kernel, too.
    i = cuda.grid(1)
    if i < steps.size:
        steps[i] = collatz(i + 1)


def a_function_of_the_cpu_in_a_kernel():
    steps = np.zeros(500, np.int64)
    collatz_all[4, 128](steps)
    assert steps.tolist() == [collatz(n) for n in range(1, 501)]


PROGRAMS = [options_on_both, a_function_of_the_cpu_in_a_kernel]
