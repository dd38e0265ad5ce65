"""Equations on grids: heat in a rod with the whole grid synchronised, and potentials in a plane until they settle."""

import numpy as np
from numba import cuda, float64

STEPS = 50


@cuda.jit
def heat_step(now, after, rate):
    i = cuda.grid(1)
    if 0 < i < now.size - 1:
        after[i] = now[i] + rate * (now[i - 1] - 2 * now[i] + now[i + 1])
    elif i < now.size:
        after[i] = now[i]


def expected_heat(rod, rate):
    for _ in range(STEPS):
        after = rod.copy()
        after[1:-1] = rod[1:-1] + rate * (rod[:-2] - 2 * rod[1:-1] + rod[2:])
        rod = after
    return rod


def heat_one_launch_at_a_time():
    rod = np.zeros(1001)
    rod[500] = 10_000
    first, second = cuda.to_device(rod), cuda.device_array_like(rod)
    for _ in range(STEPS):
        heat_step[8, 128](first, second, 0.25)
        first, second = second, first
    np.testing.assert_allclose(first.copy_to_host(), expected_heat(rod, 0.25), rtol=1e-12)


@cuda.jit
def heat_in_one_launch(rod, other, steps, rate):
    i = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for step in range(steps):
        now, after = (rod, other) if step % 2 == 0 else (other, rod)
        if 0 < i < rod.size - 1:
            after[i] = now[i] + rate * (now[i - 1] - 2 * now[i] + now[i + 1])
        elif i < rod.size:
            after[i] = now[i]
        grid.sync()


def heat_with_grid_sync():
    rod = np.zeros(1001)
    rod[500] = 10_000
    first, second = cuda.to_device(rod), cuda.device_array_like(rod)
    heat_in_one_launch[8, 128](first, second, STEPS, 0.25)
    np.testing.assert_allclose(first.copy_to_host(), expected_heat(rod, 0.25), rtol=1e-12)
    most = heat_in_one_launch.overloads[heat_in_one_launch.signatures[0]].max_cooperative_grid_blocks(128)
    assert most >= 8


TILE = 16


@cuda.jit("void(float64[:, :], float64[:, :], float64[:, :])")
def jacobi(now, after, errors):
    shared = cuda.shared.array((TILE, TILE), float64)
    row, column = cuda.threadIdx.y, cuda.threadIdx.x
    x, y = cuda.grid(2)
    height, width = now.shape
    shared[row, column] = 0
    if 0 < y < height - 1 and 0 < x < width - 1:
        after[y, x] = 0.25 * (now[y, x + 1] + now[y, x - 1] + now[y - 1, x] + now[y + 1, x])
        shared[row, column] = abs(after[y, x] - now[y, x])
    cuda.syncthreads()
    half = TILE // 2
    while half > 0:
        if row < half:
            shared[row, column] = max(shared[row, column], shared[row + half, column])
        cuda.syncthreads()
        if column < half:
            shared[row, column] = max(shared[row, column], shared[row, column + half])
        cuda.syncthreads()
        half //= 2
    if row == 0 and column == 0:
        errors[cuda.blockIdx.y, cuda.blockIdx.x] = shared[0, 0]


def laplace():
    size, rounds = 40, 60
    plane = np.zeros((size, size))
    plane[:, 0] = 1.0
    blocks = (size + TILE - 1) // TILE
    first, second = cuda.to_device(plane), cuda.to_device(plane)
    errors = cuda.device_array((blocks, blocks))
    stream = cuda.stream()
    for _ in range(rounds):
        jacobi[(blocks, blocks), (TILE, TILE), stream](first, second, errors)
        first, second = second, first
    found, error = first.copy_to_host(stream=stream), errors.copy_to_host(stream=stream)
    stream.synchronize()
    for _ in range(rounds):
        after = plane.copy()
        inner = plane[1:-1, 2:] + plane[1:-1, :-2] + plane[:-2, 1:-1] + plane[2:, 1:-1]
        after[1:-1, 1:-1] = 0.25 * inner
        change = np.abs(after - plane).max()
        plane = after
    np.testing.assert_allclose(found, plane, rtol=1e-12)
    np.testing.assert_allclose(error.max(), change, rtol=1e-9)


PROGRAMS = [heat_one_launch_at_a_time, heat_with_grid_sync, laplace]
