"""Vectors and matrices: an element for each thread, loops over the grid, tiles in shared memory."""

import numpy as np
from numba import cuda, float32, float64, int32

TILE = 16
PADDED = TILE + 1
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


@cuda.jit
def add_over_grid(a, b, total):
    start, step = cuda.grid(1), cuda.gridsize(1)
    for i in range(start, total.size, step):
        total[i] = a[i] + b[i]


def vector_add_with_a_loop_over_the_grid():
    rng = np.random.default_rng(6)
    a, b = cuda.to_device(rng.random(10_000)), cuda.to_device(rng.random(10_000))
    total = cuda.device_array_like(a)
    # As many blocks as Numba finds useful.
    add_over_grid.forall(total.size)(a, b, total)
    np.testing.assert_array_equal(total.copy_to_host(), a.copy_to_host() + b.copy_to_host())
    add_over_grid[3, 64](a, b, total)
    np.testing.assert_array_equal(total.copy_to_host(), a.copy_to_host() + b.copy_to_host())


@cuda.jit
def multiply_plainly(a, b, product):
    row, column = cuda.grid(2)
    if row < product.shape[0] and column < product.shape[1]:
        total = 0.0
        for k in range(a.shape[1]):
            total += a[row, k] * b[k, column]
        product[row, column] = total


def matrix_multiply_plainly():
    rng = np.random.default_rng(7)
    for kind in (np.float32, np.float64):
        a, b = rng.random((33, 40)).astype(kind), rng.random((40, 27)).astype(kind)
        product = np.zeros((33, 27), kind)
        multiply_plainly[(3, 2), (16, 16)](a, b, product)
        np.testing.assert_allclose(product, a @ b, rtol=1e-5)


@cuda.jit("void(float64[:, :], float64[:, ::1])")
def transpose(matrix, transposed):
    tile = cuda.shared.array((TILE, PADDED), float64)
    x, y = cuda.grid(2)
    if x < matrix.shape[1] and y < matrix.shape[0]:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = matrix[y, x]
    cuda.syncthreads()
    x = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    y = cuda.blockIdx.x * TILE + cuda.threadIdx.y
    if x < transposed.shape[1] and y < transposed.shape[0]:
        transposed[y, x] = tile[cuda.threadIdx.x, cuda.threadIdx.y]


def transpose_with_an_explicit_signature():
    matrix = np.arange(35.0 * 50).reshape(35, 50)
    transposed = np.zeros((50, 35))
    transpose[((50 + TILE - 1) // TILE, (35 + TILE - 1) // TILE), (TILE, TILE)](matrix, transposed)
    np.testing.assert_array_equal(transposed, matrix.T)
    # A view whose elements do not lie one behind the other.
    wide = np.arange(70.0 * 100).reshape(70, 100)
    transpose[(4, 3), (TILE, TILE)](cuda.to_device(wide)[::2, ::2], transposed)
    np.testing.assert_array_equal(transposed, wide[::2, ::2].T)


@cuda.jit
def fill_volume(volume):
    x, y, z = cuda.grid(3)
    if x < volume.shape[0] and y < volume.shape[1] and z < volume.shape[2]:
        volume[x, y, z] = x * 10_000 + y * 100 + z


def three_dimensions():
    volume = np.zeros((9, 10, 11), np.int32)
    fill_volume[(3, 3, 3), (4, 4, 4)](volume)
    x, y, z = np.indices(volume.shape)
    np.testing.assert_array_equal(volume, x * 10_000 + y * 100 + z)


@cuda.jit
def complex_powers(values, powers):
    i = cuda.grid(1)
    if i < values.size:
        powers[i] = values[i] * values[i] + 1j
        for k in range(3):
            powers[i] *= values[i]


def complex_numbers():
    rng = np.random.default_rng(8)
    values = (rng.random(100) + 1j * rng.random(100)).astype(np.complex64)
    powers = np.zeros_like(values)
    complex_powers[1, 128](values, powers)
    np.testing.assert_allclose(powers, (values**2 + 1j) * values**3, rtol=1e-5)


@cuda.jit
def compact(flags, values, kept, counter):
    i = cuda.grid(1)
    if i < values.size and flags[i]:
        kept[cuda.atomic.add(counter, 0, int32(1))] = values[i]


@cuda.jit
def put_in_order(kept, counter, ordered):
    i = cuda.grid(1)
    if i < counter[0]:
        place = 0
        for other in range(counter[0]):
            if kept[other] < kept[i]:
                place += 1
        ordered[place] = kept[i]


def booleans_and_compaction():
    values = np.arange(500, dtype=np.int64)
    flags = values % 3 == 1
    kept, counter = cuda.device_array(500, np.int64), cuda.to_device(np.zeros(1, np.int32))
    ordered, expected = np.zeros(500, np.int64), np.zeros(500, np.int64)
    expected[: flags.sum()] = values[flags]
    compact[4, 128](flags, values, kept, counter)
    # Which thread counts first is the GPU's affair, so `kept` does not leave it: bits that leave are compared between runs.
    put_in_order[4, 128](kept, counter, ordered)
    assert counter.copy_to_host()[0] == flags.sum()
    np.testing.assert_array_equal(ordered, expected)


PROGRAMS = [
    vector_add,
    vector_add_with_a_loop_over_the_grid,
    matrix_multiply_plainly,
    matrix_multiply_with_shared_memory,
    transpose_with_an_explicit_signature,
    three_dimensions,
    complex_numbers,
    booleans_and_compaction,
]
