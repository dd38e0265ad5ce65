//! NVIDIA's control program: starting it, and asking the one that runs.

use super::Client;
use detshare_api::RuntimeFolder;
use detshare_board::Owner;
use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// Its name on `PATH`.
pub const PROGRAM: &str = "nvidia-cuda-mps-control";
/// It writes its pid there, in the folder of its pipes.
const PID_FILE: &str = "nvidia-cuda-mps-control.pid";
const OUTPUT: &str = "control.out";
/// What it says, whatever its status is, when there is none to ask.
const NOBODY: &str = "Cannot find MPS control daemon";
/// How long an answer may take.
const ASK_LIMIT: Duration = Duration::from_secs(5);
/// More than the clients of all servers.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// The program does not run.
    #[error("{PROGRAM} does not run: {0}")]
    Io(#[from] io::Error),
    /// It takes too long.
    #[error("{PROGRAM} has not answered within {ASK_LIMIT:?}")]
    TimedOut,
    /// It says that it has failed.
    #[error("{PROGRAM} says: {0}")]
    Failed(String),
}

/// The first executable file of that name on `PATH`.
#[must_use]
pub fn find_on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let is_executable = |file: &PathBuf| {
        fs::metadata(file).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    env::split_paths(&path).map(|folder| folder.join(program)).find(is_executable)
}

/// The program, and the folders that it is to use.
#[derive(Debug, Clone)]
pub struct Control {
    program: PathBuf,
    pipes: PathBuf,
    logs: PathBuf,
}

impl Control {
    /// With folders in the runtime folder.
    pub fn new(program: PathBuf, folder: &RuntimeFolder) -> Result<Self, io::Error> {
        let (pipes, logs) = (folder.mps().join("pipe"), folder.mps().join("log"));
        for folder in [&pipes, &logs] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        Ok(Self { program, pipes, logs })
    }

    /// Where its pipes are.
    #[must_use]
    pub fn pipe_directory(&self) -> &Path {
        &self.pipes
    }

    /// Where it writes what it would write to a terminal.
    #[must_use]
    pub fn output(&self) -> PathBuf {
        self.logs.join(OUTPUT)
    }

    /// What it and its clients have to have in their environment.
    #[must_use]
    pub fn environment(&self) -> [(String, String); 2] {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("CUDA_MPS_PIPE_DIRECTORY".to_string(), text(&self.pipes)),
            ("CUDA_MPS_LOG_DIRECTORY".to_string(), text(&self.logs)),
        ]
    }

    /// Starts it in the foreground, in a process group of its own: a Ctrl-C that ends us must not end it before its
    /// clients.
    pub(super) fn start(&self) -> Result<Process, io::Error> {
        let output = File::create(self.output())?;
        let child = self
            .command()
            .arg("-f")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()?;
        Ok(Process::Child(child))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.envs(self.environment());
        // They are between us and whoever started us.
        command.env_remove(crate::ready::FD_VARIABLE).env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        command
    }

    /// Asks the one that runs.
    pub async fn ask(&self, question: &str) -> Result<String, AskError> {
        timeout(ASK_LIMIT, self.ask_unbounded(question)).await.unwrap_or(Err(AskError::TimedOut))
    }

    async fn ask_unbounded(&self, question: &str) -> Result<String, AskError> {
        let mut command = self.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn()?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that has ended by now has a status that says more.
            _ = stdin.write_all(format!("{question}\n").as_bytes()).await;
        }
        let (answer, complaint) = tokio::join!(read(child.stdout.take()), read(child.stderr.take()));
        let status = child.wait().await?;
        let (answer, complaint) = (answer?, complaint?);
        if status.success() && !complaint.contains(NOBODY) && !answer.contains(NOBODY) {
            return Ok(answer);
        }
        let text = [answer, complaint].concat();
        Err(AskError::Failed(format!("{} ({status})", text.trim())))
    }

    /// The pids of its servers.
    pub async fn servers(&self) -> Result<Vec<u32>, AskError> {
        let list = self.ask("get_server_list").await?;
        Ok(list.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect())
    }

    /// All clients.
    pub async fn clients(&self) -> Result<BTreeSet<Client>, AskError> {
        let mut clients = BTreeSet::new();
        for server in self.servers().await? {
            clients.extend(Client::all(&self.ask(&format!("get_client_list {server}")).await?));
        }
        // Newer ones have a table of all, with those whose server is not up yet.
        if let Ok(table) = self.ask("ps").await {
            clients.extend(Client::all(&table));
        }
        Ok(clients)
    }
}

async fn read(from: Option<impl AsyncReadExt + Unpin>) -> Result<String, io::Error> {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        from.take(LONGEST_ANSWER).read_to_end(&mut bytes).await?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The control daemon's process.
#[derive(Debug)]
pub(super) enum Process {
    /// Our own child.
    Child(Child),
    /// An earlier daemon's, by its pidfd.
    Adopted { process: AsyncFd<OwnedFd>, pid: u32 },
    /// An earlier daemon's that has not said its pid: its end is not seen, only that it does not answer.
    Unknown,
}

impl Process {
    /// The one that runs already, by the pid that it wrote down.
    pub(super) fn adopted(control: &Control) -> Self {
        let found = || {
            let pid = fs::read_to_string(control.pipes.join(PID_FILE)).ok()?.trim().parse().ok()?;
            let owner = Owner::of_process(pid).ok()?;
            // The pid of one that has died could be anybody's.
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
            let name = control.program.file_name().and_then(OsStr::to_str)?;
            String::from_utf8_lossy(&arguments).contains(name).then_some(())?;
            let process = owner.as_fd().try_clone_to_owned().ok()?;
            let process = crate::readiness::of_process(process).ok()?;
            Some(Self::Adopted { process, pid })
        };
        found().unwrap_or(Self::Unknown)
    }

    pub(super) fn pid(&self) -> Option<u32> {
        match self {
            Self::Child(child) => child.id(),
            Self::Adopted { pid, .. } => Some(*pid),
            Self::Unknown => None,
        }
    }

    pub(super) const fn has_handle(&self) -> bool {
        !matches!(self, Self::Unknown)
    }

    /// Returns when it has ended; never, if that cannot be seen.
    pub(super) async fn ended(&mut self) {
        match self {
            // An error would mean that it is no child of ours any more.
            Self::Child(child) => _ = child.wait().await,
            Self::Adopted { process, .. } => _ = process.readable().await,
            Self::Unknown => std::future::pending().await,
        }
    }

    /// Ends it by force, if that can be done to it and no other.
    pub(super) async fn kill(&mut self) {
        match self {
            // It may have ended by itself.
            Self::Child(child) => _ = child.kill().await,
            Self::Adopted { process, .. } => {
                _ = rustix::process::pidfd_send_signal(process.get_ref(), rustix::process::Signal::KILL);
            }
            Self::Unknown => {}
        }
    }
}
