"""Learn the tables of the GPU's special function unit from what `approximations.py` wrote down.

The unit interpolates: the upper bits of what it is given choose a segment, the lower bits x are put into
`constant + slope * x + curve * x²`, of which the square is computed roughly (`square`), and the sum is cut off. This finds
each segment's three numbers from every second input, and then compares with the results for all inputs, of which the other
half was not used: a table that is wrong for any of them is not written.

    python3 bench/gpu/fit_approximations.py approximations.npz crates/softgpu/src/exec/approx/tables.rs
"""

import sys
import zlib
from pathlib import Path

import numpy

WHOLE = 1 << 23  # floats from one power of two to the next
BITS = 17  # of x

EXACT = {
    "rcp": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / numpy.sqrt(x),
    "sqrt": numpy.sqrt,
    "lg2": numpy.log2,
    "ex2": numpy.exp2,
    "sin": numpy.sin,
    "cos": numpy.cos,
    "tanh": numpy.tanh,
}


def square(x):
    """Of 17 bits, in units of 2^19: every row of the multiplication is cut off before the rows are added."""
    rows = sum(numpy.where(x >> bit & 1, x >> (18 - bit), 0) for bit in range(BITS))
    return rows >> 1


def ordered(bits):
    """Floats as integers in the same order."""
    signed = bits.astype(numpy.int64)
    return numpy.where(signed >= 1 << 31, (1 << 31) - signed, signed)


def bits_are_subnormal(bits):
    return bits & 0x7F800000 == 0


def stretch(file, name, exponent, sign=0):
    """The floats from a power of two on, and the GPU's results."""
    key = next(key for key in file.keys() if key.startswith(f"{name}|{exponent}|{sign}|"))
    distance = numpy.frombuffer(zlib.decompress(file[key].tobytes()), key.split("|")[3]).astype(numpy.int64)
    bits = numpy.uint32((exponent + 127) << 23 | sign << 31) + numpy.arange(WHOLE, dtype=numpy.uint32)
    exact = EXACT[name](bits.view(numpy.float32).astype(numpy.float64)).astype(numpy.float32).view(numpy.uint32)
    exact = numpy.where(bits_are_subnormal(exact), exact & 1 << 31, exact)
    results = ordered(exact) + distance
    return bits, numpy.where(results < 0, (1 << 31) - results, results).astype(numpy.uint32)


def stretches(file, name):
    """All that there are of a function."""
    keys = [key.split("|") for key in file.keys()]
    for exponent, sign in sorted((int(key[1]), int(key[2])) for key in keys if key[0] == name and len(key) == 4):
        yield stretch(file, name, exponent, sign)


def cut(values):
    """To f32, towards zero."""
    nearest = values.astype(numpy.float32)
    beyond = numpy.abs(nearest.astype(numpy.float64)) > numpy.abs(values)
    return (nearest.view(numpy.uint32) - beyond.astype(numpy.uint32)).view(numpy.float32)


def numbers(bits):
    return bits.view(numpy.float32).astype(numpy.float64)


class Table:
    """How a function's segments are stored: results are in units of 2^-unit, constants in steps of 2^step from `rest` on (which
    is found), curves count 2^curve times."""

    def __init__(self, name, unit, step, curve, rest):
        self.name, self.unit, self.step, self.curve, self.rest = name, unit, step, curve, rest
        self.segments = []

    def fit(self, x, low, high):
        """One more segment, from the values between which the results for some x are."""
        rough = square(x) << self.curve
        middle = (low + high) / 2 * 2.0**self.unit
        least, most = numpy.ceil(low * 2.0**self.unit).astype(numpy.int64), numpy.ceil(high * 2.0**self.unit).astype(numpy.int64) - 1
        scale = numpy.array([1, 2.0**BITS, 2.0 ** (15 + self.curve)])
        matrix = numpy.stack([numpy.ones(len(x)), x, rough], 1) / scale
        start = numpy.linalg.lstsq(matrix, middle, rcond=None)[0] / scale
        around = sorted(range(-6, 7), key=abs)
        for slope in (round(start[1]) + more for more in around):
            for curve in (round(start[2]) + more for more in around):
                rest = slope * x + curve * rough
                lowest, highest = int((least - rest).max()), int((most - rest).min())
                constant = highest - self.rest >> self.step
                if lowest <= highest and (constant << self.step) + self.rest >= lowest:
                    self.segments.append((constant, slope, curve))
                    return
        sys.exit(f"{self.name}: segment {len(self.segments)} is no such curve")

    def at(self, segment, x):
        constant, slope, curve = (column[segment] for column in numpy.array(self.segments, dtype=numpy.int64).T)
        return (constant << self.step) + self.rest + slope * x + (curve * square(x) << self.curve)

    def rust(self, name, doc):
        rows = [f"[{c:#x}, {s}, {q}]" for c, s, q in self.segments]
        lines, line = [], "   "
        for row in rows:
            if len(line) + len(row) + 2 > 118:
                lines.append(line)
                line = "   "
            line += f" {row},"
        lines.append(line)
        head = f"step: {self.step}, rest: {self.rest:#x}, curve: {self.curve}, segments: ["
        return f"/// {doc}\n#[rustfmt::skip]\npub(super) static {name}: Table<{len(rows)}> = Table {{ {head}\n" + "\n".join(lines) + "\n] };\n"


def between(results, least=0.0):
    """The values that are cut off to these results, where they are counted in no smaller steps than these."""
    values = numpy.abs(numbers(results))
    return values, values + numpy.maximum(numpy.spacing(values.astype(numpy.float32)).astype(numpy.float64), least)


def split(fraction):
    """23 bits into segment and x."""
    return fraction >> BITS, fraction & (1 << BITS) - 1


def fit_powers(file, table, name, segment_bits, scale=1.0, least=0.0):
    """Fits the segments from given powers of two on to the next, which are divided into 2^bits each."""
    for exponent, bits in segment_bits.items():
        given, results = stretch(file, name, exponent)
        low_bits = 23 - bits
        step, widen = 1 << max(0, low_bits - BITS), max(0, BITS - low_bits)
        for part in range(1 << bits):
            at = slice(part << low_bits | step, (part + 1) << low_bits, 2 * step)
            x = (given[at].astype(numpy.int64) & (1 << low_bits) - 1) // step << widen
            low, high = between(results[at], least)
            table.fit(x, low * scale, high * scale)


# How many bits choose a segment of the hyperbolic tangent from each power of two on.
TANH_BITS = dict(zip(range(-8, 3), (0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3)))
# 1/2π as compilers have it, and the steps of a turn that sines are taken of.
TURNS, STEPS = numpy.float64(numpy.uint32(0x3E22F983).view(numpy.float32)), 2.0**25


def quadrants(name, bits):
    """For sine and cosine: the fraction of a quadrant that angles are, and whether the result is negative."""
    angle = numbers(bits)
    steps = (numpy.abs(cut(angle * TURNS).astype(numpy.float64)) % 1 * STEPS).astype(numpy.int64)
    quadrant = (steps >> 23) + (name == "cos")
    fraction = numpy.where(quadrant & 1, ~steps, steps) & WHOLE - 1
    return fraction, (quadrant >> 1 & 1 == 1) ^ ((angle < 0) & (name == "sin"))


def fit_sine(file, table):
    parts = []
    for name in ("sin", "cos"):
        for bits, results in stretches(file, name):
            fraction, _ = quadrants(name, bits)
            parts.append(numpy.stack([fraction[1::2], results[1::2].astype(numpy.int64)]))
    fraction, results = numpy.unique(numpy.concatenate(parts, 1), axis=1)
    results = (results & (1 << 31) - 1).astype(numpy.uint32)
    segment, x = split(fraction)
    for part in range(64):
        at = segment == part
        table.fit(x[at], *between(results[at], 2.0**-table.unit))


class Unit:
    """The unit as it was learned."""

    def __init__(self, file):
        self.rcp = Table("rcp", 40, 14, 1, 0x8FCE)
        fit_powers(file, self.rcp, "rcp", {0: 7})
        self.rsqrt = Table("rsqrt", 40, 14, 2, 0x7FFF)
        fit_powers(file, self.rsqrt, "rsqrt", {0: 6, 1: 6})
        self.sqrt = Table("sqrt", 40, 14, 1, 0xFFFF)
        fit_powers(file, self.sqrt, "sqrt", {0: 6, 1: 6})
        self.ex2 = Table("ex2", 38, 13, 0, 0x77E2)
        fit_powers(file, self.ex2, "ex2", {0: 6}, scale=0.5)
        self.lg2 = Table("lg2", 38, 12, 1, 0x3345)
        fit_powers(file, self.lg2, "lg2", {0: 6}, least=2.0**-36)
        self.tanh = Table("tanh", 40, 14, 2, 0)
        fit_powers(file, self.tanh, "tanh", TANH_BITS)
        self.sin = Table("sin", 37, 11, 0, 0)
        fit_sine(file, self.sin)

    def give(self, name, bits):
        """What it gives for floats that are neither subnormal nor special."""
        exponent, fraction = (bits >> 23 & 0xFF).astype(numpy.int64) - 127, bits.astype(numpy.int64) & WHOLE - 1
        odd = exponent & 1
        if name == "rcp":
            value = self.rcp.at(fraction >> 16, (fraction & 0xFFFF) << 1)
            return cut(numpy.ldexp(value >> 16, -24 - exponent))
        if name == "rsqrt":
            value = self.rsqrt.at(odd << 6 | fraction >> BITS, fraction & (1 << BITS) - 1)
            value = numpy.where((odd == 0) & (fraction == 0), 1 << 40, value)
            return cut(numpy.ldexp(value >> 16, -24 - (exponent - odd) // 2))
        if name == "sqrt":
            value = self.sqrt.at(odd << 6 | fraction >> BITS, fraction & (1 << BITS) - 1)
            return cut(numpy.ldexp(value >> 17, -23 + (exponent - odd) // 2))
        if name == "ex2":
            fixed = (numpy.abs(numbers(bits)) * WHOLE).astype(numpy.int64)
            below = numpy.where(fixed & WHOLE - 1, ~fixed, -fixed)
            fixed = numpy.where(bits >> 31, below, fixed)
            result = numpy.ldexp(self.ex2.at(*split(fixed & WHOLE - 1)) >> 15, (fixed >> 23) - 23)
            return cut(numpy.where(result < 2.0**-126, 0.0, result))
        if name == "lg2":
            value = numpy.where(bits == 0x3F800000, 0, self.lg2.at(*split(fraction)) >> 2) + (exponent << 36)
            return cut(numpy.where(value < 0, -1.0, 1.0) * numpy.where(value < 0, ~value, value) * 2.0**-36)
        if name == "tanh":
            first = dict(zip(TANH_BITS, numpy.cumsum([0] + [1 << it for it in TANH_BITS.values()]).tolist()))
            result = numpy.where(exponent < 0, numbers(bits), 1.0)
            for power, bits_of in TANH_BITS.items():
                at = exponent == power
                left = fraction[at] >> 23 - BITS - bits_of
                result[at] = self.tanh.at(first[power] + (left >> BITS), left & (1 << BITS) - 1) * 2.0**-40
            return cut(result)
        fraction, negative = quadrants(name, bits)
        return cut(self.sin.at(*split(fraction)) * 2.0**-37 * numpy.where(negative, -1, 1))


TABLES = {
    "rcp": ("RECIPROCAL", "1/x from 1 to 2."),
    "rsqrt": ("RECIPROCAL_ROOT", "1/√x from 1 to 4."),
    "sqrt": ("ROOT", "√x from 1 to 4."),
    "ex2": ("POWER", "2^x from 0 to 1."),
    "lg2": ("LOGARITHM", "The binary logarithm from 1 to 2."),
    "sin": ("SINE", "The sine of a quarter of a turn."),
    "tanh": ("TANGENT", "The hyperbolic tangent from 2^-8 to 8."),
}
HEADER = """//! What an H200's special function unit has in its tables: constant, slope and curve of each segment.
//!
//! Generated by `bench/gpu/fit_approximations.py` from the results of an H200.

use super::unit::Table;
"""


def main():
    file = numpy.load(sys.argv[1])
    unit = Unit(file)
    wrong = 0
    print(f"{'function':<10}{'inputs':>12}{'different':>12}")
    for name in EXACT:
        count = different = 0
        for bits, results in stretches(file, name):
            given = unit.give(name, bits).view(numpy.uint32)
            # Distances do not tell the zeros apart.
            count, different = count + len(bits), different + int((ordered(given) != ordered(results)).sum())
        print(f"{name:<10}{count:>12}{different:>12}")
        wrong += different
    if wrong:
        return 1
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(HEADER + "".join("\n" + getattr(unit, name).rust(*it) for name, it in TABLES.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
