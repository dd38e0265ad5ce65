//! Figures of one run: quantiles of latencies, rates of steps, and the window of time that they are taken from.

use super::output::{Output, Requests, Steps};
use super::service::{self, Service};
use crate::quantity::approximate;
use serde::Serialize;

/// A stretch of the clock, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Window {
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Window {
    /// All of the time.
    pub(crate) const EVER: Self = Self { from: f64::NEG_INFINITY, to: f64::INFINITY };

    /// The time that is in both.
    pub(crate) fn within(self, other: Self) -> Option<Self> {
        let both = Self { from: self.from.max(other.from), to: self.to.min(other.to) };
        (both.from < both.to).then_some(both)
    }

    /// The time in which all of these were at work; of LLM servers, in which requests came.
    pub(crate) fn of(outputs: &[&Output]) -> Option<Self> {
        outputs.iter().try_fold(Self::EVER, |window, output| {
            let (from, to) = output.in_company()?;
            window.within(Self { from, to })
        })
    }

    pub(crate) fn seconds(self) -> f64 {
        self.to - self.from
    }
}

/// What a program did in a window.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub(crate) enum Figures {
    Requests(Latencies),
    Steps(Rate),
    /// Of all its requests, whatever the window: they are the same in every arm.
    Tokens(Box<Service>),
}

/// Latencies of requests, each from its arrival to its end.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Latencies {
    pub(crate) requests: usize,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// At [`LEVELS`].
    pub(crate) quantiles_ms: Vec<f64>,
    /// All of them, rising.
    #[serde(skip)]
    pub(crate) all_ms: Vec<f64>,
}

/// How fast steps were done.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Rate {
    /// Also parts of steps, at both ends of the window.
    pub(crate) steps: f64,
    pub(crate) per_second: f64,
    /// Without the time in which the program did something else.
    pub(crate) seconds: f64,
}

/// The levels of the quantiles that are kept, in thousandths: each percent, and 99.9 %.
pub(crate) const LEVELS: [usize; 102] = {
    let mut levels = [0; 102];
    let mut percent = 0;
    while percent < 100 {
        levels[percent] = percent * 10;
        percent += 1;
    }
    levels[100] = 999;
    levels[101] = 1000;
    levels
};

/// What the program did in that time, or nothing if it did too little.
pub(crate) fn figures(output: &Output, window: Window) -> Option<Figures> {
    match output {
        Output::Requests(done) => latencies(done, window).map(Figures::Requests),
        Output::Steps(done) => rate(done, window).map(Figures::Steps),
        Output::Answers(done) => service::service(done).map(|found| Figures::Tokens(Box::new(found))),
    }
}

fn latencies(done: &Requests, window: Window) -> Option<Latencies> {
    let is_inside = |arrival: f64, end: f64| arrival >= window.from && end <= window.to;
    let inside = done.requests.iter().filter(|request| is_inside(request.arrival, request.end));
    let mut all_ms: Vec<f64> = inside.map(|request| milliseconds(request.end - request.arrival)).collect();
    all_ms.sort_by(f64::total_cmp);
    Latencies::of(all_ms, window.seconds())
}

/// To nanoseconds, which is what the clock has.
pub(crate) fn milliseconds(seconds: f64) -> f64 {
    (seconds * 1e9).round() / 1e6
}

impl Latencies {
    /// Of so many seconds; the latencies are rising. Nothing if there are none.
    pub(crate) fn of(all_ms: Vec<f64>, seconds: f64) -> Option<Self> {
        let at = |level: usize| quantile(&all_ms, level);
        Some(Self {
            requests: all_ms.len(),
            per_second: approximate(all_ms.len() as u64) / seconds,
            p50_ms: at(500)?,
            p90_ms: at(900)?,
            p99_ms: at(990)?,
            max_ms: at(1000)?,
            quantiles_ms: quantiles(&all_ms)?,
            all_ms,
        })
    }
}

/// At [`LEVELS`].
pub(crate) fn quantiles(rising: &[f64]) -> Option<Vec<f64>> {
    LEVELS.iter().map(|level| quantile(rising, *level)).collect()
}

/// The smallest value that so many thousandths of all do not exceed.
pub(crate) fn quantile(rising: &[f64], level: usize) -> Option<f64> {
    let rank = (rising.len() * level).div_ceil(1000).max(1);
    rising.get(rank - 1).copied()
}

fn rate(done: &Steps, window: Window) -> Option<Rate> {
    let paused = |before: f64| -> f64 { done.paused.iter().map(|(from, to)| (before.min(*to) - from).max(0.0)).sum() };
    // On a clock that stands still while the program does something else.
    let at_work = |at: f64| at - paused(at);
    let ends: Vec<f64> = done.steps.iter().map(|(end, _)| at_work(*end)).collect();
    let (from, to) = (at_work(window.from), at_work(window.to));
    let steps = progress(&ends, to) - progress(&ends, from);
    let seconds = to - from;
    (steps > 0.0 && seconds > 0.0).then(|| Rate { steps, per_second: steps / seconds, seconds })
}

/// How many steps were done by then since the end of the first; one in the middle counts by the part of its time that is
/// over.
fn progress(ends: &[f64], at: f64) -> f64 {
    let ended = ends.partition_point(|end| *end <= at);
    if ended == 0 {
        return 0.0;
    }
    let whole = approximate(ended as u64 - 1);
    match ends.get(ended) {
        Some(next) => whole + (at - ends[ended - 1]) / (next - ends[ended - 1]),
        None => whole,
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Request;
    use super::*;

    fn requests(all: &[(f64, f64)]) -> Output {
        let requests = all.iter().map(|(arrival, end)| Request { arrival: *arrival, end: *end }).collect();
        Output::Requests(Requests { requests, ..Requests::default() })
    }

    fn steps(ends: &[f64], paused: &[(f64, f64)]) -> Output {
        let steps = ends.iter().map(|end| (*end, String::new())).collect();
        Output::Steps(Steps { steps, paused: paused.to_vec(), ..Steps::default() })
    }

    fn rate_of(output: &Output, from: f64, to: f64) -> Rate {
        let Some(Figures::Steps(rate)) = figures(output, Window { from, to }) else { panic!("no rate") };
        rate
    }

    #[test]
    fn a_quantile_is_one_of_the_values() {
        let rising: Vec<f64> = (1..=200).map(f64::from).collect();
        for (level, value) in
            [(0, 1.0), (5, 1.0), (500, 100.0), (505, 101.0), (990, 198.0), (999, 200.0), (1000, 200.0)]
        {
            assert_eq!(quantile(&rising, level), Some(value), "{level}");
        }
        assert_eq!(quantile(&[7.0], 990), Some(7.0));
        assert_eq!(quantile(&[], 500), None);
        assert_eq!(quantiles(&rising).unwrap().len(), LEVELS.len());
    }

    #[test]
    fn levels_rise_to_all() {
        assert!(LEVELS.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!((LEVELS[0], LEVELS[99], LEVELS[101]), (0, 990, 1000));
    }

    #[test]
    fn latencies_count_from_the_arrival_and_inside_the_window() {
        let output = requests(&[(0.0, 0.9), (1.0, 1.002), (2.0, 2.004), (2.9, 3.5)]);
        let Some(Figures::Requests(found)) = figures(&output, Window { from: 1.0, to: 3.0 }) else { panic!() };
        assert_eq!(found.requests, 2);
        assert!((found.p50_ms - 2.0).abs() < 1e-9 && (found.max_ms - 4.0).abs() < 1e-9, "{found:?}");
        assert!((found.per_second - 1.0).abs() < 1e-9);
        assert_eq!(figures(&output, Window { from: 10.0, to: 11.0 }), None);
    }

    #[test]
    fn the_window_is_when_all_are_at_work() {
        let (serve, train) = (requests(&[(1.0, 1.5), (9.0, 9.5)]), steps(&[2.0, 4.0, 12.0], &[]));
        assert_eq!(Window::of(&[&serve, &train]), Some(Window { from: 2.0, to: 9.5 }));
        assert_eq!(Window::of(&[&serve]), Some(Window { from: 1.0, to: 9.5 }));
        assert_eq!(Window::of(&[&serve, &steps(&[20.0, 30.0], &[])]), None);
    }

    #[test]
    fn what_is_left_to_do_after_the_last_arrival_does_not_count_for_others() {
        use super::super::answers::{Answers, tests::answer};
        let server = |requests| Output::Answers(Answers { requests, ..Answers::default() });
        let (first, last) = (answer(0, 1.0, 0.5, 0.1, 3), answer(1, 4.0, 0.5, 0.5, 9));
        let train = steps(&[0.5, 2.0, 4.0, 12.0], &[]);
        let window = Window::of(&[&server(vec![first.clone(), last]), &train]);
        assert_eq!(window, Some(Window { from: 1.0, to: 4.0 }), "not up to the last token, at 8.5");
        let window = Window::of(&[&server(vec![first]), &train]).unwrap();
        assert!(window.from < window.to, "a single request has no time between arrivals: {window:?}");
    }

    #[test]
    fn steps_are_counted_in_the_window_alone() {
        let output = steps(&[1.0, 2.0, 3.0, 4.0, 4.5, 5.0], &[]);
        let whole = rate_of(&output, 1.0, 4.0);
        assert!((whole.steps - 3.0).abs() < 1e-9 && (whole.per_second - 1.0).abs() < 1e-9, "{whole:?}");
        let cut = rate_of(&output, 1.5, 4.25);
        assert!((cut.steps - 3.0).abs() < 1e-9, "half of the second and half of the fifth: {cut:?}");
        assert_eq!(figures(&output, Window { from: 5.0, to: 9.0 }), None);
    }

    #[test]
    fn pauses_are_no_time_at_all() {
        let output = steps(&[1.0, 2.0, 4.0, 5.0], &[(2.5, 3.5)]);
        let found = rate_of(&output, 1.0, 5.0);
        assert!((found.seconds - 3.0).abs() < 1e-9 && (found.per_second - 1.0).abs() < 1e-9, "{found:?}");
        let cut = rate_of(&output, 1.0, 3.0);
        assert!(
            (cut.seconds - 1.5).abs() < 1e-9 && (cut.steps - 1.5).abs() < 1e-9,
            "in the middle of a pause: {cut:?}"
        );
    }
}
