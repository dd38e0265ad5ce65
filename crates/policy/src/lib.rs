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
//! use detshare_policy::{Class, Decision, Dial, Lane, Launch, Member, Rhythm, View, decide, number};
//!
//! let me = Member { slot: 0, class: Class::BestEffort, weight: 100, busy: true, waiting: false, rhythm: Rhythm::UNKNOWN,
//!     ttft_ns: None, tpot_ns: None, strained: false };
//! let server = Member { slot: 1, class: Class::Latency, ..me };
//! let view = View { now_ns: 0, me, others: &[server], ladder: &[16, 64], width: 132, ..View::alone(me) };
//! let launch = Launch { lasts_ns: Some(300_000), ..Launch::UNKNOWN };
//! let slo_aware = number("slo-aware").unwrap();
//! assert!(matches!(decide(slo_aware, &launch, &view).decision, Decision::Hold(_)));
//! ```

pub mod account;
pub mod ahead;
pub mod block_level;
pub mod conduct;
mod exclusive;
mod fair;
pub mod objective;
pub mod phase;
mod reason;
pub mod rhythm;
mod slo_aware;
pub mod stall;
mod throughput;
mod tpot_first;
mod turn;

use phase::Phase;
pub use reason::Reason;

/// How urgent a tenant's work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Takes what is left.
    BestEffort,
    /// Answers users and has a deadline.
    Latency,
}

/// What is known of when a tenant has work, and for how long; all times by the clock that tenants share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// When the next step begins, where steps come regularly.
    pub due_ns: Option<u64>,
    /// How far from that it begins mostly, sooner or later.
    pub spread_ns: u64,
    /// How long it has nothing to do between two steps on average, where one that is far longer than the others counts as a long one;
    /// 0 is unknown.
    pub gap_ns: u64,
    /// How long a step lasts lately, on the SMs that it has; 0 is unknown.
    pub lasts_ns: u64,
    /// What part of the GPU a step makes use of while it lasts, in thousandths; all of it where nobody knows. More than any part on
    /// which steps were seen to last far too long.
    pub needs: u32,
    /// What the step under way is, or the last one was.
    pub phase: Phase,
    /// What short steps have to do on all SMs; 0 is unknown.
    pub pace_ns: u64,
    /// When the last step began; 0 is unknown.
    pub begun_ns: u64,
    /// When a launch was last seen to be made in it, where anybody looked; 0 is unknown.
    pub launched_ns: u64,
    /// When the prompt began that is pending: pieces of it may be to come, or are under way.
    pub prompt_since_ns: Option<u64>,
    /// When the last step ended; 0 is unknown.
    pub ended_ns: u64,
    /// Nine of ten pauses are longer than this; 0 is unknown.
    pub soon_ns: u64,
    /// Nine of ten pauses are shorter than this; 0 is unknown.
    pub long_ns: u64,
    /// By how many splits a front has to be wider than predicted for its tokens to be in time, as was seen.
    pub wider: u8,
}

impl Rhythm {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        due_ns: None,
        spread_ns: 0,
        gap_ns: 0,
        lasts_ns: 0,
        needs: Self::ALL,
        phase: Phase::Unknown,
        pace_ns: 0,
        begun_ns: 0,
        launched_ns: 0,
        prompt_since_ns: None,
        ended_ns: 0,
        soon_ns: 0,
        long_ns: 0,
        wider: 0,
    };
    /// A step makes use of all of the GPU.
    pub const ALL: u32 = 1_000;
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
    /// When it will have work.
    pub rhythm: Rhythm,
    /// Until when it wants the first token of an answer, from when it began with it.
    pub ttft_ns: Option<u64>,
    /// The most that it wants between two tokens.
    pub tpot_ns: Option<u64>,
    /// It misses its objectives.
    pub strained: bool,
}

impl Member {
    /// Whether it wants the GPU now.
    const fn wants(&self) -> bool {
        self.busy || self.waiting
    }

    /// Whether it has a step under way that stands still: as far as others can tell it will never be over.
    fn is_stalled(&self, now_ns: u64) -> bool {
        let Rhythm { begun_ns, launched_ns, lasts_ns, .. } = self.rhythm;
        self.class == Class::Latency && self.busy && stall::is_stalled((begun_ns, launched_ns), lasts_ns, now_ns)
    }

    /// Whether it wants the GPU now and others make way for it, if it is a latency tenant.
    fn is_at_work(&self, now_ns: u64) -> bool {
        self.wants() && !self.is_stalled(now_ns)
    }

    /// Its weight, so that sums and products of weights stay far below 2⁶⁴.
    fn weight(&self) -> u64 {
        const MOST: u32 = 10_000;
        u64::from(self.weight.clamp(1, MOST))
    }
}

/// What a kernel needs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// SMs: on half of them it takes twice as long.
    Compute,
    /// Memory bandwidth: fewer SMs do as well.
    Memory,
}

impl Bound {
    /// What a kernel needs most that takes so long on all SMs, and so long on a part of them; nothing where that is no part.
    #[must_use]
    pub fn told_by((all_ns, all): (u64, u32), (part_ns, part): (u64, u32)) -> Option<Self> {
        /// Of the slow-down that a lack of SMs would explain, more than this many hundredths are there.
        const MOSTLY: u128 = 60;
        let (all_ns, part_ns) = (u128::from(all_ns), u128::from(part_ns));
        let lacking = all_ns * u128::from(all.saturating_sub(part)) / u128::from(part.max(1));
        let slower = part_ns.saturating_sub(all_ns);
        let is_mostly = slower * 100 > lacking * MOSTLY;
        (lacking != 0 && part_ns != 0).then_some(if is_mostly { Self::Compute } else { Self::Memory })
    }
}

/// What is to be launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// How long it will take on all SMs; nothing where nobody knows.
    pub lasts_ns: Option<u64>,
    /// What it needs most; nothing where nobody knows.
    pub bound: Option<Bound>,
    /// It has not run on all SMs for long, or never in this process: how long it takes there is hearsay.
    pub untried: bool,
    /// What few SMs mean to it is not known, and its tenant has time to find out.
    pub unexplored: bool,
}

impl Launch {
    /// Never seen before.
    pub const UNKNOWN: Self = Self { lasts_ns: None, bound: None, untried: false, unexplored: false };
    /// What a kernel is taken to last of which nothing is known: longer than most.
    pub const USUAL_NS: u64 = 100_000;
    /// A prediction beyond this is not believed. What is handed on between processes says no more than 4.29 s, so whatever was
    /// absurd before lies beyond it still.
    pub const LONGEST_NS: u64 = 4_000_000_000;

    /// How long it will take on all SMs, as far as anybody can say.
    #[must_use]
    pub fn expected_ns(&self) -> u64 {
        self.lasts_ns.filter(|ns| *ns <= Self::LONGEST_NS).unwrap_or(Self::USUAL_NS)
    }
}

/// How long before its step is due a latency tenant has the GPU turn to it. Where tenants are time-sliced, best-effort
/// tenants leave it alone from then on.
pub const TURN_NS: u64 = 200_000;

/// How much best-effort tenants may disturb, in thousandths: from 0, never, to 1000, use everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dial(u16);

impl Dial {
    /// Use everything.
    pub const MOST: u16 = 1_000;
    /// Nobody notices much, and little is left unused.
    pub const USUAL: Self = Self(250);

    /// Of so many thousandths; more is the most.
    #[must_use]
    pub const fn new(thousandths: u16) -> Self {
        Self(if thousandths > Self::MOST { Self::MOST } else { thousandths })
    }

    /// In thousandths.
    #[must_use]
    pub const fn thousandths(self) -> u16 {
        self.0
    }

    /// The value at this dial of a line through points `(thousandths, value)`, which rise.
    fn along(self, points: &[(u16, i64)]) -> i64 {
        let after = points.iter().position(|(at, _)| *at > self.0).unwrap_or(points.len());
        match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * i64::from(self.0 - x0) / i64::from(x1 - x0),
            (Some((_, value)), None) | (None, Some((_, value))) => *value,
            (None, None) => 0,
        }
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
    /// How long the GPU still has to do with what this tenant has launched into all its streams, as far as anybody can say.
    pub in_flight_ns: u64,
    /// The part of the last time in which this tenant was not held, in thousandths.
    pub share: u32,
    /// What it gets in any case, in thousandths.
    pub least_share: u32,
    /// Its kernels keep running far longer than they should.
    pub quarantined: bool,
    /// How much it may disturb.
    pub dial: Dial,
}

/// The lane of who need not share: all SMs, or, for a latency tenant, all but a few of them where the ladder has such a split.
/// Under MPS the blocks of small grids are spread over those more evenly than over all.
#[must_use]
pub fn unshared(class: Class, ladder: &[u32], width: u32) -> Lane {
    let split = ladder.iter().position(|front| leaves_few(*front, width));
    split.filter(|_| class == Class::Latency).map_or(Lane::Full, |split| Lane::Front { split })
}

/// Where a tenant's launches run while nobody else wants the GPU, under the policy with this number.
#[must_use]
pub fn at_ease(number: u32, class: Class, ladder: &[u32], width: u32) -> Lane {
    let foresees = policy(number).is_some_and(|policy| policy.foresees);
    if foresees { unshared(class, ladder, width) } else { Lane::Full }
}

/// Whether the rest of a split is of no use to anybody.
const fn leaves_few(front: u32, width: u32) -> bool {
    const PART: u64 = 32;
    front < width && (width - front) as u64 * PART <= width as u64
}

impl View<'_> {
    /// The splits of which both sides are of use.
    fn splits(&self) -> &[u32] {
        let useful = self.ladder.iter().take_while(|front| !leaves_few(**front, self.width)).count();
        &self.ladder[..useful]
    }

    /// The split whose sides are nearest to each other.
    fn half(&self) -> Option<usize> {
        let half = self.width / 2;
        (0..self.splits().len()).min_by_key(|split| self.ladder[*split].abs_diff(half))
    }

    /// Whether a latency tenant misses its objectives.
    fn is_strained(&self) -> bool {
        let is_one = |member: &Member| member.class == Class::Latency && member.strained;
        is_one(&self.me) || self.others.iter().any(|other| is_one(other) && !other.is_stalled(self.now_ns))
    }

    /// This tenant's lane if it need not share.
    fn unshared(&self) -> Lane {
        unshared(self.me.class, self.ladder, self.width)
    }

    /// As one sees it that has the GPU for itself.
    #[must_use]
    pub const fn alone(me: Member) -> Self {
        Self {
            now_ns: 0,
            me,
            others: &[],
            ladder: &[],
            width: 0,
            in_flight_ns: 0,
            share: 1_000,
            least_share: 0,
            quarantined: false,
            dial: Dial::USUAL,
        }
    }

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

    /// That time, whatever others do.
    const fn time(at_ns: u64) -> Self {
        Self { at_ns, steps: 0 }
    }
}

/// What becomes of a launch, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What becomes of it.
    pub decision: Decision,
    /// Why.
    pub reason: Reason,
    /// The slot of the tenant that it is because of.
    pub because_of: Option<u8>,
    /// Somebody said when its next step is due, and that was not believed: it should have begun long ago, or may begin at any
    /// time around.
    pub distrusts: bool,
}

impl Verdict {
    const fn run(lane: Lane, reason: Reason) -> Self {
        Self { decision: Decision::Run(lane), reason, because_of: None, distrusts: false }
    }

    const fn hold(until: Until, reason: Reason, because_of: Option<u8>) -> Self {
        Self { decision: Decision::Hold(until), reason, because_of, distrusts: false }
    }
}

/// One way to decide.
#[derive(Debug, Clone, Copy)]
pub struct Policy {
    /// What people call it.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Whether it wants to know how long a launch will take and what is in flight.
    pub foresees: bool,
    /// Whether it has several tenants run at once, which takes MPS.
    pub shares: bool,
    decide: fn(&Launch, &View<'_>) -> Verdict,
}

/// All policies. Their numbers travel between processes: new ones come last.
pub const POLICIES: &[Policy] = &[
    Policy {
        name: "exclusive",
        about: "one tenant at a time, latency tenants first; needs no SM partition",
        foresees: false,
        shares: false,
        decide: exclusive::decide,
    },
    Policy {
        name: "fair",
        about: "equal shares by weight, of the SMs and, among more than two, of the time",
        foresees: false,
        shares: true,
        decide: fair::decide,
    },
    Policy {
        name: "slo-aware",
        about: "latency tenants as if alone; the others take what is left, by prediction",
        foresees: true,
        shares: false,
        decide: slo_aware::decide,
    },
    Policy {
        name: "throughput",
        about: "all at once on all SMs, whoever they are",
        foresees: false,
        shares: true,
        decide: throughput::decide,
    },
    Policy {
        name: "tpot-first",
        about: "tokens keep their pace; others' prompts and all else take the rest, on SMs of their own or in the gaps",
        foresees: true,
        shares: false,
        decide: tpot_first::decide,
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
pub fn decide(number: u32, launch: &Launch, view: &View<'_>) -> Verdict {
    match policy(number) {
        Some(policy) => (policy.decide)(launch, view),
        None => Verdict::run(Lane::Full, Reason::NoPolicy),
    }
}
