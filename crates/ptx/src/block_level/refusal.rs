//! Why there is no version of a kernel.

use core::fmt::{self, Display, Formatter};

/// Why there is no such version of a kernel: `reads where it runs: 'mov.u32 %r1, %smid;', line 12`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    /// For programs.
    pub kind: RefusalKind,
    /// What stands there: an instruction, a name.
    pub detail: String,
    /// The line of the original, from 1, where there is one.
    pub line: Option<u32>,
}

/// The kinds of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// A block may wait for what another block does.
    WaitsForBlocks,
    /// Clusters of blocks.
    Cluster,
    /// Which SM, which launch, which threads run together: what a version cannot keep.
    Placement,
    /// How much shared memory there is, or where in it something lies.
    SharedMemory,
    /// The kernel launches kernels.
    DynamicParallelism,
    /// Programmatic dependent launch.
    DependentLaunch,
    /// Textures, samplers and surfaces that belong to the module.
    Texture,
    /// Functions that are called by address.
    FunctionPointer,
    /// A function that is not in the module.
    ForeignFunction,
    /// A function that calls itself.
    Recursion,
    /// An assertion, whose message names the block.
    Assertion,
    /// A variable that the versions cannot share with the original.
    Variable,
    /// A multiplication and an addition that the compiler may join in one place and not in the other.
    Contraction,
    /// Some threads leave, and others may still wait for them.
    EarlyExit,
    /// Barriers that cannot be kept apart from those of the next block.
    Barrier,
    /// What a block leaves behind would reach the next one.
    LeftBehind,
    /// More parameters than a kernel can have.
    Parameters,
    /// The target or version of the module.
    Target,
    /// Text that is not understood, or more of it than is looked at.
    NotUnderstood,
}

impl Display for RefusalKind {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::WaitsForBlocks => "may wait for another block",
            Self::Cluster => "uses clusters",
            Self::Placement => "depends on where or beside what it runs",
            Self::SharedMemory => "depends on the layout of shared memory",
            Self::DynamicParallelism => "launches kernels",
            Self::DependentLaunch => "uses programmatic dependent launch",
            Self::Texture => "uses a texture, sampler or surface of its module",
            Self::FunctionPointer => "uses the address of a function",
            Self::ForeignFunction => "calls a function that is not in its module",
            Self::Recursion => "calls itself, so neither its stack nor where its threads meet again is known",
            Self::Assertion => "has an assertion, which names the block",
            Self::Variable => "uses a variable that cannot be shared",
            Self::Contraction => "has a product and a sum that may be fused or not",
            Self::EarlyExit => "some threads may leave while others wait for their warp",
            Self::Barrier => "has barriers that cannot be kept apart from the next block's",
            Self::LeftBehind => "leaves something behind for the next block",
            Self::Parameters => "has too many parameters",
            Self::Target => "is not for a target that can be rewritten",
            Self::NotUnderstood => "is not understood",
        })
    }
}

impl Display for Refusal {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.kind, self.detail)?;
        self.line.map_or(Ok(()), |line| write!(formatter, ", line {line}"))
    }
}

/// A [`Refusal`] before its line is counted.
#[derive(Debug, Clone)]
pub(super) struct Finding {
    pub(super) kind: RefusalKind,
    pub(super) detail: String,
    /// The byte of the source.
    pub(super) at: Option<u32>,
}

/// How much of an instruction a refusal shows, in characters.
const SHOWN_LENGTH: usize = 100;

impl Finding {
    /// About something that stands there.
    pub(super) fn at(kind: RefusalKind, what: &impl ToString, start: u32) -> Self {
        let text = what.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        let mut shown: String = text.chars().take(SHOWN_LENGTH).collect();
        if shown.len() < text.len() {
            shown.push('…');
        }
        Self { kind, detail: format!("'{shown}'"), at: Some(start) }
    }

    /// About the kernel as a whole.
    pub(super) fn whole(kind: RefusalKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), at: None }
    }
}

/// Where the lines of a source begin.
pub(super) struct Lines(Vec<u32>);

impl Lines {
    pub(super) fn of(source: &str) -> Self {
        let ends = source.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        Self(ends.filter_map(|(at, _)| u32::try_from(at).ok()).collect())
    }

    pub(super) fn locate(&self, finding: Finding) -> Refusal {
        let line = finding.at.map(|at| self.0.partition_point(|end| *end < at) + 1);
        Refusal {
            kind: finding.kind,
            detail: finding.detail,
            line: line.map(|line| u32::try_from(line).unwrap_or(u32::MAX)),
        }
    }
}
