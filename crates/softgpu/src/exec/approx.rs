//! What PTX leaves approximate: `.approx` and `.full` forms.
//!
//! Nothing else knows how close a result is. Operands come as bits that are flushed already where the instruction
//! says so; what the instruction does to every result (`.ftz`, `.sat`) is done by the caller. Results here are those
//! of `f64` arithmetic, rounded, which is within all bounds that PTX documents.
#![allow(
    clippy::cast_possible_truncation,
    reason = "an f64 that stands for an f32 result is rounded by the conversion"
)]

use super::float::{NAN32, bits32, from_f64, to_f64};
use super::op::{Float1, FloatType};

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
        Float1::Sin => by_f64(f64::sin),
        Float1::Cos => by_f64(f64::cos),
        Float1::Lg2 => by_f64(f64::log2),
        Float1::Ex2 => by_f64(f64::exp2),
        Float1::Tanh => by_f64(f64::tanh),
        // These are exact, and never come here.
        Float1::Neg | Float1::Abs | Float1::Sqrt | Float1::Rcp => a,
    }
}

/// `sqrt.approx.f32`
#[inline(always)]
pub(super) fn sqrt32(a: u32) -> u32 {
    bits32(f32::from_bits(a).sqrt())
}

/// `rcp.approx.f32`
#[inline(always)]
pub(super) fn rcp32(a: u32) -> u32 {
    bits32(1.0 / f32::from_bits(a))
}

/// `div.full.f32`
#[inline(always)]
pub(super) fn full_quotient(a: u32, b: u32) -> u32 {
    bits32(f32::from_bits(a) / f32::from_bits(b))
}

/// `div.approx.f32`, which multiplies by the divisor's reciprocal: 0 for a large divisor.
#[inline(always)]
pub(super) fn quotient(a: u32, b: u32) -> u32 {
    /// 2^126.
    const LARGE: f32 = f32::from_bits(0x7e80_0000);
    let (a, b) = (f32::from_bits(a), f32::from_bits(b));
    bits32(if b.abs() > LARGE && b.is_finite() { a * 0f32.copysign(b) } else { a / b })
}

fn upper_half(value: f64) -> u64 {
    if value.is_nan() { u64::from(NAN32) << 32 } else { value.to_bits() & !u64::from(u32::MAX) }
}
