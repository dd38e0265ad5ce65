//! Generated kernels, judged as the corpus is.

use crate::case::versions;
use crate::launch::{Argument, Launch};
use crate::overseer::Means;
use crate::run::run;
use crate::subject::rewritten;
use crate::tally::Tally;
use crate::worker::{Outcome, Request};
use anyhow::{Result, anyhow};
use detshare_kernel_fuzz::{MODULE_HEADER, many_blocks};
use detshare_ptx::block_level::Kernel;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

/// How many kernels stand in a module.
const BATCH: u64 = 36;

/// A module of generated kernels.
pub(crate) struct Generated {
    pub(crate) text: String,
    pub(crate) launches: Vec<Launch>,
    /// Each kernel's class.
    classes: Vec<&'static str>,
}

/// A module with the kernels from that one on, and how to launch each.
pub(crate) fn generated(seed: u64, first: u64, count: u64) -> Generated {
    let mut generated = Generated { text: MODULE_HEADER.to_string(), launches: Vec::new(), classes: Vec::new() };
    for number in first..first + count {
        let kernel = many_blocks(seed, number);
        generated.text.push_str(&kernel.ptx);
        generated.classes.push(kernel.class);
        let input = kernel.input.into_iter().flat_map(u32::to_le_bytes).collect();
        let arguments = vec![Argument::Memory(vec![0; kernel.output_words * 4]), Argument::Memory(input)];
        let (grid, block) = (kernel.grid, kernel.block);
        generated.launches.push(Launch { kernel: kernel.name, grid, block, shared: 0, arguments });
    }
    generated
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

/// Each kernel's class, and what becomes of it.
type Foretold = Vec<(&'static str, Kernel)>;

/// What becomes of the kernels of each batch, first and count, as far as there is time. By as many threads as there are to be workers.
fn foretell(means: &Means, seed: u64, batches: &[(u64, u64)]) -> Result<Vec<Foretold>> {
    let part = batches.len().div_ceil(means.jobs).max(1);
    let foretell = |batches: &[(u64, u64)]| -> Result<Vec<Foretold>> {
        let there_is_time = batches.iter().take_while(|_| !means.is_over());
        let each = there_is_time.map(|(first, count)| {
            let module = generated(seed, *first, *count);
            Ok(module.classes.into_iter().zip(rewritten(&module.text)?.1.kernels).collect())
        });
        each.collect()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = batches.chunks(part).map(|part| scope.spawn(move || foretell(part))).collect();
        let mut all = Vec::new();
        for thread in threads {
            let some = thread.join().map_err(|_| anyhow!("a thread is lost"))??;
            let is_whole = some.len() == part;
            all.extend(some);
            // What comes behind a gap would have another number.
            if !is_whole {
                break;
            }
        }
        Ok(all)
    })
}

/// Judges so many kernels of a seed; whether all is right.
pub(crate) fn fuzz(means: &Means, seed: u64, numbers: Range<u64>, out: Option<&Path>) -> Result<bool> {
    let tally = Tally::new();
    let batches: Vec<(u64, u64)> =
        numbers.clone().step_by(usize::try_from(BATCH)?).map(|first| (first, BATCH.min(numbers.end - first))).collect();
    let mut groups: Vec<Vec<Request>> = Vec::new();
    let mut classes: BTreeMap<&'static str, Counts> = BTreeMap::new();
    let mut refusals: BTreeMap<(String, &'static str), u32> = BTreeMap::new();
    let mut class_of = Vec::new();
    for (&(first, count), foretold) in batches.iter().zip(foretell(means, seed, &batches)?) {
        class_of.extend(foretold.iter().map(|(class, _)| *class));
        for (class, kernel) in foretold {
            let counts = classes.entry(class).or_default();
            counts.sliced += u32::from(kernel.sliced.is_ok());
            counts.preemptible += u32::from(kernel.preemptible.is_ok());
            for (version, refusal) in versions(&kernel) {
                if let Err(refusal) = refusal {
                    *refusals.entry((format!("{:?}", refusal.kind), version)).or_default() += 1;
                }
            }
        }
        let count_kernels = usize::try_from(count)?;
        groups.push((0..count_kernels).map(|index| Request::Generated { seed, first, count, index }).collect());
    }
    let class_of = |number: usize| class_of.get(number).copied().unwrap_or_default();
    let tell = |number: usize, outcome: &Outcome| {
        let number_in_all = numbers.start + number as u64;
        tally.count(&format!("kernel {number_in_all} of seed {seed} ({})", class_of(number)), outcome.wrong());
    };
    let batch = usize::try_from(BATCH)?;
    // One kernel that is not taken takes the others of its module with it: those are judged alone.
    let is_counted = |outcome: &Outcome| !matches!(outcome, Outcome::NotLoaded(_));
    let told = |group: usize, index: usize, outcome: &Outcome| {
        if is_counted(outcome) {
            tell(group * batch + index, outcome);
        }
    };
    let outcomes = run(means, &groups, told, |_| false)?;
    let outcomes = outcomes.into_iter().enumerate().flat_map(|(group, outcomes)| {
        outcomes.into_iter().enumerate().map(move |(index, outcome)| (group * batch + index, outcome))
    });
    let (mut judged, not_loaded): (Vec<_>, Vec<_>) = outcomes.partition(|(_, outcome)| is_counted(outcome));
    let alone: Vec<usize> = not_loaded.into_iter().map(|(number, _)| number).collect();
    let one = |number: &usize| Request::Generated { seed, first: numbers.start + *number as u64, count: 1, index: 0 };
    let groups: Vec<Vec<Request>> = alone.iter().map(|number| vec![one(number)]).collect();
    let told = |group: usize, _: usize, outcome: &Outcome| tell(alone[group], outcome);
    let outcomes = run(means, &groups, told, |_| false)?;
    judged.extend(
        alone.iter().zip(outcomes).filter_map(|(number, outcome)| Some((*number, outcome.into_iter().next()?))),
    );
    for (number, outcome) in judged {
        let counts = classes.entry(class_of(number)).or_default();
        match outcome {
            Outcome::Same(report) => {
                counts.same += 1;
                counts.stops += report.stops;
            }
            Outcome::Wrong(_) | Outcome::NotLoaded(_) => counts.wrong += 1,
        }
    }
    println!("{:20} {:>6} {:>11} {:>6} {:>6} {:>6}", "class", "sliced", "preemptible", "same", "wrong", "stops");
    for (class, Counts { sliced, preemptible, same, wrong, stops }) in &classes {
        println!("{class:20} {sliced:6} {preemptible:11} {same:6} {wrong:6} {stops:6}");
    }
    for ((kind, version), count) in refusals {
        println!("not {version}, {kind}: {count} kernels");
    }
    let seconds = tally.seconds();
    let total = tally.total(usize::try_from(numbers.end - numbers.start)?);
    println!("{} kernels in {seconds:.1} s: {}", numbers.end - numbers.start, total.summary);
    total.write(out)?;
    Ok(total.is_good)
}
