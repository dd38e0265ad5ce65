//! Whether the machine itself was at rest while something was measured.
//!
//! A virtual machine whose host is busy with others stops for milliseconds now and then, and so does whatever runs on it: a tail that
//! is measured then is the machine's. A thread of ours sleeps again and again, and what it is woken late by, the programs were held
//! up by too. Which of several runs counts is decided by that alone, never by what the programs did.

use super::clock;
use super::figures::Window;
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long it sleeps.
const NAP: Duration = Duration::from_millis(1);
/// What it may be woken late by where all is well; timers have 0.05 ms of slack.
const USUAL: Duration = Duration::from_micros(500);
/// How many naps lie between two looks at what the host took.
const NAPS_PER_LOOK: u32 = 50;
/// How often in a second it may be woken late: a server that answers in a millisecond or two has fewer such requests than its
/// p99 leaves out.
const MOST_LATE: f64 = 1.0;

/// The machine in a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Unrest {
    /// How often a thread was woken over half a millisecond late.
    pub(crate) late_per_second: f64,
    /// The latest of all.
    pub(crate) latest_ms: f64,
    /// What the host took of the CPUs' time, all of them together, as the kernel was told.
    pub(crate) stolen_ms_per_second: f64,
}

impl Unrest {
    /// Whether tails that were measured meanwhile are the machine's.
    pub(crate) fn is_great(&self) -> bool {
        self.late_per_second > MOST_LATE
    }

    pub(crate) fn greatest(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.max_by(|one, other| one.late_per_second.total_cmp(&other.late_per_second))
    }

    pub(crate) fn in_words(&self) -> String {
        let Self { late_per_second, latest_ms, .. } = self;
        format!("threads were woken late {late_per_second:.1} times a second, up to {latest_ms:.1} ms")
    }
}

/// Watches, until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<Seen>>,
}

/// What was seen, with its times.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    late: Vec<(f64, Duration)>,
    /// What the host has taken since the start, in seconds.
    stolen: Vec<(f64, f64)>,
}

impl Watch {
    pub(crate) fn start() -> std::io::Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&has_ended);
        let thread = std::thread::Builder::new().name("unrest".to_string()).spawn(move || watch(&end))?;
        Ok(Self { has_ended, thread: Some(thread) })
    }

    pub(crate) fn stop(mut self) -> Seen {
        self.has_ended.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

fn watch(end: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    let mut naps = 0_u32;
    while !end.load(Ordering::Relaxed) {
        let begun = Instant::now();
        std::thread::sleep(NAP);
        let late = begun.elapsed().saturating_sub(NAP);
        if late > USUAL {
            seen.late.push((clock::now(), late));
        }
        if naps.is_multiple_of(NAPS_PER_LOOK) {
            let told = std::fs::read_to_string("/proc/stat").ok().and_then(|text| stolen(&text));
            seen.stolen.extend(told.map(|seconds| (clock::now(), seconds)));
        }
        naps = naps.wrapping_add(1);
    }
    seen
}

/// What hosts have taken of the CPUs' time so far, in seconds, by the kernel's own account.
fn stolen(stat: &str) -> Option<f64> {
    const STEAL: usize = 8;
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: u64 = line.split_whitespace().nth(STEAL)?.parse().ok()?;
    Some(crate::quantity::approximate(ticks) / crate::quantity::approximate(rustix::param::clock_ticks_per_second()))
}

impl Seen {
    /// The machine in that time; nothing where that has no length.
    pub(crate) fn within(&self, window: Window) -> Option<Unrest> {
        let (first, last) = (self.stolen.first()?.0, self.stolen.last()?.0);
        let window = window.within(Window { from: first, to: last })?;
        let is_inside = |at: f64| (window.from..=window.to).contains(&at);
        let late = || self.late.iter().filter(|(at, _)| is_inside(*at)).map(|(_, late)| late.as_secs_f64());
        let mut taken = self.stolen.iter().filter(|(at, _)| is_inside(*at)).map(|(_, seconds)| *seconds);
        let before = taken.next().unwrap_or_default();
        let after = taken.next_back().unwrap_or(before);
        Some(Unrest {
            late_per_second: crate::quantity::approximate(late().count() as u64) / window.seconds(),
            latest_ms: late().fold(0.0, f64::max) * 1e3,
            stolen_ms_per_second: (after - before) * 1e3 / window.seconds(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_host_took_is_in_the_ninth_column() {
        let stat = "cpu  359865 0 23754 1871907 1308 0 4006 2985 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        let expected = 2985.0 / crate::quantity::approximate(rustix::param::clock_ticks_per_second());
        assert_eq!(stolen(stat), Some(expected));
        assert_eq!(stolen("cpu  1 2 3"), None);
        assert_eq!(stolen(""), None);
    }

    #[test]
    fn only_what_was_in_the_window_counts() {
        let ms = Duration::from_millis;
        let seen = Seen {
            late: vec![(0.5, ms(9)), (1.5, ms(2)), (2.5, ms(3)), (3.5, ms(8))],
            stolen: vec![(0.0, 1.0), (1.0, 1.25), (2.0, 1.5), (3.0, 1.75), (4.0, 9.0)],
        };
        let unrest = seen.within(Window { from: 1.0, to: 3.0 }).unwrap();
        assert!((unrest.late_per_second - 1.0).abs() < 1e-9 && (unrest.latest_ms - 3.0).abs() < 1e-9, "{unrest:?}");
        assert!((unrest.stolen_ms_per_second - 250.0).abs() < 1e-9, "{unrest:?}");
        assert!(!unrest.is_great() && seen.within(Window { from: 1.4, to: 2.6 }).unwrap().is_great());
        assert_eq!(seen.within(Window { from: 5.0, to: 6.0 }), None);
        assert_eq!(Seen::default().within(Window::EVER), None);
    }

    #[test]
    fn it_watches_until_it_is_stopped() {
        let watch = Watch::start().unwrap();
        let seen = watch.stop();
        assert!(seen.stolen.len() <= 1 || seen.within(Window::EVER).is_some());
    }
}
