//! CUDA programs as a user of the public crate `cudarc` writes them: kernels in CUDA C++, compiled by NVRTC while
//! the program runs, memory, streams, events and graphs through the crate's safe types.
//!
//! They know nothing of DetShare. Whatever the loader finds as `libcuda.so` or `libcuda.so.1` is their driver, and
//! NVRTC is what it finds as `libnvrtc.so` or `libnvrtc.so.12`. Each program opens the device anew, computes
//! something and compares it with the same computation on the CPU: bit for bit, except for functions such as `sinf`
//! that no standard defines to the last bit.
//!
//! `cudarc_programs --list`, then `cudarc_programs histogram streams::`

#[macro_use]
mod gpu;

mod arithmetic;
mod errors;
mod graphs;
mod integers;
mod language;
mod memory;
mod reduction;
mod streams;

use anyhow::Result;
use clap::Parser;
use std::panic::catch_unwind;
use std::process::ExitCode;

/// A name and what to run.
type Program = (&'static str, fn() -> Result<()>);

/// One table for each file, the plainest programs first.
const TABLES: [&[Program]; 8] = [
    arithmetic::PROGRAMS,
    integers::PROGRAMS,
    reduction::PROGRAMS,
    memory::PROGRAMS,
    language::PROGRAMS,
    streams::PROGRAMS,
    graphs::PROGRAMS,
    errors::PROGRAMS,
];

#[derive(Parser)]
#[command(about = "CUDA programs written with cudarc, each compared with the CPU")]
struct Arguments {
    /// Only print the programs' names
    #[arg(long)]
    list: bool,
    /// Run the programs whose name contains one of these
    filters: Vec<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let wanted = |name: &str| arguments.filters.is_empty() || arguments.filters.iter().any(|part| name.contains(part));
    let programs = TABLES.iter().flat_map(|table| table.iter()).filter(|(name, _)| wanted(name));
    if arguments.list {
        programs.for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, program) in programs {
        match run(*program) {
            Ok(()) => {
                passed += 1;
                println!("{name} ... ok");
            }
            Err(why) => {
                failed += 1;
                println!("{name} ... failed: {why}");
            }
        }
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why it failed, on one line. A panic is a failure as well: cudarc panics where a library lacks a function.
fn run(program: fn() -> Result<()>) -> Result<(), String> {
    match catch_unwind(program) {
        Ok(outcome) => outcome.map_err(|why| format!("{why:#}").replace('\n', " ")),
        Err(_) => Err("it panicked, see standard error".to_owned()),
    }
}
