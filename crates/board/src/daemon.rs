//! The daemon's group: who is here and what each was given.

use crate::checked::{Doubts, class, time_past, within};
use crate::clock;
use crate::entry::{Entry, HOLDS_NS, Limits, MOST_SHARE, MOST_WEIGHT, Objective, SplitLadder};
use crate::kernels::{self, Column, KernelNote};
use crate::layout::{DaemonPages, MOST_SPLITS, SLOTS, SlotRecord};
use crate::mapping::{MapError, Others, Own};
use crate::owner::Owner;
use crate::slot::Generation;
use crate::sync::{AtomicU32, Ordering, Watch, acquired, wake};
use core::fmt;
use rustix::fd::{AsFd, BorrowedFd};

/// The daemon's own group. Any of its threads may use it.
pub struct Daemon {
    pages: Own<DaemonPages>,
}

/// A slot that the daemon gave to a tenant.
#[derive(Debug)]
pub struct Claim {
    slot: usize,
    generation: Generation,
    owner: Owner,
}

impl Claim {
    /// Its number, below [`SLOTS`].
    #[must_use]
    pub const fn slot(&self) -> usize {
        self.slot
    }

    /// Which owner of the slot this is.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Who has it.
    #[must_use]
    pub const fn owner(&self) -> &Owner {
        &self.owner
    }
}

/// How long a tenant has its launches timed for somebody who has asked about them.
pub const ASKED_NS: u64 = 1_000_000_000;
/// What lies further ahead is nothing that was asked by this clock: it has gone back.
const FURTHEST_ASKED_NS: u64 = 2 * ASKED_NS;

/// Every slot has an owner that lives.
#[derive(Debug, thiserror::Error)]
#[error("all {SLOTS} slots of the board are taken")]
pub struct Full;

impl Daemon {
    /// A new group: no tenants, policy 0, epoch 0.
    pub fn create() -> Result<Self, MapError> {
        Ok(Self { pages: Own::create()? })
    }

    /// To hand out: can be mapped read-only and no more.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'_> {
        self.pages.file()
    }

    /// Says that the daemon is alive.
    pub fn beat(&self) {
        // A word of its own, nothing else is read by it: no order needed.
        self.pages.heartbeat.0.store(clock::now(), Ordering::Relaxed);
    }

    /// Publishes the number of the policy that all follow.
    pub fn set_policy(&self, number: u32) {
        self.pages.policy.0.number.store(number, Ordering::Relaxed);
        self.changed();
    }

    /// Publishes how much best-effort tenants may disturb, in thousandths.
    pub fn set_aggressiveness(&self, thousandths: u16) {
        self.pages.policy.0.aggressiveness.store(u32::from(thousandths), Ordering::Relaxed);
        self.changed();
    }

    /// Publishes what is known of kernels on one model of GPU, by a number that the caller gives it, below
    /// [`KERNEL_MODELS`](crate::KERNEL_MODELS). What was published before stays, or is replaced where this says otherwise; where
    /// there are more models, kernels or widths than there is room for, the first ones are there. One thread at a time.
    pub fn publish_kernels(&self, model: usize, known: &[KernelNote]) {
        let table = &self.pages.kernels;
        for kernel in known {
            for (width, ns, measured) in &kernel.widths {
                if let Some(width) = kernels::number_of(table, model, *width) {
                    let column = Column { model, width };
                    kernels::write(table, kernel.identity, &kernel.name, column, *ns, *measured);
                }
            }
        }
    }

    /// Gives a free slot to a tenant.
    pub fn claim(&self, owner: Owner, entry: &Entry) -> Result<Claim, Full> {
        let claimed = |(slot, record): (usize, &SlotRecord)| Some((slot, record.word.claim()?));
        let (slot, generation) = self.records().find_map(claimed).ok_or(Full)?;
        let record = &self.pages.slots[slot].0;
        record.sequence.write(|| {
            record.pid.store(owner.pid(), Ordering::Relaxed);
            record.start_time.store(owner.start_time(), Ordering::Relaxed);
            record.asked_until.store(0, Ordering::Relaxed);
            store(record, entry);
        });
        record.word.open(generation);
        self.changed();
        Ok(Claim { slot, generation, owner })
    }

    /// Gives the tenant of a slot something else; says whether it still has the slot.
    pub fn configure(&self, claim: &Claim, entry: &Entry) -> bool {
        let record = &self.pages.slots[claim.slot].0;
        // Looked at while nobody else can write: the slot's next owner writes its entry after this one or instead of it.
        let done = record.sequence.write(|| {
            let is_mine = record.word.live() == Some(claim.generation);
            if is_mine {
                store(record, entry);
            }
            is_mine
        });
        if done {
            self.changed();
        }
        done
    }

    /// Somebody asks what the launches of a tenant take: it has them timed for [`ASKED_NS`] from now on. Nobody is woken by it, and a
    /// tenant that has just taken the slot over has them timed in its place.
    pub fn ask(&self, claim: &Claim) {
        let until = clock::now().saturating_add(ASKED_NS);
        // A word of its own, nothing else is read by it: no order needed.
        self.pages.slots[claim.slot].0.asked_until.store(until, Ordering::Relaxed);
    }

    /// Frees the slot of a tenant that has said goodbye; says whether it still had it.
    pub fn release(&self, claim: &Claim) -> bool {
        self.freed(self.pages.slots[claim.slot].0.word.release(claim.generation))
    }

    /// Frees the slot if its owner is dead; says whether this call did it. Of several threads that see the same death,
    /// one is told so.
    pub fn take_back(&self, claim: &Claim) -> bool {
        let word = &self.pages.slots[claim.slot].0.word;
        self.freed(word.take_back(claim.generation, || claim.owner.is_dead()))
    }

    fn freed(&self, freed: bool) -> bool {
        if freed {
            self.changed();
        }
        freed
    }

    fn records(&self) -> impl Iterator<Item = (usize, &SlotRecord)> {
        self.pages.slots.iter().map(|slot| &slot.0).enumerate()
    }

    fn changed(&self) {
        let epoch = &self.pages.epoch.0;
        // Release: pairs with the acquire in `DaemonView::epoch` and in `Watch::has_changed`.
        epoch.fetch_add(1, Ordering::Release);
        wake(epoch);
    }
}

fn store(record: &SlotRecord, entry: &Entry) {
    let Limits { memory, longest_hold_ns, least_share } = entry.limits;
    record.class.store(entry.class.number(), Ordering::Relaxed);
    record.weight.store(entry.weight, Ordering::Relaxed);
    record.paused.store(u32::from(entry.paused), Ordering::Relaxed);
    let Objective { p99_ns, ttft_ns, tpot_ns } = entry.objective;
    for (word, time) in [(&record.p99, p99_ns), (&record.ttft, ttft_ns), (&record.tpot, tpot_ns)] {
        word.store(time.unwrap_or(0), Ordering::Relaxed);
    }
    record.memory.store(memory.unwrap_or(0), Ordering::Relaxed);
    record.longest_hold.store(longest_hold_ns, Ordering::Relaxed);
    record.least_share.store(least_share, Ordering::Relaxed);
    record.turnaround.store(entry.turnaround_ns.unwrap_or(0), Ordering::Relaxed);
    let widths = entry.ladder.widths();
    // A ladder has at most 16 splits.
    record.splits.store(u32::try_from(widths.len()).unwrap_or(0), Ordering::Relaxed);
    for (place, width) in record.ladder.iter().zip(widths) {
        place.store(*width, Ordering::Relaxed);
    }
}

impl fmt::Debug for Daemon {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let taken = self.records().filter(|(_, record)| record.word.live().is_some()).count();
        formatter.debug_struct("Daemon").field("taken", &taken).finish_non_exhaustive()
    }
}

/// The configuration's number: another one means that something in the daemon's group has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Epoch(u32);

impl Epoch {
    /// What stands in [`DaemonView::epoch_word`] meanwhile.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// A tenant as the daemon's table has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupant {
    /// Which owner of the slot it is: another one means another tenant.
    pub generation: Generation,
    /// Its process.
    pub pid: u32,
    /// When that was started, in the kernel's ticks since boot: a pid alone can be used again.
    pub start_time: u64,
    /// What it was given.
    pub entry: Entry,
    /// What was replaced because it could not be.
    pub doubts: Doubts,
}

/// What is in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotState {
    /// Nobody.
    Free,
    /// A tenant.
    Taken(Occupant),
    /// It was being written for as long as we tried to read it.
    Torn,
}

/// The daemon's group in a tenant, read-only.
pub struct DaemonView {
    pages: Others<DaemonPages>,
}

impl DaemonView {
    /// Maps a group that was handed out, and checks it. The file is not needed afterwards.
    pub fn map(file: impl AsFd) -> Result<Self, MapError> {
        Ok(Self { pages: Others::map(file.as_fd())? })
    }

    /// A place for a group that has not come yet: it reads as one without tenants.
    pub fn none() -> Result<Self, MapError> {
        Ok(Self { pages: Others::none()? })
    }

    /// Puts another daemon's group in the place of this one. Threads that read meanwhile find the old or the new one.
    pub fn replace(&self, file: impl AsFd) -> Result<(), MapError> {
        self.pages.replace(file.as_fd())
    }

    /// Take it first, then read: if it is still the same later, what was read still holds.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        // Pairs with the release in `Daemon::changed`.
        Epoch(acquired(self.pages.epoch.0.load(Ordering::Relaxed)))
    }

    /// The word that changes with the epoch, for those who look at nothing else.
    #[must_use]
    pub fn epoch_word(&self) -> &AtomicU32 {
        &self.pages.epoch.0
    }

    /// For [`wait`](crate::wait): until the daemon has changed something. Every change wakes.
    #[must_use]
    pub fn watch(&self, seen: Epoch) -> Watch<'_> {
        Watch { word: &self.pages.epoch.0, seen: seen.0 }
    }

    /// The policy's number, as it stands there: who knows the policies looks it up.
    #[must_use]
    pub fn policy(&self) -> u32 {
        self.pages.policy.0.number.load(Ordering::Relaxed)
    }

    /// How much best-effort tenants may disturb, in thousandths.
    #[must_use]
    pub fn aggressiveness(&self) -> u16 {
        u16::try_from(self.pages.policy.0.aggressiveness.load(Ordering::Relaxed)).unwrap_or(u16::MAX).min(1_000)
    }

    /// What is known of a kernel from before.
    #[must_use]
    pub fn kernel(&self, identity: u64) -> Option<KernelNote> {
        kernels::read(&self.pages.kernels, identity)
    }

    /// When the daemon last said that it is alive; never in the future, nothing if it never did.
    #[must_use]
    pub fn heartbeat(&self, now: u64) -> Option<u64> {
        time_past(self.pages.heartbeat.0.load(Ordering::Relaxed), now, &mut Doubts::default())
    }

    /// Whether somebody wants to know now what the launches of the tenant in a slot take: for the launch path.
    #[must_use]
    pub fn is_asked(&self, slot: usize, now: u64) -> bool {
        let until = self.pages.slots.get(slot).map_or(0, |slot| slot.0.asked_until.load(Ordering::Relaxed));
        until > now && until - now <= FURTHEST_ASKED_NS
    }

    /// What is in a slot. A slot that does not exist is free.
    #[must_use]
    #[inline(never)]
    pub fn slot(&self, slot: usize) -> SlotState {
        let Some(record) = self.pages.slots.get(slot).map(|slot| &slot.0) else { return SlotState::Free };
        // The generation with the entry: the next one is claimed before its entry is written, so who reads that entry
        // cannot find the generation before it.
        let occupant = record.sequence.read(|| record.word.live().map(|generation| read(record, generation)));
        match occupant {
            Some(Some(occupant)) => SlotState::Taken(occupant),
            Some(None) => SlotState::Free,
            None => SlotState::Torn,
        }
    }

    /// All slots that are taken, with their numbers.
    pub fn occupants(&self) -> impl Iterator<Item = (usize, Occupant)> {
        (0..SLOTS).filter_map(|slot| match self.slot(slot) {
            SlotState::Taken(occupant) => Some((slot, occupant)),
            SlotState::Free | SlotState::Torn => None,
        })
    }
}

fn read(record: &SlotRecord, generation: Generation) -> Occupant {
    let mut doubts = Doubts::NONE;
    let words = [&record.pid, &record.class, &record.weight, &record.least_share, &record.splits];
    let [pid, class_number, weight, least_share, splits] = words.map(|word| word.load(Ordering::Relaxed));
    let words = [&record.start_time, &record.memory, &record.longest_hold];
    let [start_time, memory, longest_hold] = words.map(|word| word.load(Ordering::Relaxed));
    let ladder: [u32; MOST_SPLITS] = core::array::from_fn(|split| record.ladder[split].load(Ordering::Relaxed));
    doubts.add_if(!HOLDS_NS.contains(&longest_hold), Doubts::LIMITS);
    let limits = Limits {
        memory: (memory != 0).then_some(memory),
        longest_hold_ns: longest_hold.clamp(*HOLDS_NS.start(), *HOLDS_NS.end()),
        least_share: within(least_share, 0, MOST_SHARE, Doubts::LIMITS, &mut doubts),
    };
    let [p99_ns, ttft_ns, tpot_ns] = [&record.p99, &record.ttft, &record.tpot]
        .map(|word| Some(word.load(Ordering::Relaxed)).filter(|time| *time != 0));
    let turnaround = record.turnaround.load(Ordering::Relaxed);
    let splits = usize::try_from(splits).ok().and_then(|splits| ladder.get(..splits));
    let ladder = splits.and_then(SplitLadder::new);
    doubts.add_if(ladder.is_none(), Doubts::LADDER);
    let entry = Entry {
        class: class(class_number, &mut doubts),
        weight: within(weight, 1, MOST_WEIGHT, Doubts::WEIGHT, &mut doubts),
        paused: record.paused.load(Ordering::Relaxed) != 0,
        objective: Objective { p99_ns, ttft_ns, tpot_ns },
        ladder: ladder.unwrap_or_default(),
        limits,
        turnaround_ns: (turnaround != 0).then_some(turnaround),
    };
    Occupant { generation, pid, start_time, entry, doubts }
}

impl fmt::Debug for DaemonView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.occupants()).finish()
    }
}
