//! A completion: something that other work, and the program, can wait for.

use super::sync::{Arc, AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use super::{Job, now};

/// Whether a piece of work is over, and when.
#[derive(Default)]
pub(crate) struct Done {
    complete: AtomicBool,
    time: AtomicU64,
    waiting: Mutex<Vec<Arc<Job>>>,
    changed: Condvar,
}

impl Done {
    /// One that is over already.
    pub(crate) fn already() -> Arc<Self> {
        let done = Self::default();
        done.complete();
        Arc::new(done)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// When it was over, by [`now`].
    pub(crate) fn time(&self) -> u64 {
        self.time.load(Ordering::Acquire)
    }

    /// Blocks the calling thread until it is over.
    pub(crate) fn wait(&self) {
        if self.is_complete() {
            return;
        }
        let mut waiting = self.waiting.lock().expect("no panic while it is held");
        while !self.is_complete() {
            waiting = self.changed.wait(waiting).expect("no panic while it is held");
        }
    }

    /// Has the job told when it is over; false if it is over already.
    pub(super) fn then(&self, job: &Arc<Job>) -> bool {
        if self.is_complete() {
            return false;
        }
        let mut waiting = self.waiting.lock().expect("no panic while it is held");
        if self.is_complete() {
            return false;
        }
        waiting.push(Arc::clone(job));
        true
    }

    /// Says that it is over; returns the jobs to tell.
    pub(super) fn complete(&self) -> Vec<Arc<Job>> {
        let mut waiting = self.waiting.lock().expect("no panic while it is held");
        self.time.store(now(), Ordering::Release);
        self.complete.store(true, Ordering::Release);
        self.changed.notify_all();
        std::mem::take(&mut *waiting)
    }
}
