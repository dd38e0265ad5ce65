//! Whose turn it is, where several share what only one can have.
//!
//! Time goes round in cycles in which each has a share by its weight, in the order of the slots. Nobody keeps an account:
//! the turn follows from the clock and from who wants one, which all see alike.

use crate::{Member, View};

/// How long a cycle is for up to sixteen; a tenant waits no longer than that for its turn.
const CYCLE_NS: u64 = 16_000_000;
/// The shortest turn: handing over takes some tens of microseconds.
const SHORTEST_NS: u64 = 1_000_000;

/// A turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Whose.
    pub(crate) slot: u8,
    /// When it ends.
    pub(crate) ends_ns: u64,
}

/// Whose turn it is now among these, of whom the one that asks is one.
pub(crate) fn now<'a>(view: &View<'_>, among: impl Iterator<Item = &'a Member> + Clone) -> Turn {
    let (count, total) = among.clone().fold((0, 0), |(count, total), member| (count + 1, total + member.weight()));
    let cycle = CYCLE_NS.max(SHORTEST_NS * count);
    let (begun, into) = (view.now_ns - view.now_ns % cycle, view.now_ns % cycle);
    // The first whose share of the cycle ends after now. Shares are counted from the lowest slot up.
    let ends_of = |member: &Member| {
        let upto = among.clone().filter(|other| other.slot <= member.slot).fold(0, |sum, other| sum + other.weight());
        // Far below 2⁶⁴: at most 64 tenants of weight 10,000 and a cycle of 64 ms.
        cycle * upto / total.max(1)
    };
    let mine = Turn { slot: view.me.slot, ends_ns: begun.saturating_add(cycle) };
    among
        .clone()
        .map(|member| (ends_of(member), member.slot))
        .filter(|(ends, _)| *ends > into)
        .min()
        .map_or(mine, |(ends, slot)| Turn { slot, ends_ns: begun.saturating_add(ends) })
}
