//! Instructions that are too rare for a place of their own in the hot loop: clusters, asynchronous copies and their
//! barriers, wide atomics, memory on the stack.

use super::{Address, Atomic, AtomicOp, AtomicType, Reg, Slot};

/// What a rare instruction does.
#[derive(Debug, Clone)]
pub(in crate::exec) enum Rare {
    ClusterArrive,
    ClusterWait,
    /// `mapa`: the same place in another block of the cluster.
    MapAddress {
        d: Reg,
        a: Reg,
        rank: Slot,
        generic: bool,
    },
    /// `getctarank`: the block that an address belongs to.
    BlockRank {
        d: Slot,
        a: Reg,
        generic: bool,
    },
    /// `isspacep.shared::cta`: not what belongs to other blocks of the cluster.
    InOwnShared {
        d: Slot,
        a: Slot,
    },
    Mbarrier(Mbarrier),
    /// `mbarrier.pending_count`
    PendingCount {
        d: Slot,
        state: Slot,
    },
    Copy(Copy),
    TensorCopy(TensorCopy),
    TensorReplace(TensorReplace),
    StoreAsync(StoreAsync),
    /// `atom` and `red` of several elements side by side.
    Atomics(Box<[Atomic]>),
    Atomic128(Atomic128),
    /// `alloca`
    Allocate {
        d: Reg,
        size: Reg,
        align: u64,
    },
    StackSave {
        d: Reg,
    },
    StackRestore {
        a: Reg,
    },
}

/// An object in shared memory that arrivals and bytes are counted by.
#[derive(Debug, Clone)]
pub(in crate::exec) struct Mbarrier {
    pub(in crate::exec) address: Address,
    pub(in crate::exec) action: MbarrierAction,
}

#[derive(Debug, Clone)]
pub(in crate::exec) enum MbarrierAction {
    Init {
        count: Slot,
    },
    Invalidate,
    Expect {
        bytes: Slot,
    },
    Complete {
        bytes: Slot,
    },
    Arrive {
        /// What the barrier was before.
        state: Option<Slot>,
        count: Slot,
        /// Bytes that are expected first.
        expect: Option<Slot>,
        /// The next phases do not count on them any more.
        drop: bool,
    },
    /// `cp.async.mbarrier.arrive`: all copies are done at once here. Without `.noinc` it makes up for its own arrival.
    ArriveCopied {
        increments: bool,
    },
    Test {
        d: Slot,
        phase: Phase,
        /// `try_wait`: the thread would rather wait than ask again.
        waits: bool,
    },
}

/// The phase that a thread waits for the end of.
#[derive(Debug, Clone, Copy)]
pub(in crate::exec) enum Phase {
    /// That of an arrival, in a wide register.
    State(Slot),
    /// Odd or even, in a narrow one.
    Parity(Slot),
}

/// Which instruction a copy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exec) enum CopyKind {
    /// `cp.async`
    Small,
    /// `cp.async.bulk` and `cp.reduce.async.bulk`
    Bulk,
    /// `tensormap.cp_fenceproxy`
    Map,
}

/// Bytes from one place to another. It is done when it is issued.
#[derive(Debug, Clone)]
pub(in crate::exec) struct Copy {
    pub(in crate::exec) kind: CopyKind,
    pub(in crate::exec) to: Address,
    pub(in crate::exec) from: Address,
    /// How many bytes are written.
    pub(in crate::exec) bytes: Slot,
    /// How many of them are read; the others are zero. All where None.
    pub(in crate::exec) read: Option<Slot>,
    /// Nothing is read where this holds.
    pub(in crate::exec) ignore: Option<super::Condition>,
    /// What all addresses and sizes are multiples of; `cp.async` is aligned to its size.
    pub(in crate::exec) align: u64,
    pub(in crate::exec) reduction: Option<(AtomicOp, AtomicType)>,
    pub(in crate::exec) signal: Option<Address>,
    /// The blocks of the cluster that get the bytes and the signal.
    pub(in crate::exec) multicast: Option<Slot>,
}

/// A box of a tensor from or to shared memory. It is done when it is issued.
#[derive(Debug, Clone)]
pub(in crate::exec) struct TensorCopy {
    /// Where the map lies.
    pub(in crate::exec) map: Address,
    pub(in crate::exec) coordinates: Box<[Slot]>,
    pub(in crate::exec) shared: Address,
    pub(in crate::exec) direction: TensorDirection,
}

#[derive(Debug, Clone)]
pub(in crate::exec) enum TensorDirection {
    Load { signal: Address, multicast: Option<Slot> },
    Store,
    Reduce(AtomicOp),
}

/// `tensormap.replace`
#[derive(Debug, Clone)]
pub(in crate::exec) struct TensorReplace {
    pub(in crate::exec) map: Address,
    pub(in crate::exec) field: super::super::tensor_map::Field,
    pub(in crate::exec) value: Reg,
}

/// `st.async` and `red.async`: elements to another block's shared memory, whose barrier counts their bytes.
#[derive(Debug, Clone)]
pub(in crate::exec) struct StoreAsync {
    pub(in crate::exec) address: Address,
    pub(in crate::exec) signal: Address,
    /// Bytes of one element: 4 or 8.
    pub(in crate::exec) size: u8,
    pub(in crate::exec) from: Box<[Reg]>,
    pub(in crate::exec) reduction: Option<(AtomicOp, AtomicType)>,
}

/// `atom.cas.b128` and `atom.exch.b128`. Registers of 128 bits are two wide ones, the low half first.
#[derive(Debug, Clone)]
pub(in crate::exec) struct Atomic128 {
    pub(in crate::exec) address: Address,
    pub(in crate::exec) to: Slot,
    /// What has to be there, for `cas`.
    pub(in crate::exec) expected: Option<Slot>,
    pub(in crate::exec) new: Slot,
}
