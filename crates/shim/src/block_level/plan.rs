//! What was measured of a kernel's versions in one shape, and which one is launched next.
//!
//! What a version takes is kept as a kernel of its own: its identity follows from the original's and the version's number.
//! So the daemon keeps it on disk, and a program that is started again need not try everything anew.

use super::loaded::Launchable;
use super::report;
use super::turnaround_ns;
use super::versions::Versions;
use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::handles::Handles;
use crate::kernel::{self, Profile, Shape};
use crate::lane::FULL;
use crate::module::mixed;
use crate::tenant::membership;
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use detshare_board::clock;
use detshare_cuda::types::CUfunction;
use detshare_policy::block_level::{
    Because, COUNT, Extent, Measured, ORIGINAL, VERSIONS, Version, choose, turnaround_ns as until_it_gives_way,
};
use std::sync::{Mutex, PoisonError};

static PLANS: Handles<Plan> = Handles::new();

/// Kernels and shapes that have a plan; others run as they are.
const MOST: u64 = 8_192;
static MADE: AtomicU64 = AtomicU64::new(0);
/// One launch in so many is measured, once a version is chosen; and people are told of so many.
const RARELY: u32 = 32;

/// One kernel in one shape.
#[derive(Default)]
pub(super) struct Plan {
    identity: AtomicU64,
    blocks: AtomicU64,
    sms: AtomicU32,
    /// Blocks of either version that an SM holds.
    sliced: AtomicU32,
    preemptible: AtomicU32,
    took: [AtomicU64; COUNT],
    times: [AtomicU32; COUNT],
    gave_way: [AtomicU64; COUNT],
    gave_way_at: [AtomicU64; COUNT],
    launches: AtomicU32,
    preempted: AtomicU64,
    /// Versions of which something was measured since the daemon was told, as bits.
    changed: AtomicU32,
    name: Mutex<String>,
}

/// What is to be done at a launch.
pub(super) struct Next {
    pub(super) number: usize,
    pub(super) version: Version,
    /// Blocks of one launch of it.
    pub(super) at_once: u64,
    /// Whether it is to be measured.
    pub(super) is_measured: bool,
    /// What all of it takes, and how long until it gives way; 0 is unknown.
    pub(super) takes_ns: u64,
    pub(super) turnaround_ns: u64,
}

/// The plan of a kernel in a shape; None if there are too many.
pub(super) fn of(
    shape: &Shape,
    profile: &Profile,
    versions: &Versions,
    coroutine: &Coroutine,
) -> Option<&'static Plan> {
    // A place for each shape; never 0, which is none.
    let handle = usize::try_from(profile.identity() | 1).unwrap_or(1);
    if let Some(plan) = PLANS.find(handle) {
        return Some(plan);
    }
    if MADE.fetch_add(1, Ordering::Relaxed) >= MOST {
        return None;
    }
    Some(PLANS.insert(handle, |plan| plan.begin(shape, profile, versions, coroutine)))
}

/// All of them.
pub(super) fn for_each(tell: impl FnMut(&'static Plan)) {
    PLANS.for_each(tell);
}

impl Plan {
    fn begin(&self, shape: &Shape, profile: &Profile, versions: &Versions, coroutine: &Coroutine) {
        let fits = |version: Option<Launchable>| version.map_or(0, |version| resident(version.function, shape));
        self.identity.store(profile.identity(), Ordering::Relaxed);
        self.blocks.store(shape.blocks, Ordering::Relaxed);
        self.sms.store(coroutine.lanes[FULL].width(), Ordering::Relaxed);
        self.sliced.store(fits(versions.sliced(shape)), Ordering::Relaxed);
        self.preemptible.store(fits(versions.preemptible(shape)), Ordering::Relaxed);
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = profile.name();
        for number in 0..COUNT {
            let before = if number == ORIGINAL { Measured::default() } else { self.remembered(number, coroutine) };
            self.set(number, before);
        }
        report::changed();
    }

    /// What is known of a version from an earlier run.
    fn remembered(&self, number: usize, coroutine: &Coroutine) -> Measured {
        let width = coroutine.lanes[FULL].width();
        let known = |identity: u64| {
            let note = membership()?.daemon.kernel(identity)?;
            note.widths.into_iter().find(|(at, ..)| *at == width).map(|(_, ns, times)| (ns, times))
        };
        let (took_ns, times) = known(self.identity_of(number, Kept::Took)).unwrap_or((0, 0));
        let gave_way_ns = known(self.identity_of(number, Kept::GaveWay)).map_or(0, |(ns, _)| ns);
        Measured { took_ns, times, gave_way_ns, gave_way_at_ns: clock::now() }
    }

    fn identity_of(&self, number: usize, kept: Kept) -> u64 {
        mixed(mixed(self.identity.load(Ordering::Relaxed), 1 + VERSIONS[number].identity()), kept as u64).max(1)
    }

    fn set(&self, number: usize, measured: Measured) {
        self.took[number].store(measured.took_ns, Ordering::Relaxed);
        self.times[number].store(measured.times, Ordering::Relaxed);
        self.gave_way[number].store(measured.gave_way_ns, Ordering::Relaxed);
        self.gave_way_at[number].store(measured.gave_way_at_ns, Ordering::Relaxed);
    }

    fn get(&self, number: usize) -> Measured {
        Measured {
            took_ns: self.took[number].load(Ordering::Relaxed),
            times: self.times[number].load(Ordering::Relaxed),
            gave_way_ns: self.gave_way[number].load(Ordering::Relaxed),
            gave_way_at_ns: self.gave_way_at[number].load(Ordering::Relaxed),
        }
    }

    /// What is known of a version now. By a clock that has gone back, what it was late by is forgotten from now on, and not when that
    /// clock has caught up.
    fn as_of(&self, number: usize, now: u64) -> Measured {
        if self.gave_way_at[number].load(Ordering::Relaxed) > now {
            self.gave_way_at[number].store(now, Ordering::Relaxed);
        }
        self.get(number)
    }

    pub(super) fn extent(&self) -> Extent {
        Extent {
            blocks: self.blocks.load(Ordering::Relaxed),
            sms: self.sms.load(Ordering::Relaxed),
            sliced: self.sliced.load(Ordering::Relaxed),
            preemptible: self.preemptible.load(Ordering::Relaxed),
        }
    }

    /// What the next launch is to be. The original is measured as all kernels are.
    pub(super) fn next(&self, profile: &Profile) -> Next {
        self.note_original(profile);
        let (extent, limit, now) = (self.extent(), turnaround_ns(), clock::now());
        let measured = core::array::from_fn(|number| self.as_of(number, now));
        let (number, because) = choose(&extent, &measured, limit, now);
        let count = self.launches.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(RARELY) {
            report::changed();
        }
        let version = VERSIONS[number];
        // Of one that was never measured nothing better is known than that it takes no less than the original.
        let at_least =
            Measured { took_ns: measured[number].took_ns.max(measured[ORIGINAL].took_ns), ..measured[number] };
        Next {
            number,
            version,
            at_once: extent.at_once(version),
            is_measured: matches!(because, Because::Trying | Because::Unmeasured)
                || (number != ORIGINAL && count.is_multiple_of(RARELY)),
            takes_ns: at_least.took_ns,
            turnaround_ns: until_it_gives_way(&extent, version, &at_least, now),
        }
    }

    fn note_original(&self, profile: &Profile) {
        let took = profile.on(FULL).map_or(0, |took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.took[ORIGINAL].store(took, Ordering::Relaxed);
        self.times[ORIGINAL].store(profile.measured_on(FULL), Ordering::Relaxed);
    }

    /// A version took so long, undisturbed. For the thread that launched it.
    pub(super) fn note(&self, number: usize, took: Duration) {
        let mut measured = self.get(number);
        measured.note(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.set(number, measured);
        self.changed.fetch_or(1 << number, Ordering::Relaxed);
        report::changed();
    }

    /// The driver has refused such a version: it is not launched again.
    pub(super) fn refused(&self, number: usize) {
        match VERSIONS[number] {
            Version::Original => {}
            Version::Slices { .. } => self.sliced.store(0, Ordering::Relaxed),
            Version::Preemptible { .. } => self.preemptible.store(0, Ordering::Relaxed),
        }
        report::changed();
    }

    /// It gave way so late.
    pub(super) fn note_giving_way(&self, number: usize, ns: u64) {
        let mut measured = self.get(number);
        measured.note_giving_way(ns, clock::now());
        self.set(number, measured);
        self.preempted.fetch_add(1, Ordering::Relaxed);
        self.changed.fetch_or(1 << number, Ordering::Relaxed);
        report::changed();
    }

    /// Hands what has changed to the daemon, which keeps it.
    pub(super) fn publish(&self) {
        let changed = self.changed.swap(0, Ordering::Relaxed);
        for number in (0..COUNT).filter(|number| changed >> number & 1 != 0) {
            let Measured { took_ns, times, gave_way_ns, .. } = self.get(number);
            let name = |what: &str| format!("{} {:?} {what}", self.name(), VERSIONS[number]);
            kernel::publish(self.identity_of(number, Kept::Took), &name("takes"), FULL, took_ns, times);
            if gave_way_ns != 0 {
                kernel::publish(self.identity_of(number, Kept::GaveWay), &name("gives way"), FULL, gave_way_ns, 1);
            }
        }
    }

    pub(super) fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn launches(&self) -> u32 {
        self.launches.load(Ordering::Relaxed)
    }

    pub(super) fn preempted(&self) -> u64 {
        self.preempted.load(Ordering::Relaxed)
    }

    /// What is chosen and why, and what was measured of each version.
    pub(super) fn judged(&self) -> (usize, Because, [Measured; COUNT]) {
        let measured = core::array::from_fn(|number| self.get(number));
        let (number, because) = choose(&self.extent(), &measured, turnaround_ns().max(1), clock::now());
        (number, because, measured)
    }
}

/// What is kept of a version.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Kept {
    Took = 1,
    GaveWay = 2,
}

/// Blocks of it that an SM holds at once.
fn resident(function: CUfunction, shape: &Shape) -> u32 {
    let mut blocks: c_int = 0;
    let threads = c_int::try_from(shape.threads).unwrap_or(c_int::MAX);
    let asked =
        cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, function, threads, shape.shared as usize));
    if is_ok(asked) { super::natural(blocks) } else { 0 }
}
