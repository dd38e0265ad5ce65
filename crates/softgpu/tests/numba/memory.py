"""Every kind of memory: local, shared of a size fixed or set at launch, constant, pinned, mapped and managed."""

import numpy as np
from numba import cuda, float32, int32, int64

COEFFICIENTS = np.array([3.0, -1.0, 4.0, 1.0])
TABLE = np.arange(12, dtype=np.int32).reshape(3, 4)


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


@cuda.jit
def polynomial(x, y):
    coefficients = cuda.const.array_like(COEFFICIENTS)
    table = cuda.const.array_like(TABLE)
    i = cuda.grid(1)
    if i < x.size:
        total = 0.0
        for k in range(3, -1, -1):
            total = total * x[i] + coefficients[k]
        y[i] = total + table[i % 3, i % 4]


def constant_memory():
    x = np.arange(20.0)
    y = np.zeros(20)
    polynomial[1, 32](x, y)
    i = np.arange(20)
    np.testing.assert_array_equal(y, 3 - x + 4 * x**2 + x**3 + TABLE[i % 3, i % 4])


@cuda.jit
def reverse_in_blocks(values):
    shared = cuda.shared.array(0, int32)
    i = cuda.threadIdx.x
    at = cuda.grid(1)
    shared[i] = values[at]
    cuda.syncthreads()
    values[at] = shared[cuda.blockDim.x - 1 - i]


def dynamic_shared_memory():
    values = np.arange(300, dtype=np.int32)
    reverse_in_blocks[3, 100, 0, 100 * 4](values)
    np.testing.assert_array_equal(values, np.arange(300).reshape(3, 100)[:, ::-1].ravel())


@cuda.jit
def two_kinds_at_one_place(results):
    whole = cuda.shared.array(0, float32)
    floats = whole[:32]
    integers = cuda.shared.array(0, int32)[32:64]
    i = cuda.threadIdx.x
    floats[i] = i * 0.5
    integers[i] = i * 3
    cuda.syncthreads()
    results[i] = floats[31 - i] + integers[(i + 1) % 32]


def dynamic_shared_memory_in_parts():
    results = np.zeros(32)
    two_kinds_at_one_place[1, 32, 0, 64 * 4](results)
    i = np.arange(32)
    np.testing.assert_array_equal(results, (31 - i) * 0.5 + (i + 1) % 32 * 3)


@cuda.jit
def double(values):
    i = cuda.grid(1)
    if i < values.size:
        values[i] *= 2


def mapped_memory():
    mapped = cuda.mapped_array(1000, np.float32)
    mapped[:] = np.arange(1000)
    double[8, 128](mapped)
    cuda.synchronize()
    np.testing.assert_array_equal(mapped, np.arange(1000, dtype=np.float32) * 2)
    ordinary = np.ones(100, np.int64)
    with cuda.mapped(ordinary) as view:
        double[1, 128](view)
        cuda.synchronize()
    assert (ordinary == 2).all()


def managed_memory():
    managed = cuda.managed_array(1000, np.float64)
    managed[:] = 1.5
    double[8, 128](managed)
    cuda.synchronize()
    assert (managed == 3).all()


def copies_and_slices():
    host = np.arange(240, dtype=np.int64).reshape(8, 30)
    device = cuda.to_device(host)
    np.testing.assert_array_equal(device[3].copy_to_host(), host[3])
    np.testing.assert_array_equal(device[2:5].copy_to_host(), host[2:5])
    np.testing.assert_array_equal(device[:, 7].copy_to_host(), host[:, 7])
    np.testing.assert_array_equal(device.reshape(20, 12).copy_to_host(), host.reshape(20, 12))
    np.testing.assert_array_equal(device.ravel().copy_to_host(), host.ravel())
    np.testing.assert_array_equal(device.T.copy_to_host(), host.T)
    device[1] = np.arange(30)
    device[4:6] = 9
    host[1], host[4:6] = np.arange(30), 9
    np.testing.assert_array_equal(device.copy_to_host(), host)
    other = cuda.device_array_like(device)
    other.copy_to_device(device)
    np.testing.assert_array_equal(other.copy_to_host(), host)
    parts = device.ravel().split(60)
    np.testing.assert_array_equal(np.concatenate([part.copy_to_host() for part in parts]), host.ravel())
    fortran = cuda.to_device(np.asfortranarray(host))
    np.testing.assert_array_equal(fortran.copy_to_host(), host)


def memory_that_is_counted():
    context = cuda.current_context()
    free, total = context.get_memory_info()
    assert 0 < free <= total
    with cuda.defer_cleanup():
        array = cuda.device_array(1 << 20, np.uint8)
        assert array.gpu_data.size >= 1 << 20
        del array
    context.deallocations.clear()


@cuda.jit
def two_dimensions_of_local_memory(results):
    grid = cuda.local.array((4, 6), int64)
    i = cuda.grid(1)
    for y in range(4):
        for x in range(6):
            grid[y, x] = i * 100 + y * 6 + x
    total = int64(0)
    for x in range(6):
        for y in range(4):
            total = total * 3 + grid[(y + i) % 4, x]
    results[i] = total


def local_memory_in_two_dimensions():
    results = np.zeros(40, np.int64)
    two_dimensions_of_local_memory[1, 40](results)
    expected = []
    for i in range(40):
        total = 0
        for x in range(6):
            for y in range(4):
                total = total * 3 + i * 100 + (y + i) % 4 * 6 + x
        expected.append((total + (1 << 63)) % (1 << 64) - (1 << 63))
    assert results.tolist() == expected


PROGRAMS = [
    local_memory,
    local_memory_in_two_dimensions,
    constant_memory,
    dynamic_shared_memory,
    dynamic_shared_memory_in_parts,
    mapped_memory,
    managed_memory,
    copies_and_slices,
    memory_that_is_counted,
]
