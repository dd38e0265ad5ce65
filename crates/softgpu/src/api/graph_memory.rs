//! Memory that graphs allocate and free.

use super::device::number;
use super::graph_nodes::add;
use super::require;
use crate::boundary::{Outcome, give};
use crate::graph::memory::{self, GraphMemory};
use crate::graph::{self, Content, Graph};
use core::ffi::c_void;
use detshare_cuda::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdevice, CUdeviceptr, CUdeviceptr_v2, CUgraph, CUgraphMem_attribute as Attribute,
    CUgraphNode, CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType, CUresult,
};
use std::sync::Arc;

/// A node that allocates. A graph that belongs to a node has those that it has.
pub(super) unsafe fn allocation_content(
    graph: &Arc<Graph>,
    parameters: *const CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome<Content> {
    require(!parameters.is_null())?;
    let it = &*parameters;
    let location = it.poolProps.location;
    require(it.bytesize > 0 && (it.accessDescCount == 0 || !it.accessDescs.is_null()))?;
    require(it.poolProps.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED)?;
    require(it.poolProps.handleTypes == CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE)?;
    require(location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE && location.id == 0)?;
    refuse_in_owned(graph)?;
    Ok(Content::Allocate(GraphMemory::new(it.bytesize)?))
}

/// A node that frees what a node has allocated, of this graph or of another one.
pub(super) fn free_content(graph: &Arc<Graph>, address: CUdeviceptr) -> Outcome<Content> {
    require(memory::holds(address.0))?;
    let frees = |content: Content| matches!(content, Content::Free(freed) if freed == address.0);
    require(!graph.state().nodes.iter().any(|node| frees(node.content())))?;
    refuse_in_owned(graph)?;
    Ok(Content::Free(address.0))
}

fn refuse_in_owned(graph: &Arc<Graph>) -> Outcome {
    if graph.is_owned() { Err(CUresult::CUDA_ERROR_NOT_SUPPORTED) } else { Ok(()) }
}

pub(crate) unsafe fn cuGraphAddMemAllocNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    let content = allocation_content(&graph::find(graph)?, parameters)?;
    add(created, graph, nodes, count, content.clone())?;
    if let Content::Allocate(memory) = content {
        (*parameters).dptr = CUdeviceptr_v2(memory.address);
    }
    Ok(())
}

pub(crate) unsafe fn cuGraphAddMemFreeNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Outcome {
    let content = free_content(&graph::find(graph)?, address)?;
    add(created, graph, nodes, count, content)
}

pub(crate) unsafe fn cuGraphMemAllocNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
) -> Outcome {
    let Content::Allocate(memory) = graph::find_node(node)?.content() else {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    // SAFETY: numbers, pointers and enums, all of which may be zero.
    let mut given: CUDA_MEM_ALLOC_NODE_PARAMS = core::mem::zeroed();
    given.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    given.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    given.bytesize = memory.bytes;
    given.dptr = CUdeviceptr_v2(memory.address);
    give(parameters, given)
}

pub(crate) unsafe fn cuGraphMemFreeNodeGetParams(node: CUgraphNode, address: *mut CUdeviceptr) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Free(freed) => give(address, CUdeviceptr_v2(freed)),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuDeviceGraphMemTrim(device: CUdevice) -> Outcome {
    number(device)?;
    memory::trim();
    Ok(())
}

pub(crate) unsafe fn cuDeviceGetGraphMemAttribute(
    device: CUdevice,
    attribute: Attribute,
    value: *mut c_void,
) -> Outcome {
    number(device)?;
    give(value.cast::<u64>(), memory::attribute(attribute)?)
}

/// High-water marks can be set to nothing, which starts them anew.
pub(crate) unsafe fn cuDeviceSetGraphMemAttribute(
    device: CUdevice,
    attribute: Attribute,
    value: *mut c_void,
) -> Outcome {
    number(device)?;
    require(!value.is_null() && *value.cast::<u64>() == 0)?;
    memory::reset(attribute)
}
