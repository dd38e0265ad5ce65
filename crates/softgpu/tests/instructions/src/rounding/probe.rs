//! Sums whose results tell how they were added up.

use super::format::{E4M3, E5M2, F16, Format};
use super::kind::Kind;

/// How many probes of each sort.
const EACH: usize = 48;

/// Factors and what is added to their products.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    pub(super) a: Vec<u64>,
    pub(super) b: Vec<u64>,
    pub(super) c: u64,
}

/// The same numbers in every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) ^ self.0.rotate_left(19)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap_or_default()
    }

    fn between(&mut self, least: i32, most: i32) -> i32 {
        let span = u64::try_from(most - least + 1).unwrap_or(1);
        least + i32::try_from(self.next() % span).unwrap_or_default()
    }

    /// A number whose exponent is at most so far from 0.
    fn number(&mut self, format: Format, [least, most]: [i32; 2]) -> u64 {
        let exponent = self.between(least, most);
        let bits = self.next();
        format.number(bits >> 63 != 0, exponent, bits)
    }
}

/// The exponents that factors of such a format can have here.
fn range(format: Format, narrow: bool) -> [i32; 2] {
    match format {
        // Sums of f16 are to stay below 65,504.
        _ if narrow => [-6, 3],
        E4M3 => [-6, 7],
        E5M2 => [-8, 8],
        _ => [-9, 9],
    }
}

/// All that an instruction is asked.
pub(super) fn probes(kind: &Kind) -> Vec<Probe> {
    let mut numbers = Numbers(kind.name.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte)));
    let narrow = kind.result == F16;
    let (a_range, b_range) = (range(kind.a, narrow), range(kind.b, narrow));
    let mut probes = Vec::new();
    for _ in 0..EACH {
        for spread in [2, 5, 9] {
            probes.push(spread_out(kind, &mut numbers, [a_range, b_range].map(|range| within(range, spread))));
        }
        probes.push(cancelled(kind, &mut numbers, a_range, b_range, true));
        probes.push(cancelled(kind, &mut numbers, a_range, b_range, false));
    }
    probes
}

fn within([least, most]: [i32; 2], spread: i32) -> [i32; 2] {
    [least.max(-spread), most.min(spread)]
}

/// Numbers of many sizes.
fn spread_out(kind: &Kind, numbers: &mut Numbers, [a_range, b_range]: [[i32; 2]; 2]) -> Probe {
    let a = (0..kind.products).map(|_| numbers.number(kind.a, a_range)).collect();
    let b = (0..kind.products).map(|_| numbers.number(kind.b, b_range)).collect();
    let c = match numbers.below(4) {
        0 => 0,
        _ => numbers.number(kind.result, [a_range[0] + b_range[0], a_range[1] + b_range[1]]),
    };
    Probe { a, b, c }
}

/// Two large terms that cancel each other, one of them C or neither, and small ones whose bits were or were not lost
/// before that.
fn cancelled(kind: &Kind, numbers: &mut Numbers, a_range: [i32; 2], b_range: [i32; 2], with_c: bool) -> Probe {
    let mut probe = spread_out(kind, numbers, [[a_range[0], a_range[0] + 3], [b_range[0], b_range[0] + 3]]);
    let large = |numbers: &mut Numbers, range: [i32; 2]| numbers.between(range[1] - 4, range[1]);
    let exponents = [large(numbers, a_range), large(numbers, b_range)];
    let first = numbers.below(kind.products);
    probe.a[first] = kind.a.number(false, exponents[0], 0);
    probe.b[first] = kind.b.number(false, exponents[1], 0);
    if with_c {
        probe.c = kind.result.number(true, exponents[0] + exponents[1], 0);
    } else {
        let second = (first + 1 + numbers.below(kind.products - 1)) % kind.products;
        probe.a[second] = kind.a.number(true, exponents[0], 0);
        probe.b[second] = kind.b.number(false, exponents[1], 0);
    }
    probe
}
