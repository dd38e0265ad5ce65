//! The gate: where a launch is decided. Run on a lane, or hold.
//!
//! A test's schedule decides if there is one. Otherwise the policy does, over what is on the board: each thread keeps
//! what the daemon gave to whom, and reads it again when the daemon's epoch has changed; what others do right now it
//! reads at each launch. Nothing is shared between threads, nothing allocated, and there is no system call unless the
//! launch is held.
//!
//! No hold is unbounded: the daemon sets the longest, and a daemon that is gone holds nobody. Only a pause lasts until
//! somebody ends it, or the daemon goes.

mod exploring;
mod giving_way;
mod member;
mod passed;
mod vigil;

use exploring::EXPLORING;
pub(crate) use giving_way::{begun_since, gives_way_to, must_give_way};
use member::{member, policy_class};
pub(crate) use passed::Passed;

use crate::coroutine::Coroutine;
use crate::hot::HOT;
use crate::kernel::Profile;
use crate::lane::{FULL, LANES};
use crate::schedule::Schedule;
use crate::stream::{Logical, State};
use crate::tenant::{Membership, membership};
use crate::{beckon, block_level, in_flight, quarantine, record, settings, steps};
use core::cell::RefCell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use detshare_board::{
    Class, Entry, Epoch, Noted, SLOTS, SlotState, SplitLadder, TenantView, Watch, clock, wait_spinning,
};
use detshare_policy::account::Share;
use detshare_policy::phase::Phase;
use detshare_policy::stall::{self, Launches};
use detshare_policy::{Decision, Dial, Lane, Launch, Member, Reason, Until, Verdict, View, at_ease, decide, policy};

/// How long a hold sleeps at most before it looks again: at its own work, whose end others may be waiting for, and whether
/// there still is a daemon. Whoever sleeps so lightly is also woken faster than from a deep sleep.
const LIGHT_SLEEP: Duration = Duration::from_micros(50);
/// A hold that has lasted for longer than this is of the long ones, in which a core would be missed.
const LONG: Duration = Duration::from_millis(20);
const DEEP_SLEEP: Duration = Duration::from_millis(5);

/// What the daemon has said, as one thread last read it.
struct Said {
    epoch: Option<Epoch>,
    roster: u32,
    policy: u32,
    dial: Dial,
    slot: u8,
    entry: Entry,
    /// The others on this GPU that are not paused.
    others: Vec<(usize, Entry)>,
    /// As the policy sees them; filled anew for each decision.
    members: Vec<Member>,
    /// What this thread has seen of the launches in steps that last for long, by slot.
    launches: [Launches; SLOTS],
    /// Whether the policy wants to know what a launch will take: it does if somebody is to be kept from harm.
    foresees: bool,
    /// Whether it wants to know what latency tenants are about to do.
    looks_ahead: bool,
    /// Where launches run while nobody else wants the GPU.
    at_ease: Lane,
    /// Whether the last decision had to do without what somebody said of its next step.
    distrusts: bool,
}

thread_local! {
    static SAID: RefCell<Said> = const { RefCell::new(Said::nothing()) };
}

/// A launch that is to be decided.
#[derive(Clone, Copy)]
struct Asked {
    coroutine: &'static Coroutine,
    logical: &'static Logical,
    profile: &'static Profile,
    part: Option<Part>,
}

/// A kernel that is launched in parts: each is decided by itself.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    /// What the part takes, or until it gives way.
    pub(crate) lasts_ns: u64,
    /// Whether it is alone in its stream: what is in flight there is the part itself.
    pub(crate) is_alone: bool,
    /// Whether it runs, and on all SMs.
    pub(crate) has_all: bool,
}

/// Whether every decision is written down.
fn is_noted() -> bool {
    HOT.foresees.load(Ordering::Relaxed) || record::is_on()
}

/// What becomes of a launch, and the board's words that a held one waits for.
enum Answer {
    Run(Lane, Reason),
    Hold(Until, Reason, Option<u8>),
    Paused,
}

/// Lets a launch pass, after a hold or at once; returns what it gets.
#[inline]
pub(crate) fn pass(coroutine: &'static Coroutine, logical: &'static Logical, profile: &'static Profile) -> Passed {
    if HOT.freedom.holds() { Passed::UNDECIDED } else { pass_if_decided(coroutine, logical, profile) }
}

/// A schedule decides from now on, if there is one.
pub(crate) fn follow_schedule() {
    static ALWAYS: AtomicU32 = AtomicU32::new(0);
    let schedule = settings::get().schedule.as_ref();
    HOT.scheduled.store(schedule.is_some(), Ordering::Relaxed);
    HOT.in_parts.store(settings::get().forced().is_some(), Ordering::Relaxed);
    if schedule == Some(&Schedule::Full) {
        HOT.freedom.begin(&ALWAYS, 0, || true);
    }
}

#[inline(never)]
fn pass_if_decided(coroutine: &'static Coroutine, logical: &'static Logical, profile: &'static Profile) -> Passed {
    if !HOT.scheduled.load(Ordering::Relaxed)
        && let Some(membership) = membership()
        && membership.is_connected()
    {
        let asked = Asked { coroutine, logical, profile, part: None };
        // What was written down for a launch that was then not made.
        _ = passed::take();
        let PartPassed { lane, .. } = pass_asked(membership, &asked);
        return Passed { lane, decision: passed::take() };
    }
    Passed { lane: lane(coroutine), decision: None }
}

/// How a part of a kernel came through.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartPassed {
    /// The lane that it gets.
    pub(crate) lane: usize,
    /// Whether it was held for anybody else,
    pub(crate) was_held: bool,
    /// and for as long as a launch may be: somebody else wants the GPU still.
    pub(crate) is_forced: bool,
}

/// Lets a part of a kernel pass, after a hold or at once.
pub(crate) fn pass_part(
    coroutine: &'static Coroutine,
    logical: &'static Logical,
    profile: &'static Profile,
    part: Part,
) -> PartPassed {
    if !HOT.scheduled.load(Ordering::Relaxed)
        && let Some(membership) = membership()
        && membership.is_connected()
    {
        return pass_asked(membership, &Asked { coroutine, logical, profile, part: Some(part) });
    }
    PartPassed { lane: lane(coroutine), was_held: false, is_forced: false }
}

fn pass_asked(membership: &'static Membership, asked: &Asked) -> PartPassed {
    let Through { lane, held_for, is_forced } = ask_and_hold(membership, asked);
    let lane = index(membership, asked.coroutine, lane);
    publish(membership, asked.coroutine, lane);
    PartPassed { lane, was_held: held_for.is_some_and(|reason| reason != Reason::InFlight), is_forced }
}

/// The lane for a piece of work that cannot be held any more.
pub(crate) fn lane(coroutine: &'static Coroutine) -> usize {
    if let Some(schedule) = &settings::get().schedule {
        return schedule.choose(coroutine);
    }
    let Some(membership) = membership().filter(|membership| membership.is_connected()) else { return FULL };
    match ask(membership, None) {
        Answer::Run(lane, _) => index(membership, coroutine, lane),
        Answer::Hold(..) | Answer::Paused => FULL,
    }
}

/// A launch was made in a stream whose lock is held: it is in flight now, or part of the step's work, where anybody wants
/// to know.
#[inline]
pub(crate) fn launched(coroutine: &'static Coroutine, state: &mut State, profile: &Profile, lane: usize) {
    if HOT.foresees.load(Ordering::Relaxed) {
        let at = state.handle();
        state.flight.launched(coroutine, at, usually_takes(profile, lane, coroutine), clock::now());
    } else if HOT.looked_after.load(Ordering::Relaxed) {
        let on = |lane| usually_takes(profile, lane, coroutine);
        steps::worked(profile.identity(), on(FULL), on(lane));
    }
}

/// What a launch takes on a lane, as far as anybody can say.
fn usually_takes(profile: &Profile, lane: usize, coroutine: &Coroutine) -> u64 {
    Launch { lasts_ns: profile.expected_ns(lane, coroutine), ..Launch::UNKNOWN }.expected_ns()
}

/// A part of a kernel was launched that is expected to take so long, in a stream whose lock is held.
pub(crate) fn launched_part(coroutine: &'static Coroutine, state: &mut State, expected_ns: u64) {
    if HOT.foresees.load(Ordering::Relaxed) {
        let at = state.handle();
        state.flight.launched(coroutine, at, expected_ns, clock::now());
    }
}

/// The lane, why it was held at first if it was, and whether that was for as long as can be.
struct Through {
    lane: Lane,
    held_for: Option<Reason>,
    is_forced: bool,
}

fn ask_and_hold(membership: &'static Membership, asked: &Asked) -> Through {
    match ask(membership, Some(asked)) {
        Answer::Run(lane, reason) => {
            if is_noted() || passed::is_news(lane, reason) {
                note(membership, asked, lane, reason, None);
            }
            Through { lane, held_for: None, is_forced: false }
        }
        answer => hold(membership, asked, answer),
    }
}

/// How long a launch was held, and why at first.
struct Held {
    ns: u64,
    reason: Reason,
    because_of: Option<u8>,
}

/// Writes a decision down for those who ask.
fn note(membership: &Membership, asked: &Asked, lane: Lane, reason: Reason, held: Option<Held>) {
    let lane = index(membership, asked.coroutine, lane);
    let held = held.unwrap_or(Held { ns: 0, reason, because_of: None });
    let predicted = asked.profile.expected_ns(lane, asked.coroutine);
    let noted = Noted {
        at_ns: clock::now(),
        kernel: asked.profile.identity(),
        predicted_ns: predicted.unwrap_or(0),
        measured_ns: 0,
        held_ns: held.ns,
        lane: u8::try_from(lane).unwrap_or(0),
        reason: reason.number(),
        held_for: if held.ns == 0 { 0 } else { held.reason.number() },
        because_of: held.because_of.unwrap_or(u8::MAX),
        doubts: doubts(asked.profile, predicted),
    };
    passed::noted(membership.page.note_decision(&noted), membership.is_asked(noted.at_ns));
    if record::is_on() {
        record::launched(record::Launched {
            at_ns: noted.at_ns,
            profile: asked.profile,
            stream: core::ptr::from_ref(asked.logical).addr(),
            lane: noted.lane,
            reason: noted.reason,
            held_for: noted.held_for,
            held_ns: noted.held_ns,
            expected_ns: noted.predicted_ns,
            in_flight_ns: asked.in_flight_ns(noted.at_ns),
        });
    }
}

/// What was not known or not believed at the last decision of this thread, as far as the policy asked for it.
fn doubts(profile: &Profile, predicted: Option<u64>) -> u8 {
    let said = SAID.try_with(|said| said.try_borrow().map_or((false, false), |said| (said.foresees, said.distrusts)));
    let (foresees, distrusts) = said.unwrap_or((false, false));
    let of_kernel = if foresees && predicted.is_none() { profile.doubts() } else { 0 };
    of_kernel | if distrusts { Noted::DUE_NOT_BELIEVED } else { 0 }
}

/// Waits until the launch may run, or has been held for long enough.
#[cold]
fn hold(membership: &'static Membership, asked: &Asked, mut answer: Answer) -> Through {
    let mut begun = None;
    let mut held = None;
    let mut why: Option<(Reason, Option<u8>)> = None;
    let started = clock::now();
    let mut counted = started;
    loop {
        let now = clock::now();
        let longest = longest_hold();
        let (until, steps, awake) = match answer {
            Answer::Run(lane, reason) => {
                let ns = now.saturating_sub(started);
                let held = why.map(|(reason, because_of)| Held { ns, reason, because_of });
                note(membership, asked, lane, reason, held);
                return Through { lane, held_for: why.map(|(reason, _)| reason), is_forced: false };
            }
            Answer::Paused => {
                // Whoever is paused wants nothing, and nobody makes way for it.
                (begun, held) = (None, None);
                why.get_or_insert((Reason::Paused, None));
                (u64::MAX, 0, false)
            }
            Answer::Hold(Until { at_ns, steps }, reason, because_of) => {
                why.get_or_insert((reason, because_of));
                let end = *begun.get_or_insert(now) + longest;
                if now >= end {
                    let held =
                        why.map(|(reason, because_of)| Held { ns: now.saturating_sub(started), reason, because_of });
                    note(membership, asked, Lane::Full, Reason::LongestHold, held);
                    return Through { lane: Lane::Full, held_for: why.map(|(reason, _)| reason), is_forced: true };
                }
                // Who waits for its own work is not kept from anything.
                if reason != Reason::InFlight {
                    held.get_or_insert_with(|| membership.page.hold());
                }
                (at_ns.min(end), steps, reason == Reason::InFlight)
            }
        };
        let epoch = membership.daemon.epoch();
        steps::look();
        let is_long = now.saturating_sub(started) > vigil::nanoseconds(LONG) && !steps::is_busy(membership);
        let slice = if is_long { DEEP_SLEEP } else { LIGHT_SLEEP };
        let bound = Duration::from_nanos(until.saturating_sub(now));
        if awake {
            // What other streams have in flight ends beside it: sooner than all of it one after the other.
            let bound = if in_flight::is_spread() { bound.min(LIGHT_SLEEP) } else { bound };
            _ = wait_spinning(&[membership.daemon.watch(epoch)], bound, bound);
            // Nobody has held it meanwhile.
            counted = clock::now();
        } else {
            sleep(membership, epoch, steps, now, (bound, slice));
            let after = clock::now();
            SHARE.held(after.saturating_sub(counted));
            counted = after;
        }
        if !membership.is_connected() {
            return Through { lane: Lane::Full, held_for: why.map(|(reason, _)| reason), is_forced: false };
        }
        answer = ask(membership, Some(asked));
    }
}

/// The part of the last time in which this process was not held. Two threads at the end of a window may count a little twice.
struct OwnShare {
    since: AtomicU64,
    held: AtomicU64,
    before: AtomicU32,
}

static SHARE: OwnShare = OwnShare {
    since: AtomicU64::new(Share::FULL.since_ns),
    held: AtomicU64::new(Share::FULL.held_ns),
    before: AtomicU32::new(Share::FULL.before),
};

impl OwnShare {
    fn held(&self, ns: u64) {
        self.held.fetch_add(ns, Ordering::Relaxed);
    }

    fn thousandths(&self, now: u64) -> u32 {
        let before = Share {
            since_ns: self.since.load(Ordering::Relaxed),
            held_ns: self.held.load(Ordering::Relaxed),
            before: self.before.load(Ordering::Relaxed),
        };
        let mut after = before;
        let share = after.thousandths(now);
        if after != before {
            self.before.store(after.before, Ordering::Relaxed);
            self.held.store(after.held_ns, Ordering::Relaxed);
            self.since.store(after.since_ns, Ordering::Relaxed);
        }
        share
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
    let (spin, longest) = vigil::of(end, now, slice);
    let own_work = if steps::is_busy(membership) { slice } else { longest };
    _ = wait_spinning(&words, spin, bound.min(longest).min(own_work));
}

fn longest_hold() -> u64 {
    SAID.try_with(|said| said.try_borrow().map_or(0, |said| said.entry.limits.longest_hold_ns)).unwrap_or(0)
}

/// Asks the policy. A thread that is ending decides nothing any more and runs.
fn ask(membership: &'static Membership, asked: Option<&Asked>) -> Answer {
    let answer = SAID.try_with(|said| {
        let mut said = said.try_borrow_mut().ok()?;
        said.read_again(membership);
        Some(said.answer(membership, asked))
    });
    answer.ok().flatten().unwrap_or(Answer::Run(Lane::Full, Reason::Free))
}

impl Said {
    const fn nothing() -> Self {
        Self {
            epoch: None,
            roster: 0,
            policy: 0,
            dial: Dial::USUAL,
            slot: 0,
            entry: Entry::new(Class::BestEffort),
            others: Vec::new(),
            members: Vec::new(),
            launches: [Launches::UNSEEN; SLOTS],
            foresees: false,
            looks_ahead: false,
            at_ease: Lane::Full,
            distrusts: false,
        }
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
        self.members.reserve_exact(SLOTS);
        self.policy = daemon.policy();
        self.dial = Dial::new(daemon.aggressiveness());
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
        let someone_is_urgent = self.others.iter().any(|(_, entry)| entry.class == Class::Latency);
        let foresees = policy(self.policy).is_some_and(|policy| policy.foresees);
        self.foresees = foresees && self.entry.class == Class::BestEffort && someone_is_urgent;
        HOT.foresees.store(self.foresees, Ordering::Relaxed);
        block_level::set_turnaround(self.turnaround_ns(someone_is_urgent));
        self.looks_ahead = foresees && someone_is_urgent;
        let is_looked_after = foresees && self.entry.class == Class::Latency && !self.others.is_empty();
        let someone_makes_way = self.others.iter().any(|(_, entry)| entry.class == Class::BestEffort);
        HOT.looked_after.store(is_looked_after, Ordering::Relaxed);
        beckon::set_wanted(is_looked_after && someone_makes_way);
        steps::set_objectives(self.entry.objective);
        self.at_ease =
            at_ease(self.policy, policy_class(self.entry.class), self.entry.ladder.widths(), membership.width);
        let is_free = self.others.is_empty() && !self.entry.paused && self.at_ease == Lane::Full;
        if is_free && !torn && !record::is_on() {
            let word = membership.daemon.epoch_word();
            HOT.freedom.begin(word, epoch.number(), || membership.roster() == roster);
        }
    }

    /// Within what time kernels are to give way, where there is anybody to give way to.
    fn turnaround_ns(&self, someone_is_urgent: bool) -> Option<u64> {
        self.entry.turnaround_ns.filter(|_| someone_is_urgent && self.entry.class == Class::BestEffort)
    }

    fn answer(&mut self, membership: &'static Membership, asked: Option<&Asked>) -> Answer {
        if self.entry.paused {
            return Answer::Paused;
        }
        let wants = |view: &TenantView| view.step().is_busy() || view.is_holding();
        if !self.foresees && !self.others.iter().any(|(slot, _)| wants(&membership.others[*slot])) {
            self.distrusts = false;
            return Answer::Run(self.at_ease, Reason::Free);
        }
        self.weigh(membership, asked)
    }

    #[cold]
    fn weigh(&mut self, membership: &'static Membership, asked: Option<&Asked>) -> Answer {
        let now_ns = clock::now();
        self.look_at_members(membership, now_ns);
        let (launch, in_flight_ns) = match asked.filter(|_| self.foresees) {
            Some(asked) => (asked.launch(now_ns), asked.in_flight_ns(now_ns)),
            None => (Launch::UNKNOWN, 0),
        };
        // What was published is the last step, until this launch has been made.
        let is_looked_after = HOT.looked_after.load(Ordering::Relaxed);
        let phase = asked.filter(|_| is_looked_after).and_then(|Asked { profile, coroutine, .. }| {
            steps::foreseen(profile.identity(), usually_takes(profile, FULL, coroutine))
        });
        let verdict = self.verdict(membership, &launch, in_flight_ns, phase, now_ns);
        self.distrusts = verdict.distrusts;
        if let Some(asked) = asked.filter(|_| verdict.reason == Reason::Explored) {
            asked.profile.explore();
            EXPLORING.spend(launch.expected_ns());
        }
        match verdict.decision {
            Decision::Run(lane) => Answer::Run(lane, verdict.reason),
            Decision::Hold(until) => Answer::Hold(until, verdict.reason, verdict.because_of),
        }
    }

    /// What the others do right now.
    fn look_at_members(&mut self, membership: &Membership, now_ns: u64) {
        self.members.clear();
        for (slot, entry) in &self.others {
            let view = &membership.others[*slot];
            let outlook = self.looks_ahead.then(|| view.outlook(now_ns));
            let number = u8::try_from(*slot).unwrap_or(0);
            let mut member = member(number, entry, view.step(), view.is_holding(), outlook);
            // Of other steps it does not matter: this word is on a line that its owner writes with each launch.
            if member.busy && now_ns.saturating_sub(member.rhythm.begun_ns) > stall::LEAST_NS {
                member.rhythm.launched_ns = self.launches[*slot].seen(view.launched(), now_ns);
            }
            self.members.push(member);
        }
    }

    /// What the policy says of a launch, with the members as they were looked at, and of what the step is that it belongs to,
    /// if that is known. There once: all policies are in it.
    #[inline(never)]
    fn verdict(
        &self,
        membership: &Membership,
        launch: &Launch,
        in_flight_ns: u64,
        phase: Option<Phase>,
        now_ns: u64,
    ) -> Verdict {
        let mut own = membership.page.outlook(now_ns);
        own.phase = phase.map_or(own.phase, Phase::number);
        let mut me = member(self.slot, &self.entry, membership.page.step(), false, Some(own));
        // Who launches does not stand still, however long its step lasts.
        me.rhythm.launched_ns = now_ns;
        let view = View {
            now_ns,
            me,
            others: &self.members,
            ladder: self.entry.ladder.widths(),
            width: membership.width,
            in_flight_ns,
            share: SHARE.thousandths(now_ns),
            least_share: self.entry.limits.least_share,
            quarantined: quarantine::is_quarantined(),
            dial: self.dial,
        };
        decide(self.policy, launch, &view)
    }
}

impl Asked {
    fn launch(&self, now: u64) -> Launch {
        let part = self.part.map(|part| part.lasts_ns);
        let lasts_ns = part.or_else(|| self.profile.expected_ns(FULL, self.coroutine));
        let bound = self.profile.bound(self.coroutine);
        let unexplored = part.is_none() && bound.is_none() && self.profile.is_unexplored() && EXPLORING.has_time(now);
        Launch { lasts_ns, bound, untried: self.profile.is_untried(), unexplored }
    }

    fn in_flight_ns(&self, now: u64) -> u64 {
        if self.part.is_some_and(|part| part.is_alone) {
            return 0;
        }
        self.logical.lock().flight.all_ns(now)
    }
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
