"""Ordinary Numba CUDA programs, each compared with NumPy.

Numba compiles them to PTX with NVVM and runs them through the driver that NUMBA_CUDA_DRIVER names: it knows
nothing of DetShare. `python3 programs.py [NAME...]` prints one line for each and exits with 1 if any fails.
"""

import math
import sys
import traceback

import numpy as np
from numba import cuda, float32, int32

TILE = 16
THREADS = 128


@cuda.jit
def add(a, b, total):
    i = cuda.grid(1)
    if i < total.size:
        total[i] = a[i] + b[i]


def vector_add():
    rng = np.random.default_rng(1)
    a, b = rng.random(100_003, dtype=np.float32), rng.random(100_003, dtype=np.float32)
    total = np.zeros_like(a)
    add[(a.size + THREADS - 1) // THREADS, THREADS](a, b, total)
    np.testing.assert_array_equal(total, a + b)


@cuda.jit
def multiply_tiles(a, b, product):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    column, row = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for tile in range((a.shape[1] + TILE - 1) // TILE):
        left[row, column] = a[y, tile * TILE + column] if y < a.shape[0] and tile * TILE + column < a.shape[1] else 0
        right[row, column] = b[tile * TILE + row, x] if x < b.shape[1] and tile * TILE + row < b.shape[0] else 0
        cuda.syncthreads()
        for k in range(TILE):
            total += left[row, k] * right[k, column]
        cuda.syncthreads()
    if y < product.shape[0] and x < product.shape[1]:
        product[y, x] = total


def matrix_multiply_with_shared_memory():
    rng = np.random.default_rng(2)
    a, b = rng.random((70, 45), dtype=np.float32), rng.random((45, 91), dtype=np.float32)
    product = np.zeros((70, 91), np.float32)
    multiply_tiles[((91 + TILE - 1) // TILE, (70 + TILE - 1) // TILE), (TILE, TILE)](a, b, product)
    np.testing.assert_allclose(product, a @ b, rtol=1e-5)


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


@cuda.jit(device=True)
def escape(x, y, limit):
    c = complex(x, y)
    z = 0j
    for i in range(limit):
        z = z * z + c
        if z.real * z.real + z.imag * z.imag >= 4:
            return i
    return limit


@cuda.jit
def draw(image, left, top, step, limit):
    x, y = cuda.grid(2)
    if y < image.shape[0] and x < image.shape[1]:
        image[y, x] = escape(left + x * step, top + y * step, limit)


def mandelbrot():
    image = np.zeros((64, 96), np.int32)
    draw[(6, 4), (16, 16)](image, -2.0, -1.0, 1 / 32, 50)
    expected = np.zeros_like(image)
    for y in range(64):
        for x in range(96):
            c, z, steps = complex(-2 + x / 32, -1 + y / 32), 0j, 0
            while steps < 50:
                z = z * z + c
                if abs(z) ** 2 >= 4:
                    break
                steps += 1
            expected[y, x] = steps
    different = np.count_nonzero(image != expected)
    assert different <= 8, f"{different} points differ, more than rounding explains"


@cuda.jit
def scale(values, factor):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= factor


def streams_and_events():
    first, second = cuda.stream(), cuda.stream()
    begin, end = cuda.event(), cuda.event()
    values = np.ones(10_000, np.float32)
    begin.record(first)
    on_device = cuda.to_device(values, stream=first)
    scale[79, 128, first](on_device, 3)
    end.record(first)
    end.wait(second)
    scale[79, 128, second](on_device, 5)
    result = on_device.copy_to_host(stream=second)
    second.synchronize()
    assert (result == 15).all()
    assert begin.elapsed_time(end) >= 0


@cuda.jit
def functions(values, results):
    i = cuda.grid(1)
    if i < values.size:
        x = values[i]
        results[i, 0] = math.sqrt(x)
        results[i, 1] = math.exp(x)
        results[i, 2] = math.sin(x)
        results[i, 3] = math.log(x)
        results[i, 4] = x / 3.0
        results[i, 5] = math.floor(x * 10)


def mathematics():
    values = np.linspace(0.1, 7.5, 500)
    results = np.zeros((500, 6))
    functions[4, 128](values, results)
    columns = [np.sqrt(values), np.exp(values), np.sin(values), np.log(values), values / 3, np.floor(values * 10)]
    np.testing.assert_allclose(results, np.stack(columns, 1), rtol=1e-12, atol=1e-15)


@cuda.jit
def local_sort(values):
    i = cuda.grid(1)
    row = cuda.local.array(8, int32)
    for k in range(8):
        row[k] = values[i, k]
    for k in range(1, 8):
        value, at = row[k], k
        while at > 0 and row[at - 1] > value:
            row[at] = row[at - 1]
            at -= 1
        row[at] = value
    for k in range(8):
        values[i, k] = row[k]


def local_memory():
    values = np.random.default_rng(5).integers(0, 1000, (256, 8)).astype(np.int32)
    expected = np.sort(values, axis=1)
    local_sort[2, 128](values)
    np.testing.assert_array_equal(values, expected)


PROGRAMS = [
    vector_add,
    matrix_multiply_with_shared_memory,
    reductions,
    shuffles,
    atomics,
    mandelbrot,
    streams_and_events,
    mathematics,
    local_memory,
]


def main():
    wanted = sys.argv[1:] or [program.__name__ for program in PROGRAMS]
    failed = 0
    chosen = [program for program in PROGRAMS if program.__name__ in wanted]
    for program in chosen:
        try:
            program()
            print(f"{program.__name__} ... ok", flush=True)
        except Exception:
            failed += 1
            print(f"{program.__name__} ... failed\n{traceback.format_exc()}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
