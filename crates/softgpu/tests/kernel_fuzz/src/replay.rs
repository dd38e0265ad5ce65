//! A corpus: a GPU's answers, kept, and asked again of the software GPU.

use crate::answer::{Answer, Answers};
use crate::compare::Comparison;
use crate::generate::ROUND;
use crate::run::run_batches;
use anyhow::{Result, ensure};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args)]
pub(crate) struct Arguments {
    /// The driver library to ask
    #[arg(long)]
    driver: PathBuf,
    /// Every kernel, not one round of classes out of five
    #[arg(long)]
    all: bool,
    /// How many processes run kernels at once; as many as there are cores unless told
    #[arg(long)]
    jobs: Option<usize>,
    /// Fail where more kernels than that have an instruction that the driver lacks
    #[arg(long, default_value_t = usize::MAX)]
    not_supported_at_most: usize,
    /// Fail where more kernels than that differ for a reason that is known
    #[arg(long, default_value_t = usize::MAX)]
    explained_at_most: usize,
    /// The corpus
    corpus: PathBuf,
}

/// Without `--all` one round out of so many is asked.
const SAMPLE: u64 = 5;

/// Whether the driver's answers are the corpus's.
pub(crate) fn replay(arguments: &Arguments) -> Result<bool> {
    let started = Instant::now();
    let corpus = Answers::read(&arguments.corpus)?;
    let count = corpus.answers.len() as u64;
    let step = if arguments.all { 1 } else { SAMPLE };
    let rounds = (0..count.div_ceil(ROUND)).filter(|round| round % step == 0);
    let batches = rounds.map(|round| (round * ROUND, ROUND.min(count - round * ROUND))).collect();
    let answered = run_batches(&arguments.driver, corpus.seed, batches, arguments.jobs)?;
    let mut comparison = Comparison::with(&corpus);
    for (number, answered) in &answered {
        let right = &corpus.answers[usize::try_from(*number)?];
        if !is_answered(right) {
            continue;
        }
        comparison.add(*number, right, &(answered.check, answered.answer.clone()));
    }
    comparison.print();
    let (total, seconds) = (comparison.total(), started.elapsed().as_secs_f64());
    println!(
        "{} of {count} kernels replayed in {seconds:.1} s against {}: {} equal, {} different, {} explained, \
         {} not supported, {} failed, {} stale",
        answered.len(),
        corpus.device,
        total.equal,
        total.different,
        total.explained,
        total.not_supported,
        total.failed,
        total.stale
    );
    ensure!(
        total.not_supported <= arguments.not_supported_at_most,
        "{} kernels are not supported, at most {} may be",
        total.not_supported,
        arguments.not_supported_at_most
    );
    ensure!(
        total.explained <= arguments.explained_at_most,
        "{} kernels differ for a reason, at most {} may",
        total.explained,
        arguments.explained_at_most
    );
    Ok(comparison.wrong.is_empty())
}

/// Makes a corpus of answers. Kernels that the GPU did not answer are not replayed; there should be none.
pub(crate) fn make(answers: &Path, out: &Path) -> Result<()> {
    let answers = Answers::read(answers)?;
    for (number, (_, answer)) in answers.answers.iter().enumerate().filter(|(_, it)| !is_answered(it)) {
        println!("kernel {number} has no answer: {answer}");
    }
    answers.write(out)?;
    let answered = answers.answers.iter().filter(|it| is_answered(it)).count();
    println!("{answered} answers of {} for {} kernels", answers.device, answers.answers.len());
    Ok(())
}

fn is_answered((_, answer): &(u32, Answer)) -> bool {
    matches!(answer, Answer::Hash(_))
}
