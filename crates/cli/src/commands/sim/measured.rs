//! What `detshare bench` measured, beside what was simulated.

use crate::quantity;
use crate::table::{self, Align};
use detshare_sim::report::Report;
use serde::{Deserialize, Serialize};

/// What a run of the benchmark left, as far as it is of use here.
#[derive(Debug, Deserialize)]
pub(crate) struct Measured {
    arms: Vec<Arm>,
    settings: Option<MeasuredSettings>,
}

#[derive(Debug, Deserialize)]
struct MeasuredSettings {
    isolation: Option<String>,
}

impl Measured {
    /// What kept tenants apart, if it says so and it was one of both.
    pub(crate) fn isolation(&self) -> Option<&str> {
        let isolation = self.settings.as_ref()?.isolation.as_deref();
        isolation.filter(|name| ["mps", "process"].contains(name))
    }
}

#[derive(Debug, Deserialize)]
struct Arm {
    arm: String,
    aggressiveness: Option<f64>,
    programs: Vec<Program>,
}

#[derive(Debug, Deserialize)]
struct Program {
    program: String,
    p99_overhead: Option<Figure>,
    share: Option<Figure>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Figure {
    median: f64,
}

/// One figure of one tenant.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Compared {
    way: String,
    tenant: String,
    figure: &'static str,
    /// Against alone: 1.05 is 5 % more.
    measured: f64,
    simulated: f64,
    /// By how much what was simulated is more than what was measured: a part of that.
    error: f64,
}

/// What is in both: ways and tenants of the same names, at the same dial.
pub(crate) fn compare(reports: &[Report], measured: &Measured) -> Vec<Compared> {
    reports.iter().flat_map(|report| of_way(report, measured)).collect()
}

fn of_way(report: &Report, measured: &Measured) -> Vec<Compared> {
    let dial = f64::from(report.dial) / f64::from(detshare_policy::Dial::MOST);
    let is_it =
        |arm: &&Arm| arm.arm == report.way && arm.aggressiveness.is_none_or(|level| (level - dial).abs() < 1e-3);
    let Some(arm) = measured.arms.iter().find(is_it) else { return Vec::new() };
    let find = |name: &str| arm.programs.iter().find(|program| program.program == name);
    let one = |tenant: &str, figure, simulated: f64, measured: Option<f64>| {
        let measured = measured.filter(|measured| *measured > 0.0)?;
        let error = simulated / measured - 1.0;
        Some(Compared { way: report.way.to_string(), tenant: tenant.to_string(), figure, measured, simulated, error })
    };
    let latency = report.latency.iter().filter_map(|tenant| {
        let overhead = find(&tenant.name)?.p99_overhead.map(|figure| 1.0 + figure.median);
        let thousandths = 1_000_i64.saturating_add(tenant.p99_overhead).max(0).unsigned_abs();
        one(&tenant.name, "p99", quantity::approximate(thousandths) / 1e3, overhead)
    });
    let best_effort = report.best_effort.iter().filter_map(|tenant| {
        let share = find(&tenant.name)?.share.map(|figure| figure.median);
        one(&tenant.name, "share", quantity::approximate(tenant.share) / 1e3, share)
    });
    latency.chain(best_effort).collect()
}

/// For people.
pub(crate) fn table(compared: &[Compared]) -> String {
    const HEADINGS: [(&str, Align); 6] = [
        ("way", Align::Left),
        ("tenant", Align::Left),
        ("against alone", Align::Left),
        ("measured", Align::Right),
        ("simulated", Align::Right),
        ("error", Align::Right),
    ];
    let row = |one: &Compared| {
        [
            one.way.clone(),
            table::harmless(&one.tenant),
            one.figure.to_string(),
            format!("{:.3}", one.measured),
            format!("{:.3}", one.simulated),
            format!("{:+.1} %", one.error * 100.0),
        ]
    };
    table::columns(HEADINGS, &compared.iter().map(row).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use detshare_sim::trace::Arrivals;
    use detshare_sim::{Settings, Simulator, Way, synthetic};

    #[test]
    fn what_has_the_same_name_is_compared() {
        let arrivals = Arrivals::Periodic { period_ns: 6_000_000, jitter_ns: 0 };
        let trace = synthetic::small_beside_training(arrivals);
        let simulator = Simulator::new(&trace, Settings { run_ns: 200_000_000, ..Settings::default() }).unwrap();
        let reports = ["slo-aware", "mps"].map(|way| simulator.run(Way::named(way).unwrap()));
        let [serve, train] = [&reports[0].latency[0].name, &reports[0].best_effort[0].name];
        let measured = serde_json::json!({ "arms": [
            { "arm": "slo-aware", "aggressiveness": 0.75, "programs": [] },
            { "arm": "slo-aware", "aggressiveness": 0.25, "programs": [
                { "program": serve, "p99_overhead": { "median": 0.1, "min": 0.1 }, "share": null },
                { "program": train, "p99_overhead": null, "share": { "median": 0.5 } },
                { "program": "another", "p99_overhead": null, "share": { "median": 0.5 } },
            ] },
        ] });
        let measured: Measured = serde_json::from_value(measured).unwrap();
        let compared = compare(&reports, &measured);
        let names: Vec<_> = compared.iter().map(|one| (one.tenant.as_str(), one.figure, one.measured)).collect();
        assert_eq!(names, [(serve.as_str(), "p99", 1.1), (train.as_str(), "share", 0.5)]);
        assert!(compared.iter().all(|one| (one.simulated / one.measured - 1.0 - one.error).abs() < 1e-9));
        assert!(table(&compared).contains("slo-aware"));
    }
}
