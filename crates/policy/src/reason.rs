//! Why launches are decided as they are, for people.

/// Why a launch was decided as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// Nobody else wants the GPU, or all may have it.
    Free = 1,
    /// It is of a latency tenant, and those are not held.
    Urgent,
    /// It will be over before a step is due.
    Fits,
    /// It runs on SMs beside a step.
    Beside,
    /// The tenant would get less than its least share.
    LeastShare,
    /// The dial says to use everything.
    Unbounded,
    /// It has its turn, or its side of a split.
    Turn,
    /// It has to stay on few SMs, because its kernels ran far longer than they should.
    Quarantined,
    /// A latency tenant has a step under way.
    Busy,
    /// A step is due before it would be over.
    Due,
    /// Enough is in flight already.
    InFlight,
    /// It is another one's turn.
    NotItsTurn,
    /// Nobody knows the policy.
    NoPolicy,
    /// Its steps leave most of the GPU idle: it runs on as many SMs as it needs, and others beside it.
    Apart,
    /// Tokens have the SMs that they are expected to need, and another one's prompt or tokens, or best-effort work, the others.
    Complement,
    /// A latency tenant of more weight misses its objectives.
    Yields,
    /// It had been held for as long as a launch may be.
    LongestHold,
    /// Somebody has paused its tenant.
    Paused,
    /// It is longer than all pauses between steps, as far as anybody knows, and it is seen whether it still is.
    Trial,
    /// Nobody is about to want the GPU, and it is seen what few SMs mean to it.
    Explored,
    /// A server has a prompt to read, and nothing runs beside that.
    Prompt,
    /// It would take the memory bandwidth that tokens need.
    Bandwidth,
    /// Its first token is late: it has all SMs.
    Late,
    /// Nobody wants the GPU but latency tenants whose steps stand still.
    Stalled,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 24] = [
        Self::Free,
        Self::Urgent,
        Self::Fits,
        Self::Beside,
        Self::LeastShare,
        Self::Unbounded,
        Self::Turn,
        Self::Quarantined,
        Self::Busy,
        Self::Due,
        Self::InFlight,
        Self::NotItsTurn,
        Self::NoPolicy,
        Self::Apart,
        Self::Complement,
        Self::Yields,
        Self::LongestHold,
        Self::Paused,
        Self::Trial,
        Self::Explored,
        Self::Prompt,
        Self::Bandwidth,
        Self::Late,
        Self::Stalled,
    ];

    /// Its number, from 1.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The one with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.number() == number)
    }

    /// In a few words.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Free => "nobody else wants the GPU, or all may have it",
            Self::Urgent => "of a latency tenant, which is not held",
            Self::Fits => "over before the next step is due",
            Self::Beside => "on SMs beside a step",
            Self::LeastShare => "it would get less than its least share",
            Self::Unbounded => "aggressiveness 1 uses everything",
            Self::Turn => "its turn, or its side of a split",
            Self::Quarantined => "quarantined: its kernels ran far longer than predicted",
            Self::Busy => "a latency tenant has a step under way",
            Self::Due => "a step is due before it would be over",
            Self::InFlight => "enough is in flight already",
            Self::NotItsTurn => "another one's turn",
            Self::NoPolicy => "a policy that this version does not know",
            Self::Apart => "on SMs of its own: its steps leave most of the GPU idle",
            Self::Complement => {
                "on SMs of its own: tokens have as many as they are expected to need, others beside them the rest"
            }
            Self::Yields => "on half of the SMs: a latency tenant of more weight misses its objectives",
            Self::LongestHold => "held for as long as a launch may be",
            Self::Paused => "its tenant was paused",
            Self::Trial => "longer than all pauses, it is said: to see whether it still is",
            Self::Explored => "on few SMs, to see what binds it: nobody is about to want the GPU",
            Self::Prompt => "a latency tenant has a prompt to read, and nothing runs beside that",
            Self::Bandwidth => "it would take the memory bandwidth that tokens need",
            Self::Late => "its first token is late: all SMs",
            Self::Stalled => "a latency tenant's step has stood still for long, and nobody waits for it",
        }
    }
}
