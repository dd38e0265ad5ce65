//! What is learnt while tenants run, on its way to the profiles on disk.

use crate::profiles::{Gpu, KernelProfile, Loaded, Profiles, ProfilesError, Store, TenantProfile};
use detshare_board::KernelNote;
use std::collections::BTreeMap;

/// Models and drivers that are learnt of between two times of saving; a machine has one or two.
const MOST_GPUS: usize = 16;

/// What was seen of one tenant.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) gpu: Gpu,
    pub(crate) name: String,
    pub(crate) tenant: TenantProfile,
    pub(crate) kernels: Vec<KernelNote>,
}

/// What is known of a GPU's kernels from before. Blocks.
pub(crate) fn recall(store: &Store, gpu: &Gpu) -> Vec<KernelNote> {
    match store.load(gpu) {
        Ok(loaded) => {
            let profiles = loaded.into_profiles();
            profiles.kernels.iter().filter_map(|(key, kernel)| kernel.to_note(key)).collect()
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
        seen.kernels.extend(kernels.iter().filter(|kernel| !kernel.widths.is_empty()).map(KernelProfile::of));
        self.0.entry(gpu).or_insert_with_key(Profiles::new).merge(&seen);
    }

    pub(crate) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Merges it into what is on disk. Blocks. What cannot be saved is lost: it is learnt again.
    pub(crate) fn save(self, store: &Store) {
        for (gpu, seen) in self.0 {
            if let Err(error) = save_one(store, &gpu, &seen) {
                tracing::warn!(%error, gpu = gpu.model, "profiles were not saved");
            }
        }
    }
}

fn save_one(store: &Store, gpu: &Gpu, seen: &Profiles) -> Result<(), ProfilesError> {
    let loaded = store.load(gpu)?;
    if let Loaded::SetAside(_, path) = &loaded {
        tracing::warn!(file = %path.display(), "profiles that made no sense were set aside; they are begun again");
    }
    let mut profiles = loaded.into_profiles();
    profiles.merge(seen);
    store.save(gpu, &profiles)
}
