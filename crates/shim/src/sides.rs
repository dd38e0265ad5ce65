//! Whether this process's work takes less on half of the SMs than on all of them, beside others of its kind: what is seen of
//! launches while both are tried. See [`detshare_policy::side`].

use crate::hot::HOT;
use crate::kernel::Profile;
use crate::lane::FULL;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use core::time::Duration;
use detshare_policy::side::{Comparison, Place, tells};
use std::sync::{Mutex, MutexGuard, PoisonError};

static COMPARISON: Mutex<Comparison> = Mutex::new(Comparison::NOTHING);
/// Beside whom, as bits: with others it is another matter.
static BESIDE: AtomicU64 = AtomicU64::new(0);
/// For the launch path: 0 is unknown, then all SMs, then halves.
static FASTER: AtomicU8 = AtomicU8::new(0);

fn comparison() -> MutexGuard<'static, Comparison> {
    COMPARISON.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a half is faster; nothing where nobody knows.
pub(crate) fn is_half_faster() -> Option<bool> {
    match FASTER.load(Ordering::Relaxed) {
        0 => None,
        faster => Some(faster == 2),
    }
}

/// These are here now, as bits of their slots.
pub(crate) fn beside(slots: u64) {
    if BESIDE.swap(slots, Ordering::Relaxed) != slots {
        *comparison() = Comparison::NOTHING;
        FASTER.store(0, Ordering::Relaxed);
    }
}

/// Launches are timed from now on if they tell something.
pub(crate) fn look(now_ns: u64) {
    set_telling(tells(now_ns, is_half_faster().is_some()));
}

/// Whether what is launched now tells something.
pub(crate) fn set_telling(telling: bool) {
    if HOT.telling.load(Ordering::Relaxed) != telling {
        HOT.telling.store(telling, Ordering::Relaxed);
    }
}

/// A launch that told something took so long on a lane. For the background thread, before it is noted in the profile.
pub(crate) fn note(profile: &Profile, at_ns: u64, lane: usize, took: Duration) {
    let Some(usual) = profile.on(FULL) else { return };
    let place = if lane == FULL { Place::All } else { Place::Half };
    let [usual, took] = [usual, took].map(|it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
    let mut comparison = comparison();
    comparison.note(at_ns, place, usual, took);
    FASTER.store(comparison.is_half_faster().map_or(0, |half| 1 + u8::from(half)), Ordering::Relaxed);
}
