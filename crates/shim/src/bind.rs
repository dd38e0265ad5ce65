//! Where a call goes that takes a stream: what the exported entries ask before they call the driver.

use crate::background::{self, Task};
use crate::block_level::{self, Arguments, Launched, Request};
use crate::call::is_ok;
use crate::coroutine::{self, Coroutine, STREAMS, active};
use crate::gate::Passed;
use crate::hot::HOT;
use crate::kernel::{self, Shape};
use crate::lane::FULL;
use crate::stream::{Kind, Logical, Ring, State};
use crate::watchdog::Subject;
use crate::{gate, steps, watchdog};
use core::cell::RefCell;
use core::sync::atomic::Ordering;
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{CUfunction, CUgraphExec, CUresult, CUstream, CUstreamCaptureStatus};
use std::sync::{Mutex, PoisonError};

/// A stream that stays where it is until this is dropped.
pub(crate) struct Bound {
    logical: Option<&'static Logical>,
    handle: CUstream,
}

impl Bound {
    /// What to give to the driver.
    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }

    fn none(stream: CUstream) -> Self {
        Self { logical: None, handle: stream }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(logical) = self.logical {
            logical.end();
        }
    }
}

/// The logical stream that a handle stands for; None for those that we do not look after.
pub(crate) fn find(stream: CUstream, default: DefaultStream) -> Option<&'static Logical> {
    match (stream.0.addr(), default) {
        (0, DefaultStream::Legacy) | (1, _) => coroutine::current().map(|coroutine| &coroutine.legacy),
        (0, DefaultStream::PerThread) | (2, _) => coroutine::current().and_then(per_thread),
        (handle, _) => STREAMS.find(handle),
    }
}

/// The stream for work that may be put in wherever the stream is.
pub(crate) fn follow(stream: CUstream, default: DefaultStream) -> Bound {
    enter(stream, default, capturing(), steps::continued)
}

/// The stream for work that is put in at home.
pub(crate) fn home(stream: CUstream, default: DefaultStream) -> Bound {
    enter(stream, default, true, steps::continued)
}

/// The stream for a kernel that is put in at home, whatever the gate would say: it comes by a call of which nobody knows what it
/// launches.
pub(crate) fn launch_at_home(stream: CUstream, default: DefaultStream) -> Bound {
    enter(stream, default, true, steps::launched)
}

fn enter(
    stream: CUstream,
    default: DefaultStream,
    go_home: bool,
    count: impl FnOnce(&'static Logical, &mut State),
) -> Bound {
    if !active() {
        return Bound::none(stream);
    }
    let Some(logical) = find(stream, default) else { return Bound::none(stream) };
    let Some(coroutine) = logical.coroutine() else { return Bound::none(stream) };
    let mut state = logical.begin();
    if go_home {
        state = logical.until_it_can_move(state);
        state.go_home(coroutine);
    } else if logical.kind() == Kind::PerThread && steps::is_under_way() {
        // At home other threads could not ask it.
        let lane = state.lane();
        logical.go(&mut state, coroutine, lane);
    }
    if !capturing() {
        count(logical, &mut state);
    }
    state.pins += 1;
    // The handle as the program gave it says as much, and the driver's codes are for that one.
    let handle = if state.is_home() { stream } else { state.handle() };
    Bound { logical: Some(logical), handle }
}

/// Asks a stream, or waits for it, wherever it is: nothing is put into it. For the legacy stream that takes in the
/// blocking streams, as the driver has it.
pub(crate) fn look(stream: CUstream, default: DefaultStream, call: impl Fn(CUstream) -> CUresult) -> CUresult {
    let Some(logical) = find(stream, default) else { return call(stream) };
    if logical.kind() != Kind::Legacy {
        return call(logical.away_on().unwrap_or(stream));
    }
    let blocking = logical.coroutine().into_iter().flat_map(Coroutine::blocking_streams);
    let away: Vec<CUstream> = blocking.chain([logical]).filter_map(Logical::away_on).collect();
    let not_done = away.into_iter().map(&call).find(|code| !is_ok(*code));
    not_done.unwrap_or_else(|| call(stream))
}

/// Before a call that waits for everything in its context.
pub(crate) fn everything() {
    if active()
        && let Some(coroutine) = coroutine::current()
    {
        coroutine.wait_for_lanes();
    }
}

/// Puts a launch in: on the lane that is chosen for it, if that can hold it, or on all SMs. With its arguments it may be
/// launched in parts.
pub(crate) fn launch(
    stream: CUstream,
    default: DefaultStream,
    function: CUfunction,
    shape: &Shape,
    arguments: Option<Arguments>,
    call: impl FnOnce(CUstream) -> CUresult,
) -> CUresult {
    let Some(logical) = find(stream, default) else { return call(stream) };
    let Some(coroutine) = logical.coroutine() else { return call(stream) };
    let profile = kernel::profile(function, shape, coroutine);
    let mut has_passed = capturing();
    if HOT.in_parts.load(Ordering::Relaxed)
        && !has_passed
        && let Some(arguments) = arguments
    {
        match block_level::launch(&Request { coroutine, logical, profile, function, shape, arguments }) {
            Launched::InParts(code) => return code,
            Launched::Original { measured } => has_passed = measured,
        }
    }
    let passed = if has_passed { Passed::UNDECIDED } else { gate::pass(coroutine, logical, profile) };
    let mut state = logical.begin();
    if capturing() {
        state = logical.until_it_can_move(state);
        state.go_home(coroutine);
        return call(stream);
    }
    let lane = if profile.fits(function, shape, coroutine, passed.lane) { passed.lane } else { FULL };
    logical.go(&mut state, coroutine, lane);
    state.note_launch(coroutine);
    steps::launched(logical, &mut state);
    let at = if state.is_home() { stream } else { state.handle() };
    let lane = state.lane();
    let teaches = profile.is_to_be_timed(lane);
    let code = if teaches || passed.is_asked() {
        let subject = Subject { coroutine, function: Some(function), profile, decision: passed.decision, teaches };
        watchdog::launch(subject, state.handle(), || (call(at), lane)).0
    } else {
        call(at)
    };
    gate::launched(coroutine, &mut state, profile, lane);
    code
}

/// Puts a graph in where the stream is: its kernels run on the SMs that they are bound to. The body gets the lane
/// that is chosen and where to launch, and gives the lane that it was. Where nothing can be chosen, the handle to launch
/// into comes back.
pub(crate) fn launch_graph(
    stream: CUstream,
    default: DefaultStream,
    executable: CUgraphExec,
    body: impl FnOnce(&'static Logical, &'static Coroutine, usize, CUstream) -> (CUresult, usize),
) -> Result<CUresult, CUstream> {
    let logical = find(stream, default).ok_or(stream)?;
    let coroutine = logical.coroutine().ok_or(stream)?;
    let profile = kernel::graph_profile(executable);
    let passed = if capturing() { Passed::UNDECIDED } else { gate::pass(coroutine, logical, profile) };
    let mut lane = passed.lane;
    let mut state = logical.begin();
    if capturing() {
        state = logical.until_it_can_move(state);
        state.go_home(coroutine);
        lane = FULL;
    } else {
        steps::launched(logical, &mut state);
    }
    let at = if state.is_home() { stream } else { state.handle() };
    if capturing() {
        return Ok(body(logical, coroutine, lane, at).0);
    }
    let call = || body(logical, coroutine, lane, at);
    let teaches = profile.is_to_be_timed(lane);
    let (code, lane) = if teaches || passed.is_asked() {
        let subject = Subject { coroutine, function: None, profile, decision: passed.decision, teaches };
        watchdog::launch(subject, state.handle(), call)
    } else {
        call()
    };
    gate::launched(coroutine, &mut state, profile, lane);
    Ok(code)
}

thread_local! {
    /// The calling thread's own default streams, one for each context.
    static OWN: RefCell<PerThread> = const { RefCell::new(PerThread(Vec::new())) };
}

struct PerThread(Vec<&'static Logical>);

impl Drop for PerThread {
    /// The thread ends, and with it its handle. What its streams still do on lanes goes on, and the legacy stream
    /// has to wait for it.
    fn drop(&mut self) {
        for logical in self.0.iter().filter(|_| active()) {
            if let Some(coroutine) = logical.coroutine() {
                background::order(Task::Orphan { coroutine, logical, era: coroutine.era() });
            }
        }
    }
}

/// A stream of a thread that has ended has nothing left to do.
pub(crate) fn bury(logical: &'static Logical) {
    logical.retire();
    free_per_thread().push(logical);
}

/// Logical streams of threads that have ended.
fn free_per_thread() -> std::sync::MutexGuard<'static, Vec<&'static Logical>> {
    static FREE: Mutex<Vec<&'static Logical>> = Mutex::new(Vec::new());
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether it is the calling thread's own default stream.
pub(crate) fn is_own(logical: &Logical) -> bool {
    let is_there = |own: &RefCell<PerThread>| {
        own.try_borrow().is_ok_and(|own| own.0.iter().any(|other| core::ptr::eq(*other, logical)))
    };
    OWN.try_with(is_there).unwrap_or(false)
}

fn per_thread(coroutine: &'static Coroutine) -> Option<&'static Logical> {
    let find = |own: &RefCell<PerThread>| {
        let mut own = own.try_borrow_mut().ok()?;
        let known = own.0.iter().find(|logical| logical.belongs_to(coroutine));
        if let Some(logical) = known {
            return Some(*logical);
        }
        let logical = free_per_thread().pop().unwrap_or_else(|| Box::leak(Box::default()));
        logical.prepare(coroutine, Kind::PerThread, Kind::PER_THREAD_HANDLE, 0, Ring::none());
        coroutine.streams().push(logical);
        own.0.retain(|other| !other.belongs_to(coroutine));
        own.0.push(logical);
        Some(logical)
    };
    OWN.try_with(find).ok().flatten()
}

/// Streams that a capture began in. As long as there is one, no stream moves: a stream that a captured event is
/// waited for in becomes part of the capture, and must be at home then.
static CAPTURES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

pub(crate) fn capturing() -> bool {
    HOT.captures.load(Ordering::Acquire) != 0
}

fn with_captures(change: impl FnOnce(&mut Vec<usize>)) {
    let mut captures = CAPTURES.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut captures);
    HOT.captures.store(captures.len(), Ordering::Release);
}

/// A capture is about to begin in the stream.
pub(crate) fn capture_begins(stream: CUstream) {
    with_captures(|captures| captures.push(stream.0.addr()));
}

/// A capture may have ended in the stream, or not have begun.
pub(crate) fn capture_may_have_ended(stream: CUstream) {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let asked = cu!(cuStreamIsCapturing(stream, &raw mut status));
    if !is_ok(asked) || status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
        capture_has_ended(stream);
    }
}

/// There is no capture in the stream, or no such stream, any more.
pub(crate) fn capture_has_ended(stream: CUstream) {
    with_captures(|captures| {
        // One at a time: the per-thread handle is the same in every thread.
        if let Some(position) = captures.iter().position(|other| *other == stream.0.addr()) {
            captures.swap_remove(position);
        }
    });
}
