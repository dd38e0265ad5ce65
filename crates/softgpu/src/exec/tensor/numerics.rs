//! How the matrix units of a Hopper GPU round. What is measured on one belongs here.
//!
//! Products are exact. A group of them and the sum so far are aligned to the largest exponent among them, cut off
//! some bits below that exponent's one, and added exactly; the sum is cut to the result's precision, or rounded to
//! nearest where that is `.f16`. An exponent is that of the factors: a product of 1.5 and 1.5 counts as 2⁰; zeros have
//! none, however small the rest is.
//!
//! The numbers are those of published measurements: Fasi, Higham, Mikaitis and Pranesh (2021), Xie and others
//! (MMA-Sim, 2025), Khattak and Mikaitis (2025); an H200 confirmed them (`instructions --rounding`). What `ptxas` makes of the instructions that the hardware does not
//! have is read off its output.

use crate::exec::op::{Element, Unit};

/// How one instruction adds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Numerics {
    /// Bits that a term keeps below the one of the largest exponent.
    pub(super) fraction_bits: u32,
    /// How many products are added at once.
    pub(super) group: usize,
    /// The bits of an `.f32` result's fraction.
    pub(super) result_bits: u32,
    /// In which order products are taken.
    pub(super) order: Order,
}

/// In which order an instruction takes its products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As they are stored, C first.
    Stored,
    /// Made of two instructions for halves: the first two of each four, then the others, and C at the very end,
    /// rounded to nearest.
    Halves,
}

const WARP: Numerics = Numerics { fraction_bits: 25, group: 16, result_bits: 23, order: Order::Stored };

/// How products of elements of such types are added up.
pub(super) fn of(element: Element, unit: Unit) -> Numerics {
    match (element, unit) {
        (Element::E4m3 | Element::E5m2, Unit::WarpGroup) => {
            Numerics { fraction_bits: 13, group: 32, result_bits: 13, ..WARP }
        }
        (Element::E4m3 | Element::E5m2, Unit::Warp) => Numerics { order: Order::Halves, ..WARP },
        (Element::Tf32, _) => Numerics { group: 8, ..WARP },
        _ => WARP,
    }
}
