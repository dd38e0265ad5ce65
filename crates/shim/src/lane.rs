//! Lanes: fixed sets of SMs, each a green context with streams that are ready to be taken.
//!
//! The ladder is five splits of the GPU into `front` and `rest`; with `full`, which is the primary context itself,
//! that makes eleven lanes. The background thread makes them; no launch waits for it.

use crate::background::{self, Task};
use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::{log, tenant};
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use detshare_cuda::types::{
    CUcontext, CUctx_st, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice, CUgreenCtx, CUgreenCtx_st,
    CUgreenCtxCreate_flags, CUstream, CUstream_flags,
};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lane that is the whole GPU.
pub(crate) const FULL: usize = 0;
/// How many lanes there can be: `full`, and the two sides of each split.
pub(crate) const LANES: usize = 1 + 2 * SPLITS;
const SPLITS: usize = 5;
/// The widths of `front` on a GPU that is large enough.
const LADDER: [u32; SPLITS] = [16, 32, 48, 64, 96];
/// Splits are multiples of this many SMs.
const GRANULE: u32 = 8;
/// How many streams of one priority a lane holds ready.
const READY_STREAMS: usize = 2;

/// One set of SMs.
pub(crate) struct Lane {
    ready: AtomicBool,
    width: AtomicU32,
    /// The split that it is a side of.
    split: AtomicU32,
    green: AtomicPtr<CUgreenCtx_st>,
    context: AtomicPtr<CUctx_st>,
    /// Streams that nobody uses.
    pool: Mutex<Vec<Idle>>,
    /// Whether the background thread was asked for more.
    refilling: AtomicBool,
    /// Device memory that it took to make.
    bytes: AtomicU64,
    /// Whether a launch has been sent here: graphs are copied for such lanes.
    in_use: AtomicBool,
    /// Launches of graphs, and of kernels in streams that are gone.
    launches: AtomicU64,
}

/// A stream that nobody uses.
struct Idle {
    priority: c_int,
    stream: CUstream,
}

// SAFETY: a handle of the driver, which any thread may use.
unsafe impl Send for Idle {}

impl Lane {
    pub(crate) const fn none() -> Self {
        Self {
            ready: AtomicBool::new(false),
            width: AtomicU32::new(0),
            split: AtomicU32::new(0),
            green: AtomicPtr::new(null_mut()),
            context: AtomicPtr::new(null_mut()),
            pool: Mutex::new(Vec::new()),
            refilling: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            in_use: AtomicBool::new(false),
            launches: AtomicU64::new(0),
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        // Pairs with the release in `publish`: the rest of it is there then.
        self.ready.load(Ordering::Acquire)
    }

    pub(crate) fn width(&self) -> u32 {
        self.width.load(Ordering::Relaxed)
    }

    /// The width of `front` in the split that it is a side of.
    pub(crate) fn split(&self) -> u32 {
        self.split.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The context whose kernels run on these SMs.
    pub(crate) fn context(&self) -> CUcontext {
        CUcontext(self.context.load(Ordering::Relaxed))
    }

    pub(crate) fn is_in_use(&self) -> bool {
        self.in_use.load(Ordering::Relaxed)
    }

    /// Counts launches.
    pub(crate) fn add_launches(&self, launches: u64) {
        self.launches.fetch_add(launches, Ordering::Relaxed);
    }

    pub(crate) fn launches(&self) -> u64 {
        self.launches.load(Ordering::Relaxed)
    }

    /// There are launches here.
    pub(crate) fn note_use(&self) {
        if !self.is_in_use() {
            self.in_use.store(true, Ordering::Relaxed);
        }
    }

    fn publish(&self, width: u32, split: u32, bytes: u64, green: CUgreenCtx, context: CUcontext) {
        self.width.store(width, Ordering::Relaxed);
        self.split.store(split, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.green.store(green.0, Ordering::Relaxed);
        self.context.store(context.0, Ordering::Relaxed);
        self.ready.store(true, Ordering::Release);
    }

    fn pool(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a stream of that priority out of the pool; if it was the last one, more are ordered.
    pub(crate) fn take(&self, coroutine: &'static Coroutine, index: usize, priority: c_int) -> Option<CUstream> {
        let mut pool = self.pool();
        let found = pool.iter().position(|idle| idle.priority == priority);
        let taken = found.map(|position| pool.swap_remove(position).stream);
        let more = pool.iter().any(|idle| idle.priority == priority);
        drop(pool);
        if !more && !self.refilling.swap(true, Ordering::AcqRel) {
            background::order(Task::Refill { coroutine, lane: index, priority });
        }
        taken
    }

    /// Gives a stream back that has nothing left to do.
    pub(crate) fn give_back(&self, priority: c_int, stream: CUstream) {
        self.pool().push(Idle { priority, stream });
    }

    /// Makes streams until enough of that priority are ready. For the background thread.
    pub(crate) fn refill(&self, priority: c_int) {
        self.refilling.store(false, Ordering::Release);
        while self.pool().iter().filter(|idle| idle.priority == priority).count() < READY_STREAMS {
            let Some(stream) = self.make_stream(priority) else { break };
            self.give_back(priority, stream);
        }
    }

    fn make_stream(&self, priority: c_int) -> Option<CUstream> {
        let mut stream = CUstream(null_mut());
        let green = CUgreenCtx(self.green.load(Ordering::Relaxed));
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING.0;
        let code = if green.0.is_null() {
            cu!(cuStreamCreateWithPriority(&raw mut stream, flags, priority))
        } else {
            cu!(cuGreenCtxStreamCreate(&raw mut stream, green, flags, priority))
        };
        is_ok(code).then_some(stream)
    }

    /// Destroys its streams and its context. No launch may come here any more.
    pub(crate) fn destroy(&self) {
        self.ready.store(false, Ordering::Release);
        for Idle { stream, .. } in self.pool().drain(..) {
            cu!(cuStreamDestroy_v2(stream));
        }
        let green = CUgreenCtx(self.green.swap(null_mut(), Ordering::Relaxed));
        self.context.store(null_mut(), Ordering::Relaxed);
        self.in_use.store(false, Ordering::Relaxed);
        if !green.0.is_null() {
            cu!(cuGreenCtxDestroy(green));
        }
    }
}

/// The name of the lane with that index.
pub(crate) fn name(index: usize, lane: &Lane) -> String {
    let split = lane.split();
    match index {
        FULL => "full".into(),
        front if front % 2 == 1 => format!("front{split}"),
        _ => format!("rest{split}"),
    }
}

/// The splits for a device of that many SMs: those that the daemon gives, or the ladder as far as it leaves a `rest`, or
/// halves and quarters.
fn ladder(sms: u32) -> Vec<u32> {
    let fits = |width: &u32| *width >= GRANULE && width + GRANULE <= sms;
    if let Some(entry) = tenant::entry() {
        let is_possible = |width: &u32| *width >= GRANULE && *width < sms;
        let given: Vec<u32> = entry.ladder.widths().iter().copied().filter(is_possible).collect();
        if given.len() > SPLITS {
            log::line(format_args!("only {SPLITS} of the {} splits are used", given.len()));
        }
        return given.into_iter().take(SPLITS).collect();
    }
    let whole: Vec<u32> = LADDER.into_iter().filter(fits).collect();
    if whole.len() > 1 {
        return whole;
    }
    let mut parts: Vec<u32> = (1..4).map(|quarter| sms * quarter / 4 / GRANULE * GRANULE).filter(fits).collect();
    parts.dedup();
    parts
}

/// Makes all lanes, the widest pair of sides first. For the background thread, with the primary context current.
pub(crate) fn build(coroutine: &'static Coroutine, device: CUdevice) {
    let Some(whole) = whole_device(device) else {
        log::line(format_args!("this device cannot be split: everything runs on all of it"));
        return;
    };
    let sms = sms_of(&whole);
    let full = &coroutine.lanes[FULL];
    full.publish(sms, sms, 0, CUgreenCtx(null_mut()), coroutine.context());
    full.refill(0);
    for (number, width) in ladder(sms).into_iter().enumerate() {
        let (mut front, mut rest, mut groups) = (no_resource(), no_resource(), 1);
        let code = cu!(cuDevSmResourceSplitByCount(
            &raw mut front,
            &raw mut groups,
            &raw const whole,
            &raw mut rest,
            0,
            width
        ));
        if !is_ok(code) || groups != 1 {
            log::line(format_args!("no split at {width} SMs: code {}", code.0));
            continue;
        }
        // A rest that is too narrow to be a lane stays unused.
        let sides = [(1, front), (2, rest)].into_iter().filter(|(_, side)| sms_of(side) >= GRANULE);
        for (side, resource) in sides {
            let lane = &coroutine.lanes[2 * number + side];
            if !make(lane, device, resource, width) {
                log::line(format_args!("no lane of {} SMs", sms_of(&resource)));
            }
            if coroutine.is_late() {
                return;
            }
        }
    }
    log::line(format_args!("{} lanes are ready", coroutine.lanes.iter().filter(|lane| lane.is_ready()).count()));
}

fn make(lane: &Lane, device: CUdevice, mut resource: CUdevResource, split: u32) -> bool {
    let before = free_memory();
    let mut description = CUdevResourceDesc(null_mut());
    let (mut green, mut context) = (CUgreenCtx(null_mut()), CUcontext(null_mut()));
    let flags = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
    let made = is_ok(cu!(cuDevResourceGenerateDesc(&raw mut description, &raw mut resource, 1)))
        && is_ok(cu!(cuGreenCtxCreate(&raw mut green, description, device, flags)));
    if !made {
        return false;
    }
    if !is_ok(cu!(cuCtxFromGreenCtx(&raw mut context, green))) {
        cu!(cuGreenCtxDestroy(green));
        return false;
    }
    lane.green.store(green.0, Ordering::Relaxed);
    // One is enough for most programs; more cost memory and come when they are asked for.
    if let Some(stream) = lane.make_stream(0) {
        lane.give_back(0, stream);
    }
    let bytes = before.saturating_sub(free_memory());
    lane.publish(sms_of(&resource), split, bytes, green, context);
    true
}

fn free_memory() -> u64 {
    let (mut free, mut total) = (0, 0);
    cu!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    free as u64
}

fn whole_device(device: CUdevice) -> Option<CUdevResource> {
    let mut whole = no_resource();
    let kind = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
    is_ok(cu!(cuDeviceGetDevResource(device, &raw mut whole, kind))).then_some(whole)
}

fn no_resource() -> CUdevResource {
    // SAFETY: numbers throughout, which may be zero.
    unsafe { core::mem::zeroed() }
}

fn sms_of(resource: &CUdevResource) -> u32 {
    // SAFETY: the driver said that it is of SMs.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}
