//! Products of matrices: `mma` and `wmma.mma`.

use super::body::Builder;
use super::error::{Decoded, Refusal};
use super::modifiers::Modifiers;
use super::operands::{exactly, nth};
use crate::exec::op::{
    Arithmetic, Element, Fragment, Matrix, Multiply, Op, Product, QuadMultiply, Reg, Rounding, Sparsity, Tensor, Unit,
};
use detshare_ptx::ScalarType;
use detshare_ptx::ast::{Instruction, Operand};

/// Registers of `.f16` that `wmma` has for A and for B, whatever the shape: the matrix is there more than once.
pub(super) const WMMA_HALVES: usize = 8;
/// Bits that count as one element.
const WORD: usize = 32;

/// The sizes of a product: A is `m` by `k`, B is `k` by `n`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
}

impl Shape {
    /// `m16n8k16`
    pub(super) fn from_name(name: &str) -> Option<Self> {
        let (m, rest) = name.strip_prefix('m')?.split_once('n')?;
        let (n, k) = rest.split_once('k')?;
        Some(Self { m: m.parse().ok()?, n: n.parse().ok()?, k: k.parse().ok()? })
    }

    /// Rows and columns of one of the matrices.
    pub(super) fn size(self, matrix: Matrix, element: Element) -> [usize; 2] {
        let k = if element == Element::B1 { self.k / WORD } else { self.k };
        match matrix {
            Matrix::A => [self.m, k],
            Matrix::B => [k, self.n],
            Matrix::C => [self.m, self.n],
        }
    }
}

pub(super) fn element(name: &str) -> Option<Element> {
    Some(match name {
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "tf32" => Element::Tf32,
        "f32" => Element::F32,
        "f64" => Element::F64,
        "e4m3" => Element::E4m3,
        "e5m2" => Element::E5m2,
        "s8" => Element::S8,
        "u8" => Element::U8,
        "s4" => Element::S4,
        "u4" => Element::U4,
        "b1" => Element::B1,
        "s32" => Element::S32,
        _ => return None,
    })
}

/// Whether an instruction can have A, B and C or D of such types.
pub(super) fn go_together(a: Element, b: Element, c: Element) -> bool {
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
    match (a, b) {
        (F16, F16) | (E4m3 | E5m2, E4m3 | E5m2) => matches!(c, F16 | F32),
        (Bf16, Bf16) | (Tf32, Tf32) => c == F32,
        (F64, F64) => c == F64,
        (S8 | U8, S8 | U8) | (S4 | U4, S4 | U4) | (Element::B1, Element::B1) => c == S32,
        _ => false,
    }
}

fn is_mma(Shape { m, n, k }: Shape, element: Element, sparse: bool) -> bool {
    use Element::{B1, Bf16, E4m3, E5m2, F16, F64, S4, S8, Tf32, U4, U8};
    if sparse {
        let fits = match element {
            F16 | Bf16 => matches!(k, 16 | 32),
            Tf32 => matches!(k, 8 | 16),
            E4m3 | E5m2 => k == 64,
            S8 | U8 => matches!(k, 32 | 64),
            S4 | U4 => matches!(k, 64 | 128),
            _ => false,
        };
        return (m, n) == (16, 8) && fits;
    }
    match (element, m, n) {
        (F16 | Bf16, 16, 8) => matches!(k, 8 | 16),
        (Tf32, 16, 8) => matches!(k, 4 | 8),
        (F64, 16, 8) => matches!(k, 4 | 8 | 16),
        (F64, 8, 8) => k == 4,
        (E4m3 | E5m2 | S8 | U8, 16, 8) => matches!(k, 16 | 32),
        (S8 | U8, 8, 8) => k == 16,
        (S4 | U4, 16, 8) => matches!(k, 32 | 64),
        (S4 | U4, 8, 8) => k == 32,
        (B1, 16, 8) => matches!(k, 128 | 256),
        (B1, 8, 8) => k == 128,
        _ => false,
    }
}

pub(super) fn is_wmma(Shape { m, n, k }: Shape, element: Element) -> bool {
    use Element::{B1, Bf16, F16, F64, S4, S8, Tf32, U4, U8};
    match element {
        F16 | Bf16 | S8 | U8 => k == 16 && matches!((m, n), (16, 16) | (32, 8) | (8, 32)),
        Tf32 => (m, n, k) == (16, 16, 8),
        F64 => (m, n, k) == (8, 8, 4),
        S4 | U4 => (m, n, k) == (8, 8, 32),
        B1 => (m, n, k) == (8, 8, 128),
        _ => false,
    }
}

impl Builder<'_> {
    /// An instruction that all lanes of a warp run together.
    pub(super) fn together(&mut self, tensor: Tensor) -> Op {
        Op::Tensor { members: self.narrow_constant(u32::MAX), tensor: Box::new(tensor) }
    }

    /// The registers of a matrix that is read, or written to.
    pub(super) fn matrix_registers(&mut self, operand: &Operand, wide: bool, written: bool) -> Decoded<Box<[Reg]>> {
        let ty = if wide { ScalarType::B64 } else { ScalarType::B32 };
        let elements = self.elements(operand)?;
        let register = |part: &Operand| if written { self.register(part, ty) } else { self.value(part, ty) };
        elements.iter().map(register).collect()
    }

    /// The registers of a matrix, of which there are at least so many.
    pub(super) fn fragment(
        &mut self,
        operand: &Operand,
        matrix: Matrix,
        element: Element,
        shape: Shape,
        (registers, written): (usize, bool),
    ) -> Decoded<Fragment> {
        let held = self.matrix_registers(operand, element == Element::F64, written)?;
        let fragment = Fragment::new(matrix, element, shape.size(matrix, element), held);
        if !fragment.is_whole(registers) {
            return Err(Refusal::Wrong("not the registers that the matrix needs"));
        }
        Ok(fragment)
    }

    pub(super) fn mma(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        let sparse = m.take("sp") | m.take("sp::ordered_metadata");
        m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
        let shape = m.find(Shape::from_name).ok_or(Refusal::Wrong("no shape"))?;
        let by_rows = layouts(m)?;
        let mut types = [Element::F32; 4];
        for ty in &mut types {
            *ty = m.find(element).ok_or(Refusal::Unsupported)?;
        }
        let [d_type, a_type, b_type, c_type] = types;
        let arithmetic = arithmetic(m, Unit::Warp);
        m.finish()?;
        if !go_together(a_type, b_type, c_type) || !go_together(a_type, b_type, d_type) {
            return Err(Refusal::Wrong("types that do not go together"));
        }
        if a_type == Element::F16 && !sparse && shape == (Shape { m: 8, n: 8, k: 4 }) {
            return self.quad_multiply(i, by_rows, [c_type, d_type]);
        }
        if !is_mma(shape, a_type, sparse) {
            return Err(Refusal::Wrong("no such shape for these types"));
        }
        if by_rows != [true, false] || c_type != d_type {
            return Err(Refusal::Wrong("a layout or a type that this shape cannot have"));
        }
        let sparsity = if sparse { Some(self.sparsity(nth(i, 4)?, nth(i, 5)?, shape, a_type)?) } else { None };
        if i.operands.len() != if sparse { 6 } else { 4 } {
            return Err(Refusal::Wrong("wrong number of operands"));
        }
        let stored = if sparse { Shape { k: shape.k / 2, ..shape } } else { shape };
        let d = self.fragment(nth(i, 0)?, Matrix::C, d_type, shape, (0, true))?;
        let a = self.fragment(nth(i, 1)?, Matrix::A, a_type, stored, (0, false))?;
        let b = self.fragment(nth(i, 2)?, Matrix::B, b_type, shape, (0, false))?;
        let c = self.fragment(nth(i, 3)?, Matrix::C, c_type, shape, (0, false))?;
        Ok(self.together(Tensor::Multiply(Multiply { arithmetic, a, b, c, d, sparsity })))
    }

    /// Metadata and selector of a sparse A.
    pub(super) fn sparsity(
        &mut self,
        metadata: &Operand,
        selector: &Operand,
        shape: Shape,
        element: Element,
    ) -> Decoded<Sparsity> {
        let metadata = self.source(metadata, ScalarType::B32)?;
        // Of four lanes, as many have metadata as it takes, and there is a choice where not all do.
        let choices = (if element.bits() >= 16 { 1024 } else { 512 }) / (shape.k * element.bits());
        let Operand::Integer(selector) = selector else { return Err(Refusal::Wrong("a selector is a number")) };
        match u32::try_from(*selector) {
            Ok(selector) if (selector as usize) < choices => Ok(Sparsity { metadata, selector }),
            _ => Err(Refusal::Wrong("no such selector for this shape")),
        }
    }

    fn quad_multiply(&mut self, i: &Instruction, by_rows: [bool; 2], types: [Element; 2]) -> Decoded<Op> {
        let [d, a, b, c] = exactly(i)?;
        let single = types.map(|ty| ty == Element::F32);
        let d = self.matrix_registers(d, false, true)?;
        let [a, b] = [self.matrix_registers(a, false, false)?, self.matrix_registers(b, false, false)?];
        let c = self.matrix_registers(c, false, false)?;
        let count = |single: bool| if single { 8 } else { 4 };
        let narrow = |registers: &[Reg]| registers.iter().all(|register| matches!(register, Reg::Narrow(_)));
        let counts = [a.len(), b.len(), c.len(), d.len()];
        if counts != [2, 2, count(single[0]), count(single[1])] || ![&a, &b, &c, &d].into_iter().all(|of| narrow(of)) {
            return Err(Refusal::Wrong("not the registers that the matrix needs"));
        }
        let [a_by_rows, b_by_rows] = by_rows;
        Ok(self.together(Tensor::QuadMultiply(QuadMultiply { a, b, c, d, a_by_rows, b_by_rows, single })))
    }

    pub(super) fn wmma(&mut self, i: &Instruction, m: &mut Modifiers<'_>) -> Decoded<Op> {
        if m.take("load") {
            return self.matrix_access(i, m, false);
        }
        if m.take("store") {
            return self.matrix_access(i, m, true);
        }
        if !m.take("mma") {
            return Err(Refusal::Unsupported);
        }
        m.ignore(|modifier| matches!(modifier, "sync" | "aligned"));
        let arithmetic = arithmetic(m, Unit::Warp);
        let shape = m.find(Shape::from_name).ok_or(Refusal::Wrong("no shape"))?;
        // Where a matrix is in registers it has no layout any more.
        layouts(m)?;
        let mut types = Vec::new();
        while let Some(ty) = m.find(element) {
            types.push(ty);
        }
        m.finish()?;
        let [d_type, a_type, b_type, c_type] = match types[..] {
            [d, c] => [d, Element::F16, Element::F16, c],
            [d, a, b, c] => [d, a, b, c],
            _ => return Err(Refusal::Wrong("no types")),
        };
        if !go_together(a_type, b_type, c_type) || !go_together(a_type, b_type, d_type) || !is_wmma(shape, a_type) {
            return Err(Refusal::Wrong("no such shape for these types"));
        }
        let [d, a, b, c] = exactly(i)?;
        let halves = if a_type == Element::F16 { WMMA_HALVES } else { 0 };
        let d = self.fragment(d, Matrix::C, d_type, shape, (0, true))?;
        let a = self.fragment(a, Matrix::A, a_type, shape, (halves, false))?;
        let b = self.fragment(b, Matrix::B, b_type, shape, (halves, false))?;
        let c = self.fragment(c, Matrix::C, c_type, shape, (0, false))?;
        Ok(self.together(Tensor::Multiply(Multiply { arithmetic, a, b, c, d, sparsity: None })))
    }
}

/// Whether A and B are laid out by rows.
fn layouts(m: &mut Modifiers<'_>) -> Decoded<[bool; 2]> {
    let mut layout = || m.find(by_rows).ok_or(Refusal::Wrong("no layout"));
    Ok([layout()?, layout()?])
}

/// `.row` or `.col`
pub(super) fn by_rows(name: &str) -> Option<bool> {
    match name {
        "row" => Some(true),
        "col" => Some(false),
        _ => None,
    }
}

/// What the modifiers say about how to compute.
pub(super) fn arithmetic(m: &mut Modifiers<'_>, unit: Unit) -> Arithmetic {
    let product = m.find(|modifier| match modifier {
        "xor" => Some(Product::Xor),
        "and" => Some(Product::And),
        _ => None,
    });
    m.take("popc");
    let (rounding, _) = m.find(Rounding::from_name).unwrap_or((Rounding::Nearest, false));
    Arithmetic { unit, product: product.unwrap_or(Product::Multiply), saturate: m.take("satfinite"), rounding }
}
