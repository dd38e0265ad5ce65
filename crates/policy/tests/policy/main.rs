//! What policies decide.
//!
//! * `agree`: what holds whatever is on the board.
//! * `cases`: what is decided where it can be said.
//! * `tokens`: the same of LLM servers and who is beside them.

mod agree;
mod cases;
mod tokens;

use detshare_policy::{Class, Decision, Lane, Launch, Member, POLICIES, Rhythm, View, decide, number};

pub(crate) const LADDER: [u32; 5] = [16, 32, 48, 64, 96];
pub(crate) const WIDTH: u32 = 132;
pub(crate) const MS: u64 = 1_000_000;
/// No hold is asked for that lasts longer.
pub(crate) const LONGEST_HOLD_NS: u64 = 64 * MS;

/// A best-effort tenant that has work on the GPU.
pub(crate) const TRAINING: Member = Member {
    slot: 0,
    class: Class::BestEffort,
    weight: 100,
    busy: true,
    waiting: false,
    rhythm: Rhythm::UNKNOWN,
    ttft_ns: None,
    tpot_ns: None,
    strained: false,
};
/// A latency tenant in the middle of a step.
pub(crate) const SERVER: Member = Member { slot: 1, class: Class::Latency, ..TRAINING };

/// What a launch sees with all lanes there, as it mostly is.
pub(crate) fn seen<'a>(now_ns: u64, me: Member, others: &'a [Member]) -> View<'a> {
    View { now_ns, others, ladder: &LADDER, width: WIDTH, least_share: 100, ..View::alone(me) }
}

pub(crate) fn all_policies() -> impl Iterator<Item = u32> {
    POLICIES.iter().map(|policy| numbered(policy.name))
}

pub(crate) fn numbered(name: &str) -> u32 {
    number(name).expect("there is one of that name")
}

/// What each of those that want the GPU would be told if it launched now.
pub(crate) fn decisions(policy: &str, now_ns: u64, members: &[Member], ladder: &[u32]) -> Vec<(Member, Decision)> {
    let wanting = members.iter().filter(|member| member.busy || member.waiting);
    wanting
        .map(|me| {
            let others: Vec<Member> = members.iter().copied().filter(|other| other.slot != me.slot).collect();
            let view = View { ladder, ..seen(now_ns, *me, &others) };
            (*me, decide(numbered(policy), &Launch::UNKNOWN, &view).decision)
        })
        .collect()
}

pub(crate) fn running(decisions: &[(Member, Decision)]) -> Vec<(Member, Lane)> {
    let lane = |decision| if let Decision::Run(lane) = decision { Some(lane) } else { None };
    decisions.iter().filter_map(|(member, decision)| Some((*member, lane(*decision)?))).collect()
}
