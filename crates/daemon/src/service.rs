//! The daemon's state, and everything that can be done to it. Nothing here waits.
//!
//! One lock is over all that changes. It is held for microseconds and never over an `await`; connections, the HTTP
//! interface and the beat come here and go.

use crate::block_level;
use crate::config::{Config, ConfigError, ConfigFile, Share, known_policies};
use crate::isolation;
use crate::learning::{self, Learnt, MOST_GPUS, Seen};
use crate::log::LogControl;
use crate::metrics::Counters;
use crate::mps::Mps;
use crate::profiles::{Gpu, Store};
use crate::registry::{Applicant, Decided, JoinRefused, Joined, Present, Registry, Stay};
use detshare_api::{
    ConfigStatus, Explanation, Isolation, MpsState, ProfilesStatus, RuntimeFolder, Status, Tenant, TenantPatch,
};
use detshare_board::{Daemon, KERNEL_MODELS, KernelNote, MOST_WEIGHT, SLOTS, clock};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch;

/// Refusals are logged no more often: somebody may try again and again.
const REFUSAL_LOG_PAUSE: Duration = Duration::from_secs(1);

/// Why a tenant is no longer here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Its process has ended.
    Ended,
    /// It has closed its connection and lives on.
    Closed,
    /// It said something, which tenants do not.
    SpokeUp,
    /// It has not read what it was told.
    Deaf,
    /// It has connected again.
    Again,
}

/// Why something that was asked for is not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("there is no tenant {0:?}")]
    NoTenant(String),
    #[error("{what} cannot be {value}")]
    Value { what: &'static str, value: u64 },
    #[error("aggressiveness is a part of the whole, from 0 to 1, not {0}")]
    Aggressiveness(f64),
    #[error("there is no policy {0:?}")]
    NoPolicy(String),
    #[error("the policy {0} needs MPS, and tenants are kept apart without it")]
    PolicyNeedsMps(String),
    #[error(transparent)]
    Config(#[from] ConfigError),
}

impl Refused {
    pub(crate) fn hint(&self) -> String {
        match self {
            Self::NoTenant(_) => "see `detshare ps` for those that are here, by name and pid".to_string(),
            Self::Value { what: "weight", .. } => format!("it is from 1 to {MOST_WEIGHT}"),
            Self::Value { .. } => "it is above 0; null takes it away".to_string(),
            Self::Aggressiveness(_) => "0.25 is usual; see `detshare policy --help`".to_string(),
            Self::NoPolicy(_) => format!("there are: {}", known_policies()),
            Self::PolicyNeedsMps(_) => {
                "use slo-aware or exclusive, or install MPS, set isolation to \"auto\" and restart the daemon"
                    .to_string()
            }
            Self::Config(_) => "the settings from before are still in force; correct the file".to_string(),
        }
    }
}

/// What the daemon is made of.
pub(crate) struct Parts {
    pub(crate) folder: RuntimeFolder,
    pub(crate) board: Daemon,
    pub(crate) config: Config,
    pub(crate) config_file: ConfigFile,
    pub(crate) isolation: Isolation,
    pub(crate) mps: Option<Arc<Mps>>,
    pub(crate) store: Option<Store>,
    pub(crate) log: LogControl,
}

pub(crate) struct Service {
    folder: RuntimeFolder,
    board: Daemon,
    isolation: Isolation,
    mps: Option<Arc<Mps>>,
    store: Option<Store>,
    log: LogControl,
    started: SystemTime,
    started_at: Instant,
    counters: Counters,
    tenants: watch::Sender<usize>,
    stop: watch::Sender<bool>,
    /// Held while profiles are saved: what two save at once is lost of one of them.
    saving: Mutex<()>,
    state: Mutex<State>,
}

struct State {
    config: Config,
    config_file: ConfigFile,
    config_error: Option<String>,
    /// GPUs of whose kernels the board has what is on disk.
    recalled: BTreeSet<Gpu>,
    /// GPUs whose kernels are on the board, by their number there.
    on_board: Vec<Gpu>,
    policy_by_hand: Option<String>,
    aggressiveness_by_hand: Option<Share>,
    registry: Registry,
    learnt: Learnt,
    last_use: Instant,
    last_refusal: Option<Instant>,
}

impl Service {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { folder, board, config, config_file, isolation, mps, store, log } = parts;
        let state = State {
            config,
            config_file,
            config_error: None,
            recalled: BTreeSet::new(),
            on_board: Vec::new(),
            policy_by_hand: None,
            aggressiveness_by_hand: None,
            registry: Registry::default(),
            learnt: Learnt::default(),
            last_use: Instant::now(),
            last_refusal: None,
        };
        let service = Self {
            folder,
            board,
            isolation,
            mps,
            store,
            log,
            started: SystemTime::now(),
            started_at: Instant::now(),
            counters: Counters::default(),
            tenants: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            saving: Mutex::new(()),
            state: Mutex::new(state),
        };
        service.apply(&mut service.state());
        service
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Whoever panicked did so between two steps that each leave it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn board(&self) -> &Daemon {
        &self.board
    }

    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// How many tenants there are, now and from now on.
    pub(crate) fn tenant_count(&self) -> watch::Receiver<usize> {
        self.tenants.subscribe()
    }

    /// Whether the daemon is to end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stop.subscribe()
    }

    pub(crate) fn stop(&self) {
        self.stop.send_replace(true);
    }

    // ---- Tenants that come and go

    pub(crate) fn join(&self, applicant: Applicant) -> Result<Joined, JoinRefused> {
        let mut state = self.state();
        self.recall(&mut state, Gpu::of(&applicant.hello));
        let (pid, gpu) = (applicant.owner.pid(), applicant.hello.gpu.clone());
        let earlier = state.registry.of_process(&applicant.owner);
        let patch = earlier.and_then(|stay| self.remove(&mut state, stay, Leaving::Again)).unwrap_or_default();
        let State { registry, config, .. } = &mut *state;
        let joined = registry.join(&self.board, config, self.isolation, applicant, patch);
        let joined = joined.map(|(joined, deaf)| {
            for stay in deaf {
                self.remove(&mut state, stay, Leaving::Deaf);
            }
            self.counters.joins.inc();
            tracing::info!(name = joined.name, pid, gpu, "joined");
            joined
        });
        self.count(&mut state);
        joined
    }

    /// Puts what is on disk of a GPU's kernels on the board, once: tenants go on from there.
    fn recall(&self, state: &mut State, gpu: Gpu) {
        if let (Some(store), false) = (&self.store, state.recalled.contains(&gpu)) {
            self.publish(state, &gpu, &learning::recall(store, &gpu));
            // Whoever says that there are so many makes them up, and has them read again.
            if state.recalled.len() >= MOST_GPUS {
                state.recalled.clear();
            }
            state.recalled.insert(gpu);
        }
    }

    /// Keeps what was learnt of a tenant for the next time of saving, and has its kernels on the board at once: another run of
    /// the program may come before that.
    fn keep(&self, state: &mut State, seen: Seen) {
        self.publish(state, &seen.gpu, &seen.kernels);
        state.learnt.add(seen);
    }

    /// As far as the board has room for models of GPU.
    fn publish(&self, state: &mut State, gpu: &Gpu, kernels: &[KernelNote]) {
        if kernels.is_empty() {
            return;
        }
        let on_board = &mut state.on_board;
        if !on_board.contains(gpu) && on_board.len() < KERNEL_MODELS {
            on_board.push(gpu.clone());
        }
        if let Some(number) = on_board.iter().position(|other| other == gpu) {
            self.board.publish_kernels(number, kernels);
        }
    }

    pub(crate) fn leave(&self, stay: Stay, why: Leaving) {
        let mut state = self.state();
        self.remove(&mut state, stay, why);
        self.count(&mut state);
    }

    /// Sends everybody away; they go on alone.
    pub(crate) fn send_all_away(&self) {
        let mut state = self.state();
        state.registry = Registry::default();
        self.count(&mut state);
    }

    fn count(&self, state: &mut State) {
        state.last_use = Instant::now();
        self.tenants.send_replace(state.registry.len());
    }

    /// Forgets a tenant; returns what had been changed of it.
    fn remove(&self, state: &mut State, stay: Stay, why: Leaving) -> Option<TenantPatch> {
        let mut present = state.registry.remove(&self.board, stay)?;
        if let Some(seen) = present.learn() {
            self.keep(state, seen);
        }
        let (name, pid) = (present.name.as_str(), present.pid());
        block_level::forget(&self.folder, present.page());
        match why {
            Leaving::Ended => {
                self.counters.deaths.inc();
                tracing::info!(name, pid, "its process has ended");
            }
            Leaving::Closed => tracing::info!(name, pid, "left"),
            Leaving::Again => tracing::info!(name, pid, "connects again"),
            Leaving::Deaf => tracing::warn!(name, pid, "does not read what it is told and was sent away"),
            Leaving::SpokeUp => tracing::warn!(name, pid, "says what no tenant says and was sent away"),
        }
        if why != Leaving::Ended {
            self.counters.leaves.inc();
        }
        Some(present.patch())
    }

    /// Somebody was not taken in.
    pub(crate) fn note_refused(&self, pid: Option<u32>, why: &dyn Display) {
        self.counters.refused.inc();
        let mut state = self.state();
        let last = state.last_refusal;
        if last.is_none_or(|last| last.elapsed() >= REFUSAL_LOG_PAUSE) {
            state.last_refusal = Some(Instant::now());
            tracing::warn!(pid, %why, "refused a tenant");
        }
    }

    /// Looks for the tenant among MPS's clients, where there is MPS. Then there is nothing more to do, for ever.
    pub(crate) async fn find_out_about_mps(&self, stay: Stay, pid: u32) -> Infallible {
        let is_concerned = self.state().registry.get_mut(stay).is_some_and(|present| present.is_on_real_gpu());
        if let (Some(mps), true) = (&self.mps, is_concerned) {
            let is_client = mps.has_client(pid).await;
            let mut state = self.state();
            if let (Some(present), Some(is_client)) = (state.registry.get_mut(stay), is_client) {
                present.mps_client = Some(is_client);
                if !is_client {
                    let name = &present.name;
                    tracing::warn!(
                        name,
                        pid,
                        "is no client of our MPS and takes turns with all others: start it by `detshare run`"
                    );
                }
            }
        }
        std::future::pending().await
    }

    // ---- What is asked over HTTP

    /// As it is told to somebody who asks.
    pub(crate) fn status_for(&self, is_seen: bool) -> Status {
        Status { sees_you: is_seen, ..self.status() }
    }

    pub(crate) fn status(&self) -> Status {
        let (files, set_aside) = self.store.as_ref().map_or((0, 0), Store::count);
        let state = self.state();
        let (policy, policy_reason) = self.policy(&state);
        Status {
            version: env!("CARGO_PKG_VERSION").to_string(),
            pid: std::process::id(),
            started: humantime::format_rfc3339_millis(self.started).to_string(),
            uptime_s: self.uptime().as_secs(),
            policy,
            policy_reason,
            aggressiveness: aggressiveness(&state).part(),
            isolation: self.isolation,
            folder: self.folder.path().to_path_buf(),
            config: ConfigStatus { file: state.config_file.path().map(Into::into), error: state.config_error.clone() },
            tenants: state.registry.len(),
            slots: SLOTS,
            mps: self.mps.as_ref().map(|mps| mps.status()),
            environment: self.mps.as_ref().map(|mps| mps.environment()).unwrap_or_default(),
            profiles: ProfilesStatus {
                folder: self.store.as_ref().map(|store| store.folder().to_path_buf()),
                files,
                set_aside,
            },
            sees_you: true,
        }
    }

    pub(crate) fn tenants(&self) -> Vec<Tenant> {
        self.state().registry.iter().map(|present| present.describe()).collect()
    }

    pub(crate) fn tenant(&self, name_or_pid: &str) -> Result<Tenant, Refused> {
        self.change(name_or_pid, &TenantPatch::default())
    }

    /// Has a tenant time its launches for a while.
    pub(crate) fn ask(&self, name_or_pid: &str) -> Result<(), Refused> {
        named(&self.state(), name_or_pid)?.ask(&self.board);
        Ok(())
    }

    /// What was decided last for a tenant.
    pub(crate) fn decided(&self, name_or_pid: &str) -> Result<Decided, Refused> {
        Ok(named(&self.state(), name_or_pid)?.decided())
    }

    pub(crate) fn explain(&self, name_or_pid: &str) -> Result<Explanation, Refused> {
        let state = self.state();
        let present = named(&state, name_or_pid)?;
        let name_of = |slot: usize| {
            let other = state.registry.iter().find(|other| other.slot() == slot);
            other.map(|other| other.name.clone())
        };
        Ok(Explanation {
            tenant: present.describe(),
            policy: self.policy(&state).0,
            aggressiveness: aggressiveness(&state).part(),
            decisions: present.explain(name_of),
            block_level: block_level::read(&self.folder, present.page()),
        })
    }

    pub(crate) fn change(&self, name_or_pid: &str, patch: &TenantPatch) -> Result<Tenant, Refused> {
        check(patch)?;
        let mut state = self.state();
        let State { registry, config, .. } = &mut *state;
        let found = registry.find(name_or_pid).and_then(|stay| registry.get_mut(stay));
        let present = found.ok_or_else(|| Refused::NoTenant(name_or_pid.to_string()))?;
        if *patch != TenantPatch::default() {
            present.change(&self.board, config, self.isolation, patch);
            tracing::info!(name = present.name, pid = present.pid(), ?patch, "changed");
        }
        Ok(present.describe())
    }

    pub(crate) fn set_policy(&self, name: &str) -> Result<(), Refused> {
        if detshare_policy::number(name).is_none() {
            return Err(Refused::NoPolicy(name.to_string()));
        }
        if !isolation::allows(self.isolation, name) {
            return Err(Refused::PolicyNeedsMps(name.to_string()));
        }
        let mut state = self.state();
        state.policy_by_hand = Some(name.to_string());
        self.apply(&mut state);
        tracing::info!(policy = name, "the policy was set by hand");
        Ok(())
    }

    pub(crate) fn set_aggressiveness(&self, part: f64) -> Result<(), Refused> {
        let share = Share::of(part).ok_or(Refused::Aggressiveness(part))?;
        let mut state = self.state();
        state.aggressiveness_by_hand = Some(share);
        self.apply(&mut state);
        tracing::info!(aggressiveness = part, "the aggressiveness was set by hand");
        Ok(())
    }

    /// Somebody takes an interest: a daemon that ends when idle waits anew.
    pub(crate) fn touch(&self) {
        self.state().last_use = Instant::now();
    }

    // ---- Settings

    /// Reads the configuration again. If it is broken, what was in force stays so.
    pub(crate) fn reload(&self) -> Result<(), Refused> {
        let mut state = self.state();
        match state.config_file.read() {
            Ok(config) => {
                let before = std::mem::replace(&mut state.config, config);
                state.config_error = None;
                if before.isolation != state.config.isolation || before.profiles != state.config.profiles {
                    tracing::warn!("isolation and the profiles' folder take effect when the daemon is started again");
                }
                self.apply(&mut state);
                self.counters.reloads.inc();
                tracing::info!("the configuration was read");
                Ok(())
            }
            Err(error) => {
                state.config_error = Some(error.to_string());
                self.counters.failed_reloads.inc();
                tracing::error!(%error, "the settings from before stay in force");
                Err(error.into())
            }
        }
    }

    fn policy(&self, state: &State) -> (String, Option<String>) {
        isolation::policy(&state.config.policy.0, state.policy_by_hand.as_deref(), self.isolation)
    }

    /// Puts the settings in force.
    fn apply(&self, state: &mut State) {
        let (policy, reason) = self.policy(state);
        if let Some(reason) = reason {
            tracing::info!(policy, reason, "the policy in force");
        }
        if let Some(number) = detshare_policy::number(&policy) {
            self.board.set_policy(number);
        }
        self.board.set_aggressiveness(aggressiveness(state).thousandths());
        state.registry.configure(&self.board, &state.config, self.isolation);
        self.log.set(&state.config.log);
    }

    // ---- The beat

    /// Says that we are alive, looks at everybody's page and at the configuration.
    pub(crate) fn beat(&self) {
        self.board.beat();
        let mut state = self.state();
        state.registry.look(clock::now());
        if state.config_file.has_changed() {
            drop(state);
            // A broken one has been logged.
            _ = self.reload();
        }
    }

    /// How long nobody has been here or asked for anything.
    pub(crate) fn idle_for(&self) -> Duration {
        let state = self.state();
        if state.registry.len() > 0 { Duration::ZERO } else { state.last_use.elapsed() }
    }

    /// In a line, for the service manager.
    pub(crate) fn summary(&self) -> String {
        let state = self.state();
        let mps = self.mps.as_ref().map(|mps| mps.status().state).filter(|state| *state != MpsState::Running);
        let mps = mps.map_or_else(String::new, |state| format!(", MPS {state}"));
        format!("{} tenants, policy {}{mps}", state.registry.len(), self.policy(&state).0)
    }

    /// Writes what was learnt to disk. Blocks.
    pub(crate) fn save_profiles(&self) {
        let _saving = self.saving.lock().unwrap_or_else(PoisonError::into_inner);
        let learnt = {
            let mut state = self.state();
            for seen in state.registry.learn() {
                self.keep(&mut state, seen);
            }
            state.learnt.take()
        };
        if let Some(store) = &self.store {
            self.counters.profile_saves.inc_by(learnt.save(store));
        }
    }
}

fn named<'a>(state: &'a State, name_or_pid: &str) -> Result<&'a Present, Refused> {
    let found = state.registry.find(name_or_pid).and_then(|stay| state.registry.get(stay));
    found.ok_or_else(|| Refused::NoTenant(name_or_pid.to_string()))
}

/// What can be said of a change without looking at the tenant.
fn check(patch: &TenantPatch) -> Result<(), Refused> {
    if let Some(weight) = patch.weight.filter(|weight| !(1..=MOST_WEIGHT).contains(weight)) {
        return Err(Refused::Value { what: "weight", value: weight.into() });
    }
    let positive =
        [("memory", patch.memory), ("p99_ns", patch.p99_ns), ("ttft_ns", patch.ttft_ns), ("tpot_ns", patch.tpot_ns)];
    match positive.into_iter().find(|(_, value)| *value == Some(Some(0))) {
        Some((what, _)) => Err(Refused::Value { what, value: 0 }),
        None => Ok(()),
    }
}

fn aggressiveness(state: &State) -> Share {
    state.aggressiveness_by_hand.unwrap_or(state.config.aggressiveness)
}
