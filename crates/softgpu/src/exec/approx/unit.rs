//! The special function unit (`MUFU` in machine code), whose results are an H200's, bit by bit.
//!
//! The upper bits of what it is given choose a segment of a function, and the lower 17 are put into a parabola, of
//! which the square is computed roughly. It has neither subnormal operands nor subnormal results, except for the
//! hyperbolic tangent, which leaves small numbers as they are.
//!
//! Functions here make no choices that a vector unit could not make for all lanes of a warp at once.
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
use core::hint::select_unpredictable as select;

/// Segments of a function: constant, slope and curve of each.
pub(super) struct Table<const SEGMENTS: usize> {
    pub(super) segments: [[i32; 3]; SEGMENTS],
    /// Constants count 2^step times.
    pub(super) step: u32,
    /// What all constants have besides.
    pub(super) rest: i32,
    /// Curves count 2^curve times.
    pub(super) curve: u32,
}

/// Bits of an `f32` behind the point.
const FRACTION: u32 = 23;
const FRACTION_MASK: u32 = (1 << FRACTION) - 1;
/// Bits that are put into the parabola.
const LOWER: u32 = 17;
/// What an exponent of zero is stored as.
const BIAS: i32 = 127;
const INFINITY: i32 = 0xff << FRACTION;
const SMALLEST_NORMAL: i32 = 1 << FRACTION;

/// Where in a table a fraction of 23 bits is, of which there are 64 segments from `first` on.
#[inline(always)]
fn place(first: u32, fraction: u32) -> (u32, u32) {
    (first + (fraction >> LOWER), fraction & ((1 << LOWER) - 1))
}

impl<const SEGMENTS: usize> Table<SEGMENTS> {
    /// Constant, slope and curve. No number leads out of a table, which a loop over lanes need not test.
    #[inline(always)]
    fn segment(&self, segment: u32) -> [i32; 3] {
        self.segments[(segment as usize).min(SEGMENTS - 1)]
    }

    /// The value, which has at most 42 bits: all that is computed on the way is exact.
    #[inline(always)]
    fn at(&self, (segment, x): (u32, u32)) -> f64 {
        let [constant, slope, curve] = self.segment(segment).map(f64::from);
        let [step, curve_step] = [self.step, self.curve].map(|step| f64::from(1u32 << step));
        let [x, square] = [x, rough_square(x)].map(|bits| f64::from(bits as i32));
        constant * step + f64::from(self.rest) + slope * x + curve * curve_step * square
    }

    /// The value without its lowest bits, where so many of them are that 24 or one more are left. Its low word, which
    /// may overflow on the way, and a value nearby are enough to know it.
    #[inline(always)]
    fn leading(&self, (segment, x): (u32, u32), lowest: u32) -> i32 {
        /// Slopes have 17 bits: so many of x do not matter for a value nearby.
        const UNSEEN: u32 = 3;
        let [constant, slope, curve] = self.segment(segment);
        let square = (rough_square(x) << self.curve) as i32;
        let x = x as i32;
        let products = slope.wrapping_mul(x).wrapping_add(curve.wrapping_mul(square));
        let low_word = (constant << self.step).wrapping_add(self.rest).wrapping_add(products);
        let nearby = (constant >> (lowest - self.step)) + ((slope * (x >> UNSEEN)) >> (lowest - UNSEEN));
        nearby + ((low_word >> lowest).wrapping_sub(nearby) << lowest >> lowest)
    }
}

/// x² / 2^19 of 17 bits, where products of two bits below 2^18 are left out: those of the upper eight bits are all there,
/// of the others only what a row of the multiplication has left after it was cut off.
#[inline(always)]
fn rough_square(x: u32) -> u32 {
    const UPPER: u32 = 9;
    let upper = x >> UPPER;
    let row = |bit: u32| upper >> (UPPER - bit) & (x >> bit & 1).wrapping_neg();
    let rows: u32 = (2..UPPER).map(row).sum();
    (upper * upper + 2 * rows) >> 1
}

/// Exponent and fraction of a normal number.
#[inline(always)]
fn parts(a: f32) -> (i32, u32) {
    let bits = a.to_bits();
    ((bits >> FRACTION & 0xff) as i32 - BIAS, bits & FRACTION_MASK)
}

/// The number of these 24 bits, of which the first is that of so many; zero where it would be subnormal. A 25th is that
/// of the next power of two.
#[inline(always)]
fn number(leading: i32, exponent: i32) -> i32 {
    // The first bit counts as one more in the exponent. Who has an exponent beyond all numbers takes something else.
    let bits = leading.wrapping_add((exponent + BIAS - 1) << FRACTION);
    select(bits < SMALLEST_NORMAL, 0, bits)
}

/// The nearest `f32` that is no further from zero.
#[inline(always)]
pub(super) fn cut(value: f64) -> f32 {
    let nearest = value as f32;
    let is_beyond = f64::from(nearest).abs() > value.abs();
    f32::from_bits(nearest.to_bits() - u32::from(is_beyond))
}

/// What has no place in a table: of zeros and subnormal numbers, of infinity, of NaNs.
#[inline(always)]
fn with_special(a: f32, bits: i32, of_zero: i32, of_infinity: i32) -> f32 {
    let magnitude = a.abs();
    let bits = select(magnitude < f32::MIN_POSITIVE, of_zero, bits);
    let bits = select(magnitude == f32::INFINITY, of_infinity, bits);
    select(a.is_nan(), a, f32::from_bits(bits as u32))
}

/// Roots have no result for negative numbers, but for those that are taken for zero.
#[inline(always)]
fn without_negative(a: f32, result: f32) -> f32 {
    select(a <= -f32::MIN_POSITIVE, f32::NAN, result)
}

/// 1/a
#[inline(always)]
pub(super) fn reciprocal(a: f32) -> f32 {
    let (exponent, fraction) = parts(a);
    // Twice as many segments as other functions have, so one bit less in each.
    let leading = RECIPROCAL.leading((fraction >> (LOWER - 1), (fraction & 0xffff) << 1), 16);
    with_special(a, number(leading, -1 - exponent), INFINITY, 0).copysign(a)
}

/// For roots: the exponent's lowest bit, half of the rest, and the first segment for that bit.
#[inline(always)]
fn halved(exponent: i32) -> (i32, i32, u32) {
    let odd = exponent & 1;
    (odd, exponent >> 1, odd as u32 * 64)
}

/// 1/√a
#[inline(always)]
pub(super) fn reciprocal_root(a: f32) -> f32 {
    let (exponent, fraction) = parts(a);
    let (odd, half, first) = halved(exponent);
    // The table would give a little less than one for one.
    let is_power_of_four = (odd == 0) & (fraction == 0);
    let leading = RECIPROCAL_ROOT.leading(place(first, fraction), 16);
    let leading = select(is_power_of_four, 1 << 24, leading);
    without_negative(a, with_special(a, number(leading, -1 - half), INFINITY, 0).copysign(a))
}

/// √a
#[inline(always)]
pub(super) fn root(a: f32) -> f32 {
    let (exponent, fraction) = parts(a);
    let (_, half, first) = halved(exponent);
    let leading = ROOT.leading(place(first, fraction), 17);
    without_negative(a, with_special(a, number(leading, half), 0, INFINITY).copysign(a))
}

/// 2^a, of an exponent in steps of 2^-23. Numbers are negated by taking the complement of all bits.
#[inline(always)]
pub(super) fn power_of_two(a: f32) -> f32 {
    /// Exponents have seven bits before the point.
    const TOO_LARGE: f32 = 128.0;
    const STEPS: f32 = (1 << FRACTION) as f32;
    let steps = (a.abs() * STEPS) as i32;
    let is_whole = steps as u32 & FRACTION_MASK == 0;
    let negated = select(is_whole, steps.wrapping_neg(), !steps);
    let steps = select(a < 0.0, negated, steps);
    let leading = POWER.leading(place(0, steps as u32 & FRACTION_MASK), 15);
    let power = f32::from_bits(number(leading, steps >> FRACTION) as u32);
    let power = select(a >= TOO_LARGE, f32::INFINITY, power);
    let power = select(a <= -TOO_LARGE, 0.0, power);
    select(a.is_nan(), a, power)
}

/// The binary logarithm in steps of 2^-36.
#[inline(always)]
pub(super) fn logarithm(a: f32) -> f32 {
    const STEPS: f64 = (1u64 << 36) as f64;
    let (exponent, fraction) = parts(a);
    // The table would give a little more than nothing for one.
    let behind = select(a == 1.0, 0.0, (LOGARITHM.at(place(0, fraction)) / 4.0).floor());
    let steps = f64::from(exponent) * STEPS + behind;
    let magnitude = select(steps < 0.0, -1.0 - steps, steps);
    let result = cut(magnitude / STEPS).copysign(steps as f32);
    without_negative(a, with_special(a, result.to_bits() as i32, f32::NEG_INFINITY.to_bits() as i32, INFINITY))
}

/// The sine of so many turns, a quarter more for the cosine.
#[inline(always)]
fn sine_of_turns(turns: f32, quarters: u32, is_negative: bool) -> f32 {
    const STEPS: f64 = (1 << 25) as f64;
    /// What a table's values are in.
    const UNIT: f64 = (1u64 << 37) as f64;
    let turns = f64::from(turns.abs());
    let steps = ((turns - turns.floor()) * STEPS) as i32 as u32;
    let quadrant = (steps >> FRACTION) + quarters;
    let fraction = select(quadrant & 1 == 1, !steps, steps) & FRACTION_MASK;
    let is_negative = (quadrant >> 1 & 1 == 1) != is_negative;
    let sine = cut(SINE.at(place(0, fraction)) / UNIT).copysign(select(is_negative, -1.0, 1.0));
    select(turns.is_finite(), sine, f32::NAN)
}

#[inline(always)]
pub(super) fn sine(turns: f32) -> f32 {
    sine_of_turns(turns, 0, turns.is_sign_negative())
}

#[inline(always)]
pub(super) fn cosine(turns: f32) -> f32 {
    sine_of_turns(turns, 1, false)
}

/// The hyperbolic tangent.
#[inline(always)]
pub(super) fn tangent(a: f32) -> f32 {
    /// From this power of two on there are so many bits that choose a segment, up to the next one and so on.
    const FIRST: i32 = -8;
    const RANGES: usize = 11;
    const SEGMENT_BITS: [u32; RANGES] = [0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3];
    /// The segments of all that is below a range.
    const BELOW: [u32; RANGES] = {
        let mut below = [0; RANGES];
        let mut range = 1;
        while range < RANGES {
            below[range] = below[range - 1] + (1 << SEGMENT_BITS[range - 1]);
            range += 1;
        }
        below
    };
    /// What a table's values are in.
    const UNIT: f64 = (1u64 << 40) as f64;
    let (exponent, fraction) = parts(a);
    let range = exponent - FIRST;
    let known = range.clamp(0, RANGES as i32 - 1) as usize;
    let fraction = fraction >> (FRACTION - LOWER - SEGMENT_BITS[known]);
    let tangent = cut(TANGENT.at(place(BELOW[known], fraction)) / UNIT);
    let tangent = select(range < RANGES as i32, tangent, 1.0).copysign(a);
    select((range < 0) | a.is_nan(), a, tangent)
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

    /// What is known from a low word and a value nearby is what all bits give.
    #[test]
    fn leading_bits_are_those_of_the_value() {
        fn check<const SEGMENTS: usize>(table: &Table<SEGMENTS>, lowest: u32) {
            for segment in 0..SEGMENTS as u32 {
                // Both ends, and a number that is coprime to what lies between.
                for x in (0..1 << LOWER).step_by(37).chain([(1 << LOWER) - 1]) {
                    let value = table.at((segment, x)) as i64;
                    assert_eq!(i64::from(table.leading((segment, x), lowest)), value >> lowest, "{segment}, {x:#x}");
                }
            }
        }
        check(&RECIPROCAL, 16);
        check(&RECIPROCAL_ROOT, 16);
        check(&ROOT, 17);
        check(&POWER, 15);
    }

    /// A function has segments for all numbers, and a NaN for nothing but where there is no result.
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
