//! Two drivers on the same kernels, and what is behind each difference.

use crate::compare::{Comparison, compare};
use crate::difference::describe;
use crate::generate;
use crate::kernel::MODULE_HEADER;
use crate::shrink::{Shrunk, shrink};
use crate::worker::Overseer;
use crate::{Kernels, Two, run};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many kernels of a class are shrunk.
const SHRUNK_OF_A_CLASS: usize = 6;

/// Writes `right.answers`, `other.answers` and `differences.txt`; whether nothing is left unexplained.
pub(crate) fn duel(two: &Two, kernels: Kernels, out: &Path, shrink_s: u64) -> Result<bool> {
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let ask = |driver: &Path| run::run(driver, kernels.seed, kernels.count, kernels.jobs);
    let right = ask(&two.driver)?;
    right.write(&out.join("right.answers"))?;
    let other = ask(&two.other)?;
    other.write(&out.join("other.answers"))?;
    let comparison = compare(&right, &other)?;
    comparison.print();
    let until = Instant::now() + Duration::from_secs(shrink_s);
    let text = shrink_all(two, kernels.seed, &chosen(&comparison), until)?;
    let path = out.join("differences.txt");
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let total = comparison.total();
    println!(
        "{} equal, {} different, {} explained, {} not supported, {} failed",
        total.equal, total.different, total.explained, total.not_supported, total.failed
    );
    Ok(comparison.wrong.is_empty())
}

/// Some kernels of each class that differ, then those that differ for a reason.
fn chosen(comparison: &Comparison) -> Vec<u64> {
    let mut of_class: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for number in &comparison.different {
        of_class.entry(generate::class(*number)).or_default().push(*number);
    }
    // One of each class, and of each reason, before the second of any.
    let mut chosen = Vec::new();
    for groups in [of_class.values().collect::<Vec<_>>(), comparison.explained.values().collect()] {
        for turn in 0..SHRUNK_OF_A_CLASS {
            chosen.extend(groups.iter().filter_map(|numbers| numbers.get(turn)));
        }
    }
    chosen
}

/// These kernels, shrunk, as text.
pub(crate) fn shrunk(two: &Two, seed: u64, numbers: &[u64]) -> Result<String> {
    /// As long as it takes, as far as a person would wait.
    const PATIENCE: Duration = Duration::from_secs(3600);
    shrink_all(two, seed, numbers, Instant::now() + PATIENCE)
}

fn shrink_all(two: &Two, seed: u64, numbers: &[u64], until: Instant) -> Result<String> {
    let mut overseers = [&two.driver, &two.other].map(|driver| Overseer::new(driver, seed, true));
    let mut text = String::new();
    for number in numbers.iter().copied() {
        if Instant::now() > until {
            let _ = writeln!(text, "kernel {number}: no time left to shrink it");
            continue;
        }
        let kernel = generate::kernel(seed, number);
        match shrink(&mut overseers, &kernel, number, until)? {
            Some(shrunk) => report(&mut text, number, &shrunk),
            None => {
                let _ = writeln!(text, "kernel {number}: no difference when it runs alone");
            }
        }
    }
    Ok(text)
}

fn report(text: &mut String, number: u64, shrunk: &Shrunk) {
    let edits: Vec<_> = shrunk.edits.iter().map(ToString::to_string).collect();
    let kernel = &shrunk.kernel;
    let _ = writeln!(text, "==== kernel {number}, class {}, edits {}", kernel.class, edits.join(" "));
    if let [Some(right), Some(other)] = shrunk.answers.each_ref().map(|answered| answered.words.as_deref()) {
        text.push_str(&describe(kernel, ["right", "other"], [right, other]));
    }
    let _ = writeln!(text, "{MODULE_HEADER}{}", kernel.ptx());
}
