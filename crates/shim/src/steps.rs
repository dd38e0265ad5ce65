//! Steps: from the first launch after idle until the GPU has finished everything.
//!
//! Nobody tells us when a step is over. A program that waits for it, in whatever way, comes through here right
//! afterwards and has us look: a stream that had launches is asked whether it has anything left. A program that never
//! waits, or learns of the end in a host function, is covered by a thread of ours that looks from time to time while
//! nothing more is launched. A launch is counted, and its stream put on the list, under the stream's lock and before the
//! driver is called; so whoever finds nothing left to do in any stream of the list, and no further launch, has seen the
//! end. Copies and other work that a step puts into streams belong to it: such a stream is on the list, too.
//!
//! A program that launches the next step before it waits for the last one is busy all the time. Its steps are told apart by the events
//! that it waits for (`policy::ahead`); only the last of them ends with idle.

use crate::bind;
use crate::boundary::guarded;
use crate::call::is_ok;
use crate::coroutine;
use crate::hot::HOT;
use crate::marks;
use crate::relaxed::Relaxed;
use crate::stream::{Kind, Logical, State};
use crate::tenant::{Membership, membership};
use crate::unfinished::{Linked, List};
use crate::{background, beckon, block_level, quota, record};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use core::time::Duration;
use detshare_board::{Objective, clock};
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{CUevent, CUresult, CUstream};
use detshare_policy::ahead::Ahead;
use detshare_policy::objective::{Keeper, OBJECTIVES, Objectives};
use detshare_policy::phase::{Made, Phase, Phases};
use detshare_policy::rhythm::{Learner, NEARLY_ALL, Work};
use detshare_policy::{Rhythm, TURN_NS};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::Thread;

/// How often our thread looks while there are steps, and how long it goes on when there are none: waking it costs the
/// launch that begins a step more than looking in vain costs anybody.
const EVERY: Duration = Duration::from_millis(1);
const VIGIL: Duration = Duration::from_millis(200);
/// A program's wait is left alone for so long.
const LONGEST_WAIT: Duration = Duration::from_millis(20);
/// A step in which something is launched all the time counts as begun again after so long.
const GOES_ON_NS: u64 = 1_000_000_000;
/// How long a look that found the step not over is good for.
const MOMENT_NS: u64 = 20_000;

/// Streams with work of the step that is not known to be finished.
static UNFINISHED: List<Logical> = List::new();
/// Held by the thread that goes through them.
static LOOKING: Mutex<()> = Mutex::new(());
/// Steps that were launched before the last one was over.
static AHEAD: Mutex<Ahead> = Mutex::new(Ahead::new());
/// When the step that was last seen to begin did so.
static BEGUN: AtomicU64 = AtomicU64::new(0);
/// When steps begin and end.
static LEARNER: Mutex<Learner> = Mutex::new(Learner::new());
/// What steps are.
static PHASES: Mutex<Phases> = Mutex::new(Phases::new());
/// What the daemon says that steps are to keep to, each 0 if it says nothing.
static WANTED: [AtomicU64; OBJECTIVES] = [const { AtomicU64::new(0) }; OBJECTIVES];
/// Whether they do.
static KEEPER: Mutex<Keeper> = Mutex::new(Keeper::new());
/// Launches up to the end of the last step.
static BEFORE: AtomicU64 = AtomicU64::new(0);
/// When somebody last looked and it was not over.
static NOT_OVER: AtomicU64 = AtomicU64::new(0);
/// What the GPU has to do in the step that is under way: on all SMs, and where it runs.
static WORK: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// When the GPU is to turn to this process before its next step; 0 if nobody knows when that is due.
static TURN_AT: AtomicU64 = AtomicU64::new(0);
static WATCHER: OnceLock<Thread> = OnceLock::new();
/// Whether that thread sleeps until it is woken.
static ASLEEP: AtomicBool = AtomicBool::new(false);

/// Counts a launch that is about to be made in a stream whose lock is held.
pub(crate) fn launched(logical: &'static Logical, state: &mut State) {
    let Some(membership) = membership() else { return };
    enlist(logical, state);
    let step = membership.page.launch();
    let seen = &HOT.step;
    if seen.load(Ordering::Relaxed) != step.number() && seen.swap(step.number(), Ordering::Relaxed) != step.number() {
        begin(membership, clock::now());
    }
}

/// Sees to it that a step is not over before other work is that is about to be put into a stream whose lock is held.
pub(crate) fn continued(logical: &'static Logical, state: &mut State) {
    let can_be_asked = logical.kind() != Kind::PerThread || !state.is_home();
    if can_be_asked && is_under_way() {
        enlist(logical, state);
    }
}

fn enlist(logical: &'static Logical, state: &mut State) {
    state.entries = state.entries.wrapping_add(1);
    if !state.unfinished {
        state.unfinished = true;
        UNFINISHED.add(logical);
    }
}

/// Whether this is a tenant with work on the GPU.
pub(crate) fn is_under_way() -> bool {
    membership().is_some_and(is_busy)
}

/// Counts what a launch is expected to take, where this process is looked after.
pub(crate) fn worked(identity: u64, all_ns: u64, ran_ns: u64) {
    WORK[0].fetch_add(all_ns, Ordering::Relaxed);
    WORK[1].fetch_add(ran_ns, Ordering::Relaxed);
    // Two threads that launch at once are not waited for: one launch more or less says nothing.
    if let (Ok(mut phases), Some(membership)) = (PHASES.try_lock(), membership()) {
        let phase = phases.launched(identity, all_ns);
        publish(membership, &phases, phase);
    }
}

/// What the step will be if this is launched next, for a program whose steps can be told apart.
pub(crate) fn foreseen(identity: u64, all_ns: u64) -> Option<Phase> {
    let phases = PHASES.try_lock().ok().filter(|phases| phases.has_both())?;
    Some(phases.foresee(identity, all_ns))
}

/// Publishes what a step is, for a program whose steps can be told apart.
fn publish(membership: &Membership, phases: &Phases, phase: Phase) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    // Others look at that line before each of their launches: it is written when there is something new.
    if phases.has_both() && LAST.swap(phase.number().into(), Ordering::Relaxed) != u32::from(phase.number()) {
        membership.page.set_phase(phase.number(), phases.pace_ns());
    }
}

/// The program is about to record an event.
#[inline]
pub(crate) fn marks(event: CUevent) {
    if let Some(membership) = membership()
        && membership.page.step().is_busy()
    {
        marks::set(event, membership.page.launched());
    }
}

/// A call that waits for an event.
pub(crate) fn waited_for(event: CUevent, wait: impl FnOnce() -> CUresult) -> CUresult {
    // It may be recorded again meanwhile.
    let mark = membership().and_then(|_| marks::find(event));
    let code = waited(None, wait);
    if is_ok(code)
        && let (Some(membership), Some(finished)) = (membership(), mark)
    {
        told_apart(membership, finished);
    }
    code
}

/// The program has waited for something that came after so many launches, and goes on with others under way.
fn told_apart(membership: &Membership, finished: u64) {
    let Ok(_looking) = LOOKING.try_lock() else { return };
    if !membership.page.step().is_busy() || finished <= BEFORE.load(Ordering::Relaxed) {
        return;
    }
    let mut phases = PHASES.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ahead = AHEAD.lock().unwrap_or_else(PoisonError::into_inner);
    ahead.waited(membership.page.launched(), phases.take());
    let over = ahead.over(finished);
    let runs = ahead.runs();
    drop(ahead);
    if let Some((upto, made)) = over {
        let now = clock::now();
        ended(membership, &mut phases, made, upto, (BEGUN.load(Ordering::Relaxed), now));
        if runs != Phase::Unknown {
            publish(membership, &phases, runs);
        }
        membership.page.set_begun(now);
        BEGUN.store(now, Ordering::Relaxed);
        record::step_began(now);
    }
}

/// A step is over, which was up to the launch of that number, and began and ended then.
fn ended(membership: &Membership, phases: &mut Phases, made: Made, upto: u64, (begun, now): (u64, u64)) {
    let lasts = now.saturating_sub(begun);
    membership.page.note_step(lasts);
    let launches = upto.saturating_sub(BEFORE.swap(upto, Ordering::Relaxed));
    let phase = phases.ended_with(made, lasts, u32::try_from(launches).unwrap_or(u32::MAX));
    publish(membership, phases, phase);
    judge(membership, (begun, now), phase, phases);
    record::step_ended(now, phase);
}

/// A step has begun.
fn begin(membership: &Membership, now: u64) {
    membership.page.set_begun(now);
    BEGUN.store(now, Ordering::Relaxed);
    learner().began(now);
    record::step_began(now);
    // Pairs with the fence in `keep_looking`: it sees the step, or this sees that it is asleep.
    if ASLEEP.load(Ordering::SeqCst)
        && let Some(watcher) = WATCHER.get()
    {
        watcher.unpark();
    }
}

/// A stream that a call waits for, or asks: if the call says that it is done, and nothing was put in meanwhile, nobody has to
/// ask it again.
#[derive(Clone, Copy)]
pub(crate) struct Subject {
    logical: &'static Logical,
    entries: u32,
}

impl Subject {
    /// The stream as it is before the call. None if somebody is putting work in: that may be counted already and still
    /// come after what the call sees.
    pub(crate) fn new(stream: CUstream, default: DefaultStream) -> Option<Self> {
        membership()?;
        let logical = bind::find(stream, default)?;
        let state = logical.try_lock().filter(|state| state.pins == 0)?;
        Some(Self { logical, entries: state.entries })
    }
}

/// A call that waits for something. Whoever waits will see for itself: our thread would only be in its way.
#[inline]
pub(crate) fn waited(subject: Option<Subject>, wait: impl FnOnce() -> CUresult) -> CUresult {
    if membership().is_none() {
        return wait();
    }
    if let Ok(mut learner) = LEARNER.try_lock() {
        learner.foresee();
    }
    HOT.waiting.fetch_add(1, Ordering::Relaxed);
    let code = wait();
    HOT.waiting.fetch_sub(1, Ordering::Relaxed);
    if is_ok(code) {
        look_after(subject);
    }
    code
}

/// A call that says whether something is finished. Programs make such calls far more often than steps end, and
/// asking all streams takes microseconds: one that was not idle a moment ago is not asked again.
#[inline]
pub(crate) fn asked(subject: Option<Subject>, ask: impl FnOnce() -> CUresult) -> CUresult {
    let code = ask();
    if is_ok(code)
        && membership().is_some()
        && clock::now().saturating_sub(NOT_OVER.load(Ordering::Relaxed)) > MOMENT_NS
    {
        look_after(subject);
    }
    code
}

/// Sees whether the step is over, and says so on the board.
pub(crate) fn look() {
    look_after(None);
}

fn look_after(done: Option<Subject>) {
    let Some(membership) = membership() else { return };
    if !membership.page.step().is_busy() {
        return;
    }
    // Whoever is looking will see the same.
    let Ok(_looking) = LOOKING.try_lock() else { return };
    let upto = membership.page.launched();
    // Once it is over the next one may begin.
    let begun = BEGUN.load(Ordering::Relaxed);
    let is_over = UNFINISHED.retain(|logical| !has_left(logical, done));
    let now = clock::now();
    if is_over && finish(membership, upto, now) {
        let mut phases = PHASES.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = phases.take();
        let made = AHEAD.lock().unwrap_or_else(PoisonError::into_inner).rest(&behind);
        // What was waited for by an event is over already; of a step that had nothing else there is nothing to tell.
        if upto > BEFORE.load(Ordering::Relaxed) {
            ended(membership, &mut phases, made, upto, (begun, now));
        }
        drop(phases);
        if block_level::is_pending() {
            block_level::idle();
        }
    } else {
        NOT_OVER.store(now, Ordering::Relaxed);
    }
}

/// What steps are to keep to from now on.
pub(crate) fn set_objectives(objective: Objective) {
    for (place, wanted) in WANTED.iter().zip([objective.p99_ns, objective.ttft_ns, objective.tpot_ns]) {
        place.store(wanted.unwrap_or(0), Ordering::Relaxed);
    }
}

/// Sees whether a step kept to what it is to keep to, and says so on the board; and whether a prompt is pending, of a program
/// whose steps can be told apart.
fn judge(membership: &Membership, step: (u64, u64), phase: Phase, phases: &Phases) {
    let wanted = WANTED.each_ref().map(|place| Some(place.load(Ordering::Relaxed)).filter(|ns| *ns != 0));
    let [p99_ns, ttft_ns, tpot_ns] = wanted;
    let mut keeper = KEEPER.lock().unwrap_or_else(PoisonError::into_inner);
    keeper.ran_on_front(is_on_front(membership));
    let kept = keeper.ended(step, phase, phases.pace_ns(), &Objectives { p99_ns, ttft_ns, tpot_ns });
    // What it missed of objectives that it had a moment ago is of no interest.
    membership.page.note_objectives(kept, wanted != [None; OBJECTIVES] && keeper.is_strained(step.1));
    membership.page.set_wider(keeper.wider());
    membership.page.set_prompt(keeper.prompt_since_ns().filter(|_| phases.has_both()).unwrap_or(0));
}

/// Says that the step is over, and what is known of the next one, unless more has been launched.
fn finish(membership: &Membership, upto: u64, now: u64) -> bool {
    let mut learner = learner();
    // Where nobody did so while waiting. Others wait for what comes from here: it is done once.
    learner.foresee();
    let (rhythm, lengths) = (learner.if_ended(now), learner.lengths());
    drop(learner);
    membership.page.set_habits(rhythm.spread_ns, rhythm.gap_ns, rhythm.needs);
    membership.page.set_pauses(rhythm.ended_ns, rhythm.soon_ns, rhythm.long_ns);
    let is_over = membership.page.finish(upto, rhythm.due_ns.unwrap_or(0));
    if is_over {
        membership.page.set_lengths(lengths.on_all_ns, lengths.narrow.unwrap_or_default());
        let [all_ns, ran_ns] = WORK.each_ref().map(|place| place.swap(0, Ordering::Relaxed));
        let mut learner = self::learner();
        learner.ran_on(part_of_all(membership));
        learner.ended(now, (all_ns != 0).then_some(Work { all_ns, ran_ns }));
        drop(learner);
        let earliest = rhythm.due_ns.map(|due| due.saturating_sub(rhythm.spread_ns));
        TURN_AT.store(earliest.map_or(0, |at| at.saturating_sub(TURN_NS)), Ordering::Relaxed);
    }
    is_over
}

/// The part of the SMs that the last launch had, in thousandths.
fn part_of_all(membership: &Membership) -> u32 {
    let (width, all) = (membership.page.lane_width(), membership.width.max(1));
    if width == 0 { Rhythm::ALL } else { width.min(all).saturating_mul(Rhythm::ALL) / all }
}

/// Whether the last launch was on the front of a split that leaves others anything.
fn is_on_front(membership: &Membership) -> bool {
    // Lanes are `full`, and front and rest of each split in turn.
    membership.page.lane() % 2 == 1 && part_of_all(membership) < NEARLY_ALL
}

fn learner() -> MutexGuard<'static, Learner> {
    LEARNER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the stream has nothing left to do and is no longer on the list; of one that is known already.
fn has_left(logical: &'static Logical, done: Option<Subject>) -> bool {
    // Unless somebody is putting work in.
    let Some(mut state) = logical.try_lock().filter(|state| state.pins == 0) else { return false };
    let is_known = done.is_some_and(|done| core::ptr::eq(done.logical, logical) && done.entries == state.entries);
    if state.unfinished && !is_known && !is_done(logical, &state) {
        return false;
    }
    state.unfinished = false;
    state.flight.is_over();
    logical.link().leave();
    true
}

fn is_done(logical: &Logical, state: &State) -> bool {
    let Some(coroutine) = logical.coroutine() else { return true };
    if coroutine.is_ending() {
        return true;
    }
    // Asking a stream that is captured would end the capture.
    if bind::capturing() {
        return false;
    }
    let handle = state.handle();
    let can_ask = match (state.is_home(), logical.kind()) {
        // These handles mean something in the right context or thread alone.
        (true, Kind::Legacy) => coroutine::current().is_some_and(|current| core::ptr::eq(current, coroutine)),
        (true, Kind::PerThread) => bind::is_own(logical),
        _ => true,
    };
    can_ask && query(handle) != CUresult::CUDA_ERROR_NOT_READY
}

fn query(stream: CUstream) -> CUresult {
    let _relaxed = Relaxed::new();
    cu!(cuStreamQuery(stream))
}

/// Whether this process has work on the GPU.
pub(crate) fn is_busy(membership: &Membership) -> bool {
    membership.page.step().is_busy()
}

/// Starts the thread that looks when the program does not.
pub(crate) fn watch(membership: &'static Membership) {
    background::thread("detshare-steps", move || guarded((), || keep_looking(membership)));
}

fn keep_looking(membership: &Membership) {
    // The only thread that does this.
    _ = WATCHER.set(std::thread::current());
    Relaxed::for_good();
    wake_in_time();
    let (mut seen, mut quiet, mut waited) = (0, Duration::ZERO, Duration::ZERO);
    let (mut turned, mut begun) = (0, 0);
    loop {
        publish_memory(membership);
        quiet = if is_busy(membership) { Duration::ZERO } else { quiet + EVERY };
        if quiet >= VIGIL && until_turn(turned).is_none() {
            ASLEEP.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if !is_busy(membership) {
                std::thread::park();
            }
            ASLEEP.store(false, Ordering::SeqCst);
            quiet = Duration::ZERO;
        }
        std::thread::park_timeout(until_turn(turned).unwrap_or(EVERY).min(EVERY));
        if until_turn(turned) == Some(Duration::ZERO) {
            turned = TURN_AT.load(Ordering::Relaxed);
            turn(membership, turned);
        }
        let launched = membership.page.launched();
        // A program that goes on launching has not finished; one that waits says so itself, unless its thread has died.
        waited = if HOT.waiting.load(Ordering::Relaxed) == 0 { Duration::ZERO } else { waited + EVERY };
        let is_waiting = !waited.is_zero() && waited < LONGEST_WAIT;
        // Who goes on launching, and never waits, is at work all the same.
        let now = clock::now();
        if launched != seen && now.saturating_sub(begun.max(BEGUN.load(Ordering::Relaxed))) > GOES_ON_NS {
            begun = now;
            membership.page.set_begun(now);
        }
        if launched == seen && !is_waiting {
            waited = Duration::ZERO;
            for coroutine in coroutine::all().filter(|coroutine| !coroutine.context().0.is_null()) {
                cu!(cuCtxSetCurrent(coroutine.context()));
                look();
            }
        }
        seen = launched;
    }
}

/// Timers are late by 50 µs unless somebody asks for better.
fn wake_in_time() {
    const SLACK_NS: libc::c_ulong = 1_000;
    // SAFETY: a number, for the calling thread alone.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, SLACK_NS) };
}

/// How long it is until the GPU is to turn to this process; nothing if it need not, or has for the last time that was set.
fn until_turn(turned: u64) -> Option<Duration> {
    let at = TURN_AT.load(Ordering::Relaxed);
    (beckon::is_wanted() && at != 0 && at != turned).then(|| Duration::from_nanos(at.saturating_sub(clock::now())))
}

/// Has the GPU turn to this process, unless the step has begun or should have.
fn turn(membership: &Membership, at: u64) {
    if !is_busy(membership) && clock::now() < at.saturating_add(TURN_NS) {
        coroutine::all().for_each(beckon::beckon);
    }
}

fn publish_memory(membership: &Membership) {
    membership.page.set_memory(quota::used());
}
