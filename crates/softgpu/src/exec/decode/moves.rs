//! `mov`, and registers of 128 bits.

use super::body::{Builder, Symbol};
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{Op, Reg, Slot, Uncommon};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

const WORD: ScalarType = ScalarType::B32;

impl Builder<'_> {
    /// `mov`, also of vectors, predicates and addresses.
    pub(super) fn mov(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let count = Self::vector(m);
        let ty = m.ty()?;
        m.finish()?;
        if ty == ScalarType::B128 {
            return self.move128(i);
        }
        if count > 1 {
            return self.move_vector(i, count, ty);
        }
        let [d, a] = [nth(i, 0)?, nth(i, 1)?];
        if ty == ScalarType::Pred {
            let a = self.condition(a)?;
            return Ok(Op::MovePredicate { d: self.predicate(d)?, a });
        }
        let bits = |parts: usize| {
            let bits = 8 * u32::try_from(ty.size()).unwrap_or(u32::MAX);
            let parts = u32::try_from(parts).unwrap_or(u32::MAX);
            if parts == 0 || bits > 64 { Err(Refusal::Unsupported) } else { Ok(bits / parts) }
        };
        match (d, a) {
            (Operand::Vector(parts), _) => {
                let bits = bits(parts.len())?;
                let a = self.value(a, ty)?;
                let part = part_type(bits)?;
                Ok(Op::Unpack { parts: self.wanted_registers(parts, part)?, bits, a })
            }
            (_, Operand::Vector(parts)) => {
                let bits = bits(parts.len())?;
                let part = part_type(bits)?;
                let parts: Decoded<Vec<_>> = parts.iter().map(|from| self.value(from, part)).collect();
                Ok(Op::Pack { d: self.register(d, ty)?, bits, parts: parts?.into() })
            }
            _ => {
                let a = self.source(a, ty)?;
                let d = self.destination(d, ty)?;
                Ok(if ty.size() > 4 { Op::Move64 { d, a } } else { Op::Move32 { d, a } })
            }
        }
    }

    /// The two registers of 64 bits that one of 128 bits is.
    pub(super) fn quad(&mut self, operand: &Operand) -> Decoded<[Slot; 2]> {
        match operand {
            Operand::Name(name) => match self.find(name) {
                Some(Symbol::Quad(slots)) => Ok(slots),
                Some(_) => Err(Refusal::Wrong("an operand has no 128 bits")),
                None => Err(Refusal::Unresolved(name.clone())),
            },
            Operand::Sink => Ok([self.fresh_wide(), self.fresh_wide()]),
            _ => Err(Refusal::Wrong("an operand has no 128 bits")),
        }
    }

    /// `mov.b128`
    pub(super) fn move128(&mut self, i: &Instruction) -> Decoded<Op> {
        let [d, a] = exactly(i)?;
        let part = |count: usize| match count {
            2 => Ok((64, ScalarType::B64)),
            4 => Ok((32, WORD)),
            _ => Err(Refusal::Wrong("parts of a size that no register has")),
        };
        if let Operand::Vector(parts) = d {
            let (bits, ty) = part(parts.len())?;
            let a = self.quad(a)?;
            return Ok(Op::uncommon(Uncommon::Unpack128 { parts: self.wanted_registers(parts, ty)?, bits, a }));
        }
        let (bits, parts) = match a {
            Operand::Vector(parts) => {
                let (bits, ty) = part(parts.len())?;
                let wide = ty == ScalarType::B64;
                let register = |slot| if wide { Reg::Wide(slot) } else { Reg::Narrow(slot) };
                let parts: Decoded<Vec<Reg>> = parts.iter().map(|part| self.source(part, ty).map(register)).collect();
                (bits, parts?)
            }
            a => (64, self.quad(a)?.map(Reg::Wide).to_vec()),
        };
        Ok(Op::uncommon(Uncommon::Pack128 { d: self.quad(d)?, bits, parts: parts.into() }))
    }

    /// Registers to write to, without those that nobody wants.
    pub(super) fn wanted_registers(&mut self, operands: &[Operand], ty: ScalarType) -> Decoded<Box<[Option<Reg>]>> {
        let wanted = |to: &Operand| match to {
            Operand::Sink => Ok(None),
            to => self.register(to, ty).map(Some),
        };
        operands.iter().map(wanted).collect()
    }

    /// `mov.v2` and `mov.v4`
    pub(super) fn move_vector(&mut self, i: &Instruction, count: usize, ty: ScalarType) -> Decoded<Op> {
        let [d, a] = exactly(i)?;
        let (d, a) = (self.elements(d)?, self.elements(a)?);
        if d.len() != count || a.len() != count {
            return Err(Refusal::Wrong("not as many registers as elements"));
        }
        let register = |slot| if ty.size() > 4 { Reg::Wide(slot) } else { Reg::Narrow(slot) };
        let a: Decoded<Vec<Reg>> = a.iter().map(|from| self.source(from, ty).map(register)).collect();
        let d: Decoded<Vec<Reg>> = d.iter().map(|to| self.destination(to, ty).map(register)).collect();
        Ok(Op::uncommon(Uncommon::MoveVector { d: d?.into(), a: a?.into() }))
    }
}

/// The type of a part of so many bits.
fn part_type(bits: u32) -> Decoded<ScalarType> {
    Ok(match bits {
        8 => ScalarType::B8,
        16 => ScalarType::B16,
        32 => ScalarType::B32,
        _ => return Err(Refusal::Wrong("parts of a size that no register has")),
    })
}
