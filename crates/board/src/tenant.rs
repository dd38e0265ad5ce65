//! A tenant's group: what it publishes, and what others read of it.

use crate::checked::{Class, Doubts, HORIZON_NS, class, time_ahead, time_past, within};
use crate::clock;
use crate::decisions::{self, Noted};
use crate::entry::MOST_SMS;
use crate::kernels::{self, Column, KernelNote, ONLY_MODEL};
use crate::layout::{KERNEL_WIDTHS, LANES, MOST_SPLITS, OBJECTIVES, StepRecord, TenantPages};
use crate::mapping::{MapError, Others, Own};
use crate::step::Step;
use crate::step_page::StepPage;
use crate::step_times::{self, StepTimes};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Watch, acquired};
use core::fmt;
use core::num::NonZeroU64;
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
        self.pages.step.0.word.launch(&self.pages.launched.0)
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
        self.pages.step.0.word.finish(upto, &self.pages.launched.0)
    }

    /// Busy with the next step, unless busy already: for work that is not counted as launches.
    pub fn begin_step(&self) -> Step {
        self.pages.step.0.word.begin()
    }

    /// Idle, if busy with this very step, and wakes those who wait for it; says whether it was. The caller knows that
    /// nothing was launched meanwhile; where launches are counted, [`Tenant::finish`] finds out.
    pub fn end_step(&self, step: Step, next_due: u64) -> bool {
        if self.step() == step {
            self.set_due(next_due);
        }
        self.pages.step.0.word.end(step)
    }

    /// Busy or idle, and the step.
    #[must_use]
    pub fn step(&self) -> Step {
        self.pages.step.0.word.get()
    }

    /// Publishes another class.
    pub fn set_class(&self, class: Class) {
        let record = &self.pages.record.0;
        record.sequence.write(|| record.class.store(class.number(), Ordering::Relaxed));
    }

    /// Publishes the lane that the tenant is bound to, and how many SMs that has.
    pub fn set_lane(&self, lane: u8, width: u32) {
        let record = &self.pages.record.0;
        record.sequence.write(|| {
            record.lane.store(u32::from(lane), Ordering::Relaxed);
            record.lane_width.store(width, Ordering::Relaxed);
        });
    }

    /// The lane that was published last.
    #[must_use]
    pub fn lane(&self) -> u32 {
        self.pages.record.0.lane.load(Ordering::Relaxed)
    }

    /// How many SMs the lane has that was published last; 0 is unknown.
    #[must_use]
    pub fn lane_width(&self) -> u32 {
        self.pages.record.0.lane_width.load(Ordering::Relaxed)
    }

    /// Publishes which GPU the tenant uses; 0 is unknown.
    pub fn set_gpu(&self, gpu: u64) {
        self.pages.facts.0.gpu.store(gpu, Ordering::Relaxed);
    }

    /// Publishes how many bytes of its memory the tenant has.
    pub fn set_memory(&self, bytes: u64) {
        self.pages.facts.0.memory.store(bytes, Ordering::Relaxed);
    }

    /// Publishes when the step began that has just begun.
    pub fn set_begun(&self, now: u64) {
        self.pages.step.0.begun.store(now, Ordering::Relaxed);
    }

    /// Counts a step that lasted so long. One thread at a time.
    pub fn note_step(&self, ns: u64) {
        self.pages.step_times.0[step_times::bucket(ns)].fetch_add(1, Ordering::Relaxed);
        let lasts = &self.pages.step.0.lasts;
        let before = lasts.load(Ordering::Relaxed);
        // A few steps are enough to follow a program that has changed its ways.
        let now = if before == 0 { ns } else { (before - before / 4).saturating_add(ns / 4) };
        lasts.store(now, Ordering::Relaxed);
    }

    /// Publishes when the next step is due, by [`clock::now`]; 0 is unknown.
    pub fn set_due(&self, due: u64) {
        self.pages.step.0.due.store(due, Ordering::Relaxed);
    }

    /// Publishes how far from when it is due the next step begins mostly, how long the tenant is idle on average, and what
    /// part of the GPU a step makes use of, in thousandths (0: unknown).
    pub fn set_habits(&self, spread_ns: u64, gap_ns: u64, needs: u32) {
        self.pages.step.0.spread.store(spread_ns, Ordering::Relaxed);
        self.pages.step.0.gap.store(gap_ns, Ordering::Relaxed);
        self.pages.step.0.needs.store(needs, Ordering::Relaxed);
    }

    /// Publishes for those who ask how long steps last on all SMs, and on a part of them, in thousandths (0: unknown).
    pub fn set_lengths(&self, on_all_ns: u64, (part, ns): (u32, u64)) {
        let facts = &self.pages.facts.0;
        facts.on_all.store(on_all_ns, Ordering::Relaxed);
        facts.narrow_part.store(part, Ordering::Relaxed);
        facts.on_narrow.store(ns, Ordering::Relaxed);
    }

    /// Publishes when the last step ended, and what nine of ten pauses are longer than, and shorter than (0: unknown).
    pub fn set_pauses(&self, ended: u64, soon_ns: u64, long_ns: u64) {
        self.pages.step.0.ended.store(ended, Ordering::Relaxed);
        self.pages.step.0.soon.store(soon_ns, Ordering::Relaxed);
        self.pages.step.0.long.store(long_ns, Ordering::Relaxed);
    }

    /// Publishes what the step under way is, or the last one was, by a number (0: unknown), and what short steps have to do.
    pub fn set_phase(&self, phase: u8, pace_ns: u64) {
        self.pages.step.0.phase.store(phase.into(), Ordering::Relaxed);
        self.pages.step.0.pace.store(pace_ns, Ordering::Relaxed);
    }

    /// Publishes when the prompt began that is pending; 0 is none.
    pub fn set_prompt(&self, since: u64) {
        let word = &self.pages.step.0.prompt;
        // Others look at that line before each of their launches.
        if word.load(Ordering::Relaxed) != since {
            word.store(since, Ordering::Relaxed);
        }
    }

    /// What was published of the steps to come, as others see it.
    #[must_use]
    pub fn outlook(&self, now: u64) -> Outlook {
        outlook(&self.pages.step.0, now)
    }

    /// Counts, for each objective, whether a step kept to it (nothing where it says nothing about it), and publishes whether
    /// the tenant misses one too often now. One thread at a time.
    pub fn note_objectives(&self, kept: [Option<bool>; OBJECTIVES], strained: bool) {
        let facts = &self.pages.facts.0;
        for (which, kept) in kept.into_iter().enumerate() {
            facts.judged[which].fetch_add(u64::from(kept.is_some()), Ordering::Relaxed);
            facts.missed[which].fetch_add(u64::from(kept == Some(false)), Ordering::Relaxed);
        }
        self.set_strained(strained);
    }

    /// Publishes whether the tenant misses its objectives.
    pub fn set_strained(&self, strained: bool) {
        let word = &self.pages.step.0.strained;
        // Others look at that line before each of their launches.
        if word.load(Ordering::Relaxed) != u32::from(strained) {
            word.store(u32::from(strained), Ordering::Relaxed);
        }
    }

    /// Publishes by how many splits a front has to be wider than predicted for its tokens to be in time.
    pub fn set_wider(&self, wider: u8) {
        let word = &self.pages.step.0.wider;
        if word.load(Ordering::Relaxed) != u32::from(wider) {
            word.store(u32::from(wider), Ordering::Relaxed);
        }
    }

    /// Publishes whether its kernels keep running far longer than they should.
    pub fn set_quarantined(&self, quarantined: bool) {
        self.pages.facts.0.quarantined.store(u32::from(quarantined), Ordering::Relaxed);
    }

    /// Writes down a decision, and says under which number. Any thread may.
    pub fn note_decision(&self, decision: &Noted) -> NonZeroU64 {
        decisions::write(&self.pages.decisions, decision)
    }

    /// Adds to a decision how long the launch took. Any thread may.
    pub fn note_measured(&self, decision: NonZeroU64, ns: u64) {
        decisions::measured(&self.pages.decisions, decision, ns);
    }

    /// Publishes how many SMs the lanes have that [`Tenant::note_kernel`] numbers.
    pub fn set_widths(&self, widths: &[u32]) {
        kernels::set_widths(&self.pages.kernels, widths);
    }

    /// Publishes what a kernel takes on a lane, and how often that was measured. One thread at a time.
    pub fn note_kernel(&self, identity: u64, name: &str, lane: usize, ns: u64, measured: u32) {
        let column = Column { model: ONLY_MODEL, width: lane };
        kernels::write(&self.pages.kernels, identity, name, column, ns, measured);
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
        Hold { tenant: self, since: now }
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tenant").field("step", &self.step()).finish_non_exhaustive()
    }
}

/// A thread of the tenant that is being held.
#[derive(Debug)]
pub struct Hold<'a> {
    tenant: &'a Tenant,
    since: u64,
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        let record = &self.tenant.pages.record.0;
        let held = clock::now().saturating_sub(self.since);
        record.sequence.write(|| {
            record.held.fetch_add(held, Ordering::Relaxed);
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
    /// How many SMs that lane has, at most [`MOST_SMS`]; 0 is unknown.
    pub lane_width: u32,
    /// Launches that were held so far.
    pub holds: u64,
    /// Since when one is being held; never in the future.
    pub holding_since: Option<u64>,
    /// How long launches were held so far, all of them together.
    pub held_ns: u64,
    /// Which GPU it uses; 0 is unknown. Only ever compared.
    pub gpu: u64,
    /// Bytes of that GPU's memory that it has, as it says.
    pub memory: u64,
    /// What the step under way is, or the last one was, by a number; 0 is unknown.
    pub phase: u8,
    /// What its short steps have to do; 0 is unknown.
    pub pace_ns: u64,
    /// For each objective (p99, ttft, tpot), how many steps said something about it, as it says.
    pub judged: [u64; OBJECTIVES],
    /// How many of those missed it; no more.
    pub missed: [u64; OBJECTIVES],
    /// Whether it misses one too often now.
    pub strained: bool,
    /// What was replaced because it could not be.
    pub doubts: Doubts,
}

/// What a tenant says of its steps to come; no time is further than [`HORIZON_NS`] from now, and no duration longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outlook {
    /// When the next one is due.
    pub due: Option<u64>,
    /// How far from that they begin mostly.
    pub spread_ns: u64,
    /// The mean pause between two; 0 is unknown.
    pub gap_ns: u64,
    /// How long they last lately; 0 is unknown.
    pub lasts_ns: u64,
    /// What part of the GPU they make use of, in thousandths: from 1 to all, which is also what is unknown.
    pub needs: u32,
    /// What the step under way is, or the last one was, by a number; 0 is unknown.
    pub phase: u8,
    /// What short steps have to do; 0 is unknown.
    pub pace_ns: u64,
    /// When the last one began; never in the future.
    pub begun: u64,
    /// When the prompt began that is pending; never in the future.
    pub prompt: Option<u64>,
    /// When the last one ended; never in the future. 0 is unknown.
    pub ended: u64,
    /// What nine of ten pauses are longer than; 0 is unknown.
    pub soon_ns: u64,
    /// What nine of ten pauses are shorter than; 0 is unknown.
    pub long_ns: u64,
    /// Whether it misses its objectives.
    pub strained: bool,
    /// By how many splits a front has to be wider than predicted for its tokens to be in time; no more than there can be.
    pub wider: u8,
}

/// How long a tenant's steps last, by how many SMs they have; no duration is longer than [`HORIZON_NS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLengths {
    /// On all SMs; 0 is unknown.
    pub on_all_ns: u64,
    /// A part of the SMs, in thousandths, and how long they last there.
    pub narrow: Option<(u32, u64)>,
    /// What part of the GPU they make use of, in thousandths: from 1 to all, which is also what is unknown.
    pub needs: u32,
}

/// By so many splits a front is wider than any.
const MOST_WIDER: u32 = 16;
const _: () = assert!(MOST_WIDER as usize == MOST_SPLITS);

/// All of the GPU, in thousandths.
const ALL: u32 = 1_000;

fn due(step: &StepRecord, now: u64) -> Option<u64> {
    time_ahead(step.due.load(Ordering::Relaxed), now, &mut Doubts::default())
}

/// Whether it misses its objectives. One that has had no step for long misses nothing.
fn strained(step: &StepRecord, now: u64) -> bool {
    const LONG_NS: u64 = 10_000_000_000;
    step.strained.load(Ordering::Relaxed) != 0 && now.saturating_sub(step.begun.load(Ordering::Relaxed)) < LONG_NS
}

fn bounded(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed).min(HORIZON_NS)
}

/// A part of the GPU, in thousandths.
fn part(word: &AtomicU32) -> Option<u32> {
    Some(word.load(Ordering::Relaxed)).filter(|part| (1..=ALL).contains(part))
}

fn outlook(step: &StepRecord, now: u64) -> Outlook {
    Outlook {
        due: due(step, now),
        spread_ns: bounded(&step.spread),
        gap_ns: bounded(&step.gap),
        lasts_ns: bounded(&step.lasts),
        needs: part(&step.needs).unwrap_or(ALL),
        phase: u8::try_from(step.phase.load(Ordering::Relaxed)).unwrap_or(0),
        pace_ns: bounded(&step.pace),
        begun: step.begun.load(Ordering::Relaxed).min(now),
        prompt: Some(step.prompt.load(Ordering::Relaxed).min(now)).filter(|since| *since != 0),
        ended: step.ended.load(Ordering::Relaxed).min(now),
        soon_ns: bounded(&step.soon),
        long_ns: bounded(&step.long),
        strained: strained(step, now),
        wider: step.wider.load(Ordering::Relaxed).min(MOST_WIDER).try_into().unwrap_or(0),
    }
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

    /// A place for a tenant that has not come yet: it reads as one that is idle and has never launched anything.
    pub fn none() -> Result<Self, MapError> {
        Ok(Self { pages: Others::none()? })
    }

    /// Puts another tenant's group in the place of this one. Threads that read meanwhile find the old or the new one.
    pub fn replace(&self, file: impl AsFd) -> Result<(), MapError> {
        self.pages.replace(file.as_fd())
    }

    /// As [`TenantView::none`]: whoever was here has left.
    pub fn clear(&self) -> Result<(), MapError> {
        self.pages.clear()
    }

    /// Its step word at a place of its own. Nobody replaces or clears the view meanwhile; one that shows nobody has none.
    pub fn step_page(&self) -> Result<StepPage, MapError> {
        self.pages.first_page().map(StepPage::new)
    }

    /// Whether one of its launches is being held: for the launch path.
    #[must_use]
    pub fn is_holding(&self) -> bool {
        self.pages.record.0.holding.load(Ordering::Relaxed) != 0
    }

    /// Which GPU it uses; 0 is unknown.
    #[must_use]
    pub fn gpu(&self) -> u64 {
        self.pages.facts.0.gpu.load(Ordering::Relaxed)
    }

    /// How long its steps lasted.
    #[must_use]
    pub fn step_times(&self) -> StepTimes {
        StepTimes::new(|bucket| self.pages.step_times.0[bucket].load(Ordering::Relaxed))
    }

    /// Busy or idle, and the step: one load.
    #[must_use]
    pub fn step(&self) -> Step {
        self.pages.step.0.word.get()
    }

    /// Launches so far.
    #[must_use]
    pub fn launched(&self) -> u64 {
        self.pages.launched.0.load(Ordering::Relaxed)
    }

    /// For [`wait`](crate::wait): until a step has ended that was under way, or was yet to begin. That a tenant has become
    /// busy wakes nobody.
    #[must_use]
    pub fn watch(&self, seen: Step) -> Watch<'_> {
        self.pages.step.0.word.watch(seen)
    }

    /// When the step that it is in will end if it lasts as long as the last ones; nothing if nobody knows. May have passed.
    #[must_use]
    pub fn expected_end(&self, now: u64) -> Option<u64> {
        let step = &self.pages.step.0;
        let (begun, lasts) = (step.begun.load(Ordering::Relaxed), step.lasts.load(Ordering::Relaxed));
        let end = begun.saturating_add(lasts);
        time_ahead(if lasts == 0 { 0 } else { end }, now, &mut Doubts::default())
    }

    /// When its next step is due, and nothing else: for the launch path.
    #[must_use]
    pub fn due(&self, now: u64) -> Option<u64> {
        due(&self.pages.step.0, now)
    }

    /// What it says of when its steps begin and how long they last: for the launch path.
    #[must_use]
    pub fn outlook(&self, now: u64) -> Outlook {
        outlook(&self.pages.step.0, now)
    }

    /// What it says of how long its steps last, for those who ask.
    #[must_use]
    pub fn step_lengths(&self) -> StepLengths {
        let facts = &self.pages.facts.0;
        StepLengths {
            on_all_ns: bounded(&facts.on_all),
            narrow: part(&facts.narrow_part).zip(Some(bounded(&facts.on_narrow)).filter(|ns| *ns != 0)),
            needs: part(&self.pages.step.0.needs).unwrap_or(ALL),
        }
    }

    /// Whether it says that its kernels keep running far longer than they should.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.pages.facts.0.quarantined.load(Ordering::Relaxed) != 0
    }

    /// What it says of its kernels.
    #[must_use]
    pub fn kernels(&self) -> Vec<KernelNote> {
        kernels::read_all(&self.pages.kernels)
    }

    /// What it says of one kernel.
    #[must_use]
    pub fn kernel(&self, identity: u64) -> Option<KernelNote> {
        kernels::read(&self.pages.kernels, identity)
    }

    /// How many SMs its lanes have, by number; 0 is no lane.
    #[must_use]
    pub fn widths(&self) -> [u32; KERNEL_WIDTHS] {
        self.pages.kernels.widths[ONLY_MODEL].each_ref().map(|width| width.load(Ordering::Relaxed).min(MOST_SMS))
    }

    /// What was decided last for it, oldest first.
    #[must_use]
    pub fn decisions(&self) -> Vec<Noted> {
        decisions::read(&self.pages.decisions)
    }

    /// All of it, with times as seen from `now`.
    #[must_use]
    pub fn read(&self, now: u64) -> TenantState {
        let mut doubts = Doubts::NONE;
        let record = &self.pages.record.0;
        let words = record.sequence.read(|| {
            let numbers = [&record.class, &record.lane, &record.lane_width].map(|word| word.load(Ordering::Relaxed));
            let counts = [&record.holds, &record.holding_since, &record.held];
            (numbers, counts.map(|word| word.load(Ordering::Relaxed)))
        });
        doubts.add_if(words.is_none(), Doubts::TORN);
        let ([class_number, lane, lane_width], [holds, since, held_ns]) = words.unwrap_or_default();
        let due = self.pages.step.0.due.load(Ordering::Relaxed);
        // Finished first, then launched: an honest tenant has launched what it has finished. The acquire pairs with the
        // release in `Tenant::finish`.
        let finished = acquired(self.pages.finished.0.load(Ordering::Relaxed));
        let launched = self.pages.launched.0.load(Ordering::Relaxed);
        doubts.add_if(finished > launched, Doubts::COUNTS);
        // Missed first, as above.
        let facts = &self.pages.facts.0;
        let [missed, judged] =
            [&facts.missed, &facts.judged].map(|counts| counts.each_ref().map(|count| count.load(Ordering::Relaxed)));
        let lane = u8::try_from(lane).ok().filter(|lane| *lane < LANES);
        doubts.add_if(lane.is_none(), Doubts::LANE);
        TenantState {
            class: class(class_number, &mut doubts),
            step: self.step(),
            due: time_ahead(due, now, &mut doubts),
            launched,
            finished: finished.min(launched),
            lane: lane.unwrap_or_default(),
            lane_width: within(lane_width, 0, MOST_SMS, Doubts::LANE, &mut doubts),
            holds,
            holding_since: time_past(since, now, &mut doubts),
            held_ns,
            gpu: self.gpu(),
            memory: self.pages.facts.0.memory.load(Ordering::Relaxed),
            phase: u8::try_from(self.pages.step.0.phase.load(Ordering::Relaxed)).unwrap_or(0),
            pace_ns: self.pages.step.0.pace.load(Ordering::Relaxed).min(HORIZON_NS),
            judged,
            missed: core::array::from_fn(|which| missed[which].min(judged[which])),
            strained: strained(&self.pages.step.0, now),
            doubts,
        }
    }
}

impl fmt::Debug for TenantView {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("TenantView").field(&self.read(clock::now())).finish()
    }
}
