//! `detshared`: who is here, which policy they follow, MPS, profiles on disk, metrics, HTTP.
//!
//! Tenants see each other on the board, without the daemon; it is not on the path of any launch. It does what is slow and
//! what only one can do: it takes tenants in and gives each a slot, a name and what it may have (`attend.rs`,
//! `registry.rs`, `entry.rs`), notices when one dies, publishes the policy, looks after MPS (`mps.rs`), keeps what is
//! learnt over a restart (`profiles.rs`), and answers questions (`http.rs`, `explaining.rs`, `metrics.rs`). If it dies, tenants go on and
//! join its successor; so it keeps nothing that cannot be told or found again, and what was only ever told to it (a
//! pause, a policy set by hand) ends with it.
//!
//! # How it works
//! One thread, and tasks on it: one for each connection, one for the beat, one for MPS. All of them come to one state
//! under one lock (`service.rs`), do something that takes microseconds, and go. Nothing waits for a tenant: what is sent
//! to it goes into its socket or it is sent away; what it wrote is read from its page, whatever it does. Writing profiles
//! is the only thing that takes longer, and goes to a thread of its own.
//!
//! All that is kept of a tenant goes with it. What is kept over time is bounded: seconds of history for each tenant,
//! names and kernels in a file of profiles.
//!
//! # Trust
//! All tenants of a daemon are one user's. The runtime folder is closed to others, the sockets in it are too, and whoever
//! connects is looked at all the same. What tenants say is checked nonetheless: a broken one must not break the others.
//!
//! `detshared --help` says how it is started; `detshare up` and `detshare run` start it by themselves.

mod attend;
mod block_level;
pub mod config;
mod entry;
pub mod exit;
mod explaining;
mod history;
mod http;
mod isolation;
mod learning;
mod lock;
pub mod log;
mod metrics;
pub mod mps;
mod name;
pub mod profiles;
mod readiness;
pub mod ready;
mod registry;
mod run;
mod service;
mod sockets;
mod standing;

pub use isolation::NoMps;
pub use lock::LockError;
pub use run::{Settings, StartError, run};
pub use sockets::SocketsError;
