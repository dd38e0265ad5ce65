//! Numbers of eight bits: `e4m3` and `e5m2`.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "roundings of magnitudes, whose results have eight bits"
)]

use super::half;
use super::op::{FloatType, Fp8};

/// The NaN that conversions give, in both formats.
const NAN: u32 = 0x7f;
const SIGN: u32 = 0x80;
const HALF_NAN: u32 = 0x7fff;

struct Shape {
    fraction_bits: u32,
    bias: i32,
    largest: f64,
}

impl Fp8 {
    const fn shape(self) -> Shape {
        match self {
            Self::E4m3 => Shape { fraction_bits: 3, bias: 7, largest: 448.0 },
            Self::E5m2 => Shape { fraction_bits: 2, bias: 15, largest: 57344.0 },
        }
    }

    /// The nearest number, ties to even; what is larger than all is the largest.
    pub(super) fn round(self, value: f64, relu: bool) -> u32 {
        let Shape { fraction_bits, bias, largest } = self.shape();
        if value.is_nan() {
            return NAN;
        }
        if relu && value.is_sign_negative() {
            return 0;
        }
        let sign = if value.is_sign_negative() { SIGN } else { 0 };
        let magnitude = value.abs().min(largest);
        // Subnormal numbers have the smallest exponent. Zero has none, and its field is below them all.
        let field = (magnitude.to_bits() >> 52) as i32;
        let exponent = (field - 1023).max(1 - bias);
        let step = f64::exp2(f64::from(exponent) - f64::from(fraction_bits));
        let steps = (magnitude / step).round_ties_even() as u32;
        // The hidden bit of normal numbers, and a carry out of the fraction, go to the exponent.
        let from_exponent = ((exponent + bias - 1) as u32) << fraction_bits;
        sign | (from_exponent + steps)
    }

    /// As an `f16`, exactly.
    pub(super) fn to_half(self, bits: u32, relu: bool) -> u32 {
        /// 2^120: from the bias of `e4m3` to that of `f32`.
        const REBIAS: f32 = f32::from_bits(0x7b80_0000);
        let magnitude = bits & 0x7f;
        let half = match self {
            Self::E4m3 if magnitude == NAN => return HALF_NAN,
            Self::E4m3 => half::narrow(FloatType::F16, f32::from_bits(magnitude << 20) * REBIAS),
            Self::E5m2 if magnitude > 0x7c => return HALF_NAN,
            Self::E5m2 => magnitude << 8,
        };
        match bits & SIGN {
            0 => half,
            _ if relu => 0,
            _ => half | SIGN << 8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(format: Fp8, bits: u32) -> f64 {
        half::widen(FloatType::F16, format.to_half(bits, false)).into()
    }

    #[test]
    fn every_number_is_itself() {
        for format in [Fp8::E4m3, Fp8::E5m2] {
            for bits in 0..=0xff {
                let value = value(format, bits);
                let expected = match value {
                    _ if value.is_nan() => NAN,
                    _ if value.is_infinite() => bits - 1,
                    _ => bits,
                };
                assert_eq!(format.round(value, false), expected, "{format:?} {bits:#x}");
            }
        }
    }

    #[test]
    fn between_two_numbers_the_nearer_one_is_taken() {
        for format in [Fp8::E4m3, Fp8::E5m2] {
            let last = if format == Fp8::E4m3 { 0x7e } else { 0x7b };
            for bits in 0..last {
                let (low, high) = (value(format, bits), value(format, bits + 1));
                let middle = f64::midpoint(low, high);
                assert_eq!(format.round(middle, false), bits + (bits & 1), "{format:?} {bits:#x}");
                assert_eq!(format.round(middle.next_down(), false), bits);
                assert_eq!(format.round(-middle.next_up(), false), SIGN | (bits + 1));
            }
            assert_eq!(format.round(f64::INFINITY, false), last);
            assert_eq!(format.round(f64::NEG_INFINITY, true), 0);
        }
    }
}
