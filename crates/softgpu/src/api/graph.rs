//! Graphs: making, cloning, listing.

use super::{as_pointer, require, text};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::graph::{self, Content, Graph, NODES};
use crate::operation::{Operation, SemaphoreUse};
use core::ffi::{c_char, c_uint};
use core::fmt::Write;
use detshare_cuda::types::{CUgraph, CUgraphEdgeData, CUgraphNode, CUgraphNodeType as Type, CUresult};

/// A program's list of nodes.
pub(super) unsafe fn handles(nodes: *const CUgraphNode, count: usize) -> Outcome<Vec<usize>> {
    require(count == 0 || !nodes.is_null())?;
    Ok((0..count).map(|index| (*nodes.add(index)).0.addr()).collect())
}

/// Writes a list as the graph functions do: without a place its length, with one at most as many as there is room.
unsafe fn give_list(list: &[usize], place: *mut CUgraphNode, count: *mut usize) -> Outcome {
    require(!count.is_null())?;
    if place.is_null() {
        count.write(list.len());
        return Ok(());
    }
    for index in 0..*count {
        place.add(index).write(CUgraphNode(as_pointer(list.get(index).copied().unwrap_or(0))));
    }
    count.write((*count).min(list.len()));
    Ok(())
}

pub(crate) unsafe fn cuGraphCreate(created: *mut CUgraph, flags: c_uint) -> Outcome {
    require(!created.is_null() && flags == 0)?;
    give(created, CUgraph(as_pointer(Graph::create().handle)))
}

pub(crate) unsafe fn cuGraphDestroy(graph: CUgraph) -> Outcome {
    graph::find(graph)?.destroy();
    Ok(())
}

pub(crate) unsafe fn cuGraphClone(clone: *mut CUgraph, graph: CUgraph) -> Outcome {
    require(!clone.is_null())?;
    give(clone, CUgraph(as_pointer(graph::find(graph)?.duplicate()?.handle)))
}

pub(crate) unsafe fn cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph) -> Outcome {
    let clone = graph::find(clone)?;
    let state = clone.state();
    let found = state.nodes.iter().find(|node| node.cloned_from == original.0.addr());
    give(node, CUgraphNode(as_pointer(found.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?.handle)))
}

pub(crate) unsafe fn cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Outcome {
    let graph = graph::find(graph)?;
    let list: Vec<_> = graph.state().nodes.iter().map(|node| node.handle).collect();
    give_list(&list, nodes, count)
}

pub(crate) unsafe fn cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize) -> Outcome {
    let graph = graph::find(graph)?;
    let state = graph.state();
    let roots = state.nodes.iter().map(|node| node.handle).filter(|node| state.before(*node).is_empty());
    give_list(&roots.collect::<Vec<_>>(), nodes, count)
}

pub(crate) unsafe fn cuGraphGetEdges_v2(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    require(!count.is_null() && from.is_null() == to.is_null())?;
    let graph = graph::find(graph)?;
    let (sources, targets): (Vec<_>, Vec<_>) = graph.state().edges.iter().copied().unzip();
    let mut room = *count;
    give_list(&sources, from, &raw mut room)?;
    give_list(&targets, to, count)?;
    plain_edges(edges, room);
    Ok(())
}

/// Edges without anything special to them.
unsafe fn plain_edges(edges: *mut CUgraphEdgeData, count: usize) {
    if !edges.is_null() {
        edges.write_bytes(0, count);
    }
}

pub(crate) unsafe fn cuGraphGetEdges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuGraphGetEdges_v2(graph, from, to, core::ptr::null_mut(), count)
}

pub(crate) unsafe fn cuGraphNodeGetDependencies_v2(
    node: CUgraphNode,
    dependencies: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    let node = graph::find_node(node)?;
    let graph = node.graph.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let list = graph.state().before(node.handle);
    give_list(&list, dependencies, count)?;
    plain_edges(edges, *count);
    Ok(())
}

pub(crate) unsafe fn cuGraphNodeGetDependencies(
    node: CUgraphNode,
    dependencies: *mut CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuGraphNodeGetDependencies_v2(node, dependencies, core::ptr::null_mut(), count)
}

pub(crate) unsafe fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    dependents: *mut CUgraphNode,
    edges: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    let node = graph::find_node(node)?;
    let graph = node.graph.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let list = graph.state().behind(node.handle);
    give_list(&list, dependents, count)?;
    plain_edges(edges, *count);
    Ok(())
}

pub(crate) unsafe fn cuGraphNodeGetDependentNodes(
    node: CUgraphNode,
    dependents: *mut CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuGraphNodeGetDependentNodes_v2(node, dependents, core::ptr::null_mut(), count)
}

unsafe fn edge_list(from: *const CUgraphNode, to: *const CUgraphNode, count: usize) -> Outcome<Vec<(usize, usize)>> {
    Ok(handles(from, count)?.into_iter().zip(handles(to, count)?).collect())
}

pub(crate) unsafe fn cuGraphAddDependencies_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    _edges: *const CUgraphEdgeData,
    count: usize,
) -> Outcome {
    let graph = graph::find(graph)?;
    let new = edge_list(from, to, count)?;
    let mut state = graph.state();
    for (from, to) in &new {
        let known = |handle: usize| state.nodes.iter().any(|node| node.handle == handle);
        require(known(*from) && known(*to) && from != to && !state.edges.contains(&(*from, *to)))?;
    }
    state.edges.extend(new);
    Ok(())
}

pub(crate) unsafe fn cuGraphAddDependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Outcome {
    cuGraphAddDependencies_v2(graph, from, to, core::ptr::null(), count)
}

pub(crate) unsafe fn cuGraphRemoveDependencies_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    _edges: *const CUgraphEdgeData,
    count: usize,
) -> Outcome {
    let graph = graph::find(graph)?;
    let old = edge_list(from, to, count)?;
    let mut state = graph.state();
    require(old.iter().all(|edge| state.edges.contains(edge)))?;
    state.edges.retain(|edge| !old.contains(edge));
    Ok(())
}

pub(crate) unsafe fn cuGraphRemoveDependencies(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Outcome {
    cuGraphRemoveDependencies_v2(graph, from, to, core::ptr::null(), count)
}

pub(crate) unsafe fn cuGraphDestroyNode(node: CUgraphNode) -> Outcome {
    let node = graph::find_node(node)?;
    let graph = node.graph.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let mut state = graph.state();
    state.nodes.retain(|other| other.handle != node.handle);
    state.edges.retain(|(from, to)| *from != node.handle && *to != node.handle);
    NODES.remove(node.handle);
    Ok(())
}

/// The type of a node with that content.
pub(super) fn type_of(content: &Content) -> Type {
    match content {
        Content::Empty => Type::CU_GRAPH_NODE_TYPE_EMPTY,
        Content::Operation(Operation::Kernel(_)) => Type::CU_GRAPH_NODE_TYPE_KERNEL,
        Content::Operation(Operation::Host(_) | Operation::Callback(_)) => Type::CU_GRAPH_NODE_TYPE_HOST,
        Content::Operation(Operation::Semaphores(uses)) => match uses.first() {
            Some(SemaphoreUse::Wait(_)) => Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT,
            _ => Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL,
        },
        Content::Operation(_) => Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
        Content::Copy(..) => Type::CU_GRAPH_NODE_TYPE_MEMCPY,
        Content::Fill(..) => Type::CU_GRAPH_NODE_TYPE_MEMSET,
        Content::Child(_) => Type::CU_GRAPH_NODE_TYPE_GRAPH,
        Content::Record(_) => Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Content::Wait(_) => Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        Content::Allocate(_) => Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        Content::Free(_) => Type::CU_GRAPH_NODE_TYPE_MEM_FREE,
    }
}

pub(crate) unsafe fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut Type) -> Outcome {
    give(kind, type_of(&graph::find_node(node)?.content()))
}

pub(crate) unsafe fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, _flags: c_uint) -> Outcome {
    let graph = graph::find(graph)?;
    let state = graph.state();
    let mut dot = String::from("digraph {\n");
    for node in &state.nodes {
        let _ = writeln!(dot, "  n{} [label=\"{}\"];", node.handle, type_of(&node.content()).0);
    }
    for (from, to) in &state.edges {
        let _ = writeln!(dot, "  n{from} -> n{to};");
    }
    dot.push_str("}\n");
    std::fs::write(text(path)?, dot).map_err(|_| CUresult::CUDA_ERROR_OPERATING_SYSTEM)
}

pub(crate) unsafe fn cuGraphChildGraphNodeGetGraph(node: CUgraphNode, child: *mut CUgraph) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Child(graph) => {
            give_if_asked(child, CUgraph(as_pointer(graph.handle)));
            Ok(())
        }
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}
