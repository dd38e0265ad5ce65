//! What PTX leaves approximate: `.approx` and `.full` forms.
//!
//! A GPU has a [`unit`] that approximates a few functions, and compilers put other instructions around it: sines are
//! taken of turns, divisions multiply by a reciprocal, what is subnormal is scaled before and after. These are as they
//! stand in the machine code that CUDA 13.0 makes for `sm_90`.
//!
//! Operands come as bits that are flushed already where the instruction says so; what the instruction does to every
//! result (`.ftz`, `.sat`) is done by the caller.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "an f64 that stands for an f32 result is rounded by the conversion, and exponents have eleven bits"
)]

mod tables;
mod unit;

use super::float::{NAN32, bits32, from_f64, to_f64};
use super::op::{Float1, FloatType, Rounding};
use super::soft;
use core::num::FpCategory;

/// A function's result. `flush` tells the two forms of `rsqrt` in `f64` apart.
pub(super) fn function(op: Float1, ty: FloatType, flush: bool, a: u64) -> u64 {
    let of_f32 = |f: fn(f32) -> u32| f(f32::from_bits(a as u32)).into();
    let of_half = |f: fn(f32) -> f32| half(ty, f(to_f64(ty, a) as f32).into());
    match (op, ty) {
        (Float1::RcpApprox, FloatType::F64) => upper_half(reciprocal64(a)),
        (Float1::Rsqrt, FloatType::F64) if flush => upper_half(reciprocal_root64(a)),
        (Float1::Rsqrt, FloatType::F64) => refined_reciprocal_root(f64::from_bits(a)).to_bits(),
        (Float1::RcpApprox, _) => rcp32(a as u32).into(),
        (Float1::SqrtApprox, _) => sqrt32(a as u32).into(),
        (Float1::Rsqrt, _) => of_f32(reciprocal_root),
        (Float1::Sin, _) => of_f32(|a| bits32(unit::sine(turns(a)))),
        (Float1::Cos, _) => of_f32(|a| bits32(unit::cosine(turns(a)))),
        (Float1::Lg2, _) => of_f32(binary_logarithm),
        (Float1::Ex2, FloatType::F32) => of_f32(power_of_two),
        (Float1::Ex2, _) => of_half(unit::power_of_two),
        (Float1::Tanh, FloatType::F32) => of_f32(|a| bits32(unit::tangent(a))),
        (Float1::Tanh, _) => of_half(unit::tangent),
        // These are exact, and never come here.
        (Float1::Neg | Float1::Abs | Float1::Sqrt | Float1::Rcp, _) => a,
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

/// `sqrt.approx.f32`
pub(super) fn sqrt32(a: u32) -> u32 {
    let a = f32::from_bits(a);
    bits32(if a.abs() < SMALLEST_NORMAL { unit::root(a * UP) / ROOT_OF_UP } else { unit::root(a) })
}

/// `rsqrt.approx.f32`
fn reciprocal_root(a: f32) -> u32 {
    bits32(if a.abs() < SMALLEST_NORMAL {
        unit::reciprocal_root(a * UP) * ROOT_OF_UP
    } else {
        unit::reciprocal_root(a)
    })
}

/// `rcp.approx.f32`
pub(super) fn rcp32(a: u32) -> u32 {
    let a = f32::from_bits(a);
    let scale = if a.abs() < SMALLEST_NORMAL { UP } else { 1.0 };
    let scale = if a.abs() > LARGE { 0.25 } else { scale };
    bits32(unit::reciprocal(a * scale) * scale)
}

/// `div.full.f32`
pub(super) fn full_quotient(a: u32, b: u32) -> u32 {
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    let scale = if b.abs() > LARGE { 0.25 } else { 1.0 };
    let scale = if b.abs() < SMALLEST_NORMAL { UP } else { scale };
    bits32(unit::reciprocal(b * scale) * (a * scale))
}

/// `div.approx.f32`, which is 0 for a large divisor.
pub(super) fn quotient(a: u32, b: u32) -> u32 {
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    let scale = if b.abs() < SMALLEST_NORMAL { UP } else { 1.0 };
    bits32(unit::reciprocal(b * scale) * (a * scale))
}

/// `ex2.approx.f32`
fn power_of_two(a: f32) -> u32 {
    /// Below it results are subnormal.
    const LEAST: f32 = -126.0;
    let of_half = unit::power_of_two(a * 0.5);
    bits32(if a < LEAST { of_half * of_half } else { unit::power_of_two(a) })
}

/// `lg2.approx.f32`
fn binary_logarithm(a: f32) -> u32 {
    bits32(if a.abs() < SMALLEST_NORMAL { unit::logarithm(a * UP) - UP.log2() } else { unit::logarithm(a) })
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
