//! Floating point by hand: any format, any rounding.
//!
//! What the CPU does exactly as PTX says (round to nearest even in `f32` and `f64`) is done by the CPU; the rest
//! comes here: directed rounding, half formats, conversions.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::cast_lossless,
    reason = "works on the bits of numbers whose sizes are known"
)]

use super::op::Rounding;

/// A binary interchange format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    exponent_bits: u32,
    fraction_bits: u32,
    /// The result of an operation that has none.
    nan: u64,
}

pub(super) const F16: Format = Format { exponent_bits: 5, fraction_bits: 10, nan: 0x7fff };
pub(super) const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7, nan: 0x7fff };
pub(super) const F32: Format = Format { exponent_bits: 8, fraction_bits: 23, nan: 0x7fff_ffff };
pub(super) const F64: Format = Format { exponent_bits: 11, fraction_bits: 52, nan: 0xfff8_0000_0000_0000 };
/// `.tf32` without the 13 bits that an `.f32` has below it.
pub(super) const TF32: Format = Format { exponent_bits: 8, fraction_bits: 10, nan: 0x3_ffff };

impl Format {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    fn largest_exponent(self) -> u64 {
        (1 << self.exponent_bits) - 1
    }

    fn infinity(self, negative: bool) -> u64 {
        self.sign(negative) | self.largest_exponent() << self.fraction_bits
    }

    fn largest(self, negative: bool) -> u64 {
        self.infinity(negative) - 1
    }

    fn sign(self, negative: bool) -> u64 {
        u64::from(negative) << (self.exponent_bits + self.fraction_bits)
    }

    /// What an operation gives that has no result.
    pub(super) fn nan(self) -> u64 {
        self.nan
    }

    /// The largest number for an infinity.
    pub(super) fn finite(self, bits: u64) -> u64 {
        match unpack(bits, self) {
            Value::Infinite { negative } => self.largest(negative),
            _ => bits,
        }
    }

    /// The same precision with an exponent that products of this format's numbers do not leave.
    pub(super) fn with_wide_exponent(self) -> Self {
        Self { exponent_bits: 11, nan: 0x7ff << self.fraction_bits | 1, ..self }
    }

    /// Whether it is the smallest number that is not subnormal, of either sign.
    pub(super) fn is_smallest_normal(self, bits: u64) -> bool {
        bits & !self.sign(true) == 1 << self.fraction_bits
    }

    /// The same number with a zero for a subnormal one.
    pub(super) fn flush(self, bits: u64) -> u64 {
        let sign = self.sign(true);
        if bits >> self.fraction_bits & self.largest_exponent() == 0 { bits & sign } else { bits }
    }
}

/// A value, taken apart.
#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Nan,
    Infinite { negative: bool },
    Finite(Exact),
}

/// `fraction · 2^exponent`, and a bit more than that where `more` says so.
#[derive(Debug, Clone, Copy)]
pub(super) struct Exact {
    negative: bool,
    fraction: u128,
    exponent: i32,
    /// Something below the fraction's last bit is not zero.
    more: bool,
}

/// Where sums have their topmost bit: below it is room for any format's fraction, above it for a carry.
const TOP: u32 = 125;

impl Exact {
    fn zero(negative: bool) -> Self {
        Self { negative, fraction: 0, exponent: 0, more: false }
    }

    /// The same value with its topmost bit at that place.
    fn with_top_at(self, top: u32) -> Self {
        let now = 127 - self.fraction.leading_zeros();
        let shift = top as i32 - now as i32;
        let fraction = if shift >= 0 { self.fraction << shift } else { self.fraction >> -shift };
        Self { fraction, exponent: self.exponent - shift, ..self }
    }

    /// As a number of that format.
    fn pack(self, format: Format, rounding: Rounding) -> u64 {
        if self.fraction == 0 {
            return format.sign(self.negative);
        }
        // Everything has room for the bits that decide about rounding.
        let exact = self.with_top_at(TOP);
        let top = exact.exponent + TOP as i32;
        let smallest = 1 - format.bias();
        let mut last = top.max(smallest) - format.fraction_bits as i32;
        let mut kept = exact.rounded_at(last, rounding);
        if kept >> (format.fraction_bits + 1) != 0 {
            kept >>= 1;
            last += 1;
        }
        let hidden = 1 << format.fraction_bits;
        if kept < hidden {
            return format.sign(self.negative) | kept as u64;
        }
        let biased = last + format.fraction_bits as i32 + format.bias();
        if biased >= format.largest_exponent() as i32 {
            let to_infinity = match rounding {
                Rounding::Nearest | Rounding::NearestAway => true,
                Rounding::Zero => false,
                Rounding::Down => self.negative,
                Rounding::Up => !self.negative,
            };
            return if to_infinity { format.infinity(self.negative) } else { format.largest(self.negative) };
        }
        format.sign(self.negative) | (biased as u64) << format.fraction_bits | (kept - hidden) as u64
    }

    /// The multiple of `2^last` that the value is rounded to, without its sign.
    fn rounded_at(self, last: i32, rounding: Rounding) -> u128 {
        let shift = last - self.exponent;
        if shift <= 0 || self.fraction == 0 {
            return self.fraction << -shift.min(0);
        }
        let (kept, rest, half) = match shift {
            1..=127 => (self.fraction >> shift, self.fraction & ((1 << shift) - 1), 1 << (shift - 1)),
            // The fraction has 126 bits at most: less than half.
            _ => (0, 1, 2),
        };
        let inexact = rest != 0 || self.more;
        let up = match rounding {
            Rounding::Nearest => rest > half || rest == half && (self.more || kept & 1 != 0),
            Rounding::NearestAway => rest >= half,
            Rounding::Zero => false,
            Rounding::Down => inexact && self.negative,
            Rounding::Up => inexact && !self.negative,
        };
        kept + u128::from(up)
    }
}

/// Takes a number apart.
pub(super) fn unpack(bits: u64, format: Format) -> Value {
    let negative = bits >> (format.exponent_bits + format.fraction_bits) & 1 != 0;
    let biased = bits >> format.fraction_bits & format.largest_exponent();
    let fraction = bits & ((1 << format.fraction_bits) - 1);
    if biased == format.largest_exponent() {
        return if fraction == 0 { Value::Infinite { negative } } else { Value::Nan };
    }
    let hidden = u64::from(biased != 0) << format.fraction_bits;
    let exponent = (biased.max(1)) as i32 - format.bias() - format.fraction_bits as i32;
    Value::Finite(Exact { negative, fraction: (fraction | hidden).into(), exponent, more: false })
}

/// As a number of that format.
pub(super) fn pack(value: Value, format: Format, rounding: Rounding) -> u64 {
    match value {
        Value::Nan => format.nan,
        Value::Infinite { negative } => format.infinity(negative),
        Value::Finite(exact) => exact.pack(format, rounding),
    }
}

fn sum(a: Value, b: Value, rounding: Rounding) -> Value {
    let (a, b) = match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => return Value::Nan,
        (Value::Infinite { negative: a }, Value::Infinite { negative: b }) if a != b => return Value::Nan,
        (Value::Infinite { .. }, _) => return a,
        (_, Value::Infinite { .. }) => return b,
        (Value::Finite(a), Value::Finite(b)) => (a, b),
    };
    let sign_of_zero = if a.negative == b.negative { a.negative } else { rounding == Rounding::Down };
    match (a.fraction, b.fraction) {
        (0, 0) => return Value::Finite(Exact::zero(sign_of_zero)),
        (0, _) => return Value::Finite(b),
        (_, 0) => return Value::Finite(a),
        _ => {}
    }
    let (a, b) = (a.with_top_at(TOP), b.with_top_at(TOP));
    let (large, small) = if (a.exponent, a.fraction) >= (b.exponent, b.fraction) { (a, b) } else { (b, a) };
    let distance = (large.exponent - small.exponent) as u32;
    let (aligned, more) = match distance {
        0 => (small.fraction, false),
        1..=127 => (small.fraction >> distance, small.fraction & ((1 << distance) - 1) != 0),
        _ => (0, true),
    };
    let fraction = if large.negative == small.negative {
        large.fraction + aligned
    } else {
        large.fraction - aligned - u128::from(more)
    };
    if fraction == 0 && !more {
        return Value::Finite(Exact::zero(sign_of_zero));
    }
    Value::Finite(Exact { negative: large.negative, fraction, exponent: large.exponent, more })
}

fn product(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinite { negative: a }, Value::Infinite { negative: b }) => Value::Infinite { negative: a != b },
        (Value::Infinite { negative }, Value::Finite(finite))
        | (Value::Finite(finite), Value::Infinite { negative }) => {
            if finite.fraction == 0 {
                return Value::Nan;
            }
            Value::Infinite { negative: negative != finite.negative }
        }
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(Exact {
            negative: a.negative != b.negative,
            fraction: a.fraction * b.fraction,
            exponent: a.exponent + b.exponent,
            more: false,
        }),
    }
}

fn quotient(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) | (Value::Infinite { .. }, Value::Infinite { .. }) => Value::Nan,
        (Value::Infinite { negative }, Value::Finite(b)) => Value::Infinite { negative: negative != b.negative },
        (Value::Finite(a), Value::Infinite { negative }) => Value::Finite(Exact::zero(a.negative != negative)),
        (Value::Finite(a), Value::Finite(b)) => {
            let negative = a.negative != b.negative;
            match (a.fraction, b.fraction) {
                (0, 0) => Value::Nan,
                (0, _) => Value::Finite(Exact::zero(negative)),
                (_, 0) => Value::Infinite { negative },
                _ => {
                    // At least 126 - 53 bits of quotient.
                    let a = a.with_top_at(TOP);
                    Value::Finite(Exact {
                        negative,
                        fraction: a.fraction / b.fraction,
                        exponent: a.exponent - b.exponent,
                        more: a.fraction % b.fraction != 0,
                    })
                }
            }
        }
    }
}

fn root(a: Value) -> Value {
    match a {
        Value::Finite(exact) if exact.fraction == 0 => a,
        Value::Infinite { negative: false } => a,
        Value::Finite(exact) if !exact.negative => {
            let mut exact = exact.with_top_at(TOP);
            if exact.exponent & 1 != 0 {
                exact.fraction <<= 1;
                exact.exponent -= 1;
            }
            let root = exact.fraction.isqrt();
            Value::Finite(Exact {
                negative: false,
                fraction: root,
                exponent: exact.exponent / 2,
                more: root * root != exact.fraction,
            })
        }
        _ => Value::Nan,
    }
}

pub(super) fn add(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    pack(sum(unpack(a, format), unpack(b, format), rounding), format, rounding)
}

pub(super) fn sub(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    add(a, b ^ format.sign(true), format, rounding)
}

pub(super) fn mul(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    pack(product(unpack(a, format), unpack(b, format)), format, rounding)
}

pub(super) fn fma(a: u64, b: u64, c: u64, format: Format, rounding: Rounding) -> u64 {
    let product = product(unpack(a, format), unpack(b, format));
    pack(sum(product, unpack(c, format), rounding), format, rounding)
}

pub(super) fn div(a: u64, b: u64, format: Format, rounding: Rounding) -> u64 {
    pack(quotient(unpack(a, format), unpack(b, format)), format, rounding)
}

pub(super) fn sqrt(a: u64, format: Format, rounding: Rounding) -> u64 {
    pack(root(unpack(a, format)), format, rounding)
}

/// A number of one format as one of another.
pub(super) fn convert(bits: u64, from: Format, to: Format, rounding: Rounding) -> u64 {
    pack(unpack(bits, from), to, rounding)
}

/// An integer as a number.
pub(super) fn from_integer(negative: bool, magnitude: u64, to: Format, rounding: Rounding) -> u64 {
    from_scaled(negative, magnitude, 0, to, rounding)
}

/// `magnitude · 2^exponent` as a number.
pub(super) fn from_scaled(negative: bool, magnitude: u64, exponent: i32, to: Format, rounding: Rounding) -> u64 {
    Exact { negative, fraction: magnitude.into(), exponent, more: false }.pack(to, rounding)
}

/// A number as the nearest integral number in the direction of the rounding.
pub(super) fn to_integral(bits: u64, format: Format, rounding: Rounding) -> u64 {
    match unpack(bits, format) {
        Value::Finite(exact) if exact.exponent < 0 => {
            let integral = Exact { fraction: exact.rounded_at(0, rounding), exponent: 0, ..exact };
            integral.pack(format, rounding)
        }
        // Everything else has no bits below the point.
        _ => bits,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTED: [Rounding; 3] = [Rounding::Zero, Rounding::Down, Rounding::Up];

    /// The same numbers in every run.
    struct Numbers(u64);

    impl Numbers {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 32) ^ self.0.rotate_left(17)
        }

        /// Any `f64`, special ones often.
        fn double(&mut self) -> u64 {
            const SPECIAL: [u64; 8] =
                [0, 1 << 63, 1, 0x7ff0 << 48, 0xfff0 << 48, 0x3ff0 << 48, 0x7fef << 48, 0x000f << 48];
            let bits = self.next();
            if bits & 15 == 0 { SPECIAL[(bits >> 4 & 7) as usize] } else { self.next() }
        }

        /// An `f64` between 2⁻⁵ and 2⁵.
        fn moderate(&mut self) -> f64 {
            let bits = self.next();
            f64::from_bits(bits & (1 << 63 | ((1 << 52) - 1)) | (1018 + bits % 10) << 52)
        }

        /// An `f32` whose exponent is near any other's.
        fn single(&mut self) -> u32 {
            let bits = self.next();
            match bits & 7 {
                0 => (bits >> 32) as u32,
                1 => (bits >> 32) as u32 & 0x807f_ffff,
                _ => (bits >> 32) as u32 & 0x87ff_ffff | 0x3800_0000,
            }
        }
    }

    fn same64(ours: u64, cpu: f64) -> bool {
        ours == cpu.to_bits() || cpu.is_nan() && f64::from_bits(ours).is_nan()
    }

    fn same32(ours: u64, cpu: f32) -> bool {
        ours == u64::from(cpu.to_bits()) || cpu.is_nan() && ours == F32.nan
    }

    #[test]
    fn nearest_is_what_the_cpu_does() {
        let mut numbers = Numbers(1);
        for _ in 0..200_000 {
            let (a, b, c) = (numbers.double(), numbers.double(), numbers.double());
            let (x, y, z) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
            let nearest = Rounding::Nearest;
            assert!(same64(add(a, b, F64, nearest), x + y), "{x:e} + {y:e}");
            assert!(same64(sub(a, b, F64, nearest), x - y), "{x:e} - {y:e}");
            assert!(same64(mul(a, b, F64, nearest), x * y), "{x:e} * {y:e}");
            assert!(same64(div(a, b, F64, nearest), x / y), "{x:e} / {y:e}");
            assert!(same64(sqrt(a, F64, nearest), x.sqrt()), "sqrt {x:e}");
            assert!(same64(fma(a, b, c, F64, nearest), x.mul_add(y, z)), "{x:e} * {y:e} + {z:e}");
            assert!(same32(convert(a, F64, F32, nearest), x as f32), "{x:e} as f32");
            let (a, b, c) = (numbers.single(), numbers.single(), numbers.single());
            let (x, y, z) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let (a, b, c) = (u64::from(a), u64::from(b), u64::from(c));
            assert!(same32(add(a, b, F32, nearest), x + y), "{x:e} + {y:e}");
            assert!(same32(mul(a, b, F32, nearest), x * y), "{x:e} * {y:e}");
            assert!(same32(div(a, b, F32, nearest), x / y), "{x:e} / {y:e}");
            assert!(same32(fma(a, b, c, F32, nearest), x.mul_add(y, z)), "{x:e} * {y:e} + {z:e}");
            assert!(same64(convert(a, F32, F64, nearest), x.into()), "{x:e} as f64");
        }
    }

    /// A moderate number times 2¹¹⁴, which is an integer.
    fn fixed(value: f64) -> i128 {
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7ff) as i32 - 1075;
        let fraction = i128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let magnitude = if value == 0.0 {
            0
        } else if exponent + 114 >= 0 {
            fraction << (exponent + 114)
        } else {
            fraction >> -(exponent + 114)
        };
        if value < 0.0 { -magnitude } else { magnitude }
    }

    /// Whether the result is the last number before the exact one, from the rounding's side.
    fn is_rounded(exact: i128, result: f64, rounding: Rounding) -> bool {
        let down = match rounding {
            Rounding::Zero => exact >= 0,
            rounding => rounding == Rounding::Down,
        };
        if down {
            fixed(result) <= exact && exact < fixed(result.next_up())
        } else {
            fixed(result.next_down()) < exact && exact <= fixed(result)
        }
    }

    #[test]
    fn directed_results_are_next_to_the_exact_ones() {
        let mut numbers = Numbers(2);
        for _ in 0..200_000 {
            let (x, y, z) = (numbers.moderate(), numbers.moderate(), numbers.moderate());
            let (a, b, c) = (x.to_bits(), y.to_bits(), z.to_bits());
            let product = (fixed(x) >> 57) * (fixed(y) >> 57);
            for rounding in DIRECTED {
                let result = f64::from_bits(add(a, b, F64, rounding));
                assert!(is_rounded(fixed(x) + fixed(y), result, rounding), "{x:e} + {y:e} {rounding:?}");
                let result = f64::from_bits(mul(a, b, F64, rounding));
                assert!(is_rounded(product, result, rounding), "{x:e} * {y:e} {rounding:?}");
                let result = f64::from_bits(fma(a, b, c, F64, rounding));
                assert!(is_rounded(product + fixed(z), result, rounding), "{x:e} * {y:e} + {z:e} {rounding:?}");
            }
        }
    }

    #[test]
    fn directed_quotients_and_roots_bracket_the_nearest() {
        let mut numbers = Numbers(3);
        for _ in 0..100_000 {
            let (x, y) = (numbers.moderate(), numbers.moderate());
            let (a, b) = (x.to_bits(), y.to_bits());
            let (down, up) = (div(a, b, F64, Rounding::Down), div(a, b, F64, Rounding::Up));
            let (down, up) = (f64::from_bits(down), f64::from_bits(up));
            // The remainder's sign tells which side of the exact quotient the nearest one is on.
            let remainder = (x / y).mul_add(-y, x) * y.signum();
            let expected = match remainder.total_cmp(&0.0) {
                _ if remainder == 0.0 => (x / y, x / y),
                core::cmp::Ordering::Less => ((x / y).next_down(), x / y),
                _ => (x / y, (x / y).next_up()),
            };
            assert_eq!((down, up), expected, "{x:e} / {y:e}");
            let root = x.abs().sqrt();
            let rest = root.mul_add(-root, x.abs());
            let expected = if rest < 0.0 { root.next_down() } else { root };
            assert_eq!(f64::from_bits(sqrt(x.abs().to_bits(), F64, Rounding::Zero)), expected, "sqrt {x:e}");
        }
    }

    #[test]
    fn extremes_round_as_they_should() {
        let largest = u64::from(f32::MAX.to_bits());
        let infinity = u64::from(f32::INFINITY.to_bits());
        assert_eq!(add(largest, largest, F32, Rounding::Nearest), infinity);
        assert_eq!(add(largest, largest, F32, Rounding::Zero), largest);
        assert_eq!(add(largest, largest, F32, Rounding::Down), largest);
        assert_eq!(add(largest, largest, F32, Rounding::Up), infinity);
        // The product of the smallest two is nothing, or the smallest.
        assert_eq!(mul(1, 1, F32, Rounding::Up), 1);
        assert_eq!(mul(1, 1, F32, Rounding::Zero), 0);
        assert_eq!(mul(1, 1 | 1 << 31, F32, Rounding::Down), 1 | 1 << 31);
        // The exact zero is negative only when rounding down.
        let one = u64::from(1f32.to_bits());
        assert_eq!(sub(one, one, F32, Rounding::Nearest), 0);
        assert_eq!(sub(one, one, F32, Rounding::Down), 1 << 31);
        assert_eq!(add(0, 1 << 31, F32, Rounding::Up), 0);
        // Far apart.
        let tiny = u64::from(1e-40f32.to_bits());
        assert_eq!(add(one, tiny, F32, Rounding::Up), one + 1);
        assert_eq!(sub(one, tiny, F32, Rounding::Zero), one - 1);
        assert_eq!(sub(one, tiny, F32, Rounding::Nearest), one);
    }

    #[test]
    fn halves() {
        let half = |value: f32| convert(value.to_bits().into(), F32, F16, Rounding::Nearest);
        assert_eq!(half(1.0), 0x3c00);
        assert_eq!(half(-2.0), 0xc000);
        assert_eq!(half(65504.0), 0x7bff);
        assert_eq!(half(65520.0), 0x7c00);
        assert_eq!(half(5.960_464_5e-8), 1);
        assert_eq!(half(f32::NAN), 0x7fff);
        for bits in 0..=u16::MAX {
            let bits = u64::from(bits);
            let single = convert(bits, F16, F32, Rounding::Nearest);
            let back = convert(single, F32, F16, Rounding::Nearest);
            assert!(back == bits || matches!(unpack(bits, F16), Value::Nan));
        }
        assert_eq!(convert(1.0f32.to_bits().into(), F32, BF16, Rounding::Nearest), 0x3f80);
    }

    #[test]
    fn integers() {
        assert_eq!(from_integer(false, u64::MAX, F32, Rounding::Zero), u64::from(1.844_674_3e19f32.to_bits()));
        assert_eq!(from_integer(true, 3, F64, Rounding::Nearest), (-3f64).to_bits());
        assert_eq!(to_integral(0, F32, Rounding::Up), 0);
        assert_eq!(to_integral(1 << 31, F32, Rounding::Down), 1 << 31);
        assert_eq!(to_integral((-0.4f32).to_bits().into(), F32, Rounding::Nearest), 1 << 31);
        assert_eq!(to_integral(2.5f32.to_bits().into(), F32, Rounding::Nearest), u64::from(2f32.to_bits()));
    }
}
