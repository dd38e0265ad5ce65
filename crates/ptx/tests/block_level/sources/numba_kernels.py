"""Kernels as Numba compiles them."""

import math

from numba import cuda, float32, float64, int32, uint32, void

N = 64


def vector_add(out, a, b):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a[i] + b[i]


def grid_2d(out):
    x, y = cuda.grid(2)
    if x < out.shape[0] and y < out.shape[1]:
        out[x, y] = x * 1000 + y + cuda.gridDim.x


def grid_3d(out):
    x, y, z = cuda.grid(3)
    if x < out.shape[0] and y < out.shape[1] and z < out.shape[2]:
        out[x, y, z] = x * 10000 + y * 100 + z


def stride_loop(data):
    for i in range(cuda.grid(1), data.size, cuda.gridsize(1)):
        data[i] = data[i] * 3 + i


def reduction(out, data):
    part = cuda.shared.array(N, uint32)
    t = cuda.threadIdx.x
    part[t] = data[cuda.grid(1)]
    cuda.syncthreads()
    s = N // 2
    while s > 0:
        if t < s:
            part[t] += part[t + s]
        cuda.syncthreads()
        s //= 2
    if t == 0:
        out[cuda.blockIdx.x] = part[0]


def early_return(out, data):
    total = cuda.shared.array(1, uint32)
    i = cuda.grid(1)
    if cuda.threadIdx.x == 0:
        total[0] = 0
    cuda.syncthreads()
    if i >= data.size - 20:
        return
    cuda.atomic.add(total, 0, data[i])
    cuda.syncthreads()
    out[i] = total[0]


def matmul(c, a, b):
    ta = cuda.shared.array((8, 8), float32)
    tb = cuda.shared.array((8, 8), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for k in range(a.shape[1] // 8):
        ta[tx, ty] = a[x, ty + k * 8]
        tb[tx, ty] = b[tx + k * 8, y]
        cuda.syncthreads()
        for j in range(8):
            total += ta[tx, j] * tb[j, ty]
        cuda.syncthreads()
    c[x, y] = total


def histogram(bins, data):
    i = cuda.grid(1)
    if i < data.size:
        cuda.atomic.add(bins, data[i] % bins.size, 1)


def mathematics(out, data):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = math.sin(data[i]) + math.exp(data[i]) * math.sqrt(abs(data[i]))


def local_memory(out, data):
    a = cuda.local.array(16, uint32)
    i = cuda.grid(1)
    for k in range(16):
        a[k] = data[i] >> k
    total = uint32(0)
    for k in range(16):
        total = total * 31 + a[(k + data[i]) % 16]
    out[i] = total


def warp_sum(out, data):
    i = cuda.grid(1)
    v = data[i]
    for s in (16, 8, 4, 2, 1):
        v += cuda.shfl_down_sync(0xFFFFFFFF, v, s)
    if cuda.laneid == 0:
        out[i // 32] = v


@cuda.jit(device=True, inline="never")
def where():
    return cuda.blockIdx.x + cuda.gridDim.x * cuda.blockIdx.y


def device_function(out):
    out[where() * cuda.blockDim.x + cuda.threadIdx.x] = where() * 7 + cuda.threadIdx.x


def dynamic_shared(out, data):
    part = cuda.shared.array(0, uint32)
    i = cuda.grid(1)
    part[cuda.threadIdx.x] = data[i]
    cuda.syncthreads()
    out[i] = part[cuda.blockDim.x - 1 - cuda.threadIdx.x]


# An array is seven arguments: two pointers that stay 0, elements, bytes of one, data, shape, strides.
def array(kind, count, size=4):
    return f"u64 =0, u64 =0, u64 ={count}, u64 ={size}, {kind} {count * size}, u64 ={count}, u64 ={size}"


def array_2d(kind, x, y, size=4):
    shape = f"u64 ={x}, u64 ={y}, u64 ={y * size}, u64 ={size}"
    return f"u64 =0, u64 =0, u64 ={x * y}, u64 ={size}, {kind} {x * y * size}, {shape}"


def array_3d(kind, x, y, z, size=4):
    shape = f"u64 ={x}, u64 ={y}, u64 ={z}, u64 ={y * z * size}, u64 ={z * size}, u64 ={size}"
    return f"u64 =0, u64 =0, u64 ={x * y * z}, u64 ={size}, {kind} {x * y * z * size}, {shape}"


U1, F1, D1 = uint32[::1], float32[::1], float64[::1]
# Kernel, signature, shape, arguments.
KERNELS = [
    (vector_add, void(F1, F1, F1), "5, 64", [array("zero", 300), array("f32", 300), array("f32", 300)]),
    (grid_2d, void(uint32[:, ::1]), "3x4, 8x4", [array_2d("zero", 23, 15)]),
    (grid_3d, void(uint32[:, :, ::1]), "2x3x2, 4x4x2", [array_3d("zero", 7, 11, 4)]),
    (stride_loop, void(U1), "5, 32", [array("bits", 1000)]),
    (reduction, void(U1, U1), "6, 64", [array("zero", 6), array("bits", 384)]),
    (early_return, void(U1, U1), "6, 64", [array("zero", 384), array("bits", 384)]),
    (matmul, void(float32[:, ::1], float32[:, ::1], float32[:, ::1]), "2x2, 8x8",
     [array_2d("zero", 16, 16), array_2d("f32", 16, 16), array_2d("f32", 16, 16)]),
    (histogram, void(U1, U1), "5, 64", [array("zero", 16), array("bits", 300)]),
    (mathematics, void(D1, D1), "5, 64", [array("zero", 300, 8), array("f64", 300, 8)]),
    (local_memory, void(U1, U1), "5, 64", [array("zero", 320), array("bits", 320)]),
    (warp_sum, void(U1, U1), "5, 64", [array("zero", 10), array("bits", 320)]),
    (device_function, void(U1), "3x4, 32", [array("zero", 384)]),
    (dynamic_shared, void(U1, U1), "5, 64, 256", [array("zero", 320), array("bits", 320)]),
]


def compile_kernel(function, signature, capability, **options):
    """The text and the kernel's name in it."""
    ptx, _ = cuda.compile_ptx(function, signature.args, cc=capability, abi="numba", **options)
    return ptx
