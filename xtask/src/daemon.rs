//! A daemon of our own for as long as it is needed, in a folder of its own.

use crate::process::run;
use crate::softgpu::Way;
use anyhow::{Context, Result, ensure};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A daemon that runs. Dropped, it is stopped.
pub(crate) struct Daemon {
    /// Where it lives, in a folder that goes when it does.
    folder: PathBuf,
    cli: PathBuf,
    parent: tempfile::TempDir,
}

impl Daemon {
    /// Starts one with this policy.
    pub(crate) fn start(built: &Path, policy: &str) -> Result<Self> {
        // A socket's path is short: not in the target folder, which may lie deep.
        let parent = tempfile::tempdir()?;
        let daemon = Self { folder: parent.path().join("run"), cli: built.join("detshare"), parent };
        let config = daemon.parent.path().join("detshare.toml");
        std::fs::write(&config, format!("policy = \"{policy}\"\n"))?;
        run(daemon.detshare(["up", "--config"]).arg(&config).stdout(Stdio::null()))?;
        Ok(daemon)
    }

    /// The one that programs join that run that way, if they join one.
    pub(crate) fn for_way(built: &Path, way: Way) -> Result<Option<Self>> {
        match way {
            Way::AsTenant => Self::start(built, "fair").map(Some),
            Way::Directly | Way::ThroughShim | Way::Moving | Way::InParts => Ok(None),
        }
    }

    /// What a program needs in its environment to join it.
    pub(crate) fn variable(&self) -> (&'static str, &Path) {
        ("DETSHARE_DIR", &self.folder)
    }

    /// A command to it.
    pub(crate) fn detshare<const N: usize>(&self, arguments: [impl AsRef<OsStr>; N]) -> Command {
        let mut command = Command::new(&self.cli);
        command.args(arguments).env("DETSHARE_DIR", &self.folder).env_remove("DETSHARE_CONFIG");
        command
    }

    /// What it says when it is asked something.
    pub(crate) fn answer<const N: usize>(&self, arguments: [&str; N]) -> Result<String> {
        let output = self.detshare(arguments).output().context("cannot start detshare")?;
        ensure!(output.status.success(), "detshare {} failed", arguments.join(" "));
        Ok(String::from_utf8(output.stdout)?)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // If it is gone already, there is nothing to stop.
        let _ = self.detshare(["down"]).stdout(Stdio::null()).status();
    }
}
