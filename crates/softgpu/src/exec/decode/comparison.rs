//! Comparisons and selections.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::{Modifiers, float_type, int_type};
use super::operands::{exactly, nth};
use crate::exec::op::{CompareType, Comparison, IntType, Logic, Op, Reg, Relation, Uncommon};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

/// What `set` writes where the comparison holds.
const ONE_F16: u32 = 0x3c00;
const ONE_BF16: u32 = 0x3f80;

impl Builder<'_> {
    /// The comparison that `setp` and `set` make. Their other modifiers are taken already.
    fn comparison(&mut self, i: &Instruction, m: &mut Modifiers<'_>, scalar: ScalarType) -> Decoded<Comparison> {
        let relation = m.find(relation).ok_or(Refusal::Wrong("no comparison"))?;
        let logic = m.find(|modifier| {
            Some(match modifier {
                "and" => Logic::And,
                "or" => Logic::Or,
                "xor" => Logic::Xor,
                _ => return None,
            })
        });
        let flush = m.take("ftz");
        m.finish()?;
        let ty = match float_type(scalar) {
            // Of two halves either is compared so.
            Some((float, _)) => CompareType::Float(float),
            None => CompareType::Integer(int_type(scalar)?),
        };
        // `lo`, `ls`, `hi` and `hs` compare bits whatever their type.
        let unsigned = i.modifiers.iter().any(|modifier| matches!(modifier.as_str(), "lo" | "ls" | "hi" | "hs"));
        let ty = match ty {
            CompareType::Integer(IntType::S16) if unsigned => CompareType::Integer(IntType::U16),
            CompareType::Integer(IntType::S32) if unsigned => CompareType::Integer(IntType::U32),
            CompareType::Integer(IntType::S64) if unsigned => CompareType::Integer(IntType::U64),
            ty => ty,
        };
        let (a, b) = (self.source(nth(i, 1)?, scalar)?, self.source(nth(i, 2)?, scalar)?);
        let combined = match logic {
            Some(logic) => Some((logic, self.condition(nth(i, 3)?)?)),
            None => None,
        };
        Ok(Comparison { relation, ty, flush, a, b, combined })
    }

    pub(super) fn set_predicate(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let scalar = m.ty()?;
        let comparison = self.comparison(i, m, scalar)?;
        let (d, inverse) = match nth(i, 0)? {
            Operand::Pair(d, inverse) => (d.as_ref(), Some(inverse.as_ref())),
            d => (d, None),
        };
        let wanted = |operand: &Operand| !matches!(operand, Operand::Sink);
        let d = if wanted(d) { Some(self.predicate(d)?) } else { None };
        let inverse = match inverse {
            Some(inverse) if wanted(inverse) => Some(self.predicate(inverse)?),
            _ => None,
        };
        Ok(match float_type(scalar) {
            Some((_, true)) => Op::uncommon(Uncommon::ComparePair { comparison, lower: d, upper: inverse }),
            _ => Op::Compare { comparison: Box::new(comparison), d, inverse },
        })
    }

    pub(super) fn set(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let (to, from) = (m.ty()?, m.ty()?);
        let yes = match to {
            ScalarType::F32 => 1f32.to_bits(),
            ScalarType::U32 | ScalarType::S32 => u32::MAX,
            ScalarType::U16 | ScalarType::S16 => u16::MAX.into(),
            ScalarType::F16 | ScalarType::F16x2 => ONE_F16,
            ScalarType::BF16 | ScalarType::BF16x2 => ONE_BF16,
            _ => return Err(Refusal::Unsupported),
        };
        let comparison = self.comparison(i, m, from)?;
        let d = self.destination(nth(i, 0)?, to)?;
        match (float_type(from), float_type(to)) {
            (Some((_, true)), Some((_, true))) if from == to => {
                Ok(Op::uncommon(Uncommon::SetPair { comparison, d, yes }))
            }
            (Some((_, true)), _) | (_, Some((_, true))) => Err(Refusal::Unsupported),
            _ => Ok(Op::Set { comparison: Box::new(comparison), d, yes }),
        }
    }

    pub(super) fn select(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let ty = m.ty()?;
        m.finish()?;
        let [d, a, b, condition] = exactly(i)?;
        let (a, b) = (self.source(a, ty)?, self.source(b, ty)?);
        let condition = self.condition(condition)?;
        let d = self.destination(d, ty)?;
        let d = if ty.size() > 4 { Reg::Wide(d) } else { Reg::Narrow(d) };
        Ok(Op::Select { d, a, b, condition })
    }

    pub(super) fn select_sign(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let flush = m.take("ftz");
        let (ty, sign) = (m.ty()?, m.ty()?);
        m.finish()?;
        let float = match sign {
            ScalarType::F32 => true,
            ScalarType::S32 => false,
            _ => return Err(Refusal::Unsupported),
        };
        let [d, a, b, c] = exactly(i)?;
        let (a, b, c) = (self.source(a, ty)?, self.source(b, ty)?, self.source(c, sign)?);
        let d = self.destination(d, ty)?;
        let d = if ty.size() > 4 { Reg::Wide(d) } else { Reg::Narrow(d) };
        Ok(Op::SelectSign { d, a, b, c, float, flush })
    }
}

pub(super) fn relation(name: &str) -> Option<Relation> {
    Some(match name {
        "eq" => Relation::Equal,
        "ne" => Relation::NotEqual,
        "lt" | "lo" => Relation::Less,
        "le" | "ls" => Relation::LessEqual,
        "gt" | "hi" => Relation::Greater,
        "ge" | "hs" => Relation::GreaterEqual,
        "equ" => Relation::EqualUnordered,
        "neu" => Relation::NotEqualUnordered,
        "ltu" => Relation::LessUnordered,
        "leu" => Relation::LessEqualUnordered,
        "gtu" => Relation::GreaterUnordered,
        "geu" => Relation::GreaterEqualUnordered,
        "num" => Relation::Numbers,
        "nan" => Relation::Nan,
        _ => return None,
    })
}
