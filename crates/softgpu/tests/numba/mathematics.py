"""Functions: of Python's math, of libdevice, bits, fused steps, half precision, and a picture."""

import math

import numpy as np
from numba import cuda, float32, int32, int64
from numba.core.types import float16
from numba.cuda import libdevice


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
def more_functions(x, results):
    i = cuda.grid(1)
    if i < x.size:
        results[i, 0] = math.tanh(x[i])
        results[i, 1] = math.atan2(x[i], 2.0)
        results[i, 2] = math.pow(x[i], 1.5)
        results[i, 3] = math.erf(x[i])
        results[i, 4] = math.lgamma(x[i])
        results[i, 5] = math.hypot(x[i], 3.0)
        results[i, 6] = math.expm1(x[i])
        results[i, 7] = math.log1p(x[i])
        results[i, 8] = math.fmod(x[i], 0.7)
        results[i, 9] = math.sinh(x[i]) + math.acos(x[i] / 6)
        results[i, 10] = x[i] ** 3
        results[i, 11] = math.ceil(x[i]) + math.trunc(x[i] * 3)


def more_mathematics():
    x = np.linspace(0.1, 5.0, 200)
    results = np.zeros((200, 12))
    more_functions[2, 128](x, results)
    lgamma = np.vectorize(math.lgamma)
    erf = np.vectorize(math.erf)
    columns = [np.tanh(x), np.arctan2(x, 2.0), x**1.5, erf(x), lgamma(x), np.hypot(x, 3.0), np.expm1(x)]
    columns += [np.log1p(x), np.fmod(x, 0.7), np.sinh(x) + np.arccos(x / 6), x**3, np.ceil(x) + np.trunc(x * 3)]
    np.testing.assert_allclose(results, np.stack(columns, 1), rtol=1e-12, atol=1e-13)


@cuda.jit
def special_functions(x, narrow, results):
    i = cuda.grid(1)
    if i < x.size:
        results[i, 0] = math.copysign(x[i], -1.0)
        results[i, 1] = libdevice.copysignf(narrow[i], float32(-2.0))
        results[i, 2] = libdevice.normcdf(x[i])
        results[i, 3] = libdevice.normcdff(narrow[i])
        results[i, 4] = libdevice.j1(x[i])
        results[i, 5] = libdevice.j1f(narrow[i])
        results[i, 6] = libdevice.jn(3, x[i])
        results[i, 7] = libdevice.jnf(3, narrow[i])
        results[i, 8] = libdevice.y1f(narrow[i]) - libdevice.y1(x[i])
        results[i, 9] = libdevice.ynf(2, narrow[i]) - libdevice.yn(2, x[i])


def special_functions_of_libdevice():
    x = np.linspace(0.5, 6.0, 100)
    results = np.zeros((100, 10))
    special_functions[1, 128](x, x.astype(np.float32), results)
    normal = np.vectorize(lambda x: 0.5 * math.erfc(-x / math.sqrt(2)))(x)
    # Bessel functions of the first kind are the means of cosines.
    angles = (np.arange(1000) + 0.5) * math.pi / 1000
    first, third = (np.cos(n * angles - x[:, None] * np.sin(angles)).mean(axis=1) for n in (1, 3))
    wide, narrow = results[:, [0, 2, 4, 6]], results[:, [1, 3, 5, 7]]
    columns = np.stack([-x, normal, first, third], 1)
    np.testing.assert_allclose(wide, columns, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(narrow, columns, rtol=1e-5, atol=1e-6)
    # Of the second kind the narrow and the wide form agree.
    np.testing.assert_allclose(results[:, 8:], 0, atol=1e-4)


@cuda.jit
def bits(values, results):
    i = cuda.grid(1)
    if i < values.size:
        results[i, 0] = cuda.popc(values[i])
        results[i, 1] = cuda.clz(values[i])
        results[i, 2] = cuda.ffs(values[i])
        results[i, 3] = int64(cuda.brev(values[i]))
        results[i, 4] = cuda.selp(values[i] % 2 == 0, 10, 20)
        results[i, 5] = libdevice.mulhi(int32(values[i]), int32(1 << 20))


def bits_of_integers():
    values = np.random.default_rng(12).integers(1, 1 << 31, 64).astype(np.uint32)
    results = np.zeros((64, 6), np.int64)
    bits[1, 64](values, results)
    for value, row in zip(values.tolist(), results.tolist()):
        text = f"{value:032b}"
        lowest = (value & -value).bit_length()
        expected = [text.count("1"), 32 - value.bit_length(), lowest, int(text[::-1], 2)]
        assert row == expected + [10 if value % 2 == 0 else 20, value * (1 << 20) >> 32]


@cuda.jit
def fused(a, b, c, results):
    i = cuda.grid(1)
    if i < a.size:
        results[0, i] = cuda.fma(a[i], b[i], c[i])
        results[1, i] = libdevice.fdiv_rn(a[i], b[i])
        results[2, i] = libdevice.fsqrt_rn(a[i])
        results[3, i] = cuda.cbrt(a[i])


def fused_steps_and_libdevice():
    rng = np.random.default_rng(13)
    a, b, c = (rng.random(100, dtype=np.float32) + np.float32(0.5) for _ in range(3))
    results = np.zeros((4, 100), np.float32)
    fused[1, 128](a, b, c, results)
    # The product of two floats is exact in double, and the sum is rounded twice at most.
    exact = a.astype(np.float64) * b + c
    assert np.abs(results[0] - exact).max() <= np.spacing(np.float32(4)) / 2
    np.testing.assert_array_equal(results[1], a / b)
    np.testing.assert_array_equal(results[2], np.sqrt(a))
    np.testing.assert_allclose(results[3], np.cbrt(a), rtol=1e-6)


@cuda.jit
def halves(a, b, results):
    i = cuda.grid(1)
    if i < a.size:
        results[0, i] = cuda.fp16.hadd(a[i], b[i])
        results[1, i] = cuda.fp16.hmul(a[i], b[i])
        results[2, i] = cuda.fp16.hfma(a[i], b[i], a[i])
        results[3, i] = a[i] - b[i]
        results[4, i] = cuda.fp16.hmax(a[i], b[i])
        results[5, i] = float16(float32(a[i]) * float32(3))


def half_precision():
    rng = np.random.default_rng(14)
    a, b = (rng.random(64).astype(np.float16) for _ in range(2))
    results = np.zeros((6, 64), np.float16)
    halves[1, 64](a, b, results)
    x, y = a.astype(np.float64), b.astype(np.float64)
    expected = np.stack([x + y, x * y, x * y + x, x - y, np.maximum(x, y), x * 3]).astype(np.float16)
    np.testing.assert_array_equal(results, expected)


@cuda.jit
def divide(a, b, results):
    i = cuda.grid(1)
    if i < a.size:
        results[0, i] = a[i] // b[i]
        results[1, i] = a[i] % b[i]
        results[2, i] = a[i] << (b[i] & 7)
        results[3, i] = a[i] >> (b[i] & 7)
        results[4, i] = -a[i] if a[i] < 0 else ~a[i]
        results[5, i] = min(a[i], b[i]) * 3 + max(a[i], b[i])


def integers():
    rng = np.random.default_rng(15)
    for kind in (np.int8, np.int32, np.int64):
        a = rng.integers(-100, 100, 64).astype(kind)
        b = rng.integers(1, 20, 64).astype(kind) * rng.choice([-1, 1], 64).astype(kind)
        results = np.zeros((6, 64), np.int64)
        divide[1, 64](a, b, results)
        wide, other = a.astype(np.int64), b.astype(np.int64)
        expected = [wide // other, wide % other, wide << (other & 7), wide >> (other & 7)]
        expected += [np.where(wide < 0, -wide, ~wide), np.minimum(wide, other) * 3 + np.maximum(wide, other)]
        np.testing.assert_array_equal(results, np.stack(expected))


PROGRAMS = [
    mandelbrot,
    mathematics,
    more_mathematics,
    special_functions_of_libdevice,
    bits_of_integers,
    fused_steps_and_libdevice,
    half_precision,
    integers,
]
