//! Graphs: making, cloning, listing their nodes.

use super::{as_pointer, require, text};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::graph::update::type_of;
use crate::graph::{self, Content, Graph, NODES, dot};
use core::ffi::{c_char, c_uint};
use detshare_cuda::types::{CUgraph, CUgraphNode, CUgraphNodeType as Type, CUresult};

/// A program's list of nodes.
pub(super) unsafe fn handles(nodes: *const CUgraphNode, count: usize) -> Outcome<Vec<usize>> {
    require(count == 0 || !nodes.is_null())?;
    Ok((0..count).map(|index| (*nodes.add(index)).0.addr()).collect())
}

/// Writes a list as the graph functions do: without a place its length, with one at most as many as there is room.
pub(super) unsafe fn give_list(list: &[usize], place: *mut CUgraphNode, count: *mut usize) -> Outcome {
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
    let graph = graph::find(graph)?;
    // One that belongs to a node goes with the node.
    require(!graph.is_owned())?;
    graph.destroy();
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

pub(crate) unsafe fn cuGraphDestroyNode(node: CUgraphNode) -> Outcome {
    let node = graph::find_node(node)?;
    let graph = node.graph.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let mut state = graph.state();
    if state.has_memory() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    state.nodes.retain(|other| other.handle != node.handle);
    state.edges.retain(|edge| edge.from != node.handle && edge.to != node.handle);
    NODES.remove(node.handle);
    node.content().inner().iter().for_each(|inner| inner.destroy());
    Ok(())
}

pub(crate) unsafe fn cuGraphNodeGetType(node: CUgraphNode, kind: *mut Type) -> Outcome {
    give(kind, type_of(&graph::find_node(node)?.content()))
}

pub(crate) unsafe fn cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint) -> Outcome {
    let dot = dot::print(&graph::find(graph)?, flags);
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
