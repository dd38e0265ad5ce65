//! Products of matrices that registers hold.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "registers hold the bits of the types that instructions name"
)]

use super::sparse::Columns;
use super::values::{self, Values};
use super::{dot, numerics};
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
                *sum = match rounding {
                    Rounding::Nearest => {
                        let [x, y, z] = [factor, other, *sum].map(f64::from_bits);
                        let result = x.mul_add(y, z);
                        if result.is_nan() { F64.nan() } else { result.to_bits() }
                    }
                    rounding => soft::fma(factor, other, *sum, F64, rounding),
                };
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

/// `mma.m8n8k4` on `.f16`, which the hardware no longer has: each four products are a chain of `fma`, and C is
/// added to it.
pub(super) fn quad_multiply(r: &mut Registers, multiply: &QuadMultiply, lanes: u32) {
    let read =
        |registers: &[Reg]| -> Vec<[u64; LANES]> { registers.iter().map(|register| r.read(*register)).collect() };
    let (a, b, c) = (read(&multiply.a), read(&multiply.b), read(&multiply.c));
    let half = |registers: &[[u64; LANES]], lane: usize, number: usize| {
        let bits = registers[number / 2][lane] >> (16 * (number % 2)) & 0xffff;
        values::value(bits as u32, Element::F16)
    };
    let mut d = vec![[0u64; LANES]; multiply.d.len()];
    let [c_single, d_single] = multiply.single;
    for lane in 0..LANES {
        let quad = lane % 16 / 4 * 4;
        let holder = |index: usize| quad + index % 4 + index / 4 * 16;
        for number in 0..8 {
            let (row, column) = quad_place(d_single, lane, number);
            let a = |k: usize| {
                if multiply.a_by_rows { half(&a, holder(row), k) } else { half(&a, quad + k + row / 4 * 16, row % 4) }
            };
            let b = |k: usize| {
                if multiply.b_by_rows {
                    half(&b, quad + k + column / 4 * 16, column % 4)
                } else {
                    half(&b, holder(column), k)
                }
            };
            let c = if c_single {
                let (from, place) = quad_holder(row, column);
                f32::from_bits(c[place][quad + from] as u32)
            } else {
                half(&c, holder(row), column)
            };
            let sum = if c_single || d_single {
                let chain = (0..4).fold(0.0, |sum, k| a(k).mul_add(b(k), sum));
                c + chain
            } else {
                let pair = |k: usize| a(k + 1).mul_add(b(k + 1), a(k) * b(k));
                c + pair(0) + pair(2)
            };
            let bits = if sum.is_nan() { F32.nan() } else { sum.to_bits().into() };
            if d_single {
                d[number][lane] = bits;
            } else {
                d[number / 2][lane] |= soft::convert(bits, F32, F16, Rounding::Nearest) << (16 * (number % 2));
            }
        }
    }
    for (register, bits) in multiply.d.iter().zip(&d) {
        r.write(*register, lanes, bits);
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
