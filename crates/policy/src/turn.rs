//! Whose turn it is, where several share what only one can have.
//!
//! Time goes round in cycles in which each has a share by its weight, in the order of the slots. Nobody keeps an account:
//! the turn follows from the clock and from who wants one, which all see alike.

use crate::{Member, Reason, Until, Verdict, View};

/// How long a cycle is for up to sixteen; a tenant waits no longer than that for its turn.
const CYCLE_NS: u64 = 16_000_000;
/// The shortest turn: handing over takes some tens of microseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// Slots are below this.
const SLOTS: usize = 64;

/// A turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Whose.
    pub(crate) slot: u8,
    /// When it ends.
    pub(crate) ends_ns: u64,
}

/// Whose turn it is now among these, of whom the one that asks is one.
pub(crate) fn now<'a>(view: &View<'_>, among: impl Iterator<Item = &'a Member>) -> Turn {
    let mut weights = [0_u64; SLOTS];
    let (mut count, mut total) = (0, 0);
    for member in among {
        weights[usize::from(member.slot) % SLOTS] += member.weight();
        count += 1;
        total += member.weight();
    }
    let cycle = CYCLE_NS.max(SHORTEST_NS * count);
    let (begun, into) = (view.now_ns - view.now_ns % cycle, view.now_ns % cycle);
    // The first whose share of the cycle ends after now. Shares are counted from the lowest slot up.
    let mut upto = 0;
    let turns = weights.into_iter().zip(0_u8..).filter(|(weight, _)| *weight != 0).map(|(weight, slot)| {
        upto += weight;
        // Far below 2⁶⁴: at most 64 tenants of weight 10,000 and a cycle of 64 ms.
        Turn { slot, ends_ns: cycle * upto / u64::max(total, 1) }
    });
    let mine = Turn { slot: view.me.slot, ends_ns: cycle };
    let turn = turns.into_iter().find(|turn| turn.ends_ns > into).unwrap_or(mine);
    Turn { ends_ns: begun.saturating_add(turn.ends_ns), ..turn }
}

/// What a launch waits for that is to run alone: its turn among these, and then the end of what the others still have on the
/// GPU. Nothing if it may run.
pub(crate) fn hold<'a>(
    view: &View<'_>,
    among: impl Iterator<Item = &'a Member> + Clone,
    others: impl Iterator<Item = &'a Member> + Clone,
) -> Option<Verdict> {
    let turn = now(view, among.clone());
    if turn.slot != view.me.slot {
        // Until the turn is over, or whoever has it has nothing left to do.
        let until = Until::new(turn.ends_ns, among.filter(|member| member.slot != view.me.slot));
        return Some(Verdict::hold(until, Reason::NotItsTurn, Some(turn.slot)));
    }
    let busy = others.clone().find(|other| other.busy)?;
    Some(Verdict::hold(Until::new(turn.ends_ns, others), Reason::Busy, Some(busy.slot)))
}
