//! How a launch in parts is to go on.

use super::forced::Forced;
use super::plan::{Next, Plan};
use core::time::Duration;
use detshare_policy::block_level::{ORIGINAL, SLICES_IN_FLIGHT, TURNAROUND_NS, Version};

/// How long a launch waits for what is before it in its stream.
const BEFORE: Duration = Duration::from_millis(2);
/// How long a part may take beyond what was measured before its launch returns without it.
const PATIENCE: Duration = Duration::from_millis(500);

/// How a launch in parts is to go on.
pub(super) struct Conduct<'a> {
    pub(super) forced: Option<&'a Forced>,
    pub(super) plan: Option<(&'static Plan, usize)>,
    /// Blocks of one slice, or persistent ones.
    pub(super) at_once: u32,
    pub(super) is_measured: bool,
    pub(super) takes: Duration,
    /// What a slice takes, or how long it is until persistent blocks give way.
    pub(super) part_ns: u64,
}

impl<'a> Conduct<'a> {
    pub(super) fn planned(plan: &'static Plan, next: &Next) -> Self {
        let turnaround_ns = if next.turnaround_ns == 0 { TURNAROUND_NS } else { next.turnaround_ns };
        let is_sliced = matches!(next.version, Version::Slices { .. });
        let part_ns = if is_sliced { turnaround_ns / SLICES_IN_FLIGHT } else { turnaround_ns };
        Self {
            forced: None,
            plan: Some((plan, next.number)).filter(|(_, number)| *number != ORIGINAL),
            at_once: u32::try_from(next.at_once).unwrap_or(u32::MAX),
            is_measured: next.is_measured,
            takes: Duration::from_nanos(next.takes_ns),
            part_ns,
        }
    }

    pub(super) fn forced(forced: &'a Forced, at_once: u32) -> Self {
        let takes = Duration::from_millis(250);
        Self { forced: Some(forced), plan: None, at_once, is_measured: false, takes, part_ns: TURNAROUND_NS }
    }

    /// How long is waited for what is before it in its stream. A test is to see parts more than it is to be fast.
    pub(super) fn before(&self) -> Duration {
        if self.forced.is_some() { BEFORE * 25 } else { BEFORE }
    }

    /// How long a part may take.
    pub(super) fn patience(&self) -> Duration {
        PATIENCE + self.takes * 4
    }
}
