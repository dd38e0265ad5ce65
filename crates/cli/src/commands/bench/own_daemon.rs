//! A daemon of our own, in a folder of our own: for the arms of DetShare.

use super::process::{PAUSE, Process};
use super::sampler::Sampler;
use super::workloads;
use crate::program::{Ending, RunError};
use crate::start;
use detshare_api::{Client, ClientError, FolderError, MpsState, RuntimeFolder, Status, places};
use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// `detshare up` waits no longer by itself.
const LONGEST_START: Duration = Duration::from_secs(40);
/// How long a program that is set up may take until it is a tenant.
const LONGEST_JOIN: Duration = Duration::from_secs(10);
/// How long the daemon may take to say who its tenants are before it is asked again: whoever waits has other things to look at.
const LONGEST_ANSWER: Duration = Duration::from_millis(500);
/// Until the daemon has ended, and then until MPS has.
const LONGEST_END: Duration = Duration::from_secs(15);

/// What the daemon is to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Configuration {
    pub(crate) policy: &'static str,
    /// As the configuration file says it.
    pub(crate) isolation: &'static str,
    /// Not said unless it is asked for.
    pub(crate) aggressiveness: Option<f64>,
}

impl Configuration {
    fn text(&self, profiles: &Path) -> String {
        let mut text = format!("policy = {:?}\nisolation = {:?}\n", self.policy, self.isolation);
        if let Some(aggressiveness) = self.aggressiveness {
            let _ = writeln!(text, "aggressiveness = {aggressiveness:?}");
        }
        let _ = writeln!(text, "[profiles]\nfolder = {:?}", profiles.display().to_string());
        text
    }
}

/// Why there is no daemon to be a tenant of.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OwnDaemonError {
    #[error("cannot write the daemon's configuration: {0}; set TMPDIR to a folder that can be written to")]
    File(#[from] std::io::Error),
    #[error("cannot start the daemon: {0}")]
    NotStarted(#[from] RunError),
    #[error("no daemon: {0}")]
    NotUp(String),
    #[error(transparent)]
    Folder(#[from] FolderError),
    #[error("the daemon: {0}")]
    Refused(#[from] ClientError),
    #[error("the daemon follows {found} and not {wanted} ({reason}): choose other arms, or another --isolation")]
    OtherPolicy { wanted: &'static str, found: String, reason: String },
    #[error("the daemon's MPS does not run: see `detshare doctor`, or use --isolation process")]
    NoMps,
    #[error("{program} was not seen as a tenant: see what DETSHARE_LOG=1 says of it under `detshare run`")]
    NoTenant { program: String },
    #[error("{program} is a tenant and no client of the daemon's MPS: see `detshare doctor` for another one that runs")]
    NoClient { program: String },
}

/// A daemon that runs. Dropped, it is stopped.
#[derive(Debug)]
pub(crate) struct OwnDaemon {
    folder: PathBuf,
    config: PathBuf,
    profiles: PathBuf,
    /// MPS of the daemon, if it has one.
    mps: Option<u32>,
}

impl OwnDaemon {
    /// Starts it with folder and configuration below `scratch`.
    pub(crate) fn start(scratch: &Path, configuration: &Configuration) -> Result<Self, OwnDaemonError> {
        let (folder, config) = (scratch.join("run"), scratch.join("detshare.toml"));
        let mut daemon = Self { folder, config, profiles: scratch.join("profiles"), mps: None };
        daemon.configure(configuration)?;
        daemon.up(scratch)?;
        let status = daemon.client()?.status()?;
        daemon.mps = status.mps.as_ref().and_then(|mps| mps.pid);
        daemon.check(&status, configuration)?;
        Ok(daemon)
    }

    /// Has it do something else from now on.
    pub(crate) fn change(&self, configuration: &Configuration) -> Result<(), OwnDaemonError> {
        self.configure(configuration)?;
        let status = self.client()?.reload()?;
        self.check(&status, configuration)
    }

    /// In one go: the daemon may look at any time.
    fn configure(&self, configuration: &Configuration) -> Result<(), OwnDaemonError> {
        let draft = self.config.with_extension("draft");
        std::fs::write(&draft, configuration.text(&self.profiles))?;
        Ok(std::fs::rename(&draft, &self.config)?)
    }

    fn up(&self, scratch: &Path) -> Result<(), OwnDaemonError> {
        let words = scratch.join("up.out");
        let mut up = Command::new(std::env::current_exe()?);
        workloads::clean(&mut up);
        // It is for all GPUs, whoever starts it.
        up.env_remove("CUDA_VISIBLE_DEVICES").envs(self.environment()).arg("up").arg("--config").arg(&self.config);
        // Into a file: who waits for a pipe's end would wait for the daemon's.
        up.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&words)?);
        match Process::start(&mut up)?.wait(LONGEST_START) {
            Some(Ending::Exit(0)) => Ok(()),
            ending => {
                let said = std::fs::read_to_string(&words).unwrap_or_default();
                let reason = said.lines().last().map(reason);
                let ending = ending.map_or("it takes too long".to_string(), |ending| ending.to_string());
                Err(OwnDaemonError::NotUp(reason.unwrap_or(ending)))
            }
        }
    }

    fn check(&self, status: &Status, wanted: &Configuration) -> Result<(), OwnDaemonError> {
        if status.policy != wanted.policy {
            let reason = status.policy_reason.clone().unwrap_or("it does not say why".to_string());
            return Err(OwnDaemonError::OtherPolicy { wanted: wanted.policy, found: status.policy.clone(), reason });
        }
        match &status.mps {
            Some(mps) if mps.state != MpsState::Running => Err(OwnDaemonError::NoMps),
            _ => Ok(()),
        }
    }

    /// What makes a program its tenant, and a command one to it.
    pub(crate) fn environment(&self) -> [(&'static str, &Path); 2] {
        [(places::FOLDER_VARIABLE, &self.folder), (places::CONFIG_VARIABLE, &self.config)]
    }

    /// Whether its tenants are clients of MPS.
    pub(crate) fn has_mps(&self) -> bool {
        self.mps.is_some()
    }

    /// Expects all these programs, which are set up, to become its tenants soon.
    pub(crate) fn expect_tenants(
        &self,
        programs: impl Iterator<Item = &'static str>,
    ) -> Result<ExpectedTenants, OwnDaemonError> {
        Ok(ExpectedTenants {
            client: self.client()?.with_time_limit(LONGEST_ANSWER),
            until: Instant::now() + LONGEST_JOIN,
            missing: programs.collect(),
        })
    }

    /// Looks at its tenants from now on.
    pub(crate) fn sampler(&self) -> Result<Sampler, OwnDaemonError> {
        Ok(Sampler::start(RuntimeFolder::open(&self.folder)?)?)
    }

    fn client(&self) -> Result<Client, OwnDaemonError> {
        Ok(Client::new(&RuntimeFolder::open(&self.folder)?)?)
    }

    /// Ends it and, since a GPU has one MPS at a time and the next arm may have its own, waits for its MPS.
    fn down(&self) -> Result<(), OwnDaemonError> {
        let folder = RuntimeFolder::open(&self.folder)?;
        if start::is_locked(&folder) {
            // If it does not listen, it is killed.
            let _ = self.client()?.shutdown();
            if !becomes_true(|| !start::is_locked(&folder)) {
                kill(&folder.lock(), "detshared");
            }
        }
        // One that was left behind by a daemon that died does not end by itself.
        if let Some(mps) = self.mps
            && !becomes_true(|| !is_mps(mps))
        {
            kill_process(mps);
        }
        Ok(())
    }
}

/// Programs that are to be tenants: on a busy machine they are set up sooner than they are let in. One that is none runs all the
/// same.
#[derive(Debug)]
pub(crate) struct ExpectedTenants {
    client: Client,
    until: Instant,
    /// Those that were not seen yet. Who was seen once may have ended since.
    missing: Vec<&'static str>,
}

impl ExpectedTenants {
    /// Looks who is there; returns those that are still missing.
    pub(crate) fn look(&mut self) -> Result<&[&'static str], OwnDaemonError> {
        let is_last = Instant::now() >= self.until;
        let tenants = self.client.tenants();
        self.heard(tenants.map(|tenants| tenants.into_iter().map(|tenant| tenant.name).collect()), is_last)
    }

    fn heard(
        &mut self,
        tenants: Result<Vec<String>, ClientError>,
        is_last: bool,
    ) -> Result<&[&'static str], OwnDaemonError> {
        match tenants {
            Ok(tenants) => self.missing.retain(|program| tenants.iter().all(|tenant| tenant != program)),
            Err(ClientError::TimedOut(_)) if !is_last => {}
            Err(error) => return Err(error.into()),
        }
        match self.missing.first() {
            Some(program) if is_last => Err(OwnDaemonError::NoTenant { program: program.to_string() }),
            _ => Ok(&self.missing),
        }
    }
}

impl Drop for OwnDaemon {
    fn drop(&mut self) {
        // There is no folder if there never was a daemon.
        let _ = self.down();
    }
}

/// Without where there is more to read: that goes with the folder.
fn reason(line: &str) -> String {
    let line = line.trim_start_matches("detshare: ");
    line.split(" (all of it in ").next().unwrap_or(line).to_string()
}

/// Whether it comes to be so before long.
fn becomes_true(is_so: impl Fn() -> bool) -> bool {
    let until = Instant::now() + LONGEST_END;
    while !is_so() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}

/// Ends the process whose number stands in that file, if it still is what it was.
fn kill(file: &Path, name: &str) {
    let pid = std::fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(pid) = pid.filter(|pid| comm(*pid).is_some_and(|found| found == name)) {
        kill_process(pid);
    }
}

fn kill_process(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn is_mps(pid: u32) -> bool {
    // The kernel keeps 15 characters of a name.
    comm(pid).is_some_and(|name| name.starts_with("nvidia-cuda-mps"))
}

fn comm(pid: u32) -> Option<String> {
    Some(std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_seen_once_is_not_missed_and_a_late_answer_is_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let client = Client::new(&RuntimeFolder::make(&place.path().join("run")).unwrap()).unwrap();
        let mut expected = ExpectedTenants { client, until: Instant::now(), missing: vec!["serve", "train"] };
        let late = || Err(ClientError::TimedOut(LONGEST_ANSWER));
        assert_eq!(expected.heard(late(), false).unwrap(), ["serve", "train"]);
        assert_eq!(expected.heard(Ok(vec!["serve".to_string()]), false).unwrap(), ["train"]);
        assert!(matches!(expected.heard(late(), true), Err(OwnDaemonError::Refused(ClientError::TimedOut(_)))));
        let nobody = expected.heard(Ok(Vec::new()), true).unwrap_err().to_string();
        assert!(nobody.starts_with("train was not seen as a tenant"), "{nobody}");
        // The first has ended by now.
        assert!(expected.heard(Ok(vec!["train".to_string()]), true).unwrap().is_empty());
    }

    #[test]
    fn only_what_is_asked_for_stands_in_the_configuration() {
        let plain = Configuration { policy: "fair", isolation: "mps", aggressiveness: None };
        let profiles = Path::new("/tmp/x/profiles");
        let expected = "policy = \"fair\"\nisolation = \"mps\"\n[profiles]\nfolder = \"/tmp/x/profiles\"\n";
        assert_eq!(plain.text(profiles), expected);
        let eager = Configuration { aggressiveness: Some(1.0), ..plain };
        assert!(eager.text(profiles).contains("\"mps\"\naggressiveness = 1.0\n[profiles]"));
    }
}
