"""How much faster the software GPU runs a kernel than Numba's own CUDA simulator.

A matrix multiply through shared memory, tile by tile, as Numba's documentation has it. Each side runs in a process of
its own, on the same input; the checksums of the results must agree to the bit.

    python3 bench/numba_simulator.py --driver target/release/libdetshare_softgpu.so --out FILE

Needs Numba 0.60 with a CUDA toolkit that it finds (`cargo xtask test` installs one below target/pypi; see
docs/software-gpu.md).
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time

import numpy
from numba import cuda, float32

TILE = 16
# How many times as fast as the simulator the software GPU is to be.
ASKED = 1000


def multiply(a, b, c):
    """The kernel. The simulator wants `cuda` to be a name of its module."""
    row_tile = cuda.shared.array((TILE, TILE), float32)
    column_tile = cuda.shared.array((TILE, TILE), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for step in range(cuda.gridDim.x):
        row_tile[ty, tx] = a[y, tx + step * TILE]
        column_tile[ty, tx] = b[ty + step * TILE, x]
        cuda.syncthreads()
        for k in range(TILE):
            total += row_tile[ty, k] * column_tile[k, tx]
        cuda.syncthreads()
    c[y, x] = total


def matrices(size):
    """Small whole numbers: every sum is exact, whether or not a product and a sum are rounded as one."""
    random = numpy.random.default_rng(1)
    return [random.integers(-8, 8, (size, size)).astype(numpy.float32) for _ in range(2)]


def measure(size, rounds):
    """Prints seconds of one multiplication and the result's digest."""
    kernel = cuda.jit(multiply)
    a, b = matrices(size)
    device_a, device_b = cuda.to_device(a), cuda.to_device(b)
    device_c = cuda.device_array((size, size), numpy.float32)
    grid, block = (size // TILE, size // TILE), (TILE, TILE)
    if rounds > 1:
        kernel[grid, block](device_a, device_b, device_c)
        cuda.synchronize()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        kernel[grid, block](device_a, device_b, device_c)
        cuda.synchronize()
        times.append(time.perf_counter() - start)
    result = device_c.copy_to_host()
    if not numpy.array_equal(result, a @ b):
        sys.exit("the product is wrong")
    digest = hashlib.sha256(result.tobytes()).hexdigest()[:16]
    print(json.dumps({"seconds": sorted(times)[len(times) // 2], "checksum": digest}))


def side(size, rounds, environment):
    """What the kernel takes in a process with that environment."""
    command = [sys.executable, "-W", "ignore", __file__, "--measure", str(size), "--rounds", str(rounds)]
    ended = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--driver", help="the software GPU's library")
    parser.add_argument("--size", type=int, default=64, help=f"rows and columns, a multiple of {TILE}")
    parser.add_argument("--rounds", type=int, default=9, help="multiplications on the software GPU; the median counts")
    parser.add_argument("--out", help="where to write the figures as JSON")
    parser.add_argument("--check", action="store_true", help=f"fail if it is less than {ASKED} times as fast")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        return measure(options.measure, options.rounds)
    if not options.driver or options.size % TILE:
        parser.error(f"--driver is needed, and a --size that is a multiple of {TILE}")
    driver = os.path.abspath(options.driver)
    soft = side(options.size, options.rounds, {"NUMBA_CUDA_DRIVER": driver, "NUMBA_ENABLE_CUDASIM": "0"})
    simulator = side(options.size, 1, {"NUMBA_ENABLE_CUDASIM": "1"})
    if soft["checksum"] != simulator["checksum"]:
        sys.exit(f"the results differ: {soft['checksum']} and {simulator['checksum']}")
    factor = simulator["seconds"] / soft["seconds"]
    summary = (
        f"{options.size} x {options.size}, tiles of {TILE}: {soft['seconds'] * 1e3:.2f} ms on the software GPU, "
        f"{simulator['seconds']:.2f} s in Numba's simulator: {factor:.0f} times as fast, checksum {soft['checksum']}"
    )
    print(summary)
    if options.out:
        figures = {"summary": summary, "size": options.size, "software_gpu": soft, "simulator": simulator, "factor": factor}
        with open(options.out, "w") as out:
            json.dump(figures, out, indent=2)
    if options.check and factor < ASKED:
        sys.exit(f"{factor:.0f} times as fast as the simulator, and {ASKED} times is asked for")


if __name__ == "__main__":
    main()
