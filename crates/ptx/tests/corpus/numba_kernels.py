"""Kernels for Numba. `python numba_kernels.py` writes their PTX beside this file; no GPU is needed."""

from pathlib import Path

from numba import cuda, float32

TILE = 16


def vector_add(a, b, out):
    index = cuda.grid(1)
    if index < out.size:
        out[index] = a[index] + b[index]


def matmul(a, b, out):
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for start in range(0, a.shape[1], TILE):
        a_tile[x, y] = a[row, start + y]
        b_tile[x, y] = b[start + x, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += a_tile[x, k] * b_tile[k, y]
        cuda.syncthreads()
    out[row, column] = total


def reduction(values, out):
    partial = cuda.shared.array(256, float32)
    thread = cuda.threadIdx.x
    partial[thread] = values[cuda.grid(1)]
    cuda.syncthreads()
    stride = 128
    while stride > 0:
        if thread < stride:
            partial[thread] += partial[thread + stride]
        cuda.syncthreads()
        stride //= 2
    if thread == 0:
        cuda.atomic.add(out, 0, partial[0])


SIGNATURES = {
    vector_add: (float32[:], float32[:], float32[:]),
    matmul: (float32[:, :], float32[:, :], float32[:, :]),
    reduction: (float32[:], float32[:]),
}

if __name__ == "__main__":
    for kernel, signature in SIGNATURES.items():
        text, _ = cuda.compile_ptx(kernel, signature, cc=(7, 0))
        Path(__file__).with_name(f"numba_{kernel.__name__}.sm_70.ptx").write_text(text)
    text, _ = cuda.compile_ptx(vector_add, SIGNATURES[vector_add], cc=(7, 0), debug=True, opt=False)
    Path(__file__).with_name("numba_vector_add.debug.ptx").write_text(text)
