//! Figures of an LLM server: how long users wait for the first token and between tokens, and how often that is too long.

use super::answers::{Answer, Answers, Ended};
use super::figures::{Latencies, milliseconds, quantile, quantiles};
use crate::quantity::approximate;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a server is to keep to, as far as that is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Objectives {
    pub(crate) ttft_ms: Option<f64>,
    pub(crate) tpot_ms: Option<f64>,
}

/// Times p99 alone, where nobody says what the objective is.
pub(crate) const TTFT_TIMES_ALONE: f64 = 1.5;
pub(crate) const TPOT_TIMES_ALONE: f64 = 1.25;

/// The shortest that `detshare run` takes.
const SHORTEST_MS: f64 = 0.001;

impl Objectives {
    /// What is not known yet is taken from a run alone.
    pub(crate) fn or_from_alone(self, alone: &Service) -> Self {
        let times = |times: f64, found: &Option<Times>| Some((found.as_ref()?.p99_ms * times).max(SHORTEST_MS));
        Self {
            ttft_ms: self.ttft_ms.or_else(|| times(TTFT_TIMES_ALONE, &alone.ttft)),
            tpot_ms: self.tpot_ms.or_else(|| times(TPOT_TIMES_ALONE, &alone.tpot)),
        }
    }
}

/// How a server did. All requests count that it was sent and did not refuse.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Service {
    /// Of answers that are complete: from the arrival to the last token.
    pub(crate) whole: Latencies,
    pub(crate) mean_ms: f64,
    /// From the arrival to the first token.
    pub(crate) ttft: Option<Times>,
    /// From each token to the next, all of them.
    pub(crate) tpot: Option<Times>,
    /// Too long for the server; the same in every run.
    pub(crate) refused: usize,
    /// Not complete when the server was stopped.
    pub(crate) unanswered: usize,
    pub(crate) kept: Kept,
    /// Of each answer that is complete, by its place in the trace.
    #[serde(skip)]
    pub(crate) by_request: BTreeMap<u64, OfRequest>,
}

/// The times of one request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OfRequest {
    pub(crate) whole_ms: f64,
    pub(crate) ttft_ms: f64,
    /// From each token to the next.
    pub(crate) gaps_ms: Vec<f64>,
}

impl OfRequest {
    fn of(answer: &Answer) -> Option<Self> {
        Some(Self {
            whole_ms: milliseconds(answer.end()? - answer.arrival),
            ttft_ms: milliseconds(answer.ttft()?),
            gaps_ms: answer.gaps().map(milliseconds).collect(),
        })
    }
}

/// Times of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) count: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// At [`super::figures::LEVELS`].
    pub(crate) quantiles_ms: Vec<f64>,
    /// All of them, rising.
    #[serde(skip)]
    pub(crate) all_ms: Vec<f64>,
}

/// How objectives were kept to; nothing where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Kept {
    /// Requests whose first token came too late, or never.
    pub(crate) ttft_violations: Option<Violations>,
    /// Tokens that came too long after the one before.
    pub(crate) tpot_violations: Option<Violations>,
    /// Complete requests a second with the first token in time, and the others in time on average.
    pub(crate) goodput: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Violations {
    pub(crate) number: usize,
    pub(crate) of: usize,
    pub(crate) part: f64,
}

impl Violations {
    fn new(number: usize, of: usize) -> Self {
        Self { number, of, part: approximate(number as u64) / approximate(of.max(1) as u64) }
    }
}

impl Times {
    fn of(seconds: impl Iterator<Item = f64>) -> Option<Self> {
        let mut all_ms: Vec<f64> = seconds.map(milliseconds).collect();
        all_ms.sort_by(f64::total_cmp);
        Some(Self {
            count: all_ms.len(),
            p50_ms: quantile(&all_ms, 500)?,
            p99_ms: quantile(&all_ms, 990)?,
            quantiles_ms: quantiles(&all_ms)?,
            all_ms,
        })
    }
}

/// What the server did, or nothing if it completed no answer.
pub(crate) fn service(done: &Answers) -> Option<Service> {
    let (from, to) = done.span()?;
    let taken = || done.requests.iter().filter(|request| request.ended != Ended::TooLong);
    let complete = taken().filter(|request| request.is_complete());
    let mut all_ms: Vec<f64> =
        complete.filter_map(|request| Some(milliseconds(request.end()? - request.arrival))).collect();
    all_ms.sort_by(f64::total_cmp);
    let complete = all_ms.len();
    Some(Service {
        mean_ms: all_ms.iter().sum::<f64>() / approximate(complete.max(1) as u64),
        whole: Latencies::of(all_ms, to - from)?,
        ttft: Times::of(taken().filter_map(Answer::ttft)),
        tpot: Times::of(taken().flat_map(Answer::gaps)),
        refused: done.requests.len() - taken().count(),
        unanswered: taken().count() - complete + done.not_arrived,
        kept: Kept { ttft_violations: None, tpot_violations: None, goodput: None },
        by_request: taken()
            .filter(|request| request.is_complete())
            .filter_map(|request| Some((request.index, OfRequest::of(request)?)))
            .collect(),
    })
}

/// How the server kept to that.
pub(crate) fn kept(done: &Answers, objectives: Objectives) -> Kept {
    let taken = || done.requests.iter().filter(|request| request.ended != Ended::TooLong);
    let requests = taken().count() + done.not_arrived;
    let is_in_time = |request: &Answer, limit: f64| request.ttft().is_some_and(|ttft| milliseconds(ttft) <= limit);
    let is_steady = |request: &Answer, limit: f64| mean_gap_ms(request).is_none_or(|gap| gap <= limit);
    let late_tokens = |limit: f64| {
        let gaps = || taken().flat_map(Answer::gaps).map(milliseconds);
        Violations::new(gaps().filter(|gap| *gap > limit).count(), gaps().count())
    };
    let good = |ttft: f64, tpot: f64| {
        let is_good =
            |request: &&Answer| request.is_complete() && is_in_time(request, ttft) && is_steady(request, tpot);
        approximate(taken().filter(is_good).count() as u64)
    };
    let seconds = done.span().map(|(from, to)| to - from);
    Kept {
        ttft_violations: objectives.ttft_ms.map(|limit| {
            Violations::new(requests - taken().filter(|request| is_in_time(request, limit)).count(), requests)
        }),
        tpot_violations: objectives.tpot_ms.map(late_tokens),
        goodput: objectives
            .ttft_ms
            .zip(objectives.tpot_ms)
            .zip(seconds)
            .map(|((ttft, tpot), all)| good(ttft, tpot) / all),
    }
}

fn mean_gap_ms(request: &Answer) -> Option<f64> {
    let count = request.gaps().count();
    (count > 0).then(|| milliseconds(request.gaps().sum::<f64>() / approximate(count as u64)))
}

#[cfg(test)]
mod tests {
    use super::super::answers::tests::answer;
    use super::*;

    fn answers() -> Answers {
        let refused = Answer {
            ended: Ended::TooLong,
            token_times: Vec::new(),
            tokens: Vec::new(),
            ..answer(3, 0.0, 0.0, 0.0, 0)
        };
        let mut cut_short = answer(2, 2.0, 0.5, 0.01, 3);
        cut_short.ended = Ended::Stopped;
        // The second waits longer for its first token, and for each further one.
        let requests = vec![answer(0, 0.0, 0.1, 0.01, 11), answer(1, 1.0, 0.3, 0.03, 11), cut_short, refused];
        Answers { requests, not_arrived: 1, ..Answers::default() }
    }

    #[test]
    fn every_token_and_every_request_counts() {
        let found = service(&answers()).unwrap();
        assert_eq!((found.whole.requests, found.refused, found.unanswered), (2, 1, 2));
        assert!((found.mean_ms - 400.0).abs() < 1e-6, "200 ms and 600 ms: {found:?}");
        let (ttft, tpot) = (found.ttft.unwrap(), found.tpot.unwrap());
        assert_eq!((ttft.count, ttft.p50_ms, ttft.p99_ms), (3, 300.0, 500.0));
        assert_eq!((tpot.count, tpot.p50_ms, tpot.p99_ms), (22, 10.0, 30.0));
        assert_eq!(service(&Answers::default()), None);
    }

    #[test]
    fn violations_are_counted_by_request_and_by_token() {
        let found = kept(&answers(), Objectives { ttft_ms: Some(250.0), tpot_ms: Some(20.0) });
        let ttft = found.ttft_violations.unwrap();
        assert_eq!((ttft.number, ttft.of, ttft.part), (3, 4, 0.75), "two came late, and one never");
        let tpot = found.tpot_violations.unwrap();
        assert_eq!((tpot.number, tpot.of), (10, 22));
        // One of them in 2.52 s: from the first arrival to the last token.
        assert!((found.goodput.unwrap() - 1.0 / 2.52).abs() < 1e-9, "{found:?}");
        let found = kept(&answers(), Objectives { ttft_ms: Some(250.0), tpot_ms: None });
        assert_eq!((found.tpot_violations, found.goodput), (None, None));
    }

    #[test]
    fn what_nobody_asks_for_is_taken_from_alone() {
        let alone = service(&answers()).unwrap();
        let objectives = Objectives::default().or_from_alone(&alone);
        assert_eq!(objectives, Objectives { ttft_ms: Some(750.0), tpot_ms: Some(37.5) });
        let given = Objectives { tpot_ms: Some(5.0), ..Objectives::default() }.or_from_alone(&alone);
        assert_eq!((given.ttft_ms, given.tpot_ms), (Some(750.0), Some(5.0)));
    }

    #[test]
    fn one_token_has_no_time_between_tokens() {
        let done = Answers { requests: vec![answer(0, 0.0, 0.1, 0.0, 1)], ..Answers::default() };
        let found = service(&done).unwrap();
        assert_eq!((found.tpot, found.whole.requests), (None, 1));
        let kept = kept(&done, Objectives { ttft_ms: Some(200.0), tpot_ms: Some(1.0) });
        assert!((kept.goodput.unwrap() - 10.0).abs() < 1e-9, "{kept:?}");
    }
}
