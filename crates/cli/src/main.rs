//! `detshare`: the command line.
//!
//! ```text
//! detshare run --class latency --p99 5ms -- python3 serve.py     become a tenant of the GPU
//! detshare run -- python3 train.py                               take what is left of it
//! detshare top                                                   watch them
//! detshare verify --runs 3 -- python3 train.py --steps 20        does it compute the same bits wherever it runs?
//! detshare bench small                                           what does sharing cost, and what does it give?
//! ```
//!
//! `run` becomes the program (`exec.rs`) once it is clear that the shim will be in it (`executable.rs`) and that a daemon
//! runs (`start.rs`). The others ask the daemon (`daemon.rs`) and print (`table.rs`, `quantity.rs`).
//!
//! A subcommand is one file in `commands`: its flags, what they resolve to, and what it does; a larger one has a folder
//! of its own name beside it. What several subcommands need stands beside `main.rs`: finding the parts of DetShare
//! (`part.rs`, `shim.rs`), running a program that ends when we are asked to (`program.rs`), and the exit codes that mean
//! the same everywhere (`exit.rs`).
//!
//! Standard output carries a subcommand's result and nothing else; progress and errors go to standard error. An
//! operation has its own error type, which says what happened and what to do next and knows its exit code; here they
//! are only printed. This crate does not speak CUDA and decides nothing about sharing: what it knows of the GPU, the shim
//! wrote down or the daemon says.

mod commands;
mod daemon;
mod exec;
mod executable;
mod exit;
mod flags;
mod part;
mod program;
mod quantity;
mod shim;
mod start;
mod table;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use detshare_api::usage;
use std::io::Write;
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(name = "detshare", version, about = "Several unmodified CUDA programs share one GPU", after_help = exit::HELP)]
struct Arguments {
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            return say(&error);
        }
    };
    match arguments.command.run(Arguments::command) {
        Ok(code) => code.into(),
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "detshare: {error}");
            error.exit_code().into()
        }
    }
}

/// Prints what the command line asked for without a subcommand, or what is wrong with it.
fn say(error: &clap::Error) -> ExitCode {
    // Nobody is left to tell if this cannot be printed.
    let _ = match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.print()
        }
        _ => writeln!(std::io::stderr(), "detshare: {}", in_one_line(error, std::env::args().nth(1).as_deref())),
    };
    if error.use_stderr() { exit::USAGE.into() } else { ExitCode::SUCCESS }
}

/// Names the help of the subcommand, if it is one.
fn in_one_line(error: &clap::Error, subcommand: Option<&str>) -> String {
    let subcommand = subcommand.filter(|name| Arguments::command().find_subcommand(name).is_some());
    let help = subcommand.map_or("detshare --help".to_string(), |name| format!("detshare {name} --help"));
    usage::in_one_line(&error.render().to_string(), &help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_errors_are_one_line_that_names_the_help() {
        let said = |line: &[&str]| {
            let error = Arguments::try_parse_from(["detshare"].iter().chain(line)).unwrap_err();
            in_one_line(&error, line.first().copied())
        };
        let class = said(&["run", "--class", "fast", "--", "a"]);
        assert_eq!(
            class,
            "invalid value 'fast' for '--class <CLASS>' [possible values: latency, best-effort]; see `detshare run --help`"
        );
        let size = said(&["run", "--mem", "0", "--", "a"]);
        assert!(size.starts_with("invalid value '0' for '--mem <SIZE>': a size is a whole number above 0"), "{size}");
        for (command, more) in [("run", &["--", "a"][..]), ("set", &["x"])] {
            for (time, reason) in [("-1s", "a duration is"), ("0ms", "it must be between 1us and 24 hours")] {
                let said = said(&[&[command, "--ttft", time], more].concat());
                let expected = format!("invalid value '{time}' for '--ttft <TIME>': {reason}");
                assert!(said.starts_with(&expected), "{said}");
            }
        }
        assert!(said(&["conjure"]).ends_with("; see `detshare --help`"));
        for said in [said(&["run"]), said(&["set", "x"]), said(&["policy", "a", "b"])] {
            assert!(!said.contains('\n') && said.contains("--help`"), "{said}");
        }
    }

    #[test]
    fn flags_do_not_contradict_each_other() {
        Arguments::command().debug_assert();
    }
}
