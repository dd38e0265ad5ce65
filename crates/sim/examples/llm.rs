//! What each way of sharing does to LLM servers, at several loads: `cargo run --release -p detshare-sim --example llm`.
//!
//! Loads and objectives are as in `detshare bench`: a load is the part of the time in which servers are busy alone, which several
//! divide; objectives are one and a half times p99 alone for the first token, one and a quarter for the time between tokens.

use detshare_sim::report::Report;
use detshare_sim::synthetic::{Llm, Served, Traffic, alone, at_load, requests, served};
use detshare_sim::trace::Trace;
use detshare_sim::{Error, Settings, Simulator, Way};

const SECOND: u64 = 1_000_000_000;
const RUN_NS: u64 = 300 * SECOND;
const MOST_REQUESTS: usize = 20_000;
const WAYS: [&str; 6] = ["alone", "time-slicing", "mps", "throughput", "slo-aware", "tpot-first"];

struct Scenario {
    name: &'static str,
    servers: &'static [(&'static str, Llm, Traffic)],
    with_training: bool,
}

const SCENARIOS: [Scenario; 3] = [
    Scenario { name: "llm-train", servers: &[("chat", Llm::EightB, Traffic::Conversation)], with_training: true },
    Scenario { name: "llm-llm", servers: &TWO, with_training: false },
    Scenario { name: "llm-llm-train", servers: &TWO, with_training: true },
];
const TWO: [(&str, Llm, Traffic); 2] = [("chat", Llm::OneB, Traffic::Conversation), ("code", Llm::OneB, Traffic::Code)];

fn main() -> Result<(), Error> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let is_asked = |name: &str| asked.is_empty() || asked.iter().any(|one| one == name);
    for scenario in SCENARIOS.iter().filter(|scenario| is_asked(scenario.name)) {
        for load in [30, 50, 70, 90] {
            show(scenario, load)?;
        }
    }
    Ok(())
}

fn show(scenario: &Scenario, load: u64) -> Result<(), Error> {
    println!("\n{} at {load} %", scenario.name);
    println!(
        "{:>13} {:>6} {:>21} {:>21} {:>8} {:>9} {:>9} {:>9} {:>6}",
        "", "", "TTFT p50 / p99 ms", "TPOT p50 / p99 ms", "mean s", "TTFT late", "TPOT late", "goodput/s", "share"
    );
    let trace = sent(scenario, load)?;
    let settings = Settings { run_ns: RUN_NS, ..Settings::default() };
    let simulator = Simulator::new(&trace, settings)?;
    let reports: Vec<Report> = WAYS.iter().filter_map(|name| Way::named(name)).map(|way| simulator.run(way)).collect();
    reports.iter().for_each(lines);
    let mean_ns = |report: &Report| -> u64 {
        report.latency.iter().filter_map(|one| one.service.as_ref()).map(|service| service.mean_latency_ns).sum()
    };
    let below = 1_000 - (mean_ns(&reports[0]) * 1_000 / mean_ns(&reports[1]).max(1)).min(1_000);
    println!(
        "no mean latency is further below that of time-slicing than that of alone, by {}.{} %",
        below / 10,
        below % 10
    );
    Ok(())
}

/// The scenario with requests at a load in hundredths, and objectives from each server alone.
fn sent(scenario: &Scenario, load: u64) -> Result<Trace, Error> {
    let count = u64::try_from(scenario.servers.len()).unwrap_or(1);
    let mut all = Vec::new();
    for (seed, (name, model, traffic)) in (1..).zip(scenario.servers) {
        let requests = requests(*traffic, SECOND, MOST_REQUESTS, seed);
        let server = Served { name, model: *model, requests, objectives: [None; 2] };
        let server = at_load(&server, load * 10 / count, RUN_NS)?;
        let service = alone(&server, RUN_NS)?;
        let objectives = [Some(service.ttft.p99_ns * 3 / 2), Some(service.tpot.p99_ns * 5 / 4)];
        println!(
            "{name}: {} requests a second, busy {} alone",
            decimals(service.requests * SECOND / (RUN_NS / 1_000)),
            decimals(service.busy)
        );
        all.push(Served { objectives, ..server });
    }
    Ok(served(&all, scenario.with_training))
}

fn lines(report: &Report) {
    let share = report.best_effort.first().map_or_else(String::new, |one| decimals(one.share));
    for latency in &report.latency {
        let Some(service) = &latency.service else { continue };
        let both = |one: u64, other: u64| format!("{} / {}", decimals(one / 1_000), decimals(other / 1_000));
        println!(
            "{:>13} {:>6} {:>21} {:>21} {:>8} {:>9} {:>9} {:>9} {:>6}",
            report.way,
            latency.name,
            both(service.ttft.p50_ns, service.ttft.p99_ns),
            both(service.tpot.p50_ns, service.tpot.p99_ns),
            decimals(service.mean_latency_ns / 1_000_000),
            service.ttft_violations,
            service.tpot_violations,
            decimals(service.goodput_per_1000_s),
            share
        );
    }
}

/// Of thousandths.
fn decimals(thousandths: u64) -> String {
    format!("{}.{:02}", thousandths / 1_000, thousandths % 1_000 / 10)
}
