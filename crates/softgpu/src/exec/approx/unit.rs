//! The special function unit (`MUFU` in machine code), whose results are an H200's, bit by bit.
//!
//! The upper bits of what it is given choose a segment of a function, and the lower 17 are put into a parabola, of
//! which the square is computed roughly. It has neither subnormal operands nor subnormal results, except for the
//! hyperbolic tangent, which leaves small numbers as they are.
//!
//! How such a unit is built is told by Oberman and Siu, "A High-Performance Area-Efficient Multifunction Interpolator"
//! (2005), and how the first CUDA GPUs had it by the project envytools; an H200's tables were found from its own results.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "fractions have 23 bits, and values of segments fewer than an f64 has"
)]

use super::tables::{LOGARITHM, POWER, RECIPROCAL, RECIPROCAL_ROOT, ROOT, SINE, TANGENT};
use core::num::FpCategory::{Infinite, Nan, Normal, Subnormal, Zero};

/// Segments of a function: constant, slope and curve of each.
pub(super) struct Table {
    pub(super) segments: &'static [[i32; 3]],
    /// Constants count 2^step times.
    pub(super) step: u32,
    /// What all constants have besides.
    pub(super) rest: i64,
    /// Curves count 2^curve times.
    pub(super) curve: u32,
}

/// Bits of an `f32` behind the point.
const FRACTION: u32 = 23;
/// Bits that are put into the parabola.
const LOWER: u32 = 17;

impl Table {
    fn at(&self, segment: u32, x: u32) -> i64 {
        let [constant, slope, curve] = self.segments[segment as usize].map(i64::from);
        let rough_square = i64::from(rough_square(x)) << self.curve;
        (constant << self.step) + self.rest + slope * i64::from(x) + curve * rough_square
    }

    /// By a fraction of 23 bits, where there are 64 segments from `first` on.
    fn at_fraction(&self, first: u32, fraction: u32) -> i64 {
        self.at(first + (fraction >> LOWER), fraction & ((1 << LOWER) - 1))
    }
}

/// x² / 2^19 of 17 bits, where products of two bits below 2^18 are left out: those of the upper eight bits are all there,
/// of the others only what a row of the multiplication has left after it was cut off.
fn rough_square(x: u32) -> u32 {
    const UPPER: u32 = 9;
    let upper = x >> UPPER;
    let row = |bit: u32| upper >> (UPPER - bit) & (x >> bit & 1).wrapping_neg();
    let rows: u32 = (2..UPPER).map(row).sum();
    (upper * upper + 2 * rows) >> 1
}

/// Exponent and fraction of a normal number.
fn parts(a: f32) -> (i32, u32) {
    let bits = a.to_bits();
    ((bits >> FRACTION & 0xff) as i32 - 127, bits & ((1 << FRACTION) - 1))
}

/// A value times a power of two that is one of `f64`, cut off; zero where the result would be subnormal.
fn scaled(value: i64, exponent: i32) -> f32 {
    let power = f64::from_bits(((exponent + 1023) as u64) << 52);
    let exact = value as f64 * power;
    if exact < f64::from(f32::MIN_POSITIVE) { 0.0 } else { cut(exact) }
}

/// The nearest `f32` that is no further from zero.
pub(super) fn cut(value: f64) -> f32 {
    let nearest = value as f32;
    let is_beyond = f64::from(nearest).abs() > value.abs();
    if is_beyond { f32::from_bits(nearest.to_bits() - 1) } else { nearest }
}

/// 1/a
pub(super) fn reciprocal(a: f32) -> f32 {
    let result = match a.classify() {
        Nan => return a,
        Infinite => 0.0,
        Zero | Subnormal => f32::INFINITY,
        Normal => {
            let (exponent, fraction) = parts(a);
            let value = RECIPROCAL.at(fraction >> 16, (fraction & 0xffff) << 1);
            scaled(value >> 16, -24 - exponent)
        }
    };
    result.copysign(a)
}

/// For roots: the exponent's lowest bit, half of the rest, and the first segment for that bit.
fn halved(exponent: i32) -> (i32, i32, u32) {
    let odd = exponent & 1;
    (odd, (exponent - odd) / 2, odd as u32 * 64)
}

/// 1/√a
pub(super) fn reciprocal_root(a: f32) -> f32 {
    match a.classify() {
        Zero | Subnormal => f32::INFINITY.copysign(a),
        _ if a.is_sign_negative() => f32::NAN,
        Nan => a,
        Infinite => 0.0,
        Normal => {
            let (exponent, fraction) = parts(a);
            let (odd, half, first) = halved(exponent);
            // The table would give a little less than one for one.
            let is_power_of_four = odd == 0 && fraction == 0;
            let value = if is_power_of_four { 1 << 40 } else { RECIPROCAL_ROOT.at_fraction(first, fraction) };
            scaled(value >> 16, -24 - half)
        }
    }
}

/// √a
pub(super) fn root(a: f32) -> f32 {
    match a.classify() {
        Zero | Subnormal => 0f32.copysign(a),
        _ if a.is_sign_negative() => f32::NAN,
        Nan | Infinite => a,
        Normal => {
            let (exponent, fraction) = parts(a);
            let (_, half, first) = halved(exponent);
            scaled(ROOT.at_fraction(first, fraction) >> 17, -23 + half)
        }
    }
}

/// 2^a, of an exponent in steps of 2^-23. Numbers are negated by taking the complement of all bits.
pub(super) fn power_of_two(a: f32) -> f32 {
    /// Exponents have seven bits before the point.
    const TOO_LARGE: f32 = 128.0;
    if a.is_nan() {
        return a;
    }
    if a.abs() >= TOO_LARGE {
        return if a > 0.0 { f32::INFINITY } else { 0.0 };
    }
    let steps = (f64::from(a.abs()) * f64::from(1u32 << FRACTION)) as i32;
    let is_whole = steps & ((1 << FRACTION) - 1) == 0;
    let steps = match (a < 0.0, is_whole) {
        (false, _) => steps,
        (true, true) => -steps,
        (true, false) => !steps,
    };
    let value = POWER.at_fraction(0, steps as u32 & ((1 << FRACTION) - 1));
    scaled(value >> 15, (steps >> FRACTION) - 23)
}

/// The binary logarithm in steps of 2^-36.
pub(super) fn logarithm(a: f32) -> f32 {
    const STEPS: u32 = 36;
    match a.classify() {
        Zero | Subnormal => f32::NEG_INFINITY,
        _ if a.is_sign_negative() => f32::NAN,
        Nan | Infinite => a,
        Normal => {
            let (exponent, fraction) = parts(a);
            // The table would give a little more than nothing for one.
            let behind = if a == 1.0 { 0 } else { LOGARITHM.at_fraction(0, fraction) >> 2 };
            let steps = (i64::from(exponent) << STEPS) + behind;
            let (magnitude, sign) = if steps < 0 { (!steps, -1.0) } else { (steps, 1.0) };
            cut(magnitude as f64 / (1u64 << STEPS) as f64).copysign(sign)
        }
    }
}

/// The sine of so many turns, a quarter more for the cosine.
fn sine_of_turns(turns: f32, quarters: u32, is_negative: bool) -> f32 {
    const STEPS: f64 = (1 << 25) as f64;
    if !turns.is_finite() {
        return f32::NAN;
    }
    let steps = (f64::from(turns.abs()) % 1.0 * STEPS) as u32;
    let quadrant = (steps >> FRACTION) + quarters;
    let fraction = if quadrant & 1 == 1 { !steps } else { steps } & ((1 << FRACTION) - 1);
    let is_negative = (quadrant >> 1 & 1 == 1) != is_negative;
    scaled(SINE.at_fraction(0, fraction), -37).copysign(if is_negative { -1.0 } else { 1.0 })
}

pub(super) fn sine(turns: f32) -> f32 {
    sine_of_turns(turns, 0, turns.is_sign_negative())
}

pub(super) fn cosine(turns: f32) -> f32 {
    sine_of_turns(turns, 1, false)
}

/// The hyperbolic tangent.
pub(super) fn tangent(a: f32) -> f32 {
    /// From this power of two on there are so many bits that choose a segment, up to the next one and so on.
    const FIRST: i32 = -8;
    const SEGMENT_BITS: [u32; 11] = [0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3];
    let (exponent, fraction) = parts(a);
    let range = exponent - FIRST;
    if range < 0 || a.is_nan() {
        return a;
    }
    let Some(bits) = SEGMENT_BITS.get(range as usize) else { return 1f32.copysign(a) };
    let first: u32 = SEGMENT_BITS[..range as usize].iter().map(|bits| 1 << bits).sum();
    let fraction = fraction >> (FRACTION - LOWER - bits);
    let value = TANGENT.at(first + (fraction >> LOWER), fraction & ((1 << LOWER) - 1));
    scaled(value, -40).copysign(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn square_is_one_of_rows_that_are_cut_off() {
        for x in 0..1 << LOWER {
            let rows = (0..LOWER).filter(|bit| x >> bit & 1 == 1).map(|bit| x >> (18 - bit));
            assert_eq!(rough_square(x), rows.sum::<u32>() >> 1, "{x:#x}");
        }
    }

    /// No number leads out of a table.
    #[test]
    fn functions_take_every_number() {
        let functions = [reciprocal, reciprocal_root, root, power_of_two, logarithm, sine, cosine, tangent];
        for bits in (0..=u32::MAX).step_by(0x0001_2345) {
            let a = f32::from_bits(bits);
            for function in functions {
                let result = function(a);
                assert!(result.is_nan() || !a.is_nan(), "{bits:#x} gives {result}");
            }
        }
    }
}
