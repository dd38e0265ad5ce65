//! Video instructions.

use super::body::Builder;
use super::comparison::relation;
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{Op, Part, Relation, Second, Slot, Uncommon, Video, VideoMultiply, VideoOp, VideoParts};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

const WORD: ScalarType = ScalarType::B32;

/// `.b2` and `.h1`: the first bit and how many.
fn selected(selector: &str) -> Decoded<(u32, u32)> {
    Ok(match selector {
        "b0" => (0, 8),
        "b1" => (8, 8),
        "b2" => (16, 8),
        "b3" => (24, 8),
        "h0" => (0, 16),
        "h1" => (16, 16),
        _ => return Err(Refusal::Wrong("no part of a register")),
    })
}

/// An operand without its selector and sign: `-r.b0`.
fn taken_apart(operand: &Operand) -> (Operand, Option<&str>, bool) {
    let (name, negated) = match operand {
        Operand::Name(name) => (name, false),
        Operand::Negative(name) => (name, true),
        other => return (other.clone(), None, false),
    };
    match name.rsplit_once('.') {
        Some((register, selector)) => (Operand::Name(register.to_string()), Some(selector), negated),
        None => (Operand::Name(name.clone()), None, negated),
    }
}

/// `.u32` or `.s32`: whether it is signed.
fn is_signed(m: &mut Modifiers<'_>) -> Decoded<bool> {
    match m.ty()? {
        ScalarType::S32 => Ok(true),
        ScalarType::U32 => Ok(false),
        _ => Err(Refusal::Wrong("no type of video instructions")),
    }
}

/// The comparison of `vset`.
fn comparison(m: &mut Modifiers<'_>) -> Decoded<VideoOp> {
    let relation = m.find(relation).ok_or(Refusal::Wrong("no comparison"))?;
    let is_plain = matches!(
        relation,
        Relation::Equal
            | Relation::NotEqual
            | Relation::Less
            | Relation::LessEqual
            | Relation::Greater
            | Relation::GreaterEqual
    );
    if is_plain { Ok(VideoOp::Set(relation)) } else { Err(Refusal::Wrong("no comparison of integers")) }
}

impl Builder<'_> {
    /// An operand and whether it is negated.
    fn part(&mut self, operand: &Operand, signed: bool) -> Decoded<(Part, bool)> {
        let (register, selector, negated) = taken_apart(operand);
        let (from, bits) = selector.map_or(Ok((0, 32)), selected)?;
        Ok((Part { slot: self.source(&register, WORD)?, from, bits, signed }, negated))
    }

    /// `vadd`, `vset` and the like.
    pub(super) fn video(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let set = i.opcode == "vset";
        let first = is_signed(m)?;
        // The result of a comparison is as signed as its first operand, where that is asked for.
        let (signed, signed_a) = (first, if set { first } else { is_signed(m)? });
        let signed_b = is_signed(m)?;
        let saturate = !set && m.take("sat");
        let op = match i.opcode.as_str() {
            "vadd" => VideoOp::Add,
            "vsub" => VideoOp::Sub,
            "vabsdiff" => VideoOp::AbsoluteDifference,
            "vmin" => VideoOp::Min,
            "vmax" => VideoOp::Max,
            "vshl" => VideoOp::ShiftLeft { clamp: m.take("clamp") },
            "vshr" => VideoOp::ShiftRight { clamp: m.take("clamp") },
            _ => comparison(m)?,
        };
        if matches!(op, VideoOp::ShiftLeft { clamp: false } | VideoOp::ShiftRight { clamp: false }) && !m.take("wrap") {
            return Err(Refusal::Wrong("no mode"));
        }
        let second = m.find(|modifier| {
            Some(match modifier {
                "add" => Second::Add,
                "min" => Second::Min,
                "max" => Second::Max,
                _ => return None,
            })
        });
        m.finish()?;
        let (d, selector, _) = taken_apart(nth(i, 0)?);
        let second = match (second, selector) {
            (None, None) => Second::None,
            (Some(second), None) => second,
            (None, Some(selector)) => {
                let (from, bits) = selected(selector)?;
                Second::Merge { from, bits }
            }
            _ => return Err(Refusal::Wrong("both a part of the destination and a second operation")),
        };
        let operands = if second == Second::None { 3 } else { 4 };
        if i.operands.len() != operands {
            return Err(Refusal::Wrong("wrong number of operands"));
        }
        let ((a, _), (b, _)) = (self.part(nth(i, 1)?, signed_a)?, self.part(nth(i, 2)?, signed_b)?);
        let c = if second == Second::None { self.narrow_constant(0) } else { self.source(nth(i, 3)?, WORD)? };
        let video = Video { op, signed, saturate, second, d: self.destination(&d, WORD)?, a, b, c };
        Ok(Op::uncommon(Uncommon::Video(video)))
    }

    /// `vmad`
    pub(super) fn video_multiply(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        is_signed(m)?;
        let (signed_a, signed_b) = (is_signed(m)?, is_signed(m)?);
        let (plus_one, saturate) = (m.take("po"), m.take("sat"));
        let scale = m.find(|modifier| match modifier {
            "shr7" => Some(7),
            "shr15" => Some(15),
            _ => None,
        });
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let ((a, negated_a), (b, negated_b)) = (self.part(a, signed_a)?, self.part(b, signed_b)?);
        let (c, _, negated_c) = taken_apart(c);
        let negated = negated_a != negated_b;
        if (negated_a || negated_b) && negated_c || plus_one && (negated_a || negated_b || negated_c) {
            return Err(Refusal::Wrong("operands are negated that cannot be"));
        }
        let c = self.source(&c, WORD)?;
        let (d, scale) = (self.destination(d, WORD)?, scale.unwrap_or(0));
        let multiply = VideoMultiply { negated, negated_c, plus_one, saturate, scale, d, a, b, c };
        Ok(Op::uncommon(Uncommon::VideoMultiply(multiply)))
    }

    /// `vadd2`, `vset4` and the like.
    pub(super) fn video_parts(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let (name, bits) = match i.opcode.strip_suffix('2') {
            Some(name) => (name, 16),
            None => (i.opcode.trim_end_matches('4'), 8),
        };
        let set = name == "vset";
        let signed_d = if set { false } else { is_signed(m)? };
        let signed = [signed_d, is_signed(m)?, is_signed(m)?];
        let op = match name {
            "vadd" => VideoOp::Add,
            "vsub" => VideoOp::Sub,
            "vavrg" => VideoOp::Average,
            "vabsdiff" => VideoOp::AbsoluteDifference,
            "vmin" => VideoOp::Min,
            "vmax" => VideoOp::Max,
            _ => comparison(m)?,
        };
        let (saturate, accumulate) = (!set && m.take("sat"), m.take("add"));
        m.finish()?;
        let [d, a, b, c] = exactly(i)?;
        let count = 32 / bits;
        let (d, chosen, _) = taken_apart(d);
        let chosen = chosen.map_or(Ok((1 << count) - 1), |selector| {
            Ok(numbers(selector, bits, count)?.iter().fold(0, |chosen, number| chosen | 1 << number))
        })?;
        let (a, from_a) = self.parts(a, bits, 0)?;
        let (b, from_b) = self.parts(b, bits, count)?;
        let c = self.source(c, WORD)?;
        let d = self.destination(&d, WORD)?;
        let parts = VideoParts { op, bits, signed, saturate, accumulate, chosen, from_a, from_b, d, a, b, c };
        Ok(Op::uncommon(Uncommon::VideoParts(parts)))
    }

    /// An operand and where its parts come from, lowest first: those from `first` on where it does not say.
    fn parts(&mut self, operand: &Operand, bits: u32, first: u32) -> Decoded<(Slot, [u8; 4])> {
        let (register, selector, _) = taken_apart(operand);
        let count = 32 / bits;
        let mut from = [0, 1, 2, 3].map(|number| number + u8::try_from(first).unwrap_or(0));
        if let Some(selector) = selector {
            let numbers = numbers(selector, bits, 2 * count)?;
            if numbers.len() != count as usize {
                return Err(Refusal::Wrong("not as many parts as there are"));
            }
            from.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
        }
        Ok((self.source(&register, WORD)?, from))
    }
}

/// The numbers of `.h32` or `.b7610`, the last one first, each below a limit.
fn numbers(selector: &str, bits: u32, limit: u32) -> Decoded<Vec<u8>> {
    let wrong = Refusal::Wrong("no parts of a register");
    let Some(digits) = selector.strip_prefix(if bits == 16 { 'h' } else { 'b' }) else { return Err(wrong) };
    let number =
        |digit: char| digit.to_digit(8).filter(|digit| *digit < limit).and_then(|digit| u8::try_from(digit).ok());
    digits.chars().rev().map(number).collect::<Option<_>>().filter(|numbers: &Vec<u8>| !numbers.is_empty()).ok_or(wrong)
}
