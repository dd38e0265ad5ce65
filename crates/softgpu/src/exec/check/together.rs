//! When the lanes of a warp were last in step.

use super::super::lanes::{LANES, lanes_of};

/// Steps at which lanes of a warp were last in step, or one came after the other.
#[derive(Debug)]
pub(super) struct Together {
    all: u32,
    pairs: Box<[[u32; LANES]; LANES]>,
    /// Up to which count of its own warp each lane knows that everything has happened, from those who waited for it.
    acquired: [u32; LANES],
    /// Some may know less than others.
    differ: bool,
}

impl Default for Together {
    fn default() -> Self {
        Self { all: 0, pairs: Box::new([[0; LANES]; LANES]), acquired: [0; LANES], differ: false }
    }
}

impl Together {
    /// These lanes are in step now; `all` is set where there are no others.
    pub(super) fn meet(&mut self, lanes: u32, all: bool, step: u32) {
        if self.differ {
            let most = lanes_of(lanes).map(|lane| self.acquired[lane]).max().unwrap_or_default();
            self.acquire(lanes, most);
            self.differ = !all;
        }
        if all {
            self.all = step;
            return;
        }
        for lane in lanes_of(lanes) {
            lanes_of(lanes).for_each(|other| self.pairs[lane][other] = step);
        }
    }

    /// Whatever `earlier` did up to that step, `later` comes after it.
    pub(super) fn follow(&mut self, earlier: usize, later: usize, step: u32) {
        let since = &mut self.pairs[earlier][later];
        *since = (*since).max(step.saturating_add(1));
    }

    /// These lanes come after everything of the warp up to that count.
    pub(super) fn acquire(&mut self, lanes: u32, count: u32) {
        lanes_of(lanes).for_each(|lane| self.acquired[lane] = self.acquired[lane].max(count));
        self.differ = true;
    }

    /// Whether what `earlier` did at that step, with that count, has happened before what `later` does now.
    pub(super) fn is_before(&self, earlier: usize, (step, count): (u32, u32), later: usize) -> bool {
        earlier == later || self.all.max(self.pairs[earlier][later]) > step || self.acquired[later] >= count
    }
}
