//! Latency tenants as if alone, the others in what is left.
//!
//! Latency tenants are never held and have all SMs ([`unshared`](crate::unshared)), unless their steps leave most of the GPU idle: such a tenant, whose host
//! cannot launch as fast as the GPU runs, has as many SMs as it needs while others are there, and they have the rest. Beside
//! all others a best-effort launch is held while one of them has a step under way,
//! and before a step that is due if it would still be running then: that is known from what it takes and from what is in
//! flight before it. Where steps come at random nobody knows when; then little is kept in flight, so that little is in the
//! way when one comes, unless hardly a pause was ever as short. A server that rests, idle for seconds and for far longer than it ever is
//! between two steps, keeps nobody short: there is as much in flight as where steps are expected. How much of all this is risked is the dial's: at 0 a launch must be over well before a step is due;
//! in the middle compute-bound kernels run beside steps, on a few SMs; at 1 nothing is held. What may be in flight is what all
//! best-effort tenants together may have: each that wants the GPU has an equal part of it. Where SMs cannot be partitioned they
//! take turns, as under `exclusive`.
//!
//! Whoever gets less than its least share runs all the same, on a few SMs where there are lanes.
//!
//! Where a latency tenant misses its objectives nothing is risked any more: it is as if the dial were at 0, unless it is at 1.
//! If that does not help, latency tenants of less weight stay on half of the SMs while one of more weight is at work.
//!
//! A latency tenant whose step stands still ([`stall`](crate::stall)) is made way for no longer than any other that has nothing to do.

use crate::{Bound, Class, Dial, Lane, Launch, Member, Reason, Rhythm, TURN_NS, Until, Verdict, View, turn};

/// How long after it was due a step is still waited for, beyond its spread: then the tenant has changed its ways.
const PATIENCE_NS: u64 = 300_000;
/// A prediction that lies further from what happens than this is of no use: it is as if steps came at random.
const WIDEST_SPREAD_NS: u64 = 500_000;
/// Holds are looked at again no later than this: what is predicted changes.
const AGAIN_NS: u64 = 5_000_000;

/// Below it nobody is disturbed, not by a trial and not by as much as the bandwidth that is taken.
pub(crate) const DISTURBS: Dial = Dial::new(100);

/// From here on kernels that compute binds run beside steps, and from there on any.
const COMPUTE: Dial = Dial::new(500);
const ANY: Dial = Dial::new(750);

/// By how much a launch may overrun the time at which a step is due; below 0, how long before it must be over. Up to the usual dial
/// the GPU rests as long before a step as it does at 0: less rest makes every step longer, and next to nothing more runs in it. Beyond, a
/// part of what the step lasts: the longer it is, the less it is disturbed by the same delay.
fn overrun(dial: Dial, lasts_ns: u64) -> i64 {
    const NEVER_DISTURB: i64 = -100_000;
    /// Of the step, in thousandths.
    const PART: i64 = 25;
    const LONGEST_NS: i64 = 100_000_000;
    let at_least =
        dial.along(&[(0, NEVER_DISTURB), (250, NEVER_DISTURB), (500, 70_000), (750, 370_000), (1_000, 5_000_000)]);
    let part = dial.along(&[(0, 0), (250, 0), (500, PART)]);
    at_least + i64::try_from(lasts_ns).unwrap_or(LONGEST_NS).min(LONGEST_NS) * part / 1_000
}

/// What may be in flight when another launch is made: it is in the way of a step that nobody expected. Where all steps are
/// expected there can be more, so that the GPU never waits for the host.
fn ahead(dial: Dial, surprise: Option<Surprise>) -> u64 {
    let expected = [(0, 300_000), (250, 400_000), (500, 600_000), (750, 1_000_000), (1_000, 20_000_000)];
    let surprised = [(0, 40_000), (250, 130_000), (500, 300_000), (750, 1_000_000), (1_000, 20_000_000)];
    let [expected, surprised] = [expected, surprised].map(|points| dial.along(&points).unsigned_abs());
    match surprise {
        None => expected,
        // As before a step that is due: less and less.
        Some(Surprise { not_before_ns }) => surprised.max(expected.min(not_before_ns / 4)),
    }
}

/// A step that nobody can expect at a time, and how long it will not come mostly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Surprise {
    not_before_ns: u64,
}

impl Surprise {
    const ANY_TIME: Self = Self { not_before_ns: 0 };

    /// The next step of a tenant, if it is none that is due. One that has been idle for far longer than it ever is between two
    /// steps is not about to have one: what it does now comes with somebody who begins to ask it something, once.
    fn of(member: &Member, now_ns: u64) -> Option<Self> {
        /// As often as pauses are long mostly, and as long at least.
        const FAR_LONGER: u64 = 16;
        const IDLE_NS: u64 = 5_000_000_000;
        let Rhythm { ended_ns, soon_ns, long_ns, .. } = member.rhythm;
        let idle_ns = now_ns.saturating_sub(ended_ns);
        let has_ended = ended_ns != 0 && ended_ns <= now_ns;
        let is_idle = has_ended && idle_ns > long_ns.saturating_mul(FAR_LONGER).max(IDLE_NS);
        let not_before_ns = match has_ended {
            _ if is_idle => u64::MAX,
            true => soon_ns.saturating_sub(idle_ns),
            false => 0,
        };
        expected(member, now_ns).is_none().then_some(Self { not_before_ns })
    }
}

/// What may be in flight shortly before a step: less and less, so that what is predicted is little and the error small.
fn near(view: &View<'_>, due: Window) -> u64 {
    const LEAST_NS: u64 = 60_000;
    (due.earliest_ns.saturating_sub(view.now_ns) / 4).max(LEAST_NS)
}

/// How long before a step the GPU has to be left alone: where SMs cannot be partitioned tenants are time-sliced, and it has
/// to turn to the latency tenant first.
fn switch(view: &View<'_>) -> u64 {
    const LATE_NS: u64 = 150_000;
    if is_sliced(view) { TURN_NS + LATE_NS } else { 0 }
}

/// Whether the GPU has one process at a time: where SMs cannot be partitioned.
const fn is_sliced(view: &View<'_>) -> bool {
    view.ladder.is_empty()
}

/// Where tenants are time-sliced, what a launch waits for because another best-effort tenant has the GPU: one at a time, by turns.
fn not_its_turn(view: &View<'_>) -> Option<Verdict> {
    let is_equal = |member: &&Member| member.class == Class::BestEffort;
    let others = view.others.iter().filter(|other| other.wants()).filter(is_equal);
    let sliced = is_sliced(view).then_some(others)?;
    sliced.clone().next()?;
    turn::hold(view, sliced.clone().chain([&view.me]), sliced)
}

/// What may be in flight when another launch is made on a few SMs: it stays there when the step is over.
pub(crate) fn room_beside(view: &View<'_>) -> u64 {
    const MOST_NS: u64 = 300_000;
    ahead(view.dial, Some(Surprise::ANY_TIME)).min(MOST_NS) / parts(view)
}

/// Among how many what may be in flight is divided: the best-effort tenants that want the GPU, this one among them; where they
/// take turns there is one.
fn parts(view: &View<'_>) -> u64 {
    if is_sliced(view) {
        return 1;
    }
    let others = view.others.iter().filter(|other| other.class == Class::BestEffort && other.wants()).count();
    u64::try_from(others).unwrap_or(u64::MAX).saturating_add(1)
}

/// What a prediction of so long a time may be short by.
fn error(ns: u64) -> u64 {
    const LEAST_NS: u64 = 10_000;
    LEAST_NS + ns / 16
}

/// Whether a launch may run beside a step, on a few SMs.
fn may_run_beside(dial: Dial, bound: Option<Bound>) -> bool {
    dial >= ANY || (dial >= COMPUTE && bound == Some(Bound::Compute))
}

pub(crate) fn decide(launch: &Launch, view: &View<'_>) -> Verdict {
    // Below, nothing runs beside steps, and above, whatever binds it.
    let is_asked = (COMPUTE..ANY).contains(&view.dial);
    decide_exploring(launch, view, is_asked)
}

/// Decides a launch for a policy that wants to know what binds kernels, or does not.
pub(crate) fn decide_exploring(launch: &Launch, view: &View<'_>, explores: bool) -> Verdict {
    // When a step is due that is under way says nothing any more.
    let says = |other: &&Member| {
        other.class == Class::Latency && !other.is_at_work(view.now_ns) && other.rhythm.due_ns.is_some()
    };
    let is_distrusted = |other: &Member| expected(other, view.now_ns).is_none();
    let distrusts = view.me.class == Class::BestEffort && view.others.iter().filter(says).any(is_distrusted);
    Verdict { distrusts, ..weigh(&Launch { unexplored: launch.unexplored && explores, ..*launch }, view) }
}

fn weigh(launch: &Launch, view: &View<'_>) -> Verdict {
    if view.me.class == Class::Latency {
        if yields(view) {
            let lane = view.half().map_or(Lane::Full, |split| Lane::Rest { split });
            return Verdict::run(lane, Reason::Yields);
        }
        let has_company = view.others.iter().any(|other| other.class == Class::BestEffort && other.wants());
        let split = apart(&view.me, view).filter(|_| has_company);
        return split.map_or(Verdict::run(view.unshared(), Reason::Urgent), |split| {
            Verdict::run(Lane::Front { split }, Reason::Apart)
        });
    }
    let is_unbounded = view.dial.thousandths() == Dial::MOST;
    let view = &View { dial: if view.is_strained() && !is_unbounded { Dial::new(0) } else { view.dial }, ..*view };
    let latency = || view.others.iter().filter(|other| other.class == Class::Latency);
    let urgent = || latency().filter(|other| apart(other, view).is_none());
    let is_alone = latency().next().is_none();
    if is_alone && (is_unbounded || !is_sliced(view)) {
        return Verdict::run(Lane::Full, Reason::Free);
    }
    if is_unbounded {
        return Verdict::run(Lane::Full, Reason::Unbounded);
    }
    if view.share < view.least_share {
        let room = room_beside(view);
        if view.in_flight_ns > room {
            let at_ns = view.now_ns.saturating_add(view.in_flight_ns - room);
            return Verdict::hold(until(view, at_ns), Reason::InFlight, None);
        }
        return Verdict::run(few(view), Reason::LeastShare);
    }
    if let Some(hold) = not_its_turn(view) {
        return hold;
    }
    if is_alone {
        return Verdict::run(Lane::Full, Reason::Turn);
    }
    let has_room_beside = !view.splits().is_empty() && view.in_flight_ns <= room_beside(view);
    if let Some(busy) = urgent().find(|other| other.is_at_work(view.now_ns)) {
        if may_run_beside(view.dial, launch.bound) && has_room_beside {
            return Verdict::run(few(view), Reason::Beside);
        }
        let until = Until::new(view.now_ns.saturating_add(AGAIN_NS), urgent());
        return Verdict::hold(until, Reason::Busy, Some(busy.slot));
    }
    let surprise = urgent().filter_map(|other| Surprise::of(other, view.now_ns)).min();
    let first = urgent().filter_map(|other| Some((expected(other, view.now_ns)?, other))).min_by_key(|(at, _)| *at);
    let parts = parts(view);
    // The others' part may come before it. As much as they have in flight at the least of dials: the launch is not to wait
    // longer at a greater one.
    let before = ahead(Dial::new(0), surprise).min(first.map_or(u64::MAX, |(due, _)| near(view, due)));
    let of_others = before / parts * (parts - 1);
    let takes_ns = view.in_flight_ns.saturating_add(launch.expected_ns()).saturating_add(of_others);
    let over_ns = view.now_ns.saturating_add(takes_ns).saturating_add(error(takes_ns));
    let ahead = ahead(view.dial, surprise).min(first.map_or(u64::MAX, |(due, _)| near(view, due))) / parts;
    if let Some((due, other)) = first
        && over_ns.saturating_add(switch(view))
            > due.earliest_ns.saturating_add_signed(overrun(view.dial, other.rhythm.lasts_ns))
    {
        // What is longer than all pauses would never run: few SMs do the least harm.
        let longest_ns = other.rhythm.gap_ns.max(other.rhythm.long_ns);
        let never_fits = longest_ns != 0 && launch.expected_ns() > longest_ns;
        if never_fits && view.in_flight_ns <= ahead && may_be_tried(launch, view, (due, other)) {
            return Verdict::run(Lane::Full, Reason::Trial);
        }
        if never_fits && view.in_flight_ns <= ahead && !view.splits().is_empty() {
            return Verdict::run(few(view), Reason::Beside);
        }
        return Verdict::hold(until(view, due.latest_ns), Reason::Due, Some(other.slot));
    }
    if view.in_flight_ns > ahead {
        let latest_ns = first.map_or(u64::MAX, |(due, _)| due.latest_ns);
        let at_ns = view.now_ns.saturating_add(view.in_flight_ns - ahead).min(latest_ns);
        return Verdict::hold(until(view, at_ns), Reason::InFlight, None);
    }
    let beside = latency().filter(|other| other.is_at_work(view.now_ns)).filter_map(|other| apart(other, view)).max();
    match beside {
        _ if view.quarantined => Verdict::run(few(view), Reason::Quarantined),
        Some(split) => Verdict::run(Lane::Rest { split }, Reason::Beside),
        None if may_be_explored(launch, view, first.map(|(due, _)| due)) => Verdict::run(few(view), Reason::Explored),
        None if first.is_some() => Verdict::run(Lane::Full, Reason::Fits),
        None if latency().any(|other| other.is_stalled(view.now_ns)) => Verdict::run(Lane::Full, Reason::Stalled),
        None => Verdict::run(Lane::Full, Reason::Free),
    }
}

/// Whether a launch may run on few SMs to see what they mean to it: if it will be over there before a step is due, in the worst
/// case that SMs are all that binds it, and does not take too long for a step that nobody expected.
fn may_be_explored(launch: &Launch, view: &View<'_>, due: Option<Window>) -> bool {
    const LONGEST_NS: u64 = 2_000_000;
    let Some(widest) = view.splits().last() else { return false };
    let narrow = u64::from(view.width.saturating_sub(*widest).max(1));
    let takes_ns = launch.expected_ns().saturating_mul(u64::from(view.width)) / narrow;
    let over_ns = view.now_ns.saturating_add(view.in_flight_ns).saturating_add(takes_ns + error(takes_ns));
    launch.unexplored
        && !view.is_strained()
        && takes_ns <= LONGEST_NS
        && due.is_none_or(|due| over_ns <= due.earliest_ns)
}

/// Whether a launch that would never fit is let go all the same, to see how long it takes: what was wrong once, or has changed,
/// would never be put right otherwise. That costs one step at most, and there is most of the pause for it.
fn may_be_tried(launch: &Launch, view: &View<'_>, (due, other): (Window, &Member)) -> bool {
    let ahead_ns = due.earliest_ns.saturating_sub(view.now_ns);
    launch.untried && !view.quarantined && view.dial >= DISTURBS && ahead_ns >= other.rhythm.gap_ns / 2
}

/// The split whose front is enough for a latency tenant's steps, if they leave most of the GPU idle.
fn apart(member: &Member, view: &View<'_>) -> Option<usize> {
    const MOST_NEEDED: u32 = 250;
    /// What is fewer than this part of all SMs is never enough.
    const LEAST_PART: u64 = 5;
    let is_allowed = view.dial >= DISTURBS && view.dial.thousandths() < Dial::MOST && !view.is_strained();
    let needs = Some(member.rhythm.needs).filter(|needs| is_allowed && *needs <= MOST_NEEDED)?;
    let is_enough = |front: &u32| {
        let [front, width] = [*front, view.width].map(u64::from);
        front * u64::from(Rhythm::ALL) >= u64::from(needs) * width && front * LEAST_PART >= width
    };
    view.splits().iter().position(is_enough)
}

/// Whether another latency tenant, of more weight, misses its objectives and wants the GPU.
pub(crate) fn yields(view: &View<'_>) -> bool {
    let comes_first = |other: &Member| {
        let is_heavier = other.weight() > view.me.weight();
        other.class == Class::Latency && other.strained && other.is_at_work(view.now_ns) && is_heavier
    };
    view.others.iter().any(comes_first)
}

/// A time that lies ahead, and no further than makes sense.
pub(crate) fn until(view: &View<'_>, at_ns: u64) -> Until {
    let (soonest, latest) = (view.now_ns.saturating_add(1), view.now_ns.saturating_add(AGAIN_NS));
    Until::time(at_ns.clamp(soonest, latest))
}

/// When a step may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Window {
    earliest_ns: u64,
    latest_ns: u64,
}

/// When the next step of a tenant is to be expected; nothing where it cannot be told, or it should have begun long ago.
fn expected(member: &Member, now_ns: u64) -> Option<Window> {
    let rhythm = &member.rhythm;
    let due_ns = rhythm.due_ns.filter(|_| rhythm.spread_ns <= WIDEST_SPREAD_NS)?;
    let latest_ns = due_ns.saturating_add(rhythm.spread_ns).saturating_add(PATIENCE_NS);
    (now_ns < latest_ns).then(|| Window { earliest_ns: due_ns.saturating_sub(rhythm.spread_ns), latest_ns })
}

/// The narrowest lane; all SMs where there are no lanes. Who is quarantined has the narrowest of all, unless that lies in a
/// front that a latency tenant has for itself: its kernels run on when the next step has begun.
fn few(view: &View<'_>) -> Lane {
    let splits = view.splits();
    let (Some(last), Some(narrowest), Some(widest)) = (splits.len().checked_sub(1), splits.first(), splits.last())
    else {
        return Lane::Full;
    };
    let is_anybodys = || view.others.iter().any(|other| other.class == Class::Latency && apart(other, view).is_some());
    if view.quarantined && *narrowest < view.width.saturating_sub(*widest) && !is_anybodys() {
        Lane::Front { split: 0 }
    } else {
        Lane::Rest { split: last }
    }
}
