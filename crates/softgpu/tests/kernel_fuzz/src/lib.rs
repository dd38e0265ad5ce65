//! Generated kernels, asked of any driver library and compared: a GPU's answers are right by definition.
//!
//! [`generate`] makes PTX from a seed, over all that compilers emit for `sm_90`, such that what a kernel writes is a
//! function of its inputs alone: no races, no order that matters, every rounding written out; approximations are classes
//! of their own. [`worker`] processes run kernels, a module of some dozen at a time. [`answer`] is a hash for each.
//!
//! ```text
//! kernel_fuzz run --driver LIBCUDA --seed 1 --count 20000 --out answers   what a driver answers
//! kernel_fuzz compare gpu.answers soft.answers                            class by class
//! kernel_fuzz show 123                                                    the kernel itself
//! kernel_fuzz duel --driver LIBCUDA --other SOFTGPU --out DIR             both, and the smallest kernels that differ
//! kernel_fuzz shrink --driver LIBCUDA --other SOFTGPU 123                 the same for one kernel
//! kernel_fuzz corpus answers --out corpus                                 a GPU's answers as a corpus
//! kernel_fuzz replay --driver SOFTGPU corpus                              what CI does
//! ```
//!
//! `--driver reference` is no driver but a second opinion for integers and IEEE floating point ([`reference`]), made
//! without anything of the software GPU.
//!
//! What is left out: textures and surfaces, `wgmma`, tensor maps, and what depends on time or on the device.

#[macro_use]
#[path = "../../instructions/src/call.rs"]
mod call;
mod answer;
mod compare;
mod difference;
mod duel;
mod generate;
mod gpu;
mod kernel;
mod many_blocks;
mod random;
mod reference;
mod replay;
mod run;
mod shrink;
mod standard_error;
mod tables;
mod template;
mod values;
mod worker;

pub use kernel::MODULE_HEADER;
pub use many_blocks::{Generated, many_blocks};
pub use random::{Random, hash_text};

use answer::Answers;
use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "Generated PTX kernels, asked of any driver library and compared")]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Write down what a driver answers
    Run {
        /// The driver library to ask
        #[arg(long)]
        driver: PathBuf,
        #[command(flatten)]
        kernels: Kernels,
        /// Where to write the answers
        #[arg(long)]
        out: PathBuf,
    },
    /// Compare two files of answers; the first is right
    Compare { right: PathBuf, other: PathBuf },
    /// Print kernels
    Show {
        /// What decides the kernels
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Their numbers
        #[arg(required = true)]
        numbers: Vec<u64>,
    },
    /// Ask two drivers, compare, and shrink what differs
    Duel {
        #[command(flatten)]
        two: Two,
        #[command(flatten)]
        kernels: Kernels,
        /// The folder for both drivers' answers and the differences
        #[arg(long)]
        out: PathBuf,
        /// How long to go on shrinking, in seconds
        #[arg(long, default_value_t = 40)]
        shrink_s: u64,
    },
    /// Print the smallest kernel on which two drivers differ, made from one on which they do
    Shrink {
        #[command(flatten)]
        two: Two,
        /// What decides the kernels
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The kernels' numbers
        #[arg(required = true)]
        numbers: Vec<u64>,
    },
    /// Make a corpus of a GPU's answers
    Corpus {
        /// The answers
        answers: PathBuf,
        /// Where to write the corpus
        #[arg(long)]
        out: PathBuf,
    },
    /// Ask a driver the kernels of a corpus; fails where its answers are others
    Replay(replay::Arguments),
    /// Run kernels for another process
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        driver: PathBuf,
        #[arg(long)]
        seed: u64,
        #[arg(long)]
        whole: bool,
    },
}

/// Which kernels, and how.
#[derive(Args, Clone, Copy)]
struct Kernels {
    /// What decides the kernels
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// How many processes run kernels at once; as many as there are cores unless told
    #[arg(long)]
    jobs: Option<usize>,
}

/// Two drivers.
#[derive(Args)]
struct Two {
    /// The driver library that is right
    #[arg(long)]
    driver: PathBuf,
    /// The one to compare with it
    #[arg(long)]
    other: PathBuf,
}

/// The program: what its command line asks for.
///
/// # Errors
/// A driver, a file or a process that it needs is not there.
pub fn main() -> Result<ExitCode> {
    match Arguments::parse().command {
        Verb::Run { driver, kernels, out } => {
            let answers = run::run(&driver, kernels.seed, kernels.count, kernels.jobs)?;
            answers.write(&out)?;
            run::print_summary(&answers);
        }
        Verb::Compare { right, other } => {
            let comparison = compare::compare(&Answers::read(&right)?, &Answers::read(&other)?)?;
            comparison.print();
            return Ok(verdict(comparison.wrong.is_empty()));
        }
        Verb::Show { seed, numbers } => {
            print!("{MODULE_HEADER}");
            numbers.into_iter().for_each(|number| println!("{}", generate::kernel(seed, number).ptx()));
        }
        Verb::Duel { two, kernels, out, shrink_s } => return duel::duel(&two, kernels, &out, shrink_s).map(verdict),
        Verb::Shrink { two, seed, numbers } => print!("{}", duel::shrunk(&two, seed, &numbers)?),
        Verb::Corpus { answers, out } => replay::make(&answers, &out)?,
        Verb::Replay(arguments) => return replay::replay(&arguments).map(verdict),
        Verb::Worker { driver, seed, whole } => worker::work(&driver, seed, whole)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
