"""Atomic operations, in global and shared memory, on every type that they take."""

import numpy as np
from numba import cuda, int32, uint32


@cuda.jit
def count(values, counts, extremes, sums):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)
        cuda.atomic.max(extremes, 0, values[i])
        cuda.atomic.min(extremes, 1, values[i])
        cuda.atomic.add(sums, 0, float(values[i]))


def atomics():
    values = np.random.default_rng(4).integers(0, 64, 50_000).astype(np.int32)
    counts, extremes, sums = np.zeros(64, np.int32), np.array([0, 99], np.int32), np.zeros(1)
    count[(values.size + 255) // 256, 256](values, counts, extremes, sums)
    np.testing.assert_array_equal(counts, np.bincount(values, minlength=64))
    assert list(extremes) == [values.max(), values.min()]
    assert sums[0] == values.sum()


@cuda.jit
def histogram_in_shared_memory(values, bins):
    shared = cuda.shared.array(32, int32)
    if cuda.threadIdx.x < 32:
        shared[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        cuda.atomic.add(shared, int(values[i] * 32), 1)
    cuda.syncthreads()
    if cuda.threadIdx.x < 32:
        cuda.atomic.add(bins, cuda.threadIdx.x, shared[cuda.threadIdx.x])


def histograms():
    values = np.random.default_rng(10).random(20_000, dtype=np.float32)
    bins = np.zeros(32, np.int32)
    histogram_in_shared_memory[8, 128](values, bins)
    expected = np.bincount((values * np.float32(32)).astype(np.int64), minlength=32)
    np.testing.assert_array_equal(bins, expected)


@cuda.jit
def all_operations(values, results, floats, longs):
    i = cuda.grid(1)
    if i >= values.size:
        return
    cuda.atomic.sub(results, 0, values[i])
    cuda.atomic.and_(results, 1, values[i] | uint32(1))
    cuda.atomic.or_(results, 2, values[i])
    cuda.atomic.xor(results, 3, values[i])
    cuda.atomic.inc(results, 4, uint32(9))
    cuda.atomic.dec(results, 5, uint32(6))
    cuda.atomic.max(floats, 0, float(values[i]))
    cuda.atomic.nanmin(floats, 1, float(values[i]))
    cuda.atomic.add(longs, (1, values[i] % uint32(4)), 1)
    cuda.atomic.exch(longs, (0, 0), 42)


def operations():
    values = np.random.default_rng(11).integers(0, 1 << 20, 500).astype(np.uint32)
    results = np.array([0, 0xFFFFFFFF, 0, 0, 0, 0], np.uint32)
    floats, longs = np.array([-1.0, 1e9]), np.zeros((2, 4), np.uint64)
    all_operations[4, 128](values, results, floats, longs)
    wrapped, downward = 0, 0
    for _ in values:
        wrapped = 0 if wrapped >= 9 else wrapped + 1
        downward = 6 if downward == 0 or downward > 6 else downward - 1
    assert results[0] == np.uint32(-int(values.sum()) & 0xFFFFFFFF)
    assert results[1] == np.bitwise_and.reduce(values | np.uint32(1))
    assert results[2] == np.bitwise_or.reduce(values)
    assert results[3] == np.bitwise_xor.reduce(values)
    assert (results[4], results[5]) == (wrapped, downward)
    assert list(floats) == [values.max(), values.min()]
    np.testing.assert_array_equal(longs[1], np.bincount(values % 4, minlength=4))
    assert longs[0, 0] == 42


@cuda.jit
def count_under_a_lock(mutex, total):
    if cuda.threadIdx.x == 0:
        while cuda.atomic.cas(mutex, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        total[0] += 2
        cuda.threadfence()
        cuda.atomic.exch(mutex, 0, 0)


def compare_and_swap():
    mutex, total = np.zeros(1, np.int32), np.zeros(1, np.int64)
    count_under_a_lock[30, 32](mutex, total)
    assert (mutex[0], total[0]) == (0, 60)


PROGRAMS = [atomics, histograms, operations, compare_and_swap]
