//! The gate: where a launch is decided. Run on a lane, or hold.
//!
//! A test's schedule decides if there is one. Otherwise the policy does, over what is on the board: each thread keeps
//! what the daemon gave to whom, and reads it again when the daemon's epoch has changed; what others do right now it
//! reads at each launch. Nothing is shared between threads, nothing allocated, and there is no system call unless the
//! launch is held.
//!
//! No hold is unbounded: the daemon sets the longest, and a daemon that is gone holds nobody. Only a pause lasts until
//! somebody ends it, or the daemon goes.

use crate::coroutine::Coroutine;
use crate::hot::HOT;
use crate::lane::{FULL, LANES};
use crate::settings;
use crate::steps;
use crate::tenant::{Membership, membership};
use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use detshare_board::{
    Class, Entry, Epoch, SLOTS, SPIN, SlotState, SplitLadder, Step, TenantView, Watch, clock, wait_spinning,
};
use detshare_policy::{Decision, Lane, Member, Until, View, decide};

/// How long a hold sleeps at most before it looks again: at its own work, whose end others may be waiting for, and whether
/// there still is a daemon. Whoever sleeps so lightly is also woken faster than from a deep sleep.
const LIGHT_SLEEP: Duration = Duration::from_micros(50);
/// A hold that has lasted for longer than this is of the long ones, in which a core would be missed.
const LONG: Duration = Duration::from_millis(20);
const DEEP_SLEEP: Duration = Duration::from_millis(5);
/// A hold is awake from so long before the end that it waits for is expected, until so long after it. A timer is up to 50 µs
/// late by itself, and a core may take as long again to come out of its sleep.
const BEFORE: Duration = Duration::from_micros(200);
const AFTER: Duration = Duration::from_micros(100);

/// What the daemon has said, as one thread last read it.
struct Said {
    epoch: Option<Epoch>,
    roster: u32,
    policy: u32,
    slot: u8,
    entry: Entry,
    /// The others on this GPU that are not paused.
    others: Vec<(usize, Entry)>,
}

thread_local! {
    static SAID: RefCell<Said> = const { RefCell::new(Said::nothing()) };
}

/// What becomes of a launch, and the board's words that a held one waits for.
enum Verdict {
    Run(Lane),
    Hold(Until),
    Paused,
}

/// Lets a launch pass, after a hold or at once; returns the lane that it gets.
pub(crate) fn pass(coroutine: &'static Coroutine) -> usize {
    if !HOT.scheduled.load(Ordering::Relaxed)
        && let Some(membership) = membership()
        && membership.is_connected()
    {
        let lane = index(membership, coroutine, ask_and_hold(membership));
        publish(membership, coroutine, lane);
        return lane;
    }
    lane(coroutine)
}

/// The lane for a piece of work that cannot be held any more.
pub(crate) fn lane(coroutine: &'static Coroutine) -> usize {
    if let Some(schedule) = &settings::get().schedule {
        return schedule.choose(coroutine);
    }
    let Some(membership) = membership().filter(|membership| membership.is_connected()) else { return FULL };
    match ask(membership) {
        Verdict::Run(lane) => index(membership, coroutine, lane),
        Verdict::Hold(_) | Verdict::Paused => FULL,
    }
}

fn ask_and_hold(membership: &'static Membership) -> Lane {
    match ask(membership) {
        Verdict::Run(lane) => lane,
        verdict => hold(membership, verdict),
    }
}

/// Waits until the launch may run, or has been held for long enough.
#[cold]
fn hold(membership: &'static Membership, mut verdict: Verdict) -> Lane {
    let mut begun = None;
    let mut held = None;
    let started = clock::now();
    loop {
        let now = clock::now();
        let longest = longest_hold();
        let (until, steps) = match verdict {
            Verdict::Run(lane) => return lane,
            Verdict::Paused => {
                // Whoever is paused wants nothing, and nobody makes way for it.
                (begun, held) = (None, None);
                (u64::MAX, 0)
            }
            Verdict::Hold(Until { at_ns, steps }) => {
                let end = *begun.get_or_insert(now) + longest;
                if now >= end {
                    return Lane::Full;
                }
                held.get_or_insert_with(|| membership.page.hold());
                (at_ns.min(end), steps)
            }
        };
        let epoch = membership.daemon.epoch();
        steps::look();
        let is_long = now.saturating_sub(started) > nanoseconds(LONG) && !steps::is_busy(membership);
        let slice = if is_long { DEEP_SLEEP } else { LIGHT_SLEEP };
        sleep(membership, epoch, steps, now, (Duration::from_nanos(until.saturating_sub(now)), slice));
        if !membership.is_connected() {
            return Lane::Full;
        }
        verdict = ask(membership);
    }
}

/// Until the daemon has changed something, one of these tenants' steps is over, or the time is. The word of one that only
/// waits so far is slept on as well: the end of the step that it will have wakes. Where an end is expected, sleeps until
/// shortly before it and is awake then; otherwise lightly.
fn sleep(membership: &'static Membership, epoch: Epoch, steps: u64, now: u64, (bound, slice): (Duration, Duration)) {
    let mut words: Vec<Watch<'_>> = Vec::with_capacity(SLOTS + 1);
    words.push(membership.daemon.watch(epoch));
    let mut end = None;
    for view in membership.others.iter().enumerate().filter(|(slot, _)| steps >> slot & 1 != 0).map(|(_, view)| view) {
        let step = view.step();
        if !step.is_busy() && !view.is_holding() {
            return;
        }
        if step.is_busy() {
            end = end.into_iter().chain(view.expected_end(now)).min();
        }
        words.push(view.watch(step));
    }
    let (before, after) = (nanoseconds(BEFORE), nanoseconds(AFTER));
    let (spin, longest) = match end {
        Some(end) if now + before < end => (Duration::ZERO, Duration::from_nanos(end - before - now)),
        Some(end) if now < end + after => (Duration::from_nanos(end + after - now), BEFORE + AFTER),
        _ => (SPIN, slice),
    };
    let own_work = if steps::is_busy(membership) { slice } else { longest };
    _ = wait_spinning(&words, spin, bound.min(longest).min(own_work));
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn longest_hold() -> u64 {
    SAID.try_with(|said| said.try_borrow().map_or(0, |said| said.entry.limits.longest_hold_ns)).unwrap_or(0)
}

/// Asks the policy. A thread that is ending decides nothing any more and runs.
fn ask(membership: &'static Membership) -> Verdict {
    let answer = SAID.try_with(|said| {
        let mut said = said.try_borrow_mut().ok()?;
        said.read_again(membership);
        Some(said.verdict(membership))
    });
    answer.ok().flatten().unwrap_or(Verdict::Run(Lane::Full))
}

impl Said {
    const fn nothing() -> Self {
        Self { epoch: None, roster: 0, policy: 0, slot: 0, entry: Entry::new(Class::BestEffort), others: Vec::new() }
    }

    /// If anything has changed.
    fn read_again(&mut self, membership: &'static Membership) {
        let (epoch, roster) = (membership.daemon.epoch(), membership.roster());
        if self.epoch != Some(epoch) || self.roster != roster {
            self.read(membership, epoch, roster);
        }
    }

    #[cold]
    fn read(&mut self, membership: &'static Membership, epoch: Epoch, roster: u32) {
        let daemon = &membership.daemon;
        self.others.clear();
        self.others.reserve_exact(SLOTS);
        self.policy = daemon.policy();
        let own = membership.slot();
        let mut torn = false;
        for slot in 0..SLOTS {
            // Looked at before the slot: what comes into it later is not what has left it.
            let page = membership.page_of(slot);
            match daemon.slot(slot) {
                SlotState::Free => membership.let_go(slot, page),
                SlotState::Torn => torn = true,
                SlotState::Taken(occupant) if Some(slot) == own => {
                    self.slot = u8::try_from(slot).unwrap_or(0);
                    self.entry = occupant.entry;
                    membership.page.set_class(occupant.entry.class);
                }
                SlotState::Taken(occupant) => {
                    let is_here = membership.has_page(slot, occupant.generation.number())
                        && membership.others[slot].gpu() == membership.gpu;
                    if is_here && !occupant.entry.paused {
                        self.others.push((slot, occupant.entry));
                    }
                }
            }
        }
        // What was being written is read at the next launch.
        self.epoch = (!torn).then_some(epoch);
        self.roster = roster;
    }

    fn verdict(&self, membership: &'static Membership) -> Verdict {
        if self.entry.paused {
            return Verdict::Paused;
        }
        let wants = |view: &TenantView| view.step().is_busy() || view.is_holding();
        if !self.others.iter().any(|(slot, _)| wants(&membership.others[*slot])) {
            return Verdict::Run(Lane::Full);
        }
        self.weigh(membership)
    }

    #[cold]
    fn weigh(&self, membership: &'static Membership) -> Verdict {
        let me = member(self.slot, &self.entry, membership.page.step(), false);
        let mut others = [me; SLOTS];
        for (place, (slot, entry)) in others.iter_mut().zip(&self.others) {
            let view = &membership.others[*slot];
            *place = member(u8::try_from(*slot).unwrap_or(0), entry, view.step(), view.is_holding());
        }
        let view = View {
            now_ns: clock::now(),
            me,
            others: &others[..self.others.len()],
            ladder: self.entry.ladder.widths(),
            width: membership.width,
        };
        match decide(self.policy, &view) {
            Decision::Run(lane) => Verdict::Run(lane),
            Decision::Hold(until) => Verdict::Hold(until),
        }
    }
}

fn member(slot: u8, entry: &Entry, step: Step, waiting: bool) -> Member {
    let class = match entry.class {
        Class::Latency => detshare_policy::Class::Latency,
        Class::BestEffort => detshare_policy::Class::BestEffort,
    };
    Member { slot, class, weight: entry.weight, busy: step.is_busy(), waiting }
}

/// The number of a lane here: splits are told by their width. One that is not there, or not ready yet, is `full`.
fn index(membership: &Membership, coroutine: &Coroutine, lane: Lane) -> usize {
    let (split, side) = match lane {
        Lane::Full => return FULL,
        Lane::Front { split } => (split, 0),
        Lane::Rest { split } => (split, 1),
    };
    let ladder = SAID.try_with(|said| said.try_borrow().map_or(SplitLadder::NONE, |said| said.entry.ladder));
    let width = ladder.ok().and_then(|ladder| ladder.widths().get(split).copied()).unwrap_or(membership.width);
    let fronts = (1..LANES).step_by(2);
    let is_it = |front: &usize| coroutine.lanes[*front].is_ready() && coroutine.lanes[*front].split() == width;
    let found = fronts.into_iter().find(is_it).map_or(FULL, |front| front + side);
    if coroutine.lanes[found].is_ready() { found } else { FULL }
}

/// Says on the board which lane it is, if it is another one than last time.
fn publish(membership: &Membership, coroutine: &Coroutine, lane: usize) {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = u8::try_from(lane).unwrap_or(0);
    if LAST.load(Ordering::Relaxed) != u32::from(number) {
        LAST.store(u32::from(number), Ordering::Relaxed);
        let width = if lane == FULL { membership.width } else { coroutine.lanes[lane].width() };
        membership.page.set_lane(number, width);
    }
}
