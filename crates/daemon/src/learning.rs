//! What is learnt while tenants run, on its way to the profiles on disk.

use crate::profiles::{Gpu, Loaded, Profiles, ProfilesError, Store, TenantProfile};
use std::collections::BTreeMap;

/// Models and drivers that are learnt of between two times of saving; a machine has one or two.
const MOST_GPUS: usize = 16;

/// What was learnt and is not on disk yet.
#[derive(Debug, Default)]
pub(crate) struct Learnt(BTreeMap<Gpu, Profiles>);

impl Learnt {
    pub(crate) fn add(&mut self, gpu: Gpu, name: String, tenant: TenantProfile) {
        if tenant.is_empty() || (self.0.len() >= MOST_GPUS && !self.0.contains_key(&gpu)) {
            return;
        }
        let mut seen = Profiles::new(&gpu);
        seen.tenants.insert(name, tenant);
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
