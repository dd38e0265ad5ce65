//! Video instructions: arithmetic on parts of registers.
//!
//! GPUs since Maxwell have hardware for none of those on one value (`vadd`, `vshl`, `vmad`, …): the compiler puts
//! sequences of other instructions in their place, and what these yield is not always what the PTX ISA says. Results
//! are those of an H200 under driver 580 (CUDA 13.0):
//!
//! | where | what comes out |
//! | --- | --- |
//! | `.sat` to `.u32` | below 0 is 0, but above the largest number the lower 32 bits stay; shifts and `vmad` do saturate |
//! | `.sat` into a part | whatever is not between 0 and the part's largest number is that number, what is negative too |
//! | shifts with `.sat` | only 34 bits of the shifted number are looked at; a part takes bits of the word saturated |
//! | into `.h1` | the upper half of the result, not the lower one (CUDA 13.4's compiler takes the lower one) |
//! | `.min`, `.max` | compare 64 bits: the third operand extended by the type of the result, the rest as it comes |
//! | `vmad` | multiplies words as signed numbers, and the third operand is signed, whatever their types |
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
    let shift = matches!(op, VideoOp::ShiftLeft { .. } | VideoOp::ShiftRight { .. });
    map(r, d, [a.slot, b.slot, c], lanes, |word_a, word_b, c| {
        let value = apply(op, part(word_a, a), part(word_b, b)) as i64;
        let value = if shift && saturate { extract(value as u64, 0, SHIFTED_BITS, true) } else { value };
        if let Second::Merge { from, bits } = second {
            let result = match (saturate, shift) {
                (false, _) => value as u32,
                (true, true) => saturated(value, signed),
                (true, false) => (value as u64).min(mask(bits - u32::from(signed)).into()) as u32,
            };
            let is_upper_half = (from, bits) == (16, 16);
            let bits_taken = if is_upper_half { result >> 16 } else { result };
            return c & !(mask(bits) << from) | (bits_taken & mask(bits)) << from;
        }
        let result = match op {
            _ if saturate && (signed || shift) => i64::from(saturated(value, signed) as i32),
            VideoOp::Add | VideoOp::Sub if saturate => i64::from(value.max(0) as i32),
            VideoOp::Add | VideoOp::Sub => i64::from(value as i32),
            _ if saturate => value.max(0),
            _ => value,
        };
        let [first, third] = if signed {
            [result, i64::from(c as i32)].map(i128::from)
        } else {
            [result as u64, c.into()].map(i128::from)
        };
        match second {
            Second::Add => c.wrapping_add(result as u32),
            Second::Min if third <= first => c,
            Second::Max if third >= first => c,
            _ => result as u32,
        }
    });
}

/// So many bits of a shifted number are there to be saturated, with the sign.
const SHIFTED_BITS: u32 = 34;

/// What 32 bits can hold of it.
fn saturated(value: i64, signed: bool) -> u32 {
    clamp(value.into(), 32, signed) as u32
}

pub(super) fn multiply(r: &mut Registers, video: &VideoMultiply, lanes: u32) {
    let VideoMultiply { negated, negated_c, plus_one, saturate, scale, d, a, b, c } = *video;
    let signed = a.signed || b.signed || negated || negated_c;
    map(r, d, [a.slot, b.slot, c], lanes, |word_a, word_b, c| {
        let factor = |word, it| i64::from(part(word, it) as i32);
        let product = factor(word_a, a) * factor(word_b, b);
        let product = if negated { -product } else { product };
        // The complement of `c` and one more, as 32 bits are extended after that.
        let (c, more) = if negated_c { (!c, 1) } else { (c, i64::from(plus_one)) };
        let sum = product.wrapping_add((c as i32).into()).wrapping_add(more);
        let scaled = if signed { sum >> scale } else { (sum as u64 >> scale) as i64 };
        if saturate { saturated(scaled, signed) } else { scaled as u32 }
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
