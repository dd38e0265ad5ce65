//! What each way of sharing does to the synthetic traces and to those that were recorded on an H200, and how fast that is
//! simulated: `cargo run --release -p detshare-sim --example ways`, with `-- --out FILE` also as JSON. It fails if a way is simulated at
//! fewer than [`LEAST_PER_SECOND`] launches a second.

use detshare_policy::{Dial, POLICIES};
use detshare_sim::record::together;
use detshare_sim::report::Report;
use detshare_sim::trace::Trace;
use detshare_sim::{Settings, Simulator, Way, synthetic};
use serde_json::{Value, json};
use std::error::Error;
use std::process::ExitCode;

const SECOND: u64 = 1_000_000_000;

/// What makes hours of traffic a matter of seconds: a training launches some ten thousand kernels a second.
const LEAST_PER_SECOND: u64 = 1_000_000;

/// Programs that were recorded, as they ran beside each other in the benchmark.
const RECORDED: [&[&str]; 8] = [
    &["small-serve", "train"],
    &["7b-serve", "train"],
    &["small-poisson-serve", "train"],
    &["7b-poisson-serve", "train"],
    &["small-eager-serve", "train"],
    &["small-serve", "two-latency-7b", "train"],
    &["train", "train"],
    &["two-half-train", "two-half-train"],
];

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut traces = vec![
        ("small step, one client".to_string(), synthetic::small_beside_training(synthetic::one_client())),
        ("small step, every 6 ms".to_string(), synthetic::small_beside_training(synthetic::every(6_000_000))),
        ("7B-like step, one client".to_string(), synthetic::decode_beside_training(synthetic::one_client())),
        ("7B-like step, every 10 ms".to_string(), synthetic::decode_beside_training(synthetic::every(10_000_000))),
        ("small step, at random".to_string(), synthetic::small_beside_training(synthetic::at_random(6_000_000))),
    ];
    for programs in RECORDED {
        traces.push((format!("recorded: {}", programs.join(", ")), recorded(programs)?));
    }
    let mut rows = Vec::new();
    for (name, trace) in &traces {
        println!("\n{name}");
        println!(
            "{:>20} {:>26} {:>7} {:>9} {:>6} {:>12}",
            "", "p50 / p90 / p99 / max ms", "p99 +%", "steps/s", "share", "launches/s"
        );
        let ways = ["alone", "time-slicing", "mps"].into_iter().chain(POLICIES.iter().map(|policy| policy.name));
        for way in ways {
            rows.extend(row(name, trace, way, Dial::USUAL)?);
        }
        for thousandths in [0, 100, 250, 500, 750, 900, 1_000] {
            rows.extend(row(name, trace, "slo-aware", Dial::new(thousandths))?);
        }
    }
    let least = rows.iter().filter_map(|row| row["launches_per_s"].as_u64()).min().unwrap_or(0);
    println!("\nat least {least} launches a second, asked are {LEAST_PER_SECOND}");
    let mut arguments = std::env::args().skip(1);
    if let (Some("--out"), Some(file)) = (arguments.next().as_deref(), arguments.next()) {
        let what = "launches simulated in a second of one core's time, for each way of sharing: 30 s of \
                    simulated time of the synthetic traces, and of those in crates/sim/tests/traces";
        let report = json!({ "what": what, "asked": LEAST_PER_SECOND, "least": least, "rows": rows });
        std::fs::write(file, format!("{report:#}\n"))?;
    }
    if least < LEAST_PER_SECOND {
        let slow = rows.iter().filter(|row| row["launches_per_s"].as_u64().is_none_or(|rate| rate < LEAST_PER_SECOND));
        slow.for_each(|row| eprintln!("too slow: {row}"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Programs of the same name are told apart by their place.
fn recorded(programs: &[&str]) -> Result<Trace, Box<dyn Error>> {
    let mut traces = Vec::new();
    for (place, program) in programs.iter().enumerate() {
        let path = format!("{}/tests/traces/h200-{program}.json", env!("CARGO_MANIFEST_DIR"));
        let mut trace = Trace::from_json(&std::fs::read_to_string(path)?)?;
        trace.tenants.iter_mut().for_each(|tenant| tenant.name += &place.to_string());
        traces.push(trace);
    }
    Ok(together(traces).ok_or("records of several GPUs")?)
}

fn row(name: &str, trace: &Trace, way: &str, dial: Dial) -> Result<Option<Value>, Box<dyn Error>> {
    let settings = Settings { run_ns: 30 * SECOND, dial, ..Settings::default() };
    let simulator = Simulator::new(trace, settings)?;
    let Some(way) = Way::named(way) else { return Ok(None) };
    let (began, mut launches) = (cpu_ns()?, 0);
    // The kernel counts it up from tick to tick: what is over before the next took nothing.
    let (report, took_ns) = loop {
        let report = simulator.run(way);
        launches += u128::from(report.launches);
        let took_ns = cpu_ns()?.saturating_sub(began);
        if took_ns >= LEAST_NS {
            break (report, u128::from(took_ns));
        }
    };
    let launches_per_s = u64::try_from(launches * u128::from(SECOND) / took_ns)?;
    println!("{}", line(&report, launches_per_s));
    let dial = report.dial;
    Ok(Some(json!({ "trace": name, "way": report.way, "dial": dial, "launches_per_s": launches_per_s })))
}

/// What is measured for at least.
const LEAST_NS: u64 = 100_000_000;

/// How long this thread has had a core: what else runs on the machine is not the simulator's fault.
fn cpu_ns() -> Result<u64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(stat.split_whitespace().next().ok_or("an empty schedstat")?.parse()?)
}

/// Of the first tenant of each class.
fn line(report: &Report, launches_per_s: u64) -> String {
    let none = || "-".to_string();
    let (times, added) = report.latency.first().map_or((none(), none()), |latency| {
        let times = &latency.times;
        let times = [times.p50_ns, times.p90_ns, times.p99_ns, times.max_ns].map(|ns| thousandths(ns / 1_000));
        (times.join(" / "), format!("{}.{}", latency.p99_overhead / 10, latency.p99_overhead.abs() % 10))
    });
    let (steps, share) = report
        .best_effort
        .first()
        .map_or((none(), none()), |training| (thousandths(training.steps_per_1000_s), thousandths(training.share)));
    format!("{:>14} {:>5} {times:>26} {added:>7} {steps:>9} {share:>6} {launches_per_s:>12}", report.way, report.dial)
}

fn thousandths(number: u64) -> String {
    format!("{}.{:02}", number / 1_000, number % 1_000 / 10)
}
