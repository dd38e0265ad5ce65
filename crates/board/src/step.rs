//! The hot word: busy or idle, and the step's number; and how it follows what was launched and finished.

use crate::sync::{AtomicU32, AtomicU64, Ordering, Watch, acquired, wake};

pub(crate) const BUSY: u32 = 1;

/// Whether a tenant is busy, and with which step. When idle: the step that it finished last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    bits: u32,
}

impl Step {
    /// Every value of the word is a step.
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self { bits }
    }

    /// Whether the GPU has work of the tenant.
    #[must_use]
    pub const fn is_busy(self) -> bool {
        self.bits & BUSY != 0
    }

    /// Counts up from 0 (no step yet), and starts again after 2³¹ - 1.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.bits >> 1
    }

    const fn following(self) -> Self {
        Self { bits: (self.number().wrapping_add(1) << 1) | BUSY }
    }

    const fn ended(self) -> Self {
        Self { bits: self.bits & !BUSY }
    }
}

/// The word itself. Written by its owner's threads; others sleep on it.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct StepWord(AtomicU32);

impl StepWord {
    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    pub(crate) fn get(&self) -> Step {
        // Pairs with the release of `begin` and `end`.
        Step::from_bits(acquired(self.0.load(Ordering::Relaxed)))
    }

    pub(crate) const fn watch(&self, seen: Step) -> Watch<'_> {
        Watch { word: &self.0, seen: seen.bits }
    }

    /// Busy with the next step, unless it is busy already. Wakes nobody: nobody sleeps until a tenant is busy.
    pub(crate) fn begin(&self) -> Step {
        let mut seen = self.get();
        while !seen.is_busy() {
            match self.exchange(seen, seen.following()) {
                Ok(begun) => return begun,
                Err(now) => seen = now,
            }
        }
        seen
    }

    /// Idle, if it is busy with this step; says whether it was. Whoever slept on the word looks again.
    pub(crate) fn end(&self, step: Step) -> bool {
        let ended = step.is_busy() && self.exchange(step, step.ended()).is_ok();
        if ended {
            self.wake();
        }
        ended
    }

    /// Counts a launch that is about to be made, and is busy from now on.
    pub(crate) fn launch(&self, launched: &AtomicU64) -> Step {
        launched.fetch_add(1, Ordering::SeqCst);
        // Pairs with `finish`, all four sequentially consistent: if this thread still finds the step busy that is being
        // ended there, that thread finds this launch.
        in_order();
        let step = Step::from_bits(self.0.load(Ordering::SeqCst));
        if step.is_busy() { step } else { self.begin() }
    }

    /// Everything up to the launch with this number is finished. Idle, if nothing else was launched; says whether.
    pub(crate) fn finish(&self, upto: u64, launched: &AtomicU64) -> bool {
        let step = self.get();
        if launched.load(Ordering::Relaxed) != upto || !step.is_busy() || self.exchange(step, step.ended()).is_err() {
            return false;
        }
        // Pairs with `launch`.
        in_order();
        let idle = launched.load(Ordering::SeqCst) == upto;
        if !idle {
            self.begin();
        }
        // Even if the next step has begun: who slept on this one must not sleep on.
        self.wake();
        idle
    }

    fn exchange(&self, from: Step, to: Step) -> Result<Step, Step> {
        // Release: pairs with the acquire in `get` and in `Watch::has_changed`.
        match self.0.compare_exchange(from.bits, to.bits, Ordering::SeqCst, Ordering::Acquire) {
            Ok(_) => Ok(to),
            Err(bits) => Err(Step::from_bits(bits)),
        }
    }

    fn wake(&self) {
        wake(&self.0);
    }
}

/// The model checker knows sequential consistency of fences alone; processors have it cheaper with the operations.
fn in_order() {
    #[cfg(loom)]
    crate::sync::fence(Ordering::SeqCst);
}
