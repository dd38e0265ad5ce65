//! Products and sums that are one instruction on a GPU.
//!
//! [`Joined`](detshare_ptx::joined::Joined) says which the driver's compiler joins. Where a product stands, its factors are
//! kept: they are the registers themselves, or copies where these are written to before the last sum. The product is
//! left out if all who read it are joined. Where a sum stands, an `fma` takes its place, with its predicate and its line.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::{Modifiers, float_type};
use super::operands::{exactly, nth};
use crate::exec::op::{Float2, FloatMode, FloatType, Op, Slot};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::Instruction;
use detshare_ptx::joined::Sum;

impl Builder<'_> {
    /// Keeps the factors of a product that sums are joined with.
    pub(super) fn keep_factors(&mut self, i: &Instruction) -> Decoded<()> {
        let Some(product) = self.joined.product(i) else { return Ok(()) };
        let mut m = Modifiers::new(&i.modifiers);
        let full = !m.take("approx") || i.opcode == "rcp";
        m.take("full");
        let mode = m.float_mode();
        let ty = m.ty()?;
        m.finish()?;
        let factors = match i.opcode.as_str() {
            "mul" => {
                let factors = [self.source(nth(i, 1)?, ty)?, self.source(nth(i, 2)?, ty)?];
                if product.overwritten { factors.map(|factor| self.kept(factor, ty)) } else { factors }
            }
            // A reciprocal is the quotient of one and a number.
            "rcp" => {
                let (one, divisor) = (self.narrow_constant(1f32.to_bits()), self.source(nth(i, 1)?, ty)?);
                self.factors_of_quotient(full, mode, [one, divisor])
            }
            _ => {
                let quotient = [self.source(nth(i, 1)?, ty)?, self.source(nth(i, 2)?, ty)?];
                self.factors_of_quotient(full, mode, quotient)
            }
        };
        self.factors.insert(i.span.start, factors);
        Ok(())
    }

    /// A register that no instruction of the source writes to.
    fn unnamed(&mut self, wide: bool) -> Slot {
        let registers = self.registers();
        let slot = if wide { self.fresh_wide() } else { self.fresh_narrow() };
        self.set_registers(registers);
        slot
    }

    fn kept(&mut self, a: Slot, ty: ScalarType) -> Slot {
        let wide = ty.size() > 4;
        let d = self.unnamed(wide);
        self.emit(if wide { Op::Move64 { d, a } } else { Op::Move32 { d, a } });
        d
    }

    fn factors_of_quotient(&mut self, full: bool, mode: FloatMode, [a, b]: [Slot; 2]) -> [Slot; 2] {
        let ops = if full {
            [Float2::FullReciprocal, Float2::FullDividend]
        } else {
            [Float2::ApproxReciprocal, Float2::ApproxDividend]
        };
        ops.map(|op| {
            let d = self.unnamed(false);
            self.emit(Op::Float2 { op, ty: FloatType::F32, mode, d, a, b });
            d
        })
    }

    /// What becomes of a sum that is joined.
    pub(super) fn joined_sum(&mut self, i: &Instruction, sum: Sum) -> Decoded<Option<Op>> {
        let Some([a, b]) = self.factors.get(&sum.product).copied() else { return Ok(None) };
        let mut m = Modifiers::new(&i.modifiers);
        let mode = m.float_mode();
        let scalar = m.ty()?;
        m.finish()?;
        let (ty, packed) = float_type(scalar).ok_or(Refusal::Unsupported)?;
        let [d, first, second] = exactly(i)?;
        let c = self.source(if sum.operand == 0 { second } else { first }, scalar)?;
        let d = self.destination(d, scalar)?;
        let subtracts = |operand: usize| i.opcode == "sub" && operand == 1;
        let negate = [sum.negated != subtracts(sum.operand), subtracts(1 - sum.operand)];
        Ok(Some(match (negate, packed) {
            ([false, false], false) => Op::Fma { ty, mode, d, a, b, c },
            ([false, false], true) => Op::PackedFma { ty, mode, d, a, b, c },
            _ => Op::Joined { ty, mode, packed, negate, d, a, b, c },
        }))
    }
}
