//! Video instructions: arithmetic on parts of registers.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "instructions see the bits of a register as the type that they name"
)]

use super::lanes::{LANES, Registers};
use super::op::{Part, Reg, Relation, Second, Video, VideoMultiply, VideoOp, VideoParts};

/// So many low bits.
fn mask(bits: u32) -> u32 {
    u32::MAX >> (32 - bits)
}

/// Bits of a word as a number.
fn extract(word: u64, from: u32, bits: u32, signed: bool) -> i64 {
    let above = 64 - from - bits;
    let word = word << above;
    if signed { (word as i64) >> (64 - bits) } else { (word >> (64 - bits)) as i64 }
}

fn clamp(value: i128, bits: u32, signed: bool) -> i128 {
    let (least, most) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    value.clamp(least, most)
}

/// A number with enough room for all that can come out.
fn apply(op: VideoOp, a: i64, b: i64) -> i128 {
    /// As far as a register can be shifted.
    const FARTHEST: i64 = 32;
    let (a, b) = (i128::from(a), i128::from(b));
    let distance = |clamp: bool| if clamp { b.min(FARTHEST.into()) } else { b & 31 } as u32;
    match op {
        VideoOp::Add => a + b,
        VideoOp::Sub => a - b,
        VideoOp::AbsoluteDifference => (a - b).abs(),
        // Halves are rounded away from zero.
        VideoOp::Average => (a + b + i128::from(a + b >= 0)) >> 1,
        VideoOp::Min => a.min(b),
        VideoOp::Max => a.max(b),
        VideoOp::ShiftLeft { clamp } => a << distance(clamp),
        VideoOp::ShiftRight { clamp } => a >> distance(clamp),
        VideoOp::Set(relation) => i128::from(match relation {
            Relation::Equal => a == b,
            Relation::NotEqual => a != b,
            Relation::Less => a < b,
            Relation::LessEqual => a <= b,
            Relation::Greater => a > b,
            _ => a >= b,
        }),
    }
}

/// Runs a function of three words in the lanes of the mask.
fn map(r: &mut Registers, d: u32, [a, b, c]: [u32; 3], lanes: u32, f: impl Fn(u32, u32, u32) -> u32) {
    let [a, b, c] = [a, b, c].map(|slot| r.narrow[slot as usize]);
    let values: [u64; LANES] = core::array::from_fn(|lane| f(a[lane], b[lane], c[lane]).into());
    r.write(Reg::Narrow(d), lanes, &values);
}

fn part(word: u32, part: Part) -> i64 {
    extract(word.into(), part.from, part.bits, part.signed)
}

pub(super) fn one(r: &mut Registers, video: &Video, lanes: u32) {
    let Video { op, signed, saturate, second, d, a, b, c } = *video;
    let result_bits = if let Second::Merge { bits, .. } = second { bits } else { 32 };
    map(r, d, [a.slot, b.slot, c], lanes, |word_a, word_b, c| {
        let result = apply(op, part(word_a, a), part(word_b, b));
        let result = if saturate { clamp(result, result_bits, signed) } else { result } as u32;
        let choose = |smaller: bool| {
            let result_is_smaller = if signed { (result as i32) < c as i32 } else { result < c };
            if result_is_smaller == smaller { result } else { c }
        };
        match second {
            Second::None => result,
            Second::Add => result.wrapping_add(c),
            Second::Min => choose(true),
            Second::Max => choose(false),
            Second::Merge { from, bits } => c & !(mask(bits) << from) | (result & mask(bits)) << from,
        }
    });
}

pub(super) fn multiply(r: &mut Registers, video: &VideoMultiply, lanes: u32) {
    let VideoMultiply { negated, negated_c, plus_one, saturate, scale, d, a, b, c } = *video;
    let signed = a.signed || b.signed || negated || negated_c;
    map(r, d, [a.slot, b.slot, c], lanes, |word_a, word_b, c| {
        let product = i128::from(part(word_a, a)) * i128::from(part(word_b, b));
        let product = if negated { -product } else { product };
        // The complement of `c` and one more, as 32 bits are extended after that.
        let (c, more) = if negated_c { (!c, 1) } else { (c, i128::from(plus_one)) };
        let c = if signed { i128::from(c as i32) } else { i128::from(c) };
        let sum = (product + c + more) >> scale;
        (if saturate { clamp(sum, 32, signed) } else { sum }) as u32
    });
}

pub(super) fn parts(r: &mut Registers, video: &VideoParts, lanes: u32) {
    let VideoParts { op, bits, signed, saturate, accumulate, chosen, from_a, from_b, d, a, b, c } = *video;
    let [signed_d, signed_a, signed_b] = signed;
    map(r, d, [a, b, c], lanes, |a, b, c| {
        let both = u64::from(b) << 32 | u64::from(a);
        let mut result = c;
        for number in (0..32 / bits).filter(|number| chosen >> number & 1 != 0) {
            let at = |from: &[u8; 4], signed| extract(both, u32::from(from[number as usize]) * bits, bits, signed);
            let value = apply(op, at(&from_a, signed_a), at(&from_b, signed_b));
            let value = if saturate { clamp(value, bits, signed_d) } else { value } as u32;
            result = if accumulate {
                result.wrapping_add(value)
            } else {
                let place = number * bits;
                result & !(mask(bits) << place) | (value & mask(bits)) << place
            };
        }
        result
    });
}
