//! `wgmma`: products that four warps compute together.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::nth;
use super::tensor::{Shape, arithmetic, element, go_together};
use crate::exec::op::{Described, Element, GroupMultiply, GroupSource, Matrix, Op, Product, Sparsity, Tensor, Unit};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

/// Rows of a warpgroup, and those of one of its warps.
const GROUP_ROWS: usize = 64;
const WARP_ROWS: usize = 16;

/// Operands, taken one after the other.
struct Operands<'a> {
    left: &'a [Operand],
}

impl<'a> Operands<'a> {
    fn next(&mut self) -> Decoded<&'a Operand> {
        let (first, left) = self.left.split_first().ok_or(Refusal::Wrong("missing operand"))?;
        self.left = left;
        Ok(first)
    }

    /// A number that is one of two.
    fn either(&mut self, no: i128, yes: i128) -> Decoded<bool> {
        match self.next()? {
            Operand::Integer(value) if *value == no => Ok(false),
            Operand::Integer(value) if *value == yes => Ok(true),
            _ => Err(Refusal::Wrong("a number that this operand cannot be")),
        }
    }
}

fn is_shape(Shape { m, n, k }: Shape, element: Element, sparse: bool) -> bool {
    let dense = match element {
        Element::F16 | Element::Bf16 => 16,
        Element::Tf32 => 8,
        Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 32,
        Element::B1 => 256,
        _ => return false,
    };
    let n_fits = n % 8 == 0 && (8..=256).contains(&n);
    m == GROUP_ROWS && n_fits && k == if sparse { 2 * dense } else { dense } && !(sparse && element == Element::B1)
}

impl Builder<'_> {
    pub(super) fn warp_group(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        // Products are computed where they stand: nothing is left to wait for but the other warps.
        let without_effect = [("fence", Op::Nop), ("commit_group", Op::Nop), ("wait_group", Op::GroupWait)];
        if let Some((_, op)) = without_effect.into_iter().find(|(name, _)| m.take(name)) {
            m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
            m.finish()?;
            return Ok(op);
        }
        if !m.take("mma_async") {
            return Err(Refusal::Unsupported);
        }
        let sparse = m.take("sp");
        m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
        let shape = m.find(Shape::from_name).ok_or(Refusal::Wrong("no shape"))?;
        let mut ty = || m.find(element).ok_or(Refusal::Wrong("no type"));
        let (d_type, a_type, b_type) = (ty()?, ty()?, ty()?);
        let arithmetic = arithmetic(m, Unit::WarpGroup);
        m.finish()?;
        if !go_together(a_type, b_type, d_type) || !is_shape(shape, a_type, sparse) {
            return Err(Refusal::Wrong("no such shape for these types"));
        }
        if (arithmetic.product == Product::And) != (a_type == Element::B1) {
            return Err(Refusal::Wrong("an operation that these types cannot have"));
        }
        let rows = Shape { m: WARP_ROWS, ..shape };
        let stored = if sparse { Shape { k: shape.k / 2, ..rows } } else { rows };
        let mut operands = Operands { left: &i.operands };
        let d = self.fragment(operands.next()?, Matrix::C, d_type, rows, (0, true))?;
        let a = operands.next()?;
        let in_registers = matches!(a, Operand::Vector(_));
        let b = self.source(operands.next()?, ScalarType::B64)?;
        let sparsity = if sparse { Some(self.group_sparsity(&mut operands, shape, a_type)?) } else { None };
        let adds = self.condition(operands.next()?)?;
        let is_float = !matches!(d_type, Element::S32);
        let [mut negate_a, mut negate_b] = [false; 2];
        if is_float {
            [negate_a, negate_b] = [operands.either(1, -1)?, operands.either(1, -1)?];
        }
        let [mut a_along_k, mut b_along_k] = [true; 2];
        if matches!(a_type, Element::F16 | Element::Bf16) {
            if !in_registers {
                a_along_k = !operands.either(0, 1)?;
            }
            b_along_k = !operands.either(0, 1)?;
        }
        if !operands.left.is_empty() {
            return Err(Refusal::Wrong("wrong number of operands"));
        }
        let a = if in_registers {
            GroupSource::Registers(self.fragment(a, Matrix::A, a_type, stored, (0, false))?)
        } else {
            let descriptor = self.source(nth(i, 1)?, ScalarType::B64)?;
            GroupSource::Shared(Described { descriptor, along_k: a_along_k })
        };
        let [_, a_columns] = stored.size(Matrix::A, a_type);
        let [k, _] = rows.size(Matrix::B, b_type);
        Ok(self.together(Tensor::GroupMultiply(GroupMultiply {
            arithmetic,
            a,
            a_element: a_type,
            a_columns,
            b: Described { descriptor: b, along_k: b_along_k },
            b_element: b_type,
            k,
            d,
            adds,
            negate_a,
            negate_b,
            sparsity,
        })))
    }

    fn group_sparsity(&mut self, operands: &mut Operands<'_>, shape: Shape, element: Element) -> Decoded<Sparsity> {
        let (metadata, selector) = (operands.next()?, operands.next()?);
        self.sparsity(metadata, selector, shape, element)
    }
}
