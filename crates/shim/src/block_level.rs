//! Block level: long best-effort kernels give way in the middle, where they come as PTX.
//!
//! A launch that runs for milliseconds cannot be held any more once it has begun. For kernels whose PTX the program hands to
//! the driver, the shim loads *versions* beside the untouched original (`detshare_ptx::block_level`): one that runs a slice
//! of the grid, and one whose persistent blocks take the grid's blocks one after the other and can stop in between. Which
//! is used is decided by what was measured (`policy::block_level`). None of it happens unless somebody asked for it, and only
//! for best-effort tenants; they launch versions only beside a latency tenant. Until the first daemon has answered nobody knows
//! whether it asks for it: PTX that is loaded by then is copied, and nothing else.
//!
//! * `source` finds the PTX in what the program loads or links; `cache` keeps rewritten modules on disk.
//! * `prepared` has a thread that rewrites them, and loads them when the GPU has nothing of this process to do: loading
//!   waits for the device and keeps others from launching meanwhile. No launch ever waits for any of it.
//! * `versions` is what is known of a function by its handle, found without a lock.
//! * `plan` is what was measured of a kernel in one shape; `report` tells people.
//! * `control` has the counters and words that launches need, made ahead of time, and `sight` those of other tenants; `parts`
//!   launches, `persistent` what can be stopped.
//!
//! Where anything is in doubt the original runs.

mod cache;
mod conduct;
mod control;
mod forced;
mod loaded;
mod options;
mod packed;
mod parts;
mod persistent;
mod plan;
mod prepared;
mod report;
mod sight;
mod source;
mod versions;
mod waiting;

pub(crate) use control::Controls;
pub(crate) use forced::Forced;
pub(crate) use packed::Arguments;
pub(crate) use parts::{COUNTS, Launched, Request, launch};
pub(crate) use prepared::{forget, idle, is_pending};
pub(crate) use source::Origin;

use crate::hot::HOT;
use crate::settings::Settings;
use crate::{settings, tenant};
use core::ffi::{c_int, c_uint, c_void};
use core::sync::atomic::{AtomicU64, Ordering};
use detshare_board::Class;
use detshare_cuda::types::{CUfunc_cache, CUfunction, CUfunction_attribute, CUjit_option};

/// What `DETSHARE_BLOCK_LEVEL` asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BlockLevel {
    /// The daemon is asked for it.
    On,
    /// Tests: every kernel that can be is launched in parts.
    Forced(Forced),
}

impl BlockLevel {
    /// Reads a setting; None if it makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == "on" { Some(Self::On) } else { Forced::parse(text).map(Self::Forced) }
    }
}

/// Within what time kernels are to give way; 0 if they need not.
static TURNAROUND: AtomicU64 = AtomicU64::new(0);

/// Kernels are to give way within this time from now on, if they are to.
pub(crate) fn set_turnaround(ns: Option<u64>) {
    if TURNAROUND.swap(ns.unwrap_or(0), Ordering::Relaxed) != ns.unwrap_or(0) {
        report::changed();
    }
    HOT.in_parts.store(ns.is_some() || settings::get().forced().is_some(), Ordering::Relaxed);
}

fn turnaround_ns() -> u64 {
    TURNAROUND.load(Ordering::Relaxed)
}

/// Whether what the program loads is looked at: what is loaded while nobody knows if it is to have versions is not seen again.
pub(crate) fn is_wanted() -> bool {
    decided() != Some(false)
}

/// Whether what the program loads is to have versions; nothing as long as nobody knows.
fn decided() -> Option<bool> {
    let settings = settings::get();
    match tenant::entry() {
        _ if settings.forced().is_some() => Some(true),
        Some(entry) => Some(entry.class == Class::BestEffort && entry.turnaround_ns.is_some()),
        None if settings.class != Some(Class::Latency) && may_be_wanted(settings) => None,
        None => Some(false),
    }
}

/// Whether a daemon that has not said so yet may want it: the first, whose answer may still come, or where the program asks for it any.
fn may_be_wanted(settings: &Settings) -> bool {
    let is_asked_for = || settings.block_level == Some(BlockLevel::On);
    tenant::membership().is_some_and(|membership| is_asked_for() || membership.is_awaited())
}

/// A daemon has said what this process may do, or it is known that there is none.
pub(crate) fn daemon_answered() {
    if !is_wanted() {
        source::forget_images();
    }
    prepared::decide();
}

/// The program has loaded a module or a library.
pub(crate) fn loaded(handle: usize, origin: Origin<'_>) {
    if is_wanted() {
        prepared::add(handle, origin);
    }
}

/// A module or library is about to go, and all its kernels with it.
pub(crate) fn unloading(owner: usize) {
    prepared::remove(owner);
}

/// The program has set something of a kernel: its versions get the same before they are launched again.
pub(crate) fn attributes_changed(handle: usize) {
    versions::renew(handle);
}

/// The program prefers that split of the SM's memory for a kernel: so do its versions.
pub(crate) fn cache_config_changed(function: CUfunction, config: CUfunc_cache) {
    versions::set_cache_config(function, config);
}

pub(crate) use source::{link_added, link_completed, link_created, link_destroyed};

/// Whether a version would be compiled as the original was.
///
/// # Safety
/// There are so many options, and as many values; of none, the pointers may be anything.
pub(crate) unsafe fn are_harmless(options: *const CUjit_option, values: *const *mut c_void, count: c_uint) -> bool {
    // SAFETY: the caller's promise.
    unsafe { options::are_harmless(options, values, count, source::architecture) }
}

/// Attributes of a function that programs set and launches depend on.
const CARRIED: [CUfunction_attribute; 2] = [
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
    CUfunction_attribute::CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
];

/// A pointer as the driver takes it in lists of options.
fn as_value(number: usize) -> *mut c_void {
    core::ptr::without_provenance_mut(number)
}

/// A number of the driver's that is never below 0.
fn natural(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}
