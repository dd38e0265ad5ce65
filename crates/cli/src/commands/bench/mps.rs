//! MPS of our own, in a folder of our own: for the arms that know nothing of DetShare.

use super::process::{PAUSE, Process};
use crate::program::{Ending, RunError};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Its name on `PATH`.
const PROGRAM: &str = "nvidia-cuda-mps-control";
/// What it says, whatever its exit code is, when there is none to ask.
const NOBODY: &str = "Cannot find MPS control daemon";
/// How long it may take until it answers.
const LONGEST_START: Duration = Duration::from_secs(10);
/// How long an answer may take.
const LONGEST_ANSWER: Duration = Duration::from_secs(5);
/// How long it may take to quit, its servers included.
const LONGEST_QUIT: Duration = Duration::from_secs(10);
/// How long a client may take to be listed.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// Why there is no MPS to run under.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MpsError {
    #[error("there is no {PROGRAM} on PATH: install it with NVIDIA's driver, or leave this arm out with --arms")]
    Missing,
    #[error("cannot make MPS a folder in {}: {source}; set TMPDIR to a folder that can be written to", .folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    #[error(transparent)]
    NotStarted(#[from] RunError),
    #[error("MPS did not come up ({0}): see `detshare doctor` for another one that runs")]
    NotUp(String),
    #[error("{program} runs and is no client of MPS: see whether CUDA_MPS_PIPE_DIRECTORY is set somewhere else")]
    NoClient { program: String },
}

/// MPS that runs. Dropped, it quits.
#[derive(Debug)]
pub(crate) struct Mps {
    pipes: PathBuf,
    logs: PathBuf,
    control: Process,
}

impl Mps {
    /// Starts it, in the foreground so that its end is seen.
    pub(crate) fn start(folder: &Path) -> Result<Self, MpsError> {
        let (pipes, logs) = (folder.join("mps/pipe"), folder.join("mps/log"));
        let make = |folder: &PathBuf| std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        let failed = |source| MpsError::Folder { folder: folder.to_path_buf(), source };
        [&pipes, &logs].into_iter().try_for_each(make).map_err(failed)?;
        let output = File::create(logs.join("control.out")).map_err(failed)?;
        let mut command = command(&pipes, &logs);
        command.arg("-f").stdin(Stdio::null()).stdout(output.try_clone().map_err(failed)?).stderr(output);
        let control = Process::start(&mut command).map_err(|error| match error {
            RunError::NotFound { .. } => MpsError::Missing,
            error => error.into(),
        })?;
        let mut mps = Self { pipes, logs, control };
        mps.wait_until_up()?;
        Ok(mps)
    }

    fn wait_until_up(&mut self) -> Result<(), MpsError> {
        let until = Instant::now() + LONGEST_START;
        loop {
            let answer = self.ask("get_server_list");
            match (answer, self.control.ending()) {
                (_, Some(ending)) => return Err(MpsError::NotUp(format!("it ended with {ending}"))),
                (Ok(_), None) => return Ok(()),
                (Err(reason), None) if Instant::now() >= until => return Err(MpsError::NotUp(reason)),
                (Err(_), None) => std::thread::sleep(PAUSE),
            }
        }
    }

    /// What its clients have to have in their environment.
    pub(crate) fn environment(&self) -> [(&'static str, &Path); 2] {
        [("CUDA_MPS_PIPE_DIRECTORY", &self.pipes), ("CUDA_MPS_LOG_DIRECTORY", &self.logs)]
    }

    /// That all these processes are its clients: one that is not runs all the same, with the GPU's time sliced.
    pub(crate) fn expect_clients(&self, programs: &[(&str, u32)]) -> Result<(), MpsError> {
        let until = Instant::now() + LONGEST_LOOK;
        loop {
            let clients = self.clients();
            match programs.iter().find(|(_, pid)| !clients.contains(pid)) {
                None => return Ok(()),
                Some((program, _)) if Instant::now() >= until => {
                    return Err(MpsError::NoClient { program: program.to_string() });
                }
                Some(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn clients(&self) -> BTreeSet<u32> {
        let servers: Vec<u32> = first_numbers(&self.ask("get_server_list").unwrap_or_default()).collect();
        let lists = servers.iter().map(|server| format!("get_client_list {server}"));
        // Newer ones have a table of all.
        let answers = lists.chain(["ps".to_string()]).filter_map(|question| self.ask(&question).ok());
        answers.flat_map(|answer| first_numbers(&answer).collect::<Vec<_>>()).collect()
    }

    /// Asks the one that runs; else why there is no answer.
    fn ask(&self, question: &str) -> Result<String, String> {
        let mut command = command(&self.pipes, &self.logs);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut asking = Process::start(&mut command).map_err(|error| error.to_string())?;
        if let Some(mut stdin) = asking.take_stdin() {
            // One that has ended by now has a code that says more.
            let _ = writeln!(stdin, "{question}");
        }
        let Some(ending) = asking.wait(LONGEST_ANSWER) else {
            return Err(format!("no answer within {} s", LONGEST_ANSWER.as_secs()));
        };
        let mut answer = String::new();
        if let Some(mut stdout) = asking.take_stdout() {
            let _ = stdout.read_to_string(&mut answer);
        }
        if ending == Ending::Exit(0) && !answer.contains(NOBODY) {
            Ok(answer)
        } else {
            Err(format!("{} ({ending})", answer.trim()))
        }
    }
}

impl Drop for Mps {
    fn drop(&mut self) {
        // If it does not listen, it is ended as any process of ours.
        let _ = self.ask("quit");
        self.control.wait(LONGEST_QUIT);
    }
}

fn command(pipes: &Path, logs: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env("CUDA_MPS_PIPE_DIRECTORY", pipes).env("CUDA_MPS_LOG_DIRECTORY", logs);
    command
}

/// The number that each line begins with; titles begin with none.
fn first_numbers(text: &str) -> impl Iterator<Item = u32> {
    text.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_read_from_lists_and_tables() {
        let table = "PID  ID  SERVER  DEVICE\n4711  1  4001  GPU-0\n4712  2  4001  GPU-0\n";
        assert_eq!(first_numbers(table).collect::<Vec<_>>(), [4711, 4712]);
        assert_eq!(first_numbers("4711\n4712\n").count(), 2);
        assert_eq!(first_numbers("").count(), 0);
    }
}
