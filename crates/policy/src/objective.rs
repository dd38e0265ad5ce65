//! Whether a tenant keeps to its objectives, step by step.
//!
//! Nobody tells when a request came or which token is whose. What can be seen is when steps begin and end: a decode step ends
//! with a token for each request that runs, so the time from one end to the next is what users wait for, with a piece of somebody's
//! prompt in between or not; and no first token comes before its prefill is over. Who waited is not always plain. After a pause longer
//! than usual before a prompt there may have been nobody, and of several pieces in a row each may have brought others a token:
//! a token is in time if it was for whoever waited longest, late if it was even for one who waited for the longest of the steps in
//! between alone, and not judged otherwise. A prompt may come in pieces with decode steps in between: it is pending
//! until two of those follow each other. Prompts that queue up are judged from when the first of them began: those that were there by
//! then have waited as long at least, of later ones nothing is known. So that is said once; what goes on for four times as long as
//! there is time, with tokens in between, is taken for several prompts from then on, of which none is judged. A tenant that misses an
//! objective more often than a 99th percentile allows is *strained*: others make way for it, by class and by weight, and people are
//! told.

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
/// Pieces that go on for as many times as long as a first token may take are of several prompts.
const SEVERAL: u64 = 4;
/// A pause that is so many times as long as usual, and longer by what a busy host is late by, may be one in which nobody waited.
const UNUSUAL: u64 = 4;
const LATE_HOST_NS: u64 = 200_000;

/// How many splits wider than predicted the front is to be that tokens have: by one more when too many were late there with nothing
/// else between them, and by one less when hardly any were for long. Else it would go on for ever: tokens that are late have all SMs
/// for as long as that is remembered, and then as few as before.
#[derive(Debug, Default)]
struct Front {
    wider: u8,
    /// Tokens since that was looked at last, and how many of them were late on a front.
    tokens: u32,
    late: u32,
}

impl Front {
    const NEW: Self = Self { wider: 0, tokens: 0, late: 0 };
    /// Of so many tokens this is as many as a 99th percentile allows.
    const LATE: u32 = 2;
    const OF: u32 = 200;
    /// Tokens after which it is tried again whether fewer SMs are enough.
    const TRIED_AGAIN: u32 = 8_000;
    /// There are no more splits.
    const WIDEST: u8 = 16;

    fn judge(&mut self, is_late: bool) {
        self.tokens += 1;
        self.late += u32::from(is_late);
        if self.late >= Self::LATE {
            *self = Self { wider: (self.wider + 1).min(Self::WIDEST), ..Self::NEW };
        } else if self.tokens.is_multiple_of(Self::OF) {
            self.late = 0;
        }
        if self.tokens >= Self::TRIED_AGAIN {
            *self = Self { wider: self.wider.saturating_sub(1), ..Self::NEW };
        }
    }
}

/// Follows one tenant's steps.
#[derive(Debug)]
pub struct Keeper {
    last_end_ns: u64,
    /// When the last token came to those that run, if the server has had work ever since.
    last_token_ns: Option<u64>,
    /// The longest step since then, from the end of the one before it; and whether somebody has waited all the time, as far as is known.
    longest_ns: u64,
    somebody_waits: bool,
    /// How long it mostly pauses between two decode steps.
    usual_pause_ns: Option<u64>,
    /// When the prompt began that is pending, and whether all is said of it that there is to say: that it is late, or nothing.
    prompt_since_ns: Option<u64>,
    is_told: bool,
    /// Decode steps since the last of its pieces, and whether there was one between any two of them.
    decodes: u32,
    has_tokens_between: bool,
    /// Whether the step that is judged next ran on a front.
    is_on_front: bool,
    front: Front,
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
            longest_ns: 0,
            somebody_waits: true,
            usual_pause_ns: None,
            prompt_since_ns: None,
            is_told: false,
            decodes: 0,
            has_tokens_between: false,
            is_on_front: false,
            front: Front::NEW,
            recent: [const { Recent::new() }; OBJECTIVES],
        }
    }

    /// The step that is over next ran on a front, or did not.
    pub const fn ran_on_front(&mut self, is_on_front: bool) {
        self.is_on_front = is_on_front;
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
        if goes_on {
            self.learn_pause(phase, pause_ns);
        } else {
            (self.last_token_ns, self.prompt_since_ns, self.decodes) = (None, None, 0);
            self.somebody_waits = true;
        }
        let before_ns = if goes_on { self.last_end_ns } else { begun_ns };
        let token =
            (phase == Phase::Decode).then(|| self.judge_token((before_ns, end_ns), objectives.tpot_ns)).flatten();
        if let Some(kept) = token.filter(|_| self.decodes > 0 && self.longest_ns == 0) {
            self.front.judge(!kept && self.is_on_front);
        }
        self.last_end_ns = end_ns;
        let is_one_of_several = goes_on && self.is_one_of_several(phase, begun_ns, objectives.ttft_ns);
        self.follow(phase, (begun_ns, end_ns), before_ns, is_one_of_several);
        let judgement = [
            kept(Some(begun_ns), end_ns, objectives.p99_ns),
            self.judge_prompt(was_pending, (phase, end_ns), objectives.ttft_ns)
                .filter(|kept| !(is_one_of_several && *kept)),
            token,
        ];
        for (recent, kept) in self.recent.iter_mut().zip(judgement) {
            if let Some(kept) = kept {
                recent.add(kept, end_ns);
            }
        }
        // Nothing is said of it, now and later.
        self.is_told |= is_one_of_several;
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

    /// A pause before a prompt that is longer than those between tokens: there may have been nothing else to do.
    fn learn_pause(&mut self, phase: Phase, pause_ns: u64) {
        /// What a pause counts for in what is usual.
        const PART: u64 = 8;
        let usual_ns = self.usual_pause_ns.unwrap_or(pause_ns);
        match phase {
            Phase::Decode if self.decodes > 0 => {
                self.usual_pause_ns = Some(usual_ns - usual_ns / PART + pause_ns / PART);
            }
            Phase::Prefill if self.prompt_since_ns.is_none() => {
                self.somebody_waits &= pause_ns <= usual_ns.saturating_mul(UNUSUAL).saturating_add(LATE_HOST_NS);
            }
            _ => {}
        }
    }

    /// Whether a decode step that is over by now brings its tokens in time.
    fn judge_token(&self, (before_ns, end_ns): (u64, u64), tpot_ns: Option<u64>) -> Option<bool> {
        let tpot_ns = tpot_ns?;
        // A prompt's own first token comes with its last piece.
        let most_ns = end_ns.saturating_sub(self.last_token_ns.unwrap_or(before_ns));
        let itself_ns = end_ns.saturating_sub(before_ns);
        let waits_ns = if self.somebody_waits && self.last_token_ns.is_some() { self.longest_ns } else { 0 };
        let least_ns = itself_ns.saturating_add(waits_ns);
        if most_ns <= tpot_ns { Some(true) } else { (least_ns > tpot_ns).then_some(false) }
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

    /// Whether a piece begins of which it is not known to which of several prompts it belongs.
    fn is_one_of_several(&self, phase: Phase, begun_ns: u64, ttft_ns: Option<u64>) -> bool {
        let is_too_long = |(since_ns, ttft_ns): (u64, u64)| {
            begun_ns.saturating_sub(since_ns) > ttft_ns.saturating_mul(SEVERAL) && self.has_tokens_between
        };
        phase == Phase::Prefill && self.prompt_since_ns.zip(ttft_ns).is_some_and(is_too_long)
    }

    fn follow(&mut self, phase: Phase, (begun_ns, end_ns): (u64, u64), before_ns: u64, is_one_of_several: bool) {
        match phase {
            Phase::Prefill => {
                let goes_on_ns = self.prompt_since_ns.filter(|_| !is_one_of_several);
                self.has_tokens_between = goes_on_ns.is_some() && (self.has_tokens_between || self.decodes > 0);
                self.prompt_since_ns = Some(goes_on_ns.unwrap_or(begun_ns));
                self.decodes = 0;
            }
            Phase::Decode => {
                self.last_token_ns = Some(end_ns);
                self.decodes = (self.decodes + 1).min(NO_PROMPT);
                self.prompt_since_ns = self.prompt_since_ns.filter(|_| self.decodes < NO_PROMPT);
            }
            Phase::Unknown => {}
        }
        let is_token = phase == Phase::Decode;
        self.longest_ns = if is_token { 0 } else { self.longest_ns.max(end_ns.saturating_sub(before_ns)) };
        self.somebody_waits |= is_token;
    }

    /// When the prompt began that was pending at the end of the last step.
    #[must_use]
    pub const fn prompt_since_ns(&self) -> Option<u64> {
        self.prompt_since_ns
    }

    /// How many splits wider than predicted the front of its tokens is to be.
    #[must_use]
    pub const fn wider(&self) -> u8 {
        self.front.wider
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
#[path = "objective_tests.rs"]
mod tests;
