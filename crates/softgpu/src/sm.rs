//! The devices' SMs, shared by all processes of the user.
//!
//! For each SM a word in shared memory says until when it is busy. A block takes the SM of its lane that is free
//! first, for its modelled time. Two processes on the same SMs therefore slow each other down, on disjoint ones
//! they do not. What a dead process has taken counts as free.

use crate::boundary::log;
use crate::device::settings;
use crate::engine::now;
use crate::memory::MOST_DEVICES;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::ffi::CString;
use std::sync::OnceLock;

/// The SMs of one device, in shared memory.
const MOST_SMS: usize = 1024;
/// Four warp instructions a cycle at 1.98 GHz.
const NS_PER_WARP_INSTRUCTION: f64 = 0.126;

#[repr(C, align(64))]
struct Sm {
    /// By the clock that all processes share.
    busy_until: AtomicU64,
    /// The process that took it last.
    owner: AtomicU32,
}

/// The modelled time of that many warp instructions.
pub(crate) fn modelled_ns(warp_instructions: u64) -> u64 {
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a model: nanoseconds, positive, far below 2^53"
    )]
    let ns = (warp_instructions as f64 * NS_PER_WARP_INSTRUCTION / settings().speed) as u64;
    ns
}

/// A set of SMs.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) device: usize,
    sms: Vec<u32>,
}

impl Lane {
    /// Every SM of a device.
    pub(crate) fn full(device: usize) -> Self {
        Self { device, sms: (0..settings().sms).collect() }
    }

    pub(crate) fn of(device: usize, sms: Vec<u32>) -> Self {
        Self { device, sms }
    }

    pub(crate) fn sms(&self) -> &[u32] {
        &self.sms
    }

    /// When the first of its SMs is free.
    pub(crate) fn free_at(&self) -> u64 {
        self.first_free().map_or(0, |(until, _)| until)
    }

    /// Takes the SM that is free first, for that long; returns when that is over.
    pub(crate) fn occupy(&self, ns: u64) -> u64 {
        loop {
            let Some((until, sm)) = self.first_free() else { return now() };
            let ends = until.max(now()) + ns;
            let seen = sm.busy_until.load(Ordering::Relaxed);
            // A word of its own, nothing else is read by it: no order needed.
            if effective(sm, seen) == until
                && sm.busy_until.compare_exchange(seen, ends, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                sm.owner.store(std::process::id(), Ordering::Relaxed);
                return ends;
            }
        }
    }

    fn first_free(&self) -> Option<(u64, &'static Sm)> {
        let all = shared();
        self.sms
            .iter()
            .filter_map(|sm| all.get(self.device * MOST_SMS + *sm as usize))
            .map(|sm| (effective(sm, sm.busy_until.load(Ordering::Relaxed)), sm))
            .min_by_key(|(until, _)| *until)
    }
}

/// Until when it is busy; what a dead process has taken does not count.
fn effective(sm: &Sm, until: u64) -> u64 {
    let owner = sm.owner.load(Ordering::Relaxed);
    if owner == std::process::id() || owner == 0 || until <= now() || is_alive(owner) { until } else { 0 }
}

pub(crate) fn is_alive(process: u32) -> bool {
    let Ok(process) = libc::pid_t::try_from(process) else { return false };
    // SAFETY: signal 0 only asks whether there is such a process.
    let answer = unsafe { libc::kill(process, 0) };
    answer == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM)
}

/// The SMs of all devices: in shared memory, or private to this process where there is none.
fn shared() -> &'static [Sm] {
    static SHARED: OnceLock<&'static [Sm]> = OnceLock::new();
    SHARED.get_or_init(|| {
        map_shared().unwrap_or_else(|| {
            log(format_args!("no shared memory: other processes do not see this one's load"));
            let private = || Sm { busy_until: AtomicU64::new(0), owner: AtomicU32::new(0) };
            Box::leak((0..MOST_SMS * MOST_DEVICES).map(|_| private()).collect())
        })
    })
}

/// Part of the name: processes with another layout of [`Sm`] do not meet.
const LAYOUT: u32 = 2;

fn map_shared() -> Option<&'static [Sm]> {
    // SAFETY: takes nothing.
    let user = unsafe { libc::geteuid() };
    let name = CString::new(format!("/detshare-softgpu-{user}-{LAYOUT}")).ok()?;
    // SAFETY: a terminated name.
    let file = unsafe { libc::shm_open(name.as_ptr(), libc::O_CREAT | libc::O_RDWR | libc::O_CLOEXEC, 0o600) };
    if file < 0 {
        return None;
    }
    let size = MOST_SMS * MOST_DEVICES * size_of::<Sm>();
    // SAFETY: an open file; it only ever gets this size, so another process's part does not change.
    let sized = unsafe { libc::ftruncate(file, libc::off_t::try_from(size).ok()?) } == 0;
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of an open file.
    let mapped = unsafe { libc::mmap(core::ptr::null_mut(), size, access, libc::MAP_SHARED, file, 0) };
    // SAFETY: opened above and not used afterwards.
    unsafe { libc::close(file) };
    if !sized || mapped == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: mapped for good with that size, zeroed at first, and only accessed as atomics by all processes.
    Some(unsafe { core::slice::from_raw_parts(mapped.cast::<Sm>(), MOST_SMS * MOST_DEVICES) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};

    const SECOND: u64 = 1_000_000_000;
    /// Nothing here takes so long; nobody waits until it is over.
    const LONG: u64 = 600 * SECOND;

    /// SMs that no device of a test has, and other ones for each process that tests: the real ones may be in use.
    fn number(sm: u32) -> u32 {
        const FIRST: u32 = 200;
        const PROCESSES: u32 = 160;
        const EACH: u32 = 5;
        FIRST + std::process::id() % PROCESSES * EACH + sm
    }

    fn lane(sm: u32) -> Lane {
        Lane::of(0, vec![number(sm)])
    }

    #[test]
    fn an_sm_runs_one_block_after_the_other() {
        let first = lane(0).occupy(LONG);
        let second = lane(0).occupy(LONG);
        assert_eq!(second - first, LONG);
        assert!(lane(1).occupy(SECOND / 100) < second, "another SM does not wait for it");
    }

    #[test]
    fn a_lane_takes_the_sm_that_is_free_first() {
        let both = Lane::of(0, vec![number(2), number(3)]);
        let (first, second) = (both.occupy(LONG), both.occupy(LONG));
        assert!(second < first + LONG, "the other SM was free");
        assert!(both.free_at() > now());
    }

    #[test]
    fn a_killed_process_leaves_nothing_busy() {
        let mut ends = [0; 2];
        // SAFETY: a place for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        // SAFETY: both just made, and owned by nobody else.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let lane = lane(4);
        // The shared memory is mapped before the fork: a child forked while another thread maps it would wait for ever.
        lane.free_at();
        // SAFETY: the child calls nothing that another thread of the test may hold a lock of.
        let child = unsafe { libc::fork() };
        if child == 0 {
            lane.occupy(3600 * SECOND);
            drop(write);
            loop {
                // SAFETY: takes nothing; waits for the parent to end it.
                unsafe { libc::pause() };
            }
        }
        drop(write);
        let mut nothing = Vec::new();
        std::fs::File::from(read).read_to_end(&mut nothing).expect("the child closes its end");
        assert!(lane.free_at() > now() + 1000 * SECOND, "busy for the others while it lives");
        // SAFETY: the child just made.
        unsafe { libc::kill(child, libc::SIGKILL) };
        // SAFETY: as above; takes no status.
        assert_eq!(unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) }, child);
        assert!(lane.free_at() <= now(), "free as soon as it is gone");
    }
}
