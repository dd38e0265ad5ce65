//! Verdicts, told one by one as they come, and all of them as JSON.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often is said how far it is, where not every verdict is told.
const EVERY: Duration = Duration::from_secs(5);

/// What was judged so far.
pub(crate) struct Tally {
    started: Instant,
    counts: Mutex<Counts>,
}

struct Counts {
    passed: usize,
    failed: usize,
    /// Those that are told in JSON.
    verdicts: Vec<Value>,
    said: Instant,
}

/// What it came to.
pub(crate) struct Total {
    pub(crate) summary: String,
    /// Whether everything was judged, and is right.
    pub(crate) is_good: bool,
    json: Value,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let started = Instant::now();
        let counts = Counts { passed: 0, failed: 0, verdicts: Vec::new(), said: started };
        Self { started, counts: Mutex::new(counts) }
    }

    /// Counts a verdict and tells it.
    pub(crate) fn tell(&self, name: &str, wrong: Option<&str>) {
        self.note(name, wrong, true);
    }

    /// Counts one of thousands: it is told if it is wrong, and how far it is now and then.
    pub(crate) fn count(&self, name: &str, wrong: Option<&str>) {
        self.note(name, wrong, false);
    }

    fn note(&self, name: &str, wrong: Option<&str>, is_told: bool) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let (verdict, detail) = wrong.map_or(("ok", ""), |why| ("failed", why));
        *if wrong.is_none() { &mut counts.passed } else { &mut counts.failed } += 1;
        if is_told || wrong.is_some() {
            let colon = if detail.is_empty() { "" } else { ": " };
            println!("{name} ... {verdict}{colon}{detail}");
            counts.verdicts.push(json!({ "name": name, "verdict": verdict, "detail": detail }));
        } else if counts.said.elapsed() > EVERY {
            counts.said = Instant::now();
            let Counts { passed, failed, .. } = *counts;
            println!("{passed} passed, {failed} failed after {:.0} s", self.started.elapsed().as_secs_f64());
        }
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// What it came to, of so many.
    pub(crate) fn total(self, expected: usize) -> Total {
        let seconds = self.seconds();
        let Counts { passed, failed, verdicts, .. } = self.counts.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = expected.saturating_sub(passed + failed);
        let summary = format!("{passed} passed, {failed} failed, {missing} not judged");
        let json = json!({ "summary": summary, "passed": passed, "failed": failed, "missing": missing,
            "seconds": seconds, "tests": verdicts });
        Total { summary, is_good: failed == 0 && missing == 0, json }
    }
}

impl Total {
    /// Writes it where that is wanted.
    pub(crate) fn write(&self, out: Option<&Path>) -> Result<()> {
        let Some(out) = out else { return Ok(()) };
        std::fs::write(out, format!("{:#}\n", self.json)).with_context(|| format!("cannot write {}", out.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_no_success() {
        let judged = |wrong: Option<&str>, expected| {
            let tally = Tally::new();
            tally.tell("one", None);
            tally.count("two", wrong);
            tally.total(expected)
        };
        assert!(judged(None, 2).is_good);
        assert!(!judged(Some("bits"), 2).is_good);
        let short = judged(None, 5);
        assert!(!short.is_good);
        assert_eq!(short.summary, "2 passed, 0 failed, 3 not judged");
        assert_eq!((&short.json["missing"], &short.json["passed"]), (&json!(3), &json!(2)));
    }
}
