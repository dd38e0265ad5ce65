//! `detshare verify`: does a program compute the same bits while it is moved from SMs to SMs?
//!
//! A plain run and the moved ones all go through the shim, which writes down a digest of all that leaves the GPU
//! (`digest.rs`). Where a moved run differs (`compare.rs`), a second plain run tells a program that never repeats itself
//! from one that was computed wrongly.

mod compare;
mod digest;
mod flags;
mod report;
mod runs;

pub(crate) use flags::Arguments;

use crate::exit;
use crate::program::{Ending, RunError, Signals};
use crate::shim;
use crate::table::{self, Format, OutputError};
use flags::Settings;
use report::{DifferingRun, Findings, Report};
use runs::{Folder, FolderError, Kind, RecordedRunError, Runner};

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum VerifyError {
    #[error(transparent)]
    Shim(#[from] shim::FindError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot keep standard input for the runs: {0}; give the program an input file or </dev/null")]
    Stdin(#[source] std::io::Error),
    #[error(transparent)]
    Signals(#[from] RunError),
    #[error(transparent)]
    Run(#[from] RecordedRunError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl VerifyError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Shim(_) => exit::UNAVAILABLE,
            Self::Folder(error) => error.exit_code(),
            Self::Signals(error) => error.exit_code(),
            Self::Run(error) => error.exit_code(),
            Self::Output(error) => error.exit_code(),
            Self::Stdin(_) => exit::FILES,
        }
    }
}

/// Runs the program, compares and prints; returns the exit code.
pub(crate) fn run(arguments: Arguments) -> Result<u8, VerifyError> {
    let Settings { seeds, warm_up, timeout, keep, format, program } = arguments.into();
    let runner = Runner {
        shim: shim::find()?,
        // Before anything is there to clean up: signals still end us while this waits for input.
        stdin: runs::read_stdin().map_err(VerifyError::Stdin)?,
        signals: Signals::watch()?,
        folder: Folder::make(keep.as_deref())?,
        program,
        timeout,
    };
    if warm_up {
        runner.run(0, seeds.len() + 1, Kind::Plain)?;
    }
    let findings = verify(&runner, &seeds)?;
    let program = runner.program.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let report = Report::new(findings, program, &runner.shim, runner.folder.kept());
    table::print(&match format {
        Format::Table => report.table(),
        Format::Json => table::json(&report),
        Format::Csv => report.csv(),
    })?;
    Ok(report.exit_code())
}

/// Runs until all is done or a moved run differs.
fn verify(runner: &Runner, seeds: &[u64]) -> Result<Findings, RecordedRunError> {
    let planned = 1 + seeds.len();
    let (plain, expected) = runner.run(1, planned, Kind::Plain)?;
    let is_seen = plain.ending == Ending::Exit(0) && plain.totals.processes > 0;
    let mut findings = Findings { runs: vec![plain], moved_difference: None, plain_difference: None };
    for seed in seeds.iter().filter(|_| is_seen) {
        let number = findings.runs.len() + 1;
        let (moved, found) = runner.run(number, planned, Kind::Moved { seed: *seed })?;
        findings.runs.push(moved);
        let Some(difference) = compare::compare(&expected, &found) else { continue };
        findings.moved_difference = Some(DifferingRun { run: number, difference });
        let again = number + 1;
        let (plain, found) = runner.run(again, again, Kind::Plain)?;
        findings.runs.push(plain);
        let difference = compare::compare(&expected, &found);
        findings.plain_difference = difference.map(|difference| DifferingRun { run: again, difference });
        break;
    }
    Ok(findings)
}
