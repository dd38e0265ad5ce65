//! What a stream or a graph can run, as plain data: the same for both.

use crate::context::Context;
use crate::engine::{Launch, Work};
use crate::exec::interface::Shape;
use crate::memory;
use crate::module::Function;
use crate::pool::Offer;
use crate::sm::Lane;
use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use detshare_cuda::types::{CUlaunchAttributeID, CUresult, CUstream};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::sync::Arc;

/// One operation.
#[derive(Clone)]
pub(crate) enum Operation {
    Nothing,
    Kernel(KernelLaunch),
    Copy(Copy),
    Fill(Fill),
    Host(HostFunction),
    Callback(Callback),
    Memory(Vec<MemoryOperation>),
    Semaphores(Vec<SemaphoreUse>),
    /// An address, and the offer to have it again until then.
    Free(u64, Option<Offer>),
    /// Gives up what is in these parts of managed memory: address and bytes.
    Discard(Vec<(u64, u64)>),
}

/// The context that a kernel runs in: that of its stream, or of the stream that it was captured in, or the one that
/// its graph node was bound to.
#[derive(Clone)]
pub(crate) struct Bound {
    pub(crate) context: usize,
    lane: Arc<Lane>,
}

impl Bound {
    pub(crate) fn to(context: &Context) -> Self {
        Self { context: context.handle, lane: Arc::clone(&context.lane) }
    }
}

/// A kernel with its arguments.
#[derive(Clone)]
pub(crate) struct KernelLaunch {
    pub(crate) function: Arc<Function>,
    pub(crate) shape: Arc<Shape>,
    pub(crate) bound: Bound,
    pub(crate) priority: Option<i32>,
    pub(crate) attributes: Attributes,
}

/// Values of launch attributes, as bytes.
pub(crate) type Attributes = BTreeMap<u32, [u8; 64]>;

impl KernelLaunch {
    /// Whether it asks to begin before the kernel before it in its stream is over.
    pub(crate) fn may_begin_early(&self) -> bool {
        let attribute = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
        self.attributes.get(&attribute.0).is_some_and(|value| value[..4] != [0; 4])
    }
}

/// Rows of bytes from one place to another. Device addresses are host addresses, so the places are alike.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Copy {
    pub(crate) from: Place,
    pub(crate) to: Place,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) depth: usize,
    /// A copy of the program's bytes, where it may change them after the call.
    pub(crate) snapshot: Option<Arc<[u8]>>,
}

/// Where rows lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
    pub(crate) slice: usize,
}

/// One value over rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fill {
    pub(crate) address: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    /// Bytes of one element: 1, 2 or 4.
    pub(crate) element: usize,
    /// Elements in a row.
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// A function of the program, called without a word on how things went.
#[derive(Clone, Copy)]
pub(crate) struct HostFunction {
    pub(crate) function: unsafe extern "C" fn(*mut c_void),
    pub(crate) data: usize,
}

/// A function of the program, called with the stream and its status.
#[derive(Clone, Copy)]
pub(crate) struct Callback {
    pub(crate) function: unsafe extern "C" fn(CUstream, CUresult, *mut c_void),
    pub(crate) stream: usize,
    pub(crate) data: usize,
}

/// A write to memory, or a wait for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MemoryOperation {
    Write { address: u64, value: u64, wide: bool },
    Wait { address: u64, value: u64, wide: bool, condition: Condition },
    Barrier,
}

/// What is done to a semaphore of others: an `eventfd` that does not block.
#[derive(Clone, Debug)]
pub(crate) struct SemaphoreUse {
    pub(crate) handle: usize,
    pub(crate) file: Arc<File>,
    /// Waits for it instead of signalling it.
    pub(crate) waits: bool,
}

/// What a wait waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Condition {
    AtLeast,
    Equal,
    And,
    Nor,
}

fn pointer<T>(address: u64) -> *mut T {
    core::ptr::with_exposed_provenance_mut(usize::try_from(address).expect("a 64-bit process"))
}

impl Operation {
    /// As work.
    pub(crate) fn into_work(self, priority: i32) -> Work {
        match self {
            Self::Nothing => Work::Nothing,
            Self::Kernel(launch) => Work::Kernel(Box::new(Launch {
                kernel: Arc::clone(&launch.function.kernel),
                shape: launch.shape,
                lane: launch.bound.lane,
                priority: launch.priority.unwrap_or(priority),
                children: None,
            })),
            Self::Copy(copy) => Work::Quick(Box::new(move || copy.run())),
            Self::Fill(fill) => Work::Quick(Box::new(move || fill.run())),
            Self::Host(host) => Work::Host(Box::new(move |healthy| {
                if healthy.is_ok() {
                    // SAFETY: the program's own function and data.
                    unsafe { (host.function)(core::ptr::with_exposed_provenance_mut(host.data)) };
                }
            })),
            Self::Callback(callback) => Work::Host(Box::new(move |healthy| {
                let status = healthy.err().unwrap_or(CUresult::CUDA_SUCCESS);
                let stream = CUstream(core::ptr::without_provenance_mut(callback.stream));
                // SAFETY: the program's own function and data.
                unsafe { (callback.function)(stream, status, core::ptr::with_exposed_provenance_mut(callback.data)) };
            })),
            Self::Memory(operations) => one_after_another(operations, |operation| operation.run()),
            Self::Semaphores(uses) => one_after_another(uses, SemaphoreUse::run),
            Self::Free(address, offer) => Work::Quick(Box::new(move || {
                if offer.is_none_or(Offer::end) {
                    memory::free(address);
                }
            })),
            Self::Discard(parts) => Work::Quick(Box::new(move || {
                parts.into_iter().for_each(|(address, bytes)| memory::managed::discard(address, bytes));
            })),
        }
    }
}

/// Work that is done when each of these is; `run` says false for one that has to wait.
fn one_after_another<T: Send + 'static>(all: Vec<T>, run: fn(&T) -> bool) -> Work {
    let mut next = 0;
    Work::Until(Box::new(move || {
        while let Some(one) = all.get(next) {
            if !run(one) {
                return false;
            }
            next += 1;
        }
        true
    }))
}

impl SemaphoreUse {
    /// Does it; false if it has to wait.
    fn run(&self) -> bool {
        let mut file = &*self.file;
        if self.waits { file.read_exact(&mut [0; 8]).is_ok() } else { file.write_all(&1_u64.to_ne_bytes()).is_ok() }
    }
}

impl Copy {
    /// One row of bytes.
    pub(crate) fn linear(from: u64, to: u64, bytes: usize) -> Self {
        let place = |address| Place { address, pitch: 0, slice: 0 };
        Self { from: place(from), to: place(to), width: bytes, height: 1, depth: 1, snapshot: None }
    }

    /// Copies what is read aside: the program may change it before the copy is done.
    pub(crate) fn take_aside(&mut self) {
        let mut bytes = Vec::with_capacity(self.width * self.height * self.depth);
        for (slice, row) in (0..self.depth).flat_map(|slice| (0..self.height).map(move |row| (slice, row))) {
            let address = self.from.address + (slice * self.from.slice + row * self.from.pitch) as u64;
            // SAFETY: what the program has promised can be read, row by row.
            bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(pointer::<u8>(address), self.width) });
        }
        self.snapshot = Some(Arc::from(bytes));
    }

    fn run(&self) {
        for (slice, row) in (0..self.depth).flat_map(|slice| (0..self.height).map(move |row| (slice, row))) {
            let offset = |place: &Place| (slice * place.slice + row * place.pitch) as u64;
            let to = pointer::<u8>(self.to.address + offset(&self.to));
            let from = match &self.snapshot {
                Some(bytes) => bytes[(slice * self.height + row) * self.width..].as_ptr(),
                None => pointer::<u8>(self.from.address + offset(&self.from)).cast_const(),
            };
            // SAFETY: checked when the copy was asked for; `copy` takes overlapping places too.
            unsafe { core::ptr::copy(from, to, self.width) };
        }
    }
}

impl Fill {
    fn run(&self) {
        for row in 0..self.height {
            let address = self.address + (row * self.pitch) as u64;
            #[allow(clippy::cast_possible_truncation, reason = "the element says how much of the value counts")]
            match self.element {
                1 => fill_row(address, self.width, self.value as u8),
                2 => fill_row(address, self.width, self.value as u16),
                _ => fill_row(address, self.width, self.value),
            }
        }
    }
}

fn fill_row<T: core::marker::Copy>(address: u64, count: usize, value: T) {
    // SAFETY: checked when the fill was asked for.
    unsafe { core::slice::from_raw_parts_mut(pointer::<T>(address), count) }.fill(value);
}

impl MemoryOperation {
    /// Does it; false if it has to wait.
    fn run(self) -> bool {
        match self {
            Self::Barrier => true,
            Self::Write { address, value, wide } => {
                if wide {
                    // SAFETY: checked when it was asked for.
                    unsafe { &*pointer::<AtomicU64>(address) }.store(value, Ordering::Release);
                } else {
                    #[allow(clippy::cast_possible_truncation, reason = "a 32-bit operation takes the lower half")]
                    // SAFETY: checked when it was asked for.
                    unsafe { &*pointer::<AtomicU32>(address) }.store(value as u32, Ordering::Release);
                }
                true
            }
            Self::Wait { address, value, wide, condition } => {
                let (seen, value, mask) = if wide {
                    // SAFETY: checked when it was asked for.
                    (unsafe { &*pointer::<AtomicU64>(address) }.load(Ordering::Acquire), value, u64::MAX)
                } else {
                    // SAFETY: checked when it was asked for.
                    let seen = unsafe { &*pointer::<AtomicU32>(address) }.load(Ordering::Acquire);
                    (u64::from(seen), value & 0xffff_ffff, 0xffff_ffff)
                };
                match condition {
                    // Cyclic, as the manual says: the difference is not negative.
                    Condition::AtLeast => seen.wrapping_sub(value) & mask <= mask >> 1,
                    Condition::Equal => seen == value,
                    Condition::And => seen & value != 0,
                    Condition::Nor => !(seen | value) & mask != 0,
                }
            }
        }
    }
}
