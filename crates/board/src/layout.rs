//! What lies where in the pages: fixed, versioned, atomics only.
//!
//! Any bytes are valid here: whatever another process writes can be loaded, and means nothing before it is checked.

use crate::seqlock::Sequence;
use crate::slot::SlotWord;
use crate::step::StepWord;
use crate::step_times::BUCKETS;
use crate::sync::{AtomicU32, AtomicU64};

/// Slots of the daemon's table: tenants at a time.
pub const SLOTS: usize = 64;
/// Lanes that a tenant may name; 0 is `full`.
pub const LANES: u8 = 64;
/// Splits in a ladder.
pub const MOST_SPLITS: usize = 16;

/// Kernels that a table has room for.
pub(crate) const KERNELS: usize = 2047;
/// Widths that it has times for, for each model of GPU.
pub const KERNEL_WIDTHS: usize = 16;
/// Models of GPU that one table has kernels of; a tenant's own has one.
pub const KERNEL_MODELS: usize = 4;
pub(crate) const KERNEL_NAME_WORDS: usize = 12;

/// Decisions that are kept.
pub(crate) const DECISIONS: usize = 62;
pub(crate) const DECISION_WORDS: usize = 6;

/// Changes with every change in this file.
pub const LAYOUT: u32 = 15;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"detshare");

/// A page group: a type that is laid out for sharing.
///
/// # Safety
/// `repr(C)`, begins with a [`Header`], made of nothing but atomics, and all bytes zero is a value of it.
pub(crate) unsafe trait Group: Sync {
    /// Tells one kind of group from another.
    const KIND: u32;
    /// For those who list open files.
    const NAME: &str;

    fn header(&self) -> &Header;
}

/// What every group begins with. Checked when it is mapped, and never used again.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) layout: AtomicU32,
    pub(crate) kind: AtomicU32,
    pub(crate) size: AtomicU64,
}

/// A step's 99th percentile, the time to the first token, the time between tokens.
pub const OBJECTIVES: usize = 3;

/// What is written at its own pace has its own two cache lines: processors fetch lines in pairs.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// One tenant's group.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct TenantPages {
    pub(crate) header: Apart<Header>,
    /// Busy or idle, and the step: what best-effort tenants look at before every launch.
    pub(crate) step: Apart<StepRecord>,
    pub(crate) record: Apart<TenantRecord>,
    /// Written at every launch.
    pub(crate) launched: Apart<AtomicU64>,
    pub(crate) finished: Apart<AtomicU64>,
    pub(crate) facts: Apart<Facts>,
    /// How often a step lasted how long; written once a step.
    pub(crate) step_times: Apart<[AtomicU64; BUCKETS]>,
    pub(crate) decisions: DecisionPage,
    /// What its kernels take.
    pub(crate) kernels: KernelTable,
}

/// Kernels by their identity. Most of it is never touched, and takes no memory then.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct KernelTable {
    /// For each model, the widths that its records have times for, by number; 0 is none.
    pub(crate) widths: [[AtomicU32; KERNEL_WIDTHS]; KERNEL_MODELS],
    pub(crate) records: [KernelRecord; KERNELS],
}

/// One kernel in one shape.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct KernelRecord {
    /// 0 is nobody.
    pub(crate) identity: AtomicU64,
    pub(crate) name: [AtomicU64; KERNEL_NAME_WORDS],
    pub(crate) ns: [AtomicU32; KERNEL_WIDTHS],
    pub(crate) measured: [AtomicU32; KERNEL_WIDTHS],
    /// The model whose widths these are.
    pub(crate) model: AtomicU32,
}

/// What was decided last, for those who ask why.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct DecisionPage {
    /// How many decisions were written.
    pub(crate) written: Apart<AtomicU64>,
    pub(crate) ring: [DecisionRecord; DECISIONS],
}

/// One decision.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct DecisionRecord {
    /// Odd while it is being written; twice its number, and 2, when it is there.
    pub(crate) stamp: AtomicU64,
    pub(crate) words: [AtomicU64; DECISION_WORDS],
}

/// The step, and what is known of when it ends.
///
/// No two of these words have to be read together, so there is no sequence number: whether it is busy and the step are one word, and
/// all others are averages that move by little, each with a meaning of its own. Who reads an old one beside a new one predicts a
/// step slightly wrong, as predictions are, and pays for no second look before each launch.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StepRecord {
    pub(crate) word: StepWord,
    /// When the last one began, written right after it has.
    pub(crate) begun: AtomicU64,
    /// How long they last lately.
    pub(crate) lasts: AtomicU64,
    /// When the next one is due, and how far from that they begin mostly; 0 is unknown.
    pub(crate) due: AtomicU64,
    pub(crate) spread: AtomicU64,
    /// The mean pause between two of them; 0 is unknown.
    pub(crate) gap: AtomicU64,
    /// What part of the GPU a step makes use of, in thousandths; 0 is unknown.
    pub(crate) needs: AtomicU32,
    /// What the step under way is, or the last one was, for one who tells them apart; and what short ones have to do.
    pub(crate) phase: AtomicU32,
    pub(crate) pace: AtomicU64,
    /// Not 0 while it misses its objectives.
    pub(crate) strained: AtomicU32,
    /// By how many splits a front has to be wider than predicted for its tokens to be in time.
    pub(crate) wider: AtomicU32,
    /// When the last one ended; and what nine of ten pauses are longer than, and shorter than. 0 is unknown.
    pub(crate) ended: AtomicU64,
    pub(crate) soon: AtomicU64,
    pub(crate) long: AtomicU64,
    /// When the prompt began that is pending; 0 is none.
    pub(crate) prompt: AtomicU64,
}

/// What others show of a tenant and nobody decides by within a step.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Facts {
    /// Which GPU it uses; 0 is unknown.
    pub(crate) gpu: AtomicU64,
    /// Bytes of that GPU's memory that it has.
    pub(crate) memory: AtomicU64,
    /// Not 0 while its kernels keep running far longer than they should.
    pub(crate) quarantined: AtomicU32,
    /// A part of the SMs on which steps ran lately, in thousandths, and how long they last there; and on all SMs. 0 is unknown.
    pub(crate) narrow_part: AtomicU32,
    pub(crate) on_narrow: AtomicU64,
    pub(crate) on_all: AtomicU64,
    /// For each objective, how many steps said something about it, and how many of those missed it.
    pub(crate) judged: [AtomicU64; OBJECTIVES],
    pub(crate) missed: [AtomicU64; OBJECTIVES],
}

/// What changes at most a few times a step, read together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct TenantRecord {
    pub(crate) sequence: Sequence,
    pub(crate) class: AtomicU32,
    pub(crate) lane: AtomicU32,
    /// Threads that are being held now.
    pub(crate) holding: AtomicU32,
    pub(crate) holds: AtomicU64,
    pub(crate) holding_since: AtomicU64,
    /// How long launches were held so far.
    pub(crate) held: AtomicU64,
    pub(crate) lane_width: AtomicU32,
}

/// The daemon's group.
#[derive(Debug)]
#[repr(C, align(4096))]
pub(crate) struct DaemonPages {
    pub(crate) header: Apart<Header>,
    /// Changes with anything below but the heartbeat; others sleep on it.
    pub(crate) epoch: Apart<AtomicU32>,
    pub(crate) heartbeat: Apart<AtomicU64>,
    pub(crate) policy: Apart<PolicyRecord>,
    pub(crate) slots: [Apart<SlotRecord>; SLOTS],
    /// What is known of kernels from before.
    pub(crate) kernels: KernelTable,
}

/// What all follow.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PolicyRecord {
    pub(crate) number: AtomicU32,
    /// In thousandths.
    pub(crate) aggressiveness: AtomicU32,
}

/// One slot of the table.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct SlotRecord {
    pub(crate) word: SlotWord,
    pub(crate) sequence: Sequence,
    pub(crate) pid: AtomicU32,
    pub(crate) class: AtomicU32,
    pub(crate) start_time: AtomicU64,
    pub(crate) memory: AtomicU64,
    pub(crate) longest_hold: AtomicU64,
    pub(crate) weight: AtomicU32,
    pub(crate) least_share: AtomicU32,
    pub(crate) paused: AtomicU32,
    /// 0 is none, as for those that follow.
    pub(crate) p99: AtomicU64,
    pub(crate) ttft: AtomicU64,
    pub(crate) tpot: AtomicU64,
    pub(crate) turnaround: AtomicU64,
    pub(crate) splits: AtomicU32,
    pub(crate) ladder: [AtomicU32; MOST_SPLITS],
    /// Until when somebody wants to know what its launches take; a word by itself, of which no epoch tells.
    pub(crate) asked_until: AtomicU64,
}

/// Bytes of a tenant's group.
pub const TENANT_BYTES: usize = size_of::<TenantPages>();

// SAFETY: see the two types: `repr(C)`, a header first, atomics in transparent or `repr(C)` wrappers.
unsafe impl Group for TenantPages {
    const KIND: u32 = 1;
    const NAME: &str = "detshare-tenant";

    fn header(&self) -> &Header {
        &self.header.0
    }
}

// SAFETY: as above.
unsafe impl Group for DaemonPages {
    const KIND: u32 = 2;
    const NAME: &str = "detshare-daemon";

    fn header(&self) -> &Header {
        &self.header.0
    }
}

const _: () = {
    assert!(size_of::<KernelTable>() == 128 * 4096);
    assert!(size_of::<TenantPages>() == 130 * 4096);
    assert!(core::mem::offset_of!(TenantPages, kernels) == 2 * 4096);
    assert!(core::mem::offset_of!(TenantPages, decisions) == 4096);
    assert!(size_of::<DaemonPages>() == 133 * 4096);
    assert!(core::mem::offset_of!(TenantPages, step) == 128);
    assert!(core::mem::offset_of!(TenantPages, record) == 256);
    assert!(core::mem::offset_of!(TenantPages, launched) == 384);
    assert!(core::mem::offset_of!(TenantPages, finished) == 512);
    assert!(core::mem::offset_of!(TenantPages, facts) == 640);
    assert!(core::mem::offset_of!(TenantPages, step_times) == 768);
    assert!(core::mem::offset_of!(DaemonPages, epoch) == 128);
    assert!(core::mem::offset_of!(DaemonPages, slots) == 512);
    assert!(size_of::<TenantRecord>() <= 64, "one line to read");
    assert!(size_of::<StepRecord>() <= 128, "two lines to read");
    assert!(size_of::<Apart<SlotRecord>>() == 256);
};
