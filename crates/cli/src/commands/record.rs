//! `detshare record`: what a program launches and when, as a trace for the simulator.

use crate::exit;
use crate::flags;
use crate::program::{self, Ending, Signals};
use crate::table::{self, OutputError};
use clap::Args;
use detshare_api::Class;
use detshare_sim::record::{RecordError, together, trace};
use detshare_sim::trace::{Class as TraceClass, Trace};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Read by the shim: where to write what it saw.
pub(crate) const VARIABLE: &str = "DETSHARE_RECORD";

/// Run a program as a tenant and write down what it launches, for `detshare sim`
///
/// The program runs as under `detshare run`, best alone on the GPU. Of each of its processes that used the GPU the trace has
/// a tenant. A program that is killed leaves none.
#[derive(Debug, Args)]
#[command(override_usage = "detshare record [OPTIONS] --out FILE -- PROGRAM [ARGS]...")]
pub(crate) struct Arguments {
    /// Where to write the trace
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// How urgent its work is
    #[arg(long, value_name = "CLASS", value_parser = flags::class(), default_value = "best-effort")]
    class: Class,

    /// What to call it in the trace; without this, by its program
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Why there is no trace.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordedError {
    #[error(transparent)]
    Program(#[from] program::RunError),
    #[error("the program ended with {0}: there is no trace")]
    Ended(Ending),
    #[error("the program left no record: it did not use CUDA, or was killed")]
    Nothing,
    #[error("the program's record is of no use: {0}")]
    Record(#[from] RecordError),
    #[error("cannot use {}: {source}; check that the disk is neither full nor read-only", .path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    Output(#[from] OutputError),
}

impl RecordedError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Program(error) => error.exit_code(),
            Self::Ended(Ending::Exit(code)) => u8::try_from(*code).unwrap_or(exit::SYSTEM),
            Self::Ended(Ending::Signal(signal)) => exit::by_signal(*signal),
            Self::Ended(Ending::TimedOut) => exit::SYSTEM,
            Self::Nothing | Self::Record(_) | Self::File { .. } => exit::FILES,
            Self::Output(error) => error.exit_code(),
        }
    }
}

/// Runs it, and writes the trace.
pub(crate) fn run(arguments: Arguments) -> Result<u8, RecordedError> {
    let unusable = |path: &Path| {
        let path = path.to_path_buf();
        move |source| RecordedError::File { path, source }
    };
    let scratch = tempfile::tempdir().map_err(unusable(&std::env::temp_dir()))?;
    let ours = std::env::current_exe().map_err(unusable(Path::new("/proc/self/exe")))?;
    let mut command = Command::new(ours);
    command.args(["run", "--class", arguments.class.name()]);
    command.args(arguments.name.iter().flat_map(|name| ["--name", name]));
    command.arg("--").args(&arguments.program).env(VARIABLE, scratch.path().join("%p"));
    match program::run(&mut command, None, &Signals::watch()?)? {
        Ending::Exit(0) => {}
        ended => return Err(RecordedError::Ended(ended)),
    }
    let trace = read(scratch.path(), &arguments)?;
    let text = trace.to_json();
    std::fs::write(&arguments.out, text).map_err(unusable(&arguments.out))?;
    let launches: usize = trace.tenants.iter().flat_map(|tenant| &tenant.steps).map(Vec::len).sum();
    let steps: usize = trace.tenants.iter().map(|tenant| tenant.steps.len()).sum();
    table::print(&format!(
        "{}: {} kernels, {steps} steps with {launches} launches\n",
        arguments.out.display(),
        trace.kernels.len()
    ))?;
    Ok(0)
}

fn read(folder: &Path, arguments: &Arguments) -> Result<Trace, RecordedError> {
    let unusable = |source| RecordedError::File { path: folder.to_path_buf(), source };
    let mut files = std::fs::read_dir(folder).map_err(unusable)?.collect::<Result<Vec<_>, _>>().map_err(unusable)?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    let class = match arguments.class {
        Class::Latency => TraceClass::Latency,
        Class::BestEffort => TraceClass::BestEffort,
    };
    let program = arguments.program.first().map(Path::new).and_then(Path::file_stem).unwrap_or_default();
    let name = arguments.name.clone().unwrap_or_else(|| program.to_string_lossy().into_owned());
    let mut traces = Vec::new();
    let mut failed = None;
    for file in files {
        let text = std::fs::read_to_string(file.path()).map_err(unusable)?;
        // A process without a step, such as one that only looked for a GPU, is no tenant.
        match trace(&text, &name, class) {
            Ok(trace) => traces.push(trace),
            Err(error) => failed = Some(error),
        }
    }
    match (together(traces), failed) {
        (Some(trace), _) => Ok(trace),
        (None, Some(error)) => Err(error.into()),
        (None, None) => Err(RecordedError::Nothing),
    }
}
