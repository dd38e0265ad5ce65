//! What the tenants of an arm are seen to do, twenty times in a second.

use super::clock;
use detshare_api::{Client, RuntimeFolder, Tenant};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(50);

/// A tenant at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Seconds of the clock that all processes share.
    pub(crate) at: f64,
    pub(crate) tenant: String,
    pub(crate) busy: bool,
    pub(crate) holding: bool,
    pub(crate) lane: String,
    /// Launches that were held, since it came.
    pub(crate) holds: u64,
    pub(crate) gpu: String,
    pub(crate) mps_client: Option<bool>,
}

impl Sample {
    fn new(at: f64, tenant: Tenant) -> Self {
        let Tenant { name, busy, holding, lane, holds, gpu, mps_client, .. } = tenant;
        Self { at, tenant: name, busy, holding, lane, holds, gpu, mps_client }
    }
}

/// What was seen of a tenant in all.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct TenantSeen {
    pub(crate) tenant: String,
    pub(crate) looks: usize,
    /// How often it was busy then.
    pub(crate) busy: usize,
    /// How often a launch was held then.
    pub(crate) holding: usize,
    /// Launches that were held, since it came.
    pub(crate) holds: u64,
    pub(crate) lanes: BTreeSet<String>,
    /// As it was said last.
    pub(crate) mps_client: Option<bool>,
}

/// Each tenant, by its name.
pub(crate) fn seen(samples: &[Sample]) -> Vec<TenantSeen> {
    let names: BTreeSet<&String> = samples.iter().map(|sample| &sample.tenant).collect();
    let of = |name: &String| {
        let mine: Vec<&Sample> = samples.iter().filter(|sample| sample.tenant == *name).collect();
        TenantSeen {
            tenant: name.clone(),
            looks: mine.len(),
            busy: mine.iter().filter(|sample| sample.busy).count(),
            holding: mine.iter().filter(|sample| sample.holding).count(),
            holds: mine.iter().map(|sample| sample.holds).max().unwrap_or(0),
            lanes: mine.iter().map(|sample| sample.lane.clone()).collect(),
            mps_client: mine.iter().rev().find_map(|sample| sample.mps_client),
        }
    };
    names.into_iter().map(of).collect()
}

/// A thread that looks. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Sample>>>,
}

impl Sampler {
    pub(crate) fn start(folder: RuntimeFolder) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&is_over);
        let look = move || {
            let mut samples = Vec::new();
            let Ok(client) = Client::new(&folder) else { return samples };
            while !told.load(Ordering::Relaxed) {
                let at = clock::now();
                // A look that fails is one that is missing.
                samples.extend(client.tenants().into_iter().flatten().map(|tenant| Sample::new(at, tenant)));
                std::thread::park_timeout(INTERVAL);
            }
            samples
        };
        let thread = std::thread::Builder::new().name("samples".to_string()).spawn(look)?;
        Ok(Self { is_over, thread: Some(thread) })
    }

    /// What was seen.
    pub(crate) fn stop(mut self) -> Vec<Sample> {
        self.end()
    }

    fn end(&mut self) -> Vec<Sample> {
        self.is_over.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return Vec::new() };
        thread.thread().unpark();
        thread.join().unwrap_or_default()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_summed_up_by_tenant() {
        let sample = |tenant: &str, busy: bool, lane: &str, holds: u64| Sample {
            at: 0.0,
            tenant: tenant.to_string(),
            busy,
            holding: !busy,
            lane: lane.to_string(),
            holds,
            gpu: String::new(),
            mps_client: busy.then_some(true),
        };
        let samples =
            [sample("train", true, "full", 0), sample("serve", true, "full", 0), sample("train", false, "rest64", 7)];
        let seen = seen(&samples);
        assert_eq!(seen.iter().map(|one| one.tenant.as_str()).collect::<Vec<_>>(), ["serve", "train"]);
        let train = &seen[1];
        assert_eq!((train.looks, train.busy, train.holding, train.holds), (2, 1, 1, 7));
        assert_eq!((train.lanes.len(), train.mps_client), (2, Some(true)));
    }
}
