//! Nodes of any type by one structure, and nodes that hold graphs themselves.

use super::graph_conditional::{conditional_content, give_bodies};
use super::graph_edges::dependencies;
use super::graph_memory::{allocation_content, free_content};
use super::graph_nodes::{copy_content, fill_content, host_content, kernel_content, kernel_of};
use super::graph_waits::{batch_content, signal_content, wait_content};
use super::{as_pointer, require};
use crate::boundary::{Outcome, give};
use crate::event;
use crate::graph::update::type_of;
use crate::graph::{self, Content, Graph};
use detshare_cuda::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUdeviceptr_v2, CUgraph,
    CUgraphChildGraphNodeOwnership as Ownership, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType as Type, CUresult,
};
use std::sync::Arc;

/// Whether a graph is the other one, or holds it.
fn holds(graph: &Arc<Graph>, other: &Arc<Graph>) -> bool {
    graph.handle == other.handle
        || graph.state().nodes.iter().any(|node| node.content().inner().iter().any(|inner| holds(inner, other)))
}

/// A copy of the graph, or the graph itself, as a node's own.
fn child_content(parent: &Arc<Graph>, child: CUgraph, ownership: Ownership) -> Outcome<Content> {
    let child = graph::find(child)?;
    require(!holds(&child, parent))?;
    match ownership {
        Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => {
            let copy = child.duplicate()?;
            copy.own();
            Ok(Content::Child(copy))
        }
        Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE => {
            if !child.own() {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            Ok(Content::Child(child))
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

/// Adds a node whose graphs go again where it cannot be added.
unsafe fn add(
    created: *mut CUgraphNode,
    graph: &Arc<Graph>,
    (nodes, data, count): (*const CUgraphNode, *const CUgraphEdgeData, usize),
    content: Content,
) -> Outcome {
    let inner = content.inner().to_vec();
    match dependencies(nodes, data, count).and_then(|after| graph.add(content, &after)) {
        Ok(node) => give(created, CUgraphNode(as_pointer(node.handle))),
        Err(code) => {
            inner.iter().for_each(|inner| inner.destroy());
            Err(code)
        }
    }
}

pub(crate) unsafe fn cuGraphAddChildGraphNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Outcome {
    require(!created.is_null())?;
    let graph = graph::find(graph)?;
    let content = child_content(&graph, child, Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE)?;
    add(created, &graph, (nodes, core::ptr::null(), count), content)
}

/// What the generic parameters of a node ask for; None for what only a new node can be.
pub(super) unsafe fn content(parameters: *mut CUgraphNodeParams) -> Outcome<Option<Content>> {
    require(!parameters.is_null())?;
    let it = &*parameters;
    let of = &it.__bindgen_anon_1;
    match it.type_ {
        // The third version of the parameters has the second's fields, in the same places.
        Type::CU_GRAPH_NODE_TYPE_KERNEL => kernel_content((&raw const of.kernel).cast()),
        Type::CU_GRAPH_NODE_TYPE_MEMCPY => copy_content(&raw const of.memcpy.copyParams),
        Type::CU_GRAPH_NODE_TYPE_MEMSET => {
            let fill = of.memset;
            fill_content(&CUDA_MEMSET_NODE_PARAMS {
                dst: fill.dst,
                pitch: fill.pitch,
                value: fill.value,
                elementSize: fill.elementSize,
                width: fill.width,
                height: fill.height,
            })
        }
        Type::CU_GRAPH_NODE_TYPE_HOST => {
            host_content(&CUDA_HOST_NODE_PARAMS { fn_: of.host.fn_, userData: of.host.userData })
        }
        Type::CU_GRAPH_NODE_TYPE_EMPTY => Ok(Content::Empty),
        Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => Ok(Content::Record(event::find(of.eventRecord.event)?)),
        Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => Ok(Content::Wait(event::find(of.eventWait.event)?)),
        // These begin with the fields of the first version.
        Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => batch_content((&raw const of.memOp).cast()),
        Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL => signal_content((&raw const of.extSemSignal).cast()),
        Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => wait_content((&raw const of.extSemWait).cast()),
        Type::CU_GRAPH_NODE_TYPE_GRAPH
        | Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC
        | Type::CU_GRAPH_NODE_TYPE_MEM_FREE
        | Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => return Ok(None),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    .map(Some)
}

pub(crate) unsafe fn cuGraphAddNode_v2(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> Outcome {
    require(!created.is_null())?;
    let graph = graph::find(graph)?;
    if let Some(content) = content(parameters)? {
        return add(created, &graph, (nodes, data, count), content);
    }
    let kind = (*parameters).type_;
    let of = &mut (*parameters).__bindgen_anon_1;
    let content = match kind {
        Type::CU_GRAPH_NODE_TYPE_GRAPH => child_content(&graph, of.graph.graph, of.graph.ownership)?,
        // The second version of the parameters has the first's fields, in the same places.
        Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC => allocation_content(&graph, (&raw const of.alloc).cast())?,
        Type::CU_GRAPH_NODE_TYPE_MEM_FREE => free_content(&graph, of.free.dptr)?,
        _ => conditional_content(&of.conditional)?,
    };
    add(created, &graph, (nodes, data, count), content.clone())?;
    match &content {
        Content::Allocate(memory) => of.alloc.dptr = CUdeviceptr_v2(memory.address),
        Content::Conditional(branching) => give_bodies(&mut of.conditional, branching),
        _ => {}
    }
    Ok(())
}

pub(crate) unsafe fn cuGraphAddNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> Outcome {
    cuGraphAddNode_v2(created, graph, nodes, core::ptr::null(), count, parameters)
}

pub(crate) unsafe fn cuGraphNodeSetParams(node: CUgraphNode, parameters: *mut CUgraphNodeParams) -> Outcome {
    let node = graph::find_node(node)?;
    let new = content(parameters)?.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    require(type_of(&new) == type_of(&node.content()))?;
    match kernel_of(&node) {
        Ok(old) => node.set(new.with_attributes_of(&old)?),
        Err(_) => node.set(new),
    }
    Ok(())
}
