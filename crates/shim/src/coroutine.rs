//! A coroutine: what this process's primary context on one device looks like to the program, apart from what the
//! GPU gives it. It has the logical streams and the lanes that they can be bound to.

use crate::background::{self, Task};
use crate::beckon::Beckoner;
use crate::block_level::{self, Controls};
use crate::call::is_ok;
use crate::handles::Handles;
use crate::hot::HOT;
use crate::lane::{FULL, LANES, Lane};
use crate::relaxed::Relaxed;
use crate::schedule::Schedule;
use crate::stream::{Kind, Logical, Ring, State};
use crate::{bind, gate, graph, kernel, lane, log, settings, tenant, watchdog};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use core::time::Duration;
use detshare_cuda::types::{CUcontext, CUctx_st, CUdevice, CUdevice_v1, CUresult, CUstream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Devices that are looked after; programs on further ones run as they are.
const DEVICES: usize = 16;
/// Rings of events that are held ready for streams that need one at a launch.
const READY_RINGS: usize = 4;

static COROUTINES: [Coroutine; DEVICES] = [const { Coroutine::none() }; DEVICES];

/// The streams that programs have made, by their handle.
pub(crate) static STREAMS: Handles<Logical> = Handles::new();

/// One device's primary context.
///
/// What a launch into the legacy stream touches comes first, together.
#[repr(C, align(64))]
pub(crate) struct Coroutine {
    context: AtomicPtr<CUctx_st>,
    /// Counts what is put into the legacy stream, so that blocking streams know whether there was anything.
    legacy_work: AtomicU64,
    /// Whether anything was put into a blocking stream since the legacy stream looked.
    pub(crate) blocking_work: AtomicBool,
    pub(crate) legacy: Logical,
    device: AtomicI32,
    /// How often the program holds the context.
    retained: Mutex<u64>,
    /// Counts how often the context came to be.
    era: AtomicU64,
    /// The context is going: nothing new is made for it.
    ending: AtomicBool,
    pub(crate) lanes: [Lane; LANES],
    /// Whether the lanes are made, and who waits for that.
    built: Mutex<bool>,
    building: Condvar,
    late: AtomicBool,
    named_lane: AtomicUsize,
    streams: Mutex<Vec<&'static Logical>>,
    rings: Mutex<Vec<Ring>>,
    beckoner: Mutex<Beckoner>,
    /// What kernels need that are launched in parts; NULL until it is made.
    controls: AtomicPtr<Controls>,
    ordering_rings: AtomicBool,
    /// How many streams are on a lane and not at home.
    pub(crate) away: AtomicUsize,
    pub(crate) moves: AtomicU64,
}

/// Whether any stream of this process can move.
#[inline]
pub(crate) fn active() -> bool {
    HOT.active.load(Ordering::Relaxed)
}

/// Run in a forked child.
pub(crate) fn deactivate() {
    HOT.active.store(false, Ordering::Relaxed);
}

/// The coroutine of a context; None for contexts that the program has made itself.
pub(crate) fn of(context: CUcontext) -> Option<&'static Coroutine> {
    if context.0.is_null() {
        return None;
    }
    let used = usize::from(HOT.coroutines.load(Ordering::Relaxed)).min(DEVICES);
    COROUTINES[..used].iter().find(|coroutine| coroutine.context().0 == context.0)
}

/// The coroutine of the calling thread's context.
pub(crate) fn current() -> Option<&'static Coroutine> {
    let mut context = CUcontext(null_mut());
    is_ok(cu!(cuCtxGetCurrent(&raw mut context))).then_some(())?;
    of(context)
}

/// All that there are or were.
pub(crate) fn all() -> impl Iterator<Item = &'static Coroutine> {
    COROUTINES.iter().filter(|coroutine| coroutine.era() != 0)
}

/// The one for a device; None where nobody decides about lanes, or there are too many devices.
fn on(device: CUdevice) -> Option<&'static Coroutine> {
    settings::get().binds().then_some(())?;
    COROUTINES.get(usize::try_from(device.0).ok()?)
}

/// The program has got hold of a device's primary context.
pub(crate) fn retained(device: CUdevice, context: CUcontext) {
    let Some(coroutine) = on(device) else { return };
    let mut retained = coroutine.retained();
    *retained += 1;
    if coroutine.context().0.is_null() {
        coroutine.begin(device, context);
    }
}

/// The program lets go of the primary context: if it is for the last time, what we made in it goes first.
pub(crate) fn releasing(device: CUdevice) {
    let Some(coroutine) = on(device) else { return };
    let mut retained = coroutine.retained();
    if *retained == 1 {
        coroutine.end();
    }
    *retained = retained.saturating_sub(1);
}

/// The program destroys everything in the primary context.
pub(crate) fn resetting(device: CUdevice) {
    if let Some(coroutine) = on(device) {
        let _retained = coroutine.retained();
        coroutine.end();
    }
}

impl Coroutine {
    const fn none() -> Self {
        Self {
            context: AtomicPtr::new(null_mut()),
            device: AtomicI32::new(0),
            retained: Mutex::new(0),
            era: AtomicU64::new(0),
            ending: AtomicBool::new(false),
            lanes: [const { Lane::none() }; LANES],
            built: Mutex::new(false),
            building: Condvar::new(),
            late: AtomicBool::new(false),
            named_lane: AtomicUsize::new(FULL),
            legacy: Logical::none(),
            streams: Mutex::new(Vec::new()),
            rings: Mutex::new(Vec::new()),
            beckoner: Mutex::new(Beckoner::none()),
            controls: AtomicPtr::new(null_mut()),
            ordering_rings: AtomicBool::new(false),
            legacy_work: AtomicU64::new(0),
            blocking_work: AtomicBool::new(false),
            away: AtomicUsize::new(0),
            moves: AtomicU64::new(0),
        }
    }

    fn retained(&self) -> MutexGuard<'_, u64> {
        self.retained.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&'static self, device: CUdevice, context: CUcontext) {
        self.ending.store(false, Ordering::Release);
        self.late.store(false, Ordering::Release);
        *self.built.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.device.store(device.0, Ordering::Relaxed);
        self.era.fetch_add(1, Ordering::Relaxed);
        self.legacy.prepare(self, Kind::Legacy, Kind::LEGACY_HANDLE, 0, Ring::none());
        HOT.coroutines.fetch_max(u8::try_from(device.0).map_or(0, |index| index + 1), Ordering::Relaxed);
        // Pairs with the acquire in `context`: who finds it finds the legacy stream prepared.
        self.context.store(context.0, Ordering::Release);
        gate::follow_schedule();
        HOT.active.store(true, Ordering::Release);
        // First: the daemon says which lanes there are.
        tenant::join(device);
        background::order(Task::Build(self));
        self.wait_for_lanes_to_be_made();
    }

    /// Making a lane waits for everything on the device and holds the driver meanwhile. A program that had a stream
    /// wait for its next call by then would wait for ever; so it gets its context when the lanes are there, and what
    /// is not made in time is not made at all.
    fn wait_for_lanes_to_be_made(&self) {
        const LONGEST: Duration = Duration::from_secs(1);
        let built = self.built.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.building.wait_timeout_while(built, LONGEST, |built| !*built);
        let in_time = *waited.unwrap_or_else(PoisonError::into_inner).0;
        if !in_time {
            self.late.store(true, Ordering::Release);
            log::line(format_args!("the lanes took too long to make: only those that are ready are used"));
        }
    }

    /// Whether no further lane is to be made.
    pub(crate) fn is_late(&self) -> bool {
        self.late.load(Ordering::Acquire) || self.is_ending()
    }

    /// The lanes are made.
    pub(crate) fn lanes_are_made(&self) {
        self.find_named_lane();
        if let Some(membership) = tenant::membership() {
            membership.page.set_widths(&self.lanes.each_ref().map(Lane::width));
        }
        *self.built.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.building.notify_all();
    }

    fn end(&'static self) {
        if self.context().0.is_null() {
            return;
        }
        self.ending.store(true, Ordering::Release);
        background::forget(self);
        let mut before = CUcontext(null_mut());
        cu!(cuCtxGetCurrent(&raw mut before));
        cu!(cuCtxSetCurrent(self.context()));
        graph::forget(self);
        block_level::forget(self);
        // Its modules go too.
        kernel::forget();
        watchdog::forget(self);
        STREAMS.remove_if(|logical| logical.belongs_to(self));
        let streams = core::mem::take(&mut *self.streams());
        for logical in streams.into_iter().chain([&self.legacy]) {
            for (_, stream) in logical.strip() {
                cu!(cuStreamDestroy_v2(stream));
            }
        }
        for lane in &self.lanes {
            lane.destroy();
        }
        for ring in self.rings.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            ring.destroy();
        }
        self.beckoner().end();
        self.away.store(0, Ordering::Relaxed);
        cu!(cuCtxSetCurrent(before));
        self.context.store(null_mut(), Ordering::Release);
    }

    /// The primary context; NULL as long as the program has none.
    pub(crate) fn context(&self) -> CUcontext {
        CUcontext(self.context.load(Ordering::Acquire))
    }

    pub(crate) fn era(&self) -> u64 {
        self.era.load(Ordering::Relaxed)
    }

    pub(crate) fn device(&self) -> CUdevice {
        CUdevice_v1(self.device.load(Ordering::Relaxed))
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Acquire)
    }

    /// The logical streams, other than the legacy one.
    pub(crate) fn streams(&self) -> MutexGuard<'_, Vec<&'static Logical>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that the legacy stream waits for.
    pub(crate) fn blocking_streams(&self) -> Vec<&'static Logical> {
        self.streams().iter().copied().filter(|logical| logical.kind().is_blocking()).collect()
    }

    /// How much was put into the legacy stream so far.
    pub(crate) fn legacy_work(&self) -> u64 {
        self.legacy_work.load(Ordering::Acquire)
    }

    /// Something was put into the legacy stream, whose lock is held: so nobody else counts.
    pub(crate) fn note_legacy_work(&self, _held: &State) {
        let work = self.legacy_work.load(Ordering::Relaxed);
        // Pairs with the acquire above.
        self.legacy_work.store(work + 1, Ordering::Release);
    }

    /// Launches of kernels and graphs on a lane. Streams that are just being used are left out: at exit their threads
    /// may never let go.
    pub(crate) fn launches(&self, lane: usize) -> u64 {
        let streams = self.streams.try_lock().map(|streams| streams.clone()).unwrap_or_default();
        let alive = streams.into_iter().chain([&self.legacy]).filter_map(Logical::try_lock);
        self.lanes[lane].launches() + alive.map(|state| state.launches()[lane]).sum::<u64>()
    }

    /// Looks after a stream that the program has just made in this context.
    pub(crate) fn adopt(&'static self, stream: CUstream, kind: Kind, priority: i32) {
        let ring = Ring::make().unwrap_or_else(Ring::none);
        let logical = STREAMS.insert(stream.0.addr(), |logical| {
            logical.prepare(self, kind, stream, priority, ring);
        });
        self.streams().push(logical);
    }

    /// A ring of events that was held ready.
    pub(crate) fn take_ring(&'static self) -> Option<Ring> {
        let mut rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let ring = rings.pop();
        let low = rings.is_empty();
        drop(rings);
        if low && !self.ordering_rings.swap(true, Ordering::AcqRel) {
            background::order(Task::Rings(self));
        }
        ring
    }

    pub(crate) fn beckoner(&self) -> MutexGuard<'_, Beckoner> {
        self.beckoner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What kernels need that are launched in parts, once it is made.
    pub(crate) fn controls(&self) -> Option<&'static Controls> {
        // SAFETY: NULL, or from `Controls::make`, which are never freed. Acquire: pairs with the release below.
        unsafe { self.controls.load(Ordering::Acquire).as_ref() }
    }

    /// The same, made now if it is not there. One thread at a time, in this context, in which nothing runs.
    pub(crate) fn make_controls(&self) -> Result<&'static Controls, String> {
        if let Some(controls) = self.controls() {
            return Ok(controls);
        }
        let made = Controls::make()?;
        self.controls.store(core::ptr::from_ref(made).cast_mut(), Ordering::Release);
        Ok(made)
    }

    /// The context, which is current, is going.
    pub(crate) fn drop_controls(&self) {
        if let Some(controls) = self.controls() {
            self.controls.store(null_mut(), Ordering::Release);
            controls.destroy();
        }
    }

    /// Whether none of its streams has anything left to do, as far as can be asked from here. The context is current.
    pub(crate) fn is_idle(&self) -> bool {
        let _relaxed = Relaxed::new();
        let streams: Vec<&'static Logical> = self.streams().clone();
        let is_done = |logical: &Logical| {
            let Some(state) = logical.try_lock() else { return false };
            // Of another thread's own stream nobody but that thread can ask.
            let cannot_be_asked = state.is_home() && logical.kind() == Kind::PerThread;
            cannot_be_asked || cu!(cuStreamQuery(state.handle())) != CUresult::CUDA_ERROR_NOT_READY
        };
        !bind::capturing() && streams.into_iter().all(is_done) && is_done(&self.legacy)
    }

    /// For the background thread.
    pub(crate) fn make_rings(&self) {
        self.ordering_rings.store(false, Ordering::Release);
        let missing = READY_RINGS.saturating_sub(self.rings.lock().unwrap_or_else(PoisonError::into_inner).len());
        for ring in (0..missing).filter_map(|_| Ring::make()) {
            self.rings.lock().unwrap_or_else(PoisonError::into_inner).push(ring);
        }
    }

    /// The lane that the schedule names, or `full`.
    pub(crate) fn named_lane(&self) -> usize {
        self.named_lane.load(Ordering::Relaxed)
    }

    /// Looks for it.
    fn find_named_lane(&self) {
        let Some(wanted) = settings::get().schedule.as_ref().and_then(Schedule::name) else { return };
        let found = self
            .lanes
            .iter()
            .enumerate()
            .position(|(index, lane)| lane.is_ready() && lane::name(index, lane) == wanted);
        if found.is_none() {
            log::line(format_args!("there is no lane {wanted}: everything runs on all SMs"));
        }
        self.named_lane.store(found.unwrap_or(FULL), Ordering::Relaxed);
    }

    /// Waits for what streams do on lanes: the driver's own waiting does not cover all of it.
    pub(crate) fn wait_for_lanes(&'static self) {
        if self.away.load(Ordering::Acquire) == 0 {
            return;
        }
        let streams: Vec<&'static Logical> = self.streams().iter().copied().chain([&self.legacy]).collect();
        for logical in streams {
            if let Some(physical) = logical.away_on() {
                cu!(cuStreamSynchronize(physical));
            }
        }
    }
}
