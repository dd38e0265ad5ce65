//! Many kernels on one driver, by several processes.

use crate::answer::{Answer, Answers};
use crate::generate::{self, ROUND};
use crate::worker::{Answered, Overseer};
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

/// All kernels from 0 to `count`.
pub(crate) fn run(driver: &Path, seed: u64, count: u64, jobs: Option<usize>) -> Result<Answers> {
    let started = Instant::now();
    let batches = (0..count.div_ceil(ROUND)).map(|batch| (batch * ROUND, ROUND.min(count - batch * ROUND))).collect();
    let device = Overseer::new(driver, seed, false).device()?;
    let answered = run_batches(driver, seed, batches, jobs)?;
    let answers = answered.into_values().map(|answered| (answered.check, answered.answer)).collect();
    let seconds = started.elapsed().as_secs_f64();
    eprintln!("{count} kernels on {device} in {seconds:.1} s");
    Ok(Answers { seed, device, answers })
}

/// The answers to batches of kernels: each its first and how many.
pub(crate) fn run_batches(
    driver: &Path,
    seed: u64,
    mut batches: Vec<(u64, u64)>,
    jobs: Option<usize>,
) -> Result<BTreeMap<u64, Answered>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    batches.reverse();
    let left = Mutex::new(batches);
    let collected = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let work = || -> Result<()> {
            let mut overseer = Overseer::new(driver, seed, false);
            loop {
                let Some((first, count)) = left.lock().map_err(|_| anyhow!("a thread is lost"))?.pop() else {
                    return Ok(());
                };
                let answered = overseer.batch(first, count)?;
                collected.lock().map_err(|_| anyhow!("a thread is lost"))?.extend((first..).zip(answered));
            }
        };
        let threads: Vec<_> = (0..jobs.unwrap_or(cores)).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread is lost"))?)
    })?;
    collected.into_inner().map_err(|_| anyhow!("a thread is lost"))
}

/// How many kernels of each class were answered.
pub(crate) fn print_summary(answers: &Answers) {
    let mut classes: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (number, (_, answer)) in (0..).zip(&answers.answers) {
        let place = match answer {
            Answer::Hash(_) => 0,
            Answer::NotSupported(_) => 1,
            Answer::Failed(_) => 2,
        };
        for class in [generate::class(number), "all"] {
            classes.entry(class).or_default()[place] += 1;
        }
        if place > 0 {
            *reasons.entry(answer.to_string()).or_default() += 1;
        }
    }
    println!("{:22} {:>8} {:>13} {:>6}", "class", "answered", "not supported", "failed");
    for (class, [answered, not_supported, failed]) in &classes {
        println!("{class:22} {answered:8} {not_supported:13} {failed:6}");
    }
    for (reason, count) in reasons {
        println!("{reason} ({count} kernels)");
    }
}
