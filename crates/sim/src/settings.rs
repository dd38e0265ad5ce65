//! How a trace is to be simulated.

use crate::costs::Costs;
use crate::trace::{LAST_NS, Trace, TraceError};
use core::fmt;
use detshare_policy::{Dial, number, policy};

/// A way of sharing a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Each tenant has a GPU for itself.
    Alone,
    /// The driver gives processes turns.
    TimeSlicing,
    /// All run at once on all SMs, and nobody decides anything.
    Mps,
    /// Launches are decided by the policy with this number.
    Policy(u32),
}

impl Way {
    const NAMED: [(&str, Self); 3] = [("alone", Self::Alone), ("time-slicing", Self::TimeSlicing), ("mps", Self::Mps)];

    /// The way of this name: `alone`, `time-slicing`, `mps` or a policy's.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let plain = Self::NAMED.iter().find(|(of, _)| *of == name).map(|(_, way)| *way);
        plain.or_else(|| number(name).map(Self::Policy))
    }

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Policy(number) => policy(number).map_or("unknown", |policy| policy.name),
            plain => Self::NAMED.iter().find(|(_, way)| *way == plain).map_or("unknown", |(name, _)| name),
        }
    }
}

/// How it is simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How much time.
    pub run_ns: u64,
    /// The same seed gives the same arrivals.
    pub seed: u64,
    /// How much best-effort tenants may disturb.
    pub dial: Dial,
    /// What a best-effort tenant gets in any case, in thousandths.
    pub least_share: u32,
    /// A held launch runs after so long in any case.
    pub longest_hold_ns: u64,
    /// The widths of `front` in the splits, narrowest first.
    pub ladder: Vec<u32>,
    /// Whether tenants of a policy run at once, as under MPS. Otherwise they are time-sliced, and there are no splits.
    pub mps: bool,
    /// Whether policies know what kernels take. Otherwise it is as if each were launched for the first time.
    pub profiles: bool,
    /// What things take.
    pub costs: Costs,
}

impl Default for Settings {
    /// Ten seconds, and what the daemon and the policies have if nobody says otherwise.
    fn default() -> Self {
        Self {
            run_ns: 10_000_000_000,
            seed: 1,
            dial: Dial::USUAL,
            least_share: 100,
            longest_hold_ns: 20_000_000,
            ladder: vec![16, 32, 48, 64, 96],
            mps: true,
            profiles: true,
            costs: Costs::H200,
        }
    }
}

/// Why something is not simulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// The trace is at fault.
    Trace(TraceError),
    /// The settings are.
    Settings(&'static str),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trace(error) => write!(f, "trace: {error}"),
            Self::Settings(what) => write!(f, "settings: {what}"),
        }
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Trace(error) => Some(error),
            Self::Settings(_) => None,
        }
    }
}

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl Settings {
    pub(crate) fn check(&self, trace: &Trace) -> Result<(), Error> {
        self.costs.check().map_err(Error::Settings)?;
        if self.run_ns == 0 || self.run_ns > LAST_NS {
            return Err(Error::Settings("the time is not between 1 ns and 30 days"));
        }
        if self.longest_hold_ns == 0 || self.longest_hold_ns > 10_000_000_000 {
            return Err(Error::Settings("the longest hold is not between 1 ns and 10 s"));
        }
        let rises = self.ladder.windows(2).all(|pair| pair[0] < pair[1]);
        let fits = self.ladder.iter().all(|width| (1..trace.gpu.sms).contains(width));
        if !rises || !fits {
            return Err(Error::Settings("the ladder's widths do not rise, or are not less than the GPU's SMs"));
        }
        Ok(())
    }
}
