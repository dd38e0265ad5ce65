//! Runs of a program through the shim, each in a folder of its own with all that it left.

use super::compare::Observed;
use super::digest::{self, Channel, Counts, DIGEST_EXTENSION, ProcessRecord, ReadError, STATS_EXTENSION};
use crate::exit;
use crate::program::{self, Ending, RunError, Signals};
use crate::shim;
use serde::Serialize;
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{IsTerminal, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How the shim places a run's launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Kind {
    /// As the program asked.
    Plain,
    /// On another lane at every launch.
    Moved { seed: u64 },
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => write!(out, "plain"),
            Self::Moved { seed } => write!(out, "moved, seed {seed}"),
        }
    }
}

/// What is known of a run, apart from what is compared.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Run {
    /// From 1.
    pub(crate) number: usize,
    #[serde(flatten)]
    pub(crate) kind: Kind,
    pub(crate) seconds: f64,
    pub(crate) ending: Ending,
    #[serde(flatten)]
    pub(crate) totals: Totals,
    pub(crate) counts: Counts,
    /// A process was ended in the middle of a line of its record.
    pub(crate) truncated: bool,
    /// The last lines of standard error.
    #[serde(skip)]
    pub(crate) last_words: Vec<String>,
}

/// How much left the GPU in a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// Processes that have a record.
    pub(crate) processes: usize,
    pub(crate) copies: u64,
    pub(crate) memory_changes: u64,
    pub(crate) bytes: u64,
}

impl Totals {
    fn of(processes: &[ProcessRecord]) -> Self {
        let entries = || processes.iter().flat_map(|process| &process.entries);
        let count = |is: fn(&Channel) -> bool| entries().filter(|entry| is(&entry.channel)).count() as u64;
        Self {
            processes: processes.len(),
            copies: count(|channel| matches!(channel, Channel::Copy { .. })),
            memory_changes: count(|channel| matches!(channel, Channel::Memory { .. })),
            bytes: entries().map(|entry| entry.bytes).sum(),
        }
    }

    /// Of two runs together.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            processes: self.processes + other.processes,
            copies: self.copies + other.copies,
            memory_changes: self.memory_changes + other.memory_changes,
            bytes: self.bytes + other.bytes,
        }
    }
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordedRunError {
    #[error(transparent)]
    Program(#[from] RunError),
    #[error(transparent)]
    Record(#[from] ReadError),
    /// A file for the run.
    #[error("cannot use {} for a run: {source}; check that the disk is neither full nor read-only", .path.display())]
    File { path: PathBuf, source: std::io::Error },
}

impl RecordedRunError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Program(error) => error.exit_code(),
            Self::Record(_) | Self::File { .. } => exit::FILES,
        }
    }
}

/// All that the runs have in common.
#[derive(Debug)]
pub(crate) struct Runner {
    /// The program and its arguments.
    pub(crate) program: Vec<OsString>,
    pub(crate) shim: PathBuf,
    pub(crate) folder: Folder,
    /// What every run reads, if anything.
    pub(crate) stdin: Option<File>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) signals: Signals,
}

impl Runner {
    /// Runs the program once, and says so on standard error: `run 1 of 2: plain … 12.3 s`.
    pub(crate) fn run(&self, number: usize, of: usize, kind: Kind) -> Result<(Run, Observed), RecordedRunError> {
        let mut progress = std::io::stderr();
        // A closed standard error is no reason to give up.
        let _ = write!(progress, "run {number} of {of}: {kind} … ");
        let done = self.run_quietly(number, kind);
        let _ = match &done {
            Ok((run, _)) => writeln!(progress, "{:.1} s", run.seconds),
            Err(_) => writeln!(progress),
        };
        done
    }

    fn run_quietly(&self, number: usize, kind: Kind) -> Result<(Run, Observed), RecordedRunError> {
        let name = match kind {
            Kind::Plain => format!("{number}-plain"),
            Kind::Moved { seed } => format!("{number}-moved-{seed}"),
        };
        let folder = self.folder.path().join(name);
        std::fs::create_dir(&folder).map_err(|source| RecordedRunError::File { path: folder.clone(), source })?;
        let mut command = self.command(&folder, kind)?;
        let start = Instant::now();
        let ending = program::run(&mut command, self.timeout, &self.signals)?;
        let seconds = start.elapsed().as_secs_f64();
        let processes = digest::read_folder(&folder)?;
        let run = Run {
            number,
            kind,
            seconds,
            ending,
            totals: Totals::of(&processes),
            counts: digest::read_counts(&folder)?,
            truncated: processes.iter().any(|process| process.truncated),
            last_words: last_lines(&read(&folder.join("stderr"))?),
        };
        Ok((run, Observed { ending, stdout: read(&folder.join("stdout"))?, processes }))
    }

    fn command(&self, folder: &Path, kind: Kind) -> Result<Command, RecordedRunError> {
        let file = |name: &str| {
            let path = folder.join(name);
            File::create(&path).map_err(|source| RecordedRunError::File { path, source })
        };
        let (program, arguments) = self.program.split_first().expect("the command line asks for a program");
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(self.stdin()?)
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .env("LD_PRELOAD", shim::preload(&[&self.shim], std::env::var_os("LD_PRELOAD").as_deref()))
            .env("DETSHARE_DIGEST", folder.join(format!("%p.{DIGEST_EXTENSION}")))
            .env("DETSHARE_STATS", folder.join(format!("%p.{STATS_EXTENSION}")));
        match kind {
            Kind::Plain => command.env_remove("DETSHARE_SCHEDULE"),
            Kind::Moved { seed } => command.env("DETSHARE_SCHEDULE", format!("random:{seed}")),
        };
        Ok(command)
    }

    /// Standard input, from its beginning.
    fn stdin(&self) -> Result<Stdio, RecordedRunError> {
        let Some(mut stdin) = self.stdin.as_ref() else { return Ok(Stdio::null()) };
        let rewound = stdin.rewind().and_then(|()| stdin.try_clone());
        rewound.map(Stdio::from).map_err(|source| RecordedRunError::File { path: "standard input".into(), source })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, RecordedRunError> {
    std::fs::read(path).map_err(|source| RecordedRunError::File { path: path.to_path_buf(), source })
}

/// The last lines of what a program said, shortened.
fn last_lines(text: &[u8]) -> Vec<String> {
    const LINES: usize = 10;
    const CHARACTERS: usize = 200;
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| line.chars().take(CHARACTERS).collect()).collect()
}

/// Reads all of standard input, so that every run can have it; none if someone would have to type it.
pub(crate) fn read_stdin() -> std::io::Result<Option<File>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let mut given = File::from(stdin.as_fd().try_clone_to_owned()?);
    let kind = given.metadata()?.file_type();
    if kind.is_fifo() || kind.is_socket() {
        // Whoever holds the other end may never close it: say what we wait for.
        let _ = writeln!(std::io::stderr(), "reading standard input …");
    }
    let mut kept = tempfile::tempfile()?;
    std::io::copy(&mut given, &mut kept)?;
    Ok(Some(kept))
}

/// Where the runs' folders are.
#[derive(Debug)]
pub(crate) enum Folder {
    /// The user asked for it.
    Kept(PathBuf),
    /// Gone when we are.
    Temporary(tempfile::TempDir),
}

/// Why there is no folder for the runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FolderError {
    #[error("cannot make the folder {}: {source}; choose another one for --keep", .path.display())]
    NotMade { path: PathBuf, source: std::io::Error },
    #[error("cannot make a folder for temporary files: {0}; set TMPDIR to a folder that can be written to")]
    NotTemporary(#[source] std::io::Error),
    #[error("{} is not empty: choose a new or empty folder for --keep", .0.display())]
    NotEmpty(PathBuf),
    /// The shim would put a process's number there.
    #[error("{} has %p in its name, which stands for a process in names of records: choose another folder", .0.display())]
    Placeholder(PathBuf),
}

impl FolderError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotMade { .. } | Self::NotTemporary(_) => exit::FILES,
            Self::NotEmpty(_) | Self::Placeholder(_) => exit::USAGE,
        }
    }
}

impl Folder {
    pub(crate) fn make(keep: Option<&Path>) -> Result<Self, FolderError> {
        match keep {
            Some(path) => Ok(Self::Kept(Self::make_kept(path)?)),
            None => Ok(Self::Temporary(tempfile::tempdir().map_err(FolderError::NotTemporary)?)),
        }
    }

    /// Absolute, since the program may run in another folder.
    fn make_kept(path: &Path) -> Result<PathBuf, FolderError> {
        let not_made = |source| FolderError::NotMade { path: path.to_path_buf(), source };
        let path = std::path::absolute(path).map_err(not_made)?;
        if path.as_os_str().as_bytes().windows(2).any(|pair| pair == b"%p") {
            return Err(FolderError::Placeholder(path));
        }
        std::fs::create_dir_all(&path).map_err(not_made)?;
        if path.read_dir().map_err(not_made)?.next().is_some() {
            return Err(FolderError::NotEmpty(path));
        }
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Kept(path) => path,
            Self::Temporary(folder) => folder.path(),
        }
    }

    /// The folder, if it stays.
    pub(crate) fn kept(&self) -> Option<&Path> {
        match self {
            Self::Kept(path) => Some(path),
            Self::Temporary(_) => None,
        }
    }
}
