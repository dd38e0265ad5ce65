//! How much a tenant did in the last minute, as a row of bars.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How far back it goes.
const SPAN: Duration = Duration::from_secs(60);
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Counts of what was done by then, the oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct History(VecDeque<(Instant, f64)>);

impl History {
    /// So much was done until now.
    pub(super) fn add(&mut self, now: Instant, count: f64) {
        if self.0.back().is_some_and(|(_, before)| *before > count) {
            // Not the same tenant any more.
            self.0.clear();
        }
        self.0.push_back((now, count));
        // One that is older stays, to know what was done since the beginning of the span.
        while self.0.get(1).is_some_and(|(time, _)| now.saturating_duration_since(*time) > SPAN) {
            self.0.pop_front();
        }
    }

    /// One bar for each part of the last minute, the newest at the right; a gap where nothing was known yet.
    pub(super) fn bars(&self, width: usize) -> String {
        let Some((now, _)) = self.0.back().copied() else { return " ".repeat(width) };
        let parts = u32::try_from(width).unwrap_or(u32::MAX).max(1);
        let part = SPAN / parts;
        let done = |index: u32| {
            let age = part * (parts - index);
            Some(self.count_at(now, age - part)? - self.count_at(now, age)?)
        };
        let done: Vec<Option<f64>> = (0..parts).map(done).collect();
        let most = done.iter().flatten().copied().fold(0.0, f64::max);
        done.into_iter().map(|done| done.map_or(' ', |done| bar(done, most))).collect()
    }

    /// What was done by a time so long ago, between two known counts by the line between them.
    fn count_at(&self, now: Instant, age: Duration) -> Option<f64> {
        let at = now.checked_sub(age)?;
        let after = self.0.iter().position(|(time, _)| *time >= at)?;
        let (time, count) = self.0[after];
        if time == at {
            return Some(count);
        }
        let (earlier, before) = *self.0.get(after.checked_sub(1)?)?;
        let share = (at - earlier).as_secs_f64() / (time - earlier).as_secs_f64();
        Some(before + (count - before) * share)
    }
}

/// The lowest bar is for nothing.
fn bar(value: f64, most: f64) -> char {
    if most <= 0.0 || value <= 0.0 {
        return BARS[0];
    }
    // Something is never shown as nothing.
    let thresholds = (1..BARS.len()).take_while(|level| {
        let level = f64::from(u32::try_from(*level).unwrap_or_default());
        value / most > (level - 1.0) / 7.0
    });
    BARS[thresholds.count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_known_is_a_gap() {
        assert_eq!(History::default().bars(4), "    ");
        let mut history = History::default();
        history.add(Instant::now(), 7.0);
        assert_eq!(history.bars(4), "    ");
    }

    #[test]
    fn a_tenant_that_works_more_and_more() {
        let start = Instant::now();
        let mut history = History::default();
        for (second, count) in [(0, 0.0), (15, 0.0), (30, 10.0), (45, 40.0), (60, 110.0)] {
            history.add(start + Duration::from_secs(second), count);
        }
        assert_eq!(history.bars(4), "▁▂▄█");
        history.add(start + Duration::from_secs(75), 110.0);
        assert_eq!(history.bars(4), "▂▄█▁");
    }

    #[test]
    fn only_the_last_minute_is_kept() {
        let start = Instant::now();
        let mut history = History::default();
        for second in 0..1000 {
            history.add(start + Duration::from_secs(second), f64::from(u32::try_from(second).unwrap()));
        }
        assert!(history.0.len() <= 62, "{}", history.0.len());
        assert_eq!(history.bars(6), "██████");
    }

    #[test]
    fn another_tenant_with_the_same_number_begins_anew() {
        let start = Instant::now();
        let mut history = History::default();
        history.add(start, 100.0);
        history.add(start + Duration::from_secs(60), 5.0);
        assert_eq!(history.bars(2), "  ");
    }
}
