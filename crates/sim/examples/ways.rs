//! What each way of sharing does to the synthetic traces, and how fast that is simulated:
//! `cargo run --release -p detshare-sim --example ways`.

use detshare_policy::{Dial, POLICIES};
use detshare_sim::report::Report;
use detshare_sim::trace::Trace;
use detshare_sim::{Settings, Simulator, Way, synthetic};
use std::time::Instant;

const SECOND: u64 = 1_000_000_000;

fn main() -> Result<(), detshare_sim::Error> {
    let traces = [
        ("small step, one client", synthetic::small_beside_training(synthetic::one_client())),
        ("small step, every 6 ms", synthetic::small_beside_training(synthetic::every(6_000_000))),
        ("7B-like step, one client", synthetic::decode_beside_training(synthetic::one_client())),
        ("7B-like step, every 10 ms", synthetic::decode_beside_training(synthetic::every(10_000_000))),
        ("small step, at random", synthetic::small_beside_training(synthetic::at_random(6_000_000))),
    ];
    for (name, trace) in &traces {
        println!("\n{name}");
        println!(
            "{:>20} {:>26} {:>7} {:>9} {:>6} {:>12}",
            "", "p50 / p90 / p99 / max ms", "p99 +%", "steps/s", "share", "launches/s"
        );
        for name in ["alone", "time-slicing", "mps"].into_iter().chain(POLICIES.iter().map(|policy| policy.name)) {
            show(trace, name, Dial::USUAL)?;
        }
        for thousandths in [0, 100, 250, 500, 750, 900, 1_000] {
            show(trace, "slo-aware", Dial::new(thousandths))?;
        }
    }
    Ok(())
}

fn show(trace: &Trace, way: &str, dial: Dial) -> Result<(), detshare_sim::Error> {
    let settings = Settings { run_ns: 30 * SECOND, dial, ..Settings::default() };
    let simulator = Simulator::new(trace, settings)?;
    let began = Instant::now();
    let Some(way) = Way::named(way) else { return Ok(()) };
    let report = simulator.run(way);
    let took_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    println!("{}", line(&report, took_ns));
    Ok(())
}

fn line(report: &Report, took_ns: u64) -> String {
    let (latency, training) = (&report.latency[0], &report.best_effort[0]);
    let times = &latency.times;
    let times = [times.p50_ns, times.p90_ns, times.p99_ns, times.max_ns].map(|ns| thousandths(ns / 1_000));
    let launches = u128::from(report.launches) * u128::from(SECOND) / u128::from(took_ns);
    format!(
        "{:>14} {:>5} {:>26} {:>7} {:>9} {:>6} {:>12}",
        report.way,
        report.dial,
        times.join(" / "),
        format!("{}.{}", latency.p99_overhead / 10, latency.p99_overhead % 10),
        thousandths(training.steps_per_1000_s),
        thousandths(training.share),
        launches
    )
}

fn thousandths(number: u64) -> String {
    format!("{}.{:02}", number / 1_000, number % 1_000 / 10)
}
