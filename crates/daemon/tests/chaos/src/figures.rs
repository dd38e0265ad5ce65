//! Figures: times by what they are of, the machine they were taken on, and writing them down.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Times by name.
#[derive(Default)]
pub(crate) struct Times(BTreeMap<&'static str, Vec<Duration>>);

/// What is said of some times.
pub(crate) struct Summary {
    pub(crate) count: usize,
    pub(crate) p50: Duration,
    pub(crate) p99: Duration,
    pub(crate) max: Duration,
}

impl Times {
    pub(crate) fn add(&mut self, name: &'static str, time: Duration) {
        self.0.entry(name).or_default().push(time);
    }

    pub(crate) fn longest(&self) -> Option<Duration> {
        self.0.values().flatten().max().copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    pub(crate) fn longer_than(&self, limit: Duration) -> usize {
        self.0.values().flatten().filter(|time| **time > limit).count()
    }

    pub(crate) fn summaries(&self) -> Vec<(&'static str, Summary)> {
        let all = self.0.values().flatten().copied().collect();
        let each = self.0.iter().map(|(name, times)| (*name, summary(times.clone())));
        each.chain([("all", summary(all))]).collect()
    }

    pub(crate) fn print(&self, title: &str) {
        println!("{title:<34} {:>7} {:>9} {:>9} {:>9}", "times", "p50 ms", "p99 ms", "max ms");
        for (name, Summary { count, p50, p99, max }) in self.summaries() {
            println!("  {name:<32} {count:>7} {:>9.1} {:>9.1} {:>9.1}", ms(p50), ms(p99), ms(max));
        }
    }

    pub(crate) fn json(&self) -> Value {
        let each = self.summaries().into_iter().map(|(name, Summary { count, p50, p99, max })| {
            (name.to_string(), json!({ "times": count, "p50_ms": ms(p50), "p99_ms": ms(p99), "max_ms": ms(max) }))
        });
        Value::Object(each.collect())
    }
}

fn summary(mut times: Vec<Duration>) -> Summary {
    times.sort_unstable();
    let at = |percent: usize| times.get(times.len() * percent / 100).or(times.last()).copied().unwrap_or_default();
    Summary { count: times.len(), p50: at(50), p99: at(99), max: times.last().copied().unwrap_or_default() }
}

pub(crate) fn ms(time: Duration) -> f64 {
    // To a microsecond: more is noise.
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Writes figures with where they come from.
pub(crate) fn write(path: Option<&Path>, what: &str, figures: &Value) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let text = json!({
        "what": what,
        "command": command,
        "date": humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        "machine": machine(),
        "figures": figures,
    });
    fs::write(path, format!("{text:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

fn machine() -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':')).map(|(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({ "cpu": model, "cores": cores, "kernel": read("/proc/sys/kernel/osrelease").trim(), "gpu": "the software GPU" })
}
