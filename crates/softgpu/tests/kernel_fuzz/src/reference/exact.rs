//! Floating point by search: of all numbers of a format, the one that a result is rounded to.
//!
//! Exact values are whole multiples of one tiny unit, in integers of some thousand bits. A result's magnitude is found by
//! halving the range of its format's bit patterns, which are in the order of the numbers they stand for; nothing here
//! shifts, sticks or normalises.

use std::cmp::Ordering;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) exponent_bits: u32,
    pub(super) fraction_bits: u32,
    /// What an operation without a result gives.
    pub(super) nan: u64,
}

pub(super) const F16: Format = Format { exponent_bits: 5, fraction_bits: 10, nan: 0x7fff };
pub(super) const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7, nan: 0x7fff };
pub(super) const F32: Format = Format { exponent_bits: 8, fraction_bits: 23, nan: 0x7fff_ffff };
pub(super) const F64: Format = Format { exponent_bits: 11, fraction_bits: 52, nan: 0xfff8_0000_0000_0000 };

pub(super) const E5M2: Format = Format { exponent_bits: 5, fraction_bits: 2, nan: 0x7f };
/// Without infinities: what would be one is a number.
pub(super) const E4M3: Format = Format { exponent_bits: 4, fraction_bits: 3, nan: 0x7f };

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Rounding {
    /// Of an instruction's modifiers; to nearest where there is none.
    pub(super) fn of(modifiers: &[&str]) -> Self {
        modifiers
            .iter()
            .find_map(|modifier| {
                Some(match *modifier {
                    "rz" | "rzi" => Self::Zero,
                    "rm" | "rmi" => Self::Down,
                    "rp" | "rpi" => Self::Up,
                    _ => return None,
                })
            })
            .unwrap_or(Self::Nearest)
    }
}

impl Format {
    pub(super) fn width(self) -> u32 {
        1 + self.exponent_bits + self.fraction_bits
    }

    pub(super) fn sign_bit(self) -> u64 {
        1 << (self.width() - 1)
    }

    /// The bits of infinity; all below are finite numbers in their order.
    pub(super) fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << self.fraction_bits
    }

    /// The bits behind the largest finite number.
    pub(super) fn end(self) -> u64 {
        if self == E4M3 { self.nan } else { self.infinity() }
    }

    pub(super) fn smallest_normal(self) -> u64 {
        1 << self.fraction_bits
    }

    pub(super) fn magnitude(self, bits: u64) -> u64 {
        bits & (self.sign_bit() - 1)
    }

    pub(super) fn is_nan(self, bits: u64) -> bool {
        self.magnitude(bits) > self.infinity()
    }

    pub(super) fn is_infinite(self, bits: u64) -> bool {
        self.magnitude(bits) == self.infinity()
    }

    pub(super) fn is_negative(self, bits: u64) -> bool {
        bits & self.sign_bit() != 0
    }

    pub(super) fn flush(self, bits: u64) -> u64 {
        if self.magnitude(bits) < self.smallest_normal() { bits & self.sign_bit() } else { bits }
    }

    /// A magnitude as a whole number and how often it is doubled. Also for infinity, as if there were more exponents.
    pub(super) fn parts(self, magnitude: u64) -> (u128, i32) {
        let field = i32::try_from(magnitude >> self.fraction_bits).unwrap_or_default();
        let fraction = u128::from(magnitude & (self.smallest_normal() - 1));
        let hidden = u128::from(self.smallest_normal());
        let bias = (1 << (self.exponent_bits - 1)) - 1;
        let scale = bias + i32::try_from(self.fraction_bits).unwrap_or_default();
        if field == 0 { (fraction, 1 - scale) } else { (fraction | hidden, field - scale) }
    }
}

/// The unit is 2 to the power of minus this: less than the product of the two smallest numbers, halved.
const UNIT: i32 = 2200;
const LIMBS: usize = 72;

/// An exact value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exact {
    pub(super) negative: bool,
    /// In units, the lowest limb first.
    limbs: [u64; LIMBS],
}

impl Exact {
    /// `whole · 2^doubled`
    pub(super) fn new(negative: bool, whole: u128, doubled: i32) -> Self {
        let mut limbs = [0u64; LIMBS];
        let at = usize::try_from(doubled + UNIT).unwrap_or_default();
        for bit in 0..128 {
            if whole >> bit & 1 == 1 {
                limbs[(at + bit) / 64] |= 1 << ((at + bit) % 64);
            }
        }
        Self { negative, limbs }
    }

    pub(super) fn of(format: Format, bits: u64) -> Self {
        let (whole, doubled) = format.parts(format.magnitude(bits));
        Self::new(format.is_negative(bits), whole, doubled)
    }

    pub(super) fn product(format: Format, a: u64, b: u64) -> Self {
        let ((a_whole, a_doubled), (b_whole, b_doubled)) =
            (format.parts(format.magnitude(a)), format.parts(format.magnitude(b)));
        let negative = format.is_negative(a) != format.is_negative(b);
        Self::new(negative, a_whole * b_whole, a_doubled + b_doubled)
    }

    pub(super) fn is_zero(&self) -> bool {
        self.limbs.iter().all(|limb| *limb == 0)
    }

    pub(super) fn compare_magnitude(&self, other: &Self) -> Ordering {
        self.limbs.iter().rev().cmp(other.limbs.iter().rev())
    }

    pub(super) fn plus(&self, other: &Self) -> Self {
        let (large, small) =
            if self.compare_magnitude(other) == Ordering::Less { (other, self) } else { (self, other) };
        let add = large.negative == small.negative;
        let mut limbs = [0u64; LIMBS];
        let mut carry = 0i128;
        for (at, limb) in limbs.iter_mut().enumerate() {
            let small = i128::from(small.limbs[at]);
            let sum = i128::from(large.limbs[at]) + if add { small } else { -small } + carry;
            carry = sum >> 64;
            *limb = u64::try_from(sum & i128::from(u64::MAX)).unwrap_or_default();
        }
        Self { negative: large.negative, limbs }
    }

    /// The number of that format that it is rounded to.
    pub(super) fn round(&self, format: Format, rounding: Rounding) -> u64 {
        search(format, rounding, self.negative, |whole, doubled| {
            Self::new(false, whole, doubled).compare_magnitude(self)
        })
    }
}

/// The number that a result is rounded to which is only known by comparing: `compare` says how `whole · 2^doubled`
/// relates to the result's magnitude.
pub(super) fn search(
    format: Format,
    rounding: Rounding,
    negative: bool,
    compare: impl Fn(u128, i32) -> Ordering,
) -> u64 {
    let of = |bits: u64| {
        let (whole, doubled) = format.parts(bits);
        compare(whole, doubled)
    };
    // The largest number that is not above the result.
    let (mut low, mut high) = (0, format.end());
    while low + 1 < high {
        let middle = u64::midpoint(low, high);
        if of(middle) == Ordering::Greater { high = middle } else { low = middle }
    }
    let sign = if negative { format.sign_bit() } else { 0 };
    if of(low) == Ordering::Equal {
        return sign | low;
    }
    let (whole, doubled) = format.parts(low);
    let up = match rounding {
        Rounding::Nearest => match compare(whole * 2 + 1, doubled - 1) {
            Ordering::Less => true,
            Ordering::Equal => low & 1 == 1,
            Ordering::Greater => false,
        },
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    };
    sign | if up { low + 1 } else { low }
}
