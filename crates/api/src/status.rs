//! The daemon as a whole.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// When it was started, by RFC 3339.
    pub started: String,
    /// How long ago that was.
    pub uptime_s: u64,
    /// The policy that all follow.
    pub policy: String,
    /// Why it is that one, if it is not simply the configured one.
    #[serde(default)]
    pub policy_reason: Option<String>,
    /// How much best-effort tenants may disturb, from 0 to 1.
    #[serde(default)]
    pub aggressiveness: f64,
    /// What keeps the tenants apart on the GPU.
    pub isolation: Isolation,
    /// The runtime folder.
    pub folder: PathBuf,
    /// Where its settings come from.
    pub config: ConfigStatus,
    /// How many tenants there are.
    pub tenants: usize,
    /// How many there can be.
    pub slots: usize,
    /// The MPS control daemon, if the tenants share the GPU by it.
    #[serde(default)]
    pub mps: Option<Mps>,
    /// What has to be in the environment of a program that is started as a tenant.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// What is kept on disk.
    pub profiles: ProfilesStatus,
    /// Whether the daemon can see who asks, and so could watch over it as a tenant. It cannot if it is in another container.
    #[serde(default = "yes")]
    pub sees_you: bool,
}

/// A daemon of a version that does not say so.
const fn yes() -> bool {
    true
}

/// What keeps tenants apart, as it was found or configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// There is no NVIDIA device: nothing is needed.
    None,
    /// All tenants are clients of one MPS server.
    Mps,
    /// The driver slices the GPU's time between them, without partitions.
    Process,
}

impl fmt::Display for Isolation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::None => "none",
            Self::Mps => "mps",
            Self::Process => "process",
        })
    }
}

/// The configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// Where it is looked for; it need not exist.
    pub file: Option<PathBuf>,
    /// What is wrong with it; then the settings from before are still in force.
    #[serde(default)]
    pub error: Option<String>,
}

/// The MPS control daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mps {
    /// How it does.
    pub state: MpsState,
    /// Its process, if it has one.
    #[serde(default)]
    pub pid: Option<u32>,
    /// What its clients have as `CUDA_MPS_PIPE_DIRECTORY`.
    pub pipe_directory: PathBuf,
    /// How often it was started again.
    pub restarts: u64,
}

/// How the MPS control daemon does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MpsState {
    /// It was started and does not answer yet.
    Starting,
    /// It answers.
    Running,
    /// It has ended; it is started again when no tenant is left that knew it, after a pause.
    Down,
    /// It was ended by us.
    Stopped,
}

impl fmt::Display for MpsState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Down => "down",
            Self::Stopped => "stopped",
        })
    }
}

/// Profiles on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfilesStatus {
    /// Where they are; nothing if there is no place for them.
    pub folder: Option<PathBuf>,
    /// How many files there are, one for each GPU model and driver.
    pub files: usize,
    /// How many could not be read and were set aside.
    pub set_aside: usize,
}

/// What `PUT /v1/policy` takes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyChange {
    /// Its name; nothing leaves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How much best-effort tenants may disturb, from 0 to 1; nothing leaves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggressiveness: Option<f64>,
}

/// What comes with every status of 400 and above.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What happened.
    pub error: String,
    /// What to do next.
    #[serde(default)]
    pub hint: Option<String>,
}
