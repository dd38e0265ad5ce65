//! Contexts: an address space, a lane, and the streams in it.
//!
//! A green context shares the primary context's address space, and with it the sticky error; it differs in its
//! lane.

use crate::array;
use crate::boundary::Outcome;
use crate::engine::{Done, Fate};
use crate::handle::{self, Table};
use crate::memory::{self, MOST_DEVICES};
use crate::sm::Lane;
use crate::stream::{self, Stream};
use crate::system::System;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use detshare_cuda::types::CUresult;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::ThreadId;

pub(crate) static CONTEXTS: Table<Context> = Table::new();

/// How a context came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Primary,
    Created,
    Green,
}

/// A context.
pub(crate) struct Context {
    pub(crate) handle: usize,
    pub(crate) kind: Kind,
    pub(crate) device: usize,
    /// Never used twice.
    pub(crate) id: u64,
    pub(crate) flags: AtomicU32,
    pub(crate) fate: Arc<Fate>,
    pub(crate) lane: Arc<Lane>,
    streams: Mutex<Streams>,
    /// Memory that goes when the context goes.
    pub(crate) allocations: Mutex<HashSet<u64>>,
    /// What its kernels print to and allocate from.
    pub(crate) system: Arc<System>,
    /// The handles of contexts on other devices whose memory it may touch, with the device.
    peers: Mutex<HashMap<usize, usize>>,
    /// How often the program holds a context that it made.
    pub(crate) attached: AtomicUsize,
    destroyed: AtomicBool,
}

/// The streams of a context. Held while work is submitted, so that the order against the legacy stream is one.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) all: Vec<Weak<Stream>>,
    /// What destroyed streams have still to do.
    pub(crate) orphans: Vec<(stream::Kind, Arc<Done>)>,
    legacy: Option<Arc<Stream>>,
    per_thread: HashMap<ThreadId, Arc<Stream>>,
}

thread_local! {
    /// Where the calling thread has a default stream.
    static THREAD_STREAMS: ThreadStreams = const { ThreadStreams(RefCell::new(Vec::new())) };
}

struct ThreadStreams(RefCell<Vec<(Weak<Context>, ThreadId)>>);

impl Drop for ThreadStreams {
    /// The thread ends, and its streams with it; what is in them still runs.
    fn drop(&mut self) {
        for (context, thread) in self.0.borrow().iter() {
            let Some(context) = context.upgrade() else { continue };
            let stream = context.streams().per_thread.remove(thread);
            if let Some(stream) = stream {
                stream.destroy();
            }
        }
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The number of the context that is made next.
pub(crate) fn next_id() -> u64 {
    NEXT_ID.load(Ordering::Relaxed)
}

impl Context {
    pub(crate) fn new(kind: Kind, flags: u32, lane: Arc<Lane>, fate: Arc<Fate>, system: Arc<System>) -> Arc<Self> {
        let context = Arc::new(Self {
            handle: handle::new_of_context(),
            kind,
            device: lane.device,
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            flags: AtomicU32::new(flags),
            fate,
            lane,
            streams: Mutex::default(),
            allocations: Mutex::default(),
            system,
            peers: Mutex::default(),
            attached: AtomicUsize::new(1),
            destroyed: AtomicBool::new(false),
        });
        CONTEXTS.insert(context.handle, Arc::clone(&context));
        context
    }

    pub(crate) fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().expect("no panic while it is held")
    }

    pub(crate) fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// The default stream of the whole context.
    pub(crate) fn legacy_stream(self: &Arc<Self>) -> Arc<Stream> {
        let mut streams = self.streams();
        if let Some(legacy) = &streams.legacy {
            return Arc::clone(legacy);
        }
        let legacy = Stream::new(self, stream::Kind::Legacy, 0);
        streams.all.push(Arc::downgrade(&legacy));
        streams.legacy = Some(Arc::clone(&legacy));
        legacy
    }

    /// The default stream of the calling thread.
    pub(crate) fn thread_stream(self: &Arc<Self>) -> Arc<Stream> {
        let mut streams = self.streams();
        if let Some(stream) = streams.per_thread.get(&std::thread::current().id()) {
            return Arc::clone(stream);
        }
        let stream = Stream::new(self, stream::Kind::Blocking, 0);
        streams.all.push(Arc::downgrade(&stream));
        let thread = std::thread::current().id();
        streams.per_thread.insert(thread, Arc::clone(&stream));
        // A thread that is ending already leaves its stream behind.
        let _ = THREAD_STREAMS.try_with(|own| own.0.borrow_mut().push((Arc::downgrade(self), thread)));
        stream
    }

    /// The streams that there are now.
    pub(crate) fn living_streams(&self) -> Vec<Arc<Stream>> {
        let mut streams = self.streams();
        streams.all.retain(|stream| stream.strong_count() > 0);
        streams.all.iter().filter_map(Weak::upgrade).collect()
    }

    /// The completions of all that is in it so far, in streams that are there and in those that were. Seen at one moment: a stream that
    /// another thread destroys meanwhile is in one of the two.
    pub(crate) fn tails(&self) -> Vec<Arc<Done>> {
        let streams = self.streams();
        let living = streams.all.iter().filter_map(Weak::upgrade).map(|stream| stream.tail());
        living.chain(streams.orphans.iter().map(|(_, done)| Arc::clone(done))).collect()
    }

    /// Waits for all work in all its streams.
    pub(crate) fn synchronise(&self) -> Outcome {
        self.tails().iter().for_each(|done| done.wait());
        let mut streams = self.streams();
        streams.orphans.retain(|(_, done)| !done.is_complete());
        streams.all.retain(|stream| stream.strong_count() > 0);
        drop(streams);
        self.fate.check()
    }

    /// Ends the context: its work is waited for, its memory goes.
    pub(crate) fn destroy(&self) {
        // A poisoned context has nothing to wait for, and ends all the same.
        let _ = self.synchronise();
        self.destroyed.store(true, Ordering::Release);
        CONTEXTS.remove(self.handle);
        let mut streams = self.streams();
        streams.legacy = None;
        streams.per_thread.clear();
        drop(streams);
        for address in self.allocations.lock().expect("no panic while it is held").drain() {
            memory::free(address);
        }
        memory::unregister_all_of(self.handle);
        array::end_all_of(self.handle);
        for (_, device) in self.peers.lock().expect("no panic while it is held").drain() {
            memory::set_peer(self.device, device, false);
        }
    }

    /// Has the context own memory, which goes when it goes.
    pub(crate) fn own(&self, address: u64) {
        self.allocations.lock().expect("no panic while it is held").insert(address);
    }

    /// The memory goes before the context does.
    pub(crate) fn disown(&self, address: u64) {
        self.allocations.lock().expect("no panic while it is held").remove(&address);
    }

    /// Lets it touch the memory of another context's device; false if it may already.
    pub(crate) fn add_peer(&self, other: &Self) -> bool {
        let mut peers = self.peers.lock().expect("no panic while it is held");
        let is_new = peers.insert(other.handle, other.device).is_none();
        if is_new {
            memory::set_peer(self.device, other.device, true);
        }
        is_new
    }

    /// Takes that away again; false if it may not.
    pub(crate) fn remove_peer(&self, other: &Self) -> bool {
        let was_there = self.peers.lock().expect("no panic while it is held").remove(&other.handle).is_some();
        if was_there {
            memory::set_peer(self.device, other.device, false);
        }
        was_there
    }
}

thread_local! {
    static CURRENT: RefCell<Vec<Arc<Context>>> = const { RefCell::new(Vec::new()) };
}

/// What the calling thread has. A thread that has ended its variables already has nothing any more: programs call from exit handlers
/// and destructors too.
fn with_current<R: Default>(body: impl FnOnce(&mut Vec<Arc<Context>>) -> R) -> R {
    CURRENT.try_with(|stack| body(&mut stack.borrow_mut())).unwrap_or_default()
}

/// The calling thread's context, dead or alive.
pub(crate) fn top() -> Option<Arc<Context>> {
    with_current(|stack| stack.last().cloned())
}

/// The calling thread's context, as work needs it.
pub(crate) fn current() -> Outcome<Arc<Context>> {
    let context = top().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    if context.is_destroyed() {
        return Err(CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED);
    }
    Ok(context)
}

/// The calling thread's context, which must not have failed.
pub(crate) fn healthy() -> Outcome<Arc<Context>> {
    let context = current()?;
    context.fate.check()?;
    Ok(context)
}

pub(crate) fn push(context: Arc<Context>) {
    with_current(|stack| stack.push(context));
}

pub(crate) fn pop() -> Option<Arc<Context>> {
    with_current(Vec::pop)
}

/// Replaces the top of the stack; None takes it away.
pub(crate) fn set(context: Option<Arc<Context>>) {
    with_current(|stack| {
        stack.pop();
        stack.extend(context);
    });
}

/// The context with that handle.
pub(crate) fn find(handle: usize) -> Outcome<Arc<Context>> {
    CONTEXTS.get(handle).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// The primary context of a device, with how often it was retained.
#[derive(Default)]
struct Primary {
    context: Option<Arc<Context>>,
    retained: usize,
    flags: u32,
    /// That of one that has failed and was ended: the process gets no other from the device.
    fate: Option<Arc<Fate>>,
}

static PRIMARY: [Mutex<Primary>; MOST_DEVICES] =
    [const { Mutex::new(Primary { context: None, retained: 0, flags: 0, fate: None }) }; MOST_DEVICES];

fn primary(device: usize) -> MutexGuard<'static, Primary> {
    PRIMARY[device].lock().expect("no panic while it is held")
}

/// The primary context of a device, made if there is none.
pub(crate) fn retain_primary(device: usize) -> Outcome<Arc<Context>> {
    let mut primary = primary(device);
    primary.fate.as_ref().map_or(Ok(()), |fate| fate.check())?;
    primary.retained += 1;
    let flags = primary.flags;
    let make = || Context::new(Kind::Primary, flags, Arc::new(Lane::full(device)), Arc::default(), System::new());
    Ok(Arc::clone(primary.context.get_or_insert_with(make)))
}

/// Gives one retention back; the last one ends the context.
pub(crate) fn release_primary(device: usize) -> Outcome {
    let mut primary = primary(device);
    if primary.retained == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    primary.retained -= 1;
    if primary.retained == 0 {
        return end(primary);
    }
    Ok(())
}

/// Ends the primary context whoever holds it.
pub(crate) fn reset_primary(device: usize) -> Outcome {
    end(primary(device))
}

fn end(mut primary: MutexGuard<'_, Primary>) -> Outcome {
    let context = primary.context.take();
    primary.fate = context.as_ref().map(|context| Arc::clone(&context.fate)).or_else(|| primary.fate.take());
    drop(primary);
    if let Some(context) = context {
        context.destroy();
    }
    Ok(())
}

/// The flags, and whether there is a primary context.
pub(crate) fn primary_state(device: usize) -> (u32, bool) {
    let primary = primary(device);
    let flags = primary.context.as_ref().map_or(primary.flags, |context| context.flags.load(Ordering::Relaxed));
    (flags, primary.context.is_some())
}

pub(crate) fn set_primary_flags(device: usize, flags: u32) {
    let mut primary = primary(device);
    primary.flags = flags;
    if let Some(context) = &primary.context {
        context.flags.store(flags, Ordering::Relaxed);
    }
}

/// The primary context of a device if there is one.
pub(crate) fn primary_if_there(device: usize) -> Option<Arc<Context>> {
    primary(device).context.clone()
}
