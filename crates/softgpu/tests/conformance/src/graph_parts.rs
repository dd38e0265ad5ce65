//! The parts that graphs are made of.

use crate::gpu::{Argument, Gpu, NO_CONTEXT, NON_BLOCKING, addresses};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUfunction, CUgraph, CUgraphExec,
    CUgraphNode, CUgraphNodeType, CUkernel, CUmemorytype,
};

pub(crate) const NO_NODE: CUgraphNode = CUgraphNode(null_mut());
pub(crate) const NO_GRAPH: CUgraph = CUgraph(null_mut());

#[track_caller]
pub(crate) fn new_graph(driver: &Driver) -> Result<CUgraph> {
    let mut graph = NO_GRAPH;
    ok!(driver, cuGraphCreate(&raw mut graph, 0));
    ensure!(graph != NO_GRAPH, "cuGraphCreate gave no graph");
    Ok(graph)
}

/// A launch of one block as a node's parameters. The pointers must outlive them.
pub(crate) fn kernel_parameters(
    function: CUfunction,
    threads: u32,
    pointers: &mut [*mut c_void],
) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: pointers.as_mut_ptr(),
        extra: null_mut(),
        kern: CUkernel(null_mut()),
        ctx: NO_CONTEXT,
    }
}

#[track_caller]
pub(crate) fn add_kernel(
    driver: &Driver,
    graph: CUgraph,
    after: &[CUgraphNode],
    function: CUfunction,
    arguments: &[&dyn Argument],
) -> Result<CUgraphNode> {
    let mut pointers = addresses(arguments);
    let parameters = kernel_parameters(function, 1, &mut pointers);
    let mut node = NO_NODE;
    ok!(driver, cuGraphAddKernelNode_v2(&raw mut node, graph, after.as_ptr(), after.len(), &raw const parameters));
    Ok(node)
}

pub(crate) fn memset_parameters(to: CUdeviceptr, value: u32, words: usize) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS { dst: to, pitch: 0, value, elementSize: 4, width: words, height: 1 }
}

#[track_caller]
pub(crate) fn add_memset(
    gpu: &Gpu,
    graph: CUgraph,
    after: &[CUgraphNode],
    to: CUdeviceptr,
    value: u32,
) -> Result<CUgraphNode> {
    let parameters = memset_parameters(to, value, 1);
    let mut node = NO_NODE;
    let (nodes, count) = (after.as_ptr(), after.len());
    ok!(gpu, cuGraphAddMemsetNode(&raw mut node, graph, nodes, count, &raw const parameters, gpu.context));
    Ok(node)
}

pub(crate) fn memcpy_parameters(to: CUdeviceptr, from: CUdeviceptr, bytes: usize) -> CUDA_MEMCPY3D {
    // SAFETY: plain values throughout, where zero means none.
    let nothing: CUDA_MEMCPY3D = unsafe { zeroed() };
    CUDA_MEMCPY3D {
        srcMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        srcDevice: from,
        dstMemoryType: CUmemorytype::CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
        ..nothing
    }
}

#[track_caller]
pub(crate) fn instantiate(driver: &Driver, graph: CUgraph) -> Result<CUgraphExec> {
    let mut executable = CUgraphExec(null_mut());
    ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    ensure!(!executable.0.is_null(), "no executable graph");
    Ok(executable)
}

/// Launches the graph so many times in a new stream and waits.
#[track_caller]
pub(crate) fn run(gpu: &Gpu, graph: CUgraph, times: usize) -> Result<()> {
    let (executable, stream) = (instantiate(gpu, graph)?, gpu.stream(NON_BLOCKING)?);
    for _ in 0..times {
        ok!(gpu, cuGraphLaunch(executable, stream));
    }
    gpu.wait(stream)
}

#[track_caller]
pub(crate) fn nodes(driver: &Driver, graph: CUgraph) -> Result<Vec<CUgraphNode>> {
    let mut count = 0;
    ok!(driver, cuGraphGetNodes(graph, null_mut(), &raw mut count));
    let mut nodes = vec![NO_NODE; count];
    if count > 0 {
        ok!(driver, cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    }
    Ok(nodes)
}

#[track_caller]
pub(crate) fn type_of(driver: &Driver, node: CUgraphNode) -> Result<CUgraphNodeType> {
    let mut kind = CUgraphNodeType(u32::MAX);
    ok!(driver, cuGraphNodeGetType(node, &raw mut kind));
    Ok(kind)
}

#[track_caller]
pub(crate) fn edges(driver: &Driver, graph: CUgraph) -> Result<Vec<(CUgraphNode, CUgraphNode)>> {
    let mut count = 0;
    ok!(driver, cuGraphGetEdges_v2(graph, null_mut(), null_mut(), null_mut(), &raw mut count));
    let (mut from, mut to) = (vec![NO_NODE; count], vec![NO_NODE; count]);
    if count > 0 {
        ok!(driver, cuGraphGetEdges_v2(graph, from.as_mut_ptr(), to.as_mut_ptr(), null_mut(), &raw mut count));
    }
    Ok(from.into_iter().zip(to).collect())
}

/// What `times_three_plus_one` makes of zero in so many steps.
pub(crate) fn after_steps(steps: usize) -> u32 {
    (0..steps).fold(0_u32, |value, _| value.wrapping_mul(3).wrapping_add(1))
}

#[track_caller]
pub(crate) fn parameters_of(driver: &Driver, node: CUgraphNode) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    let mut parameters = kernel_parameters(CUfunction(null_mut()), 0, &mut []);
    ok!(driver, cuGraphKernelNodeGetParams_v2(node, &raw mut parameters));
    Ok(parameters)
}
