//! What kernels print: kept in a buffer until the program comes to a point where a driver writes it.

use super::System;
use core::ffi::c_void;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::VecDeque;
use std::io::Write;
use std::sync::{Arc, Mutex, Weak};

/// What a context starts with: 64 KiB for each of an H200's multiprocessors.
pub(super) const DEFAULT_ROOM: usize = 132 << 16;
/// An H200 has no less, whatever a program asks for.
pub(super) const LEAST_ROOM: usize = 512 << 10;
/// What a line takes of the room besides its text and arguments.
const LINE: usize = 16;

/// Where text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sink {
    /// What `printf` writes.
    Standard,
    /// What a failed assertion writes.
    Error,
}

/// The buffer of one context. It is circular: what is new takes the place of what is oldest.
#[derive(Debug)]
pub(crate) struct Output {
    lines: Mutex<Lines>,
    room: AtomicUsize,
}

#[derive(Debug, Default)]
struct Lines {
    all: VecDeque<(Sink, Vec<u8>)>,
    taken: usize,
}

impl Default for Output {
    fn default() -> Self {
        Self { lines: Mutex::default(), room: AtomicUsize::new(DEFAULT_ROOM) }
    }
}

/// Whether any context has text to write.
static PENDING: AtomicBool = AtomicBool::new(false);
/// All contexts' parts.
static SYSTEMS: Mutex<Vec<Weak<System>>> = Mutex::new(Vec::new());

pub(super) fn register(system: &Arc<System>) {
    let mut systems = SYSTEMS.lock().expect("no panic while it is held");
    systems.retain(|other| other.strong_count() > 0);
    systems.push(Arc::downgrade(system));
}

impl Output {
    pub(super) fn set_room(&self, room: usize) {
        self.room.store(room, Ordering::Relaxed);
    }

    /// Most bytes that a line can have.
    pub(crate) fn room(&self) -> usize {
        self.room.load(Ordering::Relaxed)
    }

    /// Keeps the text until it is written.
    pub(crate) fn print(&self, sink: Sink, text: Vec<u8>) {
        let (room, size) = (self.room(), LINE + text.len());
        let mut lines = self.lines.lock().expect("no panic while it is held");
        if size > room {
            return;
        }
        while lines.taken + size > room {
            let Some((_, oldest)) = lines.all.pop_front() else { break };
            lines.taken -= LINE + oldest.len();
        }
        lines.taken += size;
        lines.all.push_back((sink, text));
        // Pairs with the swap in `flush`, which then finds the line.
        PENDING.store(true, Ordering::Release);
    }

    fn take(&self) -> VecDeque<(Sink, Vec<u8>)> {
        std::mem::take(&mut *self.lines.lock().expect("no panic while it is held")).all
    }
}

/// Writes what kernels have printed so far.
pub(crate) fn flush() {
    /// Two threads that write would mix their lines up.
    static WRITING: Mutex<()> = Mutex::new(());
    if !PENDING.load(Ordering::Relaxed) {
        return;
    }
    let _writing = WRITING.lock().expect("no panic while it is held");
    if !PENDING.swap(false, Ordering::Acquire) {
        return;
    }
    let systems: Vec<_> = SYSTEMS.lock().expect("no panic while it is held").clone();
    for (sink, text) in systems.iter().filter_map(Weak::upgrade).flat_map(|system| system.output.take()) {
        match sink {
            Sink::Standard => to_standard_output(&text),
            // A closed standard error is not the program's problem.
            Sink::Error => drop(std::io::stderr().write_all(&text)),
        }
    }
}

/// Through C's own buffer, so that the text stands in order with what the program prints itself.
fn to_standard_output(text: &[u8]) {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: C's own variable, which it has set before anything else runs.
    let file = unsafe { stdout };
    // SAFETY: bytes that are there, and C's standard output.
    unsafe { libc::fwrite(text.as_ptr().cast::<c_void>(), 1, text.len(), file) };
}

/// Writes what kernels have printed if a driver does so at the start of that call,
pub(crate) fn flush_before(call: &str) {
    if PENDING.load(Ordering::Relaxed) && is_written_before(call) {
        flush();
    }
}

/// or at its end.
pub(crate) fn flush_after(call: &str) {
    if PENDING.load(Ordering::Relaxed) && is_written_after(call) {
        flush();
    }
}

/// Launches.
fn is_written_before(call: &str) -> bool {
    call.starts_with("cuLaunch") || call.starts_with("cuGraphLaunch")
}

/// What waits for the device, and what loads or ends modules and contexts.
fn is_written_after(call: &str) -> bool {
    const STARTS: [&str; 8] = [
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuEventSynchronize",
        "cuModuleLoad",
        "cuModuleUnload",
        "cuLibraryUnload",
        "cuCtxDestroy",
        "cuDevicePrimaryCtxRe",
    ];
    STARTS.iter().any(|start| call.starts_with(start)) || call.starts_with("cuMemcpy") && !call.contains("Async")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_takes_the_place_of_what_is_oldest() {
        let output = Output::default();
        output.set_room(2 * (LINE + 5));
        for text in ["first", "then ", "last "] {
            output.print(Sink::Standard, text.into());
        }
        output.print(Sink::Standard, vec![b'x'; 100]);
        let kept: Vec<_> = output.take().into_iter().map(|(_, text)| String::from_utf8(text).expect("text")).collect();
        assert_eq!(kept, ["then ", "last "]);
        output.print(Sink::Error, "again".into());
        assert_eq!(output.take().len(), 1, "the room is free again");
    }

    #[test]
    fn calls_that_wait_write() {
        assert!(is_written_after("cuMemcpyDtoH_v2") && is_written_after("cuDevicePrimaryCtxReset_v2"));
        assert!(!is_written_after("cuMemcpyDtoHAsync_v2") && !is_written_after("cuDevicePrimaryCtxGetState"));
        assert!(!is_written_after("cuStreamQuery") && is_written_before("cuLaunchKernelEx"));
    }
}
