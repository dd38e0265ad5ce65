//! Starting the daemon, so that it stays when we and the terminal go.
//!
//! It gets a session of its own, no input, its log for output, and none of the files that we happen to have open: a
//! daemon that keeps somebody's pipe or lock open hangs a shell script days later. It says that it is ready by a byte on
//! a pipe. Whoever else starts one at the same time loses the race for the lock, which its exit code says; then the other
//! one's daemon is as good.

use crate::daemon::{self, DaemonError};
use crate::exit;
use crate::part;
use detshare_api::{Client, FolderError, RuntimeFolder, Status, places};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::{FdFlags, fcntl_setfd};
use std::fs::{File, OpenOptions};
use std::io::{PipeReader, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Tells the daemon where to say that it is ready.
const READY_VARIABLE: &str = "DETSHARE_READY_FD";
/// What it has to do before it is ready, MPS included, is a matter of a few seconds.
const LONGEST_START: Duration = Duration::from_secs(30);
/// Between two looks at something that does not announce itself.
const PAUSE: Duration = Duration::from_millis(20);
/// A log that is longer is set aside before the next start.
const LONGEST_LOG: u64 = 16 << 20;
const OWNER_ONLY: u32 = 0o600;
/// What makes a process a tenant is nothing for the daemon.
const TENANT_VARIABLES: [&str; 2] = ["LD_PRELOAD", "DETSHARE_RUN"];

/// Why no daemon was started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Part(#[from] part::FindError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error("cannot write the daemon's log {}: {source}; check that the disk is neither full nor read-only", .path.display())]
    Log { path: PathBuf, source: std::io::Error },
    #[error("the system did not start the daemon {} ({source}): check that it is a program for this machine", .program.display())]
    NotStarted { program: PathBuf, source: std::io::Error },
    #[error("cannot watch over the daemon's start: {0}; try again")]
    NotWatched(#[source] std::io::Error),
    /// It said why, in its log.
    #[error("the daemon ended at its start ({ending}): {reason}", reason = last_line(.words, .log))]
    Ended { ending: String, code: Option<i32>, words: Option<String>, log: PathBuf },
    #[error("the daemon was not ready within {} s: look into {}, and end it with `detshare down`", LONGEST_START.as_secs(), .log.display())]
    NotReady { log: PathBuf },
    #[error("a daemon has held the lock of {} for {} s without answering: look into its log there", .0.display(), LONGEST_START.as_secs())]
    Silent(PathBuf),
}

impl StartError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Part(_) | Self::NotReady { .. } | Self::Silent(_) => exit::UNAVAILABLE,
            Self::Daemon(error) => error.exit_code(),
            Self::Log { .. } => exit::FILES,
            Self::NotStarted { .. } | Self::NotWatched(_) => exit::SYSTEM,
            // It uses the same codes for what is wrong with the folder or the configuration.
            Self::Ended { code, .. } => match code.and_then(|code| u8::try_from(code).ok()) {
                Some(code @ (exit::PERMISSION | exit::CONFIGURATION | exit::FILES | exit::SYSTEM | exit::USAGE)) => {
                    code
                }
                _ => exit::UNAVAILABLE,
            },
        }
    }
}

fn last_line(words: &Option<String>, log: &Path) -> String {
    match words {
        Some(words) => format!("{words} (all of it in {})", log.display()),
        None => format!("look into {}", log.display()),
    }
}

/// A daemon that runs.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) status: Status,
    /// Whether it was started by us.
    pub(crate) is_new: bool,
}

/// How one try went.
#[derive(Debug)]
enum Attempt {
    Ready,
    /// Another one has the lock.
    RunsAlready,
}

/// The daemon that runs, or else a new one.
pub(crate) fn ensure(config: Option<&Path>) -> Result<Running, StartError> {
    let path = daemon::folder();
    let folder = RuntimeFolder::make(&path).map_err(DaemonError::from)?;
    let client = Client::new(&folder).map_err(DaemonError::from)?;
    let until = Instant::now() + LONGEST_START;
    let mut is_new = false;
    while Instant::now() < until {
        match client.status().map_err(DaemonError::from) {
            Ok(status) => return Ok(Running { status, is_new }),
            Err(error) if error.is_absence() => {}
            Err(error) => return Err(error.into()),
        }
        match attempt(&folder, config, until)? {
            Attempt::Ready => is_new = true,
            Attempt::RunsAlready => wait_for_the_other(&folder, &client, until),
        }
    }
    Err(StartError::Silent(path))
}

/// Whoever has the lock is on its way up, until it answers, or on its way down, until it gives up the lock.
fn wait_for_the_other(folder: &RuntimeFolder, client: &Client, until: Instant) {
    while is_locked(folder) && client.status().is_err() && Instant::now() < until {
        std::thread::sleep(PAUSE);
    }
}

fn attempt(folder: &RuntimeFolder, config: Option<&Path>, until: Instant) -> Result<Attempt, StartError> {
    let program = part::DAEMON.find()?;
    let mut log = open_log(&folder.log()).map_err(|source| StartError::Log { path: folder.log(), source })?;
    let begin = log.seek(SeekFrom::End(0)).unwrap_or(0);
    let (ready, mut child) = spawn(&program, folder, config, &log)?;
    match wait_until_ready(ready, until).map_err(StartError::NotWatched)? {
        Readiness::Ready => return Ok(Attempt::Ready),
        Readiness::Late => return Err(StartError::NotReady { log: folder.log() }),
        Readiness::Never => {}
    }
    let Some(status) = wait_until_ended(&mut child, until).map_err(StartError::NotWatched)? else {
        return Err(StartError::NotReady { log: folder.log() });
    };
    if status.code() == Some(exit::RUNS_ALREADY.into()) {
        return Ok(Attempt::RunsAlready);
    }
    let words = last_words(&folder.log(), begin);
    Err(StartError::Ended { ending: status.to_string(), code: status.code(), words, log: folder.log() })
}

/// For appending: two that start at the same time do not overwrite each other.
fn open_log(path: &Path) -> std::io::Result<File> {
    if path.symlink_metadata().is_ok_and(|log| log.len() > LONGEST_LOG) {
        std::fs::rename(path, path.with_extension("log.old"))?;
    }
    OpenOptions::new().append(true).create(true).mode(OWNER_ONLY).custom_flags(libc::O_NOFOLLOW).open(path)
}

fn spawn(
    program: &Path,
    folder: &RuntimeFolder,
    config: Option<&Path>,
    log: &File,
) -> Result<(PipeReader, Child), StartError> {
    close_inherited_at_exec();
    let (ready, writer) = std::io::pipe().map_err(StartError::NotWatched)?;
    // This end is for the daemon; nobody else is started here.
    fcntl_setfd(&writer, FdFlags::empty()).map_err(|error| StartError::NotWatched(error.into()))?;
    let mut command = Command::new(program);
    command
        .env(READY_VARIABLE, writer.as_raw_fd().to_string())
        .env(places::FOLDER_VARIABLE, folder.path())
        // No folder is kept from being unmounted.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(StartError::NotWatched)?)
        .stderr(log.try_clone().map_err(StartError::NotWatched)?);
    // What is relative is so to our folder.
    if std::env::var_os(places::CONFIG_VARIABLE).is_some_and(|value| !value.is_empty())
        && let Some(file) = places::config_file(None)
    {
        command.env(places::CONFIG_VARIABLE, file);
    }
    if let Some(config) = config {
        command.arg("--config").arg(std::path::absolute(config).unwrap_or(config.to_path_buf()));
    }
    for variable in TENANT_VARIABLES {
        command.env_remove(variable);
    }
    // SAFETY: `setsid` is one system call, without memory or locks, which a forked child may make.
    unsafe { command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?)) };
    let child = command.spawn();
    let child = child.map_err(|source| StartError::NotStarted { program: program.to_path_buf(), source })?;
    Ok((ready, child))
}

/// Marks all that we did not open ourselves to be closed in the daemon.
fn close_inherited_at_exec() {
    const FIRST_BEYOND_STANDARD: RawFd = 3;
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    let numbers: Vec<_> = numbers.filter(|number| *number >= FIRST_BEYOND_STANDARD).collect();
    for number in numbers {
        // SAFETY: the number is not -1, and it is used for one call that changes a flag and fails if nothing has it: the
        // listing itself was open, and is not any more.
        let file = unsafe { BorrowedFd::borrow_raw(number) };
        let _ = fcntl_setfd(file, FdFlags::CLOEXEC);
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Readiness {
    Ready,
    /// The pipe was closed: it has ended, or is about to.
    Never,
    Late,
}

fn wait_until_ready(mut pipe: PipeReader, until: Instant) -> std::io::Result<Readiness> {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left =
            Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
        let happened = match rustix::event::poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&left)) {
            Err(rustix::io::Errno::INTR) => continue,
            happened => happened?,
        };
        if happened == 0 {
            return Ok(Readiness::Late);
        }
        return Ok(if pipe.read(&mut [0])? > 0 { Readiness::Ready } else { Readiness::Never });
    }
}

fn wait_until_ended(child: &mut Child, until: Instant) -> std::io::Result<Option<ExitStatus>> {
    loop {
        let ended = child.try_wait()?;
        if ended.is_some() || Instant::now() >= until {
            return Ok(ended);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The last line that was logged since then.
fn last_words(log: &Path, since: u64) -> Option<String> {
    const LONGEST: u64 = 64 << 10;
    let mut log = File::open(log).ok()?;
    let end = log.seek(SeekFrom::End(0)).ok()?;
    log.seek(SeekFrom::Start(since.max(end.saturating_sub(LONGEST)))).ok()?;
    let mut words = Vec::new();
    log.take(LONGEST).read_to_end(&mut words).ok()?;
    let words = String::from_utf8_lossy(&words);
    let line = words.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.strip_prefix("detshared: ").unwrap_or(line).to_string())
}

/// Whether a daemon holds the lock of that folder.
pub(crate) fn is_locked(folder: &RuntimeFolder) -> bool {
    let Ok(lock) = File::open(folder.lock()) else { return false };
    // Held for a moment, and only together with others who look.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared).is_err()
}

impl From<FolderError> for StartError {
    fn from(error: FolderError) -> Self {
        Self::Daemon(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_last_line_since_the_start_counts() {
        let mut log = tempfile::NamedTempFile::new().unwrap();
        log.write_all(b"an old line\n").unwrap();
        let begin = log.as_file().metadata().unwrap().len();
        assert_eq!(last_words(log.path(), begin), None);
        log.write_all(b"one\ndetshared: line 3: unknown key\n\n").unwrap();
        assert_eq!(last_words(log.path(), begin).as_deref(), Some("line 3: unknown key"));
    }

    #[test]
    fn readiness_is_a_byte() {
        let soon = || Instant::now() + LONGEST_START;
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"1").unwrap();
        assert_eq!(wait_until_ready(reader, soon()).unwrap(), Readiness::Ready);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(writer);
        assert_eq!(wait_until_ready(reader, soon()).unwrap(), Readiness::Never);
        let (reader, _writer) = std::io::pipe().unwrap();
        assert_eq!(wait_until_ready(reader, Instant::now()).unwrap(), Readiness::Late);
    }

    #[test]
    fn the_daemons_own_code_is_ours() {
        let ended =
            |code| StartError::Ended { ending: String::new(), code, words: None, log: "log".into() }.exit_code();
        assert_eq!(ended(Some(78)), exit::CONFIGURATION);
        assert_eq!(ended(Some(1)), exit::UNAVAILABLE);
        assert_eq!(ended(None), exit::UNAVAILABLE);
    }
}
