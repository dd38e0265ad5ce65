//! What PTX leaves approximate: `.approx` and `.full` forms.
//!
//! A GPU has a unit that approximates a few functions (`MUFU` in machine code), and compilers put other instructions
//! around it: sines are taken of turns, divisions multiply by a reciprocal, what is subnormal is scaled before and after.
//! These are as they stand in the machine code that CUDA 13.0 makes for `sm_90`. What the unit itself gives is computed
//! here, and the hardware's last bits differ, but for `ex2` of halves, whose results are an H200's: nothing else knows
//! how close a result is.
//!
//! Operands come as bits that are flushed already where the instruction says so; what the instruction does to every
//! result (`.ftz`, `.sat`) is done by the caller.
#![allow(
    clippy::cast_possible_truncation,
    reason = "an f64 that stands for an f32 result is rounded by the conversion"
)]

use super::float::{NAN32, bits32, from_f64, to_f64};
use super::op::{Float1, FloatType, Rounding};
use super::soft;

/// A function's result. `flush` tells the two forms of `rsqrt` in `f64` apart.
pub(super) fn function(op: Float1, ty: FloatType, flush: bool, a: u64) -> u64 {
    let by_f64 = |f: fn(f64) -> f64| from_f64(ty, f(to_f64(ty, a)));
    match op {
        // These give the upper half of a result only.
        Float1::RcpApprox if ty == FloatType::F64 => upper_half(f64::from_bits(a).recip()),
        Float1::Rsqrt if ty == FloatType::F64 && flush => upper_half(f64::from_bits(a).sqrt().recip()),
        Float1::RcpApprox => by_f64(f64::recip),
        Float1::SqrtApprox => by_f64(f64::sqrt),
        Float1::Rsqrt => by_f64(|value| value.sqrt().recip()),
        Float1::Sin => sine(f32::from_bits(a as u32)).into(),
        Float1::Cos => cosine(f32::from_bits(a as u32)).into(),
        Float1::Lg2 if ty == FloatType::F32 => binary_logarithm(f32::from_bits(a as u32)).into(),
        Float1::Ex2 if ty == FloatType::F32 => power_of_two(f32::from_bits(a as u32)).into(),
        Float1::Lg2 => by_f64(f64::log2),
        Float1::Ex2 => half(ty, counted(to_f64(ty, a)).exp2()),
        Float1::Tanh if ty == FloatType::F32 => by_f64(f64::tanh),
        Float1::Tanh => half(ty, to_f64(ty, a).tanh()),
        // These are exact, and never come here.
        Float1::Neg | Float1::Abs | Float1::Sqrt | Float1::Rcp => a,
    }
}

/// `sqrt.approx.f32`
#[inline(always)]
pub(super) fn sqrt32(a: u32) -> u32 {
    bits32(f32::from_bits(a).sqrt())
}

/// What is smaller is scaled up, as the unit takes it for zero.
const SMALLEST_NORMAL: f32 = f32::MIN_POSITIVE;
/// 2^24
const UP: f32 = 16_777_216.0;
/// 2^126: reciprocals of what is larger are subnormal, and the unit has no such results.
const LARGE: f32 = f32::from_bits(0x7e80_0000);

/// The unit's reciprocal.
#[inline(always)]
fn reciprocal(a: f32) -> f32 {
    let result = 1.0 / a;
    if result.abs() < SMALLEST_NORMAL { 0f32.copysign(result) } else { result }
}

/// `rcp.approx.f32`
#[inline(always)]
pub(super) fn rcp32(a: u32) -> u32 {
    let a = f32::from_bits(a);
    let scale = if a.abs() < SMALLEST_NORMAL { UP } else { 1.0 };
    let scale = if a.abs() > LARGE { 0.25 } else { scale };
    bits32(reciprocal(a * scale) * scale)
}

/// `div.full.f32`
#[inline(always)]
pub(super) fn full_quotient(a: u32, b: u32) -> u32 {
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    let scale = if b.abs() > LARGE { 0.25 } else { 1.0 };
    let scale = if b.abs() < SMALLEST_NORMAL { UP } else { scale };
    bits32(reciprocal(b * scale) * (a * scale))
}

/// `div.approx.f32`, which is 0 for a large divisor.
#[inline(always)]
pub(super) fn quotient(a: u32, b: u32) -> u32 {
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    let scale = if b.abs() < SMALLEST_NORMAL { UP } else { 1.0 };
    bits32(reciprocal(b * scale) * (a * scale))
}

/// The unit counts exponents and logarithms in steps of 2^-23, and negates numbers by taking the complement of all
/// their bits, which is one step more.
const STEP: f64 = 1.0 / (1 << 23) as f64;

/// Whole steps.
fn counted(exponent: f64) -> f64 {
    (exponent / STEP).trunc() * STEP
}

/// `ex2.approx.f32`
fn power_of_two(a: f32) -> u32 {
    /// Below it results are subnormal.
    const LEAST: f32 = -126.0;
    let unit = |a: f32| {
        let exponent = counted(a.into());
        let complemented = if a < 0.0 && exponent.fract() != 0.0 { exponent - STEP } else { exponent };
        complemented.exp2() as f32
    };
    bits32(if a < LEAST { unit(a * 0.5) * unit(a * 0.5) } else { unit(a) })
}

/// `lg2.approx.f32`
fn binary_logarithm(a: f32) -> u32 {
    let unit = |a: f32| {
        let logarithm = f64::from(a).log2();
        cut(if logarithm < 0.0 { (logarithm + STEP).min(-0.0) } else { logarithm })
    };
    bits32(if a.abs() < SMALLEST_NORMAL { unit(a * UP) - UP.log2() } else { unit(a) })
}

/// The nearest `f32` that is no further from zero.
fn cut(value: f64) -> f32 {
    let nearest = value as f32;
    let is_beyond = f64::from(nearest).abs() > value.abs();
    if is_beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
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

/// The fraction of a turn that an angle is, which the unit takes sines of: what multiplying by an `f32` near 1/2π gives,
/// cut off, and no bits of it below 2^-26.
fn turn(angle: f32) -> f64 {
    const TURNS: f32 = f32::from_bits(0x3e22_f983);
    const STEPS: f64 = (1 << 26) as f64;
    let turns = cut(f64::from(angle) * f64::from(TURNS));
    (f64::from(turns) % 1.0 * STEPS).trunc() / STEPS
}

/// Exact at multiples of a quarter.
fn sine_of_turn(turn: f64) -> f64 {
    let quarters = (turn * 4.0).round();
    let rest = (turn * 4.0 - quarters) * core::f64::consts::FRAC_PI_2;
    match quarters.rem_euclid(4.0) {
        0.0 => rest.sin(),
        1.0 => rest.cos(),
        2.0 => -rest.sin(),
        3.0 => -rest.cos(),
        nan => nan,
    }
}

/// `sin.approx.f32`
fn sine(a: f32) -> u32 {
    let sine = sine_of_turn(turn(a)) as f32;
    bits32(if sine == 0.0 { 0f32.copysign(a) } else { sine })
}

/// `cos.approx.f32`
fn cosine(a: f32) -> u32 {
    bits32(sine_of_turn(turn(a) + 0.25) as f32)
}

fn upper_half(value: f64) -> u64 {
    if value.is_nan() { u64::from(NAN32) << 32 } else { value.to_bits() & !u64::from(u32::MAX) }
}
