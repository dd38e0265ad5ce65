//! `f16` and `bf16`, one in a register or two side by side. What rounds to nearest and nothing more goes by way of the
//! CPU's numbers; the rest is done by hand ([`soft`](super::soft)).
//!
//! A sum or product of halves that is computed in `f32` or `f64` and rounded once more is rounded as if at once: the
//! wider format has more than twice the bits. Where it has not, the first rounding is to an odd number, which keeps
//! a trace of what was cut off. That way is free of branches, so that loops over lanes become vectors.
#![allow(clippy::cast_possible_truncation, reason = "roundings are what the casts are for")]

use super::float::{fma_bits, one_bits, two_bits};
use super::lanes::{Registers, map1, map2, map3};
use super::op::{Float1, Float2, FloatMode, FloatType, Slot};

const NAN: u32 = 0x7fff;
const SIGN: u32 = 0x8000;
const LOW: u32 = 0xffff;

/// A half as a number, exactly.
#[inline(always)]
pub(super) fn widen(ty: FloatType, bits: u32) -> f32 {
    match ty {
        FloatType::Bf16 => f32::from_bits(bits << 16),
        _ => widen_f16(bits),
    }
}

#[inline(always)]
fn widen_f16(bits: u32) -> f32 {
    /// 2^112: from the bias of `f16` to that of `f32`, subnormal numbers included.
    const REBIAS: f32 = f32::from_bits(0x7780_0000);
    let magnitude = (bits & 0x7fff) << 13;
    let finite = (f32::from_bits(magnitude) * REBIAS).to_bits();
    let special = magnitude | 0x7f80_0000;
    let is_special = magnitude >= 0x7c00 << 13;
    f32::from_bits((if is_special { special } else { finite }) | (bits & SIGN) << 16)
}

/// The nearest half, ties to even; there is one NaN.
#[inline(always)]
pub(super) fn narrow(ty: FloatType, value: f32) -> u32 {
    match ty {
        FloatType::Bf16 => narrow_bf16(value),
        _ => narrow_f16(value),
    }
}

#[inline(always)]
fn narrow_f16(value: f32) -> u32 {
    /// The smallest number that is no longer finite: half a step beyond the largest.
    const INFINITE: u32 = 65520f32.to_bits();
    const SMALLEST_NORMAL: u32 = 0x3880_0000;
    let bits = value.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let normal = (magnitude + 0xfff + (magnitude >> 13 & 1)).wrapping_sub(112 << 23) >> 13;
    // The steps of subnormal numbers are those of `f32` next to a half.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < SMALLEST_NORMAL { subnormal } else { normal };
    let number = if magnitude >= INFINITE { 0x7c00 } else { finite } | bits >> 16 & SIGN;
    if magnitude > 0x7f80_0000 { NAN } else { number }
}

#[inline(always)]
fn narrow_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    // An infinity has no bits below, and the largest numbers become one.
    let number = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if value.is_nan() { NAN } else { number }
}

/// The nearest `f32` with an odd last bit, or the value itself: a later rounding to fewer bits is right then.
#[inline(always)]
fn odd(value: f64) -> f32 {
    let nearest = value as f32;
    let back = f64::from(nearest);
    let towards_zero = nearest.to_bits().wrapping_sub(u32::from(back.abs() > value.abs()));
    if back == value || value.is_nan() { nearest } else { f32::from_bits(towards_zero | 1) }
}

/// Makes the sum of two numbers with an odd last bit where it is not exact.
macro_rules! odd_sum {
    ($(#[$doc:meta])* $name:ident, $float:ty) => {
        $(#[$doc])*
        #[inline(always)]
        fn $name(a: $float, b: $float) -> $float {
            let sum = a + b;
            let from_b = sum - a;
            let error = (a - (sum - from_b)) + (b - from_b);
            let inexact = error.abs() > 0.0;
            let is_even = sum.to_bits() & 1 == 0;
            let outwards = (error > 0.0) == (sum > 0.0);
            let neighbour = if outwards { sum.to_bits().wrapping_add(1) } else { sum.to_bits().wrapping_sub(1) };
            if inexact && is_even { <$float>::from_bits(neighbour) } else { sum }
        }
    };
}

odd_sum!(
    /// For products of `f16`, which `f32` holds exactly.
    odd_sum32,
    f32
);
odd_sum!(
    /// For products of `bf16`, which `f32` has no exponents for.
    odd_sum64,
    f64
);

#[inline(always)]
pub(super) fn two(op: Float2, ty: FloatType, a: u32, b: u32) -> u32 {
    let (x, y) = (widen(ty, a & LOW), widen(ty, b & LOW));
    match op {
        Float2::Add => narrow(ty, x + y),
        Float2::Sub => narrow(ty, x - y),
        // Products of `bf16` can be smaller than what `f32` has.
        Float2::Mul if ty == FloatType::Bf16 => narrow(ty, odd(f64::from(x) * f64::from(y))),
        Float2::Mul => narrow(ty, x * y),
        Float2::Min => smaller(a & LOW, b & LOW, x, y),
        _ => {
            let smaller = smaller(a & LOW ^ SIGN, b & LOW ^ SIGN, -x, -y);
            if smaller == NAN { NAN } else { smaller ^ SIGN }
        }
    }
}

/// The smaller number; a NaN gives way to a number.
#[inline(always)]
fn smaller(a: u32, b: u32, x: f32, y: f32) -> u32 {
    // Of two zeros the negative one.
    let equal = a | b;
    let number = if x < y {
        a
    } else if y < x {
        b
    } else {
        equal
    };
    match (x.is_nan(), y.is_nan()) {
        (false, false) => number,
        (true, false) => b,
        (false, true) => a,
        (true, true) => NAN,
    }
}

#[inline(always)]
pub(super) fn fma(ty: FloatType, a: u32, b: u32, c: u32) -> u32 {
    let [x, y, z] = [a, b, c].map(|bits| widen(ty, bits & LOW));
    match ty {
        FloatType::Bf16 => narrow(ty, odd(odd_sum64(f64::from(x) * f64::from(y), z.into()))),
        _ => narrow(ty, odd_sum32(x * y, z)),
    }
}

/// Two halves side by side from a function of where they are.
#[inline(always)]
pub(super) fn pair(half: impl Fn(u32) -> u32) -> u32 {
    half(0) & LOW | half(16) << 16
}

/// What a tensor copy writes for elements outside of the tensor, as `f16` and `bf16` alike; of either sign where it is
/// read. No arithmetic gives this NaN.
pub(super) const OUTSIDE: u16 = 0x7ff7;

fn is_outside(bits: u32) -> bool {
    bits & !SIGN == OUTSIDE.into()
}

fn run_three(r: &mut Registers, packed: bool, d: Slot, abc: [Slot; 3], mask: u32, half: impl Fn(u32, u32, u32) -> u32) {
    if packed {
        map3(r, d, abc, mask, |a: u32, b: u32, c: u32| pair(|shift| half(a >> shift, b >> shift, c >> shift)));
    } else {
        map3(r, d, abc, mask, half);
    }
}

/// `fma` of halves with the product's sign changed, or the addend's.
#[allow(clippy::too_many_arguments, reason = "what every operation has, and how many halves there are")]
pub(super) fn run_joined(
    r: &mut Registers,
    ty: FloatType,
    mode: FloatMode,
    packed: bool,
    negate: [bool; 2],
    d: Slot,
    abc: [Slot; 3],
    mask: u32,
) {
    let [product, addend] = negate.map(|negate| if negate { SIGN } else { 0 });
    match ty {
        FloatType::F16 if mode.is(false) => {
            run_three(r, packed, d, abc, mask, |a, b, c| fma(FloatType::F16, a ^ product, b, c ^ addend));
        }
        FloatType::Bf16 if mode.is(false) => {
            run_three(r, packed, d, abc, mask, |a, b, c| fma(FloatType::Bf16, a ^ product, b, c ^ addend));
        }
        _ => run_three(r, packed, d, abc, mask, |a, b, c| {
            let [a, b, c] = [a ^ product, b, c ^ addend].map(|bits| u64::from(bits & LOW));
            fma_bits(ty, mode, a, b, c) as u32
        }),
    }
}

/// `fma` of halves, one in a register or two side by side.
pub(super) fn run_fma(
    r: &mut Registers,
    ty: FloatType,
    mode: FloatMode,
    packed: bool,
    d: Slot,
    abc: [Slot; 3],
    mask: u32,
) {
    match ty {
        FloatType::F16 if mode.is(false) => run_three(r, packed, d, abc, mask, |a, b, c| fma(FloatType::F16, a, b, c)),
        FloatType::Bf16 if mode.is(false) => {
            run_three(r, packed, d, abc, mask, |a, b, c| fma(FloatType::Bf16, a, b, c));
        }
        _ => run_three(r, packed, d, abc, mask, |a, b, c| {
            let [a, b, c] = [a, b, c].map(|bits| bits & LOW);
            if mode.outside_is_zero && (is_outside(a) || is_outside(b)) {
                return 0;
            }
            fma_bits(ty, mode, a.into(), b.into(), c.into()) as u32
        }),
    }
}

/// A function of two halves side by side.
pub(super) fn run_packed(r: &mut Registers, op: Float1, ty: FloatType, mode: FloatMode, d: Slot, a: Slot, mask: u32) {
    map1(r, d, a, mask, |a: u32| pair(|shift| one_bits(op, ty, mode, u64::from(a >> shift & LOW)) as u32));
}

/// An operation on halves, one in a register or two side by side.
#[allow(clippy::too_many_arguments, reason = "what every operation has, and how many halves there are")]
pub(super) fn run_two(
    r: &mut Registers,
    op: Float2,
    ty: FloatType,
    mode: FloatMode,
    packed: bool,
    d: Slot,
    ab: [Slot; 2],
    mask: u32,
) {
    fn run(r: &mut Registers, packed: bool, d: Slot, ab: [Slot; 2], mask: u32, half: impl Fn(u32, u32) -> u32) {
        if packed {
            map2(r, d, ab, mask, |a: u32, b: u32| pair(|shift| half(a >> shift, b >> shift)));
        } else {
            map2(r, d, ab, mask, half);
        }
    }
    /// The plain forms, each with a loop of its own.
    macro_rules! short_or_long {
        ($($short:ident)*) => {
            match (ty, op) {
                $(
                    (FloatType::F16, Float2::$short) if mode.is(false) => {
                        run(r, packed, d, ab, mask, |a, b| two(Float2::$short, FloatType::F16, a, b));
                    }
                    (FloatType::Bf16, Float2::$short) if mode.is(false) => {
                        run(r, packed, d, ab, mask, |a, b| two(Float2::$short, FloatType::Bf16, a, b));
                    }
                )*
                _ => run(r, packed, d, ab, mask, |a, b| two_bits(op, ty, mode, a.into(), b.into()) as u32),
            }
        };
    }
    short_or_long!(Add Sub Mul Min Max);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::op::Rounding;
    use crate::exec::soft;

    const TYPES: [FloatType; 2] = [FloatType::F16, FloatType::Bf16];
    /// Zero, the ends of subnormal and normal numbers, one and its neighbours, infinities and NaNs.
    const SPECIAL: [u32; 16] = [
        0, 0x8000, 1, 0x8001, 0x03ff, 0x0400, 0x007f, 0x0080, 0x3c00, 0x3f80, 0x3c01, 0x7bff, 0x7f7f, 0x7c00, 0xff80,
        0x7e01,
    ];

    /// The same halves in every run: special ones with any, and any with near and far ones.
    fn triples() -> impl Iterator<Item = [u32; 3]> {
        let mut state = 1u64;
        let mut next = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 32) as u32;
            if bits & 7 == 0 { SPECIAL[(bits >> 3 & 15) as usize] } else { bits >> 8 & LOW }
        };
        (0..400_000).map(move |_| [next(), next(), next()])
    }

    fn by_hand(op: Float2, ty: FloatType, a: u32, b: u32) -> u32 {
        let (a, b, format) = (u64::from(a), u64::from(b), ty.format());
        let bits = match op {
            Float2::Add => soft::add(a, b, format, Rounding::Nearest),
            Float2::Sub => soft::sub(a, b, format, Rounding::Nearest),
            _ => soft::mul(a, b, format, Rounding::Nearest),
        };
        bits as u32
    }

    #[test]
    fn the_short_way_is_right() {
        for ([a, b, c], ty) in triples().flat_map(|triple| TYPES.map(|ty| (triple, ty))) {
            for op in [Float2::Add, Float2::Sub, Float2::Mul] {
                assert_eq!(two(op, ty, a, b), by_hand(op, ty, a, b), "{op:?} {ty:?} {a:#x} {b:#x}");
            }
            let [x, y, z] = [a, b, c].map(u64::from);
            let expected = soft::fma(x, y, z, ty.format(), Rounding::Nearest) as u32;
            assert_eq!(fma(ty, a, b, c), expected, "fma {ty:?} {a:#x} {b:#x} {c:#x}");
        }
    }

    #[test]
    fn a_tie_is_no_tie_where_a_little_is_added() {
        // (1 + 2⁻⁷) · 1.5 lies between two numbers, and 2⁻¹³³ decides for one of them.
        for (c, expected) in [(0x0000, 0x3fc2), (0x0001, 0x3fc2), (0x8001, 0x3fc1)] {
            assert_eq!(fma(FloatType::Bf16, 0x3f81, 0x3fc0, c), expected, "{c:#x}");
        }
    }

    #[test]
    fn every_half_is_itself() {
        for ty in TYPES {
            for bits in 0..=LOW {
                let wide = soft::convert(bits.into(), ty.format(), soft::F32, Rounding::Nearest) as u32;
                let value = widen(ty, bits);
                assert!(value.to_bits() == wide || value.is_nan() && f32::from_bits(wide).is_nan(), "{bits:#x}");
                assert_eq!(narrow(ty, value), if value.is_nan() { NAN } else { bits });
            }
        }
    }

    #[test]
    fn the_smaller_and_the_larger() {
        for ty in TYPES {
            let one = if ty == FloatType::F16 { 0x3c00 } else { 0x3f80 };
            assert_eq!(two(Float2::Min, ty, SIGN, 0), SIGN);
            assert_eq!(two(Float2::Max, ty, SIGN, 0), 0);
            assert_eq!(two(Float2::Max, ty, 0x7fff, one), one);
            assert_eq!(two(Float2::Min, ty, one, 0xffff), one);
            assert_eq!(two(Float2::Max, ty, 0xffff, 0x7ffe), NAN);
            assert_eq!(two(Float2::Min, ty, one | SIGN, one), one | SIGN);
        }
    }
}
