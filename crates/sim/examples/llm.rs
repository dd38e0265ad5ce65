//! What each way of sharing does to LLM servers with assumed step times, at several loads:
//! `cargo run --release -p detshare-sim --example llm`.
//!
//! Loads and objectives are as in `detshare bench`: a load is a part of what servers can do, which several divide; objectives are
//! one and a half times p99 alone for the first token, one and a quarter for the time between tokens.

use detshare_sim::report::{Report, Service};
use detshare_sim::synthetic::{Llm, Served, Traffic, requests, served};
use detshare_sim::trace::{Request, Trace};
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
        for load in [30, 50, 70] {
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
    let trace = at_load(scenario, load)?;
    let settings = Settings { run_ns: RUN_NS, ..Settings::default() };
    let simulator = Simulator::new(&trace, settings)?;
    for way in WAYS.iter().filter_map(|name| Way::named(name)) {
        lines(&simulator.run(way));
    }
    Ok(())
}

/// The scenario with requests at a load, and objectives from each server alone.
fn at_load(scenario: &Scenario, load: u64) -> Result<Trace, Error> {
    let count = u64::try_from(scenario.servers.len()).unwrap_or(1);
    let mut all = Vec::new();
    for (number, (name, model, traffic)) in scenario.servers.iter().enumerate() {
        let seed = u64::try_from(number).unwrap_or(0) + 1;
        let saturated = alone(name, *model, requests(*traffic, 1_000, 2_000, seed))?;
        // Of 2,000 requests at once all are answered well within the time.
        let mean_ns = saturated.0 * 100 * count / load;
        let sent = requests(*traffic, mean_ns, MOST_REQUESTS, seed);
        let (_, service) = alone(name, *model, sent.clone())?;
        let objectives = [Some(service.ttft.p99_ns * 3 / 2), Some(service.tpot.p99_ns * 5 / 4)];
        all.push(Served { name, model: *model, requests: sent, objectives });
    }
    Ok(served(&all, scenario.with_training))
}

/// What a server takes for a request if it never rests, and what its users get.
fn alone(name: &'static str, model: Llm, requests: Vec<Request>) -> Result<(u64, Service), Error> {
    let trace = served(&[Served { name, model, requests, objectives: [None; 2] }], false);
    let settings = Settings { run_ns: RUN_NS, ..Settings::default() };
    let report = Simulator::new(&trace, settings)?.run(Way::Alone);
    let latency = &report.latency[0];
    let each_ns = latency.times.max_ns / latency.requests.max(1);
    Ok((each_ns, latency.service.clone().expect("a server has users")))
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
