//! Whether a tenant keeps to its objectives, step by step.
//!
//! Nobody tells when a request came or which token is whose. What can be seen is when steps begin and end: a decode step ends
//! with a token for each request that runs, so the time from one end to the next is what users wait for, with a piece of somebody's
//! prompt in between or not, unless there was nobody to
//! wait; and no first token comes before its prefill is over. A prompt may come in pieces with decode steps in between: it is pending
//! until two of those follow each other. Prompts that queue up are judged from when the first of them began, which is no later than
//! the others were waiting. A tenant that misses an objective more often than a 99th percentile
//! allows is *strained*: others make way for it, by class and by weight, and people are told.

use crate::phase::{Phase, longest_pause_ns};

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

/// So many decode steps in a row, and no piece of a prompt is to come: a server that has one takes it in turn with tokens at least.
const NO_PROMPT: u32 = 2;

/// Follows one tenant's steps.
#[derive(Debug)]
pub struct Keeper {
    last_end_ns: u64,
    /// When the last token came to those that run, if the server has had work ever since.
    last_token_ns: Option<u64>,
    /// When the prompt began that is pending, and whether that it is late has been said.
    prompt_since_ns: Option<u64>,
    is_told: bool,
    /// Decode steps since the last of its pieces.
    decodes: u32,
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
        Self {
            last_end_ns: 0,
            last_token_ns: None,
            prompt_since_ns: None,
            is_told: false,
            decodes: 0,
            recent: [const { Recent::new() }; OBJECTIVES],
        }
    }

    /// A step is over. `pace_ns` is what short steps have to do.
    pub fn ended(
        &mut self,
        (begun_ns, end_ns): (u64, u64),
        phase: Phase,
        pace_ns: u64,
        objectives: &Objectives,
    ) -> Judgement {
        self.go_back((begun_ns, end_ns));
        let pause_ns = begun_ns.saturating_sub(self.last_end_ns);
        let goes_on = self.last_end_ns != 0 && pause_ns <= longest_pause_ns(pace_ns);
        let was_pending = self.prompt_since_ns;
        if !goes_on {
            (self.last_token_ns, self.prompt_since_ns, self.decodes) = (None, None, 0);
        }
        let before_ns = if goes_on { self.last_end_ns } else { begun_ns };
        // A prompt's own first token comes with its last piece.
        let token_since = self.last_token_ns.unwrap_or(before_ns);
        self.last_end_ns = end_ns;
        self.follow(phase, (begun_ns, end_ns));
        let judgement = [
            kept(Some(begun_ns), end_ns, objectives.p99_ns),
            self.judge_prompt(was_pending, (phase, end_ns), objectives.ttft_ns),
            kept((phase == Phase::Decode).then_some(token_since), end_ns, objectives.tpot_ns),
        ];
        for (recent, kept) in self.recent.iter_mut().zip(judgement) {
            if let Some(kept) = kept {
                recent.add(kept, end_ns);
            }
        }
        judgement
    }

    /// What happened before the clock went back, at a time that is now to come, counts as if it had just happened.
    fn go_back(&mut self, (begun_ns, end_ns): (u64, u64)) {
        self.last_end_ns = self.last_end_ns.min(begun_ns);
        for since_ns in [&mut self.last_token_ns, &mut self.prompt_since_ns] {
            *since_ns = since_ns.map(|since_ns| since_ns.min(begun_ns));
        }
        for recent in &mut self.recent {
            recent.last_missed_ns = recent.last_missed_ns.min(end_ns);
        }
    }

    /// A prompt is judged once, however many pieces it has: when it is late, or when it is over.
    fn judge_prompt(
        &mut self,
        was_pending: Option<u64>,
        (phase, end_ns): (Phase, u64),
        ttft_ns: Option<u64>,
    ) -> Option<bool> {
        let since_ns = self.prompt_since_ns;
        let was_told = self.is_told;
        if since_ns != was_pending {
            self.is_told = false;
        }
        let is_late = || kept(since_ns, end_ns, ttft_ns) == Some(false);
        if phase == Phase::Prefill && !self.is_told && is_late() {
            self.is_told = true;
            return Some(false);
        }
        let was_in_time = was_pending.is_some() && since_ns != was_pending && !was_told;
        ttft_ns.filter(|_| was_in_time).map(|_| true)
    }

    fn follow(&mut self, phase: Phase, (begun_ns, end_ns): (u64, u64)) {
        match phase {
            Phase::Prefill => {
                self.decodes = 0;
                self.prompt_since_ns.get_or_insert(begun_ns);
            }
            Phase::Decode => {
                self.last_token_ns = Some(end_ns);
                self.decodes = (self.decodes + 1).min(NO_PROMPT);
                self.prompt_since_ns = self.prompt_since_ns.filter(|_| self.decodes < NO_PROMPT);
            }
            Phase::Unknown => {}
        }
    }

    /// When the prompt began that was pending at the end of the last step.
    #[must_use]
    pub const fn prompt_since_ns(&self) -> Option<u64> {
        self.prompt_since_ns
    }

    /// Whether it misses one of them too often now.
    #[must_use]
    pub fn is_strained(&self, now_ns: u64) -> bool {
        self.recent.iter().any(|recent| recent.is_strained(now_ns))
    }
}

/// Whether something that began then took no longer than that; nothing where it is not to be judged.
fn kept(since_ns: Option<u64>, end_ns: u64, objective_ns: Option<u64>) -> Option<bool> {
    Some(end_ns.saturating_sub(since_ns?) <= objective_ns?)
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
        assert_eq!(ended((1_011, 1_018), Phase::Prefill), [None; 3]);
        // It took no longer than others, and its token came 12 ms after the one before: who has waited since then does not care
        // that a prompt was read meanwhile. Counted from the prefill's end, as once, nobody would ever be late beside prompts.
        assert_eq!(ended((1_018, 1_023), Phase::Decode), [None, None, Some(false)], "since the last token");
        // The second in a row, which says that the prompt was over.
        assert_eq!(ended((1_024, 1_036), Phase::Decode), [None, Some(true), Some(false)]);
        // Nobody waited for anything here.
        assert_eq!(ended((2_000, 2_005), Phase::Decode), [None, None, Some(true)]);
        assert_eq!(ended((2_006, 2_060), Phase::Unknown), [None; 3]);
        // The first token of all comes with the prompt.
        assert_eq!(ended((3_000, 3_018), Phase::Prefill), [None; 3]);
        assert_eq!(ended((3_019, 3_024), Phase::Decode), [None, None, Some(true)]);
    }

    /// Of a server that takes a prompt piece by piece, with a token for the others after each piece.
    #[test]
    fn a_prompt_with_tokens_in_between_is_one_prompt() {
        let mut keeper = Keeper::new();
        let mut ended = |at: u64, phase| {
            let lasts = if phase == Phase::Prefill { 18 } else { 6 };
            let judgement = keeper.ended((at * MS, (at + lasts) * MS), phase, 6 * MS, &BOTH);
            (judgement[1], judgement[2], keeper.prompt_since_ns().map(|ns| ns / MS))
        };
        assert_eq!(ended(100, Phase::Decode), (None, Some(true), None));
        let piece = |n: u64, ended: &mut dyn FnMut(u64, Phase) -> (Option<bool>, Option<bool>, Option<u64>)| {
            (ended(107 + n * 26, Phase::Prefill), ended(126 + n * 26, Phase::Decode))
        };
        let pieces: Vec<_> = (0..6).map(|n| piece(n, &mut ended)).collect();
        let first_tokens: Vec<_> = pieces.iter().map(|(piece, _)| piece.0).collect();
        assert_eq!(first_tokens, [None, None, None, None, Some(false), None], "it is late, and that is said once");
        assert!(pieces.iter().all(|(piece, token)| piece.2 == Some(107) && token.1 == Some(false)), "{pieces:?}");
        assert_eq!(pieces[5].1.2, Some(107), "a token alone does not say that it was the last piece");
        assert_eq!(ended(263, Phase::Decode), (None, Some(true), None), "two do");
        assert_eq!(ended(270, Phase::Prefill), (None, None, Some(270)), "another one");
        assert_eq!(ended(289, Phase::Decode), (None, Some(false), Some(270)));
        assert_eq!(ended(296, Phase::Decode), (Some(true), Some(true), None), "in time");
    }

    #[test]
    fn a_prompt_in_pieces_is_one_prompt() {
        let mut keeper = Keeper::new();
        let mut ended = |span: (u64, u64)| keeper.ended((span.0 * MS, span.1 * MS), Phase::Prefill, 5 * MS, &BOTH)[1];
        assert_eq!([(1, 60), (61, 99), (99, 120), (121, 150)].map(&mut ended), [None, None, Some(false), None]);
        assert_eq!(ended((500, 560)), None, "another one, after a pause");
        assert_eq!(ended((900, 1_010)), Some(false), "and one, which is late; the one before was in time");
        assert_eq!(ended((2_000, 2_010)), None);
        assert_eq!(ended((3_000, 3_010)), Some(true));
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

    #[test]
    fn a_clock_that_goes_back_makes_nobody_strained_until_it_has_caught_up() {
        let steps = Objectives { p99_ns: Some(5 * MS), ..Objectives::default() };
        let mut keeper = Keeper::new();
        const HOUR: u64 = 3_600_000 * MS;
        for step in 0..4 {
            keeper.ended((HOUR + step * 20 * MS, HOUR + (step * 20 + 9) * MS), Phase::Unknown, 0, &steps);
        }
        assert!(keeper.is_strained(HOUR + 100 * MS));
        keeper.ended((MS, 3 * MS), Phase::Unknown, 0, &steps);
        assert!(keeper.is_strained(3 * MS));
        assert!(!keeper.is_strained(3 * MS + Recent::FORGOTTEN_NS));
    }

    #[test]
    fn a_clock_that_goes_back_leaves_a_prompt_to_be_judged() {
        let mut keeper = Keeper::new();
        const HOUR: u64 = 3_600_000 * MS;
        let mut ended = |span: (u64, u64)| keeper.ended(span, Phase::Prefill, 5 * MS, &BOTH)[1];
        assert_eq!(ended((HOUR, HOUR + 20 * MS)), None);
        assert_eq!(ended((MS, 60 * MS)), None, "it is as if it had begun with this piece");
        assert_eq!(ended((61 * MS, 120 * MS)), Some(false), "119 ms, of 100 ms that there are");
    }
}
