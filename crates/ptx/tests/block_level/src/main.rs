//! Kernels launched whole and in parts, on any driver library, and compared byte for byte.
//!
//! The judge of `detshare_ptx::block_level`. Each file of a folder is a module with launches ([`case`]); each launch is
//! run as it was written, in slices, and by persistent blocks that are stopped in the middle and launched again
//! ([`judge`]). A copy that counts shows that every block ran exactly once ([`counting`]).
//!
//! ```text
//! block_level run --driver LIBCUDA cases barrier_     the corpus, or the files of such names
//! block_level bless cases                             makes the verdicts that there are those of the files
//! block_level fuzz --driver LIBCUDA --count 20000     generated kernels
//! block_level mutants --driver LIBCUDA cases NAME     whether the suite notices what is broken on purpose
//! block_level rewrite FILE                            the module of versions
//! ```
//!
//! Verdicts are told as they come. Nothing waits for ever: a launch that does not end is named and another worker goes on
//! (`--patience`), and what was judged by a given time is what is told and written then (`--limit`).

#[macro_use]
#[path = "../../../../softgpu/tests/instructions/src/call.rs"]
mod call;
mod case;
mod counting;
mod fuzz;
mod gpu;
mod judge;
mod launch;
mod mutants;
mod mutation;
mod overseer;
mod run;
mod stage;
mod subject;
mod suite;
mod tally;
mod worker;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use detshare_test_child::patience;
use overseer::Means;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(about = "Kernels launched whole and in parts, on any driver library, and compared")]
struct Arguments {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Judge the files of a folder
    Run {
        #[command(flatten)]
        on: On,
        /// Where to write the verdicts as JSON
        #[arg(long)]
        out: Option<PathBuf>,
        /// The folder with the files
        folder: PathBuf,
        /// Take the files whose name contains one of these
        filters: Vec<String>,
    },
    /// Make the verdicts that there are the expectation of the files
    Bless {
        /// The folder with the files
        folder: PathBuf,
        /// Take the files whose name contains one of these
        filters: Vec<String>,
    },
    /// Judge generated kernels
    Fuzz {
        #[command(flatten)]
        on: On,
        /// What decides the kernels
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The number of the first
        #[arg(long, default_value_t = 0)]
        first: u64,
        /// How many
        #[arg(long, default_value_t = 20_000)]
        count: u64,
        /// Where to write what is wrong, and the figures, as JSON
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Break the versions on purpose, one thing at a time, and say what the suite does not notice
    Mutants {
        #[command(flatten)]
        on: On,
        /// The folder with the files
        folder: PathBuf,
        /// Take the files whose name contains one of these
        #[arg(required = true)]
        filters: Vec<String>,
    },
    /// Print the module of versions, and what was refused
    Rewrite {
        /// A file with PTX
        file: PathBuf,
    },
    /// Print a module of generated kernels
    Show {
        /// What decides the kernels
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// The number of the first
        first: u64,
        /// How many
        #[arg(default_value_t = 1)]
        count: u64,
    },
    /// Run launches for another process
    #[command(hide = true)]
    Worker {
        #[arg(long)]
        driver: PathBuf,
        #[arg(long)]
        patience: u32,
    },
}

/// Where, and by how many.
#[derive(Args)]
struct On {
    /// The driver library to ask
    #[arg(long)]
    driver: PathBuf,
    /// How many processes run kernels at once; as many as there are cores unless told
    #[arg(long)]
    jobs: Option<usize>,
    /// Seconds that one launch may take, with loading its module; then it is named, and another process goes on
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    patience: u32,
    /// Seconds after which it ends with what was judged so far
    #[arg(long)]
    limit: Option<u64>,
}

impl On {
    fn means(self) -> Means {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // A file of that name in this folder is meant before one that the system finds.
        let driver = self.driver.canonicalize().unwrap_or(self.driver);
        let end = self.limit.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
        Means { driver, jobs: self.jobs.unwrap_or(cores).max(1), patience_s: patience(self.patience), end }
    }
}

fn main() -> Result<ExitCode> {
    let good = match Arguments::parse().command {
        Verb::Run { on, out, folder, filters } => {
            suite::run(&on.means(), &case::cases(&folder, &filters)?, out.as_deref())?
        }
        Verb::Bless { folder, filters } => suite::bless(&case::cases(&folder, &filters)?).map(|()| true)?,
        Verb::Fuzz { on, seed, first, count, out } => {
            fuzz::fuzz(&on.means(), seed, first..first.saturating_add(count), out.as_deref())?
        }
        Verb::Mutants { on, folder, filters } => mutants::run(&on.means(), &case::cases(&folder, &filters)?)?,
        Verb::Rewrite { file } => suite::print(&file).map(|()| true)?,
        Verb::Show { seed, first, count } => {
            print!("{}", fuzz::generated(seed, first, count).text);
            true
        }
        Verb::Worker { driver, patience } => worker::work(&driver, patience).map(|()| true)?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
