//! Times of several ways of doing one thing, taken in turn in one process, and what is reported of them.

use serde_json::{Value, json};
use std::time::Instant;

/// One way of doing it.
pub trait Side {
    /// Does it so many times in a row. This is what is timed.
    fn launch(&mut self, times: u32);
    /// Waits until the GPU has done it. Not timed.
    fn wait(&mut self);
}

/// How much is done of it.
#[derive(Debug, Clone, Copy)]
pub struct Amount {
    /// Batches of each side.
    pub batches: u32,
    /// Launches in a row, before the GPU is waited for. Many in a row fill the driver's queue, and then the GPU's
    /// pace is measured and not the call's cost.
    pub launches: u32,
}

/// What the batches of one side took, in nanoseconds a launch.
#[derive(Debug, Clone)]
pub struct Times(Vec<f64>);

impl Times {
    /// Of values in any order. There must be one at least.
    #[must_use]
    pub fn new(mut values: Vec<f64>) -> Self {
        assert!(!values.is_empty(), "nothing was measured");
        values.sort_by(f64::total_cmp);
        Self(values)
    }

    /// The value in the middle.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    /// The value that nine tenths do not exceed.
    #[must_use]
    pub fn p90(&self) -> f64 {
        self.0[(self.0.len() * 9).div_ceil(10) - 1]
    }

    /// In the middle, near the end, and where each tenth of them ends.
    #[must_use]
    pub fn json(&self) -> Value {
        let tenth = |tenth: usize| self.0[(self.0.len() - 1) * tenth / 10];
        let tenths: Vec<f64> = (0..=10).map(tenth).collect();
        json!({ "median": self.median(), "p90": self.p90(), "batches": self.0.len(), "tenths": tenths })
    }
}

/// Times batches of all sides in turn, so that whatever drifts hits all of them; which one goes first changes too.
pub fn alternate(sides: &mut [&mut dyn Side], amount: Amount) -> Vec<Times> {
    let mut times = vec![Vec::new(); sides.len()];
    for batch in 0..amount.batches as usize {
        for turn in 0..sides.len() {
            let which = (batch + turn) % sides.len();
            times[which].push(one_batch(&mut *sides[which], amount));
        }
    }
    times.into_iter().map(Times::new).collect()
}

fn one_batch(side: &mut dyn Side, amount: Amount) -> f64 {
    let start = Instant::now();
    side.launch(amount.launches);
    let taken = start.elapsed();
    side.wait();
    taken.as_secs_f64() * 1e9 / f64::from(amount.launches)
}
