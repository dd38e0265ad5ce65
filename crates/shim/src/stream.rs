//! Logical streams: where a stream of the program is at the moment, and how it gets elsewhere.
//!
//! A logical stream's *home* is the driver's own stream whose handle the program holds; it lies on the whole GPU.
//! On each lane it can have a physical stream of its own. At any time it is at one *place*, home or one of those,
//! and everything before has been made to happen before: going from one place to another is an event recorded there
//! and waited for here. So handles stay the driver's, and a call that knows nothing of lanes finds all earlier work
//! before it, if the stream goes home first.
//!
//! The legacy stream waits for blocking streams and they for it. Between homes the driver sees to that. Where one of
//! them is away, its place is waited for by event; where it is at home and the other is away, the other waits for an
//! event in its own home, which the driver has put behind. Lock order: the legacy stream first, then a blocking one.

use crate::background::{self, Task};
use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::flight::Flight;
use crate::lane::{FULL, LANES};
use crate::tenant;
use crate::unfinished::{Link, Linked};
use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};
use core::time::Duration;
use detshare_cuda::types::{CUevent, CUevent_flags, CUstream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Which of the driver's rules a stream follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    NonBlocking,
    Blocking,
    /// A thread's default stream: blocking, and its handle means something in that thread alone.
    PerThread,
    Legacy,
}

impl Kind {
    pub(crate) const LEGACY_HANDLE: CUstream = CUstream(core::ptr::without_provenance_mut(1));
    pub(crate) const PER_THREAD_HANDLE: CUstream = CUstream(core::ptr::without_provenance_mut(2));

    /// Whether it and the legacy stream wait for each other.
    pub(crate) fn is_blocking(self) -> bool {
        matches!(self, Self::Blocking | Self::PerThread)
    }
}

/// One stream as the program knows it.
///
/// What a launch on the whole GPU touches comes first, together.
#[repr(C)]
pub(crate) struct Logical {
    coroutine: AtomicPtr<Coroutine>,
    kind: AtomicU8,
    state: Mutex<State>,
    /// How much of the legacy stream's work this one is ordered behind.
    legacy_seen: AtomicU64,
    /// The context's, which may have gone and come back.
    era: AtomicU64,
    /// The last call under way has come back.
    unpinned: Condvar,
    /// Its place among those whose launches are not known to be finished.
    link: Link<Self>,
}

impl Linked for Logical {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

/// Where it is.
#[repr(C)]
pub(crate) struct State {
    pub(crate) home: CUstream,
    /// Calls under way at the present place, by threads that do not hold the lock meanwhile: it stays there.
    pub(crate) pins: u32,
    /// Threads that wait until there are none.
    movers: u16,
    /// A thread is launching a kernel in parts: nobody else's work comes in between.
    occupied: bool,
    /// How many launches are still to be made without waiting for what is before them.
    pub(crate) unready: u32,
    /// The lane whose stream it is on; None at home.
    place: Option<u8>,
    /// Whether anything was put into it since the legacy stream looked.
    new_work: bool,
    /// Whether it has work of a step that is not known to be finished.
    pub(crate) unfinished: bool,
    /// How often work was put in.
    pub(crate) entries: u32,
    /// Kernels launched on each lane.
    launches: [u64; LANES],
    physical: [CUstream; LANES],
    ring: Ring,
    pub(crate) flight: Flight,
    priority: c_int,
    /// Whether the program has given it attributes, which its physical streams then have too.
    attributed: bool,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for State {}

/// Events to move with. One that is recorded anew while it is still waited for costs the driver more than another.
pub(crate) struct Ring {
    events: [CUevent; Self::EVENTS],
    next: usize,
}

// SAFETY: handles of the driver, which any thread may use.
unsafe impl Send for Ring {}

impl Ring {
    const EVENTS: usize = 8;

    pub(crate) const fn none() -> Self {
        Self { events: [CUevent(null_mut()); Self::EVENTS], next: 0 }
    }

    /// Fresh events in the current context.
    pub(crate) fn make() -> Option<Self> {
        let mut ring = Self::none();
        for event in &mut ring.events {
            if !is_ok(cu!(cuEventCreate(event, CUevent_flags::CU_EVENT_DISABLE_TIMING.0))) {
                ring.destroy();
                return None;
            }
        }
        Some(ring)
    }

    pub(crate) fn destroy(self) {
        for event in self.events.into_iter().filter(|event| !event.0.is_null()) {
            cu!(cuEventDestroy_v2(event));
        }
    }

    pub(crate) fn is_none(&self) -> bool {
        self.events[0].0.is_null()
    }

    /// Records the next event there; None if there is none, or the driver will not.
    pub(crate) fn record(&mut self, at: CUstream) -> Option<CUevent> {
        let event = self.events[self.next];
        self.next = (self.next + 1) % Self::EVENTS;
        (!event.0.is_null() && is_ok(cu!(cuEventRecord(event, at)))).then_some(event)
    }
}

impl Default for Logical {
    fn default() -> Self {
        Self::none()
    }
}

impl Logical {
    pub(crate) const fn none() -> Self {
        Self {
            kind: AtomicU8::new(0),
            coroutine: AtomicPtr::new(null_mut()),
            era: AtomicU64::new(0),
            legacy_seen: AtomicU64::new(0),
            state: Mutex::new(State {
                home: CUstream(null_mut()),
                priority: 0,
                place: None,
                physical: [CUstream(null_mut()); LANES],
                launches: [0; LANES],
                ring: Ring::none(),
                flight: Flight::none(),
                attributed: false,
                pins: 0,
                movers: 0,
                occupied: false,
                unready: 0,
                new_work: false,
                unfinished: false,
                entries: 0,
            }),
            unpinned: Condvar::new(),
            link: Link::new(),
        }
    }

    /// Makes it stand for a stream. What it had is gone already.
    pub(crate) fn prepare(
        &self,
        coroutine: &'static Coroutine,
        kind: Kind,
        home: CUstream,
        priority: c_int,
        ring: Ring,
    ) {
        let mut state = self.lock();
        self.kind.store(kind as u8, Ordering::Relaxed);
        self.coroutine.store((&raw const *coroutine).cast_mut(), Ordering::Relaxed);
        self.era.store(coroutine.era(), Ordering::Relaxed);
        self.legacy_seen.store(0, Ordering::Relaxed);
        *state = State {
            home,
            priority,
            place: None,
            physical: [CUstream(null_mut()); LANES],
            launches: [0; LANES],
            ring,
            flight: Flight::none(),
            attributed: false,
            pins: 0,
            // They wait for what the handle stood for before, and are still to be woken.
            movers: state.movers,
            occupied: false,
            unready: 0,
            new_work: false,
            unfinished: false,
            // Nobody is to take what the handle stood for before for this.
            entries: state.entries.wrapping_add(1),
        };
    }

    pub(crate) fn kind(&self) -> Kind {
        match self.kind.load(Ordering::Relaxed) {
            0 => Kind::NonBlocking,
            1 => Kind::Blocking,
            2 => Kind::PerThread,
            _ => Kind::Legacy,
        }
    }

    pub(crate) fn priority(&self) -> c_int {
        self.lock().priority
    }

    pub(crate) fn coroutine(&self) -> Option<&'static Coroutine> {
        // SAFETY: NULL, or one of the coroutines, which are static.
        unsafe { self.coroutine.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether it is a stream of that context, as it is now.
    pub(crate) fn belongs_to(&self, coroutine: &Coroutine) -> bool {
        core::ptr::eq(self.coroutine.load(Ordering::Relaxed), coroutine)
            && self.era.load(Ordering::Relaxed) == coroutine.era()
    }

    /// The lock, if nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        self.state.try_lock().ok()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for a piece of work, ordered behind what the driver's rules put before it.
    pub(crate) fn begin(&'static self) -> MutexGuard<'static, State> {
        let Some(coroutine) = self.coroutine() else { return self.lock() };
        let begun = match self.kind() {
            Kind::NonBlocking => Some(self.vacant()),
            Kind::Legacy => self.begin_legacy(coroutine),
            Kind::Blocking | Kind::PerThread => self.begin_blocking(coroutine),
        };
        begun.unwrap_or_else(|| self.begin_later(coroutine))
    }

    /// The other side of the legacy stream's implicit order is being launched in parts: all of them come before this. Looked at
    /// now and then, so that whoever launches in parts, which is rare and takes long, need not wake anybody.
    #[cold]
    fn begin_later(&'static self, coroutine: &'static Coroutine) -> MutexGuard<'static, State> {
        const AGAIN: Duration = Duration::from_micros(50);
        loop {
            std::thread::sleep(AGAIN);
            let begun = match self.kind() {
                Kind::NonBlocking => Some(self.vacant()),
                Kind::Legacy => self.begin_legacy(coroutine),
                Kind::Blocking | Kind::PerThread => self.begin_blocking(coroutine),
            };
            if let Some(state) = begun {
                return state;
            }
        }
    }

    /// None if a blocking stream is occupied.
    fn begin_legacy(&'static self, coroutine: &'static Coroutine) -> Option<MutexGuard<'static, State>> {
        let mut state = self.vacant();
        // First: a blocking stream that is about to be occupied sees this, or is seen to be occupied.
        coroutine.note_legacy_work(&state);
        state.order_behind_blocking_streams(coroutine).then_some(state)
    }

    /// None if one of the two is occupied.
    fn begin_blocking(&'static self, coroutine: &'static Coroutine) -> Option<MutexGuard<'static, State>> {
        let work = coroutine.legacy_work();
        if self.legacy_seen.load(Ordering::Relaxed) == work {
            let mut state = self.vacant();
            // Seen by whoever looks at this stream after it has noted work in the legacy one.
            state.note_work(coroutine);
            if coroutine.legacy_work() == work {
                return Some(state);
            }
        }
        let mut legacy = coroutine.legacy.lock();
        if legacy.occupied {
            return None;
        }
        let mut state = self.lock();
        if state.occupied {
            return None;
        }
        state.order_behind_legacy(&mut legacy);
        self.legacy_seen.store(coroutine.legacy_work(), Ordering::Relaxed);
        state.note_work(coroutine);
        Some(state)
    }

    /// The lock, once nobody launches in parts.
    fn vacant(&self) -> MutexGuard<'_, State> {
        let state = self.lock();
        if state.occupied { self.until_vacant(state) } else { state }
    }

    #[cold]
    fn until_vacant<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        self.unpinned.wait_while(state, |state| state.occupied).unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps all others out of the stream, whose lock is held, until [`vacate`](Self::vacate). Whoever occupies it takes
    /// the lock by [`lock`](Self::lock), for each part, and holds it no longer.
    pub(crate) fn occupy(state: &mut State) {
        state.occupied = true;
    }

    pub(crate) fn vacate(&self) {
        self.lock().occupied = false;
        self.unpinned.notify_all();
    }

    /// Waits until no other thread is putting work in where the stream is away. What such a call waits for, this
    /// thread's next work in the same stream would have to wait for too.
    pub(crate) fn until_it_can_move<'s>(&'s self, mut state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        let is_held = |state: &mut State| state.place.is_some() && state.pins > 0;
        if is_held(&mut state) {
            state.movers = state.movers.saturating_add(1);
            state = self.unpinned.wait_while(state, is_held).unwrap_or_else(PoisonError::into_inner);
            state.movers = state.movers.saturating_sub(1);
        }
        state
    }

    /// Ends a piece of work that was done without the lock.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.pins = state.pins.saturating_sub(1);
        // Waking is a system call even where nobody waits.
        if state.pins == 0 && state.movers > 0 {
            self.unpinned.notify_all();
        }
        let Some(coroutine) = self.coroutine() else { return };
        match self.kind() {
            Kind::NonBlocking => {}
            Kind::Legacy => coroutine.note_legacy_work(&state),
            Kind::Blocking | Kind::PerThread => state.note_work(coroutine),
        }
    }

    /// The lane's stream that it is on, if it is not at home.
    pub(crate) fn away_on(&self) -> Option<CUstream> {
        let state = self.lock();
        state.place.map(|lane| state.physical[usize::from(lane)])
    }

    /// Takes its physical streams and events away from it, by lane.
    pub(crate) fn strip(&self) -> Vec<(usize, CUstream)> {
        let mut state = self.lock();
        // Nobody asks the driver about it any more.
        state.unfinished = false;
        if state.place.take().is_some()
            && let Some(coroutine) = self.coroutine()
        {
            coroutine.away.fetch_sub(1, Ordering::AcqRel);
        }
        if let Some(coroutine) = self.coroutine() {
            for (lane, launches) in coroutine.lanes.iter().zip(core::mem::take(&mut state.launches)) {
                lane.add_launches(launches);
            }
        }
        core::mem::replace(&mut state.ring, Ring::none()).destroy();
        state.flight.end();
        let physical = core::mem::replace(&mut state.physical, [CUstream(null_mut()); LANES]);
        physical.into_iter().enumerate().filter(|(_, stream)| !stream.0.is_null()).collect()
    }

    /// The program has given the stream attributes, at home: its physical ones get the same.
    pub(crate) fn give_attributes(&self) {
        let mut state = self.lock();
        state.attributed = true;
        for stream in state.physical.iter().filter(|stream| !stream.0.is_null()) {
            cu!(cuStreamCopyAttributes(*stream, state.home));
        }
    }

    /// The program's stream is gone: its physical ones go back to their lanes when they have done their work.
    pub(crate) fn retire(&'static self) {
        let Some(coroutine) = self.coroutine() else { return };
        coroutine.streams().retain(|other| !core::ptr::eq(*other, self));
        let (priority, attributed) = {
            let state = self.lock();
            (state.priority, state.attributed)
        };
        let streams = self.strip();
        if attributed {
            // Nobody else wants the attributes. What they have to do is done all the same.
            for (_, stream) in streams {
                cu!(cuStreamDestroy_v2(stream));
            }
        } else if !streams.is_empty() {
            background::order(Task::Rest { coroutine, priority, streams });
        }
    }

    /// Goes to a lane for a launch, if that can be done now; otherwise stays where it is.
    #[inline]
    pub(crate) fn go(&self, state: &mut State, coroutine: &'static Coroutine, lane: usize) {
        if lane != FULL || state.place.is_some() || self.kind() == Kind::PerThread {
            self.go_elsewhere(state, coroutine, lane);
        }
    }

    #[inline(never)]
    fn go_elsewhere(&self, state: &mut State, coroutine: &'static Coroutine, lane: usize) {
        // A thread's own stream at home cannot be asked by other threads whether it is done, which tenants want to know.
        let home_will_do = self.kind() != Kind::PerThread || tenant::membership().is_none();
        if state.pins > 0
            || state.place.map(usize::from) == Some(lane)
            || (lane == FULL && state.place.is_none() && home_will_do)
        {
            return;
        }
        // Its home is as good as any other stream on the whole GPU, but the legacy stream's is slow to record in.
        if lane == FULL && self.kind() != Kind::Legacy && home_will_do {
            state.go_home(coroutine);
            return;
        }
        if state.ring.is_none() {
            let Some(ring) = coroutine.take_ring() else { return };
            state.ring = ring;
        }
        if state.physical[lane].0.is_null() {
            let Some(stream) = coroutine.lanes[lane].take(coroutine, lane, state.priority) else {
                if lane == FULL {
                    state.go_home(coroutine);
                }
                return;
            };
            if state.attributed {
                cu!(cuStreamCopyAttributes(stream, state.home));
            }
            state.physical[lane] = stream;
        }
        state.move_to(coroutine, Some(lane));
    }
}

impl State {
    /// The driver's stream where it is now.
    pub(crate) fn handle(&self) -> CUstream {
        self.at(self.place.map(usize::from))
    }

    pub(crate) fn is_home(&self) -> bool {
        self.place.is_none()
    }

    /// The lane that it is on.
    pub(crate) fn lane(&self) -> usize {
        self.place.map_or(FULL, usize::from)
    }

    /// Counts a kernel where the stream is.
    pub(crate) fn note_launch(&mut self, coroutine: &Coroutine) {
        let lane = self.lane();
        self.launches[lane] += 1;
        if lane != FULL {
            coroutine.lanes[lane].note_use();
        }
    }

    /// Kernels launched on each lane.
    pub(crate) fn launches(&self) -> &[u64; LANES] {
        &self.launches
    }

    fn at(&self, place: Option<usize>) -> CUstream {
        place.map_or(self.home, |lane| self.physical[lane])
    }

    /// Goes home. Where the driver will not have it, the stream is home all the same: what the program calls there
    /// next is answered with the driver's reason.
    pub(crate) fn go_home(&mut self, coroutine: &Coroutine) {
        if self.place.is_some() && !self.move_to(coroutine, None) {
            self.place = None;
            coroutine.away.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn move_to(&mut self, coroutine: &Coroutine, to: Option<usize>) -> bool {
        let from = self.handle();
        let Some(event) = self.ring.record(from) else { return false };
        if !is_ok(cu!(cuStreamWaitEvent(self.at(to), event, 0))) {
            return false;
        }
        match (self.place, to) {
            (None, Some(_)) => _ = coroutine.away.fetch_add(1, Ordering::AcqRel),
            (Some(_), None) => _ = coroutine.away.fetch_sub(1, Ordering::AcqRel),
            _ => {}
        }
        self.place = to.and_then(|lane| u8::try_from(lane).ok());
        coroutine.moves.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A blocking stream has got work.
    fn note_work(&mut self, coroutine: &Coroutine) {
        self.new_work = true;
        if !coroutine.blocking_work.load(Ordering::Relaxed) {
            coroutine.blocking_work.store(true, Ordering::Release);
        }
    }

    /// For the legacy stream: behind everything that blocking streams have been given. Says whether that could be done: not
    /// behind a kernel that is being launched in parts.
    fn order_behind_blocking_streams(&mut self, coroutine: &'static Coroutine) -> bool {
        if !coroutine.blocking_work.load(Ordering::Acquire) {
            return true;
        }
        coroutine.blocking_work.store(false, Ordering::Release);
        let (mut through_home, mut is_possible) = (false, true);
        let streams = coroutine.streams();
        for logical in streams.iter().filter(|it| it.kind().is_blocking()) {
            let mut other = logical.lock();
            if other.occupied {
                coroutine.blocking_work.store(true, Ordering::Release);
                is_possible = false;
                continue;
            }
            if !core::mem::take(&mut other.new_work) {
                continue;
            }
            if other.is_home() {
                through_home = true;
                continue;
            }
            let handle = other.handle();
            if let Some(event) = other.ring.record(handle) {
                cu!(cuStreamWaitEvent(self.handle(), event, 0));
            }
        }
        drop(streams);
        if through_home {
            self.order_behind_home();
        }
        is_possible
    }

    /// Behind what the driver puts before the next work at home.
    fn order_behind_home(&mut self) {
        if !self.is_home()
            && let Some(event) = self.ring.record(self.home)
        {
            cu!(cuStreamWaitEvent(self.handle(), event, 0));
        }
    }

    /// For a blocking stream: behind everything that the legacy stream has been given.
    fn order_behind_legacy(&mut self, legacy: &mut State) {
        if legacy.is_home() {
            self.order_behind_home();
            return;
        }
        let handle = legacy.handle();
        if let Some(event) = legacy.ring.record(handle) {
            cu!(cuStreamWaitEvent(self.handle(), event, 0));
        }
    }
}
