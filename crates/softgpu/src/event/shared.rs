//! An event that several processes know: two counters in memory that they share.

use crate::memory::memory_file;
use crate::memory::shared::FileOf;
use crate::sm::is_alive;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// A whole page: a mapping has no less.
const BYTES: usize = 4096;

#[repr(C)]
struct Counters {
    /// How often it was recorded.
    recorded: AtomicU64,
    /// Which of these recordings, counted from 1, is over; with it all before it.
    over: AtomicU64,
    /// The process that recorded it last.
    recorder: AtomicU32,
}

/// What processes share of an event.
pub(crate) struct SharedPoint {
    file: OwnedFd,
    counters: *const Counters,
    /// Whether this process made it.
    pub(crate) own: bool,
}

// SAFETY: the counters are reached as atomics only, and mapped as long as this is.
unsafe impl Send for SharedPoint {}
// SAFETY: as above.
unsafe impl Sync for SharedPoint {}

impl Drop for SharedPoint {
    fn drop(&mut self) {
        // SAFETY: mapped with that size when this was made, and nobody has it any more.
        unsafe { libc::munmap(self.counters.cast_mut().cast(), BYTES) };
    }
}

impl SharedPoint {
    pub(crate) fn create() -> Option<Self> {
        Self::map(memory_file(c"softgpu-event", BYTES as u64)?, true)
    }

    /// The event of another process, or of this one.
    pub(crate) fn open(file: &FileOf) -> Option<Self> {
        let own = file.process == std::process::id();
        let file = file.open()?;
        let is_event = |file: &File| file.metadata().is_ok_and(|it| it.len() == BYTES as u64);
        is_event(&file).then(|| Self::map(file.into(), own)).flatten()
    }

    fn map(file: OwnedFd, own: bool) -> Option<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of an open file.
        let mapped = unsafe { libc::mmap(core::ptr::null_mut(), BYTES, access, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        (mapped != libc::MAP_FAILED).then(|| Self { file, counters: mapped.cast_const().cast(), own })
    }

    /// How other processes find it.
    pub(crate) fn file(&self) -> Option<FileOf> {
        FileOf::own(self.file.as_fd())
    }

    fn counters(&self) -> &Counters {
        // SAFETY: mapped as long as this is, zeroed at first, aligned as pages are, and only accessed as atomics.
        unsafe { &*self.counters }
    }

    /// It is recorded again; what comes back is to be called when that is over.
    pub(super) fn begin(self: &Arc<Self>) -> impl FnOnce() + Send + use<> {
        self.counters().recorder.store(std::process::id(), Ordering::Relaxed);
        // Pairs with the acquire in `pending`: who sees the recording sees who did it.
        let recording = self.counters().recorded.fetch_add(1, Ordering::Release) + 1;
        let shared = Arc::clone(self);
        // Pairs with the acquire in `is_over`: what came before it has been done.
        move || {
            shared.counters().over.fetch_max(recording, Ordering::Release);
        }
    }

    fn is_over(&self, recording: u64) -> bool {
        // A process that is gone does not do any more of what it was asked to do.
        let counters = self.counters();
        counters.over.load(Ordering::Acquire) >= recording || !is_alive(counters.recorder.load(Ordering::Relaxed))
    }

    pub(super) fn is_complete(&self) -> bool {
        let recorded = self.counters().recorded.load(Ordering::Acquire);
        recorded == 0 || self.is_over(recorded)
    }

    /// Says when the last recording so far is over; None if it is.
    pub(super) fn pending(self: &Arc<Self>) -> Option<impl FnMut() -> bool + Send + use<>> {
        let recorded = self.counters().recorded.load(Ordering::Acquire);
        if recorded == 0 || self.is_over(recorded) {
            return None;
        }
        let shared = Arc::clone(self);
        Some(move || shared.is_over(recorded))
    }
}
