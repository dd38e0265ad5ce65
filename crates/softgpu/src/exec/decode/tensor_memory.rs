//! Matrices between registers and memory: `wmma.load`, `wmma.store`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use super::tensor::{Shape, WMMA_HALVES, by_rows, element, is_wmma};
use crate::exec::op::{Element, Matrix, MatrixAccess, Op, Reg, RowsAccess, Tensor};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::Instruction;

impl Builder<'_> {
    /// `wmma.load` and `wmma.store`
    pub(super) fn matrix_access(&mut self, i: &Instruction, m: &mut Modifiers<'_>, stores: bool) -> Decoded<Op> {
        m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
        let matrix = m.find(|modifier| match modifier {
            "a" if !stores => Some(Matrix::A),
            "b" if !stores => Some(Matrix::B),
            "c" if !stores => Some(Matrix::C),
            "d" if stores => Some(Matrix::C),
            _ => None,
        });
        let matrix = matrix.ok_or(Refusal::Wrong("no matrix"))?;
        let by_rows = m.find(by_rows).ok_or(Refusal::Wrong("no layout"))?;
        let shape = m.find(Shape::from_name).ok_or(Refusal::Wrong("no shape"))?;
        let element = m.find(element).ok_or(Refusal::Wrong("no type"))?;
        if !is_accessible(shape, matrix, element) {
            return Err(Refusal::Wrong("no such shape for this type"));
        }
        // Elements smaller than a byte have their neighbours beside them.
        if matrix != Matrix::C
            && matches!(element, Element::S4 | Element::U4 | Element::B1)
            && by_rows != (matrix == Matrix::A)
        {
            return Err(Refusal::Wrong("a layout that this type cannot have"));
        }
        let (registers, place) = if stores { (nth(i, 1)?, nth(i, 0)?) } else { (nth(i, 0)?, nth(i, 1)?) };
        let address = self.address_with_space(place, m)?;
        m.finish()?;
        let stride = match i.operands.get(2) {
            Some(stride) => Some(self.source(stride, ScalarType::U32)?),
            None => None,
        };
        let count = if matrix != Matrix::C && element == Element::F16 { WMMA_HALVES } else { 0 };
        let fragment = self.fragment(registers, matrix, element, shape, (count, !stores))?;
        let access = MatrixAccess { fragment, address, stride, by_rows };
        Ok(self.together(if stores { Tensor::Store(access) } else { Tensor::Load(access) }))
    }

    /// `ldmatrix` and `stmatrix`
    pub(super) fn matrix_rows(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let stores = i.opcode == "stmatrix";
        m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
        // The other shapes are those of later GPUs.
        if !m.take("m8n8") {
            return Err(Refusal::Unsupported);
        }
        let count = m.find(|modifier| match modifier {
            "x1" => Some(1),
            "x2" => Some(2),
            "x4" => Some(4),
            _ => None,
        });
        let transposed = m.take("trans");
        if m.ty()? != ScalarType::B16 {
            return Err(Refusal::Unsupported);
        }
        let [first, second] = exactly(i)?;
        let (registers, place) = if stores { (second, first) } else { (first, second) };
        let address = self.address_with_space(place, m)?;
        m.finish()?;
        let registers = self.matrix_registers(registers, false, !stores)?;
        let narrow = registers.iter().all(|register| matches!(register, Reg::Narrow(_)));
        if Some(registers.len()) != count || !narrow {
            return Err(Refusal::Wrong("not as many registers as matrices"));
        }
        let access = RowsAccess { address, transposed, registers };
        Ok(self.together(if stores { Tensor::StoreRows(access) } else { Tensor::LoadRows(access) }))
    }

    /// `movmatrix`
    pub(super) fn transpose(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
        if !m.take("m8n8") || !m.take("trans") || m.ty()? != ScalarType::B16 {
            return Err(Refusal::Unsupported);
        }
        m.finish()?;
        let [d, a] = exactly(i)?;
        let a = self.source(a, ScalarType::B32)?;
        let d = self.destination(d, ScalarType::B32)?;
        Ok(self.together(Tensor::Transpose { d, a }))
    }
}

/// Whether some `wmma` of that shape has such a matrix.
fn is_accessible(shape: Shape, matrix: Matrix, element: Element) -> bool {
    if matrix != Matrix::C {
        return is_wmma(shape, element);
    }
    let factors: &[Element] = match element {
        Element::F16 => &[Element::F16],
        Element::F32 => &[Element::F16, Element::Tf32],
        Element::F64 => &[Element::F64],
        Element::S32 => &[Element::S8, Element::S4, Element::B1],
        _ => &[],
    };
    factors.iter().any(|factor| is_wmma(shape, *factor))
}
