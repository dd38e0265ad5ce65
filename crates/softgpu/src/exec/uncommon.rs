//! Instructions on registers that few kernels have.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "instructions see the bits of a register as the type that they name"
)]

use super::lanes::{LANES, Registers, map1, map2, map3};
use super::op::{FloatType, IntType, Integer2, Reg, Slot, Uncommon};
use super::{compare, half, integer, video};

pub(super) fn run(r: &mut Registers, op: &Uncommon, mask: u32) {
    match *op {
        Uncommon::Fp8FromPair { format, relu, d, a, b } => map2(r, d, [a, b], mask, |a: u32, b: u32| {
            let [a, b] = [a, b].map(|bits| format.round(f32::from_bits(bits).into(), relu));
            a << 8 | b
        }),
        Uncommon::Fp8FromHalves { format, relu, d, a } => map1(r, d, a, mask, |a: u32| {
            let [low, high] = [a, a >> 16].map(|bits| half::widen(FloatType::F16, bits & 0xffff).into());
            format.round(high, relu) << 8 | format.round(low, relu)
        }),
        Uncommon::Fp8ToHalves { format, relu, d, a } => {
            map1(r, d, a, mask, |a: u32| format.to_half(a >> 8 & 0xff, relu) << 16 | format.to_half(a & 0xff, relu));
        }
        Uncommon::PackSaturated { bits, signed, d, a, b, c } => {
            map3(r, d, [a, b, c], mask, |a: u32, b: u32, c: u32| {
                let [a, b] = [a, b].map(|value| saturated(value as i32, bits, signed));
                c.checked_shl(2 * bits).unwrap_or(0) | a << bits | b
            })
        }
        Uncommon::FindBit { d, a, base, offset } => {
            map3(r, d, [a, base, offset], mask, |a: u32, base: u32, offset: u32| find_bit(a, base, offset as i32));
        }
        Uncommon::Extend { signed, clamp, d, a, b } => {
            map2(r, d, [a, b], mask, |a: u32, b: u32| extend(a, b, signed, clamp));
        }
        Uncommon::Lop3Test { table, d, p, a, b, c, logic, q } => {
            let [a, b, c] = [a, b, c].map(|slot| r.narrow[slot as usize]);
            let results: [u32; LANES] =
                core::array::from_fn(|lane| integer::by_table(table, a[lane], b[lane], c[lane]));
            let not_zero =
                results.iter().enumerate().fold(0, |held, (lane, word)| held | u32::from(*word != 0) << lane);
            let held = compare::combine(logic, not_zero, r.condition(q));
            if let Some(d) = d {
                r.write(Reg::Narrow(d), mask, &results.map(u64::from));
            }
            r.write_predicate(p, mask, held);
        }
        Uncommon::IntegerPair { op, ty, relu, d, a, b } => {
            map2(r, d, [a, b], mask, |a: u32, b: u32| {
                half::pair(|shift| integer16(op, ty, relu, a >> shift, b >> shift))
            });
        }
        Uncommon::ComparePair { ref comparison, lower, upper } => {
            let held = [0, 16].map(|shift| compare::compare_half(r, comparison, shift));
            for (slot, held) in [lower, upper].into_iter().zip(held) {
                if let Some(slot) = slot {
                    r.write_predicate(slot, mask, held);
                }
            }
        }
        Uncommon::SetPair { ref comparison, d, yes } => {
            let [lower, upper] = [0, 16].map(|shift| compare::compare_half(r, comparison, shift));
            let half = |held: u32, lane: usize| u64::from(if held >> lane & 1 != 0 { yes } else { 0 });
            let values = core::array::from_fn(|lane| half(upper, lane) << 16 | half(lower, lane));
            r.write(Reg::Narrow(d), mask, &values);
        }
        Uncommon::Pack128 { d, bits, ref parts } => pack(r, d, bits, parts, mask),
        Uncommon::Unpack128 { ref parts, bits, a } => unpack(r, parts, bits, a, mask),
        Uncommon::MoveVector { ref d, ref a } => {
            let values: Vec<[u64; LANES]> = a.iter().map(|register| r.read(*register)).collect();
            d.iter().zip(&values).for_each(|(register, values)| r.write(*register, mask, values));
        }
        Uncommon::Video(ref one) => video::one(r, one, mask),
        Uncommon::VideoMultiply(ref multiply) => video::multiply(r, multiply, mask),
        Uncommon::VideoParts(ref parts) => video::parts(r, parts, mask),
    }
}

/// A number clamped to so many bits.
fn saturated(value: i32, bits: u32, signed: bool) -> u32 {
    let (least, most) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    value.clamp(least, most) as u32 & (u32::MAX >> (32 - bits))
}

/// `fns`: the place of the n-th set bit from a base on, upwards or downwards. From a base outside of the word there is
/// none, and of the smallest offset the GPU makes bit 0, whatever the rest.
fn find_bit(mask: u32, base: u32, offset: i32) -> u32 {
    const NONE: u32 = u32::MAX;
    if offset == i32::MIN {
        return 0;
    }
    if base > 31 {
        return NONE;
    }
    let mut left = match offset {
        0 => mask & 1 << base,
        1.. => mask & u32::MAX << base,
        _ => (mask & u32::MAX >> (31 - base)).reverse_bits(),
    };
    for _ in 1..offset.unsigned_abs().min(33) {
        left &= left.wrapping_sub(1);
    }
    match (left.trailing_zeros(), offset < 0) {
        (32, _) => NONE,
        (place, true) => 31 - place,
        (place, false) => place,
    }
}

/// `szext`
fn extend(a: u32, b: u32, signed: bool, clamp: bool) -> u32 {
    if clamp && b >= 32 {
        return a;
    }
    match b & 31 {
        0 => 0,
        bits if signed => ((a << (32 - bits)) as i32 >> (32 - bits)) as u32,
        bits => a & ((1 << bits) - 1),
    }
}

fn integer16(op: Integer2, ty: IntType, relu: bool, a: u32, b: u32) -> u32 {
    let (a, b) = match ty {
        IntType::S16 => (i32::from(a as i16), i32::from(b as i16)),
        _ => (i32::from(a as u16), i32::from(b as u16)),
    };
    let result = match op {
        Integer2::Min => a.min(b),
        Integer2::Max => a.max(b),
        _ => a + b,
    };
    (if relu { result.max(0) } else { result }) as u32
}

fn pack(r: &mut Registers, d: [Slot; 2], bits: u32, parts: &[Reg], mask: u32) {
    let mut values = [0u128; LANES];
    for (number, part) in (0u32..).zip(parts) {
        let read = r.read(*part);
        values.iter_mut().zip(read).for_each(|(value, part)| *value |= u128::from(part) << (number * bits));
    }
    r.write(Reg::Wide(d[0]), mask, &values.map(|value| value as u64));
    r.write(Reg::Wide(d[1]), mask, &values.map(|value| (value >> 64) as u64));
}

fn unpack(r: &mut Registers, parts: &[Option<Reg>], bits: u32, a: [Slot; 2], mask: u32) {
    let [low, high] = a.map(|slot| r.wide[slot as usize]);
    for (number, part) in (0u32..).zip(parts) {
        let Some(part) = *part else { continue };
        let value = |lane: usize| (u128::from(high[lane]) << 64 | u128::from(low[lane])) >> (number * bits);
        // A narrow register takes the low bits.
        r.write(part, mask, &core::array::from_fn(|lane| value(lane) as u64));
    }
}
