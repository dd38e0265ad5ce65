//! Instructions on registers that few kernels have, and none of them often.

use super::{Comparison, Condition, IntType, Integer2, Logic, Op, Reg, Relation, Slot};

/// An eight-bit floating-point format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Fp8 {
    E4m3,
    E5m2,
}

#[derive(Debug, Clone)]
pub(in crate::exec) enum Uncommon {
    /// `cvt.rn.satfinite.e4m3x2.f32`: `a` to the upper byte.
    Fp8FromPair {
        format: Fp8,
        relu: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Fp8FromHalves {
        format: Fp8,
        relu: bool,
        d: Slot,
        a: Slot,
    },
    Fp8ToHalves {
        format: Fp8,
        relu: bool,
        d: Slot,
        a: Slot,
    },
    /// `cvt.pack`: `a` above `b`, both clamped, and the low bits of `c` above them.
    PackSaturated {
        bits: u32,
        signed: bool,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// `fns`
    FindBit {
        d: Slot,
        a: Slot,
        base: Slot,
        offset: Slot,
    },
    /// `szext`
    Extend {
        signed: bool,
        clamp: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// `lop3` that also tells whether the result is not 0.
    Lop3Test {
        table: u8,
        d: Option<Slot>,
        p: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        logic: Logic,
        q: Condition,
    },
    /// Two integers of 16 bits side by side; `relu` makes negative results 0.
    IntegerPair {
        op: Integer2,
        ty: IntType,
        relu: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// `setp` of two halves: the lower one's predicate first.
    ComparePair {
        comparison: Comparison,
        lower: Option<Slot>,
        upper: Option<Slot>,
    },
    /// `set` of two halves, with `yes` where the comparison holds.
    SetPair {
        comparison: Comparison,
        d: Slot,
        yes: u32,
    },
    /// Puts `parts` side by side, the first at the bottom, the lower 64 bits first.
    Pack128 {
        d: [Slot; 2],
        bits: u32,
        parts: Box<[Reg]>,
    },
    Unpack128 {
        parts: Box<[Option<Reg>]>,
        bits: u32,
        a: [Slot; 2],
    },
    /// `mov.v2` and `mov.v4`
    MoveVector {
        d: Box<[Reg]>,
        a: Box<[Reg]>,
    },
    Video(Video),
    VideoMultiply(VideoMultiply),
    VideoParts(VideoParts),
}

impl Op {
    pub(in crate::exec) fn uncommon(op: Uncommon) -> Self {
        Self::Uncommon(Box::new(op))
    }
}

/// What is taken of a register: so many bits from a bit on, extended by their sign or with zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct Part {
    pub(in crate::exec) slot: Slot,
    pub(in crate::exec) from: u32,
    pub(in crate::exec) bits: u32,
    pub(in crate::exec) signed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum VideoOp {
    Add,
    Sub,
    AbsoluteDifference,
    Average,
    Min,
    Max,
    ShiftLeft { clamp: bool },
    ShiftRight { clamp: bool },
    Set(Relation),
}

/// What becomes of a video instruction's result and `c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Second {
    /// Nothing: there is no `c`.
    None,
    Add,
    Min,
    Max,
    /// So many bits of `c` from a bit on are replaced.
    Merge {
        from: u32,
        bits: u32,
    },
}

/// `vadd` and the like: one number.
#[derive(Debug, Clone, Copy)]
pub(in crate::exec) struct Video {
    pub(in crate::exec) op: VideoOp,
    /// Whether the result is.
    pub(in crate::exec) signed: bool,
    pub(in crate::exec) saturate: bool,
    pub(in crate::exec) second: Second,
    pub(in crate::exec) d: Slot,
    pub(in crate::exec) a: Part,
    pub(in crate::exec) b: Part,
    pub(in crate::exec) c: Slot,
}

/// `vmad`
#[derive(Debug, Clone, Copy)]
pub(in crate::exec) struct VideoMultiply {
    /// The product is,
    pub(in crate::exec) negated: bool,
    /// or `c` is.
    pub(in crate::exec) negated_c: bool,
    pub(in crate::exec) plus_one: bool,
    pub(in crate::exec) saturate: bool,
    /// How far the sum is shifted right.
    pub(in crate::exec) scale: u32,
    pub(in crate::exec) d: Slot,
    pub(in crate::exec) a: Part,
    pub(in crate::exec) b: Part,
    pub(in crate::exec) c: Slot,
}

/// `vadd2`, `vadd4` and the like: halves or bytes that are chosen from both operands.
#[derive(Debug, Clone, Copy)]
pub(in crate::exec) struct VideoParts {
    pub(in crate::exec) op: VideoOp,
    /// Bits of a part: 8 or 16.
    pub(in crate::exec) bits: u32,
    pub(in crate::exec) signed: [bool; 3],
    pub(in crate::exec) saturate: bool,
    /// Whether results are added to `c` rather than put into it.
    pub(in crate::exec) accumulate: bool,
    /// The parts that count, a bit each.
    pub(in crate::exec) chosen: u32,
    /// Where each part comes from in `b` above `a`, lowest first.
    pub(in crate::exec) from_a: [u8; 4],
    pub(in crate::exec) from_b: [u8; 4],
    pub(in crate::exec) d: Slot,
    pub(in crate::exec) a: Slot,
    pub(in crate::exec) b: Slot,
    pub(in crate::exec) c: Slot,
}
