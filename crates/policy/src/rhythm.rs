//! When a tenant's next step is due, learned from when its steps began and ended.
//!
//! Programs are regular in two ways: they begin at even distances (a loop with a clock), or they pause evenly after each
//! step (a loop with a sleep). Both are followed, and the steadier one predicts. What is neither comes at random, and of
//! that is known how long pauses are on average, and how short and how long mostly; one that is far longer than the others counts as a
//! few of the long ones, or the average would be its own for as long as it is remembered. A few of the last steps count, and some more of
//! the last pauses where they are random, so a program that changes its habits is forgotten soon; at once, if its steps keep coming
//! at other times than predicted.

use crate::Rhythm;

/// Steps that count.
const LAST: usize = 16;
/// Pauses that count where steps come at random: of fewer one in ten would be one or two, whatever they are.
const MANY: usize = 64;
/// On average a pause counts for no more than as many of those that nine of ten are shorter than: of ten thousand pauses at random one
/// is longer than that, and a server that had nothing to do for some time says nothing of the pauses to come.
const LONG_PAUSES: u64 = 4;
/// Fewer tell nothing.
const FEWEST: usize = 4;
/// Predictions that were wrong in a row, until everything before is forgotten.
const WRONG: u32 = 3;
/// As far off is never wrong: timers and threads are late by this much.
const JITTER_NS: u64 = 50_000;
/// Where the GPU works for more than this part of a step, in quarters, its work may be what the step waits for.
const MOST_QUARTERS: u64 = 3;
/// As many SMs, in thousandths, are as good as all.
pub const NEARLY_ALL: u32 = 960;
/// On few SMs a step may last longer by this part of what it lasts on all: others take bandwidth meanwhile.
const FAR_LONGER_PART: u64 = 4;
/// Steady is what varies by no more than this part of itself.
const STEADY_PART: u64 = 8;

/// The last few of a kind of distance.
#[derive(Debug, Clone, Copy)]
struct Distances<const KEPT: usize = LAST> {
    last: [u64; KEPT],
    count: usize,
}

/// What distances are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Habit {
    middle_ns: u64,
    /// Nine of ten are no further from the middle.
    spread_ns: u64,
}

/// By insertion: a few dozen take less than a microsecond, and the library's own way for any number would be some of what is loaded
/// into every process.
#[inline(never)]
fn sort(distances: &mut [u64]) {
    for sorted in 1..distances.len() {
        let mut place = sorted;
        while place > 0 && distances[place - 1] > distances[place] {
            distances.swap(place - 1, place);
            place -= 1;
        }
    }
}

impl<const KEPT: usize> Distances<KEPT> {
    const NONE: Self = Self { last: [0; KEPT], count: 0 };

    fn add(&mut self, ns: u64) {
        self.last[self.count % KEPT] = ns;
        self.count += 1;
    }

    fn known(&self) -> usize {
        self.count.min(KEPT)
    }

    /// Keeps the newest alone.
    fn forget(&mut self, keep: usize) {
        let kept: [u64; KEPT] = core::array::from_fn(|back| self.last[(self.count + KEPT - 1 - back) % KEPT]);
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
        sort(sorted);
        let middle_ns = sorted[known / 2];
        sorted.iter_mut().for_each(|ns| *ns = ns.abs_diff(middle_ns));
        sort(sorted);
        Some(Habit { middle_ns, spread_ns: sorted[(known - 1) * 9 / 10] })
    }

    /// Of ten one is shorter than the first of these, and one longer than the second.
    fn mostly_within(&self) -> Option<[u64; 2]> {
        let known = self.known();
        let mut sorted = self.last;
        let sorted = &mut sorted[..known];
        sort(sorted);
        (known >= FEWEST).then(|| [sorted[known / 10], sorted[(known - 1) * 9 / 10]])
    }

    /// Their middle, or their mean while they are few; 0 where there is none.
    #[inline(never)]
    fn usual(&self) -> u64 {
        self.habit().map_or_else(|| self.mean_up_to(u64::MAX), |habit| habit.middle_ns)
    }

    /// Their mean where what is longer counts for that much.
    fn mean_up_to(&self, most_ns: u64) -> u64 {
        let known = self.known();
        let sum = self.last[..known].iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns.min(&most_ns)));
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
    many_pauses: Distances<MANY>,
    /// On all SMs.
    lengths: Distances,
    /// How long steps last lately, wherever they ran.
    lately_ns: u64,
    due_ns: Option<u64>,
    spread_ns: u64,
    wrong: u32,
    /// Steps in a row that began later than they were due.
    late: u32,
    /// What the GPU does in a step, on all SMs.
    work: Distances,
    /// Steps in a row that were too long for the few SMs that they had.
    cramped: u32,
    /// The part of the SMs that the step under way has, in thousandths; and how long steps last on the part that they had last,
    /// if that was not all of them.
    part: u32,
    narrow_part: u32,
    narrow: Distances,
    /// How long steps lasted on all SMs by then; 0 is unknown.
    narrow_beside_ns: u64,
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

/// How long steps last, by how many SMs they have. The times are for people, of tenants whose steps are of one kind; what steps need is
/// what a policy decides by where it gives a tenant SMs of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lengths {
    /// On all SMs, where they ever had them; 0 is unknown.
    pub on_all_ns: u64,
    /// A part of the SMs on which steps ran lately, in thousandths, and how long they last there.
    pub narrow: Option<(u32, u64)>,
    /// What part of the GPU a step makes use of, in thousandths.
    pub needs: u32,
}

impl Lengths {
    /// On so many of all SMs; 0 is unknown. Between all SMs and a part on which steps were seen to run it is what was seen; on fewer,
    /// in proportion at the most: the host's time stays the same, and what the GPU does takes longer as it does where nothing but SMs
    /// binds it. Of steps that never had all SMs nothing is known but how long they last where they ran.
    #[must_use]
    pub fn on(&self, width: u32, all: u32) -> u64 {
        let one = u64::from(Rhythm::ALL);
        // What a part of the SMs is short of all, as time is: nothing on all, one on a half, three on a quarter.
        let short = |part: u64| one * one / part - one;
        let part = (u64::from(width) * one / u64::from(all.max(1))).clamp(1, one);
        if self.on_all_ns == 0 {
            return self.narrow.filter(|(narrow, _)| u64::from(*narrow) == part).map_or(0, |(_, ns)| ns);
        }
        let seen = self.narrow.map(|(narrow, ns)| (u64::from(narrow.clamp(1, Rhythm::ALL)), ns.max(self.on_all_ns)));
        match seen {
            Some((narrow, ns)) if narrow <= part => {
                let longer_ns = (ns - self.on_all_ns).saturating_mul(short(part)) / short(narrow).max(1);
                self.on_all_ns.saturating_add(longer_ns)
            }
            _ => {
                let busy_ns = self.on_all_ns.saturating_mul(u64::from(self.needs)) / one;
                let at_least_ns = seen.map_or(self.on_all_ns, |(_, ns)| ns);
                at_least_ns.max(busy_ns.saturating_mul(one) / part)
            }
        }
    }
}

/// What periods, pauses and lengths are like.
#[derive(Debug, Clone, Copy)]
struct Habits {
    period: Option<Habit>,
    pause: Option<Habit>,
    /// How long pauses are on average, and how short and how long mostly.
    gap_ns: u64,
    within: [u64; 2],
    lengths: Lengths,
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
            many_pauses: Distances::NONE,
            lengths: Distances::NONE,
            lately_ns: 0,
            due_ns: None,
            spread_ns: 0,
            wrong: 0,
            late: 0,
            work: Distances::NONE,
            cramped: 0,
            part: Rhythm::ALL,
            narrow_part: Rhythm::ALL,
            narrow: Distances::NONE,
            narrow_beside_ns: 0,
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
            let pause_ns = now_ns.saturating_sub(before);
            self.pauses.add(pause_ns);
            self.many_pauses.add(pause_ns);
        }
        let is_wrong = |due: u64| now_ns.abs_diff(due) > self.spread_ns.saturating_mul(4).max(JITTER_NS * 2);
        self.wrong = if self.due_ns.is_some_and(is_wrong) { self.wrong + 1 } else { 0 };
        let is_late = |due: u64| now_ns.saturating_sub(due) > self.spread_ns.max(JITTER_NS);
        self.late = if self.due_ns.is_some_and(is_late) { self.late + 1 } else { 0 };
        if self.wrong >= WRONG {
            self.wrong = 0;
            for distances in [&mut self.periods, &mut self.pauses] {
                distances.forget(WRONG as usize);
            }
            self.many_pauses.forget(WRONG as usize);
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
        (self.due_ns, self.spread_ns, self.lately_ns) = (rhythm.due_ns, rhythm.spread_ns, rhythm.lasts_ns);
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
            // An end that comes after the next step should have begun says nothing of a clock's beat, nor does one that comes
            // before its own beginning: the clock has gone back.
            let due = start.filter(|start| *start <= now_ns)?.saturating_add(habit.middle_ns);
            Some((habit.spread_ns, due)).filter(|_| due > now_ns)
        };
        let best =
            from(self.beat_ns(habits.period), habits.period).into_iter().chain(from(Some(now_ns), habits.pause)).min();
        Rhythm {
            due_ns: best.map(|(_, due)| due),
            spread_ns: best.map_or(0, |(spread, _)| spread),
            gap_ns: habits.gap_ns,
            lasts_ns: self.lately(now_ns),
            needs: habits.lengths.needs,
            ended_ns: now_ns,
            soon_ns: habits.within[0],
            long_ns: habits.within[1],
            ..Rhythm::UNKNOWN
        }
    }

    /// From when the next step is a period away: when this one began, unless it alone was late. Who works by a clock has not moved that
    /// for one step that the host began late, and the next one would come before it is expected. If the next one is late as well, the
    /// clock goes from the steps.
    fn beat_ns(&self, period: Option<Habit>) -> Option<u64> {
        let began_ns = self.began_ns?;
        let by_the_clock = self.due_ns.filter(|due| {
            let late_ns = began_ns.saturating_sub(*due);
            self.late == 1 && period.is_some_and(|period| late_ns < period.middle_ns / 2)
        });
        Some(by_the_clock.unwrap_or(began_ns))
    }

    /// What is known now. The next step is due only between two steps.
    #[must_use]
    pub fn rhythm(&self) -> Rhythm {
        let (due_ns, spread_ns) = (self.due_ns, self.spread_ns);
        let Habits { gap_ns, within: [soon_ns, long_ns], lengths: Lengths { needs, .. }, .. } = self.habits();
        let (lasts_ns, ended_ns) = (self.lately_ns, self.ended_ns.unwrap_or(0));
        Rhythm { due_ns, spread_ns, gap_ns, lasts_ns, needs, ended_ns, soon_ns, long_ns, ..Rhythm::UNKNOWN }
    }

    /// How long steps last, as far as that is known before the end of the one that has begun.
    #[must_use]
    pub fn lengths(&self) -> Lengths {
        self.habits.unwrap_or_else(|| self.habits()).lengths
    }

    /// How long steps last lately if the one that has begun were over now. As tenants count it on the board: a few steps are enough to
    /// follow a program that has changed its ways.
    fn lately(&self, now_ns: u64) -> u64 {
        let Some(length_ns) = self.began_ns.map(|began_ns| now_ns.saturating_sub(began_ns)) else { return 0 };
        match self.lately_ns {
            0 => length_ns,
            before_ns => (before_ns - before_ns / 4).saturating_add(length_ns / 4),
        }
    }

    fn habits(&self) -> Habits {
        let on_all_ns = self.lengths.usual();
        let within = self.many_pauses.mostly_within();
        let most_ns = within.map_or(u64::MAX, |[_, long_ns]| long_ns.saturating_mul(LONG_PAUSES));
        Habits {
            period: self.periods.habit(),
            pause: self.pauses.habit(),
            gap_ns: self.many_pauses.mean_up_to(most_ns),
            within: within.unwrap_or_default(),
            lengths: Lengths { on_all_ns, narrow: self.lasts_on_few(on_all_ns), needs: self.needs(on_all_ns) },
        }
    }

    /// On what part of the SMs steps ran lately, and how long they last there, unless they last otherwise on all SMs since.
    fn lasts_on_few(&self, on_all_ns: u64) -> Option<(u32, u64)> {
        let has_changed = self.narrow_beside_ns.abs_diff(on_all_ns) > (on_all_ns / STEADY_PART).max(JITTER_NS);
        let habit = self.narrow.habit().filter(|_| self.narrow_beside_ns == 0 || !has_changed)?;
        Some((self.narrow_part, habit.middle_ns))
    }

    /// A step lasted so long on a part of the SMs.
    fn lasted_on_few(&mut self, length_ns: u64) {
        if self.narrow_part != self.part {
            (self.narrow_part, self.narrow) = (self.part, Distances::NONE);
        }
        self.narrow.add(length_ns);
        self.narrow_beside_ns = self.lengths.habit().map_or(0, |all| all.middle_ns);
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

    /// What part of the GPU a step makes use of that lasts so long on all SMs. Who never had all of them is known by what it had.
    fn needs(&self, on_all_ns: u64) -> u32 {
        let part = self.work.habit().filter(|_| self.cramped < WRONG).map(|work| {
            let lasts_ns = if on_all_ns == 0 { self.narrow.usual() } else { on_all_ns };
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
#[path = "rhythm_tests.rs"]
mod tests;
