//! Executable graphs on lanes.
//!
//! The kernels of a graph run on the SMs of the context that they are bound to, whatever stream the graph is launched
//! into. So an executable gets a copy for each lane that is in use: the background thread binds the kernels of a
//! clone to the lane's context and instantiates it. A launch takes the copy if it is there and the original if not;
//! the stream stays where it is. What the program changes in its executable is changed in each copy.
//!
//! A long graph can also be launched in segments, so that the lane can change within it: each segment is a clone with
//! the other nodes left out, with copies of its own. One after the other in the stream they do what the graph does.
//!
//! A graph that cannot be cloned (with memory or conditional nodes) runs as it is, and is counted.

mod template;

pub(crate) use template::{bound, with_current};

use crate::background::{self, Task};
use crate::call::is_ok;
use crate::coroutine::Coroutine;
use crate::gate;
use crate::handles::Handles;
use crate::kernel;
use crate::lane::{FULL, LANES};
use crate::relaxed::Relaxed;
use crate::settings;
use crate::stream::{Logical, Ring};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use detshare_cuda::types::{CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphExec_st, CUgraphNode, CUstream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use template::{Template, bind, cut, update_from};

/// The program's executable graphs, by their handle.
pub(crate) static EXECUTABLES: Handles<Copies> = Handles::new();

/// Graphs that have a copy on a lane, and that cannot have one.
pub(crate) static COPIES_MADE: AtomicU64 = AtomicU64::new(0);
pub(crate) static NOT_COPIED: AtomicU64 = AtomicU64::new(0);

/// An executable graph and its copies.
pub(crate) struct Copies {
    coroutine: AtomicPtr<Coroutine>,
    ready: [AtomicPtr<CUgraphExec_st>; LANES],
    ordered: [AtomicBool; LANES],
    /// Whether there ever was a copy: only then launches must be ordered by us.
    any: AtomicBool,
    /// The segments that it can be launched in, with the handles that they are found by.
    segments: Mutex<Vec<(usize, &'static Copies)>>,
    template: Mutex<Template>,
    last: Mutex<Last>,
}

/// The launch before. The driver lets one executable run once at a time; copies of it would run side by side.
struct Last {
    stream: *const Logical,
    /// Whose copy it was, [`FULL`] for the original.
    lane: usize,
    /// Recorded behind it, where it is launched into more than one stream.
    event: Option<CUevent>,
    shared: bool,
    ring: Ring,
}

// SAFETY: handles of the driver, which any thread may use, and an address that is only compared.
unsafe impl Send for Last {}

impl Default for Copies {
    fn default() -> Self {
        Self {
            coroutine: AtomicPtr::new(null_mut()),
            ready: [const { AtomicPtr::new(null_mut()) }; LANES],
            ordered: [const { AtomicBool::new(false) }; LANES],
            any: AtomicBool::new(false),
            segments: Mutex::new(Vec::new()),
            template: Mutex::new(Template::none()),
            last: Mutex::new(Last {
                stream: core::ptr::null(),
                lane: FULL,
                event: None,
                shared: false,
                ring: Ring::none(),
            }),
        }
    }
}

impl Copies {
    fn template(&self) -> MutexGuard<'_, Template> {
        self.template.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn copy(&self, lane: usize) -> Option<CUgraphExec> {
        // There is none for launches in segments.
        let copy = self.ready.get(lane)?.load(Ordering::Acquire);
        (!copy.is_null()).then_some(CUgraphExec(copy))
    }

    fn copies(&self) -> impl Iterator<Item = (usize, CUgraphExec)> {
        (0..LANES).filter_map(|lane| Some((lane, self.copy(lane)?)))
    }

    /// Makes the copy for a lane. For the background thread.
    pub(crate) fn make(&'static self, handle: usize, coroutine: &'static Coroutine, lane: usize) {
        let template = self.template();
        // Destroying takes the same lock, after it has forgotten the handle.
        let alive = EXECUTABLES.find(handle).is_some_and(|found| core::ptr::eq(found, self));
        if !alive || template.graph.0.is_null() || template.closed || self.copy(lane).is_some() {
            return;
        }
        cu!(cuCtxSetCurrent(coroutine.lanes[lane].context()));
        let made = template.instantiate(coroutine, lane);
        cu!(cuCtxSetCurrent(coroutine.context()));
        match made {
            Some(copy) => {
                if !self.any.load(Ordering::Relaxed) {
                    let Some(ring) = Ring::make() else {
                        cu!(cuGraphExecDestroy(copy));
                        return;
                    };
                    self.last().ring = ring;
                }
                self.any.store(true, Ordering::Release);
                // Pairs with the acquire in `copy`.
                self.ready[lane].store(copy.0, Ordering::Release);
                COPIES_MADE.fetch_add(1, Ordering::Relaxed);
            }
            None => _ = NOT_COPIED.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Has the copy for a lane made, once.
    fn order(&'static self, handle: usize, coroutine: &'static Coroutine, lane: usize) {
        if !self.ordered[lane].swap(true, Ordering::AcqRel) {
            background::order(Task::Copy { coroutine, copies: self, handle, lane });
        }
    }

    /// The executable to launch on a lane, behind the launch before if that was another one in another stream.
    /// What it was is noted by [`launched`](Self::launched).
    pub(crate) fn pick(
        &'static self,
        original: CUgraphExec,
        coroutine: &'static Coroutine,
        lane: usize,
        logical: &'static Logical,
        at: CUstream,
    ) -> Picked {
        let mut copy = self.copy(lane);
        if lane != FULL && copy.is_none() {
            self.order(original.0.addr(), coroutine, lane);
        }
        if self.any.load(Ordering::Acquire) {
            let mut last = self.last();
            let taken = copy.map_or(FULL, |_| lane);
            if !last.stream.is_null() && !core::ptr::eq(last.stream, logical) {
                last.shared = true;
                if taken != last.lane {
                    match last.event {
                        Some(event) => _ = cu!(cuStreamWaitEvent(at, event, 0)),
                        // The same one again: the driver sees to the order.
                        None if last.lane == FULL => copy = None,
                        None => {
                            return Picked { executable: self.copy(last.lane).unwrap_or(original), lane: last.lane };
                        }
                    }
                }
            }
        }
        match copy {
            Some(copy) => Picked { executable: copy, lane },
            None => Picked { executable: original, lane: FULL },
        }
    }

    /// Notes a launch on a lane, or in segments.
    pub(crate) fn launched(&self, lane: usize, logical: &'static Logical, at: CUstream) {
        let mut last = self.last();
        last.event = if last.shared || lane == IN_SEGMENTS { last.ring.record(at) } else { None };
        last.stream = logical;
        last.lane = lane;
    }

    /// The segments to launch instead of the whole, each on a lane of its own choice, behind the launch before if that
    /// was in another stream; None if there are none, or not all are ready.
    pub(crate) fn pick_segments(
        &self,
        coroutine: &'static Coroutine,
        logical: &'static Logical,
        at: CUstream,
    ) -> Option<Vec<Picked>> {
        let segments = self.segments();
        if segments.is_empty() {
            return None;
        }
        let picked: Option<Vec<Picked>> = segments
            .iter()
            .map(|(handle, segment)| {
                let lane = gate::lane(coroutine);
                if let Some(executable) = segment.copy(lane) {
                    return Some(Picked { executable, lane });
                }
                segment.order(*handle, coroutine, lane);
                segment.copy(FULL).map(|executable| Picked { executable, lane: FULL })
            })
            .collect();
        drop(segments);
        let picked = picked?;
        let mut last = self.last();
        if !core::ptr::eq(last.stream, logical) && !last.stream.is_null() {
            last.shared = true;
            cu!(cuStreamWaitEvent(at, last.event?, 0));
        }
        if last.ring.is_none() {
            last.ring = coroutine.take_ring()?;
            self.any.store(true, Ordering::Release);
        }
        Some(picked)
    }

    fn segments(&self) -> MutexGuard<'_, Vec<(usize, &'static Self)>> {
        self.segments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn drop_segments(&self) {
        let segments = core::mem::take(&mut *self.segments());
        for (handle, segment) in segments {
            EXECUTABLES.remove(handle);
            segment.destroy();
        }
    }

    fn has(&self, node: CUgraphNode) -> bool {
        self.template().nodes.contains_key(&node.0.addr())
    }

    /// Does the same to each copy as was done to the original; a copy that will not follow goes.
    pub(crate) fn follow(
        &self,
        node: CUgraphNode,
        change: &dyn Fn(CUgraphExec, CUgraphNode, CUcontext) -> bool,
        template_change: &dyn Fn(CUgraphNode) -> bool,
    ) {
        let segments = self.segments();
        if let Some((_, segment)) = segments.iter().find(|(_, segment)| segment.has(node)) {
            segment.follow(node, change, template_change);
        }
        drop(segments);
        let mut template = self.template();
        let Some(coroutine) = self.coroutine() else { return };
        let own = template.nodes.get(&node.0.addr()).copied();
        for (lane, copy) in self.copies() {
            if !own.is_some_and(|own| change(copy, own, coroutine.lanes[lane].context())) {
                self.drop_copy(lane);
            }
        }
        if template.basis.is_some() || !own.is_some_and(template_change) {
            template.closed = true;
        }
    }

    /// A node was switched on or off.
    pub(crate) fn switch(&self, node: CUgraphNode, on: bool) {
        let segments = self.segments();
        if let Some((_, segment)) = segments.iter().find(|(_, segment)| segment.has(node)) {
            segment.switch(node, on);
        }
        drop(segments);
        let mut template = self.template();
        let Some(own) = template.nodes.get(&node.0.addr()).copied() else { return };
        for (lane, copy) in self.copies() {
            if !is_ok(cu!(cuGraphNodeSetEnabled(copy, own, u32::from(on)))) {
                self.drop_copy(lane);
            }
        }
        if on {
            template.disabled.remove(&own.0.addr());
        } else {
            template.disabled.insert(own.0.expose_provenance());
        }
    }

    /// The original was updated from a graph. It is launched as a whole from then on.
    pub(crate) fn update(&self, graph: CUgraph) {
        self.drop_segments();
        let mut template = self.template();
        let Some(coroutine) = self.coroutine() else { return };
        let updated = Template::of(graph, 0, coroutine);
        for (lane, copy) in self.copies() {
            let context = coroutine.lanes[lane].context();
            let followed = updated.as_ref().is_some_and(|updated| {
                with_current(context, || bind(&updated.kernels, context)).is_some()
                    && is_ok(update_from(copy, updated.graph))
            });
            if !followed {
                self.drop_copy(lane);
            }
        }
        if let Some((before, _)) = template.basis.take() {
            cu!(cuGraphDestroy(before));
        }
        match updated {
            Some(updated) => {
                template.basis = Some((updated.graph, updated.kernels));
                template.closed = false;
            }
            None => template.closed = true,
        }
    }

    fn coroutine(&self) -> Option<&'static Coroutine> {
        // SAFETY: NULL, or one of the coroutines, which are static.
        unsafe { self.coroutine.load(Ordering::Relaxed).as_ref() }
    }

    fn drop_copy(&self, lane: usize) {
        let copy = CUgraphExec(self.ready[lane].swap(null_mut(), Ordering::AcqRel));
        if copy.0.is_null() {
            return;
        }
        let mut last = self.last();
        if last.lane == lane && last.event.is_none() {
            // What comes next could not be put behind it any more.
            let _relaxed = Relaxed::new();
            cu!(cuCtxSynchronize());
            last.lane = FULL;
        }
        drop(last);
        cu!(cuGraphExecDestroy(copy));
        NOT_COPIED.fetch_add(1, Ordering::Relaxed);
    }

    fn destroy(&self) {
        self.drop_segments();
        let mut template = self.template();
        for copy in &self.ready {
            let copy = CUgraphExec(copy.swap(null_mut(), Ordering::AcqRel));
            if !copy.0.is_null() {
                cu!(cuGraphExecDestroy(copy));
            }
        }
        template.destroy();
        let mut last = self.last();
        core::mem::replace(&mut last.ring, Ring::none()).destroy();
        (last.stream, last.lane, last.event, last.shared) = (core::ptr::null(), FULL, None, false);
    }
}

/// In place of a lane: the launch was in segments.
pub(crate) const IN_SEGMENTS: usize = LANES;

/// What a launch takes.
pub(crate) struct Picked {
    pub(crate) executable: CUgraphExec,
    pub(crate) lane: usize,
}

/// Looks after an executable that the program has just made; copies for the lanes in use are ordered at once.
pub(crate) fn adopt(executable: CUgraphExec, graph: CUgraph, flags: u64, coroutine: &'static Coroutine) {
    let template = Template::of(graph, flags, coroutine);
    if template.is_none() {
        NOT_COPIED.fetch_add(1, Ordering::Relaxed);
    }
    let copyable = template.is_some();
    let copies = insert(executable.0.addr(), template, coroutine, &[FULL]);
    if let Some(size) = settings::get().segment
        && copyable
        && let Some(templates) = cut(graph, flags, coroutine, size)
    {
        let segments = templates.into_iter().map(|template| {
            // No address of the driver's is so high.
            static NEXT: AtomicUsize = AtomicUsize::new(usize::MAX << 48);
            const STEP: usize = 16;
            let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
            let segment = insert(handle, Some(template), coroutine, &[]);
            segment.order(handle, coroutine, FULL);
            (handle, segment)
        });
        *copies.segments() = segments.collect();
    }
}

/// Gives an executable its place. Copies for some lanes are never made.
fn insert(
    handle: usize,
    template: Option<Template>,
    coroutine: &'static Coroutine,
    never: &[usize],
) -> &'static Copies {
    let copyable = template.is_some();
    let copies = EXECUTABLES.insert(handle, |copies| {
        *copies.template() = template.unwrap_or_else(Template::none);
        copies.coroutine.store((&raw const *coroutine).cast_mut(), Ordering::Relaxed);
        copies.any.store(false, Ordering::Relaxed);
        for lane in 0..LANES {
            copies.ordered[lane].store(!copyable || never.contains(&lane), Ordering::Relaxed);
        }
    });
    for lane in (0..LANES).filter(|lane| coroutine.lanes[*lane].is_in_use()) {
        copies.order(handle, coroutine, lane);
    }
    copies
}

/// The program's executable is about to go.
pub(crate) fn abandon(executable: CUgraphExec) {
    kernel::forget_graph(executable);
    if let Some(copies) = EXECUTABLES.remove(executable.0.addr()) {
        copies.destroy();
    }
}

/// The context is going, and all its executables.
pub(crate) fn forget(coroutine: &'static Coroutine) {
    let of_it = |copies: &'static Copies| copies.coroutine().is_some_and(|other| core::ptr::eq(other, coroutine));
    EXECUTABLES.remove_if(of_it).into_iter().for_each(Copies::destroy);
}
