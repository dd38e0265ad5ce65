//! Capture: what streams are given to do becomes a graph.
//!
//! A stream that is being captured has a frontier: the nodes that its next node comes after. An event that is
//! recorded there remembers the frontier; a stream that waits for it joins the capture with it.

use super::{Content, Dependency, Graph, PLAIN};
use crate::boundary::Outcome;
use crate::event::Event;
use crate::operation::Operation;
use crate::stream::{Kind, Stream};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use detshare_cuda::types::{CUgraphEdgeData, CUresult, CUstreamCaptureMode as Mode};
use std::cell::Cell;
use std::sync::{Arc, Mutex, Weak};
use std::thread::ThreadId;

/// One capture, from its begin to its end.
pub(crate) struct Capture {
    /// Never used twice.
    pub(crate) id: u64,
    pub(crate) graph: Arc<Graph>,
    mode: Mode,
    thread: ThreadId,
    origin: usize,
    invalid: AtomicBool,
    over: AtomicBool,
    streams: Mutex<Vec<Weak<Stream>>>,
    /// The frontiers of streams that were destroyed meanwhile.
    left: Mutex<Vec<Vec<Dependency>>>,
}

/// A stream's part in a capture.
#[derive(Clone)]
pub(crate) struct Capturing {
    pub(crate) capture: Arc<Capture>,
    pub(crate) frontier: Vec<Dependency>,
}

/// Where in a capture an event was recorded.
#[derive(Clone)]
pub(crate) struct Point(Capturing);

impl Point {
    /// Why nobody may look at it: the capture is void from then on. One that is void already has nothing to look at.
    pub(crate) fn forbid(&self) -> CUresult {
        let capture = &self.0.capture;
        let was_void = capture.invalid.swap(true, Ordering::AcqRel) && !capture.over.load(Ordering::Acquire);
        if was_void { CUresult::CUDA_ERROR_INVALID_VALUE } else { CUresult::CUDA_ERROR_CAPTURED_EVENT }
    }
}

impl Capture {
    pub(crate) fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }

    fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }
}

/// The captures that there are, other than relaxed ones.
static STRICT_CAPTURES: Mutex<Vec<Weak<Capture>>> = Mutex::new(Vec::new());

thread_local! {
    /// What the calling thread may do while there are captures.
    static THREAD_MODE: Cell<u32> = const { Cell::new(0) };
}

/// Swaps the calling thread's mode.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    Mode(THREAD_MODE.replace(mode.0))
}

/// Refuses a call that could not be captured and would not wait for what is being captured: this thread's own
/// captures, and those of others in global mode, as far as the thread's mode lets them matter.
pub(crate) fn forbid_unsafe_call() -> Outcome {
    let mode = Mode(THREAD_MODE.get());
    if mode == Mode::CU_STREAM_CAPTURE_MODE_RELAXED {
        return Ok(());
    }
    let captures = STRICT_CAPTURES.lock().expect("no panic while it is held");
    let mut outcome = Ok(());
    for capture in captures.iter().filter_map(Weak::upgrade) {
        let own = capture.thread == std::thread::current().id();
        let global = mode == Mode::CU_STREAM_CAPTURE_MODE_GLOBAL && capture.mode == Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        if own || global {
            capture.invalidate();
            outcome = Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
    }
    outcome
}

pub(crate) fn begin(stream: &Arc<Stream>, mode: Mode, graph: Option<(Arc<Graph>, Vec<Dependency>)>) -> Outcome {
    static NEXT_ID: AtomicU64 = AtomicU64::new(1);
    if stream.kind == Kind::Legacy {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let mut capturing = stream.capturing();
    if capturing.is_some() {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let (graph, frontier) = graph.unwrap_or_else(|| (Graph::create(), Vec::new()));
    let capture = Arc::new(Capture {
        id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
        graph,
        mode,
        thread: std::thread::current().id(),
        origin: stream.handle,
        invalid: AtomicBool::new(false),
        over: AtomicBool::new(false),
        streams: Mutex::new(vec![Arc::downgrade(stream)]),
        left: Mutex::default(),
    });
    if mode != Mode::CU_STREAM_CAPTURE_MODE_RELAXED {
        STRICT_CAPTURES.lock().expect("no panic while it is held").push(Arc::downgrade(&capture));
    }
    *capturing = Some(Capturing { capture, frontier });
    Ok(())
}

/// Ends the capture that the stream began; returns its graph. One that failed takes its graph along, whoever made it, and so does one
/// that another thread tries to end.
pub(crate) fn end(stream: &Arc<Stream>) -> Outcome<Arc<Graph>> {
    let Capturing { capture, frontier } = stream.capturing().clone().ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if capture.origin != stream.handle {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    }
    let is_elsewhere =
        capture.mode != Mode::CU_STREAM_CAPTURE_MODE_RELAXED && capture.thread != std::thread::current().id();
    STRICT_CAPTURES
        .lock()
        .expect("no panic while it is held")
        .retain(|other| other.upgrade().is_some_and(|other| other.id != capture.id));
    capture.over.store(true, Ordering::Release);
    let left = core::mem::take(&mut *capture.left.lock().expect("no panic while it is held"));
    let mut joined = left.iter().all(|left| capture.graph.state().reaches(&frontier, left));
    for other in capture.streams.lock().expect("no panic while it is held").iter().filter_map(Weak::upgrade) {
        if let Some(part) = other.capturing().take() {
            joined &= capture.graph.state().reaches(&frontier, &part.frontier);
        }
    }
    let failed = match (is_elsewhere, capture.is_invalid(), joined) {
        (true, _, _) => CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        (_, true, _) => CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        (_, _, false) => CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        _ => return Ok(Arc::clone(&capture.graph)),
    };
    // That of a node goes with the node.
    if !capture.graph.is_owned() {
        capture.graph.destroy();
    }
    Err(failed)
}

/// The stream is destroyed: what it has done must be joined all the same.
pub(crate) fn leave(stream: &Stream) {
    if let Some(Capturing { capture, frontier }) = stream.capturing().take() {
        capture.left.lock().expect("no panic while it is held").push(frontier);
    }
}

/// The stream's part in a capture that is still good; None if it is not captured.
fn part(stream: &Arc<Stream>) -> Outcome<Option<Capturing>> {
    let part = stream.capturing().clone();
    if let Some(part) = &part
        && part.capture.is_invalid()
    {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    if part.is_none() && stream.kind == Kind::Legacy {
        // Its implicit order would reach into a capture.
        for other in stream.context.living_streams() {
            if other.handle != stream.handle
                && other.kind == Kind::Blocking
                && let Some(part) = &*other.capturing()
            {
                part.capture.invalidate();
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
        }
    }
    Ok(part)
}

/// Adds the operation to the graph; false if the stream is not captured.
pub(crate) fn record(stream: &Arc<Stream>, operation: &Operation) -> Outcome<bool> {
    let Some(mut part) = part(stream)? else { return Ok(false) };
    if let Operation::Kernel(launch) = operation
        && launch.may_begin_early()
    {
        let state = part.capture.graph.state();
        for (node, data) in &mut part.frontier {
            let kernel = |content: Content| matches!(content, Content::Operation(Operation::Kernel(_)));
            if state.find(*node).is_some_and(|node| kernel(node.content())) {
                *data = BEGINS_EARLY;
            }
        }
    }
    add_behind(stream, part, Content::of(operation))?;
    Ok(true)
}

/// The edge to a kernel that may begin before the one before it is over.
const BEGINS_EARLY: CUgraphEdgeData = CUgraphEdgeData { from_port: 1, type_: 1, ..PLAIN };

/// Adds a node to the graph behind the stream's frontier; false if the stream is not captured.
pub(crate) fn add(stream: &Arc<Stream>, content: impl FnOnce() -> Content) -> Outcome<bool> {
    let Some(part) = part(stream)? else { return Ok(false) };
    add_behind(stream, part, content())?;
    Ok(true)
}

fn add_behind(stream: &Arc<Stream>, mut part: Capturing, content: Content) -> Outcome {
    let node = part.capture.graph.add(content, &part.frontier)?;
    part.frontier = vec![(node.handle, PLAIN)];
    *stream.capturing() = Some(part);
    Ok(())
}

pub(crate) fn record_event(stream: &Arc<Stream>, event: &Arc<Event>) -> Outcome<bool> {
    let Some(part) = part(stream)? else { return Ok(false) };
    *event.captured.lock().expect("no panic while it is held") = Some(Point(part));
    Ok(true)
}

pub(crate) fn wait_event(stream: &Arc<Stream>, event: &Arc<Event>) -> Outcome<bool> {
    let point = event.captured.lock().expect("no panic while it is held").clone();
    let own = part(stream)?;
    match (own, point) {
        (None, None) => Ok(false),
        (Some(own), None) => {
            own.capture.invalidate();
            Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        }
        (None, Some(Point(point))) => {
            if stream.kind == Kind::Legacy {
                point.capture.invalidate();
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
            }
            point.capture.streams.lock().expect("no panic while it is held").push(Arc::downgrade(stream));
            *stream.capturing() = Some(point);
            Ok(true)
        }
        (Some(mut own), Some(Point(point))) => {
            if own.capture.id != point.capture.id {
                own.capture.invalidate();
                point.capture.invalidate();
                return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
            }
            for (node, data) in point.frontier {
                if !own.frontier.iter().any(|(known, _)| *known == node) {
                    own.frontier.push((node, data));
                }
            }
            *stream.capturing() = Some(own);
            Ok(true)
        }
    }
}

/// Refuses a call that cannot be captured: the capture is void from then on.
pub(crate) fn forbid(stream: &Arc<Stream>) -> Outcome {
    if let Some(part) = part(stream)? {
        part.capture.invalidate();
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    Ok(())
}
