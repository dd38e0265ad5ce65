"""Threads that work together: sessions over a whole grid, votes, matches, barriers, fences, device functions."""

import numpy as np
from numba import cuda, int32


@cuda.jit
def find_sessions(users, times, limit, sessions):
    """Each visit's session: the index of its first visit, all within the grid synchronised step by step."""
    i = cuda.grid(1)
    count = users.size
    if i >= count:
        return
    new = i == 0 or users[i] != users[i - 1] or times[i] - times[i - 1] > limit
    sessions[i] = i if new else -1
    grid = cuda.cg.this_grid()
    grid.sync()
    if new:
        at = i + 1
        while at < count and sessions[at] == -1:
            sessions[at] = i
            at += 1


def sessions_with_grid_sync():
    users = np.array([1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4], np.int32)
    times = np.array([1, 2, 9, 10, 30, 5, 6, 40, 1, 2, 3, 4, 8, 20, 21, 22], np.int32)
    sessions = np.zeros(16, np.int32)
    find_sessions[1, 16](users, times, 5, sessions)
    expected, current = [], 0
    for i in range(16):
        if i == 0 or users[i] != users[i - 1] or times[i] - times[i - 1] > 5:
            current = i
        expected.append(current)
    assert sessions.tolist() == expected


@cuda.jit
def ask_the_warp(values, answers):
    i = cuda.grid(1)
    value = values[i]
    answers[0, i] = cuda.ballot_sync(0xFFFFFFFF, value % 3 == 0)
    answers[1, i] = cuda.all_sync(0xFFFFFFFF, value < 90)
    answers[2, i] = cuda.any_sync(0xFFFFFFFF, value == 7)
    answers[3, i] = cuda.eq_sync(0xFFFFFFFF, value > 200)
    answers[4, i] = cuda.match_any_sync(0xFFFFFFFF, value % 5)
    answers[5, i] = cuda.match_all_sync(0xFFFFFFFF, value // 100)[1]
    answers[6, i] = cuda.shfl_sync(0xFFFFFFFF, value, (i + 1) % 32)
    answers[7, i] = cuda.shfl_up_sync(0xFFFFFFFF, value, 2)
    answers[8, i] = cuda.shfl_xor_sync(0xFFFFFFFF, value, 5)
    answers[9, i] = cuda.lanemask_lt()
    cuda.syncwarp()


def votes_and_matches():
    values = np.random.default_rng(16).integers(0, 100, 64).astype(np.int32)
    answers = np.zeros((10, 64), np.int64)
    ask_the_warp[1, 64](values, answers)
    for i in range(64):
        warp = values[i // 32 * 32 :][:32].astype(np.int64)
        lane = i % 32
        expected = [
            sum(1 << k for k in range(32) if warp[k] % 3 == 0),
            (warp < 90).all(),
            (warp == 7).any(),
            True,
            sum(1 << k for k in range(32) if warp[k] % 5 == warp[lane] % 5),
            True,
            warp[(i + 1) % 32],
            warp[lane - 2] if lane >= 2 else warp[lane],
            warp[lane ^ 5],
            (1 << lane) - 1,
        ]
        assert (answers[:, i] & 0xFFFFFFFF).tolist() == [int(value) for value in expected]


@cuda.jit
def barriers_that_count(values, results):
    i = cuda.threadIdx.x
    results[0, i] = cuda.syncthreads_count(int32(values[i] > 50))
    results[1, i] = cuda.syncthreads_and(int32(values[i] >= 0))
    results[2, i] = cuda.syncthreads_or(int32(values[i] > 98))


def barriers():
    values = np.random.default_rng(17).integers(0, 100, 96).astype(np.int32)
    results = np.zeros((3, 96), np.int32)
    barriers_that_count[1, 96](values, results)
    assert (results[0] == (values > 50).sum()).all()
    assert (results[1] != 0).all()
    assert ((results[2] != 0) == (values > 98).any()).all()


@cuda.jit
def last_block_sums(values, parts, done, total):
    shared = cuda.shared.array(1, int32)
    i = cuda.grid(1)
    cuda.atomic.add(parts, cuda.blockIdx.x, values[i])
    cuda.threadfence()
    if cuda.threadIdx.x == 0:
        shared[0] = cuda.atomic.add(done, 0, 1)
    cuda.syncthreads()
    if shared[0] == cuda.gridDim.x - 1 and cuda.threadIdx.x == 0:
        for block in range(cuda.gridDim.x):
            total[0] += parts[block]


def fences():
    values = np.arange(1024, dtype=np.int32)
    parts, done, total = np.zeros(8, np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    # The parts of a block are complete only if all of its threads are through: one thread a block adds.
    last_block_sums[8, 1](values, parts, done, total)
    assert total[0] == values[:8].sum()


@cuda.jit(device=True)
def gcd(a, b):
    while b != 0:
        a, b = b, a % b
    return a


@cuda.jit(device=True, inline=True)
def swap_if(flag, pair):
    if flag:
        return pair[1], pair[0]
    return pair


@cuda.jit
def use_device_functions(a, b, results):
    i = cuda.grid(1)
    if i < a.size:
        low, high = swap_if(a[i] > b[i], (a[i], b[i]))
        results[i] = gcd(a[i], b[i]) * 1000 + high - low


def device_functions():
    rng = np.random.default_rng(18)
    a, b = rng.integers(1, 500, 100), rng.integers(1, 500, 100)
    results = np.zeros(100, np.int64)
    use_device_functions[1, 128](a, b, results)
    np.testing.assert_array_equal(results, np.gcd(a, b) * 1000 + np.abs(a - b))


@cuda.jit("int64(int64)", device=True)
def fibonacci(n):
    if n < 2:
        return n
    return fibonacci(n - 1) + fibonacci(n - 2)


@cuda.jit
def fibonacci_numbers(results):
    i = cuda.grid(1)
    if i < results.size:
        results[i] = fibonacci(i)


def recursion():
    results = np.zeros(16, np.int64)
    fibonacci_numbers[1, 32](results)
    assert results.tolist() == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]


@cuda.jit
def hand_over(numbers, flag, results):
    """The first thread sleeps before it says that the numbers are there; the second warp looks now and then."""
    i = cuda.threadIdx.x
    if i == 0:
        for at in range(numbers.size):
            numbers[at] = at * at
        cuda.nanosleep(20_000)
        cuda.threadfence()
        cuda.atomic.exch(flag, 0, 1)
    elif i >= 32:
        while cuda.atomic.add(flag, 0, 0) == 0:
            cuda.nanosleep(500)
        cuda.threadfence()
        results[i - 32] = numbers[i - 32] + 1


def sleeping_threads():
    numbers, results = cuda.to_device(np.zeros(32, np.int32)), np.zeros(32, np.int32)
    hand_over[1, 64](numbers, np.zeros(1, np.int32), results)
    np.testing.assert_array_equal(results, np.arange(32) ** 2 + 1)


PROGRAMS = [
    sessions_with_grid_sync,
    votes_and_matches,
    barriers,
    fences,
    sleeping_threads,
    device_functions,
    recursion,
]
