//! What is known of kernels and tenants, kept on disk: one file for each GPU model and driver.
//!
//! A kernel's duration at each width, and a tenant's steps at each width, hold for one model of GPU and one driver, and for
//! as long as nobody changes the program. So they are worth keeping over a restart, and not worth a database: a file is
//! read once, merged into in memory, and written as a whole, to a file beside it that then takes its name
//! (`profiles/disk.rs`). A power cut leaves the old one or the new one. A file that is broken all the same, or of another
//! format, is set aside and begun again: profiles can always be measured again.
//!
//! What stands here was said by tenants. What one says counts little: a file that is full forgets first what was there at the
//! fewest times of saving, whatever numbers came with it; only a small part of it is for what is in use now, so that what is new
//! can come to be known at all. And everything has a bound, so that no file grows beyond what is read.

mod disk;

use detshare_board::join::Hello;
use detshare_board::{KERNEL_WIDTHS, KernelNote};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The format of the files; one of another number is set aside.
///
/// Also raised when kernels are told apart otherwise than before: nobody would ask for what is known of them any more.
pub const FORMAT: u32 = 3;

/// Kernels that a file holds at most; a program has hundreds, or a few thousand.
const MOST_KERNELS: usize = 16_384;
/// As many of them need not have been there at more times of saving than others, if they are in use: what one tenant may show for
/// the first time between two times of saving.
const MOST_NEWCOMERS: usize = crate::learning::MOST_NEW;
/// Names of tenants that a file holds at most.
const MOST_TENANTS: usize = 1_024;
/// What was seen before counts as no more than so many, so that a program that has changed is believed in the end.
const MOST_COUNTED: u64 = 1 << 20;
/// Widths of one kernel or tenant: as many as the board has.
const MOST_WIDTHS: usize = KERNEL_WIDTHS;
/// Bytes of a kernel's name: as many as the board has.
const LONGEST_NAME: usize = 96;

/// What profiles belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// The model, as the driver names it.
    pub model: String,
    /// The driver's release.
    pub driver: String,
}

impl Gpu {
    /// The one that a tenant uses.
    #[must_use]
    pub fn of(hello: &Hello) -> Self {
        Self { model: hello.gpu.clone(), driver: hello.driver.clone() }
    }
}

/// A file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    format: u32,
    gpu: String,
    driver: String,
    /// By the kernel's identity.
    #[serde(default)]
    pub kernels: BTreeMap<String, KernelProfile>,
    /// By the tenant's name.
    #[serde(default)]
    pub tenants: BTreeMap<String, TenantProfile>,
}

/// A kernel's durations by the width of the lane that it ran on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelProfile {
    /// At how many times of saving it was there, as far as they count. Numbers that tenants say have no part in it.
    #[serde(default)]
    pub saves: u64,
    /// By width.
    pub widths: BTreeMap<u32, Durations>,
}

/// Durations of one kernel on one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Durations {
    /// How many were measured, as far as they count.
    pub count: u64,
    /// Their mean.
    pub mean_ns: u64,
    /// The shortest.
    pub least_ns: u64,
}

/// A tenant's steps by the width of the lane that it was bound to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantProfile {
    /// By width.
    pub widths: BTreeMap<u32, Steps>,
}

/// Steps of one tenant on one width. Quantiles of several times are put together by their weight, which is near enough to
/// begin with when the tenant comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steps {
    /// How many were seen, as far as they count.
    pub count: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
}

impl Profiles {
    /// Nothing known yet.
    #[must_use]
    pub fn new(gpu: &Gpu) -> Self {
        Self {
            format: FORMAT,
            gpu: gpu.model.clone(),
            driver: gpu.driver.clone(),
            kernels: BTreeMap::new(),
            tenants: BTreeMap::new(),
        }
    }

    /// Adds what was seen since. It may be more than a file holds afterwards: see [`Profiles::forget_least`].
    pub fn merge(&mut self, seen: &Self) {
        for (identity, kernel) in &seen.kernels {
            let known = self.kernels.entry(identity.clone()).or_default();
            merge_widths(&mut known.widths, &kernel.widths, |durations| durations.count, Durations::merge);
        }
        for (name, tenant) in &seen.tenants {
            let known = self.tenants.entry(name.clone()).or_default();
            merge_widths(&mut known.widths, &tenant.widths, |steps| steps.count, Steps::merge);
        }
    }

    /// Whether there is far more than a file holds.
    #[must_use]
    pub fn is_overfull(&self) -> bool {
        self.kernels.len() > 2 * MOST_KERNELS || self.tenants.len() > 2 * MOST_TENANTS
    }

    /// Keeps as much as a file holds: what has most behind it.
    pub fn forget_least(&mut self) {
        keep_most(&mut self.kernels, MOST_KERNELS, KernelProfile::weight, NOBODY_FIRST);
        keep_most(&mut self.tenants, MOST_TENANTS, TenantProfile::weight, NOBODY_FIRST);
    }

    /// The same, but for some places, which what was seen this time has before what was not.
    pub fn forget_least_beside(&mut self, seen: &Self) {
        let is_seen = |kernel: &str| seen.kernels.contains_key(kernel);
        keep_most(&mut self.kernels, MOST_KERNELS, KernelProfile::weight, (MOST_NEWCOMERS, is_seen));
        keep_most(&mut self.tenants, MOST_TENANTS, TenantProfile::weight, NOBODY_FIRST);
    }

    /// What was seen this time counts for one more time of saving; in a full file what was not counts for one less, so that
    /// what nobody uses any more makes room in the end.
    pub fn count_save(&mut self, seen: &Self) {
        let is_full = self.kernels.len() >= MOST_KERNELS;
        for (identity, kernel) in &mut self.kernels {
            if seen.kernels.contains_key(identity) {
                kernel.saves = counted(kernel.saves, 1);
            } else if is_full {
                kernel.saves = kernel.saves.saturating_sub(1);
            }
        }
    }

    /// Whether it is what its place says that it is.
    fn is_of(&self, gpu: &Gpu) -> bool {
        self.format == FORMAT && self.gpu == gpu.model && self.driver == gpu.driver
    }
}

/// No places for those who go before others.
const NOBODY_FIRST: (usize, fn(&str) -> bool) = (0, |_| false);

/// Keeps the heaviest, and in as many of the last places those that go before others whatever they weigh.
fn keep_most<V, W: Ord>(
    map: &mut BTreeMap<String, V>,
    most: usize,
    weight: impl Fn(&V) -> W,
    (last_places, goes_before): (usize, impl Fn(&str) -> bool),
) {
    if map.len() <= most {
        return;
    }
    let mut weighed: Vec<_> = map.iter().map(|(key, value)| (weight(value), key.clone())).collect();
    weighed.sort_unstable_by(|one, other| other.cmp(one));
    let mut rest = weighed.split_off(most - last_places);
    rest.sort_by_key(|(_, key)| !goes_before(key));
    rest.iter().skip(last_places).for_each(|(_, key)| _ = map.remove(key));
}

fn merge_widths<V: Copy>(
    known: &mut BTreeMap<u32, V>,
    seen: &BTreeMap<u32, V>,
    count: impl Fn(&V) -> u64,
    merge: impl Fn(&mut V, V),
) {
    for (width, value) in seen {
        // A GPU has no more widths than SMs; whoever says otherwise is not believed.
        if *width > detshare_board::MOST_SMS {
            continue;
        }
        if !known.contains_key(width) && known.len() >= MOST_WIDTHS {
            let least = known.iter().min_by_key(|(_, value)| count(value)).map(|(width, _)| *width);
            least.and_then(|least| known.remove(&least));
        }
        known.entry(*width).and_modify(|known| merge(known, *value)).or_insert(*value);
    }
}

impl Durations {
    /// A tenant goes on from what was known, so what it has seen last is what is known now.
    fn merge(&mut self, seen: Self) {
        *self = Self { least_ns: self.least_ns.min(seen.least_ns), ..seen };
    }
}

impl KernelProfile {
    /// How much there is behind it: how long it has been known, and then how often it was measured.
    fn weight(&self) -> (u64, u64) {
        (self.saves, self.widths.values().fold(0, |sum, durations| sum.saturating_add(durations.count)))
    }

    /// As a tenant has it on the board, with the name that it has here.
    #[must_use]
    pub fn of(kernel: &KernelNote) -> (String, Self) {
        let durations = |(width, ns, measured): &(u32, u64, u32)| {
            (*width, Durations { count: counted(0, u64::from(*measured)), mean_ns: *ns, least_ns: *ns })
        };
        let widths = kernel.widths.iter().map(durations).collect();
        let name = &kernel.name[..kernel.name.floor_char_boundary(LONGEST_NAME)];
        (format!("{:016x} {name}", kernel.identity), Self { saves: 0, widths })
    }

    /// As the board has it; nothing if it was kept under a name that is none.
    #[must_use]
    pub fn to_note(&self, key: &str) -> Option<KernelNote> {
        let (identity, name) = key.split_once(' ')?;
        let identity = u64::from_str_radix(identity, 16).ok().filter(|identity| *identity != 0)?;
        let width = |(width, durations): (&u32, &Durations)| {
            (*width, durations.mean_ns, u32::try_from(durations.count).unwrap_or(u32::MAX))
        };
        Some(KernelNote { identity, name: name.to_string(), widths: self.widths.iter().map(width).collect() })
    }
}

impl TenantProfile {
    /// Adds steps on a width.
    pub fn add(&mut self, width: u32, seen: Steps) {
        let seen = Steps { count: counted(0, seen.count), ..seen };
        merge_widths(&mut self.widths, &BTreeMap::from([(width, seen)]), |steps| steps.count, Steps::merge);
    }

    fn weight(&self) -> u64 {
        self.widths.values().fold(0, |sum, steps| sum.saturating_add(steps.count))
    }

    /// Whether nothing is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.widths.is_empty()
    }
}

impl Steps {
    fn merge(&mut self, seen: Self) {
        self.p50_ns = weighted((self.p50_ns, self.count), (seen.p50_ns, seen.count));
        self.p99_ns = weighted((self.p99_ns, self.count), (seen.p99_ns, seen.count));
        self.count = counted(self.count, seen.count);
    }
}

fn counted(known: u64, seen: u64) -> u64 {
    known.saturating_add(seen).min(MOST_COUNTED)
}

/// The mean of two values by their counts; the first if both have none.
fn weighted((known, known_count): (u64, u64), (seen, seen_count): (u64, u64)) -> u64 {
    let (known_count, seen_count) =
        (u128::from(known_count.min(MOST_COUNTED)), u128::from(seen_count.min(MOST_COUNTED)));
    let sum = u128::from(known) * known_count + u128::from(seen) * seen_count;
    // Between the two, so it fits.
    sum.checked_div(known_count + seen_count).and_then(|mean| u64::try_from(mean).ok()).unwrap_or(known)
}

/// Why profiles could not be kept or had. Tenants run without.
#[derive(Debug, thiserror::Error)]
pub enum ProfilesError {
    /// The system refused.
    #[error("cannot {what} {}: {source}; what is learnt is kept in memory only", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// What loading found.
#[derive(Debug)]
pub enum Loaded {
    /// There was none.
    New(Profiles),
    /// It was there.
    Known(Profiles),
    /// It made no sense and was set aside, under this path.
    SetAside(Profiles, PathBuf),
}

impl Loaded {
    /// What is known now.
    #[must_use]
    pub fn into_profiles(self) -> Profiles {
        let (Self::New(profiles) | Self::Known(profiles) | Self::SetAside(profiles, _)) = self;
        profiles
    }
}

/// The folder with the files. Its functions block.
#[derive(Debug, Clone)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// In that folder; it is made when the first file is saved.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Where it is.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is known of this GPU.
    pub fn load(&self, gpu: &Gpu) -> Result<Loaded, ProfilesError> {
        let path = self.folder.join(disk::file_name(gpu));
        let Some(bytes) = disk::read(&path)? else { return Ok(Loaded::New(Profiles::new(gpu))) };
        match serde_json::from_slice::<Profiles>(&bytes) {
            Ok(profiles) if profiles.is_of(gpu) => Ok(Loaded::Known(profiles)),
            _ => Ok(Loaded::SetAside(Profiles::new(gpu), disk::set_aside(&path)?)),
        }
    }

    /// Writes all of it, in one step.
    pub fn save(&self, gpu: &Gpu, profiles: &Profiles) -> Result<(), ProfilesError> {
        disk::write(&self.folder, &disk::file_name(gpu), profiles)
    }

    /// How many files there are, and how many were set aside.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        disk::count(&self.folder)
    }
}

#[cfg(test)]
mod tests;
