//! Number formats, bit by bit.

/// A binary format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    pub(super) exponent_bits: u32,
    pub(super) fraction_bits: u32,
    /// Bits below the fraction that do not count.
    pub(super) unused: u32,
}

pub(super) const F16: Format = Format { exponent_bits: 5, fraction_bits: 10, unused: 0 };
pub(super) const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7, unused: 0 };
pub(super) const TF32: Format = Format { exponent_bits: 8, fraction_bits: 10, unused: 13 };
pub(super) const E4M3: Format = Format { exponent_bits: 4, fraction_bits: 3, unused: 0 };
pub(super) const E5M2: Format = Format { exponent_bits: 5, fraction_bits: 2, unused: 0 };
pub(super) const F32: Format = Format { exponent_bits: 8, fraction_bits: 23, unused: 0 };
pub(super) const F64: Format = Format { exponent_bits: 11, fraction_bits: 52, unused: 0 };

/// `significand · 2^(exponent - fraction bits)`; 0 has no exponent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) significand: i128,
    pub(super) exponent: i32,
}

/// How a number that lies between two of a format becomes one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    Zero,
    Down,
    Nearest,
}

impl Format {
    pub(super) fn bits(self) -> u32 {
        1 + self.exponent_bits + self.fraction_bits + self.unused
    }

    pub(super) fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// A number by its parts; the fraction's upper bits are dropped.
    pub(super) fn number(self, negative: bool, exponent: i32, fraction: u64) -> u64 {
        let biased = u64::try_from(exponent + self.bias()).unwrap_or_default();
        let fraction = fraction & ((1 << self.fraction_bits) - 1);
        (u64::from(negative) << (self.exponent_bits + self.fraction_bits) | biased << self.fraction_bits | fraction)
            << self.unused
    }

    /// Takes a finite number apart.
    pub(super) fn part(self, bits: u64) -> Part {
        let bits = bits >> self.unused;
        let biased = bits >> self.fraction_bits & ((1 << self.exponent_bits) - 1);
        let hidden = u64::from(biased != 0) << self.fraction_bits;
        let magnitude = i128::from(bits & ((1 << self.fraction_bits) - 1) | hidden);
        let negative = bits >> (self.exponent_bits + self.fraction_bits) & 1 != 0;
        let exponent = i32::try_from(biased.max(1)).unwrap_or_default() - self.bias();
        Part { significand: if negative { -magnitude } else { magnitude }, exponent }
    }

    /// `total · 2^exponent` as a number with so many bits of fraction. Nothing here becomes too large.
    pub(super) fn round(self, total: i128, exponent: i32, kept_bits: u32, rounding: Rounding) -> u64 {
        if total == 0 {
            return 0;
        }
        let top = i32::try_from(127 - total.unsigned_abs().leading_zeros()).unwrap_or_default();
        // The exponent of the first bit, or of the smallest normal number's.
        let leading = (exponent + top).max(1 - self.bias());
        let kept = i32::try_from(kept_bits).unwrap_or_default();
        let magnitude = shifted(total, leading - kept - exponent, rounding).unsigned_abs();
        let magnitude = u64::try_from(magnitude).unwrap_or_default() << (self.fraction_bits - kept_bits);
        // A carry, and a hidden bit that is missing, make the right exponent by themselves.
        let below = u64::try_from(leading + self.bias() - 1).unwrap_or_default() << self.fraction_bits;
        u64::from(total < 0 && magnitude != 0) << (self.exponent_bits + self.fraction_bits)
            | below.wrapping_add(magnitude)
    }
}

/// `value / 2^by`, rounded.
pub(super) fn shifted(value: i128, by: i32, rounding: Rounding) -> i128 {
    if by <= 0 {
        return value << -by;
    }
    if by > 126 {
        return if value < 0 && rounding == Rounding::Down { -1 } else { 0 };
    }
    let down = value >> by;
    let rest = value - (down << by);
    match rounding {
        Rounding::Down => down,
        Rounding::Zero => down + i128::from(value < 0 && rest != 0),
        Rounding::Nearest => {
            let half = 1i128 << (by - 1);
            down + i128::from(rest > half || rest == half && down & 1 != 0)
        }
    }
}
