//! Whether a tenant keeps to its objectives, step by step.
//!
//! Nobody tells when a request came or which token is whose. What can be seen is when steps begin and end: a decode step ends
//! with a token for each request that runs, so the time from one end to the next is what users wait for, unless there was nobody to
//! wait; and no first token comes before its prefill is over. A tenant that misses an objective more often than a 99th percentile
//! allows is *strained*: others make way for it, by class and by weight, and people are told.

use crate::phase::Phase;

/// What a tenant wants to keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Objectives {
    /// Of a step, at the 99th percentile.
    pub p99_ns: Option<u64>,
    /// Until the first token.
    pub ttft_ns: Option<u64>,
    /// Between two tokens.
    pub tpot_ns: Option<u64>,
}

/// How many there are.
pub const OBJECTIVES: usize = 3;
/// What people call them, in the order of [`Objectives`].
pub const NAMES: [&str; OBJECTIVES] = ["p99", "ttft", "tpot"];

/// For each objective, whether a step kept to it; nothing where it says nothing about it.
pub type Judgement = [Option<bool>; OBJECTIVES];

/// What a running server's host takes between two steps, at most; longer, and it had nothing to do. Also its pace, if longer.
const LONGEST_PAUSE_NS: u64 = 2_000_000;

/// Follows one tenant's steps.
#[derive(Debug)]
pub struct Keeper {
    last_end_ns: u64,
    /// When the prefill began that was under way at the end of the last step.
    prefill_since: Option<u64>,
    recent: [Recent; OBJECTIVES],
}

impl Default for Keeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Keeper {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { last_end_ns: 0, prefill_since: None, recent: [const { Recent::new() }; OBJECTIVES] }
    }

    /// A step is over. `pace_ns` is what short steps have to do.
    pub fn ended(
        &mut self,
        (begun_ns, end_ns): (u64, u64),
        phase: Phase,
        pace_ns: u64,
        objectives: &Objectives,
    ) -> Judgement {
        let pause_ns = begun_ns.saturating_sub(self.last_end_ns);
        let goes_on = self.last_end_ns != 0 && pause_ns <= LONGEST_PAUSE_NS.max(pace_ns);
        let prefill_since = self.prefill_since.take().filter(|_| goes_on).unwrap_or(begun_ns);
        let token_since = if goes_on { self.last_end_ns } else { begun_ns };
        self.last_end_ns = end_ns;
        self.prefill_since = (phase == Phase::Prefill).then_some(prefill_since);
        let times = [
            (objectives.p99_ns, Some(begun_ns)),
            (objectives.ttft_ns, self.prefill_since),
            (objectives.tpot_ns, (phase == Phase::Decode).then_some(token_since)),
        ];
        let judgement = times.map(|(objective, since)| Some(end_ns.saturating_sub(since?) <= objective?));
        for (recent, kept) in self.recent.iter_mut().zip(judgement) {
            if let Some(kept) = kept {
                recent.add(kept, end_ns);
            }
        }
        judgement
    }

    /// Whether it misses one of them too often now.
    #[must_use]
    pub fn is_strained(&self, now_ns: u64) -> bool {
        self.recent.iter().any(|recent| recent.is_strained(now_ns))
    }
}

const BITS: usize = 64;
const WORDS: usize = 4;

/// The last steps that were judged.
#[derive(Debug)]
struct Recent {
    missed: [u64; WORDS],
    next: usize,
    last_missed_ns: u64,
}

impl Recent {
    /// Of as many as are looked at: more than a 99th percentile allows.
    const TOO_MANY: u32 = 4;
    /// After so long without any it is over.
    const FORGOTTEN_NS: u64 = 10_000_000_000;

    const fn new() -> Self {
        Self { missed: [0; WORDS], next: 0, last_missed_ns: 0 }
    }

    fn add(&mut self, kept: bool, now_ns: u64) {
        let (word, bit) = (self.next / BITS, self.next % BITS);
        self.missed[word] = self.missed[word] & !(1 << bit) | u64::from(!kept) << bit;
        self.next = (self.next + 1) % (BITS * WORDS);
        if !kept {
            self.last_missed_ns = now_ns;
        }
    }

    fn is_strained(&self, now_ns: u64) -> bool {
        let missed: u32 = self.missed.iter().map(|word| word.count_ones()).sum();
        missed >= Self::TOO_MANY && now_ns.saturating_sub(self.last_missed_ns) < Self::FORGOTTEN_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const BOTH: Objectives = Objectives { p99_ns: None, ttft_ns: Some(100 * MS), tpot_ns: Some(10 * MS) };

    #[test]
    fn tokens_are_late_by_what_comes_between_them() {
        let mut keeper = Keeper::new();
        let mut ended = |span: (u64, u64), phase| keeper.ended((span.0 * MS, span.1 * MS), phase, 5 * MS, &BOTH);
        assert_eq!(ended((1_000, 1_005), Phase::Decode), [None, None, Some(true)]);
        assert_eq!(ended((1_006, 1_011), Phase::Decode), [None, None, Some(true)]);
        assert_eq!(ended((1_011, 1_018), Phase::Prefill), [None, Some(true), None]);
        // It took no longer than others, and its token came 12 ms after the one before.
        assert_eq!(ended((1_018, 1_023), Phase::Decode), [None, None, Some(true)], "since the prefill's own token");
        assert_eq!(ended((1_024, 1_036), Phase::Decode), [None, None, Some(false)]);
        // Nobody waited for anything here.
        assert_eq!(ended((2_000, 2_005), Phase::Decode), [None, None, Some(true)]);
        assert_eq!(ended((2_006, 2_060), Phase::Unknown), [None; 3]);
    }

    #[test]
    fn a_prompt_in_pieces_is_one_prompt() {
        let mut keeper = Keeper::new();
        let mut ended = |span: (u64, u64)| keeper.ended((span.0 * MS, span.1 * MS), Phase::Prefill, 5 * MS, &BOTH)[1];
        assert_eq!([(0, 60), (61, 99), (99, 120)].map(&mut ended), [Some(true), Some(true), Some(false)]);
        assert_eq!(ended((500, 560)), Some(true), "another one");
    }

    #[test]
    fn strained_is_who_misses_more_than_one_in_a_hundred_lately() {
        let steps = Objectives { p99_ns: Some(5 * MS), ..Objectives::default() };
        let mut keeper = Keeper::new();
        let mut now = 0;
        let mut run = |keeper: &mut Keeper, ms| {
            now += 20 * MS;
            keeper.ended((now - ms * MS, now), Phase::Unknown, 0, &steps);
            keeper.is_strained(now)
        };
        assert!(
            !(0..2_000).any(|step| run(&mut keeper, if step % 100 == 50 { 9 } else { 4 })),
            "one in a hundred is allowed"
        );
        assert!((0..20).any(|_| run(&mut keeper, 9)));
        for _ in 0..256 {
            run(&mut keeper, 4);
        }
        assert!(!run(&mut keeper, 4));
        (0..20).for_each(|_| _ = run(&mut keeper, 9));
        let last = now;
        assert!(keeper.is_strained(last) && !keeper.is_strained(last + Recent::FORGOTTEN_NS));
        assert_eq!(keeper.ended((u64::MAX, 0), Phase::Decode, u64::MAX, &BOTH)[2], Some(true), "a clock that jumps");
    }
}
