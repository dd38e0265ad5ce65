//! Watches a few launches: a kernel that takes ten times as long on a lane as it should is reported, and runs on all
//! SMs from then on.
//!
//! How long it should take is known from launches on the whole GPU that were timed: as long as there, times the share
//! of the SMs that the lane lacks. The first launches of a kernel are timed, and some of the later ones; the
//! background thread looks at the events from time to time. A kernel whose blocks wait for each other, without saying
//! so by a cooperative launch, would be found that way: on a lane that cannot hold all its blocks it comes to an end
//! late, or never.

use crate::call::{elapsed, is_ok};
use crate::coroutine::Coroutine;
use crate::kernel::{self, Profile};
use crate::lane::{self, FULL};
use crate::relaxed::Relaxed;
use crate::tenant::membership;
use crate::timing::{Made, Measured, kernel_took};
use crate::{log, quarantine};
use core::num::NonZeroU64;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use detshare_board::clock;
use detshare_cuda::types::{CUevent, CUevent_flags, CUfunction, CUresult, CUstream, CUstream_flags};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// How many times longer than it should is too long.
const TOO_LONG: u32 = 10;
/// Shorter ones are not judged: a kernel can wait that long for others on the same SMs.
const NOT_JUDGED: Duration = Duration::from_millis(20);
/// Launches that are watched at once.
const PAIRS: usize = 64;
/// So many of them in a row say what is between two events with nothing between them; if not that soon, it is taken for
/// nothing.
const ROW: usize = 16;
const SOON: Duration = Duration::from_millis(50);

/// Kernels that were reported.
pub(crate) static REPORTED: AtomicU64 = AtomicU64::new(0);

/// Two events round a launch.
struct Pair {
    start: CUevent,
    end: CUevent,
}

/// What is to be watched.
pub(crate) struct Subject {
    pub(crate) coroutine: &'static Coroutine,
    /// None where it is a graph.
    pub(crate) function: Option<CUfunction>,
    pub(crate) profile: &'static Profile,
    /// The decision that it was launched by, where that is written down.
    pub(crate) decision: Option<NonZeroU64>,
    /// Whether anything is learned from it: not where it is timed only because somebody asks, who is to see what is decided and
    /// not to change it.
    pub(crate) teaches: bool,
}

/// A launch that is watched.
struct Watch {
    pair: Pair,
    subject: Subject,
    lane: usize,
    made: Made,
    /// When it was first seen to be running.
    running: Option<Instant>,
    reported: bool,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Send for Watch {}

static FREE: Mutex<Vec<Pair>> = Mutex::new(Vec::new());
static WATCHES: Mutex<Vec<Watch>> = Mutex::new(Vec::new());
static WATCHED: AtomicUsize = AtomicUsize::new(0);
/// What is between two events with nothing between them.
static EMPTY_NS: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicBool = AtomicBool::new(false);

fn free() -> MutexGuard<'static, Vec<Pair>> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watches() -> MutexGuard<'static, Vec<Watch>> {
    WATCHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the events. For the background thread.
pub(crate) fn make() {
    if MADE.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut pairs = Vec::with_capacity(PAIRS);
    for _ in 0..PAIRS {
        let mut pair = Pair { start: CUevent(null_mut()), end: CUevent(null_mut()) };
        let flags = CUevent_flags::CU_EVENT_DEFAULT.0;
        if is_ok(cu!(cuEventCreate(&raw mut pair.start, flags))) && is_ok(cu!(cuEventCreate(&raw mut pair.end, flags)))
        {
            pairs.push(pair);
        }
    }
    EMPTY_NS.store(empty(&pairs).unwrap_or(0), Ordering::Relaxed);
    free().append(&mut pairs);
}

/// What is between two events with nothing between them, as far as the GPU says so soon.
fn empty(pairs: &[Pair]) -> Option<u64> {
    let mut stream = CUstream(null_mut());
    if !is_ok(cu!(cuStreamCreate(&raw mut stream, CUstream_flags::CU_STREAM_NON_BLOCKING.0))) {
        return None;
    }
    let row = &pairs[..pairs.len().min(ROW)];
    for pair in row {
        cu!(cuEventRecord(pair.start, stream));
        cu!(cuEventRecord(pair.end, stream));
    }
    let asked = Instant::now();
    let is_over = || cu!(cuStreamQuery(stream)) != CUresult::CUDA_ERROR_NOT_READY;
    while !is_over() && asked.elapsed() < SOON {
        std::thread::yield_now();
    }
    // The first ones may have waited for the host.
    let shortest = row.iter().filter_map(between).min();
    cu!(cuStreamDestroy_v2(stream));
    shortest
}

/// What is between the events of a pair, in nanoseconds, where both have happened.
fn between(pair: &Pair) -> Option<u64> {
    elapsed(pair.start, pair.end).map(|took| u64::try_from(took.as_nanos()).unwrap_or(u64::MAX))
}

/// The context is going: its events go with it.
pub(crate) fn forget(coroutine: &'static Coroutine) {
    watches().retain(|watch| !core::ptr::eq(watch.subject.coroutine, coroutine));
    free().clear();
    WATCHED.store(watches().len(), Ordering::Release);
    MADE.store(false, Ordering::Release);
}

/// Whether there is anything to look at.
pub(crate) fn is_watching() -> bool {
    WATCHED.load(Ordering::Acquire) != 0
}

/// Puts a launch in with events round it, if there are any. The launch gives its code and the lane that it went to.
pub(crate) fn launch(subject: Subject, at: CUstream, call: impl FnOnce() -> (CUresult, usize)) -> (CUresult, usize) {
    // Not worth waiting for: another launch will be timed.
    let Some(pair) = FREE.try_lock().ok().and_then(|mut free| free.pop()) else { return call() };
    let relaxed = Relaxed::new();
    let was_idle = is_ok(cu!(cuStreamQuery(at)));
    drop(relaxed);
    let started = is_ok(cu!(cuEventRecord(pair.start, at)));
    let begun = clock::now();
    let (code, lane) = call();
    let ns = clock::now().saturating_sub(begun);
    let relaxed = Relaxed::new();
    let has_begun = started && is_ok(cu!(cuEventQuery(pair.start)));
    drop(relaxed);
    if started && is_ok(code) && is_ok(cu!(cuEventRecord(pair.end, at))) {
        let made = Made { was_idle, has_begun, ns };
        let mut watches = watches();
        watches.push(Watch { pair, subject, lane, made, running: None, reported: false });
        WATCHED.store(watches.len(), Ordering::Release);
        drop(watches);
        crate::background::wake();
    } else {
        free().push(pair);
    }
    (code, lane)
}

/// Looks at all of them. For the background thread.
pub(crate) fn look() {
    let mut watches = watches();
    watches.retain_mut(|watch| !watch.is_over());
    WATCHED.store(watches.len(), Ordering::Release);
}

impl Watch {
    fn is_over(&mut self) -> bool {
        if cu!(cuEventQuery(self.pair.end)) == CUresult::CUDA_ERROR_NOT_READY {
            self.judge_running();
            return false;
        }
        if let Some(between_ns) = between(&self.pair) {
            let usual_ns = self.subject.profile.made_in(self.made.ns);
            let empty_ns = EMPTY_NS.load(Ordering::Relaxed);
            let Measured { ns, is_sure } = kernel_took(between_ns, empty_ns, usual_ns, self.made);
            let took = Duration::from_nanos(ns);
            if self.lane != FULL {
                self.judge(took);
            }
            let Subject { profile, decision, teaches, .. } = &self.subject;
            if *teaches {
                quarantine::judge(profile, self.lane, took);
                profile.note(self.lane, took, is_sure);
                profile.publish(self.lane);
            }
            if let (Some(decision), Some(membership)) = (decision, membership()) {
                membership.page.note_measured(*decision, ns);
            }
        }
        free().push(Pair { start: self.pair.start, end: self.pair.end });
        true
    }

    fn judge_running(&mut self) {
        if self.running.is_none() && cu!(cuEventQuery(self.pair.start)) != CUresult::CUDA_ERROR_NOT_READY {
            self.running = Some(Instant::now());
        }
        if let Some(running) = self.running {
            self.judge(running.elapsed());
        }
    }

    fn judge(&mut self, took: Duration) {
        let Subject { coroutine, function, profile, teaches, .. } = &self.subject;
        let (Some(on_full), Some(function)) = (profile.on(FULL), *function) else { return };
        let (all, width) = (coroutine.lanes[FULL].width(), coroutine.lanes[self.lane].width().max(1));
        let expected = on_full * all / width;
        if self.reported || !teaches || took < NOT_JUDGED || took < expected * TOO_LONG {
            return;
        }
        self.reported = true;
        REPORTED.fetch_add(1, Ordering::Relaxed);
        kernel::pin(function);
        log::line(format_args!(
            "{} took {took:?} on {} where {expected:?} was expected: it runs on all SMs from now on",
            kernel::name(function),
            lane::name(self.lane, &coroutine.lanes[self.lane]),
        ));
    }
}
