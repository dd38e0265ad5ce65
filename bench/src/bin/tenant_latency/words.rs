//! Words in memory that all processes of this benchmark share, and waiting for them.

use anyhow::{Context, Result, ensure};
use core::ptr::null_mut;
use detshare_board::clock;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Longer than any round takes, even where a core has to be shared.
const LONGEST_NS: u64 = 10_000_000_000;
/// Looks before somebody else gets the core.
const LOOKS: u32 = 500;
/// Looks between two looks at the clock.
const LOOKS_BY_CLOCK: u32 = 1 << 16;

/// A word with its cache line, and the neighbour that the processor fetches with it, to itself.
#[repr(C, align(128))]
pub(crate) struct Word(AtomicU64);

impl Word {
    /// Pairs with the release in `set`.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Pairs with the acquire in `get`.
    pub(crate) fn set(&self, value: impl TryInto<u64>) {
        self.0.store(value.try_into().unwrap_or(u64::MAX), Ordering::Release);
    }
}

/// The rounds' numbers count from 1.
#[repr(C)]
pub(crate) struct Lines {
    /// The watcher looks at the page for this round.
    pub(crate) watching: Word,
    /// When the tenant was about to launch, and later when it had waited for its step.
    pub(crate) stamp: Word,
    /// The watcher has seen the tenant busy in this round.
    pub(crate) busy_seen: Word,
    /// The watcher has seen what this round is about.
    pub(crate) seen: Word,
    /// The kernel of this round that others are held for has been launched.
    pub(crate) running: Word,
    /// The tenant that is waited for has done this round.
    pub(crate) done: Word,
    /// The latency tenant is about to launch in this round, while the other's kernel runs.
    pub(crate) calling: Word,
    /// The latency tenant's step of this round is over, as it knows.
    pub(crate) ended: Word,
    /// The latency tenant has done this round, and so have all others.
    pub(crate) over: Word,
    /// Rounds of the long kernel, once the latency tenant is there and knows.
    pub(crate) long: Word,
    /// The tenant that is waited for has nothing left to do but its rounds.
    pub(crate) present: Word,
}

/// All of them.
pub(crate) struct Words {
    lines: &'static Lines,
    file: OwnedFd,
}

impl Words {
    /// New ones, zero at first; a child process inherits the file.
    pub(crate) fn create() -> Result<Self> {
        let file = memfd_create("tenant_latency", MemfdFlags::CLOEXEC).context("memfd_create")?;
        ftruncate(&file, size_of::<Lines>() as u64)?;
        fcntl_setfd(&file, FdFlags::empty())?;
        Self::map(file)
    }

    /// Those of the parent.
    pub(crate) fn inherited(file: RawFd) -> Result<Self> {
        ensure!(file >= 0, "a tenant needs --words");
        // SAFETY: our parent left it open for us, and nothing else here knows its number.
        Self::map(unsafe { OwnedFd::from_raw_fd(file) })
    }

    fn map(file: OwnedFd) -> Result<Self> {
        let (size, access) = (size_of::<Lines>(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping, wherever the kernel puts it.
        let address = unsafe { mmap(null_mut(), size, access, MapFlags::SHARED, &file, 0) }.context("mmap")?;
        // SAFETY: so many bytes, at the beginning of a page, that are never unmapped; any bytes are such words.
        let lines = unsafe { &*address.cast::<Lines>() };
        Ok(Self { lines, file })
    }

    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl core::ops::Deref for Words {
    type Target = Lines;

    fn deref(&self) -> &Lines {
        self.lines
    }
}

/// Waits where it does not matter how long: others may need the core.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let end = clock::now() + LONGEST_NS;
    while !looks(LOOKS, &is_so) {
        ensure!(clock::now() < end, "waited too long: {what}");
        std::thread::yield_now();
    }
    Ok(())
}

/// Waits for what is measured: looks all the time.
pub(crate) fn spin_until(what: &str, is_so: impl Fn() -> bool) -> Result<()> {
    let end = clock::now() + LONGEST_NS;
    while !looks(LOOKS_BY_CLOCK, &is_so) {
        ensure!(clock::now() < end, "waited too long: {what}");
    }
    Ok(())
}

fn looks(times: u32, is_so: impl Fn() -> bool) -> bool {
    for _ in 0..times {
        if is_so() {
            return true;
        }
        core::hint::spin_loop();
    }
    false
}

/// Lets so much time pass without giving the core away.
pub(crate) fn spin_for(ns: u64) {
    let end = clock::now() + ns;
    while clock::now() < end {
        core::hint::spin_loop();
    }
}
