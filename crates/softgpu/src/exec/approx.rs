//! What PTX leaves approximate: `.approx` and `.full` forms.
//!
//! A GPU has a [`unit`] that approximates a few functions, and compilers put other instructions around it: sines are
//! taken of turns, divisions multiply by a reciprocal, what is subnormal is scaled before and after. These are as they
//! stand in the machine code that CUDA 13.0 makes for `sm_90`.
//!
//! `f32` is done for all lanes of a warp at once, other types one by one.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "an f64 that stands for an f32 result is rounded by the conversion, and exponents have eleven bits"
)]

mod tables;
mod unit;

use super::float::{NAN32, bits32, flush32, from_f64, to_f64};
use super::lanes::{Registers, long_map1, long_map2};
use super::op::{Float1, Float2, FloatType, Rounding, Slot};
use super::soft;
use core::hint::select_unpredictable as select;
use core::num::FpCategory;

/// A function's result in a type other than `f32`, whose operand is flushed already where the instruction says so; its
/// result is by the caller. `flush` tells the two forms of `rsqrt` in `f64` apart.
pub(super) fn function(op: Float1, ty: FloatType, flush: bool, a: u64) -> u64 {
    let of_half = |f: fn(f32) -> f32| half(ty, f(to_f64(ty, a) as f32).into());
    match (op, ty) {
        (Float1::RcpApprox, FloatType::F64) => upper_half(reciprocal64(a)),
        (Float1::Rsqrt, FloatType::F64) if flush => upper_half(reciprocal_root64(a)),
        (Float1::Rsqrt, FloatType::F64) => refined_reciprocal_root(f64::from_bits(a)).to_bits(),
        (Float1::Ex2, FloatType::F16 | FloatType::Bf16) => of_half(unit::power_of_two),
        (Float1::Tanh, FloatType::F16 | FloatType::Bf16) => of_half(unit::tangent),
        // These are exact or there is no such form, and never come here.
        _ => a,
    }
}

/// Runs a function of `f32` numbers in the lanes of the mask, flushed if asked for.
macro_rules! in_lanes {
    ($map:ident($r:ident, $flush:ident, $d:ident, $sources:ident, $mask:ident), $function:path, $($a:ident),*) => {{
        #[inline(always)]
        fn plain($($a: u32),*) -> u32 {
            bits32($function($(f32::from_bits($a)),*))
        }
        #[inline(always)]
        fn flushed($($a: u32),*) -> u32 {
            flush32(plain($(flush32($a)),*))
        }
        if $flush { $map($r, $d, $sources, $mask, flushed) } else { $map($r, $d, $sources, $mask, plain) }
    }};
}

/// An `f32` function; false for one that is exact.
#[must_use]
pub(super) fn function32(r: &mut Registers, op: Float1, flush: bool, d: Slot, a: Slot, mask: u32) -> bool {
    macro_rules! lanes_of {
        ($function:path) => {
            in_lanes!(long_map1(r, flush, d, a, mask), $function, a)
        };
    }
    match op {
        Float1::RcpApprox => lanes_of!(reciprocal),
        Float1::SqrtApprox => lanes_of!(root),
        Float1::Rsqrt => lanes_of!(reciprocal_root),
        Float1::Sin => lanes_of!(sine),
        Float1::Cos => lanes_of!(cosine),
        Float1::Lg2 => lanes_of!(binary_logarithm),
        Float1::Ex2 => lanes_of!(power_of_two),
        Float1::Tanh => lanes_of!(unit::tangent),
        Float1::Neg | Float1::Abs | Float1::Sqrt | Float1::Rcp => return false,
    }
    true
}

/// An `f32` quotient: `div.full`, or else `div.approx`.
pub(super) fn quotient32(r: &mut Registers, full: bool, flush: bool, d: Slot, ab: [Slot; 2], mask: u32) {
    if full {
        in_lanes!(long_map2(r, flush, d, ab, mask), full_quotient, a, b);
    } else {
        in_lanes!(long_map2(r, flush, d, ab, mask), quotient, a, b);
    }
}

/// One of the two factors that an `f32` quotient is the product of.
pub(super) fn factor_of_quotient32(r: &mut Registers, op: Float2, flush: bool, d: Slot, ab: [Slot; 2], mask: u32) {
    macro_rules! lanes_of {
        ($function:path) => {
            in_lanes!(long_map2(r, flush, d, ab, mask), $function, a, b)
        };
    }
    match op {
        Float2::FullReciprocal => lanes_of!(full_reciprocal),
        Float2::FullDividend => lanes_of!(full_dividend),
        Float2::ApproxReciprocal => lanes_of!(approximate_reciprocal),
        _ => lanes_of!(approximate_dividend),
    }
}

/// What is smaller is scaled up, as the unit takes it for zero.
const SMALLEST_NORMAL: f32 = f32::MIN_POSITIVE;
/// 2^24
const UP: f32 = 16_777_216.0;
/// 2^12
const ROOT_OF_UP: f32 = 4096.0;
/// 2^126: reciprocals of what is larger are subnormal, and the unit has no such results.
const LARGE: f32 = f32::from_bits(0x7e80_0000);

/// What a number that is too small for the unit is multiplied with, and one for others.
#[inline(always)]
fn up(a: f32) -> f32 {
    select(a.abs() < SMALLEST_NORMAL, UP, 1.0)
}

/// The same where a number may be too large besides.
#[inline(always)]
fn up_or_down(a: f32) -> f32 {
    select(a.abs() > LARGE, 0.25, up(a))
}

/// `sqrt.approx.f32`
#[inline(always)]
fn root(a: f32) -> f32 {
    unit::root(a * up(a)) * select(a.abs() < SMALLEST_NORMAL, ROOT_OF_UP.recip(), 1.0)
}

/// `rsqrt.approx.f32`
#[inline(always)]
fn reciprocal_root(a: f32) -> f32 {
    unit::reciprocal_root(a * up(a)) * select(a.abs() < SMALLEST_NORMAL, ROOT_OF_UP, 1.0)
}

/// `rcp.approx.f32`
#[inline(always)]
fn reciprocal(a: f32) -> f32 {
    let scale = up_or_down(a);
    unit::reciprocal(a * scale) * scale
}

/// `div.full.f32`
#[inline(always)]
fn full_quotient(a: f32, b: f32) -> f32 {
    full_reciprocal(a, b) * full_dividend(a, b)
}

#[inline(always)]
fn full_reciprocal(_: f32, b: f32) -> f32 {
    unit::reciprocal(b * up_or_down(b))
}

#[inline(always)]
fn full_dividend(a: f32, b: f32) -> f32 {
    a * up_or_down(b)
}

/// `div.approx.f32`, which is 0 for a large divisor.
#[inline(always)]
fn quotient(a: f32, b: f32) -> f32 {
    approximate_reciprocal(a, b) * approximate_dividend(a, b)
}

#[inline(always)]
fn approximate_reciprocal(_: f32, b: f32) -> f32 {
    unit::reciprocal(b * up(b))
}

#[inline(always)]
fn approximate_dividend(a: f32, b: f32) -> f32 {
    a * up(b)
}

/// `ex2.approx.f32`
#[inline(always)]
fn power_of_two(a: f32) -> f32 {
    /// Below it results are subnormal, and the square of what half of it gives.
    const LEAST: f32 = -126.0;
    let is_small = a < LEAST;
    let power = unit::power_of_two(select(is_small, a * 0.5, a));
    power * select(is_small, power, 1.0)
}

/// `lg2.approx.f32`
#[inline(always)]
fn binary_logarithm(a: f32) -> f32 {
    unit::logarithm(a * up(a)) - select(a.abs() < SMALLEST_NORMAL, UP.log2(), 0.0)
}

/// `sin.approx.f32`
#[inline(always)]
fn sine(angle: f32) -> f32 {
    unit::sine(turns(angle))
}

/// `cos.approx.f32`
#[inline(always)]
fn cosine(angle: f32) -> f32 {
    unit::cosine(turns(angle))
}

/// What the unit gives as a half: cut off, unless it is too large.
fn half(ty: FloatType, value: f64) -> u64 {
    let nearest = from_f64(ty, value);
    if to_f64(ty, nearest).is_finite() {
        soft::convert(value.to_bits(), soft::F64, ty.format(), Rounding::Zero)
    } else {
        nearest
    }
}

/// The turns that an angle is, of which the unit takes sines: what multiplying by an `f32` near 1/2π gives, cut off.
#[inline(always)]
fn turns(angle: f32) -> f32 {
    const TURNS: f32 = f32::from_bits(0x3e22_f983);
    unit::cut(f64::from(angle) * f64::from(TURNS))
}

/// The upper half of an `f64`, all that `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` take and give.
const UPPER: u64 = 0xffff_ffff << 32;
/// Where an `f64` has its exponent, and what it has more than that.
const EXPONENT64: u32 = 52;
const BIAS64: i64 = 1023;

fn upper_half(value: f64) -> u64 {
    if value.is_nan() { u64::from(NAN32) << 32 } else { value.to_bits() & UPPER }
}

/// A normal `f64` brought to between 1 and 4, and what is left of its exponent, which is even.
fn from_one_to_four(a: u64) -> (f32, i64) {
    let exponent = (a >> EXPONENT64 & 0x7ff) as i64 - BIAS64;
    let odd = exponent & 1;
    let fraction = a & UPPER & ((1 << EXPONENT64) - 1);
    (f64::from_bits(((BIAS64 + odd) as u64) << EXPONENT64 | fraction) as f32, exponent - odd)
}

/// Times a power of two that is one of `f64`.
fn scaled64(value: f32, exponent: i64) -> f64 {
    f64::from(value) * f64::from_bits(((BIAS64 + exponent) as u64) << EXPONENT64)
}

/// What the upper half of `rcp.approx.ftz.f64` is cut off from.
fn reciprocal64(a: u64) -> f64 {
    let upper = f64::from_bits(a & UPPER);
    if !upper.is_normal() {
        return upper.recip();
    }
    let (near_one, exponent) = from_one_to_four(a);
    scaled64(unit::reciprocal(near_one), -exponent).copysign(upper)
}

/// The same for `rsqrt.approx.ftz.f64`.
fn reciprocal_root64(a: u64) -> f64 {
    let upper = f64::from_bits(a & UPPER);
    if !upper.is_normal() || upper.is_sign_negative() {
        return upper.sqrt().recip();
    }
    let (near_one, exponent) = from_one_to_four(a);
    scaled64(unit::reciprocal_root(near_one), -exponent / 2)
}

/// `rsqrt.approx.f64`: one step of an iteration from the upper half on.
fn refined_reciprocal_root(a: f64) -> f64 {
    /// 2^54, and the root of it.
    const UP: f64 = 18_014_398_509_481_984.0;
    const ROOT_OF_UP: f64 = 134_217_728.0;
    let refined = |a: f64| {
        let start = f64::from_bits(upper_half(reciprocal_root64(a.to_bits())));
        let error = a.mul_add(-(start * start), 1.0);
        error.mul_add(0.375, 0.5).mul_add(start * error, start)
    };
    match a.classify() {
        FpCategory::Normal if a > 0.0 => refined(a),
        FpCategory::Subnormal if a > 0.0 => refined(a * UP) * ROOT_OF_UP,
        _ => a.sqrt().recip(),
    }
}
