//! Instructions on registers that few kernels have.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{FloatMode, Fp8, IntType, Integer2, Logic, Op, Rounding, Uncommon};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

const WORD: ScalarType = ScalarType::B32;

fn fp8(ty: ScalarType) -> Option<Fp8> {
    match ty {
        ScalarType::E4M3x2 => Some(Fp8::E4m3),
        ScalarType::E5M2x2 => Some(Fp8::E5m2),
        _ => None,
    }
}

impl Builder<'_> {
    /// Conversions between two numbers of eight bits and two larger ones, if it is one.
    pub(super) fn convert_fp8(
        &mut self,
        i: &Instruction,
        mode: FloatMode,
        to: ScalarType,
        from: ScalarType,
    ) -> Option<Decoded<Op>> {
        if fp8(to).is_none() && fp8(from).is_none() {
            return None;
        }
        Some(self.fp8_conversion(i, mode, to, from))
    }

    fn fp8_conversion(&mut self, i: &Instruction, mode: FloatMode, to: ScalarType, from: ScalarType) -> Decoded<Op> {
        let FloatMode { rounding, relu, finite, .. } = mode;
        if rounding != Rounding::Nearest || finite != fp8(to).is_some() {
            return Err(Refusal::Unsupported);
        }
        Ok(Op::uncommon(match (fp8(to), fp8(from), from, to) {
            (Some(format), None, ScalarType::F32, _) => {
                let [d, a, b] = exactly(i)?;
                let (a, b) = (self.source(a, from)?, self.source(b, from)?);
                Uncommon::Fp8FromPair { format, relu, d: self.destination(d, to)?, a, b }
            }
            (Some(format), None, ScalarType::F16x2, _) => {
                let [d, a] = exactly(i)?;
                let a = self.source(a, from)?;
                Uncommon::Fp8FromHalves { format, relu, d: self.destination(d, to)?, a }
            }
            (None, Some(format), _, ScalarType::F16x2) => {
                let [d, a] = exactly(i)?;
                let a = self.source(a, from)?;
                Uncommon::Fp8ToHalves { format, relu, d: self.destination(d, to)?, a }
            }
            _ => return Err(Refusal::Unsupported),
        }))
    }

    /// `cvt.pack.sat.u8.s32.b32`
    pub(super) fn convert_pack(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if !m.take("sat") {
            return Err(Refusal::Wrong("no .sat"));
        }
        let to = m.find(|modifier| {
            Some(match modifier {
                "u16" => (16, false),
                "s16" => (16, true),
                "u8" => (8, false),
                "s8" => (8, true),
                "u4" => (4, false),
                "s4" => (4, true),
                "u2" => (2, false),
                "s2" => (2, true),
                _ => return None,
            })
        });
        let (bits, signed) = to.ok_or(Refusal::Unsupported)?;
        if m.ty()? != ScalarType::S32 {
            return Err(Refusal::Unsupported);
        }
        let with_c = m.find(ScalarType::from_name).is_some();
        m.finish()?;
        let (a, b) = (self.source(nth(i, 1)?, WORD)?, self.source(nth(i, 2)?, WORD)?);
        let c = if with_c { self.source(nth(i, 3)?, WORD)? } else { self.narrow_constant(0) };
        Ok(Op::uncommon(Uncommon::PackSaturated { bits, signed, d: self.destination(nth(i, 0)?, WORD)?, a, b, c }))
    }

    /// `fns`
    pub(super) fn find_bit(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.ty()?;
        m.finish()?;
        let [d, a, base, offset] = exactly(i)?;
        let (a, base, offset) = (self.source(a, WORD)?, self.source(base, WORD)?, self.source(offset, WORD)?);
        Ok(Op::uncommon(Uncommon::FindBit { d: self.destination(d, WORD)?, a, base, offset }))
    }

    /// `szext`
    pub(super) fn extend(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let clamp = m.take("clamp");
        m.take("wrap");
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, WORD)?);
        let signed = ty == ScalarType::S32;
        Ok(Op::uncommon(Uncommon::Extend { signed, clamp, d: self.destination(d, ty)?, a, b }))
    }

    /// `lop3.and.b32 d|p, a, b, c, table, q`
    pub(super) fn lop3_test(&mut self, i: &Instruction, logic: Logic, table: u8) -> Decoded<Op> {
        let [Operand::Pair(d, p), a, b, c, _, q] = exactly(i)? else {
            return Err(Refusal::Wrong("no predicate to write to"));
        };
        let (a, b, c) = (self.source(a, WORD)?, self.source(b, WORD)?, self.source(c, WORD)?);
        let q = self.condition(q)?;
        let d = if matches!(**d, Operand::Sink) { None } else { Some(self.destination(d, WORD)?) };
        Ok(Op::uncommon(Uncommon::Lop3Test { table, d, p: self.predicate(p)?, a, b, c, logic, q }))
    }

    /// Two integers of 16 bits at once.
    pub(super) fn integer_pair(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Integer2) -> Decoded<Op> {
        let relu = m.take("relu");
        let scalar = m.ty()?;
        m.finish()?;
        let ty = if scalar == ScalarType::S16x2 { IntType::S16 } else { IntType::U16 };
        if relu && ty == IntType::U16 || !matches!(op, Integer2::Add | Integer2::Min | Integer2::Max) {
            return Err(Refusal::Unsupported);
        }
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, scalar)?, self.source(b, scalar)?);
        Ok(Op::uncommon(Uncommon::IntegerPair { op, ty, relu, d: self.destination(d, scalar)?, a, b }))
    }

    /// `min` and `max` with `.relu`.
    pub(super) fn integer_relu(&mut self, i: &Instruction, m: &mut Modifiers<'_>, op: Integer2) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        if ty != ScalarType::S32 {
            return Err(Refusal::Unsupported);
        }
        let [d, a, b] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        let (any, zero) = (self.fresh_narrow(), self.narrow_constant(0));
        let d = self.destination(d, ty)?;
        self.emit(Op::Integer2 { op, ty: IntType::S32, d: any, a, b });
        Ok(Op::Integer2 { op: Integer2::Max, ty: IntType::S32, d, a: any, b: zero })
    }
}
