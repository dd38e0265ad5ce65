//! The one table that decides what happens to a function.
//!
//! Shared by the build script, which makes an exported entry for every function from it, and by the library,
//! which counts by it. A row holds for all variants of a function (`_v2`, `_ptsz`, …). A function without a row is
//! forwarded if it has nothing to do with streams; otherwise its stream goes home first.

use detshare_cuda::{Function, StreamUse};

/// What the shim's entry for a function does, and what it is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Treatment {
    pub(crate) action: Action,
    pub(crate) kind: Option<Kind>,
}

/// What the shim's entry for a function does. Streams that do not move are not touched by any of this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Jump to the real function; no code of ours sees the arguments.
    Forward,
    /// Put the work in where the stream is.
    Follow,
    /// Let the stream go home, and put the work in there.
    Home,
    /// Ask the stream, or wait for it, where it is.
    Look,
    /// Call the real function; if it says that something is finished, see whether the step is.
    Ask,
    /// Wait for what is on lanes, then call the real function, which waits for the rest.
    Everything,
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

use Action::{Ask, Everything, Follow, Forward, Home, Look, Replace};

const fn counted(action: Action, kind: Kind) -> Treatment {
    Treatment { action, kind: Some(kind) }
}

const fn plain(action: Action) -> Treatment {
    Treatment { action, kind: None }
}

/// By the name that `cuGetProcAddress` knows.
const TREATMENTS: &[(&str, Treatment)] = &[
    // Launches.
    ("cuGraphLaunch", counted(Replace, Kind::GraphLaunch)),
    ("cuLaunch", counted(Home, Kind::Launch)),
    ("cuLaunchCooperativeKernel", counted(Replace, Kind::Launch)),
    ("cuLaunchCooperativeKernelMultiDevice", counted(Replace, Kind::Launch)),
    ("cuLaunchGrid", counted(Home, Kind::Launch)),
    ("cuLaunchGridAsync", counted(Home, Kind::Launch)),
    ("cuLaunchHostFunc", plain(Follow)),
    ("cuLaunchKernel", counted(Replace, Kind::Launch)),
    ("cuLaunchKernelEx", counted(Replace, Kind::Launch)),
    // Copies and fills.
    ("cuMemcpy", counted(Home, Kind::Copy)),
    ("cuMemcpy2D", counted(Home, Kind::Copy)),
    ("cuMemcpy2DAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpy2DUnaligned", counted(Home, Kind::Copy)),
    ("cuMemcpy3D", counted(Home, Kind::Copy)),
    ("cuMemcpy3DAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpy3DBatchAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpy3DPeer", counted(Home, Kind::Copy)),
    ("cuMemcpy3DPeerAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyAtoA", counted(Home, Kind::Copy)),
    ("cuMemcpyAtoD", counted(Home, Kind::Copy)),
    ("cuMemcpyAtoH", counted(Home, Kind::Copy)),
    ("cuMemcpyAtoHAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyBatchAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyDtoA", counted(Home, Kind::Copy)),
    ("cuMemcpyDtoD", counted(Home, Kind::Copy)),
    ("cuMemcpyDtoDAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyDtoH", counted(Home, Kind::Copy)),
    ("cuMemcpyDtoHAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyHtoA", counted(Home, Kind::Copy)),
    ("cuMemcpyHtoAAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyHtoD", counted(Home, Kind::Copy)),
    ("cuMemcpyHtoDAsync", counted(Follow, Kind::Copy)),
    ("cuMemcpyPeer", counted(Home, Kind::Copy)),
    ("cuMemcpyPeerAsync", counted(Follow, Kind::Copy)),
    ("cuMemsetD16Async", plain(Follow)),
    ("cuMemsetD2D16Async", plain(Follow)),
    ("cuMemsetD2D32Async", plain(Follow)),
    ("cuMemsetD2D8Async", plain(Follow)),
    ("cuMemsetD32Async", plain(Follow)),
    ("cuMemsetD8Async", plain(Follow)),
    // Streams and events.
    ("cuEventQuery", plain(Ask)),
    ("cuEventRecord", plain(Follow)),
    ("cuEventRecordWithFlags", plain(Follow)),
    ("cuEventSynchronize", counted(Replace, Kind::Synchronise)),
    ("cuStreamBeginCapture", plain(Replace)),
    ("cuStreamBeginCaptureToGraph", plain(Replace)),
    ("cuStreamCopyAttributes", plain(Replace)),
    ("cuStreamCreate", plain(Replace)),
    ("cuStreamCreateWithPriority", plain(Replace)),
    ("cuStreamDestroy", plain(Replace)),
    ("cuStreamEndCapture", plain(Replace)),
    ("cuStreamGetAttribute", plain(Forward)),
    ("cuStreamGetCaptureInfo", plain(Forward)),
    ("cuStreamGetCtx", plain(Forward)),
    ("cuStreamGetDevice", plain(Forward)),
    ("cuStreamGetFlags", plain(Forward)),
    ("cuStreamGetGreenCtx", plain(Forward)),
    ("cuStreamGetId", plain(Forward)),
    ("cuStreamGetPriority", plain(Forward)),
    ("cuStreamIsCapturing", plain(Forward)),
    ("cuStreamQuery", plain(Look)),
    ("cuStreamSetAttribute", plain(Replace)),
    ("cuStreamSynchronize", counted(Look, Kind::Synchronise)),
    ("cuStreamUpdateCaptureDependencies", plain(Forward)),
    ("cuStreamWaitEvent", plain(Follow)),
    // Executable graphs.
    ("cuGraphExecBatchMemOpNodeSetParams", plain(Replace)),
    ("cuGraphExecChildGraphNodeSetParams", plain(Replace)),
    ("cuGraphExecDestroy", plain(Replace)),
    ("cuGraphExecEventRecordNodeSetEvent", plain(Replace)),
    ("cuGraphExecEventWaitNodeSetEvent", plain(Replace)),
    ("cuGraphExecExternalSemaphoresSignalNodeSetParams", plain(Replace)),
    ("cuGraphExecExternalSemaphoresWaitNodeSetParams", plain(Replace)),
    ("cuGraphExecHostNodeSetParams", plain(Replace)),
    ("cuGraphExecKernelNodeSetParams", plain(Replace)),
    ("cuGraphExecMemcpyNodeSetParams", plain(Replace)),
    ("cuGraphExecMemsetNodeSetParams", plain(Replace)),
    ("cuGraphExecNodeSetParams", plain(Replace)),
    ("cuGraphExecUpdate", plain(Replace)),
    ("cuGraphInstantiate", plain(Replace)),
    ("cuGraphInstantiateWithFlags", plain(Replace)),
    ("cuGraphInstantiateWithParams", plain(Replace)),
    ("cuGraphNodeSetEnabled", plain(Replace)),
    // Contexts, and what waits for all of one.
    ("cuCtxSynchronize", counted(Replace, Kind::Synchronise)),
    ("cuDevicePrimaryCtxRelease", plain(Replace)),
    ("cuDevicePrimaryCtxReset", plain(Replace)),
    ("cuDevicePrimaryCtxRetain", plain(Replace)),
    ("cuMemAllocHost", plain(Replace)),
    ("cuMemFreeHost", plain(Replace)),
    ("cuMemHostAlloc", plain(Replace)),
    ("cuMemHostRegister", plain(Replace)),
    ("cuMemHostUnregister", plain(Replace)),
    ("cuMemPoolDestroy", plain(Everything)),
    ("cuMemPoolTrimTo", plain(Everything)),
    // Modules and libraries.
    ("cuFuncSetAttribute", plain(Replace)),
    ("cuFuncSetCacheConfig", plain(Replace)),
    ("cuKernelGetFunction", plain(Replace)),
    ("cuKernelSetAttribute", plain(Replace)),
    ("cuKernelSetCacheConfig", plain(Replace)),
    ("cuLibraryEnumerateKernels", plain(Replace)),
    ("cuLibraryGetKernel", plain(Replace)),
    ("cuLibraryGetModule", plain(Replace)),
    ("cuLibraryLoadData", plain(Replace)),
    ("cuLibraryLoadFromFile", plain(Replace)),
    ("cuLibraryUnload", plain(Replace)),
    ("cuLinkAddData", plain(Replace)),
    ("cuLinkAddFile", plain(Replace)),
    ("cuLinkComplete", plain(Replace)),
    ("cuLinkCreate", plain(Replace)),
    ("cuLinkDestroy", plain(Replace)),
    ("cuModuleEnumerateFunctions", plain(Replace)),
    ("cuModuleGetFunction", plain(Replace)),
    ("cuModuleLoad", plain(Replace)),
    ("cuModuleLoadData", plain(Replace)),
    ("cuModuleLoadDataEx", plain(Replace)),
    ("cuModuleLoadFatBinary", plain(Replace)),
    ("cuModuleUnload", plain(Replace)),
    // Device memory.
    ("cuArray3DCreate", plain(Replace)),
    ("cuArrayCreate", plain(Replace)),
    ("cuArrayDestroy", plain(Replace)),
    ("cuCtxDestroy", plain(Replace)),
    ("cuDeviceTotalMem", plain(Replace)),
    ("cuGraphAddMemAllocNode", plain(Replace)),
    ("cuGraphAddNode", plain(Replace)),
    ("cuGraphDestroy", plain(Replace)),
    ("cuMemAlloc", plain(Replace)),
    ("cuMemAllocAsync", plain(Replace)),
    ("cuMemAllocFromPoolAsync", plain(Replace)),
    ("cuMemAllocManaged", plain(Replace)),
    ("cuMemAllocPitch", plain(Replace)),
    ("cuMemCreate", plain(Replace)),
    ("cuMemFree", plain(Replace)),
    ("cuMemFreeAsync", plain(Replace)),
    ("cuMemGetInfo", plain(Replace)),
    ("cuMemMap", plain(Replace)),
    ("cuMemPoolCreate", plain(Replace)),
    ("cuMemPoolGetAttribute", plain(Replace)),
    ("cuMemRelease", plain(Replace)),
    ("cuMemRetainAllocationHandle", plain(Replace)),
    ("cuMemUnmap", plain(Replace)),
    ("cuMipmappedArrayCreate", plain(Replace)),
    ("cuMipmappedArrayDestroy", plain(Replace)),
    // How a program finds functions.
    ("cuGetProcAddress", plain(Replace)),
];

/// Names and types of parameters.
type Parameters = &'static [(&'static str, &'static str)];

/// Copies that can bring bytes to the host, by their base name: which function of `digest` takes them, and with which
/// of their parameters. Only variants whose parameters have these types are meant; the others are from the time of
/// 32-bit addresses.
const LEAVING: &[(&str, &str, Parameters)] = &[
    ("cuMemcpy", "unified", &[("dst", "CUdeviceptr"), ("ByteCount", "usize")]),
    ("cuMemcpy2D", "rows", &[("pCopy", "*const CUDA_MEMCPY2D")]),
    ("cuMemcpy2DAsync", "rows", &[("pCopy", "*const CUDA_MEMCPY2D")]),
    ("cuMemcpy2DUnaligned", "rows", &[("pCopy", "*const CUDA_MEMCPY2D")]),
    ("cuMemcpy3D", "slices", &[("pCopy", "*const CUDA_MEMCPY3D")]),
    ("cuMemcpy3DAsync", "slices", &[("pCopy", "*const CUDA_MEMCPY3D")]),
    ("cuMemcpyAsync", "unified", &[("dst", "CUdeviceptr"), ("ByteCount", "usize")]),
    ("cuMemcpyAtoH", "row", &[("dstHost", "*mut c_void"), ("ByteCount", "usize")]),
    ("cuMemcpyAtoHAsync", "row", &[("dstHost", "*mut c_void"), ("ByteCount", "usize")]),
    ("cuMemcpyBatchAsync", "batch", &[("dsts", "*mut CUdeviceptr"), ("sizes", "*mut usize"), ("count", "usize")]),
    ("cuMemcpyDtoH", "row", &[("dstHost", "*mut c_void"), ("ByteCount", "usize")]),
    ("cuMemcpyDtoHAsync", "row", &[("dstHost", "*mut c_void"), ("ByteCount", "usize")]),
];

/// The function of `digest`, with its arguments, for a function that can bring bytes to the host.
pub(crate) fn digested(function: &Function) -> Option<String> {
    let (_, digest, wanted) = LEAVING.iter().find(|(name, ..)| *name == function.base)?;
    let parameters = function.parameters?;
    let has = |(name, ty): &(&str, &str)| parameters.iter().any(|it| it.name == *name && it.ty == *ty);
    let names: Vec<_> = wanted.iter().map(|(name, _)| *name).collect();
    wanted.iter().all(has).then(|| format!("{digest}({})", names.join(", ")))
}

/// What happens to the function.
#[must_use]
pub(crate) fn of(function: &Function) -> Treatment {
    let row = TREATMENTS.iter().find(|(name, _)| *name == function.base);
    row.map_or_else(
        || match function.stream {
            StreamUse::Argument(_) | StreamUse::Implicit => plain(Home),
            _ => plain(Forward),
        },
        |(_, treatment)| *treatment,
    )
}

/// The base names that have a row.
pub(crate) fn named() -> impl Iterator<Item = &'static str> {
    TREATMENTS.iter().map(|(name, _)| *name)
}
