"""What can be asked of the compiler: caches, fast mathematics, line numbers, functions for C++, sizes of blocks."""

import math
import os
import tempfile

import numpy as np
from numba import cuda, float32, guvectorize, int32, vectorize
from numba.core import config

from foreign import source


def halve_and_add(values, number):
    i = cuda.grid(1)
    if i < values.size:
        values[i] = values[i] / 2 + number


def caches():
    usual, values = config.CACHE_DIR, np.arange(100.0)
    with tempfile.TemporaryDirectory() as folder:
        config.CACHE_DIR = folder
        try:
            first, second = (cuda.jit(cache=True)(halve_and_add) for _ in range(2))
            first[1, 128](values, 1.0)
            assert not first.stats.cache_hits and sum(first.stats.cache_misses.values()) == 1
            assert any(name.endswith(".nbi") for _, _, names in os.walk(folder) for name in names)
            second[1, 128](values, 1.0)
            assert sum(second.stats.cache_hits.values()) == 1 and not second.stats.cache_misses
        finally:
            config.CACHE_DIR = usual
    np.testing.assert_array_equal(values, (np.arange(100.0) / 2 + 1) / 2 + 1)


def polynomial(values, results):
    i = cuda.grid(1)
    if i < values.size:
        x, sum = values[i], 0.0
        for power in range(24):
            sum += x**power * (power + 1)
        results[i] = sum


def registers_are_limited():
    values, results = np.linspace(0, 1, 200), np.zeros((2, 200))
    usual, limited = cuda.jit(polynomial), cuda.jit(max_registers=32)(polynomial)
    usual[2, 128](values, results[0])
    limited[2, 128](values, results[1])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], np.polyval(np.arange(24, 0, -1), values), rtol=1e-12)
    (count,) = limited.get_regs_per_thread().values()
    assert 0 < count <= 32, count


def fast(values, results):
    i = cuda.grid(1)
    if i < values.size:
        results[0, i] = math.sin(values[i])
        results[1, i] = float32(1) / values[i]
        results[2, i] = math.sqrt(values[i])
        results[3, i] = math.log(values[i])
        results[4, i] = values[i] ** float32(1.5)


def fast_mathematics():
    exact, approximate = cuda.jit(fast), cuda.jit(fastmath=True)(fast)
    values = np.linspace(0.125, 3, 96, dtype=np.float32)
    results = np.zeros((2, 5, 96), np.float32)
    exact[1, 96](values, results[0])
    approximate[1, 96](values, results[1])
    (ptx,) = approximate.inspect_asm().values()
    for instruction in ("sin.approx.ftz.f32", "sqrt.approx.ftz.f32", "lg2.approx.ftz.f32", "ex2.approx.ftz.f32"):
        assert instruction in ptx and instruction not in "".join(exact.inspect_asm().values()), instruction
    doubles = values.astype(np.float64)
    expected = np.stack([np.sin(doubles), 1 / doubles, np.sqrt(doubles), np.log(doubles), doubles**1.5])
    np.testing.assert_allclose(results[0], expected, rtol=3e-7, atol=1e-7)
    # What CUDA's guide says of them is no more than 2^-21, for a power somewhat more.
    np.testing.assert_allclose(results[1], expected, rtol=2e-6, atol=6e-7)
    # Numbers below the smallest normal one count as zero.
    tiny = np.full(96, 1e-40, np.float32)
    approximate[1, 96](tiny, results[1])
    assert (results[1, 1] == np.inf).all() and (results[1, 2] == 0).all()


def line_numbers():
    with_lines = cuda.jit(lineinfo=True)(halve_and_add)
    values = np.arange(100.0)
    with_lines[1, 128](values, 3.0)
    np.testing.assert_array_equal(values, np.arange(100.0) / 2 + 3)
    (ptx,) = with_lines.inspect_asm().values()
    assert ".loc" in ptx and "compilation.py" in ptx and ".debug_info" not in ptx


def shifted_product(a, b):
    return a * b + 1


# A function by C's rules is called by C++, which is called by Numba's.
CALLER = """
extern "C" __device__ int shifted_product(int a, int b);

extern "C" __device__ int twice(int* result, int a, int b)
{
    *result = 2 * shifted_product(a, b);
    return 0;
}
"""


def functions_for_cpp():
    names = {"abi_name": "shifted_product"}
    signature = int32(int32, int32)
    ptx, result = cuda.compile_ptx(shifted_product, signature, device=True, abi="c", abi_info=names, cc=(9, 0))
    assert result == int32 and ".visible .func" in ptx and "shifted_product" in ptx
    usual, _ = cuda.compile(shifted_product, signature, abi="numba", cc=(9, 0))
    assert "shifted_product" in usual and usual != ptx
    here, _ = cuda.compile_for_current_device(shifted_product, signature, abi_info=names)
    assert "sm_%d%d" % cuda.get_current_device().compute_capability in here and "shifted_product" in here
    paths = [source(ptx, ".ptx"), source(CALLER, ".cu")]
    twice = cuda.declare_device("twice", "int32(int32, int32)")

    @cuda.jit(link=paths)
    def use(values):
        i = cuda.grid(1)
        values[i] = twice(values[i], 5)

    values = np.arange(32, dtype=np.int32)
    use[1, 32](values)
    for path in paths:
        os.unlink(path)
    np.testing.assert_array_equal(values, 2 * (np.arange(32) * 5 + 1))


@vectorize(["float32(float32, float32, float32)"], target="cuda")
def discriminant(a, b, c):
    return math.sqrt(b * b - 4 * a * c)


@guvectorize(["void(float32[:], float32[:])"], "(n)->(n)", target="cuda")
def running_sum(values, sums):
    total = float32(0)
    for i in range(values.shape[0]):
        total += values[i]
        sums[i] = total


def largest_blocks():
    """Functions that take much of a device are told to run in smaller blocks."""
    a, c = np.full(1000, 0.5, np.float32), np.arange(1000, dtype=np.float32)
    b = np.full(1000, 64, np.float32)
    rows = np.arange(2000, dtype=np.float32).reshape(100, 20)
    usual = discriminant(a, b, c), running_sum(rows)
    discriminant.max_blocksize = running_sum.max_blocksize = 32
    limited = discriminant(a, b, c), running_sum(rows)
    np.testing.assert_allclose(limited[0], np.sqrt(b * b - 2 * c), rtol=1e-6)
    np.testing.assert_array_equal(limited[1], np.cumsum(rows, axis=1, dtype=np.float32))
    for one, other in zip(usual, limited):
        np.testing.assert_array_equal(one, other)


PROGRAMS = [caches, registers_are_limited, fast_mathematics, line_numbers, functions_for_cpp, largest_blocks]
