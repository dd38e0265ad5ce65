//! Instructions as they are run: names are slots, types are resolved, immediates are slots that a frame starts
//! with.

mod kinds;
mod rare;
mod system;
mod tensor;
mod uncommon;

pub(super) use kinds::*;
pub(super) use rare::*;
pub(super) use system::{NOTHING, Runtime, SystemCall, SystemFunction};
pub(super) use tensor::*;
pub(super) use uncommon::*;

/// A register's place in its bank.
pub(super) type Slot = u32;

/// The wide slot of every frame that holds where the frame's local memory starts.
pub(super) const LOCAL_BASE: Slot = 0;

/// A register with its bank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Reg {
    /// 32 bits per lane; smaller types have undefined bits above.
    Narrow(Slot),
    /// 64 bits per lane.
    Wide(Slot),
}

/// A predicate as operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Condition {
    pub(super) slot: Slot,
    pub(super) negated: bool,
}

/// One instruction of a function.
#[derive(Debug, Clone)]
pub(super) struct Instruction {
    pub(super) guard: Option<Condition>,
    pub(super) op: Op,
}

/// What an instruction does.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Nop,
    Move32 {
        d: Slot,
        a: Slot,
    },
    Move64 {
        d: Slot,
        a: Slot,
    },
    MovePredicate {
        d: Slot,
        a: Condition,
    },
    /// Puts `parts` side by side, the first at the bottom.
    Pack {
        d: Reg,
        bits: u32,
        parts: Box<[Reg]>,
    },
    Unpack {
        parts: Box<[Option<Reg>]>,
        bits: u32,
        a: Reg,
    },
    Read {
        d: Reg,
        special: Special,
    },

    Integer1 {
        op: Integer1,
        ty: IntType,
        d: Slot,
        a: Slot,
    },
    Integer2 {
        op: Integer2,
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Integer3 {
        op: Integer3,
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    ShiftLeft {
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    ShiftRight {
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    MulWide {
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    MadWide {
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// `mul24`: the low 24 bits of both.
    Mul24 {
        high: bool,
        signed: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    /// `mad24.hi.sat.s32`
    Mad24Saturating {
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Mad24 {
        high: bool,
        signed: bool,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Count {
        op: Count,
        ty: IntType,
        d: Slot,
        a: Slot,
    },
    BitExtract {
        ty: IntType,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    BitInsert {
        wide: bool,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        length: Slot,
    },
    BitMask {
        clamp: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Permute {
        mode: PermuteMode,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Funnel {
        left: bool,
        clamp: bool,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Lop3 {
        table: u8,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    Dot {
        signed: [bool; 2],
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
        half: Option<bool>,
    },
    AddCarry {
        wide: bool,
        subtract: bool,
        takes: bool,
        gives: bool,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    MadCarry {
        ty: IntType,
        high: bool,
        takes: bool,
        gives: bool,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    PredicateLogic {
        op: Logic,
        d: Slot,
        a: Condition,
        b: Condition,
    },

    Float1 {
        op: Float1,
        ty: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
    },
    Float2 {
        op: Float2,
        ty: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Fma {
        ty: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// A product and a sum that are one instruction, with the product's sign or the addend's changed.
    Joined {
        ty: FloatType,
        mode: FloatMode,
        packed: bool,
        negate: [bool; 2],
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    /// Two halves side by side.
    PackedFloat1 {
        op: Float1,
        ty: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
    },
    PackedFloat2 {
        op: Float2,
        ty: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    PackedFma {
        ty: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
        b: Slot,
        c: Slot,
    },
    TestFloat {
        test: FloatTest,
        ty: FloatType,
        d: Slot,
        a: Slot,
    },

    Compare {
        comparison: Box<Comparison>,
        d: Option<Slot>,
        inverse: Option<Slot>,
    },
    /// `yes` is what a lane gets where the comparison holds, and 0 elsewhere.
    Set {
        comparison: Box<Comparison>,
        d: Slot,
        yes: u32,
    },
    Select {
        d: Reg,
        a: Slot,
        b: Slot,
        condition: Condition,
    },
    SelectSign {
        d: Reg,
        a: Slot,
        b: Slot,
        c: Slot,
        float: bool,
        flush: bool,
    },

    Convert {
        from: Number,
        to: Number,
        mode: FloatMode,
        d: Reg,
        a: Reg,
    },
    /// `a` to the upper half, `b` to the lower.
    ConvertPair {
        to: FloatType,
        mode: FloatMode,
        d: Slot,
        a: Slot,
        b: Slot,
    },
    Uncommon(Box<Uncommon>),

    Load(Box<Load>),
    Store(Box<Store>),
    Atomic(Box<Atomic>),
    Fence,
    /// Whether an address is that of a constant.
    IsConstant {
        d: Slot,
        a: Slot,
    },
    InSpace {
        space: Space,
        d: Slot,
        a: Slot,
    },

    Branch {
        target: u32,
    },
    BranchTable {
        index: Slot,
        targets: Box<[u32]>,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Trap,
    System(Box<SystemCall>),
    Sleep {
        a: Slot,
    },
    Barrier(Box<Barrier>),
    WarpBarrier {
        members: Slot,
    },
    /// `members` is None for the forms without `.sync`.
    Collective {
        members: Option<Slot>,
        collective: Box<Collective>,
    },
    ActiveMask {
        d: Slot,
    },
    /// What all lanes do together with matrices; `members` holds all of them.
    Tensor {
        members: Slot,
        tensor: Box<Tensor>,
    },
    /// `wgmma.wait_group`
    GroupWait,
    Rare(Box<Rare>),
    /// What decode has no meaning for.
    Unsupported,
    /// Something that the checker sees before it happens.
    Checked(Box<Checked>),
}

/// An instruction that is checked.
#[derive(Debug, Clone)]
pub(super) struct Checked {
    /// Its number among all that are checked.
    pub(super) site: u32,
    pub(super) op: Op,
    /// What it says about what runs on its own. All of that is done when it is issued, so nobody else asks.
    pub(super) note: Option<Note>,
}

/// What an instruction says about what runs on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    Groups(Queue, CopyGroup),
    /// `fence.proxy.async`
    ProxyFence,
}

/// What is committed in groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    /// `cp.async`
    Copies,
    /// `cp.async.bulk`
    BulkCopies,
    /// `wgmma.mma_async`
    Products,
}

/// `commit_group` and what waits for groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyGroup {
    Commit,
    /// Until at most so many are under way.
    Wait(u32),
    /// For all, also for what is in no group yet.
    WaitAll,
}
