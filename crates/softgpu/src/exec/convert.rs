//! `cvt`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    clippy::cast_lossless,
    reason = "converting is what the instruction is for"
)]

use super::float::flushed_as_unbounded;
use super::lanes::{Registers, map1, map2};
use super::op::{FloatMode, FloatType, Number, Reg, Rounding, Slot};
use super::soft;

/// `.tf32` leaves this many bits of an `.f32` zero.
const TF32_UNUSED_BITS: u32 = 13;

pub(super) fn convert(r: &mut Registers, from: Number, to: Number, mode: FloatMode, d: Reg, a: Reg, mask: u32) {
    use FloatType::{F32, F64};
    use Number::{Float, Integer};
    const S32: Number = Integer { bits: 32, signed: true };
    const U32: Number = Integer { bits: 32, signed: false };
    let plain = mode == FloatMode::PLAIN;
    match (from, to, a, d) {
        (Float(F32), Float(F64), Reg::Narrow(a), Reg::Wide(d)) if plain => {
            map1(r, d, a, mask, |a: u32| f64::from(f32::from_bits(a)).to_bits());
        }
        (S32, Float(F32), Reg::Narrow(a), Reg::Narrow(d)) if plain => {
            map1(r, d, a, mask, |a: u32| (a as i32 as f32).to_bits());
        }
        (U32, Float(F32), Reg::Narrow(a), Reg::Narrow(d)) if plain => {
            map1(r, d, a, mask, |a: u32| (a as f32).to_bits());
        }
        (Integer { bits: 32, signed: true }, Integer { bits: 64, .. }, Reg::Narrow(a), Reg::Wide(d))
            if !mode.saturate =>
        {
            map1(r, d, a, mask, |a: u32| a as i32 as u64);
        }
        (U32, Integer { bits: 64, .. }, Reg::Narrow(a), Reg::Wide(d)) => map1(r, d, a, mask, |a: u32| a as u64),
        (Integer { bits: 64, .. }, Integer { bits: 32, .. }, Reg::Wide(a), Reg::Narrow(d)) if !mode.saturate => {
            map1(r, d, a, mask, |a: u64| a as u32);
        }
        (_, _, Reg::Narrow(a), Reg::Narrow(d)) => {
            map1(r, d, a, mask, |a: u32| convert_bits(a.into(), from, to, mode) as u32);
        }
        (_, _, Reg::Narrow(a), Reg::Wide(d)) => {
            map1(r, d, a, mask, |a: u32| convert_bits(a.into(), from, to, mode));
        }
        (_, _, Reg::Wide(a), Reg::Narrow(d)) => {
            map1(r, d, a, mask, |a: u64| convert_bits(a, from, to, mode) as u32);
        }
        (_, _, Reg::Wide(a), Reg::Wide(d)) => map1(r, d, a, mask, |a: u64| convert_bits(a, from, to, mode)),
    }
}

/// Two `.f32` to two halves side by side.
pub(super) fn convert_pair(r: &mut Registers, to: FloatType, mode: FloatMode, d: Slot, ab: [Slot; 2], mask: u32) {
    let half =
        |bits: u32| convert_bits(bits.into(), Number::Float(FloatType::F32), Number::Float(to), mode) as u32 & 0xffff;
    map2(r, d, ab, mask, |a: u32, b: u32| half(a) << 16 | half(b));
}

/// One value. A result that is smaller than its register is extended by its own sign.
fn convert_bits(bits: u64, from: Number, to: Number, mode: FloatMode) -> u64 {
    match (from, to) {
        (Number::Integer { bits: size, signed }, Number::Integer { bits: to_size, signed: to_signed }) => {
            let value = integer(bits, size, signed);
            if mode.saturate {
                let (least, most) = range(to_size, to_signed);
                value.clamp(least, most) as u64
            } else {
                integer(value as u64, to_size, to_signed) as u64
            }
        }
        (Number::Integer { bits: size, signed }, Number::Float(to)) => {
            let value = integer(bits, size, signed);
            let magnitude = value.unsigned_abs() as u64;
            mode.result(to, soft::from_integer(value < 0, magnitude, to.format(), mode.rounding))
        }
        (Number::Float(from), Number::Integer { bits: size, signed }) => {
            to_integer(operand(bits, from, mode), from, size, signed, mode)
        }
        // The compiler makes a move of it, which leaves NaNs alone.
        (Number::Float(FloatType::F32), Number::Float(FloatType::F32))
        | (Number::Float(FloatType::F64), Number::Float(FloatType::F64))
            if mode == FloatMode::PLAIN =>
        {
            bits
        }
        // What becomes an `f16` is not flushed first, whatever the instruction says.
        (Number::Float(from), Number::Float(FloatType::F16)) => to_float(low(bits, from), from, FloatType::F16, mode),
        (Number::Float(from), Number::Float(to)) => to_float(operand(bits, from, mode), from, to, mode),
        (Number::Float(FloatType::F32), Number::Tf32) => {
            let bits = operand(bits, FloatType::F32, mode);
            if f32::from_bits(bits as u32).is_nan()
                && !mode.finite
                && !mode.relu
                && mode.rounding == Rounding::NearestAway
            {
                return bits & !((1 << TF32_UNUSED_BITS) - 1);
            }
            if mode.finite {
                return finite_tf32(bits as u32).into();
            }
            let bits = if mode.relu { mode.result(FloatType::F32, bits) } else { bits };
            soft::convert(bits, soft::F32, soft::TF32, mode.rounding) << TF32_UNUSED_BITS
        }
        // The decoder lets no other combination through.
        _ => bits,
    }
}

/// `cvt.rna.satfinite.tf32.f32`, step by step as the GPU does it: whatever is no number afterwards, NaNs included, is
/// one step smaller.
fn finite_tf32(bits: u32) -> u32 {
    let is_finite = |bits: u32| f32::from_bits(bits).is_finite();
    let rounded = if is_finite(bits) { bits + (1 << (TF32_UNUSED_BITS - 1)) } else { bits };
    let kept = rounded & !((1 << TF32_UNUSED_BITS) - 1);
    if is_finite(kept) { kept } else { kept - (1 << TF32_UNUSED_BITS) }
}

/// To the nearest number of `tf32`, of two the even one.
pub(super) fn nearest_tf32(bits: u32) -> u32 {
    (soft::convert(bits.into(), soft::F32, soft::TF32, Rounding::Nearest) << TF32_UNUSED_BITS) as u32
}

/// A number's own bits, flushed where asked for. Only `f32` is ever flushed.
fn operand(bits: u64, from: FloatType, mode: FloatMode) -> u64 {
    let bits = low(bits, from);
    if mode.flush && from == FloatType::F32 { from.format().flush(bits) } else { bits }
}

fn to_float(bits: u64, from: FloatType, to: FloatType, mode: FloatMode) -> u64 {
    let flushed = FloatMode { flush: mode.flush && to == FloatType::F32, ..mode };
    if let Some(nan) = nan(bits, from, to, mode) {
        return flushed.result(to, nan);
    }
    let converted = match (from, to) {
        _ if from == to && mode.integral => soft::to_integral(bits, from.format(), mode.rounding),
        _ if from == to => bits,
        (FloatType::F64, FloatType::F32) if mode.rounding == Rounding::Nearest => {
            (f64::from_bits(bits) as f32).to_bits().into()
        }
        (FloatType::Bf16, FloatType::F32) => bits << 16,
        _ => soft::convert(bits, from.format(), to.format(), mode.rounding),
    };
    let converted = if mode.finite { to.format().finite(converted) } else { converted };
    let converted =
        flushed_as_unbounded(flushed, to, converted, |wide, _| soft::convert(bits, from.format(), wide, mode.rounding));
    flushed.result(to, converted)
}

/// What becomes of a NaN: with `f64` on either side its sign and the upper bits of its payload stay, elsewhere there
/// is but one.
fn nan(bits: u64, from: FloatType, to: FloatType, mode: FloatMode) -> Option<u64> {
    let fraction_bits = |ty: FloatType| match ty {
        FloatType::F16 => 10,
        FloatType::Bf16 => 7,
        FloatType::F32 => 23,
        FloatType::F64 => 52u32,
    };
    let size = |ty: FloatType| match ty {
        FloatType::F16 | FloatType::Bf16 => 16,
        FloatType::F32 => 32,
        FloatType::F64 => 64u32,
    };
    if !matches!(soft::unpack(bits, from.format()), soft::Value::Nan) {
        return None;
    }
    if (from, to) == (FloatType::Bf16, FloatType::F32) {
        return Some(bits << 16);
    }
    if from != FloatType::F64 && to != FloatType::F64 {
        return Some(to.format().nan());
    }
    // Flushing makes it the one that `f32` has, first.
    let bits = if mode.flush && from == FloatType::F32 { from.format().nan() } else { bits };
    let (have, want) = (fraction_bits(from), fraction_bits(to));
    let payload = bits & ((1 << have) - 1);
    let payload = if have > want { payload >> (have - want) } else { payload << (want - have) };
    let sign = bits >> (size(from) - 1) << (size(to) - 1);
    let exponent = ((1u64 << (size(to) - 1 - want)) - 1) << want;
    Some(sign | exponent | 1 << (want - 1) | payload)
}

/// The bits that belong to a number.
fn low(bits: u64, ty: FloatType) -> u64 {
    match ty {
        FloatType::F16 | FloatType::Bf16 => bits & 0xffff,
        FloatType::F32 => bits & u64::from(u32::MAX),
        FloatType::F64 => bits,
    }
}

/// A register's low bits as a number.
fn integer(bits: u64, size: u8, signed: bool) -> i128 {
    let unused = 64 - u32::from(size);
    if signed { (((bits << unused) as i64) >> unused).into() } else { ((bits << unused) >> unused).into() }
}

fn range(size: u8, signed: bool) -> (i128, i128) {
    if signed { (-(1 << (size - 1)), (1 << (size - 1)) - 1) } else { (0, (1 << size) - 1) }
}

/// Clamped to what the integer can hold. A NaN is 0 for up to 32 bits from at most 32 bits; with 64 bits on either
/// side it is the sign bit alone.
fn to_integer(bits: u64, from: FloatType, size: u8, signed: bool, mode: FloatMode) -> u64 {
    let value = match from {
        FloatType::F32 => f32::from_bits(bits as u32).into(),
        FloatType::F64 => f64::from_bits(bits),
        _ => f64::from_bits(soft::convert(bits, from.format(), soft::F64, Rounding::Nearest)),
    };
    if value.is_nan() {
        let wide = from == FloatType::F64 || size == 64;
        return if wide { integer(1 << (size - 1), size, signed) as u64 } else { 0 };
    }
    let rounded = match mode.rounding {
        Rounding::Nearest => value.round_ties_even(),
        Rounding::NearestAway => value.round(),
        Rounding::Zero => value.trunc(),
        Rounding::Down => value.floor(),
        Rounding::Up => value.ceil(),
    };
    // These conversions clamp.
    match (size, signed) {
        (64, true) => (rounded as i64) as u64,
        (64, false) => rounded as u64,
        _ => {
            let (least, most) = range(size, signed);
            (rounded as i64).clamp(least as i64, most as i64) as u64
        }
    }
}

impl Rounding {
    /// By its name in an instruction, and whether it rounds to an integer.
    pub(super) fn from_name(name: &str) -> Option<(Self, bool)> {
        Some(match name {
            "rn" => (Self::Nearest, false),
            "rna" => (Self::NearestAway, false),
            "rz" => (Self::Zero, false),
            "rm" => (Self::Down, false),
            "rp" => (Self::Up, false),
            "rni" => (Self::Nearest, true),
            "rzi" => (Self::Zero, true),
            "rmi" => (Self::Down, true),
            "rpi" => (Self::Up, true),
            _ => return None,
        })
    }
}
