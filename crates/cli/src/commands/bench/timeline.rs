//! What the tenants of an arm did over time, as far as it was seen.

use super::runner::ArmRun;
use super::sampler::{INTERVAL, Sample};
use super::scenario::Scenario;
use serde::Serialize;

/// What the tenants of an arm were seen to do.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Timeline {
    pub(crate) arm: &'static str,
    pub(crate) seconds_between_looks: f64,
    pub(crate) tenants: Vec<TenantLine>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct TenantLine {
    pub(crate) tenant: String,
    pub(crate) intervals: Vec<Interval>,
}

/// A tenant was seen to do the same from then to then, in seconds since the first look.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Interval {
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Nothing while it was not busy.
    pub(crate) lane: Option<String>,
    /// A launch was held.
    pub(crate) holding: bool,
}

impl Timeline {
    /// Of the first arm in which all programs were tenants at the same time.
    pub(crate) fn of(runs: &[ArmRun], scenario: &Scenario) -> Option<Self> {
        let is_together = |run: &&ArmRun| detshare_policy::number(run.arm).is_some() && !run.samples.is_empty();
        let run = runs.iter().filter(|run| run.failure.is_none()).find(is_together)?;
        let first = run.samples.iter().map(|sample| sample.at).fold(f64::INFINITY, f64::min);
        let between = INTERVAL.as_secs_f64();
        let line = |name: &str| TenantLine {
            tenant: name.to_string(),
            intervals: intervals(run.samples.iter().filter(|sample| sample.tenant == name), first, between),
        };
        let tenants = scenario.programs.iter().map(|program| line(program.name)).collect();
        Some(Self { arm: run.arm, seconds_between_looks: between, tenants })
    }
}

/// Looks that are alike are one interval. Looks that are missing leave a gap.
fn intervals<'a>(samples: impl Iterator<Item = &'a Sample>, first: f64, between: f64) -> Vec<Interval> {
    let mut intervals: Vec<Interval> = Vec::new();
    for sample in samples {
        let from = rounded(sample.at - first);
        let lane = sample.busy.then(|| sample.lane.clone());
        let is_next = |last: &Interval| from - last.to <= between;
        if let Some(last) = intervals.last_mut().filter(|last| is_next(last)) {
            last.to = from;
            if last.lane == lane && last.holding == sample.holding {
                last.to = rounded(from + between);
                continue;
            }
        }
        intervals.push(Interval { from, to: rounded(from + between), lane, holding: sample.holding });
    }
    intervals
}

/// To milliseconds.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: f64, busy: bool, holding: bool) -> Sample {
        let (tenant, lane, gpu) = ("serve".to_string(), "full".to_string(), String::new());
        Sample { at, tenant, busy, holding, lane, holds: 0, gpu, mps_client: None }
    }

    #[test]
    fn looks_that_are_alike_are_one_interval() {
        let samples = [
            sample(5.0, true, false),
            sample(5.06, true, false),
            sample(5.1, true, true),
            sample(5.15, false, false),
            sample(6.0, false, false),
        ];
        let found = intervals(samples.iter(), 5.0, 0.05);
        let times: Vec<_> = found.iter().map(|one| (one.from, one.to)).collect();
        assert_eq!(times, [(0.0, 0.1), (0.1, 0.15), (0.15, 0.2), (1.0, 1.05)], "what was not seen is not filled in");
        assert_eq!(found[0].lane.as_deref(), Some("full"));
        assert_eq!((found[1].holding, &found[2].lane), (true, &None));
    }
}
