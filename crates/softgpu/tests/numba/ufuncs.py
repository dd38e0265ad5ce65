"""Functions over arrays: vectorize and guvectorize for the device, and NumPy's functions inside kernels."""

import math

import numpy as np
from numba import cuda, guvectorize, vectorize


@vectorize(["float32(float32, float32)", "float64(float64, float64)"], target="cuda")
def relative_difference(a, b):
    return 2 * (a - b) / (a + b)


@vectorize(["int64(int64, int64, int64)"], target="cuda")
def clamp(value, low, high):
    return min(max(value, low), high)


def elementwise_functions():
    rng = np.random.default_rng(19)
    a, b = rng.random(1000) + 1, rng.random(1000) + 1
    np.testing.assert_allclose(relative_difference(a, b), 2 * (a - b) / (a + b), rtol=1e-14)
    singles = relative_difference(a.astype(np.float32), b.astype(np.float32))
    assert singles.dtype == np.float32
    np.testing.assert_allclose(singles, 2 * (a - b) / (a + b), atol=1e-6)
    # Numbers are the same for every element.
    grid = rng.integers(-100, 100, (20, 30))
    np.testing.assert_array_equal(clamp(grid, -10, 50), np.clip(grid, -10, 50))
    lows = np.broadcast_to(np.arange(30) - 40, grid.shape).copy()
    np.testing.assert_array_equal(clamp(grid, lows, 50), np.clip(grid, lows, 50))


def elementwise_functions_on_the_device():
    a, b = cuda.to_device(np.arange(1.0, 101.0)), cuda.to_device(np.arange(2.0, 102.0))
    result = relative_difference(a, b)
    assert isinstance(result, cuda.cudadrv.devicearray.DeviceNDArray)
    out = cuda.device_array(100)
    stream = cuda.stream()
    relative_difference(a, b, out=out, stream=stream)
    stream.synchronize()
    np.testing.assert_array_equal(result.copy_to_host(), out.copy_to_host())


@vectorize(["int64(int64, int64)"], target="cuda")
def plus(a, b):
    return a + b


def reductions_of_functions():
    values = np.random.default_rng(20).integers(0, 100, 1234)
    assert plus.reduce(values) == values.sum()


@cuda.jit(device=True)
def polar(x, y):
    return math.sqrt(x * x + y * y)


@vectorize(["float64(float64, float64)"], target="cuda")
def distance(x, y):
    return polar(x, y) + 1


def functions_that_call_device_functions():
    x, y = np.arange(50.0), np.arange(50.0)[::-1].copy()
    np.testing.assert_allclose(distance(x, y), np.hypot(x, y) + 1, rtol=1e-14)


@guvectorize(["void(float64[:, :], float64[:, :], float64[:, :])"], "(m,n),(n,p)->(m,p)", target="cuda")
def multiply_matrices(a, b, product):
    for i in range(product.shape[0]):
        for k in range(product.shape[1]):
            total = 0.0
            for n in range(a.shape[1]):
                total += a[i, n] * b[n, k]
            product[i, k] = total


def stacks_of_matrices():
    rng = np.random.default_rng(21)
    a, b = rng.random((200, 2, 4)), rng.random((200, 4, 3))
    np.testing.assert_allclose(multiply_matrices(a, b), a @ b, rtol=1e-13)


@guvectorize(["void(int64[:], int64[:], int64[:])"], "(n),()->(n)", target="cuda")
def add_number(values, number, out):
    for i in range(values.shape[0]):
        out[i] = values[i] + number[0]


@guvectorize(["void(float32[:], float32[:])"], "(n)->()", target="cuda")
def mean(values, out):
    total = 0.0
    for value in values:
        total += value
    out[0] = total / values.shape[0]


def generalised_functions():
    rows = np.arange(60).reshape(6, 10)
    numbers = np.arange(6) * 100
    np.testing.assert_array_equal(add_number(rows, numbers), rows + numbers[:, None])
    single = np.random.default_rng(22).random((40, 25), dtype=np.float32)
    np.testing.assert_allclose(mean(single), single.mean(1), rtol=1e-6)


@cuda.jit
def functions_of_numpy(x, results):
    # NumPy's functions on arrays, within a kernel.
    np.sin(x, results[0])
    np.cos(x, results[1])
    np.log2(x, results[2])
    np.arctan(x, results[3])
    np.tan(x, results[4])


def numpy_functions_in_kernels():
    x = np.linspace(0.5, 3, 8)
    results = np.zeros((5, 8))
    functions_of_numpy[1, 1](x, results)
    expected = np.stack([np.sin(x), np.cos(x), np.log2(x), np.arctan(x), np.tan(x)])
    np.testing.assert_allclose(results, expected, rtol=1e-13)


PROGRAMS = [
    elementwise_functions,
    elementwise_functions_on_the_device,
    reductions_of_functions,
    functions_that_call_device_functions,
    stacks_of_matrices,
    generalised_functions,
    numpy_functions_in_kernels,
]
