//! A process whose kernels keep running far longer than predicted cannot be planned with: it is put on few SMs, it is said
//! so, and it is let go when it behaves.

use crate::kernel::Profile;
use crate::log;
use crate::tenant::membership;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use detshare_policy::conduct::{Conduct, FAR};
use std::sync::{Mutex, PoisonError};

static CONDUCT: Mutex<Conduct> = Mutex::new(Conduct::GOOD);
/// For the launch path.
static QUARANTINED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_quarantined() -> bool {
    QUARANTINED.load(Ordering::Relaxed)
}

/// A kernel took so long on a lane. For the background thread, before it is noted in the profile.
pub(crate) fn judge(profile: &Profile, lane: usize, took: Duration) {
    let Some(predicted) = profile.on(lane).filter(|_| profile.is_known_on(lane)) else { return };
    let [predicted, took] = [predicted, took].map(|it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
    let changed = CONDUCT.lock().unwrap_or_else(PoisonError::into_inner).judge(predicted, took);
    let Some(quarantined) = changed else { return };
    QUARANTINED.store(quarantined, Ordering::Relaxed);
    if let Some(membership) = membership() {
        membership.page.set_quarantined(quarantined);
    }
    let what =
        if quarantined { "put into quarantine: kernels keep running" } else { "released: kernels no longer run" };
    log::line(format_args!("{what} over {FAR} times as long as predicted"));
}
