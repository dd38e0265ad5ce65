//! `cargo xtask`: build, test, package and demo.
//!
//! The README's commands end here, and CI runs `cargo xtask test`. Nothing in this crate is part of
//! what a user installs.

mod generate;
mod header;
mod process;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Build, test, package and demo DetShare")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Make crates/cuda/src/generated anew from CUDA's headers (fetched from PyPI)
    Generate {
        /// Change nothing; fail if the committed files are not what the generator yields
        #[arg(long)]
        check: bool,
    },
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Generate { check } => generate::run(check),
    }
}
