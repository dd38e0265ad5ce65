//! What is known of kernels and tenants, kept on disk: one file for each GPU model and driver.
//!
//! A kernel's duration at each width, and a tenant's steps at each width, hold for one model of GPU and one driver, and for
//! as long as nobody changes the program. So they are worth keeping over a restart, and not worth a database: a file is
//! read once, merged into in memory, and written as a whole, to a file beside it that then takes its name
//! (`profiles/disk.rs`). A power cut leaves the old one or the new one. A file that is broken all the same, or of another
//! format, is set aside and begun again: profiles can always be measured again.

mod disk;

use detshare_board::KernelNote;
use detshare_board::join::Hello;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The format of the files; one of another number is set aside.
pub const FORMAT: u32 = 1;

/// Kernels that a file holds at most; a program has thousands at most.
const MOST_KERNELS: usize = 65_536;
/// Names of tenants that a file holds at most.
const MOST_TENANTS: usize = 1_024;
/// What was seen before counts as no more than so many, so that a program that has changed is believed in the end.
const MOST_COUNTED: u64 = 1 << 20;

/// What profiles belong to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gpu {
    /// The model, as the driver names it.
    pub model: String,
    /// The driver's version, as it numbers itself.
    pub driver_version: u32,
}

impl Gpu {
    /// The one that a tenant uses.
    #[must_use]
    pub fn of(hello: &Hello) -> Self {
        Self { model: hello.gpu.clone(), driver_version: hello.driver_version }
    }
}

/// A file's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profiles {
    format: u32,
    gpu: String,
    driver_version: u32,
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
            driver_version: gpu.driver_version,
            kernels: BTreeMap::new(),
            tenants: BTreeMap::new(),
        }
    }

    /// Adds what was seen since.
    pub fn merge(&mut self, seen: &Self) {
        for (identity, kernel) in &seen.kernels {
            let Some(known) = room(&mut self.kernels, identity, MOST_KERNELS, |known| {
                known.widths.values().map(|durations| durations.count).sum()
            }) else {
                continue;
            };
            merge_widths(&mut known.widths, &kernel.widths, Durations::merge);
        }
        for (name, tenant) in &seen.tenants {
            let Some(known) = room(&mut self.tenants, name, MOST_TENANTS, |known| {
                known.widths.values().map(|steps| steps.count).sum()
            }) else {
                continue;
            };
            merge_widths(&mut known.widths, &tenant.widths, Steps::merge);
        }
    }

    /// Whether it is what its place says that it is.
    fn is_of(&self, gpu: &Gpu) -> bool {
        self.format == FORMAT && self.gpu == gpu.model && self.driver_version == gpu.driver_version
    }
}

/// The place of a key; for a new one where all are taken, that of the one with the least behind it.
fn room<'a, V: Default>(
    map: &'a mut BTreeMap<String, V>,
    key: &str,
    most: usize,
    count: impl Fn(&V) -> u64,
) -> Option<&'a mut V> {
    if !map.contains_key(key) && map.len() >= most {
        let least = map.iter().min_by_key(|(_, value)| count(value)).map(|(key, _)| key.clone())?;
        map.remove(&least);
    }
    Some(map.entry(key.to_string()).or_default())
}

fn merge_widths<V: Copy>(known: &mut BTreeMap<u32, V>, seen: &BTreeMap<u32, V>, merge: impl Fn(&mut V, V)) {
    for (width, value) in seen {
        // A GPU has no more widths than SMs; whoever says otherwise is not believed.
        if *width <= detshare_board::MOST_SMS {
            known.entry(*width).and_modify(|known| merge(known, *value)).or_insert(*value);
        }
    }
}

impl Durations {
    /// A tenant goes on from what was known, so what it has seen last is what is known now.
    fn merge(&mut self, seen: Self) {
        *self = Self { least_ns: self.least_ns.min(seen.least_ns), ..seen };
    }
}

impl KernelProfile {
    /// As a tenant has it on the board, with the name that it has here.
    #[must_use]
    pub fn of(kernel: &KernelNote) -> (String, Self) {
        let durations = |(width, ns, measured): &(u32, u64, u32)| {
            (*width, Durations { count: u64::from(*measured), mean_ns: *ns, least_ns: *ns })
        };
        let widths = kernel.widths.iter().map(durations).collect();
        (format!("{:016x} {}", kernel.identity, kernel.name), Self { widths })
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
        merge_widths(&mut self.widths, &BTreeMap::from([(width, seen)]), Steps::merge);
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
mod tests {
    use super::*;

    fn h200() -> Gpu {
        Gpu { model: "NVIDIA H200".to_string(), driver_version: 13_000 }
    }

    fn profiles_with(name: &str, width: u32, steps: Steps) -> Profiles {
        let mut profiles = Profiles::new(&h200());
        profiles.tenants.entry(name.to_string()).or_default().widths.insert(width, steps);
        profiles
    }

    #[test]
    fn what_was_seen_is_weighed_by_its_count() {
        let mut known = profiles_with("a", 132, Steps { count: 300, p50_ns: 100, p99_ns: 200 });
        known.merge(&profiles_with("a", 132, Steps { count: 100, p50_ns: 500, p99_ns: 1000 }));
        known.merge(&profiles_with("a", 64, Steps { count: 1, p50_ns: 7, p99_ns: 7 }));
        known.merge(&profiles_with("a", u32::MAX, Steps { count: 1, p50_ns: 7, p99_ns: 7 }));
        let widths = &known.tenants["a"].widths;
        assert_eq!(widths[&132], Steps { count: 400, p50_ns: 200, p99_ns: 400 });
        assert_eq!(widths.len(), 2, "no GPU has so many SMs");
    }

    #[test]
    fn numbers_that_cannot_be_do_no_harm() {
        let worst = Steps { count: u64::MAX, p50_ns: u64::MAX, p99_ns: 0 };
        let mut known = profiles_with("a", 1, worst);
        known.merge(&profiles_with("a", 1, worst));
        assert_eq!(known.tenants["a"].widths[&1], Steps { count: MOST_COUNTED, p50_ns: u64::MAX, p99_ns: 0 });
        let mut nothing = profiles_with("a", 1, Steps { count: 0, p50_ns: 5, p99_ns: 5 });
        nothing.merge(&nothing.clone());
        assert_eq!(nothing.tenants["a"].widths[&1].p50_ns, 5);
    }

    #[test]
    fn a_full_file_forgets_the_name_with_the_least_behind_it() {
        let mut known = Profiles::new(&h200());
        for number in 0..MOST_TENANTS {
            let count = if number == 77 { 1 } else { 10 };
            known.merge(&profiles_with(&format!("t{number}"), 8, Steps { count, p50_ns: 1, p99_ns: 1 }));
        }
        known.merge(&profiles_with("new", 8, Steps { count: 1, p50_ns: 1, p99_ns: 1 }));
        assert_eq!(known.tenants.len(), MOST_TENANTS);
        assert!(known.tenants.contains_key("new") && !known.tenants.contains_key("t77"));
    }

    #[test]
    fn what_is_saved_comes_back() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::new(place.path().join("deep/profiles"));
        assert!(matches!(store.load(&h200()), Ok(Loaded::New(_))));
        let mut profiles = profiles_with("serve", 132, Steps { count: 3, p50_ns: 4, p99_ns: 5 });
        let durations = Durations { count: 1, mean_ns: 2, least_ns: 2 };
        profiles.kernels.entry("gemm".to_string()).or_default().widths.insert(64, durations);
        store.save(&h200(), &profiles).unwrap();
        store.save(&h200(), &profiles).unwrap();
        assert!(matches!(store.load(&h200()), Ok(Loaded::Known(found)) if found == profiles));
        let other_driver = Gpu { driver_version: 12_080, ..h200() };
        assert!(matches!(store.load(&other_driver), Ok(Loaded::New(_))));
        assert_eq!(store.count(), (1, 0));
    }

    /// Every beginning of a good file, and bytes that are no file at all.
    #[test]
    fn torn_and_foreign_files_are_set_aside_and_begun_again() {
        let place = tempfile::tempdir().unwrap();
        let store = Store::new(place.path().to_path_buf());
        let profiles = profiles_with("serve", 132, Steps { count: 3, p50_ns: 4, p99_ns: 5 });
        store.save(&h200(), &profiles).unwrap();
        let path = place.path().join(disk::file_name(&h200()));
        let good = std::fs::read(&path).unwrap();
        let text = String::from_utf8(good.clone()).unwrap();
        let end = good.trim_ascii_end().len();
        let mut wrong: Vec<Vec<u8>> = (0..end).map(|length| good[..length].to_vec()).collect();
        wrong.push(text.replace("\"format\": 1", "\"format\": 2").into_bytes());
        wrong.push(text.replace("H200", "H100").into_bytes());
        wrong.push(text.replace("\"count\": 3", "\"count\": -3").into_bytes());
        wrong.push(b"[".repeat(100_000));
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for length in 0..256 {
            let bytes = (0..length).map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state.to_le_bytes()[0]
            });
            wrong.push(bytes.collect());
        }
        for bytes in wrong {
            std::fs::write(&path, &bytes).unwrap();
            let loaded = store.load(&h200()).unwrap();
            let Loaded::SetAside(begun, aside) = loaded else { panic!("taken for good: {bytes:?}") };
            assert_eq!(begun, Profiles::new(&h200()));
            assert_eq!(std::fs::read(aside).unwrap(), bytes, "kept as it was");
            assert!(matches!(store.load(&h200()), Ok(Loaded::New(_))));
        }
        let (files, set_aside) = store.count();
        assert_eq!(files, 0);
        assert_eq!(set_aside, disk::MOST_SET_ASIDE, "not all are kept");
    }
}
