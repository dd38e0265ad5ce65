//! When the lanes of a warp were last in step.

use super::super::lanes::{LANES, lanes_of};

/// Steps at which lanes of a warp were last in step, or one came after the other.
#[derive(Debug)]
pub(super) struct Together {
    all: u32,
    pairs: Box<[[u32; LANES]; LANES]>,
}

impl Default for Together {
    fn default() -> Self {
        Self { all: 0, pairs: Box::new([[0; LANES]; LANES]) }
    }
}

impl Together {
    /// These lanes are in step now; `all` is set where there are no others.
    pub(super) fn meet(&mut self, lanes: u32, all: bool, step: u32) {
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

    /// The last step up to which everything that `earlier` did has happened before what `later` does now.
    pub(super) fn since(&self, earlier: usize, later: usize) -> u32 {
        self.all.max(self.pairs[earlier][later])
    }
}
