//! What instructions are told apart by, and what the larger ones hold.

use super::{Condition, Reg, Slot};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum IntType {
    U16,
    S16,
    U32,
    S32,
    U64,
    S64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum FloatType {
    F16,
    Bf16,
    F32,
    F64,
}

/// What `cvt` converts from and to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Number {
    Integer {
        bits: u8,
        signed: bool,
    },
    Float(FloatType),
    /// `.tf32`: an `.f32` with ten bits of fraction.
    Tf32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Rounding {
    Nearest,
    /// Ties away from zero.
    NearestAway,
    Zero,
    Down,
    Up,
}

/// How a floating-point instruction treats its operands and result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct FloatMode {
    pub(in crate::exec) rounding: Rounding,
    /// `.ftz`: subnormal operands and results are zeros.
    pub(in crate::exec) flush: bool,
    /// `.sat`: the result is clamped to 0..1.
    pub(in crate::exec) saturate: bool,
    /// `.relu`: the result is at least 0.
    pub(in crate::exec) relu: bool,
    /// `.NaN` of `min` and `max`.
    pub(in crate::exec) keep_nan: bool,
    /// `.xorsign.abs` of `min` and `max`: of the magnitudes, with the product's sign.
    pub(in crate::exec) sign_of_both: bool,
    /// `.satfinite`: what is too large is the largest number, and no infinity.
    pub(in crate::exec) finite: bool,
    /// `.oob` of `fma`: with a factor from outside of a tensor the result is 0.
    pub(in crate::exec) outside_is_zero: bool,
    /// `.rni` and the like of a conversion: the result is an integral number.
    pub(in crate::exec) integral: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Integer1 {
    Neg,
    Abs,
    Not,
    Cnot,
    Brev,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Integer2 {
    Add,
    Sub,
    AddSat,
    SubSat,
    MulLow,
    MulHigh,
    Div,
    Rem,
    Min,
    Max,
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Integer3 {
    MadLow,
    MadHigh,
    MadHighSat,
    Sad,
}

/// Instructions that count bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Count {
    Popc,
    Clz,
    Bfind,
    BfindShift,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum PermuteMode {
    Default,
    Forward4,
    Backward4,
    Replicate8,
    EdgeLeft,
    EdgeRight,
    Replicate16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Float1 {
    Neg,
    Abs,
    Sqrt,
    SqrtApprox,
    Rcp,
    RcpApprox,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Float2 {
    Add,
    Sub,
    Mul,
    Div,
    DivApprox,
    DivFull,
    /// The two that quotients are products of, and what the last step of one takes.
    ApproxReciprocal,
    ApproxDividend,
    FullReciprocal,
    FullDividend,
    Min,
    Max,
    CopySign,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum FloatTest {
    Finite,
    Infinite,
    Number,
    NotANumber,
    Normal,
    Subnormal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Logic {
    And,
    Or,
    Xor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Of numbers, or either is NaN.
    EqualUnordered,
    NotEqualUnordered,
    LessUnordered,
    LessEqualUnordered,
    GreaterUnordered,
    GreaterEqualUnordered,
    /// Neither is NaN.
    Numbers,
    /// Either is NaN.
    Nan,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum CompareType {
    Integer(IntType),
    Float(FloatType),
}

/// What `setp` and `set` compute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct Comparison {
    pub(in crate::exec) relation: Relation,
    pub(in crate::exec) ty: CompareType,
    pub(in crate::exec) flush: bool,
    pub(in crate::exec) a: Slot,
    pub(in crate::exec) b: Slot,
    /// What the result is combined with.
    pub(in crate::exec) combined: Option<(Logic, Condition)>,
}

/// Where an access goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::exec) enum Space {
    Generic,
    /// And constants.
    Global,
    Shared,
    Local,
    /// The parameters of the kernel.
    Parameters,
}

/// A register plus a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) struct Address {
    pub(in crate::exec) space: Space,
    pub(in crate::exec) base: Reg,
    pub(in crate::exec) offset: i64,
}

/// How an access is ordered with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Order {
    Weak,
    /// Volatile or relaxed.
    Strong,
    Acquire,
    Release,
    AcquireRelease,
}

#[derive(Debug, Clone)]
pub(in crate::exec) struct Load {
    pub(in crate::exec) address: Address,
    /// Bytes of one element: 1, 2, 4 or 8.
    pub(in crate::exec) size: u8,
    pub(in crate::exec) signed: bool,
    pub(in crate::exec) order: Order,
    /// None is an element that nobody wants.
    pub(in crate::exec) to: Box<[Option<Reg>]>,
}

#[derive(Debug, Clone)]
pub(in crate::exec) struct Store {
    pub(in crate::exec) address: Address,
    /// Bytes of one element: 1, 2, 4 or 8.
    pub(in crate::exec) size: u8,
    pub(in crate::exec) order: Order,
    pub(in crate::exec) from: Box<[Reg]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum AtomicOp {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareExchange,
    Increment,
    Decrement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum AtomicType {
    U16,
    U32,
    S32,
    U64,
    S64,
    F32,
    F64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
}

#[derive(Debug, Clone)]
pub(in crate::exec) struct Atomic {
    pub(in crate::exec) address: Address,
    pub(in crate::exec) op: AtomicOp,
    pub(in crate::exec) ty: AtomicType,
    pub(in crate::exec) order: Order,
    /// None for `red`.
    pub(in crate::exec) to: Option<Reg>,
    pub(in crate::exec) b: Reg,
    pub(in crate::exec) c: Option<Reg>,
}

/// What a call passes, and where the callee has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Place {
    /// In the frame's local memory.
    Memory {
        offset: u32,
        size: u32,
    },
    Register(Reg),
}

#[derive(Debug, Clone)]
pub(in crate::exec) struct Call {
    /// None where `target` says.
    pub(in crate::exec) callee: Option<u32>,
    /// The wide slot with the function's address.
    pub(in crate::exec) target: Slot,
    pub(in crate::exec) arguments: Box<[Place]>,
    pub(in crate::exec) results: Box<[Option<Place>]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum BarrierKind {
    Sync,
    Arrive,
    /// `.red.popc`, with its narrow result.
    Count(Slot),
    /// `.red.and` and `.red.or`, with their predicate.
    Reduce(Logic, Slot),
}

#[derive(Debug, Clone)]
pub(in crate::exec) struct Barrier {
    pub(in crate::exec) kind: BarrierKind,
    pub(in crate::exec) number: Slot,
    /// How many threads take part; all where None.
    pub(in crate::exec) threads: Option<Slot>,
    /// What a reduction is made over.
    pub(in crate::exec) input: Condition,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum ShuffleMode {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum Vote {
    All,
    Any,
    Uniform,
}

/// What lanes of a warp do together.
#[derive(Debug, Clone)]
pub(in crate::exec) enum Collective {
    Shuffle { mode: ShuffleMode, to: Option<Slot>, valid: Option<Slot>, a: Slot, b: Slot, c: Slot },
    Vote { kind: Vote, to: Slot, a: Condition },
    Ballot { to: Slot, a: Condition },
    MatchAny { to: Slot, a: Reg },
    MatchAll { to: Option<Slot>, same: Option<Slot>, a: Reg },
    Reduce { op: AtomicOp, ty: IntType, to: Slot, a: Slot },
    Elect { to: Option<Slot>, elected: Slot },
}

/// Read-only registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::exec) enum Special {
    Thread(u8),
    BlockSize(u8),
    BlockIndex(u8),
    GridSize(u8),
    Lane,
    LaneMask(LaneMask),
    Warp,
    WarpCount,
    Sm,
    SmCount,
    Grid,
    DynamicShared,
    TotalShared,
    /// The cluster's place among the clusters,
    ClusterIndex(u8),
    /// how many of them there are,
    ClusterCount(u8),
    /// the block's place in its cluster,
    IndexInCluster(u8),
    /// and how many blocks that has.
    ClusterSize(u8),
    ClusterRank,
    ClusterBlocks,
    ExplicitCluster,
    /// `%envreg`, by its number.
    Environment(u8),
    /// The same for all: what a register says that means nothing here.
    Always(u32),
    Clock,
    ClockHigh,
    Clock64,
    GlobalTimer,
    GlobalTimerLow,
    GlobalTimerHigh,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::exec) enum LaneMask {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}
