//! Which lane the next launch gets where nobody else decides: `DETSHARE_SCHEDULE`.
//!
//! * `full`: always the whole GPU. The lanes are made and stay unused.
//! * `random:SEED`: any lane that is ready, another one at each launch.
//! * `cycle`: one lane after the other; `cycle:NAME`: `full` and that lane in turn.
//! * a lane's name, such as `front32` or `rest96`: always that one.

use crate::coroutine::Coroutine;
use crate::lane::{FULL, LANES};
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What the environment asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Schedule {
    Full,
    Random(u64),
    Cycle,
    Between(String),
    Lane(String),
}

impl Schedule {
    /// Reads a setting; None if it makes no sense.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text.split_once(':') {
            Some(("random", seed)) => seed.parse().ok().map(Self::Random),
            Some(("cycle", name)) => Some(Self::Between(name.into())),
            None if text == "full" => Some(Self::Full),
            None if text == "cycle" => Some(Self::Cycle),
            None if text.starts_with("front") || text.starts_with("rest") => Some(Self::Lane(text.into())),
            _ => None,
        }
    }

    /// The lane that it names.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Between(name) | Self::Lane(name) => Some(name),
            Self::Full | Self::Random(_) | Self::Cycle => None,
        }
    }

    /// The lane for the next launch.
    pub(crate) fn choose(&self, coroutine: &Coroutine) -> usize {
        let lane = match self {
            Self::Full => FULL,
            Self::Random(seed) => usize::try_from(random(*seed) % LANES as u64).unwrap_or(FULL),
            Self::Cycle => turn() % LANES,
            Self::Between(_) if turn().is_multiple_of(2) => FULL,
            Self::Between(_) => coroutine.named_lane(),
            Self::Lane(_) => coroutine.named_lane(),
        };
        if lane == FULL || coroutine.lanes[lane].is_ready() { lane } else { FULL }
    }
}

/// Counts choices.
fn turn() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A random number; each thread has a series of its own.
fn random(seed: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static STATE: Cell<u64> = const { Cell::new(0) };
    }
    let next = |state: &Cell<u64>| {
        if state.get() == 0 {
            state.set(seed.wrapping_add(THREADS.fetch_add(1, Ordering::Relaxed)).wrapping_mul(GOLDEN));
        }
        // SplitMix64: Steele, Lea and Flood, 2014.
        state.set(state.get().wrapping_add(GOLDEN));
        let mut value = state.get();
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    };
    // A thread that is ending has no series any more.
    STATE.try_with(next).unwrap_or(0)
}
