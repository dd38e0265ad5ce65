//! All SMs or halves, for best-effort tenants that are among themselves.
//!
//! On all SMs what one leaves idle the others use; but blocks of several tenants on one SM get into each other's way. Kernels
//! that cannot fill the GPU are over sooner on a half that is theirs alone, others are not. Nobody knows ahead which it is, so
//! both are tried: by the clock, which all tenants share, all of them run on all SMs for a moment now and then, and on halves
//! in the next. Each compares how long its own work took, and stays where that was less. Which half is whose goes by the
//! order of slots.

use crate::{Class, Lane, Member, Reason, Verdict, View};

/// Where best-effort tenants run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// On all SMs, together.
    All,
    /// On one half of them.
    Half,
}

/// How long one place is tried.
const WINDOW_NS: u64 = 64_000_000;
/// Both are tried in the first windows of so many.
const WINDOWS: u64 = 16;
/// The same while nothing is known yet.
const WINDOWS_AT_FIRST: u64 = 4;

/// What is tried at a time, by all tenants; nothing most of the time. More often as long as a tenant does not know what is
/// faster.
#[must_use]
pub const fn tried(now_ns: u64, is_known: bool) -> Option<Place> {
    match now_ns / WINDOW_NS % if is_known { WINDOWS } else { WINDOWS_AT_FIRST } {
        0 => Some(Place::All),
        1 => Some(Place::Half),
        _ => None,
    }
}

/// Whether what is launched now tells something: both are tried for long enough by then that what was launched before is
/// mostly over.
#[must_use]
pub const fn tells(now_ns: u64, is_known: bool) -> bool {
    tried(now_ns, is_known).is_some() && now_ns % WINDOW_NS >= WINDOW_NS / 4
}

/// What a tenant's work took in either place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    all: Taken,
    half: Taken,
    is_half_faster: Option<bool>,
}

/// Of work that lasts so long as a rule, and what it lasted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Taken {
    window: u64,
    usual_ns: u64,
    took_ns: u64,
}

impl Taken {
    const NOTHING: Self = Self { window: 0, usual_ns: 0, took_ns: 0 };

    /// What was seen in earlier windows counts half as much in each later one.
    fn note(&mut self, window: u64, usual_ns: u64, took_ns: u64) {
        if self.window != window {
            *self = Self { window, usual_ns: self.usual_ns / 2, took_ns: self.took_ns / 2 };
        }
        self.usual_ns = self.usual_ns.saturating_add(usual_ns);
        self.took_ns = self.took_ns.saturating_add(took_ns);
    }

    /// In thousandths of what is usual.
    fn slowness(&self) -> Option<u128> {
        /// Less says nothing.
        const LEAST_NS: u64 = 1_000_000;
        (self.usual_ns >= LEAST_NS).then(|| u128::from(self.took_ns) * 1_000 / u128::from(self.usual_ns))
    }
}

impl Comparison {
    /// Nothing was seen yet.
    pub const NOTHING: Self = Self { all: Taken::NOTHING, half: Taken::NOTHING, is_half_faster: None };

    /// Work that was launched at a time, there, took so long; and so long as a rule.
    pub fn note(&mut self, at_ns: u64, place: Place, usual_ns: u64, took_ns: u64) {
        /// To go to a half it must be faster by this many thousandths of the time on all SMs.
        const WORTH_IT: u128 = 30;
        let taken = match place {
            Place::All => &mut self.all,
            Place::Half => &mut self.half,
        };
        taken.note(at_ns / WINDOW_NS, usual_ns, took_ns);
        if let (Some(all), Some(half)) = (self.all.slowness(), self.half.slowness()) {
            let must_gain = if self.is_half_faster == Some(true) { 0 } else { all * WORTH_IT / 1_000 };
            self.is_half_faster = Some(half + must_gain < all);
        }
    }

    /// Whether work takes less on a half; nothing where nobody knows.
    #[must_use]
    pub const fn is_half_faster(&self) -> Option<bool> {
        self.is_half_faster
    }
}

/// For a best-effort tenant that is with others of its kind only.
pub(crate) fn decide(view: &View<'_>) -> Verdict {
    let is_with_others = view.others.iter().any(|other| other.class == Class::BestEffort);
    let Some(split) = view.half().filter(|_| is_with_others) else { return Verdict::run(Lane::Full, Reason::Free) };
    let is_wanted = view.others.iter().any(Member::wants);
    let is_faster = view.is_half_faster == Some(true);
    let place = match tried(view.now_ns, view.is_half_faster.is_some()) {
        Some(Place::All) => Place::All,
        Some(Place::Half) if is_wanted => Place::Half,
        _ if is_faster => Place::Half,
        _ => Place::All,
    };
    match place {
        Place::All => Verdict::run(Lane::Full, Reason::Free),
        Place::Half => {
            let before = view.others.iter().filter(|other| other.slot < view.me.slot).count();
            let lane = if before % 2 == 0 { Lane::Front { split } } else { Lane::Rest { split } };
            Verdict::run(lane, Reason::Turn)
        }
    }
}
