//! What stands between an opcode and its operands.

use super::error::{Decoded, Refusal};
use crate::exec::op::{FloatMode, FloatType, IntType, Rounding};
use detshare_ptx::ScalarType;

/// The modifiers that nobody has asked for yet. One that is left over means that the instruction does something
/// that nobody knows of.
pub(super) struct Modifiers<'a> {
    left: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    pub(super) fn new(modifiers: &'a [String]) -> Self {
        Self { left: modifiers.iter().map(String::as_str).collect() }
    }

    /// Whether it is there.
    pub(super) fn take(&mut self, name: &str) -> bool {
        match self.left.iter().position(|modifier| *modifier == name) {
            Some(at) => {
                self.left.remove(at);
                true
            }
            None => false,
        }
    }

    /// Whether both are there, one behind the other.
    fn take_both(&mut self, first: &str, second: &str) -> bool {
        let found = self.left.windows(2).any(|pair| pair == [first, second]);
        found && self.take(first) && self.take(second)
    }

    /// The first one that means something.
    pub(super) fn find<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, found) = self.left.iter().enumerate().find_map(|(at, modifier)| Some((at, meaning(modifier)?)))?;
        self.left.remove(at);
        Some(found)
    }

    /// The next type.
    pub(super) fn ty(&mut self) -> Decoded<ScalarType> {
        self.find(ScalarType::from_name).ok_or(Refusal::Wrong("no type"))
    }

    /// Those without an effect here.
    pub(super) fn ignore(&mut self, without_effect: impl Fn(&str) -> bool) {
        self.left.retain(|modifier| !without_effect(modifier));
    }

    /// All that is left.
    pub(super) fn rest(&self) -> &[&'a str] {
        &self.left
    }

    /// Nothing may be left.
    pub(super) fn finish(&self) -> Decoded<()> {
        if self.left.is_empty() { Ok(()) } else { Err(Refusal::Unsupported) }
    }

    /// `.rn`, `.ftz`, `.sat` and the like.
    pub(super) fn float_mode(&mut self) -> FloatMode {
        let (rounding, integral) = self.find(Rounding::from_name).unwrap_or((Rounding::Nearest, false));
        FloatMode {
            rounding,
            flush: self.take("ftz"),
            saturate: self.take("sat"),
            relu: self.take("relu"),
            keep_nan: self.take("NaN"),
            sign_of_both: self.take_both("xorsign", "abs"),
            finite: self.take("satfinite"),
            outside_is_zero: false,
            integral,
        }
    }
}

/// An instruction's type as an integer one.
pub(super) fn int_type(ty: ScalarType) -> Decoded<IntType> {
    Ok(match ty {
        ScalarType::B16 | ScalarType::U16 => IntType::U16,
        ScalarType::S16 => IntType::S16,
        ScalarType::B32 | ScalarType::U32 => IntType::U32,
        ScalarType::S32 => IntType::S32,
        ScalarType::B64 | ScalarType::U64 => IntType::U64,
        ScalarType::S64 => IntType::S64,
        _ => return Err(Refusal::Unsupported),
    })
}

/// An instruction's type as a floating-point one, and whether two stand side by side.
pub(super) fn float_type(ty: ScalarType) -> Option<(FloatType, bool)> {
    Some(match ty {
        ScalarType::F16 => (FloatType::F16, false),
        ScalarType::BF16 => (FloatType::Bf16, false),
        ScalarType::F32 => (FloatType::F32, false),
        ScalarType::F64 => (FloatType::F64, false),
        ScalarType::F16x2 => (FloatType::F16, true),
        ScalarType::BF16x2 => (FloatType::Bf16, true),
        _ => return None,
    })
}
