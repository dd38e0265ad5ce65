//! Products of matrices that registers hold.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "registers hold the bits of the types that instructions name"
)]

use super::sparse::Columns;
use super::values::{self, Values};
use super::{dot, numerics};
use crate::exec::float::bits64;
use crate::exec::lanes::{LANES, Registers};
use crate::exec::op::{Arithmetic, Element, Multiply, Product, QuadMultiply, Reg, Rounding};
use crate::exec::soft::{self, F16, F32, F64};

/// `mma` and `wmma.mma`.
pub(super) fn multiply(r: &mut Registers, multiply: &Multiply, lanes: u32) {
    let (a, b, c) = (multiply.a.gather(r), multiply.b.gather(r), multiply.c.gather(r));
    let columns = Columns::read(r, multiply.sparsity, &a);
    let single = multiply.c.element == Element::F32 || multiply.d.element == Element::F32;
    // Where either is f32 the unit works with f32.
    let c = if single { converted(c, Element::F32) } else { c };
    let d = converted(product(&a, &b, &c, &columns, &multiply.arithmetic), multiply.d.element);
    multiply.d.scatter(r, &d, lanes);
}

/// `A · B + C` in the type of C.
pub(super) fn product(a: &Values, b: &Values, c: &Values, columns: &Columns, arithmetic: &Arithmetic) -> Values {
    let bits = match (a.element, arithmetic.product) {
        (Element::F64, _) => doubles(a, b, c, arithmetic.rounding),
        (Element::B1, product) => bit_counts(a, b, c, product),
        (Element::S8 | Element::U8 | Element::S4 | Element::U4, _) => integers(a, b, c, columns, arithmetic.saturate),
        _ => return dot::multiply(a, b, c, columns, &numerics::of(a.element, arithmetic.unit)),
    };
    Values { element: c.element, rows: c.rows, columns: c.columns, bits }
}

/// A matrix of `.f16` or `.f32` as the other type, where it is not that already.
fn converted(mut values: Values, element: Element) -> Values {
    let (from, to) = match (values.element, element) {
        (Element::F16, Element::F32) => (F16, F32),
        (Element::F32, Element::F16) => (F32, F16),
        _ => return values,
    };
    for bits in &mut values.bits {
        *bits = soft::convert(*bits, from, to, Rounding::Nearest);
    }
    values.element = element;
    values
}

/// One product after the other is added, C first.
fn doubles(a: &Values, b: &Values, c: &Values, rounding: Rounding) -> Vec<u64> {
    let mut sums = c.bits.clone();
    for (row, sums) in sums.chunks_exact_mut(c.columns).enumerate() {
        for number in 0..a.columns {
            let factor = a.at(row, number);
            for (column, sum) in sums.iter_mut().enumerate() {
                let other = b.at(number, column);
                let [x, y, z] = [factor, other, *sum].map(f64::from_bits);
                let result = match rounding {
                    Rounding::Nearest => x.mul_add(y, z),
                    rounding => f64::from_bits(soft::fma(factor, other, *sum, F64, rounding)),
                };
                *sum = bits64(result, [other, *sum, factor]);
            }
        }
    }
    sums
}

fn integers(a: &Values, b: &Values, c: &Values, columns: &Columns, saturate: bool) -> Vec<u64> {
    let (a_values, b_values) = (a.integers(), b.integers());
    let mut sums = Vec::with_capacity(c.bits.len());
    for row in 0..a.rows {
        let mut products = vec![0i32; b.columns];
        for number in 0..a.columns {
            let factor = a_values[row * a.columns + number];
            let others = &b_values[columns.of(row, number) * b.columns..][..b.columns];
            for (sum, other) in products.iter_mut().zip(others) {
                *sum += factor * other;
            }
        }
        let c = &c.bits[row * c.columns..];
        sums.extend(products.iter().zip(c).map(|(sum, c)| {
            let c = *c as i32;
            let sum = if saturate { sum.saturating_add(c) } else { sum.wrapping_add(c) };
            u64::from(sum.cast_unsigned())
        }));
    }
    sums
}

/// How many bits of a row and a column are both set, or differ.
fn bit_counts(a: &Values, b: &Values, c: &Values, product: Product) -> Vec<u64> {
    let count = |row: usize, column: usize| -> u32 {
        let counts = (0..a.columns).map(|word| {
            let (a, b) = (a.at(row, word) as u32, b.at(word, column) as u32);
            (if product == Product::Xor { a ^ b } else { a & b }).count_ones()
        });
        counts.sum()
    };
    let sums = c.bits.iter().enumerate().map(|(at, c)| {
        let sum = (*c as u32).wrapping_add(count(at / b.columns, at % b.columns));
        u64::from(sum)
    });
    sums.collect()
}

/// The operands of `mma.m8n8k4` on `.f16`, register by register.
struct Quads {
    a: Vec<[u64; LANES]>,
    b: Vec<[u64; LANES]>,
    c: Vec<[u64; LANES]>,
}

/// The lane that has a row of A or a column of B, of the eight that begin with `quad`.
fn holder(quad: usize, index: usize) -> usize {
    quad + index % 4 + index / 4 * 16
}

fn half(registers: &[[u64; LANES]], lane: usize, number: usize) -> f32 {
    values::value((registers[number / 2][lane] >> (16 * (number % 2)) & 0xffff) as u32, Element::F16)
}

impl Quads {
    fn a(&self, by_rows: bool, quad: usize, row: usize, k: usize) -> f32 {
        let (lane, number) = if by_rows { (holder(quad, row), k) } else { (quad + k + row / 4 * 16, row % 4) };
        half(&self.a, lane, number)
    }

    fn b(&self, by_rows: bool, quad: usize, k: usize, column: usize) -> f32 {
        let (lane, number) = if by_rows { (quad + k + column / 4 * 16, column % 4) } else { (holder(quad, column), k) };
        half(&self.b, lane, number)
    }

    fn c(&self, single: bool, quad: usize, row: usize, column: usize) -> f32 {
        if single {
            let (lane, number) = quad_holder(row, column);
            f32::from_bits(self.c[number][quad + lane] as u32)
        } else {
            half(&self.c, holder(quad, row), column)
        }
    }

    /// An element of the product, which the hardware no longer computes as one: the four products are a chain of
    /// `fma`, or two where all is `.f16`, and C is added to it.
    fn element(&self, multiply: &QuadMultiply, quad: usize, row: usize, column: usize) -> f32 {
        let a = |k: usize| self.a(multiply.a_by_rows, quad, row, k);
        let b = |k: usize| self.b(multiply.b_by_rows, quad, k, column);
        let [c_single, d_single] = multiply.single;
        let c = self.c(c_single, quad, row, column);
        if c_single || d_single {
            return c + (0..4).fold(0.0, |sum, k| a(k).mul_add(b(k), sum));
        }
        let pair = |k: usize| a(k + 1).mul_add(b(k + 1), a(k) * b(k));
        c + pair(0) + pair(2)
    }
}

/// `mma.m8n8k4` on `.f16`
pub(super) fn quad_multiply(r: &mut Registers, multiply: &QuadMultiply, lanes: u32) {
    let read = |registers: &[Reg]| registers.iter().map(|register| r.read(*register)).collect();
    let quads = Quads { a: read(&multiply.a), b: read(&multiply.b), c: read(&multiply.c) };
    let [_, single] = multiply.single;
    let per_register = if single { 1 } else { 2 };
    for (number, register) in multiply.d.iter().enumerate() {
        let bits = core::array::from_fn(|lane| {
            let element = |within: usize| {
                let (row, column) = quad_place(single, lane, number * per_register + within);
                let sum = quads.element(multiply, lane % 16 / 4 * 4, row, column);
                if sum.is_nan() { F32.nan() } else { sum.to_bits().into() }
            };
            if single {
                return element(0);
            }
            let half = |within: usize| soft::convert(element(within), F32, F16, Rounding::Nearest);
            half(0) | half(1) << 16
        });
        r.write(*register, lanes, &bits);
    }
}

/// Row and column of a lane's element of C or D, by its number.
fn quad_place(single: bool, lane: usize, number: usize) -> (usize, usize) {
    let upper = lane / 16 * 4;
    if single {
        (lane % 2 + upper + (number & 2), (number & 4) + (lane & 2) + (number & 1))
    } else {
        (lane % 4 + upper, number)
    }
}

/// The lane from its quad's first one on, and the number, of an `.f32` element of C.
fn quad_holder(row: usize, column: usize) -> (usize, usize) {
    let lane = row % 2 + (column & 2) + row / 4 * 16;
    (lane, (row & 2) + (column & 4) + (column & 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_hold_what_their_places_say() {
        for lane in (0..4).chain(16..20) {
            for number in 0..8 {
                let (row, column) = quad_place(true, lane, number);
                assert_eq!(quad_holder(row, column), (lane, number));
            }
        }
    }
}
