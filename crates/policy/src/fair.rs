//! Equal shares, by weight.
//!
//! Who is alone has all SMs. Otherwise the tenants that want the GPU are dealt out to the two sides of a split, in the
//! order of their slots, and the split is the one whose sides are nearest to the sides' weights. Tenants on the same side
//! take turns. Where SMs cannot be partitioned, all take turns.

use crate::{Lane, Launch, Member, Reason, Until, Verdict, View, turn};

pub(crate) fn decide(_: &Launch, view: &View<'_>) -> Verdict {
    if !view.others.iter().any(Member::wants) {
        return Verdict::run(Lane::Full, Reason::Free);
    }
    let front = front(view);
    let Some(split) = best_split(view, front) else { return in_turn(view, Lane::Full, view.wanting()) };
    let in_front = is_in(front, &view.me);
    let lane = if in_front { Lane::Front { split } } else { Lane::Rest { split } };
    in_turn(view, lane, view.wanting().filter(move |member| is_in(front, member) == in_front))
}

/// The slots in front, as bits: every other one that wants the GPU, counted from the lowest.
fn front(view: &View<'_>) -> u64 {
    let wanting = view.wanting().fold(0_u64, |slots, member| slots | bit(member));
    let (mut left, mut front, mut is_front) = (wanting, 0, true);
    while left != 0 {
        let lowest = left & left.wrapping_neg();
        front |= if is_front { lowest } else { 0 };
        is_front = !is_front;
        left &= left - 1;
    }
    front
}

fn bit(member: &Member) -> u64 {
    1_u64.checked_shl(member.slot.into()).unwrap_or(0)
}

fn is_in(slots: u64, member: &Member) -> bool {
    slots & bit(member) != 0
}

fn in_turn<'a>(view: &View<'_>, lane: Lane, side: impl Iterator<Item = &'a Member> + Clone) -> Verdict {
    let turn = turn::now(view, side.clone());
    if turn.slot == view.me.slot {
        return Verdict::run(lane, Reason::Turn);
    }
    let until = Until::new(turn.ends_ns, side.filter(|member| member.slot != view.me.slot));
    Verdict::hold(until, Reason::NotItsTurn, Some(turn.slot))
}

/// The split whose front is nearest to the front's share of the weights.
fn best_split(view: &View<'_>, front: u64) -> Option<usize> {
    let weight = |members: &mut dyn Iterator<Item = &Member>| members.fold(0, |sum: u64, member| sum + member.weight());
    let all = weight(&mut view.wanting());
    let front = weight(&mut view.wanting().filter(|member| is_in(front, member)));
    let wanted = u64::from(view.width) * front / all.max(1);
    let distance = |width: u32| u64::from(width).abs_diff(wanted);
    (0..view.splits().len()).min_by_key(|split| distance(view.ladder[*split]))
}
