//! `detshare`: the command line.
//!
//! What is here now is `verify`, which shows for a program of yours what DetShare promises of all: moved from one set
//! of SMs to another at every launch, it computes the same bits.
//!
//! ```text
//! detshare verify --runs 3 -- python3 train.py --steps 20
//! ```
//!
//! A subcommand is one file in `commands`: its flags, what they resolve to, and what it does; a larger one has a folder
//! of its own name beside it. What several subcommands need stands beside `main.rs`: finding the shim (`shim.rs`),
//! running a program that ends when we are asked to (`program.rs`), and the exit codes that mean the same everywhere
//! (`exit.rs`).
//!
//! Standard output carries a subcommand's result and nothing else; progress and errors go to standard error. An
//! operation has its own error type, which says what happened and what to do next and knows its exit code; here they
//! are only printed. This crate does not speak CUDA: what it knows of the GPU, the shim wrote down.

mod commands;
mod exit;
mod program;
mod shim;

use clap::Parser;
use std::io::Write;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "detshare", version, about = "Several unmodified CUDA programs share one GPU")]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Nobody is left to tell if this cannot be printed.
            let _ = error.print();
            return if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS };
        }
    };
    match arguments.command.run() {
        Ok(code) => code.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "detshare: {error}");
            error.exit_code().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn flags_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }
}
