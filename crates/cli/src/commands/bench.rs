//! `detshare bench`: what sharing one GPU costs, and what it gives.
//!
//! A scenario (`scenario.rs`) is two or three programs; an arm (`arm.rs`) is a way of running them: alone, or together
//! under nothing, MPS, fixed partitions or a policy of DetShare. All arms are run once, then again in another order
//! (`rounds.rs`), as far as there is time for it (`estimates.rs`). For each one what it needs is put up and taken down (`runner.rs`, `mps.rs`, `own_daemon.rs`), and its
//! programs are started together (`session.rs`, `measured.rs`, `process.rs`); what of their time counts is planned (`schedule.rs`). What they say they did (`output.rs`) becomes
//! figures (`figures.rs`) and is compared with what they computed alone (`identity.rs`). Over the rounds that makes a
//! summary (`summary.rs`), a report (`report.rs`, `words.rs`, `page.rs`) and plots (`plot.rs`).
//!
//! In the end tenants run once more and write down what they launch (`records.rs`), of which a moment is shown (`timeline.rs`).
//!
//! LLM servers are sent the requests of a trace (`replay.rs`), as many as keep them busy for a part of the time (`load.rs`, `rates.rs`). What
//! they say (`answers.rs`) has a time for each token, and figures of its own (`service.rs`, `service_summary.rs`,
//! `service_table.rs`), also request by request against alone (`paired.rs`, `paired_table.rs`). How near to alone two of them
//! could come is worked out (`bound.rs`), whether their steps were told apart is looked up (`told_apart.rs`), and what they did
//! can be kept (`kept.rs`).
//!
//! Nothing is shared with a daemon, an MPS or a configuration of the user's: all of it lies in a folder that goes in the
//! end.

mod answers;
mod arm;
mod bound;
mod clock;
mod estimates;
mod figures;
mod flags;
mod identity;
mod json;
mod kept;
mod llm_flags;
mod load;
mod machine;
mod measured;
mod mps;
mod output;
mod own_daemon;
mod page;
mod paired;
mod paired_table;
mod plot;
mod process;
mod rates;
mod records;
mod replay;
mod report;
mod rounds;
mod runner;
mod sampler;
mod scenario;
mod schedule;
mod service;
mod service_summary;
mod service_table;
mod session;
mod summary;
mod timeline;
mod told_apart;
mod unrest;
mod words;
mod workloads;

pub(crate) use flags::Arguments;

use crate::exit;
use crate::program::{RunError, Signals};
use crate::table::{self, Format, OutputError};
use flags::{FlagsError, Settings};
use report::{FolderError, Report};
use rounds::Measurements;
use runner::Runner;
use session::SessionError;
use std::path::{Path, PathBuf};
use std::time::Instant;
use workloads::WorkloadsError;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Flags(#[from] FlagsError),
    #[error(transparent)]
    Workloads(#[from] WorkloadsError),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("cannot make a folder for temporary files: {0}; set TMPDIR to a folder that can be written to")]
    NotTemporary(#[source] std::io::Error),
    #[error(transparent)]
    Signals(#[from] RunError),
    #[error(
        "ended by signal {signal}, and everything with it; {}",
        .kept.as_ref().map_or("nothing was measured".to_string(), |kept| format!("what was measured is in {}", kept.display()))
    )]
    Interrupted { signal: i32, kept: Option<PathBuf> },
    #[error(transparent)]
    Session(SessionError),
    #[error("nothing was measured, as it is not known how many requests the servers are to get: {0}")]
    NoRates(#[source] SessionError),
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl BenchError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Flags(error) => error.exit_code(),
            Self::Workloads(error) => error.exit_code(),
            Self::Folder(error) => error.exit_code(),
            Self::NotTemporary(_) => exit::FILES,
            Self::Signals(error) => error.exit_code(),
            Self::Interrupted { signal, .. } => exit::by_signal(*signal),
            Self::Session(_) => exit::SYSTEM,
            Self::NoRates(_) => report::INCOMPLETE,
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Measures, prints and leaves the results in a folder; returns the exit code.
pub(crate) fn run(arguments: Arguments) -> Result<u8, BenchError> {
    let settings = Settings::try_from(arguments)?;
    let workloads = workloads::find(settings.scenario, settings.workloads.as_deref())?;
    report::make_folder(&settings.out)?;
    settings.keep.as_deref().map_or(Ok(()), report::make_folder)?;
    if settings.llm.as_ref().is_some_and(|llm| llm.finds_rates) {
        return find_rates(&settings, &workloads);
    }
    let mut measured = Measurements::default();
    let ended = measure(&settings, &workloads, &mut measured);
    if measured.runs.is_empty() {
        // Only if there is nothing in it.
        let _ = std::fs::remove_dir(&settings.out);
        return ended.map(|()| 0);
    }
    let command = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let report = Report::new(&settings, measured, command);
    report.write(&settings.out)?;
    // What there is was written; then why there is no more of it.
    ended.map_err(|error| match error {
        BenchError::Interrupted { signal, .. } => BenchError::Interrupted { signal, kept: Some(settings.out.clone()) },
        error => error,
    })?;
    table::print(&match settings.format {
        Format::Table => report.table(&settings.out),
        Format::Json => report.json(),
        Format::Csv => report.csv(),
    })?;
    Ok(report.exit_code())
}

/// Part of the time in which nothing is measured any more.
const LAST_PART: u32 = 60;

/// Finds out what servers are sent at each load, prints it and leaves it in the folder; returns the exit code.
fn find_rates(settings: &Settings, workloads: &Path) -> Result<u8, BenchError> {
    let found = with_runner(settings, workloads, |runner| Ok(rates::Rates::of(&runner.replays)));
    let found = found.inspect_err(|_| drop(std::fs::remove_dir(&settings.out)))?;
    report::write(&settings.out.join(report::RESULTS), &found.json())?;
    table::print(&match settings.format {
        Format::Table => found.table(),
        Format::Json => found.json(),
        Format::Csv => found.csv(),
    })?;
    Ok(0)
}

fn measure(settings: &Settings, workloads: &Path, measured: &mut Measurements) -> Result<(), BenchError> {
    with_runner(settings, workloads, |runner| {
        let ran = rounds::run(runner, settings, measured);
        measured.ideals = runner.ideals();
        measured.replays = std::mem::take(&mut runner.replays);
        ran.map_err(|error| interrupted(error, BenchError::Session))
    })
}

/// Once it is known what servers are sent. Everything that was started has ended when this returns.
fn with_runner<T>(
    settings: &Settings,
    workloads: &Path,
    body: impl FnOnce(&mut Runner<'_>) -> Result<T, BenchError>,
) -> Result<T, BenchError> {
    // The rest is for taking everything down and for the report.
    let deadline = Instant::now() + settings.limit - settings.limit / LAST_PART;
    let signals = Signals::watch()?;
    let scratch = tempfile::Builder::new().prefix("detshare-bench-").tempdir().map_err(BenchError::NotTemporary)?;
    let mut runner = Runner::new(settings, workloads.to_path_buf(), scratch.path(), &signals, deadline);
    runner.plan().map_err(|error| interrupted(error, BenchError::NoRates))?;
    body(&mut runner)
}

fn interrupted(error: SessionError, otherwise: fn(SessionError) -> BenchError) -> BenchError {
    match error {
        SessionError::Interrupted { signal } => BenchError::Interrupted { signal, kept: None },
        error => otherwise(error),
    }
}
