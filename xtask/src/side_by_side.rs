//! Steps of `cargo xtask test` that wait for one another as little as they can: most of them leave a core idle, or both.
//!
//! Each runs in a process of its own, so that all that it and its programs say is kept together. It is shown as a whole, in the order in
//! which the steps are listed, however they end. After a failure no more are begun, and those that run are waited for.

use anyhow::{Context, Result};
use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// What is known of a step before it runs.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// A step before it in the list whose end it waits for.
    pub(crate) after: Option<&'static str>,
}

/// What came of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) passed: bool,
    pub(crate) said: String,
    pub(crate) took: Duration,
}

/// Where the steps stand.
struct Steps {
    /// Not begun, in order.
    left: VecDeque<usize>,
    ended: Vec<Option<Ended>>,
    shown: usize,
    running: usize,
}

impl Steps {
    /// The first that can begin.
    fn take(&mut self, planned: &[Planned]) -> Option<usize> {
        let may_begin = |index: usize| {
            let before = planned[index].after.map(|name| planned.iter().position(|it| it.name == name));
            // One that is not there is skipped.
            before.flatten().is_none_or(|before| self.ended[before].is_some())
        };
        let at = self.left.iter().position(|index| may_begin(*index))?;
        self.running += 1;
        self.left.remove(at)
    }

    fn end(&mut self, index: usize, ended: Ended) {
        self.running -= 1;
        if !ended.passed {
            self.left.clear();
        }
        self.ended[index] = Some(ended);
    }

    /// Those to be shown now: none before one that is listed before it and may still come.
    fn take_shown(&mut self) -> Vec<(usize, Ended)> {
        let mut shown = Vec::new();
        while self.shown < self.ended.len() {
            match self.ended[self.shown].clone() {
                Some(ended) => shown.push((self.shown, ended)),
                // After a failure it is never begun.
                None if self.left.is_empty() && self.running == 0 => {}
                None => break,
            }
            self.shown += 1;
        }
        shown
    }
}

/// Runs them, so many at once; returns how many passed and the names of those that failed.
pub(crate) fn run(
    planned: &[Planned],
    at_once: usize,
    step: impl Fn(usize) -> Ended + Sync,
    show: impl Fn(&Planned, &Ended) + Sync,
) -> (usize, Vec<String>) {
    let ended = vec![None; planned.len()];
    let steps = Mutex::new(Steps { left: (0..planned.len()).collect(), ended, shown: 0, running: 0 });
    let change = Condvar::new();
    let worker = || {
        let mut held = steps.lock().expect("no panic while it is held");
        while !held.left.is_empty() {
            let Some(index) = held.take(planned) else {
                held = change.wait(held).expect("no panic while it is held");
                continue;
            };
            drop(held);
            let ended = step(index);
            held = steps.lock().expect("no panic while it is held");
            held.end(index, ended);
            held.take_shown().iter().for_each(|(index, ended)| show(&planned[*index], ended));
            change.notify_all();
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(worker);
        }
    });
    let ended = steps.into_inner().expect("no thread panicked").ended;
    let passed = ended.iter().flatten().filter(|ended| ended.passed).count();
    let failed = planned.iter().zip(&ended).filter(|(_, ended)| ended.as_ref().is_some_and(|it| !it.passed));
    (passed, failed.map(|(step, _)| step.name.clone()).collect())
}

/// Runs a command that writes into a file, and returns what it wrote.
pub(crate) fn in_a_process(command: &mut Command, log: &Path) -> Ended {
    let started = Instant::now();
    let result = write_to(command, log);
    let said = std::fs::read(log).map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned());
    let took = started.elapsed();
    match result {
        Ok(passed) => Ended { passed, said, took },
        Err(error) => Ended { passed: false, said: format!("{said}{error:#}\n"), took },
    }
}

fn write_to(command: &mut Command, log: &Path) -> Result<bool> {
    let file = std::fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let status = command.stdout(file.try_clone()?).stderr(file).status();
    Ok(status.with_context(|| format!("cannot start {command:?}"))?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(steps: &[(&str, Option<&'static str>)]) -> Vec<Planned> {
        steps.iter().map(|(name, after)| Planned { name: (*name).to_string(), after: *after }).collect()
    }

    fn ended(passed: bool) -> Ended {
        Ended { passed, said: String::new(), took: Duration::ZERO }
    }

    /// Runs them, and returns also in which order they were shown.
    fn all(planned: &[Planned], at_once: usize, step: impl Fn(usize) -> Ended + Sync) -> (usize, Vec<String>, String) {
        let shown = Mutex::new(Vec::new());
        let (passed, failed) = run(planned, at_once, step, |step, _| shown.lock().unwrap().push(step.name.clone()));
        (passed, failed, shown.into_inner().unwrap().concat())
    }

    #[test]
    fn they_are_shown_in_the_order_of_the_list() {
        let steps = planned(&[("a", None), ("b", None), ("c", None)]);
        let others = std::sync::Barrier::new(2);
        // The first ends when the last has begun, thus after the second.
        let step = |index| {
            if index != 1 {
                others.wait();
            }
            ended(true)
        };
        assert_eq!(all(&steps, 2, step), (3, Vec::new(), "abc".to_string()));
    }

    #[test]
    fn one_waits_for_the_step_that_it_needs_while_others_go_on() {
        let steps = planned(&[("a", None), ("b", Some("a")), ("c", None), ("d", Some("not there"))]);
        let begun = Mutex::new(Vec::new());
        let independent = std::sync::Barrier::new(2);
        let step = |index| {
            begun.lock().unwrap().push(index);
            if index == 0 || index == 2 {
                independent.wait();
            }
            ended(true)
        };
        assert_eq!(all(&steps, 2, step), (4, Vec::new(), "abcd".to_string()));
        assert_eq!(begun.into_inner().unwrap()[..2], [0, 2]);
    }

    #[test]
    fn after_a_failure_none_is_begun_and_those_that_run_are_waited_for() {
        let steps = planned(&[("a", None), ("b", None), ("c", Some("b")), ("d", None)]);
        let both = std::sync::Barrier::new(2);
        let step = |index| {
            both.wait();
            ended(index != 1)
        };
        let (_, failed, shown) = all(&steps[..2], 2, step);
        assert_eq!((failed, shown), (vec!["b".to_string()], "ab".to_string()));
        assert_eq!(all(&steps, 1, |index| ended(index != 1)), (1, vec!["b".to_string()], "ab".to_string()));
    }

    #[test]
    fn all_that_a_process_says_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new("sh");
        let ended = in_a_process(command.args(["-c", "echo one; echo two >&2; exit 3"]), &folder.path().join("log"));
        assert_eq!((ended.passed, ended.said.as_str()), (false, "one\ntwo\n"));
        let ended = in_a_process(&mut Command::new("/not/there"), &folder.path().join("log"));
        assert!(!ended.passed && ended.said.contains("/not/there"), "{}", ended.said);
    }
}
