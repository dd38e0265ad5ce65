//! Streams: work in order.

use crate::boundary::Outcome;
use crate::context::{self, Context};
use crate::engine::{self, Done, Work};
use crate::exports::{LEGACY, PER_THREAD};
use crate::graph::capture::{self, Capturing};
use crate::handle::{self, Table};
use crate::operation::Operation;
use core::sync::atomic::{AtomicU64, Ordering};
use detshare_cuda::types::{CUresult, CUstream};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) static STREAMS: Table<Stream> = Table::new();

/// How a stream orders itself against others of its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// After all work in blocking streams, and they after it.
    Legacy,
    /// Against the legacy stream.
    Blocking,
    /// Not at all.
    NonBlocking,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) handle: usize,
    pub(crate) context: Arc<Context>,
    pub(crate) kind: Kind,
    pub(crate) priority: i32,
    /// Never used twice.
    pub(crate) id: u64,
    tail: Mutex<Arc<Done>>,
    capturing: Mutex<Option<Capturing>>,
    /// Values of stream attributes, as bytes.
    pub(crate) attributes: Mutex<HashMap<u32, [u8; 64]>>,
}

impl Stream {
    /// A stream that its context does not know yet.
    pub(crate) fn new(context: &Arc<Context>, kind: Kind, priority: i32) -> Arc<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            handle: handle::new(),
            context: Arc::clone(context),
            kind,
            priority,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            tail: Mutex::new(Done::already()),
            capturing: Mutex::default(),
            attributes: Mutex::default(),
        })
    }

    /// A stream that a program holds.
    pub(crate) fn create(context: &Arc<Context>, kind: Kind, priority: i32) -> Arc<Self> {
        let stream = Self::new(context, kind, priority);
        context.streams().all.push(Arc::downgrade(&stream));
        STREAMS.insert(stream.handle, Arc::clone(&stream));
        stream
    }

    /// Ends the program's hold on it; what is in it still runs.
    pub(crate) fn destroy(&self) {
        STREAMS.remove(self.handle);
        capture::leave(self);
        let tail = self.tail();
        let mut streams = self.context.streams();
        streams.orphans.retain(|(_, done)| !done.is_complete());
        streams.orphans.push((self.kind, tail));
    }

    /// The completion of everything in it so far.
    pub(crate) fn tail(&self) -> Arc<Done> {
        Arc::clone(&self.tail.lock().expect("no panic while it is held"))
    }

    pub(crate) fn capturing(&self) -> MutexGuard<'_, Option<Capturing>> {
        self.capturing.lock().expect("no panic while it is held")
    }

    /// Has the work done in this stream's order, and after `also`.
    pub(crate) fn submit(&self, work: Work, also: &[Arc<Done>]) -> Arc<Done> {
        let streams = self.context.streams();
        let mut after = also.to_vec();
        match self.kind {
            Kind::NonBlocking => {}
            Kind::Legacy => {
                let others = streams.all.iter().filter_map(std::sync::Weak::upgrade);
                after.extend(others.filter(|other| other.kind == Kind::Blocking).map(|other| other.tail()));
                let orphans = streams.orphans.iter().filter(|(kind, _)| *kind == Kind::Blocking);
                after.extend(orphans.map(|(_, done)| Arc::clone(done)));
            }
            Kind::Blocking => {
                let legacy = streams.all.iter().filter_map(std::sync::Weak::upgrade).find(|it| it.kind == Kind::Legacy);
                after.extend(legacy.map(|legacy| legacy.tail()));
            }
        }
        let mut tail = self.tail.lock().expect("no panic while it is held");
        after.push(Arc::clone(&tail));
        after.retain(|done| !done.is_complete());
        let done = engine::submit(work, &after, &self.context.fate);
        *tail = Arc::clone(&done);
        done
    }

    /// Runs the operation in this stream, or adds it to the graph that the stream is being captured to.
    pub(crate) fn perform(self: &Arc<Self>, operation: Operation) -> Outcome {
        self.context.fate.check()?;
        if capture::record(self, &operation)? {
            return Ok(());
        }
        let work = operation.into_work(self.priority);
        self.submit(work, &[]);
        Ok(())
    }

    /// Runs the operation and waits for it.
    pub(crate) fn perform_and_wait(self: &Arc<Self>, operation: Operation) -> Outcome {
        capture::forbid(self)?;
        self.context.fate.check()?;
        self.submit(operation.into_work(self.priority), &[]).wait();
        self.context.fate.check()
    }
}

/// The stream that a program means.
pub(crate) fn find(stream: CUstream) -> Outcome<Arc<Stream>> {
    if stream == LEGACY {
        return Ok(context::current()?.legacy_stream());
    }
    if stream == PER_THREAD {
        return Ok(context::current()?.thread_stream());
    }
    let found = STREAMS.get(stream.0.addr()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    if found.context.is_destroyed() {
        return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    Ok(found)
}
