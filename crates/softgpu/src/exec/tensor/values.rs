//! Matrices as numbers that can be multiplied.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "elements are small, and seen as the type that the instruction names"
)]

use crate::exec::op::{Element, Fp8, Rounding};
use crate::exec::soft::{self, F16, F32};

/// The lower bits of a register that do not count for `.tf32`.
const TF32_UNUSED_BITS: u32 = 13;

/// The exponent of zero, which no other number's sum of exponents comes near to.
const ZERO: i32 = -(1 << 20);

/// `significand · 2^(exponent - fraction bits)`, with a significand below 2 once its fraction bits are behind the
/// point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Part {
    pub(super) significand: i32,
    pub(super) exponent: i32,
}

/// How a floating-point element is laid out.
#[derive(Debug, Clone, Copy)]
struct Layout {
    exponent_bits: u32,
    fraction_bits: u32,
    /// The largest exponent is that of numbers, all but the very last one, which is NaN.
    finite: bool,
}

fn layout(element: Element) -> Layout {
    let (exponent_bits, fraction_bits) = match element {
        Element::F16 => (5, 10),
        Element::Bf16 => (8, 7),
        Element::Tf32 => (8, 10),
        Element::E4m3 => (4, 3),
        Element::E5m2 => (5, 2),
        _ => (8, 23),
    };
    Layout { exponent_bits, fraction_bits, finite: element == Element::E4m3 }
}

/// How many bits a significand has behind the point.
pub(super) fn fraction_bits(element: Element) -> u32 {
    layout(element).fraction_bits
}

/// Takes a floating-point element apart; None where it is infinite or no number.
pub(super) fn part(bits: u32, element: Element) -> Option<Part> {
    let Layout { exponent_bits, fraction_bits, finite } = layout(element);
    let bits = if element == Element::Tf32 { bits >> TF32_UNUSED_BITS } else { bits };
    let largest = (1 << exponent_bits) - 1;
    let biased = bits >> fraction_bits & largest;
    let fraction = bits & ((1 << fraction_bits) - 1);
    if biased == largest && (!finite || fraction == (1 << fraction_bits) - 1) {
        return None;
    }
    let magnitude = (fraction | u32::from(biased != 0) << fraction_bits) as i32;
    let negative = bits >> (exponent_bits + fraction_bits) & 1 != 0;
    let exponent = biased.max(1) as i32 - (largest >> 1) as i32;
    Some(Part {
        significand: if negative { -magnitude } else { magnitude },
        exponent: if magnitude == 0 { ZERO } else { exponent },
    })
}

/// A floating-point element's value, which has room in an `f32` whatever its type.
pub(super) fn value(bits: u32, element: Element) -> f32 {
    match element {
        Element::F16 => f32::from_bits(soft::convert(bits.into(), F16, F32, Rounding::Nearest) as u32),
        Element::Bf16 => f32::from_bits(bits << 16),
        Element::E4m3 => value(Fp8::E4m3.to_half(bits, false), Element::F16),
        Element::E5m2 => value(Fp8::E5m2.to_half(bits, false), Element::F16),
        // Without the bits that do not count, a NaN may be an infinity.
        Element::Tf32 => f32::from_bits(bits >> TF32_UNUSED_BITS << TF32_UNUSED_BITS),
        _ => f32::from_bits(bits),
    }
}

/// A matrix, row by row: the numbers of its elements, and what is the same for all of them.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) element: Element,
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// As registers or memory have them.
    pub(super) bits: Vec<u64>,
}

impl Values {
    pub(super) fn new(element: Element, rows: usize, columns: usize) -> Self {
        Self { element, rows, columns, bits: vec![0; rows * columns] }
    }

    pub(super) fn at(&self, row: usize, column: usize) -> u64 {
        self.bits[row * self.columns + column]
    }

    pub(super) fn set(&mut self, row: usize, column: usize, bits: u64) {
        self.bits[row * self.columns + column] = bits;
    }

    /// The same matrix times -1. Nothing but floating-point numbers can be negated.
    pub(super) fn negate(&mut self) {
        let sign = 1 << (self.element.bits() - 1);
        self.bits.iter_mut().for_each(|bits| *bits ^= sign);
    }

    /// An element as an integer.
    pub(super) fn integers(&self) -> Vec<i32> {
        let integer = |bits: u64| match self.element {
            Element::S8 => i32::from(bits as i8),
            Element::U8 => i32::from(bits as u8),
            Element::S4 => i32::from((bits << 4) as i8 >> 4),
            Element::U4 => (bits & 15) as i32,
            _ => bits as i32,
        };
        self.bits.iter().map(|bits| integer(*bits)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A part as a number.
    fn number(bits: u32, element: Element) -> Option<f64> {
        let part = part(bits, element)?;
        Some(f64::from(part.significand) * 2f64.powi((part.exponent - fraction_bits(element) as i32).max(-1000)))
    }

    #[test]
    fn parts_and_values_are_the_same_numbers() {
        for (element, bits) in [(Element::F16, 16), (Element::Bf16, 16), (Element::E4m3, 8), (Element::E5m2, 8)] {
            for bits in 0..1u32 << bits {
                let value = f64::from(value(bits, element));
                match number(bits, element) {
                    Some(number) => assert_eq!(number.abs(), value.abs(), "{element:?} {bits:#x}"),
                    None => assert!(!value.is_finite(), "{element:?} {bits:#x}"),
                }
            }
        }
    }

    #[test]
    fn small_formats_have_their_extremes() {
        assert_eq!(value(0x7e, Element::E4m3), 448.0);
        assert_eq!(value(0x01, Element::E4m3), 1.0 / 512.0);
        assert!(value(0xff, Element::E4m3).is_nan());
        assert_eq!(value(0x7b, Element::E5m2), 57344.0);
        assert_eq!(value(0xfc, Element::E5m2), f32::NEG_INFINITY);
        assert_eq!(number(0x3f80_1fff, Element::Tf32), Some(1.0));
        assert_eq!(value(0x7f80_0001, Element::Tf32), f32::INFINITY);
    }

    #[test]
    fn integers_have_their_signs() {
        let integers = |element, bits| Values { element, rows: 1, columns: 1, bits: vec![bits] }.integers()[0];
        assert_eq!(integers(Element::S8, 0xff), -1);
        assert_eq!(integers(Element::U8, 0xff), 255);
        assert_eq!(integers(Element::S4, 0x8), -8);
        assert_eq!(integers(Element::U4, 0xf), 15);
    }
}
