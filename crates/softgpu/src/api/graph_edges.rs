//! Edges of a graph, with what a program says about them.

use super::graph::{give_list, handles};
use super::require;
use crate::boundary::Outcome;
use crate::graph::{self, Dependency, Edge, PLAIN};
use detshare_cuda::types::{CUgraph, CUgraphEdgeData, CUgraphNode, CUresult};

/// A program's list of nodes to come after; without data, after the whole of each.
pub(super) unsafe fn dependencies(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Outcome<Vec<Dependency>> {
    let nodes = handles(nodes, count)?.into_iter().enumerate();
    Ok(nodes.map(|(index, node)| (node, if data.is_null() { PLAIN } else { *data.add(index) })).collect())
}

/// Writes what is special about edges; a program that does not ask for it must not miss any.
unsafe fn give_data(data: &[CUgraphEdgeData], place: *mut CUgraphEdgeData, room: usize, is_list: bool) -> Outcome {
    if !is_list {
        return Ok(());
    }
    let data = &data[..room.min(data.len())];
    if place.is_null() {
        return match data.iter().all(|it| *it == PLAIN) {
            true => Ok(()),
            false => Err(CUresult::CUDA_ERROR_LOSSY_QUERY),
        };
    }
    place.write_bytes(0, room);
    core::ptr::copy_nonoverlapping(data.as_ptr(), place, data.len());
    Ok(())
}

pub(crate) unsafe fn cuGraphGetEdges_v2(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    require(!count.is_null() && from.is_null() == to.is_null())?;
    require(data.is_null() || !from.is_null())?;
    let edges = graph::find(graph)?.state().edges.clone();
    let room = *count;
    give_data(&edges.iter().map(|edge| edge.data).collect::<Vec<_>>(), data, room, !from.is_null())?;
    let mut again = room;
    give_list(&edges.iter().map(|edge| edge.from).collect::<Vec<_>>(), from, &raw mut again)?;
    give_list(&edges.iter().map(|edge| edge.to).collect::<Vec<_>>(), to, count)
}

pub(crate) unsafe fn cuGraphGetEdges(
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuGraphGetEdges_v2(graph, from, to, core::ptr::null_mut(), count)
}

unsafe fn give_dependencies(
    list: &[Dependency],
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    require(!count.is_null() && (data.is_null() || !nodes.is_null()))?;
    give_data(&list.iter().map(|(_, data)| *data).collect::<Vec<_>>(), data, *count, !nodes.is_null())?;
    give_list(&list.iter().map(|(node, _)| *node).collect::<Vec<_>>(), nodes, count)
}

pub(crate) unsafe fn cuGraphNodeGetDependencies_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    let node = graph::find_node(node)?;
    let graph = node.graph.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let list = graph.state().before(node.handle);
    give_dependencies(&list, nodes, data, count)
}

pub(crate) unsafe fn cuGraphNodeGetDependencies(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuGraphNodeGetDependencies_v2(node, nodes, core::ptr::null_mut(), count)
}

pub(crate) unsafe fn cuGraphNodeGetDependentNodes_v2(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: *mut usize,
) -> Outcome {
    let node = graph::find_node(node)?;
    let graph = node.graph.upgrade().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let list = graph.state().behind(node.handle);
    give_dependencies(&list, nodes, data, count)
}

pub(crate) unsafe fn cuGraphNodeGetDependentNodes(
    node: CUgraphNode,
    nodes: *mut CUgraphNode,
    count: *mut usize,
) -> Outcome {
    cuGraphNodeGetDependentNodes_v2(node, nodes, core::ptr::null_mut(), count)
}

unsafe fn edge_list(
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Outcome<Vec<Edge>> {
    let from = dependencies(from, data, count)?;
    Ok(from.into_iter().zip(handles(to, count)?).map(|((from, data), to)| Edge { from, to, data }).collect())
}

pub(crate) unsafe fn cuGraphAddDependencies_v2(
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Outcome {
    let graph = graph::find(graph)?;
    let new = edge_list(from, to, data, count)?;
    let mut state = graph.state();
    for edge in &new {
        let (Some(from), Some(to)) = (state.find(edge.from), state.find(edge.to)) else {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        };
        require(edge.from != edge.to && graph::fits(&edge.data, &from.content(), &to.content()))?;
        require(!state.edges.iter().any(|known| (known.from, known.to) == (edge.from, edge.to)))?;
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
    data: *const CUgraphEdgeData,
    count: usize,
) -> Outcome {
    let graph = graph::find(graph)?;
    let old = edge_list(from, to, data, count)?;
    let mut state = graph.state();
    if state.has_memory() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
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
