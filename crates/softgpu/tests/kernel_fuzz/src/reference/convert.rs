//! Conversions.

use super::exact::{BF16, E4M3, E5M2, Exact, F16, F32, F64, Format, Rounding};
use super::{Instruction, Thread, Type};

pub(super) fn step(thread: &mut Thread, i: &Instruction<'_>) -> Option<()> {
    if let Some(small) = i.modifiers.iter().find_map(|name| small_format(name)) {
        return eight_bits(thread, i, small);
    }
    if let ("cvt", [d, a, b]) = (i.opcode, &i.operands[..]) {
        let to = Type::parse(i.modifiers.iter().find_map(|name| name.strip_suffix("x2"))?)?;
        let (Type::Float(to), "f32", false) = (to, *i.modifiers.last()?, i.has("satfinite")) else { return None };
        let (high, low) = (thread.read(a)?, thread.read(b)?);
        let pair = floats(i, F32, to, high)? << 16 | floats(i, F32, to, low)?;
        thread.write(d, pair);
        return Some(());
    }
    let ("cvt", [d, a], [to, from]) = (i.opcode, &i.operands[..], &i.types()[..]) else { return None };
    let (to, from) = (*to, *from);
    let a = thread.read(a)? & (u64::MAX >> (64 - from.width()));
    let result = match (from, to) {
        (Type::Float(from), Type::Float(to)) => floats(i, from, to, a)?,
        (Type::Float(from), to) => to_integer(i, from, to, a),
        (from, Type::Float(to)) => from_integer(i, from, to, a),
        (from, to) => integers(i, from, to, a),
    };
    // A register that is wider than the type has the number in its own width.
    let width = match d.chars().nth(2)? {
        'h' => 16,
        'd' => 64,
        _ => 32,
    };
    thread.write(d, result & (u64::MAX >> (64 - width)));
    Some(())
}

fn small_format(name: &str) -> Option<Format> {
    match name {
        "e4m3x2" => Some(E4M3),
        "e5m2x2" => Some(E5M2),
        _ => None,
    }
}

/// Pairs of 8-bit numbers from and to others; what is too large is the largest.
fn eight_bits(thread: &mut Thread, i: &Instruction<'_>, small: Format) -> Option<()> {
    let to_small = small_format(i.modifiers[i.modifiers.len() - 2]).is_some();
    let relu = |format: Format, bits: u64| {
        let negative = format.is_negative(bits) && format.magnitude(bits) <= format.end();
        if i.has("relu") && negative && bits != format.nan { 0 } else { bits }
    };
    let shrink = |format: Format, bits: u64| {
        if format.is_nan(bits) {
            return small.nan;
        }
        let sign = if format.is_negative(bits) { small.sign_bit() } else { 0 };
        let rounded = match format.is_infinite(bits) {
            true => small.end() - 1,
            false => small.magnitude(Exact::of(format, bits).round(small, Rounding::Nearest)).min(small.end() - 1),
        };
        relu(small, sign | rounded)
    };
    let grow = |bits: u64| {
        let magnitude = small.magnitude(bits);
        let sign = if small.is_negative(bits) { F16.sign_bit() } else { 0 };
        match magnitude {
            it if it > small.end() || it == small.nan => F16.nan,
            it if it == small.end() => relu(F16, sign | F16.infinity()),
            0 => relu(F16, sign),
            _ => relu(F16, Exact::of(small, bits).round(F16, Rounding::Nearest)),
        }
    };
    let result = match (&i.operands[..], to_small) {
        ([_, a, b], true) => shrink(F32, thread.read(a)?) << 8 | shrink(F32, thread.read(b)?),
        ([_, a], true) => {
            let both = thread.read(a)?;
            shrink(F16, both >> 16 & 0xffff) << 8 | shrink(F16, both & 0xffff)
        }
        ([_, a], false) => {
            let both = thread.read(a)?;
            grow(both >> 8 & 0xff) << 16 | grow(both & 0xff)
        }
        _ => return None,
    };
    thread.write(i.operands[0], result);
    Some(())
}

fn integer(ty: Type, bits: u64) -> i128 {
    let width = ty.width();
    let value = i128::from(bits & (u64::MAX >> (64 - width)));
    if matches!(ty, Type::Signed(_)) && value >> (width - 1) == 1 { value - (1 << width) } else { value }
}

fn range(ty: Type) -> (i128, i128) {
    let width = ty.width();
    if let Type::Signed(_) = ty { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
}

/// A number as it stands in a register of any width.
fn in_register(value: i128) -> u64 {
    u64::try_from(value & i128::from(u64::MAX)).unwrap_or_default()
}

fn integers(i: &Instruction<'_>, from: Type, to: Type, bits: u64) -> u64 {
    let value = integer(from, bits);
    let (least, most) = range(to);
    let value = if i.has("sat") { value.clamp(least, most) } else { integer(to, in_register(value)) };
    in_register(value)
}

fn from_integer(i: &Instruction<'_>, from: Type, to: Format, bits: u64) -> u64 {
    let value = integer(from, bits);
    let rounded = Exact::new(value < 0, value.unsigned_abs(), 0).round(to, i.rounding());
    saturated(i, to, if value == 0 { 0 } else { rounded })
}

fn saturated(i: &Instruction<'_>, format: Format, bits: u64) -> u64 {
    let one = ((1u64 << (format.exponent_bits - 1)) - 1) << format.fraction_bits;
    if !i.has("sat") {
        bits
    } else if format.is_nan(bits) || format.is_negative(bits) {
        0
    } else {
        bits.min(one)
    }
}

/// A magnitude as a whole number, rounded; numbers without fractions may be very large.
fn whole(format: Format, bits: u64, rounding: Rounding) -> i128 {
    /// Beyond any integer type.
    const FAR: i32 = 70;
    let negative = format.is_negative(bits);
    let (mut digits, doubled) = format.parts(format.magnitude(bits));
    let mut rest = (0u128, 1u128);
    for _ in 0..(-doubled).clamp(0, 127) {
        // What is halved away is remembered as a part of one.
        rest = (rest.0 + (digits & 1) * rest.1, rest.1);
        digits >>= 1;
        rest.1 = rest.1.saturating_mul(2);
    }
    let above_zero = rest.0 > 0 || (doubled < -127 && format.magnitude(bits) > 0);
    let half = rest.1 / 2;
    let up = match rounding {
        Rounding::Nearest => (-127..0).contains(&doubled) && (rest.0 > half || rest.0 == half && digits & 1 == 1),
        Rounding::Zero => false,
        Rounding::Down => negative && above_zero,
        Rounding::Up => !negative && above_zero,
    };
    let magnitude = if doubled > 0 { digits << doubled.min(FAR) } else { digits + u128::from(up) };
    let magnitude = i128::try_from(magnitude).unwrap_or(i128::MAX);
    if negative { -magnitude } else { magnitude }
}

fn to_integer(i: &Instruction<'_>, from: Format, to: Type, bits: u64) -> u64 {
    let bits = if i.has("ftz") { from.flush(bits) } else { bits };
    let (least, most) = range(to);
    if from.is_nan(bits) {
        // The definition says 0; with 64 bits on either side an H200 gives the sign bit alone.
        let wide = from == F64 || to.width() == 64;
        return if wide { integers(i, to, to, 1 << (to.width() - 1)) } else { 0 };
    }
    let value = if from.is_infinite(bits) {
        if from.is_negative(bits) { least } else { most }
    } else {
        whole(from, bits, i.rounding())
    };
    in_register(value.clamp(least, most))
}

fn floats(i: &Instruction<'_>, from: Format, to: Format, bits: u64) -> Option<u64> {
    if from == F64 && from.is_nan(bits) || to == F64 && from.is_nan(bits) {
        return None;
    }
    let integral = i.modifiers.iter().any(|it| matches!(*it, "rni" | "rzi" | "rmi" | "rpi"));
    let flush = i.has("ftz");
    // What becomes an `f16` is not flushed on GPUs.
    let bits = if flush && from == F32 && to != F16 { from.flush(bits) } else { bits };
    let sign = if from.is_negative(bits) { to.sign_bit() } else { 0 };
    let result = if from.is_nan(bits) && (from, to) == (BF16, F32) {
        // Nothing but a shift.
        bits << 16
    } else if from.is_nan(bits) {
        if from == to && !integral && (from == F32 || from == F16) {
            return None;
        }
        to.nan
    } else if from.is_infinite(bits) {
        sign | to.infinity()
    } else if integral {
        let doubled = from.parts(from.magnitude(bits)).1;
        if doubled >= 0 {
            bits
        } else {
            let value = whole(from, bits, i.rounding());
            sign | to.magnitude(Exact::new(value < 0, value.unsigned_abs(), 0).round(to, Rounding::Zero))
        }
    } else if from.magnitude(bits) == 0 {
        sign
    } else {
        let exact = Exact::of(from, bits);
        let rounded = exact.round(to, i.rounding());
        if flush && to == F32 { to.flush(rounded) } else { rounded }
    };
    let result = if i.has("relu") && !to.is_nan(result) && to.is_negative(result) { 0 } else { result };
    Some(saturated(i, to, result))
}
