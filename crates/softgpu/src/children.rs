//! Kernels that kernels launch, and copies and fills that they ask for.
//!
//! A grid has one [`Children`]: what its threads have asked for, in the order of the streams that they have asked for it
//! in. A child may begin at once. The grid is over when all of them are, and those of the tail stream begin when all
//! blocks and all other children are over.
//!
//! Errors are those of the runtime (`cudaError_t`), as kernels know no others.

use crate::device;
use crate::engine::{self, Done, Fate, Launch, Work};
use crate::exec::Kernel;
use crate::exec::interface::{self, Shape};
use crate::memory;
use crate::module::Attributes;
use crate::operation::{Copy, Fill, Operation, Place};
use crate::sm::Lane;
use crate::system::System;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use detshare_cuda::types::{CUdevice_attribute, CUfunction_attribute, CUlimit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// `cudaSuccess`
const SUCCESS: u32 = 0;
/// `cudaErrorInvalidValue`
const INVALID_VALUE: u32 = 1;
/// `cudaErrorInvalidConfiguration`
const INVALID_CONFIGURATION: u32 = 9;
/// `cudaErrorInvalidPitchValue`
const INVALID_PITCH: u32 = 12;
/// `cudaErrorInvalidDeviceFunction`
const INVALID_FUNCTION: u32 = 98;
/// `cudaErrorInvalidDevice`
const INVALID_DEVICE: u32 = 101;
/// `cudaErrorNotSupported`
const NOT_SUPPORTED: u32 = 801;

/// Streams that every grid has.
const TAIL: u64 = 3;
const FIRE_AND_FORGET: u64 = 4;
/// What the handles of a kernel's own streams and events are larger than.
const FIRST_HANDLE: u64 = 1 << 32;
/// So many children are remembered before those that are over are forgotten for the first time.
const MANY: usize = 1024;

/// A thread of the grid: its block's number and its own.
pub(crate) type Thread = (u64, u32);

/// What a grid has asked for.
pub(crate) struct Children {
    lane: Arc<Lane>,
    priority: i32,
    fate: Arc<Fate>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Launches whose arguments are being written, by where that is.
    prepared: HashMap<u64, Prepared>,
    /// Room for arguments of kernels that are not named yet: its bytes, by where it is.
    rooms: HashMap<u64, u64>,
    /// What the next work in a stream waits for.
    streams: HashMap<Stream, Vec<Arc<Done>>>,
    /// What waits for an event waits for.
    events: HashMap<u64, Vec<Arc<Done>>>,
    /// All that was started,
    started: Vec<Arc<Done>>,
    /// and how many that may be before those that are over are forgotten.
    most_started: usize,
    tail: Vec<Work>,
    /// The last error of a thread.
    errors: HashMap<Thread, u32>,
}

/// A kernel with its shape.
pub(crate) struct Prepared {
    kernel: Arc<Kernel>,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Stream {
    /// Each block has one.
    OfBlock(u64),
    Named(u64),
    FireAndForget,
    Tail,
}

impl Stream {
    fn new(handle: u64, (block, _): Thread) -> Self {
        match handle {
            // The legacy stream, and a thread's own. Where kernels have one of these (`--default-stream per-thread`) no GPU was
            // asked; in the block's stream a thread's work has its order, and more than that is not wrong.
            0..=2 => Self::OfBlock(block),
            TAIL => Self::Tail,
            FIRE_AND_FORGET => Self::FireAndForget,
            other => Self::Named(other),
        }
    }
}

impl core::fmt::Debug for Children {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("Children")
    }
}

impl Children {
    /// Of a grid that is about to run.
    pub(crate) fn new(lane: &Arc<Lane>, priority: i32, fate: &Arc<Fate>) -> Self {
        Self { lane: Arc::clone(lane), priority, fate: Arc::clone(fate), state: Mutex::default() }
    }

    /// The device that the grid runs on.
    pub(crate) fn device(&self) -> usize {
        self.lane.device
    }

    /// An attribute of a device, by its number.
    pub(crate) fn attribute(&self, thread: Thread, number: u32, device: u64) -> Option<u32> {
        let Some(device) = usize::try_from(device).ok().filter(|device| *device < device::settings().devices) else {
            self.fail(thread, INVALID_DEVICE);
            return None;
        };
        let value = device::attribute(device, CUdevice_attribute(number));
        self.or_invalid(thread, value.and_then(|value| u32::try_from(value).ok()))
    }

    /// A limit of the context, by its number, which the runtime and the driver have in common, as they have the errors.
    pub(crate) fn limit(&self, thread: Thread, number: u32, system: &System) -> Option<u64> {
        let limit = system.limit(CUlimit(number));
        limit.map(|value| value as u64).map_err(|code| self.fail(thread, code.0)).ok()
    }

    /// What is known of a kernel, by the driver's number for it; what the host has set of it does not count.
    pub(crate) fn kernel_attribute(&self, thread: Thread, kernel: Option<Arc<Kernel>>, number: u32) -> Option<u32> {
        let kernel = self.known(thread, kernel)?;
        let value = Attributes::of(&kernel.properties).value(&kernel.properties, CUfunction_attribute(number));
        // One is negative: no preference.
        self.or_invalid(thread, value.map(i32::cast_unsigned))
    }

    /// How many blocks of a kernel one SM can have at once.
    pub(crate) fn resident(
        &self,
        thread: Thread,
        kernel: Option<Arc<Kernel>>,
        threads: u32,
        dynamic_shared: u64,
        flags: u32,
    ) -> Option<u32> {
        let kernel = self.known(thread, kernel)?;
        let is_size = i32::try_from(threads).is_ok_and(|threads| threads > 0);
        let shared = u32::try_from(dynamic_shared).ok().filter(|_| is_size && flags <= 1);
        let shared = self.or_invalid(thread, shared)?;
        let fits = threads <= device::MOST_THREADS_PER_BLOCK;
        let blocks = || Attributes::of(&kernel.properties).blocks_per_sm(&kernel.properties, threads, shared);
        Some(if fits { blocks() } else { 0 })
    }

    fn known(&self, thread: Thread, kernel: Option<Arc<Kernel>>) -> Option<Arc<Kernel>> {
        if kernel.is_none() {
            self.fail(thread, INVALID_FUNCTION);
        }
        kernel
    }

    fn or_invalid<T>(&self, thread: Thread, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.fail(thread, INVALID_VALUE);
        }
        value
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while it is held")
    }

    /// Where the arguments of a launch are written; 0 without a kernel.
    pub(crate) fn prepare(
        &self,
        kernel: Option<Arc<Kernel>>,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
    ) -> u64 {
        let Some(prepared) = Prepared::new(kernel, grid, block, dynamic_shared) else { return 0 };
        let bytes = prepared.kernel.properties.parameter_bytes.max(1) as u64;
        let Some(address) = memory::allocate(bytes) else { return 0 };
        self.state().prepared.insert(address, prepared);
        address
    }

    /// Launches what was prepared there.
    pub(crate) fn launch(&self, thread: Thread, buffer: u64, stream: u64, parent: &Shape) -> u32 {
        let Some(prepared) = self.state().prepared.remove(&buffer) else { return self.fail(thread, INVALID_VALUE) };
        let parameters = bytes_at(buffer, prepared.kernel.properties.parameter_bytes);
        memory::free(buffer);
        self.begin(thread, prepared, parameters, stream, parent)
    }

    /// Room for the arguments of a kernel that is not named yet; 0 where there is none.
    pub(crate) fn room(&self, bytes: u64) -> u64 {
        let Some(address) = memory::allocate(bytes.max(1)) else { return 0 };
        self.state().rooms.insert(address, bytes);
        address
    }

    /// Launches a kernel with what was written there; one without parameters needs no room.
    pub(crate) fn launch_with(
        &self,
        thread: Thread,
        prepared: Option<Prepared>,
        room: u64,
        stream: u64,
        parent: &Shape,
    ) -> u32 {
        let Some(prepared) = prepared else { return self.fail(thread, INVALID_FUNCTION) };
        let wanted = prepared.kernel.properties.parameter_bytes;
        let given = if room == 0 { Some(0) } else { self.state().rooms.remove(&room) };
        let enough = given.is_some_and(|bytes| wanted as u64 <= bytes);
        let parameters = bytes_at(room, if enough { wanted } else { 0 });
        if given.is_some() && room != 0 {
            memory::free(room);
        }
        if !enough {
            return self.fail(thread, INVALID_VALUE);
        }
        self.begin(thread, prepared, parameters, stream, parent)
    }

    fn begin(&self, thread: Thread, prepared: Prepared, parameters: Arc<[u8]>, stream: u64, parent: &Shape) -> u32 {
        let (kernel, shape) = match prepared.shape(parameters, parent) {
            Ok(shape) => (prepared.kernel, shape),
            Err(error) => return self.fail(thread, error),
        };
        parent.system.expect(kernel.properties.system);
        let (lane, priority) = (Arc::clone(&self.lane), self.priority);
        let launch = Launch { kernel, shape: Arc::new(shape), lane, priority, children: None };
        self.add(Stream::new(stream, thread), Work::Kernel(Box::new(launch)));
        SUCCESS
    }

    /// Copies a box.
    pub(crate) fn copy(&self, thread: Thread, to: Place, from: Place, extent: [usize; 3], stream: u64) -> u32 {
        let [width, height, depth] = extent;
        if let Err(error) = check_box(&to, extent).and_then(|()| check_box(&from, extent)) {
            return self.fail(thread, error);
        }
        if extent.contains(&0) {
            return SUCCESS;
        }
        let copy = Copy { from, to, width, height, depth, snapshot: None };
        self.add(Stream::new(stream, thread), Operation::Copy(copy).into_work(self.priority));
        SUCCESS
    }

    /// Fills a box.
    pub(crate) fn fill(&self, thread: Thread, to: Place, value: u32, extent: [usize; 3], stream: u64) -> u32 {
        let [width, height, depth] = extent;
        if let Err(error) = check_box(&to, extent) {
            return self.fail(thread, error);
        }
        if extent.contains(&0) {
            return SUCCESS;
        }
        // Slices without rows between them are one.
        let (rows, slices) = if to.pitch.checked_mul(height) == Some(to.slice) {
            (height.saturating_mul(depth), 1)
        } else {
            (height, depth)
        };
        for slice in 0..slices {
            let address = to.address + (slice * to.slice) as u64;
            let fill = Fill { address, pitch: to.pitch, value: value & 0xff, element: 1, width, height: rows };
            self.add(Stream::new(stream, thread), Operation::Fill(fill).into_work(self.priority));
        }
        SUCCESS
    }

    /// A handle of a new stream or event.
    pub(crate) fn new_handle() -> u64 {
        static NEXT: AtomicU64 = AtomicU64::new(FIRST_HANDLE);
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The event is from now on over when what is in the stream by now is.
    pub(crate) fn record(&self, thread: Thread, event: u64, stream: u64) -> u32 {
        let mut state = self.state();
        let waits = state.streams.get(&Stream::new(stream, thread)).cloned().unwrap_or_default();
        state.events.insert(event, waits);
        SUCCESS
    }

    /// What comes into the stream from now on waits for the event.
    pub(crate) fn wait(&self, thread: Thread, stream: u64, event: u64) -> u32 {
        let mut state = self.state();
        let waits = state.events.get(&event).cloned().unwrap_or_default();
        state.streams.entry(Stream::new(stream, thread)).or_default().extend(waits);
        SUCCESS
    }

    /// The thread's last error, which is forgotten if asked for.
    pub(crate) fn last_error(&self, thread: Thread, forget: bool) -> u32 {
        let errors = &mut self.state().errors;
        if forget { errors.remove(&thread) } else { errors.get(&thread).copied() }.unwrap_or(SUCCESS)
    }

    /// Remembers the error, and gives it back.
    pub(crate) fn fail(&self, thread: Thread, error: u32) -> u32 {
        self.state().errors.insert(thread, error);
        error
    }

    /// Has it done in the order of its stream.
    fn add(&self, stream: Stream, work: Work) {
        let mut state = self.state();
        if stream == Stream::Tail {
            return state.tail.push(work);
        }
        if state.started.len() >= state.most_started.max(MANY) {
            state.forget_what_is_over();
        }
        let after = match stream {
            Stream::FireAndForget => Vec::new(),
            _ => state.streams.remove(&stream).unwrap_or_default(),
        };
        let done = engine::submit(work, &after, &self.fate);
        if stream != Stream::FireAndForget {
            state.streams.insert(stream, vec![Arc::clone(&done)]);
        }
        state.started.push(done);
    }

    /// All blocks are over, and so is their modelled time at `ends`: completes the grid when its children are over, too.
    pub(crate) fn complete(&self, ends: u64, done: Arc<Done>) {
        let (mut after, tail) = {
            let mut state = self.state();
            (core::mem::take(&mut state.started), core::mem::take(&mut state.tail))
        };
        for work in tail {
            after = vec![engine::submit(work, &after, &self.fate)];
        }
        let complete = move |_, own: Arc<Done>| {
            engine::complete_at(ends, &done);
            engine::finish(&own);
        };
        engine::submit(Work::Expand(Box::new(complete)), &after, &self.fate);
    }
}

impl State {
    fn forget_what_is_over(&mut self) {
        let goes_on = |done: &Arc<Done>| !done.is_complete();
        self.started.retain(goes_on);
        self.streams.retain(|_, waits| waits.iter().any(goes_on));
        // Not before there are twice as many again, so that looking through them does not take longer than they do.
        self.most_started = self.started.len() * 2;
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let state = self.state();
        for buffer in state.prepared.keys().chain(state.rooms.keys()) {
            memory::free(*buffer);
        }
    }
}

impl Prepared {
    /// None without a kernel.
    pub(crate) fn new(
        kernel: Option<Arc<Kernel>>,
        grid: [u32; 3],
        block: [u32; 3],
        dynamic_shared: u32,
    ) -> Option<Self> {
        kernel.map(|kernel| Self { kernel, grid, block, dynamic_shared })
    }

    /// Checked as a driver checks a launch.
    fn shape(&self, parameters: Arc<[u8]>, parent: &Shape) -> Result<Shape, u32> {
        let properties = &self.kernel.properties;
        let (grid, block) = properties.launched(self.grid, self.block).ok_or(INVALID_CONFIGURATION)?;
        let within =
            |size: [u32; 3], most: [u32; 3]| size.iter().zip(most).all(|(size, most)| (1..=most).contains(size));
        let threads = block.iter().fold(1, |product: u32, size| product.saturating_mul(*size));
        let shared = properties.shared_bytes.saturating_add(self.dynamic_shared);
        let fits = within(grid, device::MOST_GRID)
            && within(block, device::MOST_BLOCK)
            && threads <= properties.most_threads.unwrap_or(u32::MAX).min(device::MOST_THREADS_PER_BLOCK)
            && properties.required_block.is_none_or(|required| required == block)
            && shared <= device::SHARED_PER_BLOCK;
        let cluster = properties.required_cluster;
        let divides = |size: [u32; 3]| grid.iter().zip(size).all(|(count, size)| count.is_multiple_of(size));
        if !fits || properties.needs_cluster && cluster.is_none() || !cluster.is_none_or(divides) {
            return Err(INVALID_CONFIGURATION);
        }
        if properties.unsupported.is_some() {
            return Err(NOT_SUPPORTED);
        }
        Ok(Shape {
            grid,
            block,
            dynamic_shared: self.dynamic_shared,
            parameters,
            grid_id: interface::new_grid_id(),
            sm_count: parent.sm_count,
            system: Arc::clone(&parent.system),
            cluster,
            workspace: None,
        })
    }
}

/// Whether a box is there: all of its bytes, in rows that do not run into each other.
fn check_box(place: &Place, [width, height, depth]: [usize; 3]) -> Result<(), u32> {
    if [width, height, depth].contains(&0) {
        return Ok(());
    }
    if width > place.pitch && (height > 1 || depth > 1) {
        return Err(INVALID_PITCH);
    }
    let bytes = (depth - 1).checked_mul(place.slice).zip((height - 1).checked_mul(place.pitch));
    let bytes = bytes.and_then(|(slices, rows)| slices.checked_add(rows)?.checked_add(width));
    let is_there = bytes.is_some_and(|bytes| memory::access::is_mapped(place.address, bytes as u64));
    if is_there { Ok(()) } else { Err(INVALID_VALUE) }
}

/// What a kernel has written there.
fn bytes_at(address: u64, count: usize) -> Arc<[u8]> {
    let byte = |at: usize| {
        let place = core::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or_default() + at);
        // SAFETY: a byte of a buffer of ours that is that large, which kernels access by atomic accesses only.
        unsafe { AtomicU8::from_ptr(place) }.load(Ordering::Relaxed)
    };
    (0..count).map(byte).collect()
}
