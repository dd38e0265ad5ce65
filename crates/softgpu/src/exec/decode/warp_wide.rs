//! What the lanes of a warp do together.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::memory::atomic_op;
use super::modifiers::{Modifiers, int_type};
use super::operands::{exactly, nth};
use crate::exec::op::{AtomicOp, Collective, IntType, Op, Reg, ShuffleMode, Slot, Vote};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

const WORD: ScalarType = ScalarType::B32;

/// `d|p`
fn pair(operand: &Operand) -> (&Operand, Option<&Operand>) {
    match operand {
        Operand::Pair(first, second) => (first, Some(second)),
        operand => (operand, None),
    }
}

impl Builder<'_> {
    /// The mask of the lanes that take part, where the instruction has one.
    fn members(&mut self, i: &Instruction, m: &mut Modifiers<'_>, at: usize) -> Decoded<Option<Slot>> {
        if m.take("sync") { self.source(nth(i, at)?, WORD).map(Some) } else { Ok(None) }
    }

    pub(super) fn shuffle(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let members = self.members(i, m, 4)?;
        let mode = m.find(|modifier| {
            Some(match modifier {
                "up" => ShuffleMode::Up,
                "down" => ShuffleMode::Down,
                "bfly" => ShuffleMode::Butterfly,
                "idx" => ShuffleMode::Index,
                _ => return None,
            })
        });
        let mode = mode.ok_or(Refusal::Wrong("no mode"))?;
        let ty = m.ty()?;
        m.finish()?;
        let (to, valid) = pair(nth(i, 0)?);
        let (a, b, c) = (nth(i, 1)?, nth(i, 2)?, nth(i, 3)?);
        let (a, b, c) = (self.source(a, ty)?, self.source(b, WORD)?, self.source(c, WORD)?);
        let to = if matches!(to, Operand::Sink) { None } else { Some(self.destination(to, ty)?) };
        let valid = match valid {
            Some(valid) => Some(self.predicate(valid)?),
            None => None,
        };
        let collective = Box::new(Collective::Shuffle { mode, to, valid, a, b, c });
        Ok(Op::Collective { members, collective })
    }

    pub(super) fn vote(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let members = self.members(i, m, 2)?;
        let ballot = m.take("ballot");
        let kind = m.find(|modifier| {
            Some(match modifier {
                "all" => Vote::All,
                "any" => Vote::Any,
                "uni" => Vote::Uniform,
                _ => return None,
            })
        });
        m.ty()?;
        m.finish()?;
        let a = self.condition(nth(i, 1)?)?;
        let collective = match kind {
            Some(kind) => Collective::Vote { kind, to: self.predicate(nth(i, 0)?)?, a },
            None if ballot => Collective::Ballot { to: self.destination(nth(i, 0)?, WORD)?, a },
            None => return Err(Refusal::Wrong("no mode")),
        };
        Ok(Op::Collective { members, collective: Box::new(collective) })
    }

    pub(super) fn matching(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let members = self.members(i, m, 2)?;
        let all = m.take("all");
        m.take("any");
        let ty = m.ty()?;
        m.finish()?;
        let a = self.source(nth(i, 1)?, ty)?;
        let a = if ty.size() > 4 { Reg::Wide(a) } else { Reg::Narrow(a) };
        let (to, same) = pair(nth(i, 0)?);
        let collective = if all {
            let same = match same {
                Some(same) => Some(self.predicate(same)?),
                None => None,
            };
            let to = if matches!(to, Operand::Sink) { None } else { Some(self.destination(to, WORD)?) };
            Collective::MatchAll { to, same, a }
        } else {
            Collective::MatchAny { to: self.destination(to, WORD)?, a }
        };
        Ok(Op::Collective { members, collective: Box::new(collective) })
    }

    pub(super) fn reduce(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let members = self.members(i, m, 2)?;
        let op = m.find(atomic_op).ok_or(Refusal::Wrong("no operation"))?;
        let scalar = m.ty()?;
        m.finish()?;
        let ty = int_type(scalar)?;
        if !matches!(ty, IntType::U32 | IntType::S32)
            || matches!(op, AtomicOp::Exchange | AtomicOp::CompareExchange | AtomicOp::Increment | AtomicOp::Decrement)
        {
            return Err(Refusal::Unsupported);
        }
        let a = self.source(nth(i, 1)?, scalar)?;
        let collective = Collective::Reduce { op, ty, to: self.destination(nth(i, 0)?, scalar)?, a };
        Ok(Op::Collective { members, collective: Box::new(collective) })
    }

    pub(super) fn elect(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let members = self.members(i, m, 1)?;
        m.finish()?;
        let [d, _] = exactly(i)?;
        let (to, elected) = pair(d);
        let elected = elected.ok_or(Refusal::Wrong("no predicate"))?;
        let to = if matches!(to, Operand::Sink) { None } else { Some(self.destination(to, WORD)?) };
        let collective = Collective::Elect { to, elected: self.predicate(elected)? };
        Ok(Op::Collective { members, collective: Box::new(collective) })
    }
}
