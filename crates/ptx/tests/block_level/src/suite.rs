//! The corpus: every launch of every file, and which kernels are refused.

use crate::case::{Case, versions};
use crate::judge::Report;
use crate::run;
use crate::subject::rewritten;
use crate::worker::{Outcome, Request};
use anyhow::{Context, Result};
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Judges all files; whether all is right.
pub(crate) fn run(driver: &Path, jobs: Option<usize>, cases: &[Case], out: Option<&Path>) -> Result<bool> {
    let started = Instant::now();
    let mut verdicts = Vec::new();
    let (mut passed, mut failed, mut refused) = (0, 0, 0);
    let mut tell = |name: String, wrong: Option<String>| {
        *if wrong.is_none() { &mut passed } else { &mut failed } += 1;
        let (verdict, detail) = wrong.map_or(("ok", String::new()), |why| ("failed", format!(": {why}")));
        println!("{name} ... {verdict}{detail}");
        verdicts.push(json!({ "name": name, "verdict": verdict, "detail": detail.trim_start_matches(": ") }));
    };
    let mut versions_made = [0, 0];
    let mut kernels = 0;
    for case in cases {
        let (_, rewritten) = rewritten(&case.text).with_context(|| case.path.display().to_string())?;
        let wrong = case.wrong_verdicts(&rewritten);
        tell(format!("{}: verdicts", case.name), (!wrong.is_empty()).then(|| wrong.join("; ")));
        kernels += rewritten.kernels.len();
        for kernel in &rewritten.kernels {
            refused += usize::from(versions(kernel).iter().all(|(_, version)| version.is_err()));
            for (count, (_, version)) in versions_made.iter_mut().zip(versions(kernel)) {
                *count += usize::from(version.is_ok());
            }
        }
    }
    let requests = cases.iter().map(|case| {
        let launches = 0..case.launches.len();
        launches.map(|launch| Request::Case { path: case.path.clone(), launch }).collect()
    });
    let outcomes = run::run(driver, requests.collect(), jobs)?;
    let mut total = Report::default();
    for (case, outcomes) in cases.iter().zip(outcomes) {
        for (launch, outcome) in case.launches.iter().zip(outcomes) {
            let wrong = match outcome {
                Outcome::Same(report) => {
                    total.ways += report.ways;
                    total.stops += report.stops;
                    total.sudden += report.sudden;
                    None
                }
                Outcome::Wrong(why) => Some(why),
                Outcome::NotLoaded(why) => Some(why),
            };
            tell(format!("{}: {}", case.name, launch.kernel), wrong);
        }
    }
    let [sliced, preemptible] = versions_made;
    println!(
        "{kernels} kernels in {} files: {sliced} sliced, {preemptible} preemptible, {refused} refused both",
        cases.len()
    );
    println!(
        "{} launches in parts, stopped {} times in the middle, {} of them by the host, in {:.1} s",
        total.ways,
        total.stops,
        total.sudden,
        started.elapsed().as_secs_f64()
    );
    let summary = format!("{passed} passed, {failed} failed, 0 skipped");
    println!("{summary}");
    if let Some(out) = out {
        let text = format!("{:#}\n", json!({ "summary": summary, "tests": verdicts }));
        std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(failed == 0)
}

/// Writes the verdicts into the files.
pub(crate) fn bless(cases: &[Case]) -> Result<()> {
    for case in cases {
        let (_, rewritten) = rewritten(&case.text).with_context(|| case.path.display().to_string())?;
        let text = case.with_verdicts(&rewritten);
        if text != case.text {
            std::fs::write(&case.path, text).with_context(|| format!("cannot write {}", case.path.display()))?;
            println!("{}", case.path.display());
        }
    }
    Ok(())
}

/// Prints what becomes of a module.
pub(crate) fn print(path: &Path) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let (_, rewritten) = rewritten(&text)?;
    for kernel in &rewritten.kernels {
        for (name, version) in versions(kernel) {
            match version {
                Ok(version) => println!("// {} {name}: {}, work at {}", kernel.name, version.name, version.work_offset),
                Err(refusal) => println!("// {} not {name}, {:?}: {refusal}", kernel.name, refusal.kind),
            }
        }
    }
    for borrowed in &rewritten.borrowed {
        println!("// {} borrows {}", borrowed.slot, borrowed.variable);
    }
    print!("{}", rewritten.source.unwrap_or_default());
    Ok(())
}
