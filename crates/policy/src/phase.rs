//! What a step of an LLM server is, learned from what it launches: decoding, which is short and alike, or the prefill of a
//! prompt, which is long and varies.
//!
//! What a step has to do is what its launches take together, as predicted; how long it lasts in company does not matter. Most
//! steps of a server are short: their usual work is its *pace*. A step with more than twice of that is a prefill, and so is one
//! with a little more that takes far more launches: where decoding is a CUDA graph, prefill mostly is none, and no single launch
//! of it has most of the work. Where that has been seen, other steps must have far more to do to be a prefill: what a graph
//! takes is learned from few launches, in company those may have been slow, and what prepares it may never have been seen. Programs
//! have tiny steps, too, that are no tokens: where longer ones are alike and do nearly all the work, the pace is theirs. How a step
//! will end is often known when it begins: steps that begin with the same launches had as much to do before. A wrong guess costs
//! somebody time; no result depends on it.

/// What a step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Phase {
    /// Nobody knows: too few steps, or a program that does something else.
    #[default]
    Unknown = 0,
    /// A token for each request that runs.
    Decode,
    /// A prompt, or a part of one.
    Prefill,
}

impl Phase {
    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one with this number; nobody knows what others are.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Decode,
            2 => Self::Prefill,
            _ => Self::Unknown,
        }
    }

    /// What people call it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "-",
            Self::Decode => "decode",
            Self::Prefill => "prefill",
        }
    }
}

/// Steps until anything is said.
const FEWEST: u32 = 8;
/// Times the pace: more is a prefill.
const PREFILL: u64 = 2;
/// The same for a step with few launches where prefills take many.
const PREFILL_OF_FEW: u64 = 8;
/// So many are few, whatever is usual: a short prompt that was taken for decoding makes them look so.
const FEW_LAUNCHES: u32 = 8;
/// Prefills with many launches until that is known.
const PREFILLS_OF_MANY: u32 = 2;
/// Times the usual launches: more is a prefill too, if it has an eighth more to do.
const MANY_LAUNCHES: u32 = 4;
/// Less than this part of the pace is something else, and says nothing.
const TRIFLE: u64 = 8;
/// So many prefills in a row, without a token for anybody, and the pace is another one.
const ONLY_PREFILLS: u32 = 256;
/// The same of those with few launches: first steps that were shorter than all others have set a pace that is none.
const ONLY_OF_FEW: u32 = 16;
/// Short steps between them that do less than this part of their work are no tokens, if they themselves are alike: prompts that take
/// nearly all of the time vary.
const NO_TOKENS: u64 = 32;
/// Steps are alike that differ by this part of what they have to do at most.
const ALIKE: u64 = 4;
/// As many short steps in a row, and the pace is theirs.
const SHORTER: u32 = 16;
/// The same of trifles.
const TRIFLES: u32 = 32;
/// Launches at the beginning of a step after which it is compared with others.
const LOOKS: [u32; 4] = [1, 2, 4, 8];
/// Beginnings that are remembered.
const BEGINNINGS: usize = 64;

/// What a running server's host takes between two steps, at most.
pub(crate) const LONGEST_HOST_NS: u64 = 2_000_000;

/// The longest pause between two steps of a server that has had something to do all the time. A slow one's host takes longer, too: up
/// to what a short step has to do.
pub(crate) fn longest_pause_ns(pace_ns: u64) -> u64 {
    pace_ns.max(LONGEST_HOST_NS)
}

/// How steps went on that began with the same launches: how often lately, what is longer ago counts for less.
#[derive(Debug, Clone, Copy)]
struct Beginning {
    hash: u64,
    decodes: u32,
    prefills: u32,
    /// When it was last seen, in steps.
    seen: u64,
}

impl Beginning {
    const NONE: Self = Self { hash: 0, decodes: 0, prefills: 0, seen: 0 };
    /// What one step counts.
    const ONE: u32 = 16;

    fn add(&mut self, phase: Phase) {
        let (one, other) = match phase {
            Phase::Decode => (&mut self.decodes, &mut self.prefills),
            Phase::Prefill => (&mut self.prefills, &mut self.decodes),
            Phase::Unknown => return,
        };
        *one = one.saturating_add(Self::ONE).min(Self::ONE * Self::ONE);
        *other -= other.div_ceil(Self::ONE);
    }

    /// What most of them were, if almost all of them were that.
    fn phase(&self) -> Phase {
        let is_clear = |one: u32, other: u32| one >= 2 * Self::ONE && other < one / Self::ONE;
        if is_clear(self.decodes, self.prefills) {
            Phase::Decode
        } else if is_clear(self.prefills, self.decodes) {
            Phase::Prefill
        } else {
            Phase::Unknown
        }
    }
}

/// Steps that seem to be prefills, since short ones last did enough to be tokens. If there are many the pace may be wrong: a program
/// that looks at each token before it hands it on has tiny steps between those that it lives by.
#[derive(Debug, Clone, Copy)]
struct Longer {
    count: u32,
    work_ns: u64,
    /// What short steps did meanwhile.
    short_ns: u64,
    /// What most of them have to do and launch, if most are alike, and by how many they outnumber all others.
    usual_ns: u64,
    launches: u32,
    majority: u32,
}

impl Longer {
    const NONE: Self = Self { count: 0, work_ns: 0, short_ns: 0, usual_ns: 0, launches: 0, majority: 0 };

    fn add(&mut self, work_ns: u64, launches: u32) {
        let counts = if launches <= FEW_LAUNCHES { ONLY_PREFILLS.div_ceil(ONLY_OF_FEW) } else { 1 };
        self.count = self.count.saturating_add(counts).min(ONLY_PREFILLS);
        self.work_ns = self.work_ns.saturating_add(work_ns);
        if work_ns.abs_diff(self.usual_ns) <= self.usual_ns / ALIKE {
            self.majority = (self.majority + 1).min(ONLY_PREFILLS);
        } else if self.majority > 0 {
            self.majority -= 1;
        } else {
            (self.usual_ns, self.launches, self.majority) = (work_ns, launches, 1);
        }
    }

    /// A short step came.
    fn interrupt(&mut self, work_ns: u64) {
        self.short_ns = self.short_ns.saturating_add(work_ns);
        if self.short_ns >= self.work_ns / NO_TOKENS {
            *self = Self::NONE;
        }
    }

    /// The pace that they say is the true one, of the last of them.
    fn pace(&self, last: (u64, u32)) -> Option<(u64, u32)> {
        let is_majority = self.majority >= ONLY_OF_FEW;
        let pace = if is_majority { (self.usual_ns, self.launches) } else { last };
        (self.count >= ONLY_PREFILLS && (is_majority || self.short_ns == 0)).then_some(pace)
    }
}

/// What one tenant's steps were like so far, and what is known of the one under way.
#[derive(Debug)]
pub struct Phases {
    steps: u64,
    pace_ns: u64,
    /// What a short step takes to launch lately, at most.
    usual_launches: u32,
    longer: Longer,
    shorter: u32,
    /// Prefills with many launches, less those with few.
    of_many: u32,
    /// How often such a one came after others.
    returns: u32,
    /// How much speaks for steps of two kinds; enough once is enough.
    evidence: u32,
    has_both: bool,
    beginnings: [Beginning; BEGINNINGS],
    under_way: UnderWay,
}

/// The step under way: what was launched so far.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    launches: u32,
    work_ns: u64,
    largest_ns: u64,
    hash: u64,
    looks: [u64; LOOKS.len()],
    guess: Phase,
}

impl UnderWay {
    const NOTHING: Self =
        Self { launches: 0, work_ns: 0, largest_ns: 0, hash: 0, looks: [0; LOOKS.len()], guess: Phase::Unknown };
}

/// What was launched, of a step that is not under way any more or not yet.
#[derive(Debug, Clone, Copy)]
pub struct Made(UnderWay);

impl Made {
    /// Nothing.
    pub const NOTHING: Self = Self(UnderWay::NOTHING);

    /// Both as one step.
    #[must_use]
    pub fn and(&self, behind: &Self) -> Self {
        let (Self(first), Self(then)) = (self, behind);
        Self(UnderWay {
            launches: first.launches.saturating_add(then.launches),
            work_ns: first.work_ns.saturating_add(then.work_ns),
            largest_ns: first.largest_ns.max(then.largest_ns),
            ..if first.launches == 0 { *then } else { *first }
        })
    }

    /// What it seemed to be when it was launched.
    #[must_use]
    pub const fn guess(&self) -> Phase {
        self.0.guess
    }

    /// Launches of which it is known what they take.
    #[must_use]
    pub const fn launches(&self) -> u32 {
        self.0.launches
    }
}

impl Default for Phases {
    fn default() -> Self {
        Self::new()
    }
}

impl Phases {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            steps: 0,
            pace_ns: 0,
            usual_launches: 0,
            longer: Longer::NONE,
            shorter: 0,
            of_many: 0,
            returns: 0,
            evidence: 0,
            has_both: false,
            beginnings: [Beginning::NONE; BEGINNINGS],
            under_way: UnderWay::NOTHING,
        }
    }

    /// Something was launched that is expected to take so long on all SMs. Says what the step seems to be.
    pub fn launched(&mut self, identity: u64, expected_ns: u64) -> Phase {
        self.under_way = self.with(identity, expected_ns);
        self.under_way.guess
    }

    /// What [`Phases::launched`] will say of this launch: it is decided before it is made, and a decode step has no other.
    #[must_use]
    pub fn foresee(&self, identity: u64, expected_ns: u64) -> Phase {
        self.with(identity, expected_ns).guess
    }

    /// The step under way, with one launch more.
    fn with(&self, identity: u64, expected_ns: u64) -> UnderWay {
        let mut step = self.under_way;
        step.launches = step.launches.saturating_add(1);
        step.work_ns = step.work_ns.saturating_add(expected_ns);
        step.largest_ns = step.largest_ns.max(expected_ns);
        if step.launches <= LOOKS[LOOKS.len() - 1] {
            step.hash = mixed(step.hash, identity);
        }
        if let Some(look) = LOOKS.iter().position(|count| *count == step.launches) {
            step.looks[look] = step.hash;
            let found = self.beginnings.iter().find(|beginning| beginning.hash == step.hash);
            step.guess = found.filter(|_| self.is_known()).map_or(step.guess, Beginning::phase);
        }
        if self.is_known() {
            let has_most = expected_ns > self.pace_ns / 2;
            match self.of(step.work_ns, step.launches, step.largest_ns) {
                Phase::Prefill => step.guess = Phase::Prefill,
                // What came before it only prepared it.
                Phase::Decode if has_most => step.guess = Phase::Decode,
                Phase::Decode | Phase::Unknown => {}
            }
        }
        step
    }

    /// The step under way is over, after so long and with so many launches. Says what it was. Where nobody kept account of its
    /// launches, because it was alone, how long it lasted is what it had to do.
    pub fn ended(&mut self, lasts_ns: u64, launches: u32) -> Phase {
        let made = self.take();
        self.ended_with(made, lasts_ns, launches)
    }

    /// What was launched of the step under way: what comes now is another one's.
    pub fn take(&mut self) -> Made {
        Made(core::mem::replace(&mut self.under_way, UnderWay::NOTHING))
    }

    /// As [`Phases::ended`], of a step that was launched before.
    pub fn ended_with(&mut self, Made(step): Made, lasts_ns: u64, launches: u32) -> Phase {
        let UnderWay { looks, largest_ns, .. } = step;
        let is_accounted = step.launches != 0;
        // At first nobody knows what launches take.
        let by_the_clock = if is_accounted && self.is_known() { 0 } else { lasts_ns };
        let work_ns = step.work_ns.max(by_the_clock);
        let phase = self.over(work_ns, launches, largest_ns, is_accounted);
        for hash in looks.into_iter().filter(|hash| *hash != 0 && work_ns != 0) {
            self.remember(hash, phase);
        }
        if self.is_known() { phase } else { Phase::Unknown }
    }

    fn over(&mut self, work_ns: u64, launches: u32, largest_ns: u64, is_accounted: bool) -> Phase {
        if work_ns == 0 {
            return Phase::Unknown;
        }
        self.steps += 1;
        if self.steps <= u64::from(FEWEST) && (self.pace_ns == 0 || work_ns < self.pace_ns) {
            (self.pace_ns, self.usual_launches) = (work_ns, launches);
        }
        let phase = self.of(work_ns, launches, largest_ns);
        let is_another = self.takes_many(launches, largest_ns);
        self.follow(phase, work_ns, (launches, is_another), is_accounted);
        phase
    }

    /// The pace is what short steps have to do lately.
    fn follow(&mut self, phase: Phase, work_ns: u64, (launches, is_another): (u32, bool), is_accounted: bool) {
        match phase {
            Phase::Decode => {
                self.longer.interrupt(work_ns);
                self.evidence = self.evidence.saturating_sub(1);
                self.usual_launches = launches.max(self.usual_launches - self.usual_launches / 16);
                self.shorter = if work_ns < self.pace_ns / PREFILL { self.shorter + 1 } else { 0 };
                let (pace, part) = (self.pace_ns, if self.shorter >= SHORTER { 1 } else { 16 });
                self.pace_ns =
                    if work_ns > pace { pace + (work_ns - pace) / part } else { pace - (pace - work_ns) / part };
            }
            Phase::Prefill => {
                self.doubt_less(is_another, is_accounted);
                self.longer.add(work_ns, launches);
                if let Some(pace) = self.longer.pace((work_ns, launches)) {
                    (self.pace_ns, self.usual_launches) = pace;
                    self.longer = Longer::NONE;
                }
            }
            Phase::Unknown => {
                self.shorter += 1;
                if self.shorter >= TRIFLES {
                    (self.pace_ns, self.usual_launches, self.shorter) = (work_ns, launches, 0);
                }
            }
        }
    }

    /// A step that was long by chance has as many launches as others, and no more to do. Steps that come before all others,
    /// and never again, are a program's beginning.
    fn doubt_less(&mut self, is_another: bool, is_accounted: bool) {
        const ENOUGH: u32 = 48;
        const RARE: u32 = 16;
        const MOST: u32 = 16;
        let is_first = self.longer.count == 0;
        self.of_many = if is_another { (self.of_many + 1).min(MOST) } else { self.of_many.saturating_sub(1) };
        self.returns = (self.returns + u32::from(is_another && is_first)).min(MOST);
        self.evidence = (self.evidence + if is_first && is_accounted { RARE } else { 0 }).min(ENOUGH);
        self.has_both |= self.is_known() && (self.evidence >= ENOUGH || self.returns >= PREFILLS_OF_MANY);
    }

    /// The usual work of a short step; 0 if nothing is known yet.
    #[must_use]
    pub fn pace_ns(&self) -> u64 {
        if self.is_known() { self.pace_ns } else { 0 }
    }

    /// Whether its steps are of both kinds, as an LLM server's.
    #[must_use]
    pub const fn has_both(&self) -> bool {
        self.has_both
    }

    const fn is_known(&self) -> bool {
        self.steps >= FEWEST as u64
    }

    /// Whether it takes far more launches than usual, none of which has most of the work of a short step.
    const fn takes_many(&self, launches: u32, largest_ns: u64) -> bool {
        launches > self.usual_launches.saturating_mul(MANY_LAUNCHES) && largest_ns <= self.pace_ns / 2
    }

    fn of(&self, work_ns: u64, launches: u32, largest_ns: u64) -> Phase {
        let has_many = self.takes_many(launches, largest_ns) && work_ns > self.pace_ns.saturating_add(self.pace_ns / 8);
        let is_of_few = launches <= FEW_LAUNCHES || largest_ns > self.pace_ns / 2;
        let times = if self.of_many >= PREFILLS_OF_MANY && is_of_few { PREFILL_OF_FEW } else { PREFILL };
        if has_many || work_ns > self.pace_ns.saturating_mul(times) {
            Phase::Prefill
        } else if work_ns < self.pace_ns / TRIFLE {
            Phase::Unknown
        } else {
            Phase::Decode
        }
    }

    fn remember(&mut self, hash: u64, phase: Phase) {
        let place = self.beginnings.iter().position(|beginning| beginning.hash == hash);
        let oldest = || (0..BEGINNINGS).min_by_key(|place| self.beginnings[*place].seen).unwrap_or(0);
        let beginning = &mut self.beginnings[place.unwrap_or_else(oldest)];
        if beginning.hash != hash {
            *beginning = Beginning { hash, ..Beginning::NONE };
        }
        beginning.seen = self.steps;
        beginning.add(phase);
    }
}

fn mixed(hash: u64, value: u64) -> u64 {
    let mixed = (hash ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

#[cfg(test)]
#[path = "phase_tests.rs"]
mod tests;
