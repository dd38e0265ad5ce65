//! Sums of products as the matrix units make them.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "works on the bits of numbers whose sizes are known"
)]

use super::numerics::{Numerics, Order};
use super::sparse::Columns;
use super::values::{self, Part, Values};
use crate::exec::op::{Element, Rounding};
use crate::exec::soft::{self, F16, F32};

/// Columns that are computed side by side. All shapes have a multiple of them.
const ABREAST: usize = 8;
/// A shift by more than this leaves nothing.
const NOTHING_LEFT: u32 = 63;

/// The numbers of a matrix's elements, as arrays that loops can run over.
struct Parts {
    significands: Vec<i32>,
    exponents: Vec<i32>,
    fraction_bits: u32,
    /// Some element is infinite or no number.
    special: bool,
}

impl Parts {
    fn of(values: &Values) -> Self {
        let mut special = false;
        let parts = values.bits.iter().map(|bits| {
            let part = values::part(*bits as u32, values.element);
            special |= part.is_none();
            part.unwrap_or(Part { significand: 0, exponent: 0 })
        });
        let (significands, exponents) = parts.map(|part| (part.significand, part.exponent)).unzip();
        Self { significands, exponents, fraction_bits: values::fraction_bits(values.element), special }
    }
}

/// `A · B + C` for floating-point A and B, with C and the result in the type of `c`.
pub(super) fn multiply(a: &Values, b: &Values, c: &Values, columns: &Columns, numerics: &Numerics) -> Values {
    let (a_parts, b_parts) = (Parts::of(a), Parts::of(b));
    let stored: Vec<usize> = match numerics.order {
        Order::Stored => (0..a.columns).collect(),
        Order::Halves => {
            let (first, second): (Vec<usize>, Vec<usize>) = (0..a.columns).partition(|number| number % 4 < 2);
            first.into_iter().chain(second).collect()
        }
    };
    // Halves are instructions of their own.
    let (mut sum, group) = match numerics.order {
        Order::Stored => (c.bits.clone(), numerics.group),
        Order::Halves => (vec![0; c.bits.len()], numerics.group.min(a.columns / 2)),
    };
    let special = a_parts.special || b_parts.special;
    for row in 0..a.rows {
        for group in stored.chunks(group) {
            let terms: Vec<Term> = group.iter().map(|number| Term::new(&a_parts, a, row, *number, columns)).collect();
            for first in (0..b.columns).step_by(ABREAST) {
                let at = row * b.columns + first;
                let before: [u64; ABREAST] = core::array::from_fn(|column| sum[at + column]);
                let ends: [Option<Part>; ABREAST] = before.map(|bits| values::part(bits as u32, c.element));
                let exact = ends.map(|end| end.unwrap_or(Part { significand: 0, exponent: 0 }));
                let sums = add(
                    &terms,
                    &b_parts,
                    b.columns,
                    first,
                    &exact,
                    [a_parts.fraction_bits, values::fraction_bits(c.element)],
                    numerics,
                );
                for column in 0..ABREAST {
                    sum[at + column] = if special || ends[column].is_none() {
                        let products = group.iter().map(|number| {
                            let factor = values::value(a.at(row, *number) as u32, a.element);
                            let other = b.at(columns.of(row, *number), first + column);
                            f64::from(factor) * f64::from(values::value(other as u32, b.element))
                        });
                        let end = f64::from(values::value(before[column] as u32, c.element));
                        special_sum(products.sum::<f64>() + end, c.element)
                            .unwrap_or_else(|| sums[column].rounded(c.element, numerics))
                    } else {
                        sums[column].rounded(c.element, numerics)
                    };
                }
            }
        }
    }
    if numerics.order == Order::Halves {
        let format = if c.element == Element::F16 { F16 } else { F32 };
        for (sum, c) in sum.iter_mut().zip(&c.bits) {
            *sum = soft::add(*c, *sum, format, Rounding::Nearest);
        }
    }
    Values { element: c.element, rows: a.rows, columns: b.columns, bits: sum }
}

/// What comes out where a term is infinite or no number; None where all are finite.
fn special_sum(sum: f64, element: Element) -> Option<u64> {
    let format = if element == Element::F16 { F16 } else { F32 };
    (!sum.is_finite()).then(|| soft::convert(sum.to_bits(), soft::F64, format, Rounding::Nearest))
}

/// One factor of A and the row of B that it meets.
struct Term {
    significand: i32,
    exponent: i32,
    row: usize,
}

impl Term {
    fn new(parts: &Parts, a: &Values, row: usize, number: usize, columns: &Columns) -> Self {
        let at = row * a.columns + number;
        Self { significand: parts.significands[at], exponent: parts.exponents[at], row: columns.of(row, number) }
    }
}

/// A sum before it is rounded: `total · 2^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    total: i64,
    exponent: i32,
}

/// A number's bits where those of the largest exponent have `kept` bits behind the point.
#[inline(always)]
fn aligned(magnitude: u64, fraction_bits: u32, kept: u32, below: i32) -> u64 {
    let down = below as u32;
    if kept >= fraction_bits {
        magnitude << (kept - fraction_bits) >> down.min(NOTHING_LEFT)
    } else {
        magnitude >> (fraction_bits - kept + down).min(NOTHING_LEFT)
    }
}

#[inline(always)]
fn add_lanes(
    terms: &[Term],
    b: &Parts,
    width: usize,
    first: usize,
    ends: &[Part; ABREAST],
    [a_bits, end_bits]: [u32; 2],
    numerics: &Numerics,
) -> [Sum; ABREAST] {
    let kept = numerics.fraction_bits;
    let mut top: [i32; ABREAST] = core::array::from_fn(|column| ends[column].exponent.max(numerics.least_exponent));
    for term in terms.iter().filter(|term| term.significand != 0) {
        let exponents = &b.exponents[term.row * width + first..][..ABREAST];
        for (top, exponent) in top.iter_mut().zip(exponents) {
            *top = (*top).max(term.exponent + exponent);
        }
    }
    let mut totals = [0i64; ABREAST];
    for column in 0..ABREAST {
        let Part { significand, exponent } = ends[column];
        let magnitude = aligned(significand.unsigned_abs().into(), end_bits, kept, top[column] - exponent) as i64;
        totals[column] = if significand < 0 { -magnitude } else { magnitude };
    }
    let product_bits = a_bits + b.fraction_bits;
    for term in terms.iter().filter(|term| term.significand != 0) {
        let from = term.row * width + first;
        let (significands, exponents) = (&b.significands[from..][..ABREAST], &b.exponents[from..][..ABREAST]);
        for column in 0..ABREAST {
            let product = term.significand * significands[column];
            let below = top[column].wrapping_sub(term.exponent + exponents[column]);
            let magnitude = aligned(product.unsigned_abs().into(), product_bits, kept, below) as i64;
            let sign = i64::from(product >> 31);
            totals[column] += (magnitude ^ sign) - sign;
        }
    }
    core::array::from_fn(|column| Sum { total: totals[column], exponent: top[column] - kept as i32 })
}

/// Adds products of one row of A with neighbouring columns of B.
fn add(
    terms: &[Term],
    b: &Parts,
    width: usize,
    first: usize,
    ends: &[Part; ABREAST],
    bits: [u32; 2],
    numerics: &Numerics,
) -> [Sum; ABREAST] {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn with_avx2(
            terms: &[Term],
            b: &Parts,
            width: usize,
            first: usize,
            ends: &[Part; ABREAST],
            bits: [u32; 2],
            numerics: &Numerics,
        ) -> [Sum; ABREAST] {
            add_lanes(terms, b, width, first, ends, bits, numerics)
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function was compiled for.
            return unsafe { with_avx2(terms, b, width, first, ends, bits, numerics) };
        }
    }
    add_lanes(terms, b, width, first, ends, bits, numerics)
}

impl Sum {
    /// As a number of the result's type.
    fn rounded(self, element: Element, numerics: &Numerics) -> u64 {
        if self.total == 0 {
            return 0;
        }
        if element == Element::F16 { self.nearest_half() } else { self.cut(numerics.result_bits) }
    }

    fn nearest_half(self) -> u64 {
        soft::from_scaled(self.total < 0, self.total.unsigned_abs(), self.exponent, F16, Rounding::Nearest)
    }

    /// An `f32` with so many bits of fraction, cut off below them. Sums that are too large become infinite.
    fn cut(self, fraction_bits: u32) -> u64 {
        const BIAS: i32 = 127;
        const FRACTION_BITS: i32 = 23;
        let sign = u64::from(self.total < 0) << 31;
        let magnitude = self.total.unsigned_abs();
        let top = 63 - magnitude.leading_zeros() as i32;
        let exponent = self.exponent + top;
        if exponent > BIAS {
            return sign | 0xff << FRACTION_BITS;
        }
        // The place of the last bit that an f32 has there.
        let last = exponent.max(1 - BIAS) - FRACTION_BITS;
        let shift = last - self.exponent;
        let kept = match shift {
            64.. => 0,
            0.. => magnitude >> shift,
            _ => magnitude << -shift,
        };
        let kept = kept & !((1 << (FRACTION_BITS as u32 - fraction_bits)) - 1);
        // A subnormal number has no hidden bit, and its exponent field is 0.
        let biased = (last + FRACTION_BITS + BIAS) as u64;
        let hidden = 1 << FRACTION_BITS;
        sign | if kept < hidden { kept } else { biased << FRACTION_BITS | (kept - hidden) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(total: i64, exponent: i32, bits: u32) -> f32 {
        f32::from_bits(Sum { total, exponent }.cut(bits) as u32)
    }

    #[test]
    fn sums_are_cut_towards_zero() {
        assert_eq!(cut(3, -1, 23), 1.5);
        assert_eq!(cut(-(1 << 25) - 3, -25, 23), -1.0);
        assert_eq!(cut((1 << 25) + 7, -25, 23), 1.0 + f32::EPSILON);
        assert_eq!(cut((1 << 25) + (1 << 12) - 1, -25, 13), 1.0);
        assert_eq!(cut((1 << 25) + (1 << 12), -25, 13), 1.0 + 1.0 / 8192.0);
        assert_eq!(cut(1, 128, 23), f32::INFINITY);
        assert_eq!(cut(-1, 300, 23), f32::NEG_INFINITY);
        assert_eq!(cut(7, -151, 23), f32::from_bits(1));
        assert_eq!(cut(3, -151, 23), 0.0);
        assert_eq!(cut(1, -126, 23), f32::MIN_POSITIVE);
        assert_eq!(cut(1, -400, 23), 0.0);
    }

    #[test]
    fn alignment_cuts_below_the_last_bit() {
        assert_eq!(aligned(0b1011, 3, 5, 0), 0b10_1100);
        assert_eq!(aligned(0b1011, 3, 5, 3), 0b101);
        assert_eq!(aligned(0b1011, 3, 1, 0), 0b10);
        assert_eq!(aligned(u64::from(u32::MAX), 20, 25, 1 << 20), 0);
        assert_eq!(aligned(u64::from(u32::MAX), 23, 13, 1 << 20), 0);
    }
}
