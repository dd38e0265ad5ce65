//! What is reported: quantiles beside what is asked for.

use crate::{Arguments, Measured, Resume, settings, signed};
use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// What is asked of the 99th percentiles.
const ASKED_BUSY_NS: u64 = 2_000;
const ASKED_RESUME_NS: u64 = 20_000;
/// A held launch may return before the other tenant itself knows that its step is over, but not by more than this.
const SOONEST_NS: u64 = 50_000;

/// The orders in which the two come, as the record and the table call them.
const ORDERS: [(&str, &str); 2] =
    [("resume", "held tenant goes on"), ("resume_second", "the same, it ran when the other came")];

/// All of it as the record has it.
pub(crate) fn of(arguments: &Arguments, measured: Measured) -> Result<Value> {
    let Measured { mut on, busy, idle, first, second, own } = measured;
    on["command"] = std::env::args().collect::<Vec<_>>().join(" ").into();
    let mut report = json!({
        "on": on,
        "settings": settings(arguments),
        "busy": {
            "what": "right before cuLaunchKernel until the watcher sees busy",
            "asked_p99_ns": ASKED_BUSY_NS,
            "figures": quantiles(busy),
        },
        "idle": {
            "what": "right after cuStreamSynchronize until the watcher sees idle; below zero: before",
            "figures": quantiles(idle),
        },
    });
    report["own_wait"] = json!({
        "what": "since the end was known until a launch has returned that its program itself waited with; nothing holds it",
        "figures": quantiles(own),
    });
    for ((key, _), measured) in ORDERS.into_iter().zip([first, second]) {
        report[key] = resume(measured)?;
    }
    report["summary"] = summary(&report).into();
    Ok(report)
}

fn resume(measured: Resume) -> Result<Value> {
    let Resume { end_seen, hold_over_seen, end_known, called, returned, unheld, holds, held_ns } = measured;
    let launch = quantiles(unheld.into_iter().map(signed).collect());
    let own = launch["p50_ns"].as_i64().unwrap_or(0);
    // A launch that comes when the step is over is not held for it, nor one that has returned well before.
    let is_held = |((called, returned), ended): ((&u64, &u64), &u64)| called < ended && returned + SOONEST_NS > *ended;
    let is_held: Vec<bool> = called.iter().zip(&returned).zip(&end_known).map(is_held).collect();
    let missed = is_held.iter().filter(|held| !**held).count();
    ensure!(holds > 0, "no launch was held: the tenants do not see each other");
    ensure!(missed < called.len(), "none of {missed} launches was held until the other's step was over");
    let between = |ends: &[u64], afterwards: &[u64]| -> Vec<i64> {
        let rounds = ends.iter().zip(afterwards).zip(&is_held).filter(|(_, held)| **held);
        rounds.map(|((end, after), _)| signed(*after) - signed(*end)).collect()
    };
    let since = |ends: &[u64]| {
        let raw = between(ends, &returned);
        let net = raw.iter().map(|raw| raw - own).collect();
        json!({ "raw": quantiles(raw), "net": quantiles(net) })
    };
    let slowest = end_seen.as_deref().map(|ends| slowest(ends, &hold_over_seen, &called, &returned));
    let hold_over = end_seen.as_deref().map(|ends| quantiles(between(ends, &hold_over_seen)));
    Ok(json!({
        "what": "the end of the latency tenant's step until the hold is over, and until the held cuLaunchKernel has returned",
        "asked_p99_ns": ASKED_RESUME_NS,
        "judged": if end_seen.is_some() { "/hold_over" } else { "/since_end_known/net" },
        "hold_over": hold_over,
        "slowest": slowest,
        "since_end_seen": end_seen.as_deref().map(since),
        "since_end_known": since(&end_known),
        "unheld_launch": launch,
        "rounds": called.len(),
        "not_held_for_it": missed,
        "holds": holds,
        "held_ns": held_ns,
    }))
}

/// The rounds that took longest, to see what made them so: how long the launch was held until the end was seen, then until
/// the hold was over, then until it had returned.
fn slowest(ends: &[u64], hold_over: &[u64], called: &[u64], returned: &[u64]) -> Value {
    const SHOWN: usize = 60;
    let parts = ends.iter().zip(hold_over).zip(called.iter().zip(returned));
    let mut rounds: Vec<[i64; 3]> = parts
        .map(|((end, over), (called, returned))| [(called, end), (end, over), (over, returned)])
        .map(|parts| parts.map(|(from, to)| signed(*to) - signed(*from)))
        .collect();
    rounds.sort_unstable_by_key(|[_, over, launch]| core::cmp::Reverse(over + launch));
    rounds.truncate(SHOWN);
    json!({ "what": "held until the end was seen, then until the hold was over, then until the return, ns", "rounds": rounds })
}

fn quantiles(mut times: Vec<i64>) -> Value {
    times.sort_unstable();
    let part = |thousandths: usize| times.get((times.len() * thousandths).div_ceil(1000).max(1) - 1);
    json!({
        "rounds": times.len(),
        "p50_ns": part(500), "p99_ns": part(990), "p999_ns": part(999), "max_ns": times.last(),
    })
}

/// What is judged, by its name: the figures and the limit of their 99th percentile.
fn judged(report: &Value) -> Vec<(&'static str, &Value, u64)> {
    let mut judged = vec![("busy seen", &report["busy"]["figures"], ASKED_BUSY_NS)];
    for (key, what) in ORDERS {
        let by = report[key]["judged"].as_str().unwrap_or_default();
        judged.push((what, report[key].pointer(by).unwrap_or(&Value::Null), ASKED_RESUME_NS));
    }
    judged
}

pub(crate) fn above(report: &Value) -> Vec<String> {
    let too_slow = |(what, figures, asked): (&str, &Value, u64)| {
        let p99 = figures["p99_ns"].as_i64()?;
        (p99 > signed(asked)).then(|| format!("{what}: p99 {p99} of {asked} ns"))
    };
    judged(report).into_iter().filter_map(too_slow).collect()
}

fn summary(report: &Value) -> String {
    let one = |(what, figures, asked): (&str, &Value, u64)| {
        format!("{what}: p50 {}, p99 {} of {asked} ns", figures["p50_ns"], figures["p99_ns"])
    };
    judged(report).into_iter().map(one).collect::<Vec<_>>().join("; ")
}

pub(crate) fn print(report: &Value) {
    println!("{:<60}{:>9}{:>9}{:>9}{:>10}{:>9}", "ns", "p50", "p99", "p99.9", "max", "asked");
    let row = |what: &str, figures: &Value, asked: Option<u64>| {
        let [p50, p99, p999, max] = ["p50_ns", "p99_ns", "p999_ns", "max_ns"].map(|name| cell(&figures[name]));
        let asked = asked.map_or_else(String::new, |asked| asked.to_string());
        println!("{what:<60}{p50:>9}{p99:>9}{p999:>9}{max:>10}{asked:>9}");
    };
    row("busy seen, since right before cuLaunchKernel", &report["busy"]["figures"], Some(ASKED_BUSY_NS));
    row("idle seen, since right after cuStreamSynchronize", &report["idle"]["figures"], None);
    for (key, title) in ORDERS {
        let resume = &report[key];
        let (rounds, missed) = (&resume["rounds"], &resume["not_held_for_it"]);
        println!(
            "{title}: {rounds} launches, {missed} of them not held for it and left out; {} holds",
            resume["holds"]
        );
        let asked = |by: &str| (resume["judged"].as_str() == Some(by)).then_some(ASKED_RESUME_NS);
        row("  the hold is over, since the end was seen", &resume["hold_over"], asked("/hold_over"));
        for (since, what) in [("since_end_seen", "since the end was seen"), ("since_end_known", "since it was known")] {
            row(&format!("  {what}, raw"), &resume[since]["raw"], None);
            let net = format!("/{since}/net");
            row(&format!("  {what}, net of the launch itself"), &resume[since]["net"], asked(&net));
        }
        row("  the launch itself, not held", &resume["unheld_launch"], None);
    }
    row("nobody holds it, the program itself waits: since known, raw", &report["own_wait"]["figures"], None);
    let above = above(report);
    println!("above what is asked for: {}", if above.is_empty() { "nothing".into() } else { above.join("; ") });
}

fn cell(value: &Value) -> String {
    value.as_i64().map_or_else(|| "-".into(), |number| number.to_string())
}
