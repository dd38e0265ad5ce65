"""Device functions that are not written in Python: PTX by hand, and C++ that NVRTC compiles."""

import os
import tempfile

import numpy as np
from numba import cuda

HAND_WRITTEN = """
.version 7.0
.target sm_70
.address_size 64

.visible .func (.param .b32 status) add_mul(
    .param .b64 result,
    .param .b64 a,
    .param .b64 b
)
{
    .reg .b64 %rd<4>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [result];
    ld.param.u64 %rd2, [a];
    ld.param.u64 %rd3, [b];
    mad.lo.s64 %rd2, %rd2, %rd3, %rd3;
    st.u64 [%rd1], %rd2;
    mov.u32 %r1, 0;
    st.param.b32 [status], %r1;
    ret;
}
"""

IN_CPP = """
extern "C" __device__ int sum_of(int* result, const float* values, int count)
{
    float total = 0;
    for (int i = 0; i < count; i++) total += values[i];
    *result = static_cast<int>(total);
    return 0;
}

template <class T>
__device__ T larger(T a, T b) { return a > b ? a : b; }

extern "C" __device__ int larger_of(double* result, double a, double b)
{
    *result = larger(a, b);
    return 0;
}
"""


def source(text, suffix):
    """A file with that text, which goes with the process."""
    file = tempfile.NamedTemporaryFile("w", suffix=suffix, delete=False)
    file.write(text)
    file.close()
    return file.name


def functions_in_ptx():
    path = source(HAND_WRITTEN, ".ptx")
    add_mul = cuda.declare_device("add_mul", "int64(int64, int64)")

    @cuda.jit(link=[path])
    def use(values):
        i = cuda.grid(1)
        values[i] = add_mul(values[i], 7)

    values = np.arange(32)
    use[1, 32](values)
    os.unlink(path)
    np.testing.assert_array_equal(values, np.arange(32) * 7 + 7)


def functions_in_cpp():
    path = source(IN_CPP, ".cu")
    sum_of = cuda.declare_device("sum_of", "int32(CPointer(float32), int32)")
    larger_of = cuda.declare_device("larger_of", "float64(float64, float64)")
    ffi = cuda_ffi()

    @cuda.jit(link=[path])
    def use(values, sums, largest):
        i = cuda.grid(1)
        sums[i] = sum_of(ffi.from_buffer(values[i]), values.shape[1])
        largest[i] = larger_of(values[i, 0], values[i, 1])

    values = np.arange(60, dtype=np.float32).reshape(12, 5)
    values[::2] *= -1
    sums, largest = np.zeros(12, np.int32), np.zeros(12)
    use[1, 12](values, sums, largest)
    os.unlink(path)
    np.testing.assert_array_equal(sums, values.sum(1))
    np.testing.assert_array_equal(largest, np.maximum(values[:, 0], values[:, 1]))


def cuda_ffi():
    import cffi

    return cffi.FFI()


PROGRAMS = [functions_in_ptx, functions_in_cpp]
