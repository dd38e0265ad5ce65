//! Persistent blocks: stopped in the middle of a kernel, and launched again.
//!
//! The launch call stays with its kernel. It stops it when the policy would hold it if it were to begin now; and the kernel itself
//! looks at the step words of latency tenants that it would have to give way to (`sight`), so that it ends whether or not this thread runs.
//! Either way the call holds at the gate and goes on with the same counter.

use super::conduct::Conduct;
use super::control::{Control, STOP};
use super::loaded::Launchable;
use super::packed::Packed;
use super::parts::{BY_OTHERS, Job, LET_GO, PREEMPTIBLE, Request, STOPPED, note};
use super::report;
use super::sight::Owner;
use super::waiting::{Waited, nanoseconds};
use crate::call::{elapsed, is_ok};
use crate::gate::{self, Part, PartPassed};
use crate::lane::FULL;
use crate::relaxed::Relaxed;
use crate::tenant;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use detshare_board::{SLOTS, clock};
use detshare_cuda::types::{CUfunction, CUresult};
use detshare_policy::block_level::Ended;
use detshare_ptx::block_level::{Division, Persistent};

/// Once it may run, it runs for so long at least, whatever happens meanwhile.
const LEAST_NS: u64 = 1_000_000;

/// Tenants whose steps stop a part, by the bits of their slots, and where the GPU finds their words; 0 is none.
#[derive(Default)]
struct Others {
    slots: u64,
    words: [u64; 3],
}

/// What is lost at least between the host and the GPU, in nanoseconds: from putting blocks into the stream until they begin, and
/// from their end until the host has noticed.
static LEAST_LOST_NS: AtomicU64 = AtomicU64::new(u64::MAX);

/// How watching persistent blocks ended, when it began, when we stopped them if we did, and when they were known to be over.
struct Watched {
    waited: Waited,
    started: u64,
    stopped: Option<u64>,
    noticed: u64,
}

impl Watched {
    /// How long it was until they gave way: since we stopped them, or another tenant's step did.
    fn gave_way_ns(&self, others: &Others, put_in_ns: u64, ran: Duration) -> Option<u64> {
        let ended = Ended { put_in_ns, ran_ns: nanoseconds(ran), noticed_ns: self.noticed };
        let lost = ended.lost_ns();
        let least = LEAST_LOST_NS.fetch_min(lost, Ordering::Relaxed).min(lost);
        let asked = self.stopped.into_iter().chain(gate::begun_since(others.slots, self.started)).min()?;
        Some(ended.over_ns(least).saturating_sub(asked))
    }
}

impl Job<'_> {
    pub(super) fn preemptibly(&self, conduct: &Conduct<'_>) -> Option<CUresult> {
        let Launchable { function, work_offset, .. } = self.versions.preemptible(self.request.shape)?;
        let mut arguments =
            Packed::new(self.request.arguments, self.versions.layout()?, work_offset, size_of::<Persistent>())?;
        let control = self.controls.take()?;
        let [end, start, stopped] = control.events();
        let work = Persistent {
            grid: self.request.shape.grid,
            blocks: self.blocks,
            next: control.counter().0,
            flags: [control.flag(), 0, 0, 0],
            mask: STOP,
            _pad: 0,
            division: Division::of(self.request.shape.grid),
        };
        let _relaxed = Relaxed::new();
        let (mut passed, mut state, _occupied) = self.first(conduct)?;
        let (mut is_first, mut stops, mut took) = (true, 0, Some(Duration::ZERO));
        let (mut reached, mut has_advanced) = (0, true);
        loop {
            control.stop(false);
            let others = if has_advanced { self.others(conduct, &control, passed.lane) } else { Others::default() };
            let [one, two, three] = others.words;
            arguments.set(&Persistent { flags: [control.flag(), one, two, three], ..work });
            let mut is_marked = false;
            let put_in = clock::now();
            let code = self.put_in(&mut state, passed.lane, |at| {
                let code = control.reset(is_first, at);
                if !is_ok(code) {
                    return code;
                }
                if conduct.plan.is_some() {
                    cu!(cuEventRecord(start, at));
                }
                let code = arguments.launch(function, conduct.at_once, self.request.shape, at);
                if !is_ok(code) {
                    return code;
                }
                // A kernel that fails at once fails these, and not its launch.
                is_marked = is_ok(cu!(cuEventRecord(stopped, at)))
                    && is_ok(cu!(cuMemcpyDtoHAsync_v2(control.counted_at(), control.counter(), size_of::<u32>(), at)))
                    && is_ok(cu!(cuEventRecord(end, at)));
                code
            });
            let share = self.share(&state);
            drop(state);
            if !is_ok(code) {
                return self.refused_as(conduct, code, is_first);
            }
            if is_first {
                note(PREEMPTIBLE);
            }
            // Nobody will know when it has ended, or whether it gave way before.
            let watched = is_marked.then(|| self.watch(conduct, &control, stops, passed));
            match watched.as_ref().map_or(Waited::TooLong, |watched| watched.waited) {
                // What went wrong is told by the next call, as for the original.
                Waited::Failed => break,
                Waited::TooLong => {
                    arguments.set(&Persistent { mask: 0, ..work });
                    let code = self.let_go(control, &arguments, function, conduct);
                    if !is_ok(code) {
                        return Some(self.refused(code));
                    }
                    break;
                }
                Waited::Over => {
                    let ran = conduct.plan.and_then(|_| elapsed(start, stopped));
                    took = took.and_then(|took| Some(took + ran?.mul_f64(share)));
                    let counted = control.counted();
                    let is_complete = counted >= self.blocks;
                    let gave_way = |watched: &Watched| watched.gave_way_ns(&others, put_in, ran?);
                    match (conduct.plan, watched.as_ref().and_then(gave_way)) {
                        (Some((plan, number)), Some(ns)) if !is_complete => plan.note_giving_way(number, ns),
                        (Some((plan, number)), _) if is_complete && conduct.is_measured => {
                            took.into_iter().for_each(|took| plan.note(number, took));
                        }
                        _ => {}
                    }
                    if is_complete {
                        break;
                    }
                    if watched.is_some_and(|watched| watched.stopped.is_none()) {
                        note(BY_OTHERS);
                        report::changed();
                    }
                    // Somebody who is busy for a moment again and again does not keep it from ever running.
                    has_advanced = counted > reached;
                    reached = counted;
                }
            }
            (is_first, stops) = (false, stops + 1);
            note(STOPPED);
            passed = self.pass(conduct, true);
            passed.is_forced |= !has_advanced;
            state = self.request.logical.lock();
        }
        Some(CUresult::CUDA_SUCCESS)
    }

    /// Where the GPU finds the step words of those to whom this part would have to give way.
    fn others(&self, conduct: &Conduct<'_>, control: &Control, lane: usize) -> Others {
        let Request { coroutine, logical, profile, .. } = self.request;
        let Some(membership) = tenant::membership() else { return Others::default() };
        let part = Part { lasts_ns: conduct.part_ns, is_alone: true, has_all: lane == FULL };
        let slots = gate::gives_way_to(coroutine, logical, profile, part);
        let (mut others, mut count) = (Others::default(), 0);
        for slot in (0..SLOTS).filter(|slot| slots >> slot & 1 != 0) {
            let word = control.step_of(Owner { slot, generation: membership.page_of(slot) });
            if let (Some(word), Some(place)) = (word, others.words.get_mut(count)) {
                *place = word;
                others.slots |= 1 << slot;
                count += 1;
            }
        }
        others
    }

    /// Waits for persistent blocks to end, and stops them if somebody else is to have the GPU. They have been stopped so
    /// often before, and came through the gate like that.
    fn watch(&self, conduct: &Conduct<'_>, control: &Control, stops: u64, passed: PartPassed) -> Watched {
        let [end, ..] = control.events();
        let Request { coroutine, logical, profile, .. } = self.request;
        let part = Part { lasts_ns: conduct.part_ns, is_alone: true, has_all: passed.lane == FULL };
        let (started, patience) = (clock::now(), nanoseconds(conduct.patience()));
        let stop_after = conduct.forced.map(|forced| forced.stop_after_ns(stops));
        // Where it was held for as long as it may be, or was stopped before its first block, it runs although others want the GPU.
        let (mut stopped, mut may_run) = (None, !passed.is_forced);
        loop {
            let now = clock::now();
            if stopped.is_none() {
                let is_to_stop = match stop_after {
                    Some(after) => now.saturating_sub(started) >= after,
                    None => {
                        let must = gate::must_give_way(coroutine, logical, profile, part);
                        may_run |= !must;
                        must && (may_run || now.saturating_sub(started) > LEAST_NS)
                    }
                };
                if is_to_stop {
                    control.stop(true);
                    stopped = Some(now);
                }
            }
            let waited = match cu!(cuEventQuery(end)) {
                CUresult::CUDA_ERROR_NOT_READY => {
                    (now.saturating_sub(started) > patience || coroutine.is_ending()).then_some(Waited::TooLong)
                }
                code => Some(if is_ok(code) { Waited::Over } else { Waited::Failed }),
            };
            if let Some(waited) = waited {
                return Watched { waited, started, stopped, noticed: clock::now() };
            }
            std::thread::yield_now();
        }
    }

    /// It takes too long: whatever is left of it goes into the stream as a part that does not stop, and nobody waits for it. Where that
    /// is refused the program is to know.
    fn let_go(&self, control: Control, arguments: &Packed, function: CUfunction, conduct: &Conduct<'_>) -> CUresult {
        self.versions.avoid();
        note(LET_GO);
        if self.request.coroutine.is_ending() {
            return CUresult::CUDA_SUCCESS;
        }
        let [end, ..] = control.events();
        let mut state = self.request.logical.lock();
        let lane = state.lane();
        let code = self.put_in(&mut state, lane, |at| {
            let mut code = control.reset(false, at);
            if is_ok(code) {
                code = arguments.launch(function, conduct.at_once, self.request.shape, at);
            }
            cu!(cuEventRecord(end, at));
            code
        });
        drop(state);
        control.rest();
        code
    }
}
