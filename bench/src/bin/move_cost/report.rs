//! The table, and which figures are above what is asked for.

use anyhow::{Context, Result};
use detshare_bench::figures::Times;
use serde_json::{Value, json};

/// What the lanes may take of the device's memory.
pub(crate) const ASKED_MIB: f64 = 150.0;
/// What the shim may add to a program's start.
const ASKED_START_MS: f64 = 100.0;

pub(crate) fn start_up(bare: &[Value], shim: &[Value]) -> Result<Value> {
    let times = |from: &[Value], key: &str| -> Result<Times> {
        let each = from.iter().map(|one| one[key].as_f64()).collect::<Option<_>>();
        Ok(Times::new(each.with_context(|| format!("no {key}"))?))
    };
    let pair = |key: &str| -> Result<Value> {
        let (bare, shim) = (times(bare, key)?, times(shim, key)?);
        let added = shim.median() - bare.median();
        Ok(json!({ "bare_ms": bare.json(), "shim_ms": shim.json(), "added_ms": added }))
    };
    let from_init = pair("from_init_ms")?;
    // The shim opens the driver at the first call, and a program without it before.
    let from_open = pair("from_open_ms")?;
    let added = from_init["added_ms"].clone();
    Ok(json!({ "asked_ms": ASKED_START_MS, "ms": added, "from_init": from_init, "from_open": from_open }))
}

/// Every figure with its name, what it is and what is asked.
fn judged(report: &Value) -> impl Iterator<Item = (&str, f64, f64)> {
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let list = |key: &str| report[key].as_array().into_iter().flatten();
    let launches =
        list("launches").map(move |it| (it["case"].as_str().unwrap_or(""), number(&it["ns"]), number(&it["asked_ns"])));
    let memory =
        list("memory").map(move |it| (it["case"].as_str().unwrap_or(""), number(&it["mib"]), number(&it["asked_mib"])));
    let start = &report["start_up"];
    launches.chain(memory).chain([("start-up", number(&start["ms"]), number(&start["asked_ms"]))])
}

/// The names of the figures that are above what is asked for.
pub(crate) fn above(report: &Value) -> Vec<&str> {
    judged(report).filter(|(_, is, asked)| is > asked || is.is_nan()).map(|(name, ..)| name).collect()
}

/// One line for those who run many checks.
pub(crate) fn summary(report: &Value) -> String {
    let each = judged(report).map(|(name, is, asked)| format!("{name}: {is:+.0} of {asked:.0}"));
    each.collect::<Vec<_>>().join("; ")
}

pub(crate) fn print(report: &Value) {
    for (key, title) in
        [("in_bursts", "ns a launch, in bursts that the GPU keeps up with"), ("in_a_row", "ns a launch, all in a row")]
    {
        println!("\n{title}");
        println!(
            "  {:42} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>7}   p90: {:>9} {:>9} {:>9}",
            "", "bare", "by hand", "shim", "added", "driver's", "ours", "asked", "bare", "by hand", "shim"
        );
        for case in report["launches"].as_array().into_iter().flatten() {
            let figures = &case["figures"][key];
            let asked = if key == "in_bursts" { cell(&case["asked_ns"]) } else { String::new() };
            println!(
                "  {:42} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {asked:>7}        {:>9} {:>9} {:>9}",
                case["case"].as_str().unwrap_or(""),
                cell(&figures["bare_ns"]["median"]),
                cell(&figures["by_hand_ns"]["median"]),
                cell(&figures["shim_ns"]["median"]),
                cell(&figures["added_ns"]),
                cell(&figures["of_which_driver_ns"]),
                cell(&figures["of_which_ours_ns"]),
                cell(&figures["bare_ns"]["p90"]),
                cell(&figures["by_hand_ns"]["p90"]),
                cell(&figures["shim_ns"]["p90"]),
            );
        }
    }
    let start = &report["start_up"];
    println!("\nstart-up, ms: asked at most {}", cell(&start["asked_ms"]));
    for (key, title) in
        [("from_init", "from cuInit to the end of the first kernel"), ("from_open", "from opening the library")]
    {
        let [bare, shim] = ["bare_ms", "shim_ms"].map(|side| start[key][side]["median"].as_f64().unwrap_or(f64::NAN));
        println!("  {title:42} bare {bare:.1}, shim {shim:.1}: {:+.1}", shim - bare);
    }
    println!("\ndevice memory, MiB: asked at most {ASKED_MIB}");
    for case in report["memory"].as_array().into_iter().flatten() {
        println!("  {:42} {:.1}", case["case"].as_str().unwrap_or(""), case["mib"].as_f64().unwrap_or(f64::NAN));
    }
    let above = above(report);
    println!("\nabove what is asked for: {}", if above.is_empty() { "nothing".into() } else { above.join("; ") });
}

fn cell(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".into(), |number| format!("{number:.0}"))
}
