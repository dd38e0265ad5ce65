//! `cargo xtask`: build, test, package and demo.
//!
//! The README's commands end here, and CI runs `cargo xtask test`. Nothing in this crate is part of
//! what a user installs.

mod bench;
mod block_level;
mod build;
#[cfg(test)]
mod counts;
mod daemon;
mod demo;
mod generate;
mod gpu_bundle;
mod header;
mod init_first;
mod noted;
mod package;
mod process;
mod ptxas;
mod pypi;
mod samples;
mod side_by_side;
mod softgpu;
mod tenants;
mod test;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, test, package and demo DetShare")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run small CUDA programs through the shim and as tenants, on whatever driver there is
    Demo {
        /// Build nothing; take what is in this folder, such as the GPU bundle's bin
        #[arg(long, value_name = "FOLDER")]
        built: Option<PathBuf>,
    },
    /// Build all that the tests need and run everything; what CI runs
    Test {
        /// Run this step alone, with what an earlier run has built
        #[arg(long, value_name = "NAME")]
        step: Option<String>,
    },
    /// Put all that a GPU machine without Rust needs into one folder
    GpuBundle {
        /// The folder; it is made if it is not there
        folder: PathBuf,
    },
    /// Build the library as it is shipped (glibc 2.28 and newer)
    Package,
    /// Measure what a call through the shim costs, on the stub driver, and the software GPU's speed
    Bench {
        /// Measure instead what the daemon and `detshare run` cost, and how survivors go on, on the software GPU (minutes)
        #[arg(long)]
        tenants: bool,
        /// Write the figures to bench/results
        #[arg(long)]
        record: bool,
    },
    /// Run the driver API's tests on the software GPU under valgrind (minutes)
    Leaks,
    /// Compare which products and sums ptxas joins with what the software GPU joins
    Joins,
    /// Compile the block level's versions of all PTX of the tests for sm_70, sm_80 and sm_90 (ptxas comes from PyPI)
    Ptxas,
    /// Compile the CUDA C++ samples (nvcc is fetched from PyPI) and run them on the software GPU
    Samples {
        /// Run nothing; take over the results that bench/gpu/samples.py wrote on a GPU machine
        #[arg(long, value_name = "FILE")]
        bless: Option<PathBuf>,
    },
    /// Make the notes that conformance tests are compared with anew, from what a GPU's driver gave
    H200Noted,
    /// Compile the corpus of kernels in parts anew (the compilers are fetched from PyPI)
    BlockLevelCorpus,
    /// Make the generated folders of crates/cuda, crates/cudart and crates/softgpu anew from CUDA's headers (fetched from PyPI)
    Generate {
        /// Change nothing; fail if the committed files are not what the generator yields
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Demo { built } => demo::demo(built),
        Task::Test { step: None } => test::test(),
        Task::Test { step: Some(name) } => test::step(&name),
        Task::GpuBundle { folder } => gpu_bundle::run(&folder),
        Task::Package => package::package(),
        Task::Bench { tenants: true, record } => tenants::bench(record),
        Task::Bench { tenants: false, record } => bench::bench(record),
        Task::Leaks => softgpu::leaks(&build::here()?),
        Task::Joins => ptxas::joins::are_as_we_say(&ptxas::joins::tools()?),
        Task::Ptxas => ptxas::accepts_versions(&ptxas::compilers()?),
        Task::Samples { bless: Some(results) } => samples::bless(&results),
        Task::Samples { bless: None } => {
            samples::check(&samples::compile(&samples::toolkit()?)?, &build::softgpu()?, softgpu::Way::Directly)
        }
        Task::H200Noted => noted::extract(),
        Task::BlockLevelCorpus => block_level::compile(),
        Task::Generate { check } => generate::run(check),
    }
}
