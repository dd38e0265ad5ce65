//! Tokens keep their pace; prompts, training and batch work take the rest.
//!
//! Users of an LLM server feel the time between two tokens most. So where servers share a GPU, a decode step of one and the
//! prefill of another run at the same time on SMs of their own: decoding is bound by memory and does with half of them, and a
//! prefill that has the other half is over sooner than one that waits. A prefill whose tenant would miss its time to the first
//! token has all SMs. Nobody of them is ever held.
//!
//! Best-effort tenants wait as under [`slo_aware`], unless tokens have time: beside decode steps whose tenants all have an
//! objective for the time between tokens, and need less than half of it, they run on the other half of the SMs; but not
//! kernels that memory binds, as it does decoding; so it is found out of each, while nobody wants the GPU. Without an objective a tenant's own pace is the objective: its tokens have no time.
//!
//! Where objectives are missed, all make way as under [`slo_aware`]: best-effort tenants first, then latency tenants by weight.

use crate::phase::Phase;
use crate::slo_aware::{self, room_beside};
use crate::{Bound, Class, Decision, Lane, Launch, Member, Reason, Verdict, View};

pub(crate) fn decide(launch: &Launch, view: &View<'_>) -> Verdict {
    let Some(split) = view.half() else { return slo_aware::decide(launch, view) };
    let may_run_beside = || launch.bound != Some(Bound::Memory) && view.in_flight_ns <= room_beside(view);
    match (view.me.class, view.me.rhythm.phase) {
        (Class::Latency, _) if slo_aware::yields(view) => slo_aware::decide(launch, view),
        (Class::Latency, Phase::Prefill) => prefill(view, split),
        (Class::Latency, _) => decode(view, split),
        (Class::BestEffort, _) if tokens_have_time(view) && may_run_beside() && !view.quarantined => {
            Verdict::run(Lane::Rest { split }, Reason::Beside)
        }
        (Class::BestEffort, _) => outside_of_tokens(slo_aware::decide_exploring(launch, view, true), view),
    }
}

/// Fronts are for tokens: who was to be in one has the narrowest rest.
fn outside_of_tokens(verdict: Verdict, view: &View<'_>) -> Verdict {
    match (verdict.decision, view.splits().len().checked_sub(1)) {
        (Decision::Run(Lane::Front { .. }), Some(split)) => {
            Verdict { decision: Decision::Run(Lane::Rest { split }), ..verdict }
        }
        _ => verdict,
    }
}

/// A decode step, or one that nobody knows: on half of the SMs if somebody has the other half.
fn decode(view: &View<'_>, split: usize) -> Verdict {
    let is_known = view.me.rhythm.phase == Phase::Decode;
    let has_other_half = |other: &Member| match other.class {
        Class::Latency => other.rhythm.phase == Phase::Prefill && other.wants(),
        Class::BestEffort => other.wants() && has_time(&view.me),
    };
    if is_known && view.others.iter().any(has_other_half) {
        Verdict::run(Lane::Front { split }, Reason::Complement)
    } else {
        Verdict::run(view.unshared(), Reason::Urgent)
    }
}

/// A prefill: on half of the SMs beside others' decode steps, as long as its first token can wait.
fn prefill(view: &View<'_>, split: usize) -> Verdict {
    let lasted_ns = view.now_ns.saturating_sub(view.me.rhythm.begun_ns);
    let is_late = view.me.ttft_ns.is_some_and(|ttft_ns| lasted_ns > ttft_ns / 2);
    let decoding =
        |other: &Member| other.class == Class::Latency && other.rhythm.phase == Phase::Decode && other.wants();
    if !is_late && view.others.iter().any(decoding) {
        Verdict::run(Lane::Rest { split }, Reason::Complement)
    } else {
        Verdict::run(view.unshared(), Reason::Urgent)
    }
}

/// Whether all latency tenants that want the GPU are decoding, and their tokens have time; and at least one does.
fn tokens_have_time(view: &View<'_>) -> bool {
    let mut wanting = view.others.iter().filter(|other| other.class == Class::Latency && other.wants()).peekable();
    wanting.peek().is_some() && wanting.all(|other| other.rhythm.phase == Phase::Decode && has_time(other))
}

/// Whether its tokens may take twice as long as they do.
fn has_time(member: &Member) -> bool {
    let pace_ns = member.rhythm.pace_ns;
    !member.strained && pace_ns != 0 && member.tpot_ns.is_some_and(|tpot_ns| pace_ns.saturating_mul(2) <= tpot_ns)
}
