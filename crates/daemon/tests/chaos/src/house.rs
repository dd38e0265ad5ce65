//! A private folder, the daemon in it, and how programs are started there.

use crate::process::{Holdings, Process, holdings};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use detshare_api::{Client, RuntimeFolder};
use rustix::process::Signal;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where the daemon keeps profiles, under its home.
const PROFILES: &str = ".local/state/detshare/profiles";
/// How long anything may take before it is taken for stuck: far longer than it does, also on a machine with much else to
/// do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// How long a question to the daemon may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How often something that tells nobody is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(2);
/// How many SMs the software GPU has, and its one split: little, so that tenants are in each other's way.
const SMS: &str = "16";
const LADDER: &str = "ladder = [8]";
/// Where the folder is, if it can be: in memory, as a user's runtime folder is, so that nobody waits for a disk.
const IN_MEMORY: &str = "/dev/shm";
/// How much of a log is shown.
const TAIL: usize = 25;

/// What is started.
#[derive(Args, Clone)]
pub(crate) struct Programs {
    /// The daemon
    #[arg(long)]
    pub(crate) detshared: PathBuf,
    /// The library that tenants load in place of the driver
    #[arg(long)]
    pub(crate) shim: PathBuf,
    /// The driver
    #[arg(long)]
    pub(crate) softgpu: PathBuf,
    /// The program that tenants are
    #[arg(long)]
    pub(crate) steps_program: PathBuf,
}

impl Programs {
    /// With absolute paths, all of which are there.
    pub(crate) fn found(&self) -> Result<Self> {
        let find = |path: &Path| fs::canonicalize(path).with_context(|| format!("{} is not there", path.display()));
        Ok(Self {
            detshared: find(&self.detshared)?,
            shim: find(&self.shim)?,
            softgpu: find(&self.softgpu)?,
            steps_program: find(&self.steps_program)?,
        })
    }
}

/// The folder with everything in it. All of it goes with this.
pub(crate) struct House {
    pub(crate) programs: Programs,
    place: TempDir,
    daemon: Option<Process>,
    /// What the daemon is started with besides.
    pub(crate) daemon_arguments: &'static [&'static str],
    /// What a daemon has while nobody is there.
    pub(crate) daemon_alone: Option<Holdings>,
    client: Client,
}

impl House {
    /// Without a daemon yet.
    pub(crate) fn new(programs: &Programs, keep: bool) -> Result<Self> {
        let in_memory = tempfile::Builder::new().prefix("chaos-").tempdir_in(IN_MEMORY);
        let place = in_memory.or_else(|_| tempfile::Builder::new().prefix("chaos-").tempdir());
        let mut place = place.context("no folder")?;
        place.disable_cleanup(keep);
        let folder = RuntimeFolder::make(&place.path().join("run"))?;
        let client = Client::new(&folder)?.with_time_limit(ANSWER);
        let programs = programs.found()?;
        let house = Self { programs, place, daemon: None, daemon_arguments: &[], daemon_alone: None, client };
        house.write_config("")?;
        Ok(house)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub(crate) fn run_folder(&self) -> PathBuf {
        self.path("run")
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The settings that all have, and these.
    pub(crate) fn write_config(&self, text: &str) -> Result<()> {
        // In one step: the daemon may look at any time.
        fs::write(self.path("new.toml"), format!("{LADDER}\n{text}\n"))?;
        fs::rename(self.path("new.toml"), self.path("detshare.toml")).context("the configuration is not in its place")
    }

    /// Starts the daemon; it is ready some time later.
    pub(crate) fn start_daemon(&mut self) -> Result<()> {
        ensure!(self.daemon.is_none(), "a daemon runs already");
        let mut command = Command::new(&self.programs.detshared);
        command
            .env_clear()
            .env("HOME", self.place.path())
            .args(["--folder".as_ref(), self.run_folder().as_os_str()])
            .args(["--config".as_ref(), self.path("detshare.toml").as_os_str()])
            .args(self.daemon_arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(self.log_file("daemon.log")?);
        self.daemon = Some(Process::start(&mut command)?);
        Ok(())
    }

    /// Starts the daemon while nobody is there, waits until it answers, and sees what it has then.
    pub(crate) fn start_daemon_and_wait(&mut self) -> Result<()> {
        self.start_daemon()?;
        until("the daemon's first answer", || self.client.status().ok())?;
        self.daemon_alone = Some(self.daemon_at_rest(None)?);
        Ok(())
    }

    /// What the daemon has when nobody is there: no more than before, if it comes to that. It may be less: a question's connection that
    /// was there for long on a busy machine may have counted before.
    pub(crate) fn daemon_at_rest(&self, before: Option<Holdings>) -> Result<Holdings> {
        /// How often it is found the same: a question's own connection is closed a little later.
        const LOOKS: usize = 50;
        let pid = self.daemon_pid().context("no daemon")?;
        until("an empty list", || self.client.tenants().ok().filter(Vec::is_empty))?;
        let (mut last, mut same) = (None, 0);
        let at_rest = until("nothing to be mapped, and no connection", || {
            let had = holdings(pid)?;
            same = if last == Some(had) { same + 1 } else { 0 };
            last = Some(had);
            let is_at_rest = same >= LOOKS && had.tenants_mapped == 0 && had.groups == 1;
            (is_at_rest && before.is_none_or(|before| had.is_within(&before))).then_some(had)
        });
        at_rest.with_context(|| format!("it has {last:?} at last, and before it had {before:?}"))
    }

    /// A counter of the daemon's.
    pub(crate) fn count(&self, name: &str) -> Result<u64> {
        let metrics = self.client.metrics()?;
        let counter = format!("detshare_{name}_total ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&counter)?.trim().parse().ok());
        value.with_context(|| format!("no {counter}"))
    }

    pub(crate) fn log_file(&self, name: &str) -> Result<File> {
        File::options().append(true).create(true).open(self.path(name)).with_context(|| format!("no {name}"))
    }

    /// The running daemon's.
    pub(crate) fn daemon_pid(&self) -> Option<u32> {
        self.daemon.as_ref().map(Process::pid)
    }

    pub(crate) fn signal_daemon(&self, signal: Signal) {
        if let Some(daemon) = &self.daemon {
            daemon.signal(signal);
        }
    }

    pub(crate) fn kill_daemon(&mut self) -> Result<()> {
        match self.daemon.take() {
            Some(mut daemon) => daemon.kill().map(drop),
            None => Ok(()),
        }
    }

    /// Whether the daemon has ended that was asked to; an end that it was not asked for, or with an error, is one.
    pub(crate) fn daemon_has_ended(&mut self) -> Result<bool> {
        let Some(daemon) = &mut self.daemon else { return Ok(true) };
        let Some(status) = daemon.ended()? else { return Ok(false) };
        self.daemon = None;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(true)
    }

    /// It has not ended by itself.
    pub(crate) fn check_daemon(&mut self) -> Result<()> {
        if let Some(daemon) = &mut self.daemon
            && let Some(status) = daemon.ended()?
        {
            self.daemon = None;
            bail!("the daemon ended by itself with {status}");
        }
        Ok(())
    }

    /// Ends the daemon in order and looks at what it leaves.
    pub(crate) fn stop_daemon(&mut self) -> Result<()> {
        self.signal_daemon(Signal::TERM);
        let mut ended = Ok(());
        until("the daemon's end", || match self.daemon_has_ended() {
            Ok(has_ended) => has_ended.then_some(()),
            Err(error) => {
                ended = Err(error);
                Some(())
            }
        })?;
        ended?;
        let mut left =
            fs::read_dir(self.run_folder())?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
        // Locking a file that somebody else takes away at the same time would lock nobody out, so it stays.
        left.retain(|name| name != "lock");
        ensure!(left.is_empty(), "the daemon has ended and left {left:?}");
        Ok(())
    }

    /// The files that the daemon keeps profiles in.
    pub(crate) fn profiles(&self) -> Result<Vec<PathBuf>> {
        let folder = self.path(PROFILES);
        fs::read_dir(&folder)
            .with_context(|| format!("no {}", folder.display()))?
            .map(|entry| Ok(entry?.path()))
            .collect()
    }

    /// The program of a tenant, in the environment that `detshare run` would give it.
    pub(crate) fn tenant_command(&self, class: &str, name: &str) -> Result<Command> {
        let mut command = self.alone_command();
        command
            .env("LD_PRELOAD", &self.programs.shim)
            .env("DETSHARE_DRIVER", &self.programs.softgpu)
            .env("DETSHARE_DIR", self.run_folder())
            .env("DETSHARE_CLASS", class)
            .env("DETSHARE_NAME", name)
            .env("DETSHARE_LOG", "1")
            .stderr(self.log_file("tenants.log")?);
        Ok(command)
    }

    /// The same program without DetShare.
    pub(crate) fn alone_command(&self) -> Command {
        let mut command = Command::new(&self.programs.steps_program);
        command
            .env_clear()
            .env("LD_PRELOAD", &self.programs.softgpu)
            .env("DETSHARE_SOFTGPU_SMS", SMS)
            .stdin(Stdio::null());
        command
    }

    /// The ends of the logs.
    pub(crate) fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            let lines: Vec<_> = text.lines().collect();
            format!("  {name}:\n    {}", lines[lines.len().saturating_sub(TAIL)..].join("\n    "))
        };
        format!("{}\n{}", tail("daemon.log"), tail("tenants.log"))
    }
}

/// Looks until there is something, but not for ever.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> Result<T> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return Ok(found);
        }
        ensure!(Instant::now() < deadline, "waited in vain for {what}");
        std::thread::sleep(LOOK);
    }
}
