//! Clusters, and memory on the stack.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::memory::named_space;
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{Op, Rare};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

/// `barrier.cluster`
pub(super) fn cluster_barrier(i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
    m.ignore(|modifier| matches!(modifier, "aligned" | "release" | "relaxed" | "acquire"));
    let rare = match (m.take("arrive"), m.take("wait")) {
        (true, false) => Rare::ClusterArrive,
        (false, true) => Rare::ClusterWait,
        _ => return Err(Refusal::Wrong("neither arrive nor wait")),
    };
    m.finish()?;
    let [] = exactly(i)?;
    Ok(Op::Rare(Box::new(rare)))
}

impl Builder<'_> {
    /// Whether an address is generic rather than one of shared memory, and its type.
    fn cluster_address(m: &mut Modifiers<'_>) -> Decoded<(bool, ScalarType)> {
        let generic = m.find(named_space).is_none();
        let ty = m.ty()?;
        m.finish()?;
        if generic && ty.size() != 8 {
            return Err(Refusal::Unsupported);
        }
        Ok((generic, ty))
    }

    pub(super) fn map_address(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let (generic, ty) = Self::cluster_address(m)?;
        let [d, a, rank] = exactly(i)?;
        let (a, rank) = (self.value(a, ty)?, self.source(rank, ScalarType::U32)?);
        let d = self.register(d, ty)?;
        Ok(Op::Rare(Box::new(Rare::MapAddress { d, a, rank, generic })))
    }

    pub(super) fn block_rank(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let (generic, ty) = Self::cluster_address(m)?;
        let [d, a] = exactly(i)?;
        let a = self.value(a, ty)?;
        let d = self.destination(d, ScalarType::U32)?;
        Ok(Op::Rare(Box::new(Rare::BlockRank { d, a, generic })))
    }

    /// `alloca`, `stacksave` and `stackrestore`.
    pub(super) fn stack(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        /// What `alloca` aligns to where it does not say.
        const USUAL_ALIGN: i128 = 8;
        const MOST_ALIGN: i128 = 1 << 12;
        let ty = m.ty()?;
        m.finish()?;
        let rare = match i.opcode.as_str() {
            "stacksave" => Rare::StackSave { d: self.register(nth(i, 0)?, ty)? },
            "stackrestore" => Rare::StackRestore { a: self.value(nth(i, 0)?, ty)? },
            _ => {
                let align = match i.operands.get(2) {
                    None => USUAL_ALIGN,
                    Some(Operand::Integer(align)) if (1..=MOST_ALIGN).contains(align) => *align,
                    Some(_) => return Err(Refusal::Wrong("no alignment")),
                };
                let align = u64::try_from(align).unwrap_or(1).next_power_of_two();
                let size = self.value(nth(i, 1)?, ty)?;
                Rare::Allocate { d: self.register(nth(i, 0)?, ty)?, size, align }
            }
        };
        Ok(Op::Rare(Box::new(rare)))
    }
}
