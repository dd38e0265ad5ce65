//! The one table that decides what happens to a function: forward, observe or replace.
//!
//! Shared by the build script, which makes an exported entry for every function from it, and by the library,
//! which counts by it. A row holds for all variants of a function (`_v2`, `_ptsz`, …). What has no row is
//! forwarded.

/// What the shim's entry for a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Jump to the real function; no code of ours sees the arguments.
    Forward,
    /// Count the call as one of these, then call the real function with the same arguments.
    Observe(Kind),
    /// The module `replace` has a function of that name.
    Replace,
}

/// What a counted call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A kernel launch.
    Launch,
    /// The launch of a whole graph.
    GraphLaunch,
    /// A copy, synchronous or not.
    Copy,
    /// A wait of the host for the GPU.
    Synchronise,
}

use Treatment::{Forward, Observe, Replace};

/// Every function that is not just forwarded, by the name that `cuGetProcAddress` knows.
const TREATMENTS: [(&str, Treatment); 38] = [
    ("cuCtxSynchronize", Observe(Kind::Synchronise)),
    ("cuEventSynchronize", Observe(Kind::Synchronise)),
    ("cuGetProcAddress", Replace),
    ("cuGraphLaunch", Observe(Kind::GraphLaunch)),
    ("cuLaunch", Observe(Kind::Launch)),
    ("cuLaunchCooperativeKernel", Observe(Kind::Launch)),
    ("cuLaunchCooperativeKernelMultiDevice", Observe(Kind::Launch)),
    ("cuLaunchGrid", Observe(Kind::Launch)),
    ("cuLaunchGridAsync", Observe(Kind::Launch)),
    ("cuLaunchKernel", Observe(Kind::Launch)),
    ("cuLaunchKernelEx", Observe(Kind::Launch)),
    ("cuMemcpy", Observe(Kind::Copy)),
    ("cuMemcpy2D", Observe(Kind::Copy)),
    ("cuMemcpy2DAsync", Observe(Kind::Copy)),
    ("cuMemcpy2DUnaligned", Observe(Kind::Copy)),
    ("cuMemcpy3D", Observe(Kind::Copy)),
    ("cuMemcpy3DAsync", Observe(Kind::Copy)),
    ("cuMemcpy3DBatchAsync", Observe(Kind::Copy)),
    ("cuMemcpy3DPeer", Observe(Kind::Copy)),
    ("cuMemcpy3DPeerAsync", Observe(Kind::Copy)),
    ("cuMemcpyAsync", Observe(Kind::Copy)),
    ("cuMemcpyAtoA", Observe(Kind::Copy)),
    ("cuMemcpyAtoD", Observe(Kind::Copy)),
    ("cuMemcpyAtoH", Observe(Kind::Copy)),
    ("cuMemcpyAtoHAsync", Observe(Kind::Copy)),
    ("cuMemcpyBatchAsync", Observe(Kind::Copy)),
    ("cuMemcpyDtoA", Observe(Kind::Copy)),
    ("cuMemcpyDtoD", Observe(Kind::Copy)),
    ("cuMemcpyDtoDAsync", Observe(Kind::Copy)),
    ("cuMemcpyDtoH", Observe(Kind::Copy)),
    ("cuMemcpyDtoHAsync", Observe(Kind::Copy)),
    ("cuMemcpyHtoA", Observe(Kind::Copy)),
    ("cuMemcpyHtoAAsync", Observe(Kind::Copy)),
    ("cuMemcpyHtoD", Observe(Kind::Copy)),
    ("cuMemcpyHtoDAsync", Observe(Kind::Copy)),
    ("cuMemcpyPeer", Observe(Kind::Copy)),
    ("cuMemcpyPeerAsync", Observe(Kind::Copy)),
    ("cuStreamSynchronize", Observe(Kind::Synchronise)),
];

/// What happens to the functions with that base name.
#[must_use]
pub(crate) fn of(base: &str) -> Treatment {
    TREATMENTS.iter().find(|(name, _)| *name == base).map_or(Forward, |(_, treatment)| *treatment)
}

/// The base names that have a row.
pub(crate) fn named() -> impl Iterator<Item = &'static str> {
    TREATMENTS.iter().map(|(name, _)| *name)
}
