//! `atom` and `red` in all their shapes.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::memory::{atomic_op, atomic_type, named_space};
use super::modifiers::Modifiers;
use super::operands::nth;
use crate::exec::op::{Address, Atomic, Atomic128, AtomicOp, AtomicType, Op, Order, Rare};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

impl Builder<'_> {
    pub(super) fn atomic(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("async") {
            let op = m.find(atomic_op).ok_or(Refusal::Wrong("no operation"))?;
            return self.store_async(i, m, Some(op));
        }
        let hinted = m.rest().contains(&"L2::cache_hint");
        let named = m.find(named_space);
        let order = match Self::order(m) {
            Order::Weak => Order::Strong,
            order => order,
        };
        let op = m.find(atomic_op).ok_or(Refusal::Unsupported)?;
        // Halves are never flushed here.
        m.take("noftz");
        let vector = Self::vector(m);
        let scalar = m.ty()?;
        m.finish()?;
        let has_result = i.opcode == "atom";
        let first = usize::from(has_result);
        let address = self.address(nth(i, first)?, named)?;
        let operands = first + 2 + usize::from(op == AtomicOp::CompareExchange);
        // A policy for the cache may follow.
        if i.operands.len() != operands + usize::from(hinted) {
            return Err(Refusal::Wrong("wrong number of operands"));
        }
        if scalar == ScalarType::B128 {
            return self.atomic_128(i, address, op, has_result);
        }
        let ty = atomic_type(scalar, op)?;
        let form = Form { scalar, op, ty, order };
        if vector > 1 {
            return self.atomic_vector(i, address, &form, vector, has_result);
        }
        let b = self.value(nth(i, first + 1)?, scalar)?;
        let c = match op {
            AtomicOp::CompareExchange => Some(self.value(nth(i, first + 2)?, scalar)?),
            _ => None,
        };
        let to = match nth(i, 0)? {
            to if has_result && !matches!(to, Operand::Sink) => Some(self.register(to, scalar)?),
            _ => None,
        };
        Ok(Op::Atomic(Box::new(Atomic { address, op, ty, order, to, b, c })))
    }

    /// Elements side by side, each atomic by itself.
    fn atomic_vector(
        &mut self,
        i: &Instruction,
        address: Address,
        form: &Form,
        count: usize,
        has_result: bool,
    ) -> Decoded<Op> {
        let from = self.elements(nth(i, usize::from(has_result) + 1)?)?;
        let to = if has_result { self.elements(nth(i, 0)?)? } else { vec![Operand::Sink; count] };
        if from.len() != count || to.len() != count {
            return Err(Refusal::Wrong("not as many operands as elements"));
        }
        let mut parts = Vec::with_capacity(count);
        for ((number, to), from) in (0_i64..).zip(&to).zip(&from) {
            let to = match to {
                Operand::Sink => None,
                to => Some(self.register(to, form.scalar)?),
            };
            let b = self.value(from, form.scalar)?;
            let offset = address.offset + number * i64::from(form.ty.size());
            let address = Address { offset, ..address };
            parts.push(Atomic { address, op: form.op, ty: form.ty, order: form.order, to, b, c: None });
        }
        Ok(Op::Rare(Box::new(Rare::Atomics(parts.into()))))
    }

    fn atomic_128(&mut self, i: &Instruction, address: Address, op: AtomicOp, has_result: bool) -> Decoded<Op> {
        let first = usize::from(has_result);
        let (expected, new) = match op {
            AtomicOp::CompareExchange => (Some(self.quad(nth(i, first + 1)?)?[0]), nth(i, first + 2)?),
            AtomicOp::Exchange => (None, nth(i, first + 1)?),
            _ => return Err(Refusal::Wrong("no such operation on that type")),
        };
        let new = self.quad(new)?[0];
        let to = match nth(i, 0)? {
            to if has_result && !matches!(to, Operand::Sink) => self.quad(to)?[0],
            _ => {
                let first = self.fresh_wide();
                self.fresh_wide();
                first
            }
        };
        Ok(Op::Rare(Box::new(Rare::Atomic128(Atomic128 { address, to, expected, new }))))
    }
}

/// What all elements of a vector have in common.
struct Form {
    scalar: ScalarType,
    op: AtomicOp,
    ty: AtomicType,
    order: Order,
}
