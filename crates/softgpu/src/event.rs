//! Events: a point in a stream.

mod shared;

pub(crate) use shared::SharedPoint;

use crate::boundary::Outcome;
use crate::context::Context;
use crate::engine::{self, Done, Work};
use crate::graph::capture;
use crate::handle::Table;
use crate::stream::Stream;
use detshare_cuda::types::{CUevent, CUresult};
use std::sync::{Arc, Mutex};

pub(crate) static EVENTS: Table<Event> = Table::new();

/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const DISABLE_TIMING: u32 = 2;

/// An event.
pub(crate) struct Event {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    pub(crate) flags: u32,
    /// The completion of what was in the stream when it was recorded; None before that.
    pub(crate) recorded: Mutex<Option<Arc<Done>>>,
    /// What other processes see of it, where they may.
    pub(crate) shared: Option<Arc<SharedPoint>>,
    /// Where in a capture it was recorded last.
    pub(crate) captured: Mutex<Option<capture::Point>>,
}

impl Event {
    /// The completion, where it was recorded.
    pub(crate) fn done(&self) -> Option<Arc<Done>> {
        match &self.shared {
            Some(shared) => shared.pending().map(|over| {
                let over: Box<dyn FnMut() -> bool + Send> = Box::new(over);
                engine::submit(Work::Until(over), &[], &self.context.fate)
            }),
            None => self.recorded.lock().expect("no panic while it is held").clone(),
        }
    }

    /// Whether it is over, which it also is before it is recorded.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.shared {
            Some(shared) => shared.is_complete(),
            None => self.done().is_none_or(|done| done.is_complete()),
        }
    }

    /// It is recorded with that completion.
    pub(crate) fn remember(&self, done: Arc<Done>) {
        if let Some(shared) = &self.shared {
            let tell = shared.begin();
            engine::submit(Work::Quick(Box::new(tell)), &[Arc::clone(&done)], &self.context.fate);
        }
        *self.recorded.lock().expect("no panic while it is held") = Some(done);
    }

    /// Refuses to look at an event that is part of a capture: the capture is void from then on.
    pub(crate) fn forbid_if_captured(&self) -> Outcome {
        match &*self.captured.lock().expect("no panic while it is held") {
            Some(point) => Err(point.forbid()),
            None => Ok(()),
        }
    }

    /// Records it in the stream.
    pub(crate) fn record(self: &Arc<Self>, stream: &Arc<Stream>) -> Outcome {
        if capture::record_event(stream, self)? {
            return Ok(());
        }
        stream.context.fate.check()?;
        // Who has waited for the stream may end its process: other processes must have been told by then.
        let work = self.shared.as_ref().map_or(Work::Nothing, |shared| Work::Quick(Box::new(shared.begin())));
        let done = stream.submit(work, &[]);
        *self.recorded.lock().expect("no panic while it is held") = Some(done);
        *self.captured.lock().expect("no panic while it is held") = None;
        Ok(())
    }

    /// Has the stream wait for it.
    pub(crate) fn wait_in(self: &Arc<Self>, stream: &Arc<Stream>) -> Outcome {
        if capture::wait_event(stream, self)? {
            return Ok(());
        }
        stream.context.fate.check()?;
        if let Some(done) = self.done() {
            stream.submit(Work::Nothing, &[done]);
        }
        Ok(())
    }
}

pub(crate) fn find(event: CUevent) -> Outcome<Arc<Event>> {
    EVENTS.get(event.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
}
