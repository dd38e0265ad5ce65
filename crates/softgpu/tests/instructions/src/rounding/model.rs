//! What instructions may do with their sums.

use super::format::{F32, Format, Rounding, shifted};
use super::kind::Kind;
use super::probe::Probe;
use std::fmt;

/// In which order products are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
    /// The first two of each four, then the others.
    Halves,
    /// The even ones, then the odd ones.
    Interleaved,
}

/// Where C is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Addend {
    /// With the first products.
    First,
    /// To the sum of all products, rounded to nearest.
    Last,
}

/// Which exponent a product is aligned by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exponent {
    /// The sum of its factors' ones.
    Factors,
    /// Its own.
    Product,
}

/// One way to add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hypothesis {
    /// How many products are added at once.
    pub(super) group: usize,
    /// Bits that terms keep below the largest exponent; None for a chain of fused multiply-adds.
    pub(super) fraction_bits: Option<u32>,
    pub(super) term: Rounding,
    pub(super) exponent: Exponent,
    pub(super) result: Rounding,
    /// Bits of a result's fraction.
    pub(super) result_bits: u32,
    pub(super) order: Order,
    pub(super) addend: Addend,
}

impl fmt::Display for Hypothesis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, term, exponent, result, result_bits, order, addend, .. } = self;
        match self.fraction_bits {
            None => write!(formatter, "fma one by one, ")?,
            Some(bits) => write!(
                formatter,
                "{group} at once, {bits} bits below the largest exponent ({exponent:?}), cut {term:?}, "
            )?,
        }
        write!(formatter, "result {result_bits} bits {result:?}, {order:?}, C {addend:?}")
    }
}

const ORDERS: [Order; 4] = [Order::Ascending, Order::Descending, Order::Halves, Order::Interleaved];

/// All that is worth asking about an instruction, the likeliest first.
pub(super) fn hypotheses(kind: &Kind) -> Vec<Hypothesis> {
    let precision = kind.result.fraction_bits;
    let chain = |order, addend, result| Hypothesis {
        group: 1,
        fraction_bits: None,
        term: Rounding::Zero,
        exponent: Exponent::Factors,
        result,
        result_bits: precision,
        order,
        addend,
    };
    let mut all = Vec::new();
    for order in ORDERS {
        for addend in [Addend::First, Addend::Last] {
            all.push(chain(order, addend, Rounding::Nearest));
            if !kind.is_double() {
                all.push(chain(order, addend, Rounding::Zero));
            }
        }
    }
    if kind.is_double() {
        return all;
    }
    for group in [32, 16, 8, 4, 2] {
        if group > kind.products {
            continue;
        }
        for fraction_bits in 10..=30 {
            // An f16 result never shows how many bits an f32 one would keep.
            let kept = if kind.result == F32 { vec![precision, fraction_bits.min(precision)] } else { vec![precision] };
            for (at, result_bits) in kept.iter().enumerate() {
                if at > 0 && *result_bits == precision {
                    continue;
                }
                for template in variants() {
                    all.push(Hypothesis {
                        group,
                        fraction_bits: Some(fraction_bits),
                        result_bits: *result_bits,
                        ..template
                    });
                }
            }
        }
    }
    all
}

/// All combinations of what has few possibilities.
fn variants() -> Vec<Hypothesis> {
    let mut all = Vec::new();
    for order in ORDERS {
        for addend in [Addend::First, Addend::Last] {
            for result in [Rounding::Zero, Rounding::Nearest] {
                for term in [Rounding::Zero, Rounding::Down, Rounding::Nearest] {
                    for exponent in [Exponent::Factors, Exponent::Product] {
                        all.push(Hypothesis {
                            group: 0,
                            fraction_bits: None,
                            term,
                            exponent,
                            result,
                            result_bits: 0,
                            order,
                            addend,
                        });
                    }
                }
            }
        }
    }
    all
}

/// A term of a sum: `significand · 2^(exponent - fraction_bits)`.
struct Term {
    significand: i128,
    exponent: i32,
    fraction_bits: i32,
}

impl Hypothesis {
    /// What the instruction gives if this is what it does.
    pub(super) fn predict(&self, kind: &Kind, probe: &Probe) -> u64 {
        let numbers = 0..probe.a.len();
        let order: Vec<usize> = match self.order {
            Order::Ascending => numbers.collect(),
            Order::Descending => numbers.rev().collect(),
            Order::Halves => ordered(numbers, |number| number % 4 < 2),
            Order::Interleaved => ordered(numbers, |number| number % 2 == 0),
        };
        if kind.is_double() {
            return self.predict_double(probe, &order);
        }
        let format = kind.result;
        let mut sum = if self.addend == Addend::First { probe.c } else { 0 };
        // Parts of an instruction are not larger than the instruction's parts.
        let group = if self.order == Order::Ascending { self.group } else { self.group.min(order.len() / 2) };
        for numbers in order.chunks(group.max(1)) {
            let mut terms: Vec<Term> = numbers.iter().map(|number| self.term(kind, probe, *number)).collect();
            terms.push(term(format, sum));
            sum = self.add(&terms, format);
        }
        if self.addend == Addend::Last {
            let exact =
                Self { fraction_bits: None, result: Rounding::Nearest, result_bits: format.fraction_bits, ..*self };
            sum = exact.add(&[term(format, probe.c), term(format, sum)], format);
        }
        sum
    }

    /// A chain of the CPU's own fused multiply-adds.
    fn predict_double(&self, probe: &Probe, order: &[usize]) -> u64 {
        let [first, last] = match self.addend {
            Addend::First => [f64::from_bits(probe.c), 0.0],
            Addend::Last => [0.0, f64::from_bits(probe.c)],
        };
        let chain = order
            .iter()
            .fold(first, |sum, number| f64::from_bits(probe.a[*number]).mul_add(f64::from_bits(probe.b[*number]), sum));
        (chain + last).to_bits()
    }

    fn term(&self, kind: &Kind, probe: &Probe, number: usize) -> Term {
        let (a, b) = (kind.a.part(probe.a[number]), kind.b.part(probe.b[number]));
        let mut fraction_bits = signed(kind.a.fraction_bits + kind.b.fraction_bits);
        let mut exponent = a.exponent + b.exponent;
        let significand = a.significand * b.significand;
        if self.exponent == Exponent::Product && significand.unsigned_abs() >> (fraction_bits + 1) != 0 {
            fraction_bits += 1;
            exponent += 1;
        }
        Term { significand, exponent, fraction_bits }
    }

    /// The sum of terms, as a number.
    fn add(&self, terms: &[Term], format: Format) -> u64 {
        let present = || terms.iter().filter(|term| term.significand != 0);
        let Some(top) = present().map(|term| term.exponent).max() else { return 0 };
        // Exactly where nothing is cut: no term reaches further down than this.
        let exact = present().map(|term| top - term.exponent + term.fraction_bits).max().unwrap_or(0);
        let kept = self.fraction_bits.map_or(exact, signed);
        let aligned = present()
            .map(|term| shifted(term.significand, term.fraction_bits + (top - term.exponent) - kept, self.term));
        format.round(aligned.sum(), top - kept, self.result_bits, self.result)
    }
}

fn ordered(numbers: core::ops::Range<usize>, first: impl Fn(&usize) -> bool) -> Vec<usize> {
    let (first, second): (Vec<usize>, Vec<usize>) = numbers.partition(first);
    [first, second].concat()
}

fn term(format: Format, bits: u64) -> Term {
    let part = format.part(bits);
    Term { significand: part.significand, exponent: part.exponent, fraction_bits: signed(format.fraction_bits) }
}

fn signed(bits: u32) -> i32 {
    i32::try_from(bits).unwrap_or_default()
}
