//! What a launch got at the gate, and where that is written down.
//!
//! A best-effort tenant beside a latency tenant writes every decision down. Others write one when it differs from the last:
//! a server that runs on its own SMs, or a training that has its turn, can be explained too, and a launch about which there is
//! nothing new to say costs a comparison. Whether somebody asks what launches take is looked up where a decision is written down,
//! and nowhere else.

use crate::lane::FULL;
use core::cell::Cell;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_policy::{Lane, Reason};

/// The lane, and the number under which that was written down, if it was.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) lane: usize,
    pub(crate) decision: Option<NonZeroU64>,
}

impl Passed {
    /// There was nothing to decide.
    pub(crate) const UNDECIDED: Self = Self { lane: FULL, decision: None };

    /// Whether it was written down, and somebody asks what the launch takes. For the thread that it was written down for, before
    /// its next launch.
    pub(crate) fn is_asked(&self) -> bool {
        self.decision.is_some() && ASKED.try_with(Cell::get).unwrap_or(false)
    }
}

thread_local! {
    /// What this thread wrote down for the launch that it is about to make.
    static NOTED: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
    /// Whether somebody asks what that one takes.
    static ASKED: Cell<bool> = const { Cell::new(false) };
}

/// A decision of this thread was written down under that number.
pub(super) fn noted(decision: NonZeroU64, is_asked: bool) {
    // A thread that is ending has nothing measured.
    _ = NOTED.try_with(|noted| noted.set(Some(decision)));
    _ = ASKED.try_with(|asked| asked.set(is_asked));
}

/// What was written down for this launch.
pub(super) fn take() -> Option<NonZeroU64> {
    NOTED.try_with(Cell::take).ok().flatten()
}

/// Whether something else was decided for the last launch of this process. Two threads at once may both be told so.
pub(super) fn is_news(lane: Lane, reason: Reason) -> bool {
    /// No decision has this number.
    static LAST: AtomicU32 = AtomicU32::new(0);
    let side = match lane {
        Lane::Full => 0,
        Lane::Front { split } => 1 + 2 * split,
        Lane::Rest { split } => 2 + 2 * split,
    };
    let now = u32::try_from(side).unwrap_or(0) << 8 | u32::from(reason.number());
    LAST.load(Ordering::Relaxed) != now && LAST.swap(now, Ordering::Relaxed) != now
}
