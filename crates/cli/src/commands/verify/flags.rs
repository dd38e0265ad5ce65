//! The flags of `detshare verify`, and what they resolve to.

use crate::table::Format;
use clap::{Args, value_parser};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "\
Exit codes:
  0    identical
  1    different
  2    the program differs from itself in two plain runs
  3    the program failed by itself, or did not use CUDA through the shim
  64   bad usage
  66   the program was not found, or is not executable
  69   no shim library was found
  71   the system did not start or watch a process
  74   a file could not be read or written
  128+N  ended by signal N, and the program with it";

/// Check that a program computes the same bits while it is moved from SMs to SMs
///
/// Runs the program plainly, and then with the lane (the set of SMs) changed at random at every launch. Compares every
/// byte that left the GPU, standard output and the exit code; standard error is not compared. What a process copies
/// after the program itself has ended is not waited for. Standard input, unless it is a terminal, is read once and
/// given to every run.
#[derive(Debug, Args)]
#[command(override_usage = "detshare verify [OPTIONS] -- PROGRAM [ARGS]...", after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Seed of the first moved run; the next take the numbers after it
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// How many moved runs to compare with the plain one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    runs: u32,

    /// Run the program once before, for what it keeps from run to run, such as compiled kernels
    #[arg(long)]
    warm_up: bool,

    /// End a run that takes longer than this, such as 90s or 5m
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
    timeout: Option<Duration>,

    /// Keep what the runs wrote in this folder, which must be new or empty
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,

    /// How to print the result
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    format: Format,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What the flags resolve to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// One for each moved run.
    pub(crate) seeds: Vec<u64>,
    /// Whether a run comes before them that is not looked at.
    pub(crate) warm_up: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) keep: Option<PathBuf>,
    pub(crate) format: Format,
    /// The program and its arguments.
    pub(crate) program: Vec<OsString>,
}

impl From<Arguments> for Settings {
    fn from(arguments: Arguments) -> Self {
        let Arguments { seed, runs, warm_up, timeout, keep, format, program } = arguments;
        let seeds = (0..u64::from(runs)).map(|run| seed.wrapping_add(run)).collect();
        Self { seeds, warm_up, timeout, keep, format, program }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory, Parser};

    #[derive(Debug, Parser)]
    struct Verify {
        #[command(flatten)]
        arguments: Arguments,
    }

    /// What the flags, separated by spaces, resolve to.
    fn resolved(line: &str) -> Result<Settings, clap::error::ErrorKind> {
        let parsed = Verify::try_parse_from(std::iter::once("verify").chain(line.split_whitespace()));
        parsed.map(|verify| verify.arguments.into()).map_err(|error| error.kind())
    }

    #[test]
    fn without_flags() {
        let expected = Settings {
            seeds: vec![1],
            warm_up: false,
            timeout: None,
            keep: None,
            format: Format::Table,
            program: vec!["a".into()],
        };
        assert_eq!(resolved("-- a"), Ok(expected));
    }

    #[test]
    fn seed_and_runs_number_the_moved_runs() {
        assert_eq!(resolved("--seed 7 --runs 3 -- a").unwrap().seeds, [7, 8, 9]);
        assert_eq!(resolved(&format!("--seed {} --runs 2 -- a", u64::MAX)).unwrap().seeds, [u64::MAX, 0]);
        assert_eq!(resolved("--runs 0 -- a"), Err(clap::error::ErrorKind::ValueValidation));
    }

    #[test]
    fn timeout_has_a_unit() {
        assert_eq!(resolved("--timeout 1m30s -- a").unwrap().timeout, Some(Duration::from_secs(90)));
        assert_eq!(resolved("--timeout soon -- a"), Err(clap::error::ErrorKind::ValueValidation));
    }

    #[test]
    fn keep_names_a_folder() {
        assert_eq!(resolved("--keep some/folder -- a").unwrap().keep, Some("some/folder".into()));
    }

    #[test]
    fn format_is_one_that_all_commands_have() {
        assert_eq!(resolved("--format json -- a").unwrap().format, Format::Json);
        assert_eq!(resolved("--format csv -- a").unwrap().format, Format::Csv);
        assert_eq!(resolved("--format xml -- a"), Err(clap::error::ErrorKind::InvalidValue));
    }

    #[test]
    fn the_programs_arguments_are_its_own() {
        assert_eq!(resolved("-- a --seed 5 -- b").unwrap().program, ["a", "--seed", "5", "--", "b"]);
        assert_eq!(resolved("--seed 5"), Err(clap::error::ErrorKind::MissingRequiredArgument));
        assert!(resolved("a").is_err());
    }

    #[test]
    fn help_names_every_exit_code() {
        use super::super::report::Verdict;
        use crate::exit;
        let help = Verify::command().render_long_help().to_string();
        let verdicts = Verdict::ALL.map(|verdict| verdict.exit_code());
        let errors = [exit::USAGE, exit::NO_PROGRAM, exit::UNAVAILABLE, exit::SYSTEM, exit::FILES];
        for code in verdicts.into_iter().chain(errors) {
            assert!(help.lines().any(|line| line.trim_start().starts_with(&format!("{code} "))), "{code}: {help}");
        }
    }
}
