//! Running someone's program to its end: within a time, and not beyond ours.
//!
//! The program gets a process group of its own, so that a time limit or a signal ends it with all its workers. In turn a
//! Ctrl-C at the terminal no longer reaches it by itself; signals that would end us are passed on, a second one as
//! `SIGKILL`.

use crate::exit;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::fmt;
use std::io::ErrorKind;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// By itself, with that code.
    Exit(i32),
    /// By that signal.
    Signal(i32),
    /// By us, when its time was over.
    TimedOut,
}

impl From<ExitStatus> for Ending {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(out, "exit code {code}"),
            Self::Signal(signal) => write!(out, "signal {signal}"),
            Self::TimedOut => write!(out, "timeout"),
        }
    }
}

/// Why a program did not run to an end of its own.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// No such file, here or on `PATH`.
    #[error("{program} was not found: check its name and PATH and, for a script, the interpreter in its first line")]
    NotFound { program: String },
    /// There is a file, but it does not run.
    #[error("{program} cannot be executed ({source}): make it executable, or name the interpreter before it")]
    NotExecutable { program: String, source: std::io::Error },
    /// There is no process for it.
    #[error("the system did not start {program} ({source}): free some memory or processes and try again")]
    NotStarted { program: String, source: std::io::Error },
    /// Signals cannot be watched, or the process not waited for.
    #[error("cannot watch over the program's process: {0}")]
    NotWatched(#[source] std::io::Error),
    /// We were asked to end.
    #[error("ended by signal {signal}, and the program with it: there is no result")]
    Interrupted { signal: i32 },
}

impl RunError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound { .. } | Self::NotExecutable { .. } => exit::NO_PROGRAM,
            Self::NotStarted { .. } | Self::NotWatched(_) => exit::SYSTEM,
            Self::Interrupted { signal } => exit::by_signal(*signal),
        }
    }
}

/// The signals that arrive here, in order: those that would end us, and the news that a child ended.
#[derive(Debug)]
pub(crate) struct Signals(Receiver<i32>);

impl Signals {
    /// From now on they end us no more by themselves.
    pub(crate) fn watch() -> Result<Self, RunError> {
        let ignored = ignored_signals(&std::fs::read_to_string("/proc/self/status").unwrap_or_default());
        let is_ignored = |signal: &i32| ignored >> (signal - 1) & 1 == 1;
        let mut watched = vec![SIGINT, SIGTERM, SIGHUP, SIGQUIT];
        // `nohup` and background jobs are meant to live through them.
        watched.retain(|signal| !is_ignored(signal));
        watched.push(SIGCHLD);
        let mut signals = signal_hook::iterator::Signals::new(watched).map_err(RunError::NotWatched)?;
        let (sender, receiver) = mpsc::channel();
        std::thread::Builder::new()
            .name("signals".to_string())
            .spawn(move || signals.forever().take_while(|signal| sender.send(*signal).is_ok()).for_each(drop))
            .map_err(RunError::NotWatched)?;
        Ok(Self(receiver))
    }

    /// The next one, or none when the time is over.
    pub(crate) fn next(&self, until: Option<Instant>) -> Option<i32> {
        match until {
            Some(until) => self.0.recv_timeout(until.saturating_duration_since(Instant::now())).ok(),
            None => self.0.recv().ok(),
        }
    }
}

/// The mask of ignored signals in the text of `/proc/self/status`; signal 1 is the lowest bit.
fn ignored_signals(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Runs the program to its end, and ends it when its time is over or when we are to end.
pub(crate) fn run(command: &mut Command, limit: Option<Duration>, signals: &Signals) -> Result<Ending, RunError> {
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut child = command.process_group(0).spawn().map_err(|error| not_started(command, error))?;
    let mut interrupted = None;
    loop {
        if let Some(status) = child.try_wait().map_err(RunError::NotWatched)? {
            return match interrupted {
                Some(signal) => Err(RunError::Interrupted { signal }),
                None => Ok(status.into()),
            };
        }
        match signals.next(until) {
            Some(SIGCHLD) => {}
            Some(signal) => {
                let passed_on = if interrupted.is_none() { Signal::from_named_raw(signal) } else { None };
                send(&child, passed_on.unwrap_or(Signal::KILL));
                interrupted = Some(signal);
            }
            None => {
                send(&child, Signal::KILL);
                child.wait().map_err(RunError::NotWatched)?;
                return match interrupted {
                    Some(signal) => Err(RunError::Interrupted { signal }),
                    None => Ok(Ending::TimedOut),
                };
            }
        }
    }
}

/// To the program and its workers. It was not waited for yet, so its number is still its own.
fn send(child: &Child, signal: Signal) {
    // It may have ended already; then there is nothing to do.
    let _ = kill_process_group(Pid::from_child(child), signal);
}

/// Why a command was not started, by what the system says.
pub(crate) fn not_started(command: &Command, source: std::io::Error) -> RunError {
    let program = command.get_program().to_string_lossy().into_owned();
    match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => RunError::NotFound { program },
        ErrorKind::OutOfMemory | ErrorKind::WouldBlock => RunError::NotStarted { program, source },
        _ => RunError::NotExecutable { program, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "SigBlk:\t0000000000010000\nSigIgn:\t0000000000000001\nSigCgt:\t0000000000000002\n";
        assert_eq!(ignored_signals(status), 1 << (SIGHUP - 1));
        assert_eq!(ignored_signals(""), 0);
    }

    #[test]
    fn a_signal_counts_as_in_a_shell() {
        assert_eq!(RunError::Interrupted { signal: SIGINT }.exit_code(), 130);
    }
}
