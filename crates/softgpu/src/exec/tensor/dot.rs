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
use crate::exec::soft::{self, F16, F32, F64, Format};

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
            part.unwrap_or_default()
        });
        let (significands, exponents) = parts.map(|part| (part.significand, part.exponent)).unzip();
        Self { significands, exponents, fraction_bits: values::fraction_bits(values.element), special }
    }
}

/// `A · B + C` for floating-point A and B, with C and the result in the type of `c`.
pub(super) fn multiply(a: &Values, b: &Values, c: &Values, columns: &Columns, numerics: &Numerics) -> Values {
    let (a_parts, b_parts) = (Parts::of(a), Parts::of(b));
    let work = Work { a, b, a_parts, b_parts, columns, element: c.element, numerics };
    let numbers = 0..a.columns;
    let (order, mut sums, group) = match numerics.order {
        Order::Stored => (numbers.collect::<Vec<_>>(), c.bits.clone(), numerics.group),
        Order::Halves => {
            let (first, second): (Vec<usize>, Vec<usize>) = numbers.partition(|number| number % 4 < 2);
            // Halves are instructions of their own.
            let group = numerics.group.min(first.len());
            ([first, second].concat(), vec![0; c.bits.len()], group)
        }
    };
    for (row, sums) in sums.chunks_exact_mut(b.columns).enumerate() {
        order.chunks(group).for_each(|group| work.add_group(row, group, sums));
    }
    if numerics.order == Order::Halves {
        for (sum, c) in sums.iter_mut().zip(&c.bits) {
            *sum = soft::add(*c, *sum, format(work.element), Rounding::Nearest);
        }
    }
    Values { element: c.element, rows: a.rows, columns: b.columns, bits: sums }
}

fn format(element: Element) -> Format {
    if element == Element::F16 { F16 } else { F32 }
}

/// A product while it is computed.
struct Work<'a> {
    a: &'a Values,
    b: &'a Values,
    a_parts: Parts,
    b_parts: Parts,
    columns: &'a Columns,
    /// The type of sums.
    element: Element,
    numerics: &'a Numerics,
}

impl Work<'_> {
    /// Adds a group of products to a row of sums.
    fn add_group(&self, row: usize, group: &[usize], sums: &mut [u64]) {
        let terms: Vec<Term> = group.iter().map(|number| self.term(row, *number)).collect();
        let special = self.a_parts.special || self.b_parts.special;
        for (number, sums) in sums.chunks_exact_mut(ABREAST).enumerate() {
            let first = number * ABREAST;
            let ends: [Option<Part>; ABREAST] =
                core::array::from_fn(|column| values::part(sums[column] as u32, self.element));
            let exact = add(self, &terms, first, &ends.map(Option::unwrap_or_default));
            for (column, sum) in sums.iter_mut().enumerate() {
                let without_number = if special || ends[column].is_none() {
                    self.special_sum(row, group, first + column, *sum)
                } else {
                    None
                };
                *sum = without_number.unwrap_or_else(|| exact[column].rounded(self.element, self.numerics));
            }
        }
    }

    fn term(&self, row: usize, number: usize) -> Term {
        let at = row * self.a.columns + number;
        Term {
            significand: self.a_parts.significands[at],
            exponent: self.a_parts.exponents[at],
            row: self.columns.of(row, number),
        }
    }

    /// What comes out where a term is infinite or no number; None where all are finite.
    fn special_sum(&self, row: usize, group: &[usize], column: usize, end: u64) -> Option<u64> {
        let products = group.iter().map(|number| {
            let factor = values::value(self.a.at(row, *number) as u32, self.a.element);
            let other = self.b.at(self.columns.of(row, *number), column);
            f64::from(factor) * f64::from(values::value(other as u32, self.b.element))
        });
        let sum = products.sum::<f64>() + f64::from(values::value(end as u32, self.element));
        (!sum.is_finite()).then(|| soft::convert(sum.to_bits(), F64, format(self.element), Rounding::Nearest))
    }
}

/// One factor of A and the row of B that it meets.
struct Term {
    significand: i32,
    exponent: i32,
    row: usize,
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
fn add_lanes(work: &Work<'_>, terms: &[Term], first: usize, ends: &[Part; ABREAST]) -> [Sum; ABREAST] {
    let (b, width, kept) = (&work.b_parts, work.b.columns, work.numerics.fraction_bits);
    let mut top: [i32; ABREAST] = core::array::from_fn(|column| ends[column].exponent);
    for term in terms.iter().filter(|term| term.significand != 0) {
        let exponents = &b.exponents[term.row * width + first..][..ABREAST];
        for (top, exponent) in top.iter_mut().zip(exponents) {
            *top = (*top).max(term.exponent + exponent);
        }
    }
    let end_bits = values::fraction_bits(work.element);
    let mut totals: [i64; ABREAST] = core::array::from_fn(|column| {
        let Part { significand, exponent } = ends[column];
        signed(aligned(significand.unsigned_abs().into(), end_bits, kept, top[column] - exponent), significand)
    });
    let product_bits = work.a_parts.fraction_bits + b.fraction_bits;
    for term in terms.iter().filter(|term| term.significand != 0) {
        let from = term.row * width + first;
        let (significands, exponents) = (&b.significands[from..][..ABREAST], &b.exponents[from..][..ABREAST]);
        for column in 0..ABREAST {
            let product = term.significand * significands[column];
            let below = top[column] - (term.exponent + exponents[column]);
            totals[column] += signed(aligned(product.unsigned_abs().into(), product_bits, kept, below), product);
        }
    }
    core::array::from_fn(|column| Sum { total: totals[column], exponent: top[column] - kept as i32 })
}

/// A magnitude with the sign of another number.
#[inline(always)]
fn signed(magnitude: u64, of: i32) -> i64 {
    let sign = i64::from(of >> 31);
    (magnitude as i64 ^ sign) - sign
}

/// Adds products of one row of A with neighbouring columns of B.
fn add(work: &Work<'_>, terms: &[Term], first: usize, ends: &[Part; ABREAST]) -> [Sum; ABREAST] {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn with_avx2(work: &Work<'_>, terms: &[Term], first: usize, ends: &[Part; ABREAST]) -> [Sum; ABREAST] {
            add_lanes(work, terms, first, ends)
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the CPU has what the function was compiled for.
            return unsafe { with_avx2(work, terms, first, ends) };
        }
    }
    add_lanes(work, terms, first, ends)
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
