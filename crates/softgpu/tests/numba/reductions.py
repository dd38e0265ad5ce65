"""Sums and other folds: Numba's reduction kernels, and ones by hand in shared memory and by shuffles."""

import numpy as np
from numba import cuda, int32

THREADS = 128


@cuda.reduce
def largest(a, b):
    return max(a, b)


@cuda.reduce
def total_of(a, b):
    return a + b


def reductions():
    values = np.random.default_rng(3).integers(-1000, 1000, 12_345).astype(np.int64)
    assert total_of(values) == values.sum()
    assert largest(values, init=values[0]) == values.max()
    assert total_of(np.arange(1000, dtype=np.float64)) == 499_500.0


@cuda.jit
def sum_in_shared_memory(values, total):
    shared = cuda.shared.array(THREADS, int32)
    thread = cuda.threadIdx.x
    i = cuda.grid(1)
    shared[thread] = values[i] if i < values.size else 0
    cuda.syncthreads()
    step = 1
    while step < cuda.blockDim.x:
        if thread % (2 * step) == 0:
            shared[thread] += shared[thread + step]
        step *= 2
        cuda.syncthreads()
    if thread == 0:
        cuda.atomic.add(total, 0, shared[0])


def reduction_in_shared_memory():
    values = np.random.default_rng(9).integers(0, 100, 3000).astype(np.int32)
    total = np.zeros(1, np.int32)
    sum_in_shared_memory[(values.size + THREADS - 1) // THREADS, THREADS](values, total)
    assert total[0] == values.sum()


def reduction_into_device_memory():
    values = cuda.to_device(np.arange(777, dtype=np.float64))
    total = cuda.device_array(1, np.float64)
    total_of(values, res=total)
    assert total.copy_to_host()[0] == 777 * 776 / 2
    assert total_of(values, size=10) == 45
    assert total_of(np.zeros(0, np.float64), init=5.0) == 5.0


@cuda.jit
def warp_totals(values, totals):
    value = values[cuda.grid(1)]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    if cuda.laneid == 0:
        totals[cuda.grid(1) // 32] = value


def shuffles():
    values = np.arange(1024, dtype=np.int32)
    totals = np.zeros(32, np.int32)
    warp_totals[4, 256](values, totals)
    np.testing.assert_array_equal(totals, values.reshape(32, 32).sum(1))


PROGRAMS = [reductions, reduction_in_shared_memory, reduction_into_device_memory, shuffles]
