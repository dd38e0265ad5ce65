//! What the daemon says over HTTP, and where it is to be found.
//!
//! Used by both ends: the daemon fills these types, the command line reads them. Here are the JSON types (`status.rs`,
//! `tenant.rs`), the runtime folder and what lies in it ([`RuntimeFolder`], [`places`]), and a [`Client`] whose
//! functions block and have a time limit; and how both word a command line that makes no sense ([`usage`]). There is no server here, and nothing that decides.
//!
//! The daemon listens on a Unix socket in a folder that only its user can enter. Both ends look at the other's user:
//! the client would rather speak to nobody than to somebody else's daemon.
//!
//! # Example
//! ```no_run
//! use detshare_api::{Client, RuntimeFolder, TenantPatch, places};
//!
//! let folder = RuntimeFolder::open(&places::runtime_folder(None))?;
//! let client = Client::new(&folder)?;
//! for tenant in client.tenants()? {
//!     println!("{} {} {}", tenant.pid, tenant.name, tenant.class);
//! }
//! client.change("train", &TenantPatch { paused: Some(true), ..TenantPatch::default() })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod block_level;
mod client;
mod folder;
pub mod places;
mod size;
mod status;
mod tenant;
pub mod usage;

pub use block_level::{BlockLevel, MeasuredShape, MeasuredVersion, RewrittenKernel, RewrittenModule};
pub use client::{Client, ClientError, TIME_LIMIT};
pub use folder::{FolderError, RuntimeFolder};
pub use size::parse_size;
pub use status::{ConfigStatus, ErrorBody, Isolation, Mps, MpsState, PolicyChange, ProfilesStatus, Status};
pub use tenant::{Class, DecisionMade, Explanation, Missed, Objective, StepLength, Tenant, TenantPatch, UnknownClass};
