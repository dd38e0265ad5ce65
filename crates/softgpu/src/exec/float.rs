//! Floating-point arithmetic.
//!
//! What rounds to nearest even is done by the CPU, halves by way of its `f32` and `f64` ([`half`]); other roundings
//! are in [`soft`]. Where PTX allows an approximation it is in [`approx`].
#![allow(
    clippy::cast_possible_truncation,
    reason = "an f64 that stands for an f32 result is rounded by the conversion, and half formats are low bits"
)]

use super::lanes::{Registers, map1, map2, map3};
use super::op::{Float1, Float2, FloatMode, FloatTest, FloatType, Rounding, Slot};
use super::soft::{self, Format};
use super::{approx, half};

/// What `f32` operations give that have no result.
pub(super) const NAN32: u32 = 0x7fff_ffff;
const SIGN32: u32 = 1 << 31;
const SIGN64: u64 = 1 << 63;

const QUIET64: u64 = 1 << 51;
/// What `f64` operations give that have neither a result nor a NaN to pass on.
const NAN64: u64 = 0xfff8_0000_0000_0000;

/// The bits of a result. Unlike `f32`, `f64` passes NaNs on: the first of these operands that is one.
#[inline(always)]
pub(in crate::exec) fn bits64<const N: usize>(value: f64, operands: [u64; N]) -> u64 {
    if !value.is_nan() {
        return value.to_bits();
    }
    operands
        .into_iter()
        .rev()
        .fold(NAN64, |nan, operand| if f64::from_bits(operand).is_nan() { operand | QUIET64 } else { nan })
}

/// The bits of a result, with the one NaN that the GPU has.
#[inline(always)]
pub(super) fn bits32(value: f32) -> u32 {
    if value.is_nan() { NAN32 } else { value.to_bits() }
}

/// A zero for a subnormal number.
#[inline(always)]
pub(super) fn flush32(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & SIGN32 } else { bits }
}

impl FloatType {
    pub(super) fn format(self) -> Format {
        match self {
            Self::F16 => soft::F16,
            Self::Bf16 => soft::BF16,
            Self::F32 => soft::F32,
            Self::F64 => soft::F64,
        }
    }

    /// The bit of the sign.
    fn sign(self) -> u64 {
        match self {
            Self::F16 | Self::Bf16 => 1 << 15,
            Self::F32 => SIGN32.into(),
            Self::F64 => SIGN64,
        }
    }
}

impl FloatMode {
    /// To nearest, and nothing else asked for.
    pub(super) const PLAIN: Self = Self {
        rounding: Rounding::Nearest,
        flush: false,
        saturate: false,
        relu: false,
        keep_nan: false,
        sign_of_both: false,
        finite: false,
        outside_is_zero: false,
        integral: false,
    };

    pub(super) fn is(self, flush: bool) -> bool {
        self == Self { flush, ..Self::PLAIN }
    }

    #[inline(always)]
    fn operand(self, ty: FloatType, bits: u64) -> u64 {
        if self.flush { ty.format().flush(bits) } else { bits }
    }

    /// What is done to a result before it is written.
    #[inline(always)]
    pub(super) fn result(self, ty: FloatType, bits: u64) -> u64 {
        let bits = if self.flush { ty.format().flush(bits) } else { bits };
        if self.saturate {
            saturate(ty, bits)
        } else if self.relu {
            relu(ty, bits)
        } else {
            bits
        }
    }
}

/// Clamped to 0..1; a NaN is 0.
fn saturate(ty: FloatType, bits: u64) -> u64 {
    let value = to_f64(ty, bits);
    if value >= 1.0 {
        soft::convert(1f64.to_bits(), soft::F64, ty.format(), Rounding::Nearest)
    } else if value > 0.0 {
        bits
    } else {
        0
    }
}

/// At least 0; a NaN stays one.
fn relu(ty: FloatType, bits: u64) -> u64 {
    let value = to_f64(ty, bits);
    if value.is_nan() {
        ty.format().nan()
    } else if value > 0.0 {
        bits
    } else {
        0
    }
}

pub(super) fn to_f64(ty: FloatType, bits: u64) -> f64 {
    match ty {
        FloatType::F32 => f32::from_bits(bits as u32).into(),
        FloatType::F64 => f64::from_bits(bits),
        _ => f64::from_bits(soft::convert(bits, ty.format(), soft::F64, Rounding::Nearest)),
    }
}

pub(super) fn from_f64(ty: FloatType, value: f64) -> u64 {
    match ty {
        FloatType::F32 => bits32(value as f32).into(),
        FloatType::F64 => value.to_bits(),
        _ => soft::convert(value.to_bits(), soft::F64, ty.format(), Rounding::Nearest),
    }
}

/// A flushed result by its exact value: the GPU rounds to the full precision first, and flushes what is below the
/// smallest normal number then, where rounding to a subnormal number might have brought it up to that.
#[inline(always)]
fn flushed_by(value: f32, exact: f64) -> u32 {
    /// 2^64: far enough up that nothing is subnormal.
    const UP: f64 = 18_446_744_073_709_551_616.0;
    let rounded = (exact * UP) as f32;
    let bits = flush32(bits32(value));
    if f64::from(rounded.abs()) < f64::from(f32::MIN_POSITIVE) * UP { bits & SIGN32 } else { bits }
}

/// The same for results that were computed in software; `unbounded` computes once more with a larger exponent, given
/// that format and a way to bring operands to it.
pub(super) fn flushed_as_unbounded(
    mode: FloatMode,
    ty: FloatType,
    bits: u64,
    unbounded: impl FnOnce(Format, &dyn Fn(u64) -> u64) -> u64,
) -> u64 {
    let format = ty.format();
    if !mode.flush || !format.is_smallest_normal(bits) {
        return bits;
    }
    let wide = format.with_wide_exponent();
    let rounded = unbounded(wide, &|operand| soft::convert(operand, format, wide, Rounding::Nearest));
    let magnitude = |bits, format| f64::from_bits(soft::convert(bits, format, soft::F64, Rounding::Nearest)).abs();
    if magnitude(rounded, wide) < magnitude(bits, format) { format.flush(bits - 1) } else { bits }
}

/// `fma`, the hottest of all.
pub(super) fn fma(r: &mut Registers, ty: FloatType, mode: FloatMode, d: Slot, abc: [Slot; 3], mask: u32) {
    match ty {
        FloatType::F32 if mode.is(false) => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
            bits32(f32::from_bits(a).mul_add(f32::from_bits(b), f32::from_bits(c)))
        }),
        FloatType::F32 if mode.is(true) => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
            let [a, b, c] = [a, b, c].map(|bits| f32::from_bits(flush32(bits)));
            flushed_by(a.mul_add(b, c), f64::from(a).mul_add(b.into(), c.into()))
        }),
        FloatType::F64 if mode.is(false) => map3(r, d, abc, mask, |a: u64, b: u64, c: u64| {
            bits64(f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)), [b, c, a])
        }),
        FloatType::F64 => map3(r, d, abc, mask, |a: u64, b: u64, c: u64| fma_bits(ty, mode, a, b, c)),
        FloatType::F16 | FloatType::Bf16 => half::run_fma(r, ty, mode, false, d, abc, mask),
        _ => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| fma_bits(ty, mode, a.into(), b.into(), c.into()) as u32),
    }
}

/// `fma` with the product's sign changed, or the addend's. A NaN that is passed on keeps its own.
#[allow(clippy::too_many_arguments, reason = "what every operation has, and how many halves there are")]
pub(super) fn joined(
    r: &mut Registers,
    ty: FloatType,
    mode: FloatMode,
    packed: bool,
    negate: [bool; 2],
    d: Slot,
    abc: [Slot; 3],
    mask: u32,
) {
    let [product, addend] = negate.map(|negate| if negate { ty.sign() } else { 0 });
    let [product32, addend32] = negate.map(|negate| if negate { SIGN32 } else { 0 });
    match ty {
        FloatType::F32 if mode.is(false) => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
            bits32(f32::from_bits(a ^ product32).mul_add(f32::from_bits(b), f32::from_bits(c ^ addend32)))
        }),
        FloatType::F32 if mode.is(true) => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
            let [a, b, c] = [a ^ product32, b, c ^ addend32].map(|bits| f32::from_bits(flush32(bits)));
            flushed_by(a.mul_add(b, c), f64::from(a).mul_add(b.into(), c.into()))
        }),
        FloatType::F64 if mode.is(false) => map3(r, d, abc, mask, |a: u64, b: u64, c: u64| {
            let value = f64::from_bits(a ^ product).mul_add(f64::from_bits(b), f64::from_bits(c ^ addend));
            bits64(value, [b, c, a])
        }),
        FloatType::F64 => {
            map3(r, d, abc, mask, |a: u64, b: u64, c: u64| fma_bits(ty, mode, a ^ product, b, c ^ addend))
        }
        FloatType::F16 | FloatType::Bf16 => half::run_joined(r, ty, mode, packed, negate, d, abc, mask),
        FloatType::F32 => map3(r, d, abc, mask, |a: u32, b: u32, c: u32| {
            fma_bits(ty, mode, (a ^ product32).into(), b.into(), (c ^ addend32).into()) as u32
        }),
    }
}

pub(super) fn fma_bits(ty: FloatType, mode: FloatMode, a: u64, b: u64, c: u64) -> u64 {
    let [a, b, c] = [a, b, c].map(|bits| mode.operand(ty, bits));
    let bits = soft::fma(a, b, c, ty.format(), mode.rounding);
    let bits = flushed_as_unbounded(mode, ty, bits, |wide, widen| {
        soft::fma(widen(a), widen(b), widen(c), wide, mode.rounding)
    });
    mode.result(ty, if ty == FloatType::F64 { bits64(f64::from_bits(bits), [b, c, a]) } else { bits })
}

pub(super) fn two(r: &mut Registers, op: Float2, ty: FloatType, mode: FloatMode, d: Slot, ab: [Slot; 2], mask: u32) {
    /// The plain forms for each of the CPU's types and operations.
    macro_rules! on_cpu {
        (f64, $operator:tt, $first:ident, $second:ident) => {
            map2(r, d, ab, mask, |a: u64, b: u64| {
                bits64(f64::from_bits(a) $operator f64::from_bits(b), [$first(a, b), $second(a, b)])
            })
        };
        (f32, $operand:expr, $result:expr, $operator:tt) => {
            map2(r, d, ab, mask, |a: u32, b: u32| {
                $result(f32::from_bits($operand(a)) $operator f32::from_bits($operand(b)))
            })
        };
    }
    let same = |bits: u32| bits;
    let left = |a: u64, _: u64| a;
    let right = |_: u64, b: u64| b;
    let flushed = |value: f32| flush32(bits32(value));
    match (ty, op) {
        (FloatType::F32, Float2::Add) if mode.is(false) => on_cpu!(f32, same, bits32, +),
        (FloatType::F32, Float2::Sub) if mode.is(false) => on_cpu!(f32, same, bits32, -),
        (FloatType::F32, Float2::Mul) if mode.is(false) => on_cpu!(f32, same, bits32, *),
        (FloatType::F32, Float2::Div) if mode.is(false) => on_cpu!(f32, same, bits32, /),
        (FloatType::F32, Float2::DivFull | Float2::DivApprox) => {
            approx::quotient32(r, op == Float2::DivFull, mode.flush, d, ab, mask);
        }
        (
            FloatType::F32,
            Float2::ApproxReciprocal | Float2::ApproxDividend | Float2::FullReciprocal | Float2::FullDividend,
        ) => approx::factor_of_quotient32(r, op, mode.flush, d, ab, mask),
        (FloatType::F32, Float2::Add) if mode.is(true) => on_cpu!(f32, flush32, flushed, +),
        (FloatType::F32, Float2::Sub) if mode.is(true) => on_cpu!(f32, flush32, flushed, -),
        (FloatType::F32, Float2::Mul) if mode.is(true) => map2(r, d, ab, mask, |a: u32, b: u32| {
            let (a, b) = (f32::from_bits(flush32(a)), f32::from_bits(flush32(b)));
            flushed_by(a * b, f64::from(a) * f64::from(b))
        }),
        (FloatType::F32, Float2::Div) if mode.is(true) => map2(r, d, ab, mask, |a: u32, b: u32| {
            let (a, b) = (f32::from_bits(flush32(a)), f32::from_bits(flush32(b)));
            flushed_by(a / b, f64::from(a) / f64::from(b))
        }),
        (FloatType::F64, Float2::Add) if mode.is(false) => on_cpu!(f64, +, right, left),
        (FloatType::F64, Float2::Sub) if mode.is(false) => on_cpu!(f64, -, right, left),
        (FloatType::F64, Float2::Mul) if mode.is(false) => on_cpu!(f64, *, right, left),
        (FloatType::F64, Float2::Div) if mode.is(false) => on_cpu!(f64, /, left, right),
        (FloatType::F32, Float2::Min) if mode.is(false) => map2(r, d, ab, mask, |a: u32, b: u32| smaller32(a, b)),
        (FloatType::F32, Float2::Max) if mode.is(false) => {
            map2(r, d, ab, mask, |a: u32, b: u32| smaller32(a ^ SIGN32, b ^ SIGN32) ^ SIGN32);
            // The NaN keeps its sign.
            map1(r, d, d, mask, |value: u32| if value == NAN32 | SIGN32 { NAN32 } else { value });
        }
        (FloatType::F64, _) => map2(r, d, ab, mask, |a: u64, b: u64| two_bits(op, ty, mode, a, b)),
        (FloatType::F16 | FloatType::Bf16, _) => half::run_two(r, op, ty, mode, false, d, ab, mask),
        _ => map2(r, d, ab, mask, |a: u32, b: u32| two_bits(op, ty, mode, a.into(), b.into()) as u32),
    }
}

/// The smaller number, as bits; a NaN gives way to a number.
#[inline(always)]
fn smaller32(a: u32, b: u32) -> u32 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    if x < y {
        a
    } else if y < x {
        b
    } else if x == y {
        // Of two zeros the negative one.
        a | b
    } else if y.is_nan() {
        if x.is_nan() { NAN32 } else { a }
    } else {
        b
    }
}

pub(super) fn two_bits(op: Float2, ty: FloatType, mode: FloatMode, a: u64, b: u64) -> u64 {
    let format = ty.format();
    let (a, b) = match ty {
        FloatType::F16 | FloatType::Bf16 => (a & 0xffff, b & 0xffff),
        _ => (a, b),
    };
    if op == Float2::CopySign {
        let sign = ty.sign();
        return b & !sign | a & sign;
    }
    let (a, b) = (mode.operand(ty, a), mode.operand(ty, b));
    let bits = match op {
        Float2::Add => soft::add(a, b, format, mode.rounding),
        Float2::Sub => soft::sub(a, b, format, mode.rounding),
        Float2::Mul => {
            let bits = soft::mul(a, b, format, mode.rounding);
            flushed_as_unbounded(mode, ty, bits, |wide, widen| soft::mul(widen(a), widen(b), wide, mode.rounding))
        }
        Float2::Div => {
            let bits = soft::div(a, b, format, mode.rounding);
            flushed_as_unbounded(mode, ty, bits, |wide, widen| soft::div(widen(a), widen(b), wide, mode.rounding))
        }
        Float2::Min | Float2::Max => extreme(op, ty, mode, a, b),
        // Signs are done with, and quotients that are approximate are those of lanes, as are their factors.
        _ => a,
    };
    let bits = match (ty, op) {
        (FloatType::F64, Float2::Add | Float2::Sub | Float2::Mul) => bits64(f64::from_bits(bits), [b, a]),
        (FloatType::F64, Float2::Div) => bits64(f64::from_bits(bits), [a, b]),
        _ => bits,
    };
    mode.result(ty, bits)
}

/// `min` and `max`.
fn extreme(op: Float2, ty: FloatType, mode: FloatMode, a: u64, b: u64) -> u64 {
    let sign = ty.sign();
    let of_both = (a ^ b) & sign;
    let (a, b) = if mode.sign_of_both { (a & !sign, b & !sign) } else { (a, b) };
    let (x, y) = (to_f64(ty, a), to_f64(ty, b));
    let first = match op {
        Float2::Min => x < y || x == y && x.is_sign_negative(),
        _ => x > y || x == y && x.is_sign_positive(),
    };
    let number = match (x.is_nan(), y.is_nan()) {
        (true, true) if ty == FloatType::F64 => return b | QUIET64,
        (true, true) => return ty.format().nan(),
        (true, _) | (_, true) if mode.keep_nan => return ty.format().nan(),
        (true, false) => b,
        (false, true) => a,
        _ if first => a,
        _ => b,
    };
    if mode.sign_of_both { number & !sign | of_both } else { number }
}

pub(super) fn one(r: &mut Registers, op: Float1, ty: FloatType, mode: FloatMode, d: Slot, a: Slot, mask: u32) {
    if ty == FloatType::F32 && approx::function32(r, op, mode.flush, d, a, mask) {
        return;
    }
    match (ty, op) {
        (FloatType::F32, Float1::Neg) if mode.is(false) => map1(r, d, a, mask, |a: u32| bits32(-f32::from_bits(a))),
        (FloatType::F32, Float1::Abs) if mode.is(false) => {
            map1(r, d, a, mask, |a: u32| bits32(f32::from_bits(a).abs()));
        }
        (FloatType::F32, Float1::Sqrt) if mode.is(false) => {
            map1(r, d, a, mask, |a: u32| bits32(f32::from_bits(a).sqrt()));
        }
        (FloatType::F32, Float1::Rcp) if mode.is(false) => {
            map1(r, d, a, mask, |a: u32| bits32(1.0 / f32::from_bits(a)));
        }
        (FloatType::F64, Float1::Neg) => map1(r, d, a, mask, |a: u64| bits64(-f64::from_bits(a), [a])),
        (FloatType::F64, Float1::Abs) => map1(r, d, a, mask, |a: u64| bits64(f64::from_bits(a).abs(), [a])),
        (FloatType::F64, Float1::Sqrt) if mode.is(false) => {
            map1(r, d, a, mask, |a: u64| bits64(f64::from_bits(a).sqrt(), [a]));
        }
        (FloatType::F64, _) => map1(r, d, a, mask, |a: u64| one_bits(op, ty, mode, a)),
        _ => map1(r, d, a, mask, |a: u32| one_bits(op, ty, mode, a.into()) as u32),
    }
}

pub(super) fn one_bits(op: Float1, ty: FloatType, mode: FloatMode, a: u64) -> u64 {
    let format = ty.format();
    let a = match ty {
        FloatType::F16 | FloatType::Bf16 => a & 0xffff,
        _ => a,
    };
    let a = mode.operand(ty, a);
    let sign = ty.sign();
    let bits = match op {
        Float1::Neg | Float1::Abs if to_f64(ty, a).is_nan() => format.nan(),
        Float1::Neg => a ^ sign,
        Float1::Abs => a & !sign,
        Float1::Sqrt => soft::sqrt(a, format, mode.rounding),
        Float1::Rcp => {
            let one = soft::convert(1f64.to_bits(), soft::F64, format, Rounding::Nearest);
            soft::div(one, a, format, mode.rounding)
        }
        op => approx::function(op, ty, mode.flush, a),
    };
    let bits = match (ty, op) {
        (FloatType::F64, Float1::Sqrt | Float1::Rcp | Float1::Rsqrt) if !mode.flush => {
            bits64(f64::from_bits(bits), [a])
        }
        _ => bits,
    };
    mode.result(ty, bits)
}

/// The lanes whose number is of that kind.
pub(super) fn test(r: &Registers, test: FloatTest, ty: FloatType, a: Slot) -> u32 {
    let holds = |class: core::num::FpCategory| {
        use core::num::FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};
        match test {
            FloatTest::Finite => matches!(class, Normal | Subnormal | Zero),
            FloatTest::Infinite => class == Infinite,
            FloatTest::Number => class != Nan,
            FloatTest::NotANumber => class == Nan,
            // Zeros count as normal.
            FloatTest::Normal => matches!(class, Normal | Zero),
            FloatTest::Subnormal => class == Subnormal,
        }
    };
    let mut held = 0;
    for lane in 0..super::lanes::LANES {
        let class = match ty {
            FloatType::F64 => f64::from_bits(r.wide[a as usize][lane]).classify(),
            _ => f32::from_bits(r.narrow[a as usize][lane]).classify(),
        };
        held |= u32::from(holds(class)) << lane;
    }
    held
}
