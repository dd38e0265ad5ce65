//! Steps of a program that launches the next one before it waits for the last, as LLM servers do whose GPU is never to wait for the host.
//!
//! The GPU is busy all the time then, so it does not show where a step ends. But the program waits once for each, for an
//! event that was recorded behind it. What it launches between two such waits is a step of its own, and a step is over when all
//! launches up to the event that was waited for are. A program that is waited for in vain, or never waits so, has one long step.

use crate::phase::{Made, Phase};

/// Steps that are launched and not over. Further ones count as one with the last.
const MOST: usize = 4;

/// What was launched between two waits, up to the launch of that number.
#[derive(Debug, Clone, Copy)]
struct Batch {
    upto: u64,
    made: Made,
}

/// Steps that are launched and not over, the one that runs first.
#[derive(Debug)]
pub struct Ahead {
    batches: [Batch; MOST],
    count: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Self::new()
    }
}

impl Ahead {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { batches: [Batch { upto: 0, made: Made::NOTHING }; MOST], count: 0 }
    }

    /// The program has waited when it had made so many launches; `made` is what it has launched since it waited last.
    pub fn waited(&mut self, upto: u64, made: Made) {
        let last = self.count.checked_sub(1).map(|last| &mut self.batches[last]);
        match last {
            Some(last) if upto <= last.upto || self.count == MOST => {
                *last = Batch { upto: upto.max(last.upto), made: last.made.and(&made) };
            }
            _ => {
                self.batches[self.count] = Batch { upto, made };
                self.count += 1;
            }
        }
    }

    /// Takes out what is over when so many launches are, with the number of its last launch; several steps as one.
    pub fn over(&mut self, finished: u64) -> Option<(u64, Made)> {
        let over = self.batches[..self.count].iter().take_while(|batch| batch.upto <= finished).count();
        let upto = self.batches[over.checked_sub(1)?].upto;
        let made = Self::all(&self.batches[..over]);
        self.batches.copy_within(over..self.count, 0);
        self.count -= over;
        Some((upto, made))
    }

    /// Takes out everything, and what was launched behind it.
    pub fn rest(&mut self, behind: &Made) -> Made {
        let made = Self::all(&self.batches[..self.count]).and(behind);
        self.count = 0;
        made
    }

    /// What the one that runs seemed to be when it was launched.
    #[must_use]
    pub fn runs(&self) -> Phase {
        self.batches[..self.count].first().map_or(Phase::Unknown, |batch| batch.made.guess())
    }

    fn all(batches: &[Batch]) -> Made {
        batches.iter().fold(Made::NOTHING, |all, batch| all.and(&batch.made))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phase::Phases;

    const US: u64 = 1_000;
    const DECODE_US: u64 = 5_000;

    /// A server whose tokens are one launch each, and every tenth of whose steps is a prompt of a hundred.
    fn launch(phases: &mut Phases, step: u64) -> (Phase, u64) {
        if step % 10 == 9 {
            for kernel in 0..100 {
                phases.launched(1_000 + kernel, 300 * US);
            }
            (Phase::Prefill, 100)
        } else {
            phases.launched(1, DECODE_US * US);
            (Phase::Decode, 1)
        }
    }

    /// Launched one ahead, each step is told from the others as if it had been waited for at once.
    #[test]
    fn steps_that_are_launched_ahead_are_told_apart() {
        let (mut phases, mut ahead) = (Phases::new(), Ahead::new());
        let (mut launched, mut before, mut marks, mut kinds) = (0, 0, vec![], vec![]);
        let mut wrong = 0;
        for step in 0..1_000 {
            let (kind, launches) = launch(&mut phases, step);
            launched += launches;
            marks.push(launched);
            kinds.push(kind);
            if step == 0 {
                continue;
            }
            // The one before is waited for.
            let last = usize::try_from(step).unwrap() - 1;
            ahead.waited(launched, phases.take());
            if let Some((upto, made)) = ahead.over(marks[last]) {
                let said = phases.ended_with(made, 0, u32::try_from(upto - before).unwrap());
                before = upto;
                wrong += usize::from(step > 50 && said != kinds[last]);
            } else {
                assert_eq!(step, 1, "the first wait does not tell the first step from the second");
            }
        }
        assert_eq!(wrong, 0);
        assert!(phases.has_both());
        let off = phases.pace_ns().abs_diff(DECODE_US * US);
        assert!(off < DECODE_US * US / 10, "{}", phases.pace_ns());
    }

    #[test]
    fn nothing_is_lost_when_more_is_ahead_than_there_are_places() {
        let (mut phases, mut ahead) = (Phases::new(), Ahead::new());
        for step in 1..=20 {
            phases.launched(step, US);
            ahead.waited(step, phases.take());
        }
        assert_eq!(ahead.over(3).map(|(upto, _)| upto), Some(3));
        assert_eq!(ahead.over(19).map(|(upto, _)| upto), None, "the last of them are one");
        let (upto, made) = ahead.over(20).expect("all are over");
        assert_eq!((upto, made.launches()), (20, 17));
        assert_eq!(ahead.rest(&Made::NOTHING).launches(), 0);
    }

    #[test]
    fn a_wait_without_launches_adds_none() {
        let mut ahead = Ahead::new();
        ahead.waited(5, Made::NOTHING);
        ahead.waited(5, Made::NOTHING);
        assert_eq!(ahead.over(4).map(|(upto, _)| upto), None);
        assert_eq!(ahead.over(5).map(|(upto, _)| upto), Some(5));
        assert_eq!(ahead.over(5).map(|(upto, _)| upto), None);
    }
}
