//! The thread that makes what launches need before they need it: lanes, streams, copies of graphs.
//!
//! It takes one task after the other. Whoever orders something goes on at once; only the end of a context waits,
//! until the thread has let go of it.

use crate::bind;
use crate::boundary::guarded;
use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::graph::Copies;
use crate::lane;
use crate::relaxed::Relaxed;
use crate::stream::Logical;
use crate::watchdog;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use detshare_cuda::types::{CUresult, CUstream};
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// One thing to do.
pub(crate) enum Task {
    /// Make the lanes.
    Build(&'static Coroutine),
    /// Make more streams.
    Refill { coroutine: &'static Coroutine, lane: usize, priority: c_int },
    /// Make more rings of events.
    Rings(&'static Coroutine),
    /// Give streams back to their lanes when they have nothing left to do.
    Rest { coroutine: &'static Coroutine, priority: c_int, streams: Vec<(usize, CUstream)> },
    /// Let go of a stream whose thread has ended when it has nothing left to do.
    Orphan { coroutine: &'static Coroutine, logical: &'static Logical, era: u64 },
    /// Make a graph's copy for a lane.
    Copy { coroutine: &'static Coroutine, copies: &'static Copies, handle: usize, lane: usize },
}

impl Task {
    fn coroutine(&self) -> &'static Coroutine {
        match self {
            Self::Build(coroutine)
            | Self::Refill { coroutine, .. }
            | Self::Rings(coroutine)
            | Self::Rest { coroutine, .. }
            | Self::Orphan { coroutine, .. }
            | Self::Copy { coroutine, .. } => coroutine,
        }
    }
}

struct Queue {
    tasks: VecDeque<Task>,
    /// Streams that still have work, looked at again from time to time.
    resting: Vec<Resting>,
    /// What the thread is working for.
    working_for: Option<&'static Coroutine>,
    /// Whether it is looking at what rests.
    looking: bool,
}

struct Resting {
    coroutine: &'static Coroutine,
    stream: CUstream,
    then: Then,
}

/// What becomes of a stream that has nothing left to do.
enum Then {
    GiveBack { lane: usize, priority: c_int },
    Bury(&'static Logical),
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Queue {}

static QUEUE: Mutex<Queue> =
    Mutex::new(Queue { tasks: VecDeque::new(), resting: Vec::new(), working_for: None, looking: false });
/// Something to do came, or something is done.
static CHANGED: Condvar = Condvar::new();
static STARTED: AtomicBool = AtomicBool::new(false);

fn queue() -> MutexGuard<'static, Queue> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has something done, in its time.
pub(crate) fn order(task: Task) {
    start();
    queue().tasks.push_back(task);
    CHANGED.notify_all();
}

/// There is something to watch.
pub(crate) fn wake() {
    // Where it is missed, the thread is at work and will look when it is done.
    CHANGED.notify_all();
}

/// Drops what is ordered for a context and waits until the thread no longer works for it.
pub(crate) fn forget(coroutine: &'static Coroutine) {
    let mut held = queue();
    held.tasks.retain(|task| !core::ptr::eq(task.coroutine(), coroutine));
    while held.looking || held.working_for.is_some_and(|other| core::ptr::eq(other, coroutine)) {
        held = CHANGED.wait(held).unwrap_or_else(PoisonError::into_inner);
    }
    held.resting.retain(|resting| !core::ptr::eq(resting.coroutine, coroutine));
}

fn start() {
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    // Where there can be no thread, there are no lanes, and everything runs on the whole GPU.
    thread("detshare", || guarded((), work));
}

/// Starts a thread of ours; says whether there is one.
pub(crate) fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> bool {
    // The program's signals are for the program's threads.
    let before = mask_signals(&all_signals());
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    mask_signals(&before);
    started.is_ok()
}

fn all_signals() -> libc::sigset_t {
    // SAFETY: a set of bits, which may be zero.
    let mut all: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: a set to be filled.
    unsafe { libc::sigfillset(&raw mut all) };
    all
}

/// Keeps these signals from the calling thread; returns those that were kept from it before.
fn mask_signals(signals: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: a set of bits, which may be zero.
    let mut before: libc::sigset_t = unsafe { core::mem::zeroed() };
    // SAFETY: two sets.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signals, &raw mut before) };
    before
}

fn work() {
    /// How often streams that rest and launches that are watched are looked at.
    const LOOK: Duration = Duration::from_millis(5);
    let mut held = queue();
    loop {
        if let Some(task) = held.tasks.pop_front() {
            let coroutine = task.coroutine();
            held.working_for = Some(coroutine);
            drop(held);
            let resting = guarded(Vec::new(), || perform(task));
            held = queue();
            held.resting.extend(resting);
            held.working_for = None;
            CHANGED.notify_all();
        } else if held.resting.is_empty() && !watchdog::is_watching() {
            held = CHANGED.wait(held).unwrap_or_else(PoisonError::into_inner);
        } else {
            held = CHANGED.wait_timeout(held, LOOK).unwrap_or_else(PoisonError::into_inner).0;
            let mut resting = core::mem::take(&mut held.resting);
            held.looking = true;
            drop(held);
            guarded((), || {
                resting.retain(|resting| !returned(resting));
                watchdog::look();
            });
            held = queue();
            held.resting.append(&mut resting);
            held.looking = false;
            CHANGED.notify_all();
        }
    }
}

/// Does it; returns streams that cannot be given back yet.
fn perform(task: Task) -> Vec<Resting> {
    let coroutine = task.coroutine();
    if coroutine.is_ending() || !is_ok(cu!(cuCtxSetCurrent(coroutine.context()))) {
        return Vec::new();
    }
    Relaxed::for_good();
    match task {
        Task::Build(_) => {
            coroutine.make_rings();
            watchdog::make();
            lane::build(coroutine, coroutine.device());
            coroutine.lanes_are_made();
        }
        Task::Refill { lane, priority, .. } => coroutine.lanes[lane].refill(priority),
        Task::Rings(_) => coroutine.make_rings(),
        Task::Rest { priority, streams, .. } => {
            let resting = |(lane, stream)| Resting { coroutine, stream, then: Then::GiveBack { lane, priority } };
            return streams.into_iter().map(resting).filter(|resting| !returned(resting)).collect();
        }
        Task::Orphan { logical, era, .. } if era == coroutine.era() => match logical.away_on() {
            None => bind::bury(logical),
            Some(stream) => {
                let resting = Resting { coroutine, stream, then: Then::Bury(logical) };
                return if returned(&resting) { Vec::new() } else { vec![resting] };
            }
        },
        Task::Orphan { .. } => {}
        Task::Copy { copies, handle, lane, .. } => copies.make(handle, coroutine, lane),
    }
    Vec::new()
}

/// Whether the stream had nothing left to do and was let go.
fn returned(resting: &Resting) -> bool {
    let idle = cu!(cuStreamQuery(resting.stream)) != CUresult::CUDA_ERROR_NOT_READY;
    if idle {
        match resting.then {
            Then::GiveBack { lane, priority } => resting.coroutine.lanes[lane].give_back(priority, resting.stream),
            Then::Bury(logical) => bind::bury(logical),
        }
    }
    idle
}
