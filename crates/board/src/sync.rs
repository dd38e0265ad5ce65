//! Everything that threads and processes meet at: atomics, fences and the futex. The model checker swaps all of it.
//!
//! Others' pages are mapped read-only, and Rust promises only relaxed loads to work there. So whoever reads loads
//! relaxed and then fences: [`acquired`].

#[cfg(not(loom))]
pub(crate) use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(not(loom))]
pub(crate) use core::hint::spin_loop;
#[cfg(loom)]
pub(crate) use loom::hint::spin_loop;

/// Makes the relaxed load that gave this value an acquiring one.
pub(crate) fn acquired<T>(loaded: T) -> T {
    fence(Ordering::Acquire);
    loaded
}

/// A word that is waited for, and the value that it had.
#[derive(Debug, Clone, Copy)]
pub struct Watch<'a> {
    pub(crate) word: &'a AtomicU32,
    pub(crate) seen: u32,
}

impl Watch<'_> {
    /// Whether it has another value by now. Pairs with the release of whoever changed it.
    pub(crate) fn has_changed(&self) -> bool {
        acquired(self.word.load(Ordering::Relaxed)) != self.seen
    }
}

/// How a sleep went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slept {
    /// A word has changed, or it only looks so: look again.
    LookAgain,
    /// The time is over, or the kernel will not let us sleep.
    Over,
}

#[cfg(not(loom))]
pub(crate) use real::{sleep, wake};

#[cfg(not(loom))]
mod real {
    use super::{AtomicU32, Slept, Watch};
    use crate::clock;
    use core::ffi::c_void;
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags, Wait, WaitFlags, WaitPtr, WaitvFlags};
    use rustix::time::{ClockId, Timespec};

    /// A futex between processes: without the private flag.
    const SHARED: Flags = Flags::empty();
    /// All slots and the epoch.
    const MOST_WORDS: usize = crate::layout::SLOTS + 1;
    /// How long to sleep if not all words can be slept on at once: the others are looked at that often.
    const SLICE_NS: u64 = 1_000_000;

    /// Sleeps unless one of the words has changed; until one of them is woken, and no longer than the deadline.
    /// The kernel compares and goes to sleep in one step with respect to [`wake`].
    pub(crate) fn sleep(watches: &[Watch<'_>], deadline: u64) -> Slept {
        let now = clock::now();
        let [first, others @ ..] = watches else { return Slept::Over };
        if now >= deadline {
            return Slept::Over;
        }
        let result = if others.is_empty() {
            sleep_on(first, deadline - now)
        } else {
            match sleep_on_all(watches, deadline) {
                // Before Linux 5.16, and in a container whose filter does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => sleep_on(first, SLICE_NS.min(deadline - now)),
                result => result,
            }
        };
        match result {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Slept::LookAgain,
            Err(_) => Slept::Over,
        }
    }

    /// Wakes everybody who sleeps on this word, in whatever process.
    pub(crate) fn wake(word: &AtomicU32) {
        // It can only fail for a bad address, and this one is mapped.
        _ = futex::wake(word, SHARED, i32::MAX.cast_unsigned());
    }

    fn sleep_on(watch: &Watch<'_>, ns: u64) -> Result<(), Errno> {
        futex::wait(watch.word, SHARED, watch.seen, Some(&timespec(ns)))
    }

    fn sleep_on_all(watches: &[Watch<'_>], deadline: u64) -> Result<(), Errno> {
        let mut list = [Wait::new(); MOST_WORDS];
        for (wait, watch) in list.iter_mut().zip(watches) {
            wait.val = u64::from(watch.seen);
            wait.uaddr = WaitPtr::new(watch.word.as_ptr().cast::<c_void>());
            wait.flags = WaitFlags::SIZE_U32;
        }
        let list = &list[..watches.len().min(MOST_WORDS)];
        let until = if list.len() < watches.len() { deadline.min(clock::now() + SLICE_NS) } else { deadline };
        futex::waitv(list, WaitvFlags::empty(), Some(&timespec(until)), ClockId::Monotonic).map(|_| ())
    }

    fn timespec(ns: u64) -> Timespec {
        const SECOND: u64 = 1_000_000_000;
        // The quotient of a u64 fits, and the rest is below a second.
        Timespec { tv_sec: (ns / SECOND).cast_signed(), tv_nsec: (ns % SECOND).cast_signed() }
    }
}

#[cfg(loom)]
pub(crate) use model::{sleep, wake};

/// The futex as the kernel promises it: comparing and queueing is one step, and so is waking. Nobody wakes by time,
/// so that a lost wake-up is a deadlock, which the model checker reports.
#[cfg(loom)]
mod model {
    use super::{AtomicU32, Slept, Watch};
    use loom::sync::{Condvar, Mutex};

    struct Bucket {
        lock: Mutex<()>,
        sleepers: Condvar,
    }

    loom::lazy_static! {
        static ref BUCKET: Bucket = Bucket { lock: Mutex::new(()), sleepers: Condvar::new() };
    }

    pub(crate) fn sleep(watches: &[Watch<'_>], _deadline: u64) -> Slept {
        let locked = BUCKET.lock.lock().expect("nobody panics");
        if !watches.iter().any(Watch::has_changed) {
            drop(BUCKET.sleepers.wait(locked).expect("nobody panics"));
        }
        Slept::LookAgain
    }

    pub(crate) fn wake(_word: &AtomicU32) {
        let _locked = BUCKET.lock.lock().expect("nobody panics");
        BUCKET.sleepers.notify_all();
    }
}
