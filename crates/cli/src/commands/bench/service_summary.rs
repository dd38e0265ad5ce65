//! What came of an LLM server over all rounds.

use super::figures::{Figures, quantiles};
use super::paired::{Interval, Ratios, mean, p99_overhead};
use super::runner::ProgramRun;
use super::service::{Kept, OfRequest, Service, Times, Violations};
use super::summary::Spread;
use crate::quantity;
use serde::Serialize;

/// An LLM server in an arm, over the rounds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServiceSummary {
    pub(crate) ttft_p50_ms: Option<Spread>,
    pub(crate) ttft_p99_ms: Option<Spread>,
    pub(crate) tpot_p50_ms: Option<Spread>,
    pub(crate) tpot_p99_ms: Option<Spread>,
    /// Of whole requests.
    pub(crate) mean_latency_ms: Option<Spread>,
    /// How much more than alone: 0.05 is 5 % more.
    pub(crate) ttft_p99_overhead: Option<Spread>,
    pub(crate) tpot_p99_overhead: Option<Spread>,
    pub(crate) mean_latency_overhead: Option<Spread>,
    /// Where these would be with other requests of the same kind.
    pub(crate) ttft_p99_overhead_interval: Option<Interval>,
    pub(crate) tpot_p99_overhead_interval: Option<Interval>,
    /// How many times as long as alone each request takes: to its first token, between its tokens on average, and in all.
    pub(crate) ttft_ratios: Option<Ratios>,
    pub(crate) tpot_ratios: Option<Ratios>,
    pub(crate) latency_ratios: Option<Ratios>,
    /// How many times p99 is one of: requests with a first token, and times between tokens; of all rounds.
    pub(crate) ttft_count: usize,
    pub(crate) tpot_count: usize,
    /// Requests whose first token came too late: their number in a round, and which part of all they are.
    pub(crate) ttft_violations: Option<Spread>,
    pub(crate) ttft_violations_part: Option<Spread>,
    /// Tokens that came too long after the one before.
    pub(crate) tpot_violations: Option<Spread>,
    pub(crate) tpot_violations_part: Option<Spread>,
    /// Requests a second that kept to both objectives.
    pub(crate) goodput: Option<Spread>,
    /// Of all rounds: not complete when the server was stopped.
    pub(crate) unanswered: usize,
    /// In a round: too long for the server.
    pub(crate) refused: usize,
    /// Of all rounds.
    pub(crate) ttft_quantiles_ms: Option<Vec<f64>>,
    pub(crate) tpot_quantiles_ms: Option<Vec<f64>>,
}

/// A figure of a run.
type Figure<'a> = &'a dyn Fn(&ProgramRun) -> Option<f64>;

impl ServiceSummary {
    /// Nothing for programs that are no LLM servers. `spread` takes a figure over the rounds, and `against` how much more
    /// it is than alone in the same round. `pairs` are runs alone and here, of the same round each.
    pub(crate) fn of(
        rounds: &[&ProgramRun],
        pairs: &[(&ProgramRun, &ProgramRun)],
        spread: &dyn Fn(Figure<'_>) -> Option<Spread>,
        overhead: &dyn Fn(Figure<'_>) -> Option<Spread>,
    ) -> Option<Self> {
        let services: Vec<&Service> = rounds.iter().filter_map(|run| service(run)).collect();
        let first = services.first()?;
        let time = |times: fn(&Service) -> Option<&Times>, value: fn(&Times) -> f64| {
            move |run: &ProgramRun| times(service(run)?).map(value)
        };
        let kept = |value: fn(&Kept) -> Option<f64>| move |run: &ProgramRun| value(&service(run)?.kept);
        let mean_latency = |run: &ProgramRun| Some(service(run)?.mean_ms);
        let pooled = |times: fn(&Service) -> Option<&Times>| {
            let mut all: Vec<f64> =
                services.iter().filter_map(|one| times(one)).flat_map(|one| &one.all_ms).copied().collect();
            all.sort_by(f64::total_cmp);
            quantiles(&all)
        };
        let requests: Vec<(&OfRequest, &OfRequest)> =
            pairs.iter().flat_map(|(alone, here)| both(alone, here)).collect();
        let ratios = |time: fn(&OfRequest) -> Option<f64>| {
            let times = requests.iter().filter_map(|(alone, here)| Some((time(alone)?, time(here)?)));
            Ratios::of(&times.collect::<Vec<_>>())
        };
        let interval = |times: fn(&OfRequest) -> &[f64]| {
            let times = requests.iter().map(|(alone, here)| (times(alone), times(here)));
            p99_overhead(&times.collect::<Vec<_>>())
        };
        let number = |times: fn(&Service) -> Option<&Times>| {
            services.iter().filter_map(|one| times(one)).map(|one| one.count).sum()
        };
        Some(Self {
            ttft_p99_overhead_interval: interval(|one| std::slice::from_ref(&one.ttft_ms)),
            tpot_p99_overhead_interval: interval(|one| &one.gaps_ms),
            ttft_ratios: ratios(|one| Some(one.ttft_ms)),
            tpot_ratios: ratios(|one| mean(&one.gaps_ms)),
            latency_ratios: ratios(|one| Some(one.whole_ms)),
            ttft_count: number(ttft),
            tpot_count: number(tpot),
            ttft_p50_ms: spread(&time(ttft, p50)),
            ttft_p99_ms: spread(&time(ttft, p99)),
            tpot_p50_ms: spread(&time(tpot, p50)),
            tpot_p99_ms: spread(&time(tpot, p99)),
            mean_latency_ms: spread(&mean_latency),
            ttft_p99_overhead: overhead(&time(ttft, p99)),
            tpot_p99_overhead: overhead(&time(tpot, p99)),
            mean_latency_overhead: overhead(&mean_latency),
            ttft_violations: spread(&kept(|kept| Some(count(kept.ttft_violations?)))),
            ttft_violations_part: spread(&kept(|kept| Some(kept.ttft_violations?.part))),
            tpot_violations: spread(&kept(|kept| Some(count(kept.tpot_violations?)))),
            tpot_violations_part: spread(&kept(|kept| Some(kept.tpot_violations?.part))),
            goodput: spread(&kept(|kept| kept.goodput)),
            unanswered: services.iter().map(|one| one.unanswered).sum(),
            refused: first.refused,
            ttft_quantiles_ms: pooled(ttft),
            tpot_quantiles_ms: pooled(tpot),
        })
    }
}

fn service(run: &ProgramRun) -> Option<&Service> {
    match run.figures.as_ref()? {
        Figures::Tokens(service) => Some(service),
        Figures::Requests(_) | Figures::Steps(_) => None,
    }
}

/// Each request that is complete in both runs.
fn both<'a>(alone: &'a ProgramRun, here: &'a ProgramRun) -> Vec<(&'a OfRequest, &'a OfRequest)> {
    let Some((alone, here)) = service(alone).zip(service(here)) else { return Vec::new() };
    let pairs = alone.by_request.iter().filter_map(|(index, one)| Some((one, here.by_request.get(index)?)));
    pairs.collect()
}

fn ttft(service: &Service) -> Option<&Times> {
    service.ttft.as_ref()
}

fn tpot(service: &Service) -> Option<&Times> {
    service.tpot.as_ref()
}

fn p50(times: &Times) -> f64 {
    times.p50_ms
}

fn p99(times: &Times) -> f64 {
    times.p99_ms
}

fn count(violations: Violations) -> f64 {
    quantity::approximate(violations.number as u64)
}
