//! What registers hold when a kernel begins: numbers of which something may go wrong.

use crate::random::Random;

/// What a register is read as, which decides the numbers that it begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Predicate,
    Int16,
    F16,
    Bf16,
    Int32,
    F32,
    F16x2,
    Bf16x2,
    /// How far to shift: around what the widths allow.
    Shift,
    Int64,
    F64,
    /// With NaNs, whose bits `f64` operations pass on.
    F64Nan,
    /// Whole numbers from -4 to 4: sums of their products are exact in every format.
    SmallF16x2,
    SmallBf16x2,
    SmallF32,
    SmallF64,
    SmallInt,
    /// Four `.e4m3` or four `.e5m2` of these.
    SmallE4m3x4,
    SmallE5m2x4,
    /// `f32` of a size that approximations are made for.
    Moderate,
}

/// Each kind with its letter in templates.
const LETTERS: [(char, Kind); 20] = [
    ('p', Kind::Predicate),
    ('h', Kind::Int16),
    ('c', Kind::F16),
    ('k', Kind::Bf16),
    ('r', Kind::Int32),
    ('f', Kind::F32),
    ('x', Kind::F16x2),
    ('y', Kind::Bf16x2),
    ('s', Kind::Shift),
    ('d', Kind::Int64),
    ('g', Kind::F64),
    ('u', Kind::F64Nan),
    ('m', Kind::SmallF16x2),
    ('n', Kind::SmallBf16x2),
    ('q', Kind::SmallF32),
    ('o', Kind::SmallF64),
    ('i', Kind::SmallInt),
    ('v', Kind::SmallE4m3x4),
    ('w', Kind::SmallE5m2x4),
    ('a', Kind::Moderate),
];

impl Kind {
    pub(crate) fn from_letter(letter: char) -> Option<Self> {
        LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, kind)| *kind)
    }

    /// The letter of the work registers that are as wide.
    pub(crate) fn work_letter(self) -> char {
        match self {
            Self::Predicate => 'p',
            Self::Int16 | Self::F16 | Self::Bf16 => 'h',
            Self::Int64 | Self::F64 | Self::F64Nan | Self::SmallF64 => 'd',
            _ => 'r',
        }
    }

    /// Whether a register that something was computed into may stand for it.
    pub(crate) fn takes_computed(self) -> bool {
        matches!(
            self,
            Self::Predicate
                | Self::Int16
                | Self::F16
                | Self::Bf16
                | Self::Int32
                | Self::F32
                | Self::F16x2
                | Self::Bf16x2
                | Self::Int64
        )
    }

    pub(crate) fn value(self, random: &mut Random) -> u64 {
        match self {
            Self::Predicate => random.bits() & 1,
            Self::Int16 => integer(random, 16),
            Self::Int32 => integer(random, 32),
            Self::Int64 => integer(random, 64),
            Self::F16 => float(random, 5, 10, true),
            Self::Bf16 => float(random, 8, 7, true),
            Self::F32 => float(random, 8, 23, true),
            Self::F64 => float(random, 11, 52, false),
            Self::F64Nan => float(random, 11, 52, true),
            Self::F16x2 => float(random, 5, 10, true) | float(random, 5, 10, true) << 16,
            Self::Bf16x2 => float(random, 8, 7, true) | float(random, 8, 7, true) << 16,
            Self::Shift => {
                let bound = random.pick(&[33, 33, 33, 66, 300]);
                u64::from(random.below(bound))
            }
            Self::SmallF16x2 => whole(random, 5, 10) | whole(random, 5, 10) << 16,
            Self::SmallBf16x2 => whole(random, 8, 7) | whole(random, 8, 7) << 16,
            Self::SmallF32 => whole(random, 8, 23),
            Self::SmallF64 => whole(random, 11, 52),
            Self::SmallInt => u64::from(random.below(200)),
            Self::SmallE4m3x4 => (0..4).fold(0, |all, _| all << 8 | whole(random, 4, 3)),
            Self::SmallE5m2x4 => (0..4).fold(0, |all, _| all << 8 | whole(random, 5, 2)),
            Self::Moderate => moderate(random),
        }
    }
}

fn low(bits: u64, width: u32) -> u64 {
    bits & (u64::MAX >> (64 - width))
}

fn integer(random: &mut Random, width: u32) -> u64 {
    let one = 1u64 << random.below(width);
    let value = match random.below(10) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => 1 << (width - 1),
        4 => (1 << (width - 1)) - 1,
        5 => one,
        6 => one.wrapping_sub(1),
        7 => u64::from(random.below(256)).wrapping_sub(128),
        _ => random.bits(),
    };
    low(value, width)
}

fn float(random: &mut Random, exponent_bits: u32, fraction_bits: u32, nan: bool) -> u64 {
    let largest = (1u64 << exponent_bits) - 1;
    let fraction = low(random.bits(), fraction_bits);
    let few = 1u64 << random.below(fraction_bits);
    let bias = largest >> 1;
    let (exponent, fraction) = match random.below(16) {
        0 => (0, 0),
        1 => (0, 1),
        2 => (0, low(u64::MAX, fraction_bits)),
        3 => (0, fraction),
        4 => (1, if random.percent(50) { 0 } else { fraction }),
        5 => (largest - 1, low(u64::MAX, fraction_bits)),
        6 => (largest, 0),
        7 if nan => (largest, fraction | few),
        8 => (bias, 0),
        9 => (bias, few),
        10..=12 => (bias + u64::from(random.below(9)) - 4, fraction),
        // Far enough apart that one operand only decides about rounding.
        13 => (bias + u64::from(random.below(fraction_bits + 3)) - bias.min(4), few),
        _ => (random.bits() % largest, fraction),
    };
    low(random.bits(), 1) << (exponent_bits + fraction_bits) | exponent.min(largest) << fraction_bits | fraction
}

/// A whole number from -4 to 4.
fn whole(random: &mut Random, exponent_bits: u32, fraction_bits: u32) -> u64 {
    let bias = (1u64 << (exponent_bits - 1)) - 1;
    let half = 1u64 << (fraction_bits - 1);
    let magnitude = match random.below(5) {
        0 => 0,
        1 => bias << fraction_bits,
        2 => (bias + 1) << fraction_bits,
        3 => (bias + 1) << fraction_bits | half,
        _ => (bias + 2) << fraction_bits,
    };
    magnitude | low(random.bits(), 1) << (exponent_bits + fraction_bits)
}

fn moderate(random: &mut Random) -> u64 {
    match random.below(8) {
        0 => float(random, 8, 23, true),
        1 => whole(random, 8, 23),
        _ => {
            let exponent = 127 + u64::from(random.below(24)) - 16;
            low(random.bits(), 1) << 31 | exponent << 23 | low(random.bits(), 23)
        }
    }
}
