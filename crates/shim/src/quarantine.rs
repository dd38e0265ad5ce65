//! A process whose kernels keep running far longer than predicted cannot be planned with: it is put on few SMs, it is said
//! so, and it is let go when it behaves.

use crate::kernel::Profile;
use crate::log;
use crate::tenant::membership;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use core::time::Duration;

/// How many times longer than predicted is far longer.
const FAR: u32 = 3;
/// What is shorter disturbs nobody.
const NOT_JUDGED: Duration = Duration::from_micros(200);
/// Of the last 32 that were measured, so many put it into quarantine, and so few let it go.
const TOO_MANY: u32 = 12;
const FEW: u32 = 3;

/// The last 32 that were measured: a bit each.
static LAST: AtomicU32 = AtomicU32::new(0);
static QUARANTINED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_quarantined() -> bool {
    QUARANTINED.load(Ordering::Relaxed)
}

/// A kernel took so long on a lane. For the background thread, before it is noted in the profile.
pub(crate) fn judge(profile: &Profile, lane: usize, took: Duration) {
    let Some(expected) = profile.on(lane).filter(|_| profile.is_known_on(lane)) else { return };
    let is_far = took > NOT_JUDGED && took > expected * FAR;
    let last = LAST.load(Ordering::Relaxed) << 1 | u32::from(is_far);
    LAST.store(last, Ordering::Relaxed);
    let (before, count) = (is_quarantined(), last.count_ones());
    let now = if before { count > FEW } else { count >= TOO_MANY };
    if now == before {
        return;
    }
    QUARANTINED.store(now, Ordering::Relaxed);
    if let Some(membership) = membership() {
        membership.page.set_quarantined(now);
    }
    let what = if now { "put into quarantine: kernels keep running" } else { "released: kernels no longer run" };
    log::line(format_args!("{what} over {FAR} times as long as predicted"));
}
