//! What every launch reads before it does anything, together in one cache line: the driver's own launch leaves little of
//! ours in the cache, and each line that has to be fetched again is several nanoseconds.

use crate::freedom::Freedom;
use crate::tenant::Membership;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicUsize};

/// The line.
#[repr(C, align(64))]
pub(crate) struct Hot {
    /// What this process has on the board; NULL where it is no tenant.
    pub(crate) membership: AtomicPtr<Membership>,
    /// Whether there is nothing to decide: launches run on all SMs.
    pub(crate) freedom: Freedom,
    /// Streams that a capture began in.
    pub(crate) captures: AtomicUsize,
    /// The number of the step that was last seen to begin.
    pub(crate) step: AtomicU32,
    /// Threads of the program that wait for the GPU.
    pub(crate) waiting: AtomicU32,
    /// How many coroutines were ever used; mostly one.
    pub(crate) coroutines: AtomicU8,
    /// Whether there is anything to bind. Off in a forked child, where the driver does not work.
    pub(crate) active: AtomicBool,
    /// Whether the policy wants to know what is in flight.
    pub(crate) foresees: AtomicBool,
    /// Whether this is a latency tenant that others make way for, as far as they know what it does.
    pub(crate) looked_after: AtomicBool,
    /// Whether kernels that can be are launched in parts.
    pub(crate) in_parts: AtomicBool,
    /// Whether launches are written down.
    pub(crate) recording: AtomicBool,
    /// Whether a test's schedule decides about lanes.
    pub(crate) scheduled: AtomicBool,
}

pub(crate) static HOT: Hot = Hot {
    membership: AtomicPtr::new(core::ptr::null_mut()),
    freedom: Freedom::none(),
    captures: AtomicUsize::new(0),
    step: AtomicU32::new(0),
    waiting: AtomicU32::new(0),
    coroutines: AtomicU8::new(0),
    active: AtomicBool::new(false),
    foresees: AtomicBool::new(false),
    looked_after: AtomicBool::new(false),
    in_parts: AtomicBool::new(false),
    recording: AtomicBool::new(false),
    scheduled: AtomicBool::new(false),
};
