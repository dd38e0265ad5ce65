//! Who may run where, and when: pure functions over plain data.
//!
//! A launch asks [`decide`]: may it run, and on which lane, or is it held, and until what happens? The answer depends on
//! nothing but the [`View`] that is handed in: there is no clock, no thread and no memory of earlier answers here. So
//! every tenant decides for itself, in the thread that launches, and they agree without a word between them, because they
//! see the same board and the same clock. The simulator asks the same functions.
//!
//! What a decision does is somebody else's: the shim waits, and no longer than a tenant's longest hold, whatever is said
//! here. Two tenants that look at the same instant may each miss what the other is about to publish; the next launch of
//! either sees it. Policies must therefore be ones that a short overlap does not harm, and no result depends on them.
//!
//! A policy is one file with a function and one row in [`POLICIES`].
//!
//! ```
//! use detshare_policy::{Class, Decision, Lane, Member, View, decide, number};
//!
//! let me = Member { slot: 0, class: Class::BestEffort, weight: 100, busy: true, waiting: false };
//! let other = Member { slot: 1, ..me };
//! let view = View { now_ns: 0, me, others: &[other], ladder: &[16, 64], width: 132 };
//! let fair = number("fair").unwrap();
//! assert_eq!(decide(fair, &view), Decision::Run(Lane::Front { split: 1 }));
//! ```

mod exclusive;
mod fair;
mod turn;

/// How urgent a tenant's work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Takes what is left.
    BestEffort,
    /// Answers users and has a deadline.
    Latency,
}

/// A tenant, as far as it matters for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Its slot, below 64: tells it from others, and gives all of them the same order.
    pub slot: u8,
    /// How urgent its work is.
    pub class: Class,
    /// Its weight among its equals; at least 1.
    pub weight: u32,
    /// The GPU has work of it.
    pub busy: bool,
    /// One of its launches is being held.
    pub waiting: bool,
}

impl Member {
    /// Whether it wants the GPU now.
    const fn wants(&self) -> bool {
        self.busy || self.waiting
    }
}

/// What a tenant sees when it launches.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The clock that all tenants of the machine share.
    pub now_ns: u64,
    /// Who launches.
    pub me: Member,
    /// The others on the same GPU that are not paused.
    pub others: &'a [Member],
    /// The widths of `front` in the splits that there are, narrowest first; none where SMs cannot be partitioned.
    pub ladder: &'a [u32],
    /// How many SMs the GPU has.
    pub width: u32,
}

impl View<'_> {
    /// All that want the GPU, this one among them, whose launch is what is decided.
    fn wanting(&self) -> impl Iterator<Item = &Member> + Clone {
        self.others.iter().filter(|other| other.wants()).chain([&self.me])
    }
}

/// A set of SMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// All of them.
    Full,
    /// The front of a split of the ladder.
    Front {
        /// Which.
        split: usize,
    },
    /// The rest of it.
    Rest {
        /// Which.
        split: usize,
    },
}

/// What becomes of a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It runs there.
    Run(Lane),
    /// It waits, and is decided again.
    Hold(Until),
}

/// What a held launch waits for: whatever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Until {
    /// A time.
    pub at_ns: u64,
    /// One of these tenants no longer wants the GPU: bit `n` is slot `n`. One that waits will have a step, and its end is
    /// what counts.
    pub steps: u64,
}

impl Until {
    fn new<'a>(at_ns: u64, members: impl Iterator<Item = &'a Member>) -> Self {
        let steps = members.filter(|member| member.wants()).fold(0, |steps, member| steps | 1 << (member.slot % 64));
        Self { at_ns, steps }
    }
}

/// One way to decide.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// What people call it.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    decide: fn(&View<'_>) -> Decision,
}

/// All policies. Their numbers travel between processes: new ones come last.
pub const POLICIES: &[Policy] = &[
    Policy {
        name: "exclusive",
        about: "one tenant at a time, latency tenants first; needs no SM partition",
        decide: exclusive::decide,
    },
    Policy {
        name: "fair",
        about: "equal shares by weight, of the SMs and, among more than two, of the time",
        decide: fair::decide,
    },
];

/// The number of the policy with this name.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    let position = POLICIES.iter().position(|policy| policy.name == name)?;
    u32::try_from(position).ok()
}

/// The policy with this number.
#[must_use]
pub fn policy(number: u32) -> Option<&'static Policy> {
    POLICIES.get(usize::try_from(number).ok()?)
}

/// Decides a launch. A number that stands for no policy, which a newer daemon might publish, holds nobody.
#[must_use]
pub fn decide(number: u32, view: &View<'_>) -> Decision {
    match policy(number) {
        Some(policy) => (policy.decide)(view),
        None => Decision::Run(Lane::Full),
    }
}
