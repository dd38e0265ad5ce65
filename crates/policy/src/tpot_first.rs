//! Tokens keep their pace; prompts, training and batch work take the rest.
//!
//! Users of an LLM server feel the time between two tokens most. So where servers share a GPU, a decode step of one and the
//! prefill of another run at the same time on SMs of their own: decoding is bound by memory and does with few of them, and a
//! prefill that has the rest is over sooner than one that waits. A prefill that has used a twelfth of its time to the first
//! token has all SMs, and so have tokens beside it, unless they make room for others'. Nobody of them is ever held.
//!
//! How many SMs tokens get is a question of their objective for the time between them: as few as they can do with (`room`).
//! Two that decode at once have all SMs both, whose bandwidth they divide: what one gains by having it alone, the other waits (simulated: docs/sim.md). But where
//! one has far more time for its tokens than the other, it has as few as it can do with, and the other the rest. Of several, those make
//! room that have far more time than some other, and what they leave is for those that make none.
//!
//! Best-effort tenants run beside tokens that have time, on the SMs that those leave, and between two tokens too: who decodes has no
//! use for those SMs. They wait as under [`slo_aware`] where a prompt is pending, which takes two tokens in a row to rule out,
//! or where tokens have no time, or are made room for: nothing is left beside those. Without an objective a tenant's own pace is
//! the objective: its tokens have none.
//!
//! What tokens can do with is predicted. Where it turns out to be too little they have the next wider front for long, not for as long as
//! they miss their objective alone.
//!
//! Where objectives are missed, all make way as under [`slo_aware`]: best-effort tenants first, then latency tenants by weight.

use crate::phase::{LONGEST_HOST_NS, Phase, longest_pause_ns};
use crate::slo_aware::{self, DISTURBS, room_beside};
use crate::{Bound, Class, Decision, Dial, Lane, Launch, Member, Reason, Verdict, View};

/// What a token may take with others beside it, in thousandths of what it takes on all SMs: best-effort tenants, …
const BESIDE_OTHERS: u64 = 1_700;
/// … and another server's prompt. That server's tokens have a piece of the prompt between them, and less time to spare.
const BESIDE_PROMPT: u64 = 3_000;
/// A prompt is late when so much of the time to its first token has passed, in thousandths.
const LATE: u64 = 80;
/// Of the objective between tokens, what one may take that runs beside others, in thousandths: what is predicted may be wrong.
const KEEPS: u64 = 800;
/// The least dial while no server has anything to do: what comes next is a prompt, which takes far longer than what is in its way.
/// Who has set less than usual wants it so then, too.
const AT_REST: Dial = Dial::new(600);
/// Of the time that a token has to spare, a kernel that memory binds may take so many thousandths: there are several in a step.
const BUDGET: u64 = 250;

pub(crate) fn decide(launch: &Launch, view: &View<'_>) -> Verdict {
    let Some(half) = view.half() else { return slo_aware::decide(launch, view) };
    match (view.me.class, view.me.rhythm.phase) {
        (Class::Latency, _) if slo_aware::yields(view) => slo_aware::decide(launch, view),
        (Class::Latency, Phase::Prefill) => with_prompt(view, half),
        (Class::Latency, _) => decode(view, half),
        (Class::BestEffort, _) => beside_tokens(launch, view).unwrap_or_else(|| in_the_gaps(launch, view)),
    }
}

/// A decode step, or one that nobody knows: on the SMs that it needs if somebody has the others.
fn decode(view: &View<'_>, half: usize) -> Verdict {
    let split = if view.me.rhythm.phase != Phase::Decode {
        None
    } else if has_prompt(&view.me, view.now_ns) {
        return with_prompt(view, half);
    } else if going_on(view).any(|other| has_prompt(other, view.now_ns) && !is_late(other, view.now_ns)) {
        Some(beside_a_prompt(&view.me, view, half))
    } else if is_made_room_for(&view.me, view) {
        return on_the_rest(view, going_on(view).filter_map(|other| front_of_tokens(other, view, half)));
    } else {
        front_of_tokens(&view.me, view, half)
    };
    split.map_or(Verdict::run(view.unshared(), Reason::Urgent), |split| {
        Verdict::run(Lane::Front { split }, Reason::Complement)
    })
}

/// The split whose front somebody's tokens have while nobody has a prompt that can wait; nothing where they have none.
fn front_of_tokens(member: &Member, view: &View<'_>, half: usize) -> Option<usize> {
    if member.rhythm.phase != Phase::Decode || is_made_room_for(member, view) {
        return None;
    }
    if makes_room(member, view) {
        return Some(as_few_as_enough(member, view, half));
    }
    // Who waits and would have nothing beside these tokens takes nothing from them.
    let is_beside = |other: &Member| other.class == Class::BestEffort && other.wants();
    let is_left = view.others.iter().any(is_beside) && left_by_tokens(view).is_some();
    beside_others(member, view).filter(|_| is_left).map(|room| room.split)
}

/// Whether others have far less time for their tokens than this one.
fn makes_room(member: &Member, view: &View<'_>) -> bool {
    all(view).any(|other| is_tighter(other, member))
}

/// Whether others have far more time, and nobody far less: who is made room for makes none.
fn is_made_room_for(member: &Member, view: &View<'_>) -> bool {
    !makes_room(member, view) && all(view).any(|other| is_tighter(member, other))
}

/// The latency tenants that want the GPU or go on, this one among them if it is one.
fn all<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Member> {
    going_on(view).chain([&view.me].into_iter().filter(|me| me.class == Class::Latency))
}

/// A step of a server that has a prompt to read: beside others' tokens on the SMs that those leave, as long as its first token can
/// wait. Its own tokens have no time either: there is a piece of the prompt between each two of them.
fn with_prompt(view: &View<'_>, half: usize) -> Verdict {
    if is_late(&view.me, view.now_ns) {
        return Verdict::run(view.unshared(), if view.me.ttft_ns.is_some() { Reason::Late } else { Reason::Urgent });
    }
    let decodes = |other: &&Member| other.rhythm.phase == Phase::Decode;
    on_the_rest(view, going_on(view).filter(decodes).map(|other| beside_a_prompt(other, view, half)))
}

/// On the SMs beside all of these fronts.
fn on_the_rest(view: &View<'_>, fronts: impl Iterator<Item = usize>) -> Verdict {
    fronts.max().map_or(Verdict::run(view.unshared(), Reason::Urgent), |split| {
        Verdict::run(Lane::Rest { split }, Reason::Complement)
    })
}

/// A best-effort launch on the SMs that tokens leave; nothing where they leave none.
fn beside_tokens(launch: &Launch, view: &View<'_>) -> Option<Verdict> {
    let Room { split, spare_ns } = left_by_tokens(view).filter(|_| !view.quarantined)?;
    let foreseen = in_the_gaps(launch, view);
    let is_step_under_way = going_on(view).any(|other| other.is_at_work(view.now_ns));
    let takes_too_much = launch.bound == Some(Bound::Memory) && launch.expected_ns() > part(spare_ns, BUDGET);
    let in_flight_room = room_beside(view);
    match foreseen.decision {
        // Between two tokens it has all SMs if it is over in time.
        Decision::Run(_) if !is_step_under_way => Some(foreseen),
        Decision::Hold(_) if is_step_under_way && takes_too_much && foreseen.reason == Reason::Busy => {
            Some(Verdict { reason: Reason::Bandwidth, ..foreseen })
        }
        _ if takes_too_much => Some(foreseen),
        decision if view.in_flight_ns > in_flight_room => {
            let at_ns = view.now_ns.saturating_add(view.in_flight_ns - in_flight_room);
            // By then it may run for another reason.
            let sooner_ns = if let Decision::Hold(until) = decision { until.at_ns } else { at_ns };
            Some(Verdict::hold(slo_aware::until(view, at_ns.min(sooner_ns)), Reason::InFlight, None))
        }
        _ => Some(Verdict::run(Lane::Rest { split }, Reason::Beside)),
    }
}

/// As under [`slo_aware`], but for where tokens are: who was to be there has the narrowest rest.
fn in_the_gaps(launch: &Launch, view: &View<'_>) -> Verdict {
    let rests = |other: &Member| {
        other.class == Class::BestEffort || (other.rhythm.phase != Phase::Unknown && !goes_on(other, view.now_ns))
    };
    let is_quiet = view.dial >= Dial::USUAL && view.others.iter().all(rests);
    let dial = if is_quiet { view.dial.max(AT_REST) } else { view.dial };
    let verdict = slo_aware::decide_exploring(launch, &View { dial, ..*view }, true);
    match verdict.decision {
        Decision::Run(lane) => {
            let is_on_tokens = match lane {
                Lane::Full => false,
                Lane::Front { .. } => true,
                Lane::Rest { .. } => view.others.iter().any(|other| is_in(other, Phase::Decode, view.now_ns)),
            };
            let narrowest = view.splits().len().checked_sub(1).filter(|_| is_on_tokens);
            let lane = narrowest.map_or(lane, |split| Lane::Rest { split });
            Verdict { decision: Decision::Run(lane), ..verdict }
        }
        Decision::Hold(_) => {
            let is_for = |other: &&Member| verdict.because_of == Some(other.slot);
            let reads = |other: &Member| has_prompt(other, view.now_ns);
            let is_prompt = verdict.reason == Reason::Busy && view.others.iter().find(is_for).is_some_and(reads);
            Verdict { reason: if is_prompt { Reason::Prompt } else { verdict.reason }, ..verdict }
        }
    }
}

/// Whether a latency tenant has a step of this kind under way.
fn is_in(member: &Member, phase: Phase, now_ns: u64) -> bool {
    member.class == Class::Latency && member.rhythm.phase == phase && member.is_at_work(now_ns)
}

/// When the step of a member began that is under way or is about to begin. Before its first launch its page still has the step before;
/// from then on what is there of its beginning holds, and not of an end: that may have been said of a step that goes on. Who looks
/// between "busy" and the new beginning takes the step before for this one, for a decision.
fn begun_ns(member: &Member, now_ns: u64) -> u64 {
    if member.busy { member.rhythm.begun_ns } else { now_ns }
}

/// When the prompt began that a server has pieces of to read. A server says so until the end of a step that is none; if it had nothing
/// to do in between, that prompt was over.
fn prompt_since_ns(member: &Member, now_ns: u64) -> Option<u64> {
    let pause_ns = begun_ns(member, now_ns).saturating_sub(member.rhythm.ended_ns);
    member.rhythm.prompt_since_ns.filter(|_| pause_ns <= longest_pause_ns(member.rhythm.pace_ns))
}

/// Whether a server has a prompt to read, or a part of one.
fn has_prompt(member: &Member, now_ns: u64) -> bool {
    member.rhythm.phase == Phase::Prefill || prompt_since_ns(member, now_ns).is_some()
}

/// Whether a prompt has used too much of the time to its first token. Where nobody says how much that is, it is late if other objectives
/// are missed.
fn is_late(member: &Member, now_ns: u64) -> bool {
    let begun_ns = begun_ns(member, now_ns);
    let since_ns = prompt_since_ns(member, now_ns).map_or(begun_ns, |since_ns| since_ns.min(begun_ns));
    let lasted_ns = now_ns.saturating_sub(since_ns);
    member.ttft_ns.map_or(member.strained, |ttft_ns| lasted_ns > part(ttft_ns, LATE))
}

/// Whether a latency tenant wants the GPU, or is a server that has just had a step and is about to go on.
fn goes_on(member: &Member, now_ns: u64) -> bool {
    let pause_ns = now_ns.saturating_sub(member.rhythm.ended_ns);
    let has_just_ended = pause_ns <= longest_pause_ns(member.rhythm.pace_ns);
    let is_told_apart = member.rhythm.phase != Phase::Unknown;
    let is_going_on = member.is_at_work(now_ns) || (is_told_apart && has_just_ended);
    member.class == Class::Latency && is_going_on && !member.is_stalled(now_ns)
}

/// The others that do.
fn going_on<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Member> {
    view.others.iter().filter(|other| goes_on(other, view.now_ns))
}

/// Whether tokens of one have far less time than those of the other, for what they take. Both decode.
fn is_tighter(one: &Member, other: &Member) -> bool {
    /// Of what a token takes, so that slack is told in small steps.
    const PARTS: u64 = 64;
    let slack = |member: &Member| {
        let is_known = member.rhythm.phase == Phase::Decode && member.rhythm.pace_ns != 0;
        member.tpot_ns.filter(|_| is_known).map(|tpot_ns| tpot_ns / (member.rhythm.pace_ns / PARTS).max(1))
    };
    // Where tokens of both have no time at all, neither have less.
    slack(one).zip(slack(other)).is_some_and(|(one, other)| one < other && one <= other / 2)
}

/// The split whose front is enough for tokens, as far as is known.
fn as_few_as_enough(member: &Member, view: &View<'_>, half: usize) -> usize {
    room(member, view, BESIDE_PROMPT, 0).map_or(half, |room| room.split)
}

/// The split whose front tokens have beside a prompt. What is known of those that miss their objective, and were late on their front, is
/// wrong, and whoever reads makes way, unless it misses its objectives too.
fn beside_a_prompt(member: &Member, view: &View<'_>, half: usize) -> usize {
    let is_as_badly_off =
        |other: &Member| other.strained && other.slot != member.slot && has_prompt(other, view.now_ns);
    let is_wrong = member.strained && member.rhythm.wider > 0;
    let least = if is_wrong && !all(view).any(is_as_badly_off) { half } else { 0 };
    as_few_as_enough(member, view, half).max(least)
}

/// What the tokens of all leave to best-effort tenants. Nothing beside a prompt, nor beside tokens that others make room for: they have
/// all that those leave, and every other rest is a part of it or has it as a part.
fn left_by_tokens(view: &View<'_>) -> Option<Room> {
    if view.dial < DISTURBS || view.dial.thousandths() == Dial::MOST {
        return None;
    }
    let leaves_some = |one: &Member| {
        one.rhythm.phase == Phase::Decode && !has_prompt(one, view.now_ns) && !is_made_room_for(one, view)
    };
    let left_by = |one: &Member| beside_others(one, view).filter(|_| leaves_some(one));
    // The widest front of all is nobody else's.
    let least =
        |one: Room, other: Room| Room { split: one.split.max(other.split), spare_ns: one.spare_ns.min(other.spare_ns) };
    let mut rooms = all(view).map(left_by);
    let first = rooms.next()??;
    rooms.try_fold(first, |so_far, room| Some(least(so_far, room?)))
}

/// What tokens leave to best-effort tenants, if they have time.
fn beside_others(member: &Member, view: &View<'_>) -> Option<Room> {
    room(member, view, BESIDE_OTHERS, member.rhythm.wider).filter(|_| !member.strained)
}

/// What tokens leave.
struct Room {
    /// Whose front they need.
    split: usize,
    /// What they could take longer on it.
    spare_ns: u64,
}

/// The narrowest front on which tokens keep to their objective, and take no longer than so many thousandths of what they take on
/// all SMs, with others on the rest; wider by so many splits, if there are as many.
#[inline(never)]
fn room(member: &Member, view: &View<'_>, most: u64, wider: u8) -> Option<Room> {
    let pace_ns = Some(member.rhythm.pace_ns).filter(|pace_ns| *pace_ns != 0)?;
    // What the host takes between two tokens is the token's too.
    let host_ns = member.rhythm.soon_ns.min(LONGEST_HOST_NS);
    let most_ns = part(member.tpot_ns?, KEEPS).saturating_sub(host_ns).min(part(pace_ns, most));
    let mut spare = view.splits().iter().map(|front| most_ns.checked_sub(on_front(pace_ns, *front, view.width)));
    let split = spare.clone().position(|spare_ns| spare_ns.is_some())?.saturating_add(wider.into());
    Some(Room { split, spare_ns: spare.nth(split)?? })
}

/// What a step that memory binds takes on so many of all SMs, if it takes so long on all of them and others have the rest. Half of
/// them are enough for it; below, it takes longer in proportion. What runs on the rest takes bandwidth: with half of the SMs there
/// 12.0 ms became 18.6 ms, tokens of an 8B server.
fn on_front(all_ns: u64, front: u32, width: u32) -> u64 {
    const TAKEN: u64 = 1_000;
    let (front, width) = (u64::from(front.max(1)), u64::from(width.max(1)));
    let by_sms = all_ns.max(all_ns.saturating_mul(width) / 2 / front);
    by_sms.saturating_add(part(all_ns, TAKEN * width.saturating_sub(front) / width))
}

/// So many thousandths.
fn part(ns: u64, thousandths: u64) -> u64 {
    ns.saturating_mul(thousandths) / 1_000
}
