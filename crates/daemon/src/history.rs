//! What a tenant did lately: rates and quantiles over a sliding time, and its steps by width for the profiles.

use crate::profiles::{Steps, TenantProfile};
use detshare_board::{OBJECTIVES, StepTimes, TenantState, TenantView};
use std::collections::VecDeque;

/// Over so long rates and quantiles are taken.
const WINDOW_NS: u64 = 10_000_000_000;
/// Samples are so far apart: what is read lies within the window and one beat more.
const SAMPLE_NS: u64 = 1_000_000_000;
/// All samples of the window, and one before it.
const MOST_SAMPLES: usize = 12;

const SECOND_NS: f64 = 1e9;
/// The step's number starts again after so many.
const STEP_NUMBERS: u32 = 1 << 31;

#[derive(Debug)]
struct Sample {
    at: u64,
    step: u32,
    launched: u64,
    holds: u64,
    judged: [u64; OBJECTIVES],
    missed: [u64; OBJECTIVES],
    times: StepTimes,
}

impl Sample {
    fn new(at: u64, state: &TenantState, times: StepTimes) -> Self {
        let TenantState { step, launched, holds, judged, missed, .. } = *state;
        Self { at, step: step.number(), launched, holds, judged, missed, times }
    }
}

/// What a tenant does in a second, and how long its steps take.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Rates {
    /// Steps in a second.
    pub(crate) steps: f64,
    /// Launches in a second.
    pub(crate) launches: f64,
    /// Launches held in a second.
    pub(crate) holds: f64,
    /// The median step.
    pub(crate) p50_ns: Option<u64>,
    /// The 99th percentile.
    pub(crate) p99_ns: Option<u64>,
    /// For each objective, the part of the steps that missed it; nothing where none said anything about it.
    pub(crate) missed: [Option<f64>; OBJECTIVES],
}

/// A tenant's last seconds. Bounded, whatever the tenant does.
#[derive(Debug)]
pub(crate) struct History {
    samples: VecDeque<Sample>,
    /// Where the stretch on one width began that is not in `learnt` yet.
    stretch: (u32, StepTimes),
    learnt: TenantProfile,
}

impl History {
    /// Begins now.
    pub(crate) fn new(now: u64, state: &TenantState, view: &TenantView) -> Self {
        let times = view.step_times();
        let first = Sample::new(now, state, times.clone());
        Self { samples: VecDeque::from([first]), stretch: (state.lane_width, times), learnt: TenantProfile::default() }
    }

    /// Looks at the tenant: to be called on every beat.
    pub(crate) fn look(&mut self, now: u64, state: &TenantState, view: &TenantView) {
        if state.lane_width != self.stretch.0 {
            self.end_stretch(state.lane_width, view.step_times());
        }
        if self.samples.back().is_some_and(|last| now.saturating_sub(last.at) < SAMPLE_NS) {
            return;
        }
        self.samples.push_back(Sample::new(now, state, view.step_times()));
        // The first one stays the one from just before the window.
        while self.samples.len() > MOST_SAMPLES
            || self.samples.get(1).is_some_and(|second| now.saturating_sub(second.at) >= WINDOW_NS)
        {
            self.samples.pop_front();
        }
    }

    /// Up to now.
    pub(crate) fn rates(&self, now: u64, state: &TenantState, view: &TenantView) -> Rates {
        let Some(first) = self.samples.front() else { return Rates::default() };
        let times = view.step_times();
        let lately = times.since(&first.times);
        let times = if lately.count() > 0 { lately } else { times };
        let steps = state.step.number().wrapping_sub(first.step) % STEP_NUMBERS;
        let seconds = nearly(now.saturating_sub(first.at)) / SECOND_NS;
        let rate = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        Rates {
            steps: rate(f64::from(steps)),
            launches: rate(nearly(state.launched.saturating_sub(first.launched))),
            holds: rate(nearly(state.holds.saturating_sub(first.holds))),
            p50_ns: times.quantile(0.5),
            p99_ns: times.quantile(0.99),
            missed: core::array::from_fn(|which| {
                let judged = state.judged[which].saturating_sub(first.judged[which]);
                let missed = state.missed[which].saturating_sub(first.missed[which]).min(judged);
                (judged != 0).then(|| nearly(missed) / nearly(judged))
            }),
        }
    }

    /// Hands over what was learnt of its steps since the last time.
    pub(crate) fn learn(&mut self, view: &TenantView) -> TenantProfile {
        self.end_stretch(self.stretch.0, view.step_times());
        std::mem::take(&mut self.learnt)
    }

    fn end_stretch(&mut self, next_width: u32, times: StepTimes) {
        let (width, began) = std::mem::replace(&mut self.stretch, (next_width, times));
        let seen = self.stretch.1.since(&began);
        // A tenant that has not said its width has none.
        if let (1.., Some(p50_ns), Some(p99_ns)) = (width, seen.quantile(0.5), seen.quantile(0.99)) {
            self.learnt.add(width, Steps { count: seen.count(), p50_ns, p99_ns });
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "for rates, which nobody reads to the last digit")]
const fn nearly(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use detshare_board::{Class, Tenant};

    fn pair() -> (Tenant, TenantView) {
        let tenant = Tenant::create(Class::Latency).unwrap();
        let view = TenantView::map(tenant.file()).unwrap();
        (tenant, view)
    }

    fn step(tenant: &Tenant, ns: u64) {
        tenant.launch();
        tenant.note_step(ns);
        tenant.finish(tenant.launched(), 0);
    }

    /// Within the width of a bucket.
    fn is_near(found: Option<u64>, wanted: u64) -> bool {
        found.is_some_and(|found| found.abs_diff(wanted) <= wanted / 8)
    }

    #[test]
    fn rates_are_of_the_last_ten_seconds() {
        let (tenant, view) = pair();
        let mut history = History::new(0, &view.read(0), &view);
        for second in 1..=60_u64 {
            // One a second at first, ten a second later.
            for _ in 0..if second <= 30 { 1 } else { 10 } {
                step(&tenant, if second <= 30 { 1_000_000 } else { 4_000_000 });
            }
            let now = second * SAMPLE_NS;
            history.look(now, &view.read(now), &view);
            history.look(now + 1, &view.read(now), &view);
            assert!(history.samples.len() <= MOST_SAMPLES);
        }
        let now = 60 * SAMPLE_NS;
        let rates = history.rates(now, &view.read(now), &view);
        assert!((rates.steps - 10.0).abs() < 0.1 && (rates.launches - 10.0).abs() < 0.1, "{rates:?}");
        assert!(is_near(rates.p50_ns, 4_000_000), "{rates:?}");
        for second in 61..=80 {
            history.look(second * SAMPLE_NS, &view.read(0), &view);
        }
        let rates = history.rates(80 * SAMPLE_NS, &view.read(0), &view);
        assert!(rates.steps == 0.0 && is_near(rates.p99_ns, 4_000_000), "quantiles of its life: {rates:?}");
    }

    #[test]
    fn the_part_that_missed_an_objective_is_of_the_last_seconds() {
        let (tenant, view) = pair();
        tenant.note_objectives([Some(false), None, Some(false)], true);
        let history = History::new(0, &view.read(0), &view);
        assert_eq!(history.rates(0, &view.read(0), &view).missed, [None; 3], "nothing since it came");
        for token in 0..4 {
            tenant.note_objectives([Some(true), None, Some(token != 0)], false);
        }
        assert_eq!(history.rates(0, &view.read(0), &view).missed, [Some(0.0), None, Some(0.25)]);
    }

    #[test]
    fn a_young_tenant_has_rates_of_its_life() {
        let (tenant, view) = pair();
        let history = History::new(0, &view.read(0), &view);
        step(&tenant, 1_000);
        assert_eq!(history.rates(0, &view.read(0), &view).steps, 0.0);
        assert_eq!(history.rates(SAMPLE_NS / 2, &view.read(0), &view).steps, 2.0);
    }

    #[test]
    fn steps_are_learnt_by_width() {
        let (tenant, view) = pair();
        let mut history = History::new(0, &view.read(0), &view);
        step(&tenant, 9_000);
        tenant.set_lane(0, 132);
        history.look(1, &view.read(1), &view);
        (0..4).for_each(|_| step(&tenant, 1_000_000));
        tenant.set_lane(1, 16);
        history.look(2, &view.read(2), &view);
        step(&tenant, 8_000_000);
        let learnt = history.learn(&view);
        assert_eq!(learnt.widths.keys().copied().collect::<Vec<_>>(), [16, 132], "no width, no profile");
        assert_eq!((learnt.widths[&132].count, learnt.widths[&16].count), (4, 1));
        assert!(is_near(Some(learnt.widths[&16].p50_ns), 8_000_000));
        assert_eq!(history.learn(&view), TenantProfile::default(), "nothing is learnt twice");
    }
}
