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
mod run;
mod stage;
mod subject;
mod suite;
mod worker;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

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
}

fn main() -> Result<ExitCode> {
    let good = match Arguments::parse().command {
        Verb::Run { on, out, folder, filters } => {
            suite::run(&on.driver, on.jobs, &case::cases(&folder, &filters)?, out.as_deref())?
        }
        Verb::Bless { folder, filters } => suite::bless(&case::cases(&folder, &filters)?).map(|()| true)?,
        Verb::Fuzz { on, seed, first, count } => fuzz::fuzz(&on.driver, seed, first..first + count, on.jobs)?,
        Verb::Mutants { on, folder, filters } => mutants::run(&on.driver, on.jobs, &case::cases(&folder, &filters)?)?,
        Verb::Rewrite { file } => suite::print(&file).map(|()| true)?,
        Verb::Show { seed, first, count } => {
            print!("{}", fuzz::module(seed, first, count).0);
            true
        }
        Verb::Worker { driver } => worker::work(&driver).map(|()| true)?,
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
