//! What is learnt while tenants run, on its way to the profiles on disk.
//!
//! It is what tenants say of themselves. One that says what cannot be teaches nothing; any other no more than it could
//! honestly have learnt: widths that its GPU has, and so many kernels that it had not shown before.

use crate::profiles::{Gpu, KernelProfile, Loaded, Profiles, ProfilesError, Store, TenantProfile};
use detshare_board::KernelNote;
use std::collections::{BTreeMap, BTreeSet};

/// Models and drivers that are learnt of between two times of saving; a machine has one or two.
pub(crate) const MOST_GPUS: usize = 16;
/// Kernels that one tenant may show for the first time between two times of saving. A program that has more than that
/// at once is known in full the time after.
pub(crate) const MOST_NEW: usize = 1_024;

/// What was seen of one tenant.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) gpu: Gpu,
    pub(crate) name: String,
    pub(crate) tenant: TenantProfile,
    pub(crate) kernels: Vec<KernelNote>,
}

/// Which kernels were learnt from one tenant. Never more than its page has room for.
#[derive(Debug, Default)]
pub(crate) struct Taught(BTreeSet<u64>);

impl Taught {
    /// Of those that a tenant shows, on a GPU that wide, those that are learnt now.
    pub(crate) fn choose(&mut self, shown: Vec<KernelNote>, gpu_width: u32) -> Vec<KernelNote> {
        let mut new = 0;
        let mut chosen = shown;
        chosen.retain_mut(|kernel| {
            // No lane is wider than the GPU.
            kernel.widths.retain(|(width, ..)| *width <= gpu_width);
            let is_new = !self.0.contains(&kernel.identity);
            let is_chosen = !kernel.widths.is_empty() && (!is_new || new < MOST_NEW);
            new += usize::from(is_new && is_chosen);
            is_chosen
        });
        self.0 = chosen.iter().map(|kernel| kernel.identity).collect();
        chosen
    }
}

/// What is known of a GPU's kernels from before, with those first that have been known for longest: there may not be room
/// for all. Blocks.
pub(crate) fn recall(store: &Store, gpu: &Gpu) -> Vec<KernelNote> {
    match store.load(gpu) {
        Ok(loaded) => {
            let profiles = loaded.into_profiles();
            let mut known: Vec<_> = profiles.kernels.iter().collect();
            known.sort_by_key(|(_, kernel)| std::cmp::Reverse(kernel.saves));
            known.into_iter().filter_map(|(key, kernel)| kernel.to_note(key)).collect()
        }
        Err(error) => {
            tracing::warn!(%error, gpu = gpu.model, "profiles could not be read");
            Vec::new()
        }
    }
}

/// What was learnt and is not on disk yet.
#[derive(Debug, Default)]
pub(crate) struct Learnt(BTreeMap<Gpu, Profiles>);

impl Learnt {
    pub(crate) fn add(&mut self, seen: Seen) {
        let Seen { gpu, name, tenant, kernels } = seen;
        let is_nothing = tenant.is_empty() && kernels.is_empty();
        if is_nothing || (self.0.len() >= MOST_GPUS && !self.0.contains_key(&gpu)) {
            return;
        }
        let mut seen = Profiles::new(&gpu);
        if !tenant.is_empty() {
            seen.tenants.insert(name, tenant);
        }
        seen.kernels.extend(kernels.iter().map(KernelProfile::of));
        let learnt = self.0.entry(gpu).or_insert_with_key(Profiles::new);
        learnt.merge(&seen);
        // Not each time: they are all weighed for it.
        if learnt.is_overfull() {
            learnt.forget_least();
        }
    }

    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Merges it into what is on disk; returns how many files were written. Blocks. What cannot be saved is lost: it is learnt
    /// again.
    pub(crate) fn save(self, store: &Store) -> u64 {
        let mut written = 0;
        for (gpu, seen) in self.0 {
            match save_one(store, &gpu, &seen) {
                Ok(()) => written += 1,
                Err(error) => tracing::warn!(%error, gpu = gpu.model, "profiles were not saved"),
            }
        }
        written
    }
}

fn save_one(store: &Store, gpu: &Gpu, seen: &Profiles) -> Result<(), ProfilesError> {
    let loaded = store.load(gpu)?;
    if let Loaded::SetAside(_, path) = &loaded {
        tracing::warn!(file = %path.display(), "profiles that made no sense were set aside; they are begun again");
    }
    let mut profiles = loaded.into_profiles();
    profiles.merge(seen);
    // In that order: what is new counts for this time, too.
    profiles.count_save(seen);
    profiles.forget_least_beside(seen);
    store.save(gpu, &profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(identities: std::ops::Range<u64>) -> Vec<KernelNote> {
        let note = |identity| KernelNote { identity, name: "k".to_string(), widths: vec![(132, 1, 1), (200, 1, 1)] };
        identities.map(note).collect()
    }

    /// Others have been there for long, and nobody uses them now.
    #[test]
    fn a_new_kernel_is_kept_in_a_full_file_too() {
        const FULL: u64 = 16_384;
        let place = tempfile::tempdir().unwrap();
        let store = Store::new(place.path().to_path_buf());
        let gpu = Gpu { model: "NVIDIA H200".to_string(), driver: "580.82.07".to_string() };
        let mut full = Profiles::new(&gpu);
        full.kernels.extend(notes(1..FULL + 1).iter().map(KernelProfile::of));
        full.kernels.values_mut().for_each(|kernel| kernel.saves = 50);
        store.save(&gpu, &full).unwrap();
        for saves in 1..=2 {
            let mut learnt = Learnt::default();
            let (gpu, kernels) = (gpu.clone(), notes(FULL + 1..FULL + 2));
            let (new, _) = KernelProfile::of(&kernels[0]);
            learnt.add(Seen { gpu: gpu.clone(), name: "new".to_string(), tenant: TenantProfile::default(), kernels });
            assert_eq!(learnt.save(&store), 1);
            let known = store.load(&gpu).unwrap().into_profiles().kernels;
            assert_eq!(known.get(&new).map(|kernel| kernel.saves), Some(saves));
            assert_eq!(known.len() as u64, FULL);
        }
    }

    #[test]
    fn one_that_always_shows_others_teaches_little() {
        let most = MOST_NEW as u64;
        let mut taught = Taught::default();
        let first = taught.choose(notes(1..2_000), 132);
        assert_eq!(first.len(), MOST_NEW);
        assert!(first.iter().all(|kernel| kernel.widths == [(132, 1, 1)]), "no lane is wider than the GPU");
        assert_eq!(taught.choose(notes(1..2_000), 132).len(), 1_999, "an honest one is known in full the time after");
        assert_eq!(taught.choose(notes(5_000..9_000), 132).len(), MOST_NEW);
        assert_eq!(taught.choose(notes(5_000..9_000), 132).len(), 2 * MOST_NEW);
        assert_eq!(taught.choose(notes(1..most * 4), 16), [], "none of its lanes can be that wide");
        assert!(taught.0.is_empty(), "nothing is kept of those that are not shown any more");
    }
}
