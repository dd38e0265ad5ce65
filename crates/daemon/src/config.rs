//! The configuration file: what may be in it, and noticing that it has changed.
//!
//! Every key is optional. An unknown key, or a value that cannot be, is an error that names the line; nothing of such a
//! file is used.

mod quantity;

pub use quantity::{Bytes, Ladder, LongestHold, Nanoseconds, PolicyName, Share, Weight, known_policies};

use detshare_api::Class;
use detshare_board::Entry;
use detshare_board::join::is_name;
use detshare_policy::Dial;
use rustix::fs::OFlags;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tracing_subscriber::EnvFilter;

/// A configuration has a few lines; what is longer is another file.
const LONGEST_FILE: u64 = 1 << 20;

/// What is in the file, or would be if it were there.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Which policy all follow.
    pub policy: PolicyName,
    /// What is to keep tenants apart. Takes effect when the daemon starts.
    pub isolation: IsolationSetting,
    /// The class of tenants that do not say theirs.
    pub default_class: Class,
    /// The widths of `front` in the splits that tenants may be bound to.
    pub ladder: Ladder,
    /// How long a launch may be held.
    pub longest_hold: LongestHold,
    /// What a best-effort tenant gets in any case.
    pub least_share: Share,
    /// How much best-effort tenants may disturb: from 0, never, to 1, use everything.
    pub aggressiveness: Share,
    /// What all tenants of a class get.
    pub classes: Classes,
    /// What tenants of a name get unless they say otherwise themselves.
    pub tenants: BTreeMap<String, TenantSettings>,
    /// What is logged: a level, or levels by module.
    pub log: LogFilter,
    /// Profiles on disk.
    pub profiles: ProfilesSettings,
}

impl Default for Config {
    fn default() -> Self {
        let usual = Entry::new(detshare_board::Class::BestEffort);
        Self {
            policy: PolicyName("slo-aware".to_string()),
            isolation: IsolationSetting::Auto,
            default_class: Class::BestEffort,
            ladder: Ladder(vec![16, 32, 48, 64, 96]),
            longest_hold: LongestHold(usual.limits.longest_hold_ns),
            least_share: Share(usual.limits.least_share),
            aggressiveness: Share(u32::from(Dial::USUAL.thousandths())),
            classes: Classes::default(),
            tenants: BTreeMap::new(),
            log: LogFilter("info".to_string()),
            profiles: ProfilesSettings::default(),
        }
    }
}

/// What is to keep tenants apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationSetting {
    /// Whatever the machine offers.
    Auto,
    /// MPS.
    Mps,
    /// No MPS: the driver slices the GPU's time, there are no partitions, and best-effort tenants take turns.
    Process,
}

/// What tenants of a class get. Latency tenants are not held, so there is nothing to say of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Classes {
    /// Those that take what is left.
    pub best_effort: BestEffortSettings,
}

/// What best-effort tenants get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BestEffortSettings {
    /// Whether long kernels that come as PTX give way in the middle; `detshare run --block-level` asks for one tenant.
    pub block_level: bool,
    /// Within what time they are to.
    pub turnaround: Nanoseconds,
}

impl Default for BestEffortSettings {
    fn default() -> Self {
        Self { block_level: false, turnaround: Nanoseconds(detshare_policy::block_level::TURNAROUND_NS) }
    }
}

/// What tenants of a name get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantSettings {
    /// Their class.
    pub class: Option<Class>,
    /// Their weight.
    pub weight: Option<Weight>,
    /// The most memory that each may have.
    pub memory: Option<Bytes>,
    /// The 99th percentile of a step that they want to keep to.
    pub p99: Option<Nanoseconds>,
    /// The time to the first token that they want to keep to.
    pub ttft: Option<Nanoseconds>,
    /// The time for each further token that they want to keep to.
    pub tpot: Option<Nanoseconds>,
}

/// Profiles on disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfilesSettings {
    /// Where they are kept. Takes effect when the daemon starts.
    pub folder: Option<PathBuf>,
}

/// A filter that `tracing` can read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct LogFilter(String);

impl TryFrom<String> for LogFilter {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match EnvFilter::try_new(&text) {
            Ok(_) if !text.trim().is_empty() => Ok(Self(text)),
            _ => Err(format!("{text:?} is no log filter: say error, warn, info, debug or trace")),
        }
    }
}

impl LogFilter {
    /// To be put in force.
    #[must_use]
    pub fn filter(&self) -> EnvFilter {
        EnvFilter::new(&self.0)
    }
}

/// Why a configuration is not used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration {}: {source}", file.display())]
    Unreadable {
        /// Which.
        file: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It is not what a configuration is.
    #[error("the configuration {} is wrong in line {line}: {problem}", file.display())]
    Wrong {
        /// Which.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// No file of ours is so long.
    #[error("the configuration {} has more than {LONGEST_FILE} bytes: is it the right file?", .0.display())]
    TooLong(PathBuf),
}

/// Reads a configuration; one that is not there is the default.
pub fn read(file: &Path) -> Result<Config, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { file: file.to_path_buf(), source };
    let mut bytes = Vec::new();
    // Not blocking: a pipe that nobody writes to is an empty file.
    match fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(file) {
        Ok(opened) => opened.take(LONGEST_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Config::default()),
        Err(error) => return Err(unreadable(error)),
    };
    if bytes.len() as u64 > LONGEST_FILE {
        return Err(ConfigError::TooLong(file.to_path_buf()));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + valid.iter().filter(|byte| **byte == b'\n').count();
        ConfigError::Wrong { file: file.to_path_buf(), line, problem: "it is not UTF-8 text".to_string() }
    })?;
    parse(&text).map_err(|(line, problem)| ConfigError::Wrong { file: file.to_path_buf(), line, problem })
}

/// Reads the text; else the line and what is wrong in it.
fn parse(text: &str) -> Result<Config, (usize, String)> {
    let config: Config = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        let message = error.message().trim().replace('\n', " ");
        (1 + before.matches('\n').count(), message)
    })?;
    match config.tenants.keys().find(|name| !is_name(name)) {
        Some(name) => {
            let line = text.lines().position(|line| line.contains(name.as_str())).unwrap_or_default() + 1;
            Err((line, format!("no tenant can have the name {name:?}: letters, digits, '.', '_' and '-', at most 63")))
        }
        None => Ok(config),
    }
}

/// A configuration file that is looked at now and then.
#[derive(Debug)]
pub struct ConfigFile {
    path: Option<PathBuf>,
    seen: Option<Stamp>,
}

/// What differs between two files at one path. Nothing if there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: (i64, i64),
    inode: u64,
    size: u64,
}

impl From<Metadata> for Stamp {
    fn from(found: Metadata) -> Self {
        Self { modified: (found.mtime(), found.mtime_nsec()), inode: found.ino(), size: found.size() }
    }
}

impl ConfigFile {
    /// Of a path, or of none: then it is always the default.
    #[must_use]
    pub const fn new(path: Option<PathBuf>) -> Self {
        Self { path, seen: None }
    }

    /// Where it is looked for.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Whether it is another one than when it was last read.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.stamp() != self.seen
    }

    /// Reads it. What is written meanwhile is noticed by the next look.
    pub fn read(&mut self) -> Result<Config, ConfigError> {
        self.seen = self.stamp();
        self.path.as_deref().map_or_else(|| Ok(Config::default()), read)
    }

    fn stamp(&self) -> Option<Stamp> {
        fs::metadata(self.path.as_deref()?).ok().map(Stamp::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key() {
        let config = parse(
            r#"
            policy = "exclusive"
            isolation = "process"
            default_class = "latency"
            ladder = [8, 24]
            longest_hold = "5ms"
            least_share = 0.25
            log = "warn,detshare_daemon=debug"
            [tenants.train]
            class = "best-effort"
            weight = 300
            memory = "40GiB"
            [tenants."serve.py"]
            p99 = "5ms"
            ttft = "200ms"
            tpot = "30ms"
            [profiles]
            folder = "/var/lib/detshare"
            [classes.best-effort]
            block_level = true
            turnaround = "50us"
            "#,
        )
        .unwrap();
        assert_eq!((config.policy.0.as_str(), config.isolation), ("exclusive", IsolationSetting::Process));
        assert_eq!((config.default_class, config.ladder.0.as_slice()), (Class::Latency, &[8, 24][..]));
        assert_eq!((config.longest_hold.0, config.least_share.0), (5_000_000, 250));
        let blocks = BestEffortSettings { block_level: true, turnaround: Nanoseconds(50_000) };
        assert_eq!(config.classes.best_effort, blocks);
        let train = config.tenants["train"];
        assert_eq!((train.class, train.weight), (Some(Class::BestEffort), Some(Weight(300))));
        assert_eq!(train.memory, Some(Bytes(40 << 30)));
        assert_eq!(config.tenants["serve.py"].tpot, Some(Nanoseconds(30_000_000)));
        assert_eq!(config.profiles.folder.as_deref(), Some(Path::new("/var/lib/detshare")));
    }

    #[test]
    fn nothing_is_the_default() {
        assert_eq!(parse("").unwrap(), Config::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, word) in [
            ("\npolcy = \"fair\"", 2, "polcy"),
            ("policy = \"best\"", 1, "exclusive"),
            ("log = \"info\"\nleast_share = 2.0", 2, "from 0 to 1"),
            ("ladder = [32, 16]", 1, "rise"),
            ("longest_hold = \"20s\"", 1, "10s"),
            ("[tenants.a]\nweight = 0", 2, "from 1 to"),
            ("[classes.latency]\nblock_level = true", 1, "best-effort"),
            ("[tenants.a]\nmemory = \"lots\"", 2, "40GiB"),
            ("[tenants.a]\ncolour = 1", 2, "colour"),
            ("\n[tenants.\"a b\"]\nweight = 1", 2, "a b"),
            ("log = \"=,=\"", 1, "log filter"),
            ("isolation = \"none\"", 1, "auto"),
            ("default_class = \"fast\"", 1, "`latency` or `best-effort`"),
            ("[tenants.a]\nweight = 1\nclass = \"fast\"", 3, "`latency` or `best-effort`"),
            ("policy = ", 1, ""),
        ] {
            let (found, problem) = parse(text).unwrap_err();
            assert_eq!(found, line, "{text}: {problem}");
            assert!(problem.contains(word), "{text}: {problem}");
            assert!(!problem.contains('\n'), "{problem:?} is one line");
        }
    }

    #[test]
    fn a_change_is_noticed_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("detshare.toml");
        let mut file = ConfigFile::new(Some(path.clone()));
        assert_eq!(file.read().unwrap(), Config::default(), "it need not be there");
        assert!(!file.has_changed());
        fs::write(&path, "policy = \"exclusive\"").unwrap();
        assert!(file.has_changed());
        assert_eq!(file.read().unwrap().policy.0, "exclusive");
        assert!(!file.has_changed());
        fs::write(&path, "nonsense").unwrap();
        assert!(file.has_changed());
        assert!(matches!(file.read(), Err(ConfigError::Wrong { line: 1, .. })));
        assert!(!file.has_changed(), "a broken one is not read over and over");
        fs::write(&path, [b'\n', 0xff]).unwrap();
        assert!(matches!(file.read(), Err(ConfigError::Wrong { line: 2, .. })));
        fs::remove_file(&path).unwrap();
        assert!(file.has_changed());
    }
}
