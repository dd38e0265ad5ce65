//! A program that runs and is measured: told to begin and to stop by files, and asked in the end what it did.

use super::clock;
use super::output::{self, Line, Output, OutputError};
use super::process::{PAUSE, Process};
use super::scenario::{Program, ProgramFiles, Protocol};
use crate::program::{Ending, RunError};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The exit code by which programs say that there is no GPU for them.
const SKIPPED: i32 = 77;
/// How long the last lines may take once the program has ended.
const LONGEST_READ: Duration = Duration::from_secs(5);

/// Why a program is not measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasuredError {
    #[error("cannot use {} for {program}: {source}; set TMPDIR to a folder that can be written to", .path.display())]
    File { program: &'static str, path: PathBuf, source: std::io::Error },
    #[error(transparent)]
    NotStarted(#[from] RunError),
    #[error("{program} found no GPU: use `detshare bench soft` where there is none")]
    NoGpu { program: &'static str },
    #[error("{program} failed with {ending}: {words}")]
    Failed { program: &'static str, ending: Ending, words: String },
    #[error("{program}: {source}")]
    Output { program: &'static str, source: OutputError },
}

/// A program that was started. Dropped, it is ended.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) program: &'static Program,
    process: Process,
    files: ProgramFiles,
    words: PathBuf,
    lines: Option<JoinHandle<Vec<Line>>>,
}

impl Measured {
    /// The files for a program in that folder, which is made.
    pub(crate) fn files(program: &'static Program, folder: &Path) -> Result<ProgramFiles, MeasuredError> {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|source| MeasuredError::File { program: program.name, path: folder.to_path_buf(), source })?;
        let [out, start, stop] = ["out.json", "start", "stop"].map(|name| folder.join(name).display().to_string());
        Ok(ProgramFiles { out, start, stop })
    }

    /// Starts it. What it prints goes into the folder, but for lines that say what it did.
    pub(crate) fn start(
        program: &'static Program,
        files: ProgramFiles,
        folder: &Path,
        command: &mut Command,
    ) -> Result<Self, MeasuredError> {
        let words = folder.join("words");
        let failed = |source| MeasuredError::File { program: program.name, path: words.clone(), source };
        let log = File::create(&words).map_err(failed)?;
        command.stdin(Stdio::null()).stderr(log.try_clone().map_err(failed)?);
        match program.protocol {
            Protocol::Lines { .. } => command.stdout(Stdio::piped()),
            Protocol::Serve { .. } | Protocol::Train | Protocol::Llm { .. } => command.stdout(log),
        };
        let mut process = Process::start(command)?;
        let reader = process
            .take_stdout()
            .map(|stdout| std::thread::Builder::new().name("lines".to_string()).spawn(move || read_lines(stdout)));
        let lines = reader.transpose().map_err(failed)?;
        Ok(Self { program, process, files, words, lines })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether it waits to be told to begin, or need not be told.
    pub(crate) fn is_ready(&self) -> bool {
        !self.waits() || Path::new(&format!("{}.ready", self.files.start)).exists()
    }

    /// Whether it begins when it is told to.
    fn waits(&self) -> bool {
        match self.program.protocol {
            Protocol::Serve { .. } | Protocol::Train | Protocol::Llm { .. } => true,
            Protocol::Lines { .. } => false,
        }
    }

    /// Tells it to begin.
    pub(crate) fn begin(&self) -> Result<(), MeasuredError> {
        self.touch(&self.files.start)
    }

    /// Tells it to stop soon, if it can be told.
    pub(crate) fn stop(&self) -> Result<(), MeasuredError> {
        self.touch(&self.files.stop)
    }

    fn touch(&self, file: &str) -> Result<(), MeasuredError> {
        let made = File::create(file).map(drop);
        made.map_err(|source| MeasuredError::File { program: self.program.name, path: file.into(), source })
    }

    /// Whether it has ended, which is an error unless it did so well.
    pub(crate) fn has_ended(&mut self) -> Result<bool, MeasuredError> {
        let program = self.program.name;
        match self.process.ending() {
            None => Ok(false),
            Some(Ending::Exit(0)) => Ok(true),
            Some(Ending::Exit(SKIPPED)) => Err(MeasuredError::NoGpu { program }),
            Some(ending) => Err(MeasuredError::Failed { program, ending, words: last_words(&self.words) }),
        }
    }

    /// What it did, once it has ended.
    pub(crate) fn output(&mut self) -> Result<Output, MeasuredError> {
        let failed = |source| MeasuredError::Output { program: self.program.name, source };
        match self.lines.take() {
            Some(lines) => output::from_lines(self.program, &join(lines)).map_err(failed),
            None => {
                let text = std::fs::read_to_string(&self.files.out);
                let text = text.map_err(|error| failed(OutputError::Unreadable(error.to_string())))?;
                output::from_json(self.program, &text).map_err(failed)
            }
        }
    }
}

/// Each line with the time at which it was read.
fn read_lines(stdout: ChildStdout) -> Vec<Line> {
    let lines = BufReader::new(stdout).lines().map_while(Result::ok);
    lines.map(|text| Line { at: clock::now(), text }).collect()
}

/// Its process and all that came of it have ended, and so has the pipe.
fn join(lines: JoinHandle<Vec<Line>>) -> Vec<Line> {
    let until = Instant::now() + LONGEST_READ;
    while !lines.is_finished() && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
    if lines.is_finished() { lines.join().unwrap_or_default() } else { Vec::new() }
}

/// The last line that it said.
fn last_words(file: &Path) -> String {
    const LONGEST: usize = 400;
    let words = std::fs::read(file).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    let line = words.lines().rev().map(str::trim).find(|line| !line.is_empty());
    line.unwrap_or("it does not say why").chars().take(LONGEST).collect()
}
