//! What had been launched when an event was recorded: who waits for the event knows then that so much is over.
//!
//! Only the last recordings are known, and two threads that record at once may spoil each other's: a step that is not told from the
//! next one costs somebody time, and nothing else.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use detshare_cuda::types::CUevent;

/// Recordings that are known.
const KNOWN: usize = 32;

struct Mark {
    event: AtomicUsize,
    launched: AtomicU64,
}

static MARKS: [Mark; KNOWN] = [const { Mark { event: AtomicUsize::new(0), launched: AtomicU64::new(0) } }; KNOWN];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// An event is about to be recorded, and so much was launched before it.
pub(crate) fn set(event: CUevent, launched: u64) {
    let mark = &MARKS[NEXT.fetch_add(1, Ordering::Relaxed) % KNOWN];
    mark.event.store(0, Ordering::Relaxed);
    mark.launched.store(launched, Ordering::Relaxed);
    // Pairs with the acquire in `find`.
    mark.event.store(event.0.addr(), Ordering::Release);
}

/// What had been launched when it was recorded last, if that is known.
pub(crate) fn find(event: CUevent) -> Option<u64> {
    let of_it = MARKS.iter().filter(|mark| mark.event.load(Ordering::Acquire) == event.0.addr());
    of_it.map(|mark| mark.launched.load(Ordering::Relaxed)).max()
}
