"""Write down what the GPU's approximations give, so that the software GPU can give the same.

For each function and each stretch of inputs, which are consecutive floats, the results are kept as their distance from the
correctly rounded ones in units of the last place. Where a function should repeat itself from one power of two to the next,
that is looked at with random inputs. Leaves `approximations.npz`, and prints a row for each stretch.

Distances are packed by zlib: `numpy.frombuffer(zlib.decompress(file["rcp|0|0|int8"]), "int8")` are those of the floats from 2^0
on. Results of special numbers are kept as they are, beside the numbers.
"""

import argparse
import sys
import zlib
from pathlib import Path

import cupy
import numpy

WHOLE = 1 << 23  # floats from one power of two to the next
SAMPLES = 1 << 20

# The instruction, and how to compute the same in double precision.
SINGLE = {
    "rcp": ("rcp.approx.ftz.f32", lambda x: 1 / x),
    "rsqrt": ("rsqrt.approx.ftz.f32", lambda x: 1 / cupy.sqrt(x)),
    "sqrt": ("sqrt.approx.ftz.f32", cupy.sqrt),
    "lg2": ("lg2.approx.ftz.f32", cupy.log2),
    "ex2": ("ex2.approx.ftz.f32", cupy.exp2),
    "sin": ("sin.approx.ftz.f32", cupy.sin),
    "cos": ("cos.approx.ftz.f32", cupy.cos),
    "tanh": ("tanh.approx.f32", cupy.tanh),
}
# The powers of two from which on all floats up to the next one are tried.
STRETCHES = {
    "rcp": [0],
    "rsqrt": [0, 1],
    "sqrt": [0, 1],
    "lg2": [-2, -1, 0, 1, 5],
    "ex2": [-26, -8, -2, -1, 0, 3, 6],
    "sin": [-4, -1, 0, 1, 2],
    "cos": [-4, -1, 0, 1, 2],
    "tanh": list(range(-13, 4)),
}
# Zeros, subnormal numbers, the ends of all ranges, infinities and NaNs, of both signs; of the last three angles a
# sine or cosine is a zero, and a distance does not tell its sign.
SPECIAL = [0x0, 0x1, 0x7FFFFF, 0x800000, 0xC00000, 0xFFFFFF, 0x1000000, 0x3F800000, 0x3F7FFFFF, 0x3F800001, 0x42FC0000, 0x42FDFFFF,
           0x43000000, 0x43160000, 0x7E7FFFFF, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000,
           0x3FC90FDC, 0x40490FDC, 0x40FB53D2]
# Results of 16 bits: all inputs there are.
HALF = ["ex2.approx.f16", "tanh.approx.f16", "ex2.approx.ftz.bf16", "tanh.approx.bf16"]
# Of these only the upper half of the input counts, and only the upper half of the result is there.
DOUBLE = ["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"]

SOURCE = r"""
extern "C" __global__ void apply32(const unsigned* from, unsigned* to, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) asm volatile("{.reg .f32 a, b; mov.b32 a, %1; INSTRUCTION b, a; mov.b32 %0, b;}" : "=r"(to[i]) : "r"(from[i]));
}
"""
SOURCE_16 = r"""
extern "C" __global__ void apply16(const unsigned short* from, unsigned short* to, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned short result;
    if (i < count) { asm volatile("INSTRUCTION %0, %1;" : "=h"(result) : "h"(from[i])); to[i] = result; }
}
"""
SOURCE_64 = r"""
extern "C" __global__ void apply64(const unsigned long long* from, unsigned long long* to, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) asm volatile("{.reg .f64 a, b; mov.b64 a, %1; INSTRUCTION b, a; mov.b64 %0, b;}" : "=l"(to[i]) : "l"(from[i]));
}
"""


def kernel(source, name, instruction):
    options = ("--gpu-architecture=compute_90",)
    return cupy.RawKernel(source.replace("INSTRUCTION", instruction), name, options=options)


def apply(function, bits):
    results = cupy.empty_like(bits)
    threads = 256
    function(((len(bits) + threads - 1) // threads,), (threads,), (bits, results, numpy.int32(len(bits))))
    return results


def ordered(bits):
    """Floats as integers in the same order, so that a difference counts the floats in between."""
    signed = bits.astype(cupy.int64)
    return cupy.where(signed >= 1 << 31, (1 << 31) - signed, signed)


def distance(results, bits, exact):
    wanted = exact(bits.view(cupy.float32).astype(cupy.float64)).astype(cupy.float32).view(cupy.uint32)
    return ordered(results) - ordered(wanted)


def power_of_two(exponent):
    return cupy.uint32((exponent + 127) << 23)


def packed(array):
    """As bytes; as few as an array of so small a range needs."""
    low, high = int(array.min()), int(array.max())
    kind = next(kind for kind in ("int8", "int16", "int32", "int64") if numpy.iinfo(kind).min <= low and high <= numpy.iinfo(kind).max)
    return numpy.frombuffer(zlib.compress(cupy.asnumpy(array.astype(kind)).tobytes(), 9), numpy.uint8), kind, low, high


def repeats(function, name):
    """How many of some random inputs, of any size, give another mantissa than the same one with the least exponent."""
    mantissa = cupy.random.randint(0, WHOLE, SAMPLES, dtype=cupy.uint32)
    exponent = cupy.random.randint(-60, 60, SAMPLES, dtype=cupy.int32)
    parity = 0 if name == "rcp" else exponent & 1
    far = ((exponent + 127).astype(cupy.uint32) << 23) | mantissa
    near = ((parity + 127).astype(cupy.uint32) if name != "rcp" else power_of_two(0) >> 23) << 23 | mantissa
    same = WHOLE - 1
    return int(((apply(function, far) & same) != (apply(function, near) & same)).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("."), metavar="DIR")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if cupy.cuda.runtime.getDeviceCount() == 0:
        print("skipped: no GPU")
        return 77
    kept = {}
    print(f"{'instruction':<24}{'from':>8}{'lowest':>8}{'highest':>8}{'KiB':>8}")
    for name, (instruction, exact) in SINGLE.items():
        function = kernel(SOURCE, "apply32", instruction)
        for exponent in STRETCHES[name]:
            for sign in (0, 1) if name == "ex2" else (0,):
                bits = power_of_two(exponent) + cupy.arange(WHOLE, dtype=cupy.uint32) + cupy.uint32(sign << 31)
                data, kind, low, high = packed(distance(apply(function, bits), bits, exact))
                kept[f"{name}|{exponent}|{sign}|{kind}"] = data
                print(f"{instruction:<24}{('-' if sign else '') + '2^' + str(exponent):>8}{low:>8}{high:>8}{len(data) >> 10:>8}")
        special = cupy.array(SPECIAL + [bits | 1 << 31 for bits in SPECIAL], dtype=cupy.uint32)
        kept[f"{name}|special"] = cupy.asnumpy(cupy.stack([special, apply(function, special)]))
        if name in ("rcp", "rsqrt", "sqrt"):
            print(f"{instruction}: {repeats(function, name)} of {SAMPLES} differ from the same mantissa elsewhere")
    everything = cupy.arange(1 << 16, dtype=cupy.uint16)
    for instruction in HALF:
        kept[instruction] = cupy.asnumpy(apply(kernel(SOURCE_16, "apply16", instruction), everything))
    upper = (cupy.arange(1 << 21, dtype=cupy.uint64) + (1023 << 20)) << 32
    for instruction in DOUBLE:
        results = apply(kernel(SOURCE_64, "apply64", instruction), upper)
        kept[instruction] = cupy.asnumpy((results >> 32).astype(cupy.uint32))
        print(f"{instruction}: {int((results & 0xffffffff != 0).sum())} results with a lower half")
    file = options.out / "approximations.npz"
    numpy.savez_compressed(file, **kept)
    print(f"{file}: {file.stat().st_size >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
