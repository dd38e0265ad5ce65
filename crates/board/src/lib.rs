//! The board: the shared memory through which tenants and the daemon see each other.
//!
//! A latency tenant says here that it is busy, and a best-effort tenant sees it before its next launch, without the
//! daemon, a message or a system call. This crate knows nothing of CUDA and decides nothing; it does not start, find or
//! accept anybody: the daemon owns the socket and what is said over it.
//!
//! # Groups of pages
//! Each tenant has one page that it alone writes ([`Tenant`]), the daemon has a few ([`Daemon`]). Everybody else has them
//! read-only ([`TenantView`], [`DaemonView`]). A group is a memory file of its own, handed out over a Unix socket
//! ([`send_fds`], [`receive_fds`]). Its owner maps it and then seals it: its size is fixed, and nobody can map it
//! writable or write to it any more, by whatever way they reach the file (`F_SEAL_FUTURE_WRITE`). A file opened read-only
//! would not do: who gets it can open it again through `/proc`, for writing. Whoever maps a group checks the seals (a
//! file that its owner can cut short would kill its readers), the size, the magic number and the layout's version.
//!
//! # What others wrote
//! is never used as an index, a length or a pointer. Reading gives plain values that are in range; what cannot be is
//! replaced, and [`Doubts`] says what was. Words that belong together are under a sequence number; reading them is tried
//! a fixed number of times, so that an owner that was stopped in the middle, or lies, holds up nobody.
//!
//! # Waiting
//! A waiter sleeps on the owner's word itself: the kernel compares it with what the waiter saw and puts it to sleep in
//! one step, so a change is either seen or wakes. The owner must then wake after each change that is waited for. It
//! cannot be told whether somebody waits: waiters have its page read-only. A flag in the waiter's own page would do
//! only if every owner had every possible waiter's page mapped before that one waits: a tenant that has just come, or a
//! program that only watches, would be forgotten. So the owner always wakes, but only when a step ends (the daemon: when
//! the configuration changes): one system call a step, by the thread that has just seen the GPU finish. Beginning a step
//! wakes nobody and is one store; launches pay nothing. `tests/models.rs` has every interleaving of it.
//!
//! A dead tenant ends no step. The daemon sees its death ([`Owner`]), takes the slot back and changes the epoch. So whoever
//! waits for a tenant also waits for the epoch, with one call ([`wait`] takes several words), and never without bound.
//!
//! # Example
//! ```
//! use detshare_board::{Class, Daemon, DaemonView, Entry, Owner, Tenant, TenantView, Waited, clock, wait};
//! use std::time::Duration;
//!
//! // The daemon knows who is there. In real life the files travel over a socket.
//! let daemon = Daemon::create()?;
//! let owner = Owner::of_process(std::process::id())?;
//! let claim = daemon.claim(owner, &Entry::new(Class::Latency))?;
//!
//! // A latency tenant is busy from its first launch until the GPU has finished.
//! let tenant = Tenant::create(Class::Latency)?;
//! tenant.launch();
//!
//! // Another one sees that and waits, but not for ever.
//! let (view, table) = (TenantView::map(tenant.file())?, DaemonView::map(daemon.file())?);
//! let (step, epoch) = (view.step(), table.epoch());
//! assert!(step.is_busy());
//! let words = [view.watch(step), table.watch(epoch)];
//! assert_eq!(wait(&words, Duration::from_millis(1)), Waited::Over);
//!
//! assert!(tenant.finish(tenant.launched(), clock::now() + 5_000_000), "nothing else was launched");
//! assert_eq!(wait(&words, Duration::from_millis(1)), Waited::Changed);
//! assert!(!view.step().is_busy());
//! assert!(daemon.release(&claim));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

// The model checker's atomics cannot lie in shared memory; `tests/models.rs` takes in the files that it checks.
#![cfg(not(loom))]

mod checked;
pub mod clock;
mod daemon;
mod decisions;
mod entry;
pub mod join;
mod kernels;
mod layout;
mod mapping;
mod owner;
mod seqlock;
mod slot;
mod socket;
mod step;
mod step_page;
mod step_times;
mod sync;
mod tenant;
mod wait;

pub use checked::{Class, Doubts, HORIZON_NS};
pub use daemon::{ASKED_NS, Claim, Daemon, DaemonView, Epoch, Full, Occupant, SlotState};
pub use decisions::Noted;
pub use entry::{Entry, HOLDS_NS, Limits, MOST_SHARE, MOST_SMS, MOST_WEIGHT, Objective, SplitLadder};
pub use kernels::KernelNote;
pub use layout::{KERNEL_MODELS, KERNEL_WIDTHS, LANES, LAYOUT, MOST_SPLITS, OBJECTIVES, SLOTS, TENANT_BYTES};
pub use mapping::{MapError, number_of};
pub use owner::{Owner, OwnerError, Peer, peer, user_of_peer};
pub use slot::Generation;
pub use socket::{MOST_FILES, Received, SocketError, receive_fds, send_fds};
pub use step::Step;
pub use step_page::StepPage;
pub use step_times::StepTimes;
pub use sync::Watch;
pub use tenant::{Hold, Outlook, StepLengths, Tenant, TenantState, TenantView};
pub use wait::Waited;

use std::time::Duration;

/// The longest wait, whatever is asked for: no hold is unbounded.
pub const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// How long [`wait`] looks before it sleeps: less than falling asleep and being woken costs.
pub const SPIN: Duration = Duration::from_micros(5);
/// The longest that one may look before sleeping: the core is somebody else's too.
pub const LONGEST_SPIN: Duration = Duration::from_micros(300);

/// Waits until one of the words has changed: looks for as long as [`SPIN`], then sleeps. Returns after `bound`, or
/// [`LONGEST_WAIT`], at the latest; for no words at once.
#[must_use]
pub fn wait(words: &[Watch<'_>], bound: Duration) -> Waited {
    wait_spinning(words, SPIN, bound)
}

/// As [`wait`], but looks for another time before it sleeps, [`LONGEST_SPIN`] at most: none for those whose time does not
/// matter, more for those who know that the change is near. Who sleeps pays tens of microseconds for being woken.
#[must_use]
pub fn wait_spinning(words: &[Watch<'_>], spin: Duration, bound: Duration) -> Waited {
    let now = clock::now();
    let at = |limit: Duration| now.saturating_add(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    let deadline = at(bound.min(LONGEST_WAIT));
    let awake_until = at(spin.min(LONGEST_SPIN)).min(deadline);
    wait::until_changed(words, || !words.is_empty() && clock::now() < awake_until, deadline)
}
