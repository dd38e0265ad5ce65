//! When a tenant's next step is due, learned from when its steps began and ended.
//!
//! Programs are regular in two ways: they begin at even distances (a loop with a clock), or they pause evenly after each
//! step (a loop with a sleep). Both are followed, and the steadier one predicts. What is neither comes at random, and of
//! that is known how long pauses are on average, and how short and how long mostly. A few of the last steps count, so a program that changes its habits is forgotten
//! soon; at once, if its steps keep coming at other times than predicted.

use crate::Rhythm;

/// Steps that count.
const LAST: usize = 16;
/// Fewer tell nothing.
const FEWEST: usize = 4;
/// Predictions that were wrong in a row, until everything before is forgotten.
const WRONG: u32 = 3;
/// As far off is never wrong: timers and threads are late by this much.
const JITTER_NS: u64 = 50_000;
/// Where the GPU works for more than this part of a step, in quarters, its work may be what the step waits for.
const MOST_QUARTERS: u64 = 3;
/// As many SMs, in thousandths, are as good as all.
const NEARLY_ALL: u32 = 960;
/// On few SMs a step may last longer by this part of what it lasts on all: others take bandwidth meanwhile.
const FAR_LONGER_PART: u64 = 4;
/// Steady is what varies by no more than this part of itself.
const STEADY_PART: u64 = 8;

/// The last few of a kind of distance.
#[derive(Debug, Clone, Copy)]
struct Distances {
    last: [u64; LAST],
    count: usize,
}

/// What distances are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Habit {
    middle_ns: u64,
    /// Nine of ten are no further from the middle.
    spread_ns: u64,
}

impl Distances {
    const NONE: Self = Self { last: [0; LAST], count: 0 };

    fn add(&mut self, ns: u64) {
        self.last[self.count % LAST] = ns;
        self.count += 1;
    }

    fn known(&self) -> usize {
        self.count.min(LAST)
    }

    /// Keeps the newest alone.
    fn forget(&mut self, keep: usize) {
        let kept: [u64; LAST] = core::array::from_fn(|back| self.last[(self.count + LAST - 1 - back) % LAST]);
        let keep = keep.min(self.known());
        *self = Self::NONE;
        kept[..keep].iter().rev().for_each(|ns| self.add(*ns));
    }

    fn habit(&self) -> Option<Habit> {
        let known = self.known();
        if known < FEWEST {
            return None;
        }
        let mut sorted = self.last;
        let sorted = &mut sorted[..known];
        sorted.sort_unstable();
        let middle_ns = sorted[known / 2];
        sorted.iter_mut().for_each(|ns| *ns = ns.abs_diff(middle_ns));
        sorted.sort_unstable();
        Some(Habit { middle_ns, spread_ns: sorted[(known - 1) * 9 / 10] })
    }

    /// Of ten one is shorter than the first of these, and one longer than the second.
    fn mostly_within(&self) -> Option<[u64; 2]> {
        let known = self.known();
        let mut sorted = self.last;
        let sorted = &mut sorted[..known];
        sorted.sort_unstable();
        (known >= FEWEST).then(|| [sorted[known / 10], sorted[(known - 1) * 9 / 10]])
    }

    fn mean(&self) -> u64 {
        let known = self.known();
        let sum = self.last[..known].iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
        sum / u64::try_from(known.max(1)).unwrap_or(1)
    }
}

impl Habit {
    fn is_steady(self) -> bool {
        self.spread_ns <= (self.middle_ns / STEADY_PART).max(JITTER_NS)
    }
}

/// What one tenant's steps were like so far.
#[derive(Debug, Clone)]
pub struct Learner {
    began_ns: Option<u64>,
    ended_ns: Option<u64>,
    periods: Distances,
    pauses: Distances,
    lengths: Distances,
    due_ns: Option<u64>,
    spread_ns: u64,
    wrong: u32,
    /// What the GPU does in a step, on all SMs.
    work: Distances,
    /// Steps in a row that were too long for the few SMs that they had.
    cramped: u32,
    /// The part of the SMs that the step under way has, in thousandths; and how long steps last on the part that they had last,
    /// if that was not all of them.
    part: u32,
    narrow_part: u32,
    narrow: Distances,
    /// The largest part on which steps last too long, and how long.
    too_narrow: Option<(u32, u64)>,
    /// What these are like, while nothing has been added to them.
    habits: Option<Habits>,
}

/// What the GPU does in a step, as predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// How long that takes on all SMs.
    pub all_ns: u64,
    /// How long it takes where it ran.
    pub ran_ns: u64,
}

impl Work {
    /// Nothing.
    pub const NONE: Self = Self { all_ns: 0, ran_ns: 0 };

    /// Adds a launch that takes so long on all SMs, and so long where it runs.
    pub fn add(&mut self, all_ns: u64, ran_ns: u64) {
        self.all_ns = self.all_ns.saturating_add(all_ns);
        self.ran_ns = self.ran_ns.saturating_add(ran_ns);
    }
}

/// What periods, pauses and lengths are like.
#[derive(Debug, Clone, Copy)]
struct Habits {
    period: Option<Habit>,
    pause: Option<Habit>,
    /// How short and how long pauses are mostly.
    within: [u64; 2],
    lasts_ns: u64,
    needs: u32,
}

impl Default for Learner {
    fn default() -> Self {
        Self::new()
    }
}

impl Learner {
    /// Nothing seen yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            began_ns: None,
            ended_ns: None,
            periods: Distances::NONE,
            pauses: Distances::NONE,
            lengths: Distances::NONE,
            due_ns: None,
            spread_ns: 0,
            wrong: 0,
            work: Distances::NONE,
            cramped: 0,
            part: Rhythm::ALL,
            narrow_part: Rhythm::ALL,
            narrow: Distances::NONE,
            too_narrow: None,
            habits: None,
        }
    }

    /// The step that has begun has that part of the SMs, in thousandths.
    pub fn ran_on(&mut self, part: u32) {
        self.part = part.clamp(1, Rhythm::ALL);
    }

    /// A step has begun.
    pub fn began(&mut self, now_ns: u64) {
        self.habits = None;
        if let Some(before) = self.began_ns.replace(now_ns) {
            self.periods.add(now_ns.saturating_sub(before));
        }
        if let Some(before) = self.ended_ns {
            self.pauses.add(now_ns.saturating_sub(before));
        }
        let is_wrong = |due: u64| now_ns.abs_diff(due) > self.spread_ns.saturating_mul(4).max(JITTER_NS * 2);
        self.wrong = if self.due_ns.is_some_and(is_wrong) { self.wrong + 1 } else { 0 };
        if self.wrong >= WRONG {
            self.wrong = 0;
            for distances in [&mut self.periods, &mut self.pauses] {
                distances.forget(WRONG as usize);
            }
            self.cramped = 0;
            self.too_narrow = None;
        }
    }

    /// Works out what the end of the step that has begun will tell, as far as that is known before. Whoever waits for the
    /// end has the time; afterwards somebody waits for whoever comes from there.
    pub fn foresee(&mut self) {
        if self.habits.is_none() {
            self.habits = Some(self.habits());
        }
    }

    /// The step that has begun is over, and that was its work, where anybody kept account of it.
    pub fn ended(&mut self, now_ns: u64, work: Option<Work>) {
        let rhythm = self.if_ended(now_ns);
        self.habits = None;
        (self.due_ns, self.spread_ns) = (rhythm.due_ns, rhythm.spread_ns);
        self.ended_ns = Some(now_ns);
        if let Some(began) = self.began_ns {
            let length = now_ns.saturating_sub(began);
            if self.part < NEARLY_ALL {
                self.lasted_on_few(length)
            } else {
                self.lengths.add(length)
            }
            if let Some(work) = work {
                self.worked(work, length);
            }
        }
    }

    /// What would be known if the step that has begun were over now.
    #[must_use]
    pub fn if_ended(&self, now_ns: u64) -> Rhythm {
        let habits = self.habits.unwrap_or_else(|| self.habits());
        let from = |start: Option<u64>, habit: Option<Habit>| {
            let habit = habit.filter(|habit| habit.is_steady())?;
            // An end that comes after the next step should have begun says nothing of a clock's beat.
            let due = start?.saturating_add(habit.middle_ns);
            Some((habit.spread_ns, due)).filter(|_| due > now_ns)
        };
        let best = from(self.began_ns, habits.period).into_iter().chain(from(Some(now_ns), habits.pause)).min();
        Rhythm {
            due_ns: best.map(|(_, due)| due),
            spread_ns: best.map_or(0, |(spread, _)| spread),
            gap_ns: self.pauses.mean(),
            lasts_ns: habits.lasts_ns,
            needs: habits.needs,
            ended_ns: now_ns,
            soon_ns: habits.within[0],
            long_ns: habits.within[1],
            ..Rhythm::UNKNOWN
        }
    }

    /// What is known now. The next step is due only between two steps.
    #[must_use]
    pub fn rhythm(&self) -> Rhythm {
        let (due_ns, spread_ns) = (self.due_ns, self.spread_ns);
        let Habits { lasts_ns, needs, within: [soon_ns, long_ns], .. } = self.habits();
        let (gap_ns, ended_ns) = (self.pauses.mean(), self.ended_ns.unwrap_or(0));
        Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, ended_ns, soon_ns, long_ns, ..Rhythm::UNKNOWN }
    }

    fn habits(&self) -> Habits {
        // Who never had all SMs is known by what it had.
        let lengths = if self.lengths.known() == 0 { &self.narrow } else { &self.lengths };
        let lasts_ns = lengths.habit().map_or_else(|| lengths.mean(), |habit| habit.middle_ns);
        Habits {
            period: self.periods.habit(),
            pause: self.pauses.habit(),
            within: self.pauses.mostly_within().unwrap_or_default(),
            lasts_ns,
            needs: self.needs(lasts_ns),
        }
    }

    /// A step lasted so long on a part of the SMs.
    fn lasted_on_few(&mut self, length_ns: u64) {
        if self.narrow_part != self.part {
            (self.narrow_part, self.narrow) = (self.part, Distances::NONE);
        }
        self.narrow.add(length_ns);
        let Some(habit) = self.narrow.habit().filter(|habit| self.is_too_long(habit.middle_ns)) else { return };
        let is_larger = self.too_narrow.is_none_or(|(part, _)| part <= self.part);
        if is_larger {
            self.too_narrow = Some((self.part, habit.middle_ns));
        }
    }

    /// Whether that is far longer than steps last on all SMs.
    fn is_too_long(&self, length_ns: u64) -> bool {
        self.lengths
            .habit()
            .is_some_and(|all| length_ns > all.middle_ns.saturating_add(all.middle_ns / FAR_LONGER_PART))
    }

    fn worked(&mut self, work: Work, length_ns: u64) {
        self.work.add(work.all_ns);
        let is_cramped = work.ran_ns > work.all_ns && work.ran_ns / MOST_QUARTERS > length_ns / 4;
        // Who was cramped for some time gets all SMs until it has changed its ways.
        if self.cramped < WRONG {
            self.cramped = if is_cramped { self.cramped + 1 } else { 0 };
        }
    }

    /// What part of the GPU a step of this length makes use of.
    fn needs(&self, lasts_ns: u64) -> u32 {
        let part = self.work.habit().filter(|_| self.cramped < WRONG).map(|work| {
            let thousandths = work.middle_ns.saturating_mul(u64::from(Rhythm::ALL)) / lasts_ns.max(1);
            u32::try_from(thousandths).unwrap_or(Rhythm::ALL)
        });
        // More than a part on which steps were seen to last too long, whatever their work says.
        let seen =
            self.too_narrow.filter(|(_, length_ns)| self.is_too_long(*length_ns)).map_or(0, |(part, _)| part + 1);
        part.unwrap_or(Rhythm::ALL).max(seen).clamp(1, Rhythm::ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Steps that begin at these times and last so long; how far each was from when it was due.
    fn errors(learner: &mut Learner, steps: impl IntoIterator<Item = (u64, u64)>) -> Vec<Option<u64>> {
        let mut errors = Vec::new();
        for (began, lasts) in steps {
            errors.push(learner.rhythm().due_ns.map(|due| due.abs_diff(began)));
            learner.began(began);
            learner.ended(began + lasts, None);
        }
        errors
    }

    /// A number that looks random, below `below`.
    fn noise(i: u64, below: u64) -> u64 {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9) % below
    }

    #[test]
    fn a_beat_is_known_to_a_tenth_of_a_millisecond() {
        let steps = (0..200).map(|i| (10 * MS + i * 6 * MS + noise(i, 40_000), MS + noise(i + 7, 400_000)));
        let errors = errors(&mut Learner::new(), steps);
        assert!(errors[8..].iter().all(|error| error.is_some_and(|ns| ns < 100_000)), "{errors:?}");
    }

    #[test]
    fn even_pauses_are_known_too() {
        let mut at = MS;
        let steps = (0..200).map(|i| {
            let lasts = MS + noise(i, 3 * MS);
            let began = at;
            at += lasts + 5 * MS + noise(i + 3, 60_000);
            (began, lasts)
        });
        let errors = errors(&mut Learner::new(), steps);
        assert!(errors[8..].iter().all(|error| error.is_some_and(|ns| ns < 100_000)), "{errors:?}");
    }

    #[test]
    fn random_arrivals_are_not_predicted_but_their_mean_is_known() {
        let mut at = MS;
        let mut learner = Learner::new();
        let mut predicted = 0;
        for i in 0..400 {
            predicted += u32::from(learner.rhythm().due_ns.is_some());
            learner.began(at);
            learner.ended(at + MS, None);
            at += MS + noise(i, 10 * MS);
        }
        assert!(predicted < 20, "{predicted} of 400");
        assert!((3 * MS..7 * MS).contains(&learner.rhythm().gap_ns), "{:?}", learner.rhythm());
    }

    /// Pauses between 4 and 10 ms, in no order: hardly one is shorter than 4 ms, or longer than 10.
    #[test]
    fn how_short_and_how_long_random_pauses_are_is_known() {
        let (mut at, mut shorter, mut longer) = (MS, 0, 0);
        let mut learner = Learner::new();
        for i in 0..400 {
            let pause = 4 * MS + noise(i, 6 * MS);
            let rhythm = learner.rhythm();
            shorter += u32::from(pause < rhythm.soon_ns);
            longer += u32::from(rhythm.long_ns != 0 && pause > rhythm.long_ns);
            at += pause;
            learner.began(at);
            at += MS;
            learner.ended(at, None);
            assert_eq!(learner.rhythm().ended_ns, at);
        }
        let rhythm = learner.rhythm();
        assert!(
            (4 * MS..6 * MS).contains(&rhythm.soon_ns) && (8 * MS..10 * MS).contains(&rhythm.long_ns),
            "{rhythm:?}"
        );
        assert!((10..80).contains(&shorter) && (10..80).contains(&longer), "{shorter} and {longer} of 400");
    }

    #[test]
    fn new_habits_replace_old_ones() {
        let mut learner = Learner::new();
        errors(&mut learner, (0..100).map(|i| (i * 6 * MS, MS)));
        let after = errors(&mut learner, (0..40).map(|i| (600 * MS + i * 10 * MS, 5 * MS)));
        assert!(after[12..].iter().all(|error| *error == Some(0)), "{after:?}");
        assert_eq!(learner.rhythm().lasts_ns, 5 * MS);
    }

    /// Steps of 10 ms with so much work, in thousandths of what the GPU could do, and where it ran.
    fn needs(learner: &mut Learner, steps: u64, all: u64, ran: u64) -> u32 {
        for i in 0..steps {
            learner.began(i * 20 * MS);
            learner.ended(i * 20 * MS + 10 * MS, Some(Work { all_ns: all * 10_000, ran_ns: ran * 10_000 }));
        }
        learner.rhythm().needs
    }

    #[test]
    fn what_part_of_the_gpu_a_step_needs_is_known_after_a_few() {
        assert_eq!(needs(&mut Learner::new(), 3, 200, 200), Rhythm::ALL);
        assert_eq!(needs(&mut Learner::new(), 20, 200, 200), 200);
        assert_eq!(needs(&mut Learner::new(), 20, 5_000, 5_000), Rhythm::ALL);
        let mut learner = Learner::new();
        errors(&mut learner, (0..20).map(|i| (i * 6 * MS, MS)));
        assert_eq!(learner.rhythm().needs, Rhythm::ALL, "nobody kept account of the work");
    }

    #[test]
    fn who_was_cramped_on_few_sms_gets_all() {
        let mut learner = Learner::new();
        assert_eq!(needs(&mut learner, 20, 200, 600), 200, "there was room");
        assert_eq!(needs(&mut learner, 20, 200, 800), Rhythm::ALL);
        assert_eq!(needs(&mut learner, 20, 200, 200), Rhythm::ALL, "it would be cramped again");
    }

    /// What a step needs is what its work says, until steps are seen to last far longer on as much.
    #[test]
    fn what_was_seen_on_few_sms_counts_more_than_what_was_worked_out() {
        const QUARTER: u32 = 242;
        let after = |on_few_ms: u64, on_all_ms: u64| {
            let mut learner = Learner::new();
            let mut at = 0;
            let mut steps = |learner: &mut Learner, part, count: u64, ms: u64| {
                for _ in 0..count {
                    learner.began(at);
                    learner.ran_on(part);
                    at += ms * MS;
                    learner.ended(at, Some(Work { all_ns: MS, ran_ns: MS }));
                    at += 7 * MS + noise(at, 5 * MS);
                }
            };
            steps(&mut learner, Rhythm::ALL, 20, 10);
            assert_eq!(learner.rhythm().needs, 100);
            steps(&mut learner, QUARTER, 20, on_few_ms);
            // Another part that is enough does not make one forget.
            steps(&mut learner, 2 * QUARTER, 8, 10);
            steps(&mut learner, Rhythm::ALL, 20, on_all_ms);
            learner.rhythm().needs
        };
        assert_eq!(after(12, 10), 100, "a little longer, as beside others");
        assert_eq!(after(14, 10), QUARTER + 1);
        assert_eq!(after(14, 14), 71, "it lasts as long on all SMs: the program has changed its ways");
    }

    #[test]
    fn who_foresees_the_end_learns_the_same() {
        let (mut one, mut other) = (Learner::new(), Learner::new());
        for i in 0..200 {
            let began = i * 6 * MS + noise(i, 300_000);
            let ended = began + MS + noise(i + 3, 200_000);
            one.began(began);
            other.began(began);
            other.foresee();
            assert_eq!(one.if_ended(ended), other.if_ended(ended));
            one.ended(ended, None);
            other.ended(ended, None);
            assert_eq!(one.rhythm(), other.rhythm());
        }
    }

    #[test]
    fn clocks_that_jump_do_no_harm() {
        let mut learner = Learner::new();
        for at in [u64::MAX, 0, 5, u64::MAX - 1, 3 * MS, 3 * MS, 0] {
            learner.began(at);
            learner.ended(at.wrapping_add(MS), None);
            let rhythm = learner.rhythm();
            assert!(rhythm.due_ns.is_none() || rhythm.spread_ns < u64::MAX);
        }
    }
}
