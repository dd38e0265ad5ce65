//! The cases: what is launched, under which schedule, and what it may cost.

use clap::ValueEnum;

/// One child process: what it does is said by its name, its environment by `schedule`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Case {
    NoMove,
    NoMoveNull,
    Tenant,
    TenantNull,
    OtherLane,
    Move,
    MoveNull,
    MoveAround,
    Graph,
    GraphMove,
    GraphMoveAround,
    StartBare,
    StartShim,
    LanesMade,
    LanesUsed,
}

impl Case {
    /// Those whose cost is nanoseconds a launch.
    pub(crate) const LAUNCHES: [Self; 11] = [
        Self::NoMove,
        Self::NoMoveNull,
        Self::Tenant,
        Self::TenantNull,
        Self::OtherLane,
        Self::Move,
        Self::MoveNull,
        Self::MoveAround,
        Self::Graph,
        Self::GraphMove,
        Self::GraphMoveAround,
    ];

    /// What the table calls it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::NoMove => "launch, no move",
            Self::NoMoveNull => "launch, no move, NULL stream",
            Self::Tenant => "launch, a tenant alone",
            Self::TenantNull => "launch, a tenant alone, NULL stream",
            Self::OtherLane => "launch, no move, other lane",
            Self::Move => "launch, a move at each",
            Self::MoveNull => "launch, a move at each, NULL stream",
            Self::MoveAround => "launch, a move at each round all lanes",
            Self::Graph => "graph launch, no move",
            Self::GraphMove => "graph launch, the other lane's copy at each",
            Self::GraphMoveAround => "graph launch, all lanes' copies in turn",
            Self::StartBare | Self::StartShim => "start-up",
            Self::LanesMade => "memory, lanes made",
            Self::LanesUsed => "memory, lanes used",
        }
    }

    /// What the shim finds in its environment.
    pub(crate) fn schedule(self, split: u32) -> String {
        match self {
            Self::OtherLane => format!("front{split}"),
            Self::Move | Self::MoveNull | Self::GraphMove => format!("cycle:front{split}"),
            Self::MoveAround | Self::GraphMoveAround | Self::LanesUsed => "cycle".into(),
            _ => "full".into(),
        }
    }

    /// Whether a daemon decides about the lanes, and not a schedule.
    pub(crate) fn is_tenant(self) -> bool {
        matches!(self, Self::Tenant | Self::TenantNull)
    }

    pub(crate) fn is_null_stream(self) -> bool {
        matches!(self, Self::NoMoveNull | Self::TenantNull | Self::MoveNull)
    }

    pub(crate) fn is_graph(self) -> bool {
        matches!(self, Self::Graph | Self::GraphMove | Self::GraphMoveAround)
    }

    /// Whether it goes round all lanes, and not between the whole GPU and one of them.
    pub(crate) fn is_around(self) -> bool {
        matches!(self, Self::MoveAround | Self::GraphMoveAround)
    }

    pub(crate) fn moves(self) -> bool {
        matches!(self, Self::Move | Self::MoveNull | Self::MoveAround | Self::GraphMove | Self::GraphMoveAround)
    }

    /// How many nanoseconds it may cost. On another lane that is what we add to the driver's own price of that lane.
    pub(crate) fn asked(self) -> f64 {
        match self {
            Self::NoMove | Self::NoMoveNull | Self::Tenant | Self::TenantNull | Self::OtherLane => 150.0,
            _ => 1000.0,
        }
    }
}
