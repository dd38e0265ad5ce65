//! What the matrix instructions hold.

use super::{Address, Condition, Reg, Rounding, Slot, Space};

/// The type of a matrix's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Element {
    F16,
    Bf16,
    /// An `.f32` of which only the upper bits count.
    Tf32,
    F32,
    F64,
    E4m3,
    E5m2,
    S8,
    U8,
    S4,
    U4,
    /// Bits, 32 of them taken as one element.
    B1,
    S32,
}

impl Element {
    /// How wide one is in a register.
    pub(in crate::exec) fn bits(self) -> usize {
        match self {
            Self::F64 => 64,
            Self::Tf32 | Self::F32 | Self::B1 | Self::S32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::E4m3 | Self::E5m2 | Self::S8 | Self::U8 => 8,
            Self::S4 | Self::U4 => 4,
        }
    }

    /// How many share a register.
    pub(in crate::exec) fn per_register(self) -> usize {
        (32 / self.bits()).max(1)
    }
}

/// Which matrix of `D = A · B + C`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Matrix {
    A,
    B,
    /// And D.
    C,
}

/// A matrix that a warp's registers hold, and how it is spread over them.
#[derive(Debug, Clone)]
pub(in crate::exec) struct Fragment {
    pub(in crate::exec) matrix: Matrix,
    pub(in crate::exec) element: Element,
    pub(in crate::exec) rows: usize,
    pub(in crate::exec) columns: usize,
    pub(in crate::exec) registers: Box<[Reg]>,
    /// The element's number in the matrix, row by row, for each register, lane and place in the register.
    pub(in crate::exec) places: Box<[u16]>,
}

/// How elements of A and B make a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Product {
    Multiply,
    /// `.xor.popc`
    Xor,
    /// `.and.popc`
    And,
}

/// Where A has its elements, of which only every other is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct Sparsity {
    pub(in crate::exec) metadata: Slot,
    /// Which of four neighbouring lanes have the metadata.
    pub(in crate::exec) selector: u32,
}

/// Which part of the hardware computes: they round differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Unit {
    /// `mma` and `wmma`.
    Warp,
    /// `wgmma`.
    WarpGroup,
}

/// What a product of matrices is computed with, wherever they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct Arithmetic {
    pub(in crate::exec) unit: Unit,
    pub(in crate::exec) product: Product,
    /// `.satfinite`: sums of integers are clamped.
    pub(in crate::exec) saturate: bool,
    /// Of sums of `.f64`.
    pub(in crate::exec) rounding: Rounding,
}

/// `mma` and `wmma.mma`.
#[derive(Debug, Clone)]
pub(in crate::exec) struct Multiply {
    pub(in crate::exec) arithmetic: Arithmetic,
    pub(in crate::exec) a: Fragment,
    pub(in crate::exec) b: Fragment,
    pub(in crate::exec) c: Fragment,
    pub(in crate::exec) d: Fragment,
    pub(in crate::exec) sparsity: Option<Sparsity>,
}

/// `mma.m8n8k4` on `.f16`: four products at once, each by eight lanes.
#[derive(Debug, Clone)]
pub(in crate::exec) struct QuadMultiply {
    pub(in crate::exec) a: Box<[Reg]>,
    pub(in crate::exec) b: Box<[Reg]>,
    pub(in crate::exec) c: Box<[Reg]>,
    pub(in crate::exec) d: Box<[Reg]>,
    pub(in crate::exec) a_by_rows: bool,
    pub(in crate::exec) b_by_rows: bool,
    /// Whether C and D are `.f32`.
    pub(in crate::exec) single: [bool; 2],
}

/// A matrix in shared memory that a descriptor says the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct Described {
    /// The wide slot with the descriptor.
    pub(in crate::exec) descriptor: Slot,
    /// Neighbours in memory are neighbours along K, rather than along M or N.
    pub(in crate::exec) along_k: bool,
}

/// Where `wgmma` takes A from.
#[derive(Debug, Clone)]
pub(in crate::exec) enum GroupSource {
    Registers(Fragment),
    Shared(Described),
}

/// `wgmma.mma_async`, the part of one of the four warps.
#[derive(Debug, Clone)]
pub(in crate::exec) struct GroupMultiply {
    pub(in crate::exec) arithmetic: Arithmetic,
    pub(in crate::exec) a: GroupSource,
    pub(in crate::exec) a_element: Element,
    /// Of A as it is stored.
    pub(in crate::exec) a_columns: usize,
    pub(in crate::exec) b: Described,
    pub(in crate::exec) b_element: Element,
    pub(in crate::exec) k: usize,
    /// Both C and D.
    pub(in crate::exec) d: Fragment,
    /// Whether there is a C.
    pub(in crate::exec) adds: Condition,
    pub(in crate::exec) negate_a: bool,
    pub(in crate::exec) negate_b: bool,
    pub(in crate::exec) sparsity: Option<Sparsity>,
}

/// `wmma.load` and `wmma.store`.
#[derive(Debug, Clone)]
pub(in crate::exec) struct MatrixAccess {
    pub(in crate::exec) fragment: Fragment,
    pub(in crate::exec) address: Address,
    /// Elements from one row or column to the next; one after the other where None.
    pub(in crate::exec) stride: Option<Slot>,
    pub(in crate::exec) by_rows: bool,
}

/// `ldmatrix` and `stmatrix`: matrices of eight rows, each row at an address that a lane has.
#[derive(Debug, Clone)]
pub(in crate::exec) struct RowsAccess {
    pub(in crate::exec) address: Address,
    pub(in crate::exec) transposed: bool,
    pub(in crate::exec) registers: Box<[Reg]>,
}

/// An instruction of the matrix units.
#[derive(Debug, Clone)]
pub(in crate::exec) enum Tensor {
    Multiply(Multiply),
    QuadMultiply(QuadMultiply),
    GroupMultiply(GroupMultiply),
    Load(MatrixAccess),
    Store(MatrixAccess),
    LoadRows(RowsAccess),
    StoreRows(RowsAccess),
    /// `movmatrix`
    Transpose {
        d: Slot,
        a: Slot,
    },
}

impl Tensor {
    /// The space that it accesses.
    pub(in crate::exec) fn space(&self) -> Space {
        match self {
            Self::Load(access) | Self::Store(access) => access.address.space,
            Self::LoadRows(access) | Self::StoreRows(access) => access.address.space,
            _ => Space::Shared,
        }
    }
}
