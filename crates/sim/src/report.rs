//! What came of a simulation, in whole numbers: the same run gives the same bytes.

use crate::server::Progress;
use crate::settings::{Settings, Way};
use crate::tenant::{Decisions, Tenant};
use crate::trace::Request;
use detshare_policy::{Class, Reason};
use serde::Serialize;
use std::collections::BTreeMap;

/// What came of sharing a GPU in one way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The way's name.
    pub way: &'static str,
    /// The dial, in thousandths.
    pub dial: u16,
    /// The seed of the arrivals.
    pub seed: u64,
    /// How much time was simulated.
    pub run_ns: u64,
    /// Launches that were made, by all tenants.
    pub launches: u64,
    /// Those whose kernels have ended. The others were in flight at the end.
    pub ended: u64,
    /// Tenants that answer requests.
    pub latency: Vec<Latency>,
    /// Tenants that take what is left.
    pub best_effort: Vec<BestEffort>,
}

/// What a latency tenant got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Latency {
    /// Its name.
    pub name: String,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that had come and were not answered at the end.
    pub unanswered: u64,
    /// From when a request came until it was answered.
    pub times: Times,
    /// The same with the GPU for itself.
    pub alone: Times,
    /// By how much p99 is longer than alone, in thousandths.
    pub p99_overhead: i64,
    /// What was decided.
    pub decided: Decided,
    /// What the users of an LLM server got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
}

/// What the users of an LLM server got. All requests count that came and were not refused, answered or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Requests that came.
    pub requests: u64,
    /// The part of the time in which a step was under way, in thousandths.
    pub busy: u64,
    /// Requests that are too long for the cache.
    pub refused: u64,
    /// Tokens that were given.
    pub tokens: u64,
    /// From when a request came until its first token.
    pub ttft: Times,
    /// Between two tokens of a request.
    pub tpot: Times,
    /// From when a request came until its last token, on average.
    pub mean_latency_ns: u64,
    /// Requests whose first token came later than the objective, or has not come for as long.
    pub ttft_violations: u64,
    /// Tokens that came later after the one before than the objective.
    pub tpot_violations: u64,
    /// Answers in 1000 seconds whose first token was in time, and whose tokens were on average.
    pub goodput_per_1000_s: u64,
}

/// How long requests took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Half of them were answered sooner.
    pub p50_ns: u64,
    /// Nine of ten were.
    pub p90_ns: u64,
    /// Ninety-nine of a hundred were.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// What a best-effort tenant got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BestEffort {
    /// Its name.
    pub name: String,
    /// Steps that are finished.
    pub steps: u64,
    /// Steps in 1000 seconds, parts of steps included.
    pub steps_per_1000_s: u64,
    /// The same with the GPU for itself.
    pub alone_steps_per_1000_s: u64,
    /// What it got of that, in thousandths.
    pub share: u64,
    /// What was decided.
    pub decided: Decided,
}

/// What was decided, and how often; by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// Launches that ran.
    pub ran: BTreeMap<String, u64>,
    /// Launches that were held before, by the first reason.
    pub held: BTreeMap<String, Holds>,
    /// Launches that ran because they had been held for as long as can be.
    pub longest_holds: u64,
}

/// Holds for one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Holds {
    /// How many launches.
    pub launches: u64,
    /// For how long altogether.
    pub ns: u64,
}

impl Report {
    pub(crate) fn new(way: Way, settings: &Settings, tenants: &mut [Tenant<'_>], alone: &[Alone]) -> Self {
        let of = |class| tenants.iter().zip(alone).filter(move |(tenant, _)| tenant.class == class);
        let best_effort = of(Class::BestEffort).map(|(tenant, alone)| best_effort(tenant, alone, settings)).collect();
        let (launches, ended) = tenants.iter().fold((0, 0), |(l, e), it| (l + it.launched, e + it.ended));
        let urgent = tenants.iter_mut().zip(alone).filter(|(tenant, _)| tenant.class == Class::Latency);
        Self {
            way: way.name(),
            dial: settings.dial.thousandths(),
            seed: settings.seed,
            run_ns: settings.run_ns,
            launches,
            ended,
            best_effort,
            latency: urgent.map(|(tenant, alone)| latency(tenant, alone, settings)).collect(),
        }
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // There is nothing in it that JSON has no form for.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

/// What a tenant gets with the GPU for itself.
#[derive(Debug, Clone)]
pub(crate) struct Alone {
    times: Times,
    worked_ns: u64,
}

impl Alone {
    pub(crate) fn new(tenant: &Tenant<'_>) -> Self {
        Self { times: Times::of(tenant.latencies()), worked_ns: tenant.worked_ns }
    }
}

fn latency(tenant: &mut Tenant<'_>, alone: &Alone, settings: &Settings) -> Latency {
    let times = Times::of(tenant.latencies());
    let thousandths = i128::from(times.p99_ns) * 1_000 / i128::from(alone.times.p99_ns.max(1)) - 1_000;
    Latency {
        name: tenant.trace.name.clone(),
        requests: number(tenant.latencies().len()),
        unanswered: tenant.unanswered(settings.run_ns),
        times,
        alone: alone.times,
        p99_overhead: i64::try_from(thousandths).unwrap_or(i64::MAX),
        decided: Decided::new(&tenant.decisions),
        service: service(tenant, settings.run_ns),
    }
}

fn service(tenant: &Tenant<'_>, run_ns: u64) -> Option<Service> {
    let server = tenant.server.as_ref()?;
    let (ttft_ns, tpot_ns) = (tenant.trace.ttft_ns.unwrap_or(u64::MAX), tenant.trace.tpot_ns.unwrap_or(u64::MAX));
    let came = || server.arrived(run_ns).filter(|(_, progress)| !progress.is_refused);
    // Who has no token yet has waited until the end.
    let waited = |request: &Request, progress: &Progress| {
        if progress.tokens == 0 { run_ns } else { progress.first_ns }.saturating_sub(request.at_ns)
    };
    let is_good = |(request, progress): &(&Request, &Progress)| {
        let tokens_ns = u64::from(progress.tokens.saturating_sub(1)).saturating_mul(tpot_ns);
        progress.tokens == request.output
            && waited(request, progress) <= ttft_ns
            && progress.last_ns - progress.first_ns <= tokens_ns
    };
    let begun = came().filter(|(_, progress)| progress.tokens > 0);
    let first: Vec<u64> = begun.map(|(request, progress)| waited(request, progress)).collect();
    let latencies = tenant.latencies();
    let good = u128::from(number(came().filter(is_good).count()));
    Some(Service {
        requests: number(came().count()),
        busy: u64::try_from(u128::from(server.busy_ns) * 1_000 / u128::from(run_ns)).unwrap_or(u64::MAX),
        refused: number(server.arrived(run_ns).filter(|(_, progress)| progress.is_refused).count()),
        tokens: came().map(|(_, progress)| u64::from(progress.tokens)).sum(),
        ttft: Times::of(&first),
        tpot: Times::of(&server.gaps_ns),
        mean_latency_ns: latencies.iter().sum::<u64>() / number(latencies.len()).max(1),
        ttft_violations: number(came().filter(|(request, progress)| waited(request, progress) > ttft_ns).count()),
        tpot_violations: number(server.gaps_ns.iter().filter(|gap| **gap > tpot_ns).count()),
        goodput_per_1000_s: u64::try_from(good * 1_000_000_000_000 / u128::from(run_ns)).unwrap_or(u64::MAX),
    })
}

fn best_effort(tenant: &Tenant<'_>, alone: &Alone, settings: &Settings) -> BestEffort {
    let steps_in_1000_s = |worked_ns: u64| {
        let per_step = u128::from(tenant.step_ns.max(1)) * u128::from(settings.run_ns);
        let steps = u128::from(worked_ns) * 1_000_000_000_000 / per_step;
        u64::try_from(steps).unwrap_or(u64::MAX)
    };
    let share = u128::from(tenant.worked_ns) * 1_000 / u128::from(alone.worked_ns.max(1));
    BestEffort {
        name: tenant.trace.name.clone(),
        steps: tenant.steps,
        steps_per_1000_s: steps_in_1000_s(tenant.worked_ns),
        alone_steps_per_1000_s: steps_in_1000_s(alone.worked_ns),
        share: u64::try_from(share).unwrap_or(u64::MAX),
        decided: Decided::new(&tenant.decisions),
    }
}

impl Times {
    fn of(latencies: &[u64]) -> Self {
        let mut sorted = latencies.to_vec();
        sorted.sort_unstable();
        let at = |hundredths: usize| sorted.get(sorted.len() * hundredths / 100).copied().unwrap_or(0);
        Self { p50_ns: at(50), p90_ns: at(90), p99_ns: at(99), max_ns: sorted.last().copied().unwrap_or(0) }
    }
}

impl Decided {
    fn new(decisions: &Decisions) -> Self {
        let of = |counts: &[u64], reason: Reason| counts.get(usize::from(reason.number())).copied().unwrap_or(0);
        let counted = |counts: &[u64]| {
            let each = Reason::ALL.into_iter().map(|reason| (reason, of(counts, reason)));
            each.filter(|(_, count)| *count > 0).collect::<Vec<_>>()
        };
        let held = counted(&decisions.held).into_iter();
        Self {
            ran: counted(&decisions.ran).into_iter().map(|(reason, count)| (word(reason), count)).collect(),
            held: held
                .map(|(reason, launches)| (word(reason), Holds { launches, ns: of(&decisions.held_ns, reason) }))
                .collect(),
            longest_holds: decisions.longest_holds,
        }
    }
}

/// A reason in one word: `least-share` for [`Reason::LeastShare`].
fn word(reason: Reason) -> String {
    let name = format!("{reason:?}");
    let mut word = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_uppercase() && !word.is_empty() {
            word.push('-');
        }
        word.extend(letter.to_lowercase());
    }
    word
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_sorted_ones() {
        let latencies: Vec<u64> = (1..=1_000).rev().collect();
        let times = Times::of(&latencies);
        assert_eq!(times, Times { p50_ns: 501, p90_ns: 901, p99_ns: 991, max_ns: 1_000 });
        assert_eq!(Times::of(&[]), Times::default());
        assert_eq!(Times::of(&[7]), Times { p50_ns: 7, p90_ns: 7, p99_ns: 7, max_ns: 7 });
    }

    #[test]
    fn reasons_are_words() {
        assert_eq!(word(Reason::LeastShare), "least-share");
        assert_eq!(word(Reason::NotItsTurn), "not-its-turn");
        assert_eq!(word(Reason::Free), "free");
    }
}
