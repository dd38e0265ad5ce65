//! The corpus: every launch of every file, and which kernels are refused.

use crate::case::{Case, versions};
use crate::judge::Report;
use crate::overseer::Means;
use crate::run;
use crate::subject::rewritten;
use crate::tally::Tally;
use crate::worker::{Outcome, Request};
use anyhow::{Context, Result};
use std::path::Path;

/// Judges all files; whether all is right.
pub(crate) fn run(means: &Means, cases: &[Case], out: Option<&Path>) -> Result<bool> {
    let tally = Tally::new();
    let (mut kernels, mut refused, mut versions_made) = (0, 0, [0, 0]);
    for case in cases {
        let (_, rewritten) = rewritten(&case.text).with_context(|| case.path.display().to_string())?;
        let wrong = case.wrong_verdicts(&rewritten).join("; ");
        tally.tell(&format!("{}: verdicts", case.name), (!wrong.is_empty()).then_some(&wrong));
        kernels += rewritten.kernels.len();
        for kernel in &rewritten.kernels {
            refused += usize::from(versions(kernel).iter().all(|(_, version)| version.is_err()));
            for (count, (_, version)) in versions_made.iter_mut().zip(versions(kernel)) {
                *count += usize::from(version.is_ok());
            }
        }
    }
    let mut cases: Vec<&Case> = cases.iter().collect();
    // What takes longest comes first, so that nobody waits for it in the end.
    cases.sort_by_key(|case| core::cmp::Reverse(case.text.len()));
    let groups = cases.iter().map(|case| {
        let launches = 0..case.launches.len();
        launches.map(|launch| Request::Case { path: case.path.clone(), launch }).collect::<Vec<_>>()
    });
    let groups: Vec<_> = groups.collect();
    let expected = cases.len() + groups.iter().map(Vec::len).sum::<usize>();
    let tell = |case: usize, launch: usize, outcome: &Outcome| {
        let case: &Case = cases[case];
        tally.tell(&format!("{}: {}", case.name, case.launches[launch].kernel), outcome.wrong());
    };
    let outcomes = run::run(means, &groups, tell, |_| false)?;
    let mut sum = Report::default();
    for outcome in outcomes.iter().flatten() {
        if let Outcome::Same(report) = outcome {
            sum.add(report);
        }
    }
    let [sliced, preemptible] = versions_made;
    println!(
        "{kernels} kernels in {} files: {sliced} sliced, {preemptible} preemptible, {refused} refused both",
        cases.len()
    );
    println!(
        "{} launches in parts, stopped {} times in the middle, {} of them by the host, in {:.1} s",
        sum.ways,
        sum.stops,
        sum.sudden,
        tally.seconds()
    );
    let total = tally.total(expected);
    println!("{}", total.summary);
    total.write(out)?;
    Ok(total.is_good)
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
