//! Launching a kernel in parts: slices one after the other, or persistent blocks that are stopped and launched again
//! (`persistent`).
//!
//! To the program it is one launch. Nobody else's work comes into the stream in between (`Logical::occupy`), and the call
//! returns when the last part is in the stream. So a call may wait: for the gate, for the slice before the last, for
//! persistent blocks to end. What it waits for may depend on what the program does next: a stream can wait for another
//! stream's event or for a value that the host is to write, a kernel for anything. Therefore
//!
//! * a launch is only made in parts when everything before it in its stream is over, or is so within a moment;
//! * every wait has an end. After it the rest of the kernel goes into the stream as one part that does not stop, and the call
//!   returns, as the original's would have. That kernel runs as it is from then on;
//! * no lock is held while waiting.
//!
//! If the first part is refused, the original is launched, and its code is the program's.

use super::conduct::Conduct;
use super::forced::{Forced, Way};
use super::loaded::Launchable;
use super::packed::{Arguments, Packed};
use super::plan;
use super::prepared;
use super::versions::{self, Versions};
use super::waiting::{Waited, nanoseconds, wait};
use crate::call::{elapsed, is_ok};
use crate::coroutine::Coroutine;
use crate::gate::{self, Part, PartPassed};
use crate::kernel::{Profile, Shape};
use crate::lane::FULL;
use crate::relaxed::Relaxed;
use crate::stream::{Logical, State};
use crate::{bind, settings, steps};
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use detshare_board::clock;
use detshare_cuda::types::{CUfunction, CUresult, CUstream};
use detshare_policy::block_level::Version;
use detshare_ptx::block_level::{Division, Slice};
use std::sync::MutexGuard;

/// After a wait in vain for what is before it the next so many launches in that stream do not wait.
const IMPATIENT: u32 = 64;

/// Launches that were made in slices, with persistent blocks, how often those were stopped, and whose end nobody waited for;
/// and how often another tenant's step stopped them before any thread of ours did.
pub(crate) static COUNTS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];
const SLICED: usize = 0;
pub(super) const PREEMPTIBLE: usize = 1;
pub(super) const STOPPED: usize = 2;
pub(super) const LET_GO: usize = 3;
pub(super) const BY_OTHERS: usize = 4;

pub(super) fn note(what: usize) {
    COUNTS[what].fetch_add(1, Ordering::Relaxed);
}

/// A launch that can be made in parts, if its kernel has versions.
pub(crate) struct Request<'a> {
    pub(crate) coroutine: &'static Coroutine,
    pub(crate) logical: &'static Logical,
    pub(crate) profile: &'static Profile,
    pub(crate) function: CUfunction,
    pub(crate) shape: &'a Shape,
    pub(crate) arguments: Arguments,
}

/// What became of it.
pub(crate) enum Launched {
    /// It is in its stream, in parts.
    InParts(CUresult),
    /// The original is to be launched; on all SMs, where that is to be measured, and may be now.
    Original { measured: bool },
}

/// Launches it in parts, if that can be done and is worth it.
pub(crate) fn launch(request: &Request<'_>) -> Launched {
    let nothing = Launched::Original { measured: false };
    if prepared::is_pending() {
        prepared::make_a_moment();
    }
    let Some(job) = Job::new(request) else { return nothing };
    if let Some(forced) = settings::get().forced() {
        return job.forced(forced).map_or(nothing, Launched::InParts);
    }
    let plan = plan::of(request.shape, request.profile, job.versions, request.coroutine);
    let Some(plan) = plan else { return nothing };
    let next = plan.next(request.profile);
    let conduct = Conduct::planned(plan, &next);
    let code = match next.version {
        Version::Original => {
            if next.is_measured {
                // Policies send what is long to a few SMs, where nothing can be learned of how long it takes on all.
                job.pass(&conduct, false);
            }
            return Launched::Original { measured: next.is_measured };
        }
        Version::Slices { .. } => job.in_slices(&conduct),
        Version::Preemptible { .. } => job.preemptibly(&conduct),
    };
    code.map_or(nothing, Launched::InParts)
}

/// How many blocks it is, if it can be launched in parts as far as its shape says. A grid that the driver would refuse is
/// for the original.
fn blocks(shape: &Shape) -> Option<u32> {
    const MOST: u32 = i32::MAX.cast_unsigned();
    const MOST_ROWS: u32 = 65_535;
    let is_plain = !shape.cooperative && shape.cluster <= 1 && !shape.attributed && shape.threads > 0;
    let is_grid = shape.grid[0] <= MOST && shape.grid[1] <= MOST_ROWS && shape.grid[2] <= MOST_ROWS;
    u32::try_from(shape.blocks).ok().filter(|blocks| is_plain && is_grid && (1..=MOST).contains(blocks))
}

/// One launch of the program.
pub(super) struct Job<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) versions: &'static Versions,
    pub(super) blocks: u32,
    pub(super) controls: &'static super::Controls,
}

/// The stream is ours alone, until this is dropped.
pub(super) struct Occupied(&'static Logical);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.vacate();
    }
}

impl<'a> Job<'a> {
    /// None if it can only be launched as it is.
    fn new(request: &'a Request<'a>) -> Option<Self> {
        let versions = versions::of(request.function, request.coroutine).filter(|it| it.takes(request.shape))?;
        let controls = request.coroutine.controls()?;
        Some(Self { request, versions, blocks: blocks(request.shape)?, controls })
    }

    fn forced(&self, forced: &'a Forced) -> Option<CUresult> {
        match forced.way(self.blocks) {
            Way::Slices(most) => self.in_slices(&Conduct::forced(forced, most)),
            Way::Preempt(blocks) => self.preemptibly(&Conduct::forced(forced, blocks.min(self.blocks))),
            Way::Original => None,
        }
    }

    /// The first part may be put in, and the stream is taken for all of them. It passes the gate when the stream is free: what was decided
    /// while somebody waits would not be true any more. None if what is before it goes on, or a capture has begun meanwhile.
    pub(super) fn first(&self, conduct: &Conduct<'_>) -> Option<(PartPassed, MutexGuard<'static, State>, Occupied)> {
        let occupied = self.begin(conduct)?;
        let passed = self.pass(conduct, false);
        let state = self.request.logical.lock();
        if bind::capturing() { None } else { Some((passed, state, occupied)) }
    }

    /// Takes the stream for all parts. None if what is before them goes on.
    fn begin(&self, conduct: &Conduct<'_>) -> Option<Occupied> {
        let started = clock::now();
        loop {
            let mut state = self.request.logical.begin();
            if bind::capturing() {
                return None;
            }
            if cu!(cuStreamQuery(state.handle())) != CUresult::CUDA_ERROR_NOT_READY {
                state.unready = 0;
                Logical::occupy(&mut state);
                return Some(Occupied(self.request.logical));
            }
            let is_long = clock::now().saturating_sub(started) > nanoseconds(conduct.before());
            if is_long || state.unready > 0 {
                // A stream that waits for the program is not waited for again and again.
                state.unready = if is_long { IMPATIENT } else { state.unready - 1 };
                return None;
            }
            drop(state);
            std::thread::yield_now();
        }
    }

    /// Puts a part in, on the lane that it got. The stream's lock is held.
    pub(super) fn put_in(&self, state: &mut State, lane: usize, part: impl FnOnce(CUstream) -> CUresult) -> CUresult {
        let Request { coroutine, logical, profile, function, shape, .. } = self.request;
        let lane = if bind::capturing() {
            state.lane()
        } else if profile.fits(*function, shape, coroutine, lane) {
            lane
        } else {
            FULL
        };
        logical.go(state, coroutine, lane);
        state.note_launch(coroutine);
        steps::launched(logical, state);
        part(state.handle())
    }

    /// The part of all SMs that the stream has where it is.
    pub(super) fn share(&self, state: &State) -> f64 {
        let lanes = &self.request.coroutine.lanes;
        f64::from(lanes[state.lane()].width()) / f64::from(lanes[FULL].width().max(1))
    }

    /// What the program gets if a later part was refused. A kernel that has failed says so at the next call.
    pub(super) fn refused(&self, code: CUresult) -> CUresult {
        let now = cu!(cuStreamQuery(self.request.logical.lock().handle()));
        let has_failed = !is_ok(now) && now != CUresult::CUDA_ERROR_NOT_READY;
        if has_failed { CUresult::CUDA_SUCCESS } else { code }
    }

    /// What the program gets if a part was refused. If it was the first the original is launched, and that version of it not again.
    pub(super) fn refused_as(&self, conduct: &Conduct<'_>, code: CUresult, is_first: bool) -> Option<CUresult> {
        if is_first {
            conduct.plan.into_iter().for_each(|(plan, number)| plan.refused(number));
            return None;
        }
        Some(self.refused(code))
    }

    pub(super) fn pass(&self, conduct: &Conduct<'_>, is_alone: bool) -> PartPassed {
        let Request { coroutine, logical, profile, .. } = self.request;
        let part = Part { lasts_ns: conduct.part_ns, is_alone, has_all: false };
        gate::pass_part(coroutine, logical, profile, part)
    }

    fn in_slices(&self, conduct: &Conduct<'_>) -> Option<CUresult> {
        let Launchable { function, work_offset, .. } = self.versions.sliced(self.request.shape)?;
        let mut arguments =
            Packed::new(self.request.arguments, self.versions.layout()?, work_offset, size_of::<Slice>())?;
        let grid = self.request.shape.grid;
        let division = Division::of(grid);
        let control = self.controls.take()?;
        let [end, start, other] = control.events();
        let ends = [end, other];
        let _relaxed = Relaxed::new();
        let (PartPassed { mut lane, .. }, mut state, _occupied) = self.first(conduct)?;
        let (mut first, mut number, mut has_waited) = (0, 0, true);
        let (mut held, mut share) = (Duration::ZERO, 0.0);
        loop {
            let most = if has_waited { conduct.at_once } else { u32::MAX };
            let most = most.min(self.blocks - first);
            let count = conduct.forced.map_or(most, |forced| forced.slice(most)).clamp(1, self.blocks - first);
            arguments.set(&Slice { grid, first, division });
            let code = self.put_in(&mut state, lane, |at| {
                if conduct.is_measured && first == 0 {
                    cu!(cuEventRecord(start, at));
                }
                let code = arguments.launch(function, count, self.request.shape, at);
                if is_ok(code) {
                    cu!(cuEventRecord(ends[number % 2], at));
                }
                code
            });
            if is_ok(code) {
                gate::launched_part(self.request.coroutine, &mut state, conduct.part_ns);
            }
            share += self.share(&state) * f64::from(count) / f64::from(self.blocks);
            // Before anything can return: whoever lets others into the stream again takes its lock.
            drop(state);
            if !is_ok(code) {
                return self.refused_as(conduct, code, first == 0);
            }
            if first == 0 {
                note(SLICED);
            }
            first += count;
            if first == self.blocks {
                break;
            }
            number += 1;
            // The GPU has the slice before to do; with this one it never waits for us.
            if number > 1 && has_waited && wait(ends[number % 2], conduct.patience()) == Waited::TooLong {
                self.versions.avoid();
                note(LET_GO);
                has_waited = false;
            }
            if has_waited {
                let asked = clock::now();
                let passed = self.pass(conduct, false);
                lane = passed.lane;
                held += Duration::from_nanos(if passed.was_held { clock::now().saturating_sub(asked) } else { 0 });
            }
            state = self.request.logical.lock();
        }
        if let Some((plan, version)) = conduct.plan.filter(|_| conduct.is_measured && has_waited)
            && wait(ends[number % 2], conduct.patience()) == Waited::Over
            && let Some(took) = elapsed(start, ends[number % 2])
        {
            plan.note(version, took.saturating_sub(held).mul_f64(share));
        }
        Some(CUresult::CUDA_SUCCESS)
    }
}
