//! A tenant's group: what it publishes, and what others read of it.

use crate::checked::{Class, Doubts, class, time_ahead, time_past};
use crate::clock;
use crate::layout::{LANES, TenantPages};
use crate::mapping::{MapError, Others, Own};
use crate::step::Step;
use crate::sync::{Ordering, Watch, acquired};
use core::fmt;
use rustix::fd::{AsFd, BorrowedFd};

/// This process's own group. Any thread may publish.
///
/// A forked child has the same pages, and what it publishes would be taken for its parent's: it makes a group of its own
/// or publishes nothing.
pub struct Tenant {
    pages: Own<TenantPages>,
}

impl Tenant {
    /// A new group: idle, no step yet, on lane 0.
    pub fn create(class: Class) -> Result<Self, MapError> {
        let tenant = Self { pages: Own::create()? };
        tenant.set_class(class);
        Ok(tenant)
    }

    /// To hand out: can be mapped read-only and no more.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.pages.file()
    }

    /// Counts a launch that is about to be made; busy from now on. Takes no lock and makes no system call.
    pub fn launch(&self) -> Step {
        self.pages.step.0.launch(&self.pages.launched.0)
    }

    /// How many launches were counted.
    #[must_use]
    pub fn launched(&self) -> u64 {
        self.pages.launched.0.load(Ordering::Relaxed)
    }

    /// The GPU has finished the first `upto` launches, and the next step is due then (0: unknown). Idle if there were no
    /// more launches; wakes those who wait for it. Says whether it is idle now by this call.
    pub fn finish(&self, upto: u64, next_due: u64) -> bool {
        // Release: pairs with the acquire in `TenantView::read`, which looks at `launched` afterwards.
        self.pages.finished.0.fetch_max(upto, Ordering::Release);
        if self.launched() != upto {
            return false;
        }
        self.set_due(next_due);
        self.pages.step.0.finish(upto, &self.pages.launched.0)
    }

    /// Busy with the next step, unless busy already: for work that is not counted as launches.
    pub fn begin_step(&self) -> Step {
        self.pages.step.0.begin()
    }

    /// Idle, if busy with this very step, and wakes those who wait for it; says whether it was. The caller knows that
    /// nothing was launched meanwhile; where launches are counted, [`Tenant::finish`] finds out.
    pub fn end_step(&self, step: Step, next_due: u64) -> bool {
        if self.step() == step {
            self.set_due(next_due);
        }
        self.pages.step.0.end(step)
    }

    /// Busy or idle, and the step.
    #[must_use]
    pub fn step(&self) -> Step {
        self.pages.step.0.get()
    }

    /// Publishes another class.
    pub fn set_class(&self, class: Class) {
        let record = &self.pages.record.0;
        record.sequence.write(|| record.class.store(class.number(), Ordering::Relaxed));
    }

    /// Publishes the lane that the tenant is bound to.
    pub fn set_lane(&self, lane: u8) {
        let record = &self.pages.record.0;
        record.sequence.write(|| record.lane.store(u32::from(lane), Ordering::Relaxed));
    }

    /// Publishes when the next step is due, by [`clock::now`]; 0 is unknown.
    pub fn set_due(&self, due: u64) {
        let record = &self.pages.record.0;
        record.sequence.write(|| record.due.store(due, Ordering::Relaxed));
    }

    /// A launch is being held, until the result is dropped.
    pub fn hold(&self) -> Hold<'_> {
        let record = &self.pages.record.0;
        let now = clock::now();
        record.sequence.write(|| {
            record.holds.fetch_add(1, Ordering::Relaxed);
            if record.holding.fetch_add(1, Ordering::Relaxed) == 0 {
                record.holding_since.store(now, Ordering::Relaxed);
            }
        });
        Hold(self)
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tenant").field("step", &self.step()).finish_non_exhaustive()
    }
}

/// A thread of the tenant that is being held.
#[derive(Debug)]
pub struct Hold<'a>(&'a Tenant);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let record = &self.0.pages.record.0;
        record.sequence.write(|| {
            if record.holding.fetch_sub(1, Ordering::Relaxed) == 1 {
                record.holding_since.store(0, Ordering::Relaxed);
            }
        });
    }
}

/// What a tenant publishes; every value is in range, whatever is in its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantState {
    /// What it says of itself; what the daemon gave it is in its slot.
    pub class: Class,
    /// Busy or idle, and the step.
    pub step: Step,
    /// When its next step is due; no further than [`HORIZON_NS`](crate::HORIZON_NS) from now.
    pub due: Option<u64>,
    /// Launches so far.
    pub launched: u64,
    /// Launches that the GPU has finished; no more than launched.
    pub finished: u64,
    /// The lane that it is bound to, below [`LANES`].
    pub lane: u8,
    /// Launches that were held so far.
    pub holds: u64,
    /// Since when one is being held; never in the future.
    pub holding_since: Option<u64>,
    /// What was replaced because it could not be.
    pub doubts: Doubts,
}

/// Another tenant's group, read-only.
pub struct TenantView {
    pages: Others<TenantPages>,
}

impl TenantView {
    /// Maps a group that was handed out, and checks it. The file is not needed afterwards.
    pub fn map(file: impl AsFd) -> Result<Self, MapError> {
        Ok(Self { pages: Others::map(file.as_fd())? })
    }

    /// Busy or idle, and the step: one load.
    #[must_use]
    pub fn step(&self) -> Step {
        self.pages.step.0.get()
    }

    /// For [`wait`](crate::wait): until it is no longer in this step. Only for a step that is busy: that a tenant has
    /// become busy wakes nobody.
    #[must_use]
    pub fn watch(&self, busy: Step) -> Watch<'_> {
        self.pages.step.0.watch(busy)
    }

    /// When its next step is due, and nothing else: for the launch path.
    #[must_use]
    pub fn due(&self, now: u64) -> Option<u64> {
        let record = &self.pages.record.0;
        time_ahead(record.due.load(Ordering::Relaxed), now, &mut Doubts::default())
    }

    /// All of it, with times as seen from `now`.
    #[must_use]
    pub fn read(&self, now: u64) -> TenantState {
        let mut doubts = Doubts::NONE;
        let record = &self.pages.record.0;
        let words = record.sequence.read(|| {
            let lane = record.lane.load(Ordering::Relaxed);
            let [due, holds, since] =
                [&record.due, &record.holds, &record.holding_since].map(|word| word.load(Ordering::Relaxed));
            (record.class.load(Ordering::Relaxed), lane, due, holds, since)
        });
        doubts.add_if(words.is_none(), Doubts::TORN);
        let (class_number, lane, due, holds, since) = words.unwrap_or_default();
        // Finished first, then launched: an honest tenant has launched what it has finished. The acquire pairs with the
        // release in `Tenant::finish`.
        let finished = acquired(self.pages.finished.0.load(Ordering::Relaxed));
        let launched = self.pages.launched.0.load(Ordering::Relaxed);
        doubts.add_if(finished > launched, Doubts::COUNTS);
        let lane = u8::try_from(lane).ok().filter(|lane| *lane < LANES);
        doubts.add_if(lane.is_none(), Doubts::LANE);
        TenantState {
            class: class(class_number, &mut doubts),
            step: self.step(),
            due: time_ahead(due, now, &mut doubts),
            launched,
            finished: finished.min(launched),
            lane: lane.unwrap_or_default(),
            holds,
            holding_since: time_past(since, now, &mut doubts),
            doubts,
        }
    }
}

impl fmt::Debug for TenantView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TenantView").field(&self.read(clock::now())).finish()
    }
}
