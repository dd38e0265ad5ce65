//! Generated kernels, judged as the corpus is.

use crate::case::versions;
use crate::launch::{Argument, Launch};
use crate::run::run;
use crate::subject::rewritten;
use crate::worker::{Outcome, Request};
use anyhow::Result;
use detshare_kernel_fuzz::{MODULE_HEADER, many_blocks};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

/// How many kernels stand in a module.
const BATCH: u64 = 36;

/// A module with the kernels from that one on, and how to launch each.
pub(crate) fn module(seed: u64, first: u64, count: u64) -> (String, Vec<Launch>) {
    let mut text = MODULE_HEADER.to_string();
    let mut launches = Vec::new();
    for number in first..first + count {
        let kernel = many_blocks(seed, number);
        text.push_str(&kernel.ptx);
        let input = kernel.input.into_iter().flat_map(u32::to_le_bytes).collect();
        let arguments = vec![Argument::Memory(vec![0; kernel.output_words * 4]), Argument::Memory(input)];
        launches.push(Launch { kernel: kernel.name, grid: kernel.grid, block: kernel.block, shared: 0, arguments });
    }
    (text, launches)
}

/// What became of the kernels of a class.
#[derive(Default)]
struct Counts {
    sliced: u32,
    preemptible: u32,
    same: u32,
    wrong: u32,
    stops: u32,
}

/// Judges so many kernels of a seed; whether all is right.
pub(crate) fn fuzz(driver: &Path, seed: u64, numbers: std::ops::Range<u64>, jobs: Option<usize>) -> Result<bool> {
    let started = Instant::now();
    let mut groups = Vec::new();
    let mut classes: BTreeMap<&'static str, Counts> = BTreeMap::new();
    let mut refusals: BTreeMap<(String, &'static str), u32> = BTreeMap::new();
    let mut first = numbers.start;
    while first < numbers.end {
        let count = BATCH.min(numbers.end - first);
        let (text, _) = module(seed, first, count);
        let (_, result) = rewritten(&text)?;
        for (number, kernel) in (first..).zip(&result.kernels) {
            let counts = classes.entry(many_blocks(seed, number).class).or_default();
            counts.sliced += u32::from(kernel.sliced.is_ok());
            counts.preemptible += u32::from(kernel.preemptible.is_ok());
            for (version, refusal) in versions(kernel) {
                if let Err(refusal) = refusal {
                    *refusals.entry((format!("{:?}", refusal.kind), version)).or_default() += 1;
                }
            }
        }
        let count_kernels = usize::try_from(count)?;
        groups.push((0..count_kernels).map(|index| Request::Generated { seed, first, count, index }).collect());
        first += count;
    }
    let outcomes = run(driver, groups, jobs)?;
    let mut failed = 0;
    for (number, outcome) in numbers.clone().zip(outcomes.into_iter().flatten()) {
        let class = many_blocks(seed, number).class;
        let counts = classes.entry(class).or_default();
        match outcome {
            Outcome::Same(report) => {
                counts.same += 1;
                counts.stops += report.stops;
            }
            Outcome::Wrong(why) | Outcome::NotLoaded(why) => {
                counts.wrong += 1;
                failed += 1;
                println!("kernel {number} of seed {seed} ({class}) ... failed: {why}");
            }
        }
    }
    println!("{:20} {:>6} {:>11} {:>6} {:>6} {:>6}", "class", "sliced", "preemptible", "same", "wrong", "stops");
    for (class, Counts { sliced, preemptible, same, wrong, stops }) in &classes {
        println!("{class:20} {sliced:6} {preemptible:11} {same:6} {wrong:6} {stops:6}");
    }
    for ((kind, version), count) in refusals {
        println!("not {version}, {kind}: {count} kernels");
    }
    let (count, seconds) = (numbers.end - numbers.start, started.elapsed().as_secs_f64());
    println!("{count} kernels in {seconds:.1} s: {} passed, {failed} failed", count - failed);
    Ok(failed == 0)
}
