//! Graphs as pictures, in the language of Graphviz.

use super::update::type_of;
use super::{Content, Graph, PLAIN};
use crate::operation::Operation;
use core::fmt::Write;
use detshare_cuda::types::{CUgraphDebugDot_flags as Flags, CUgraphNodeType as Type};
use std::sync::Arc;

/// The whole graph; the flags say how much of each node is told.
pub(crate) fn print(graph: &Arc<Graph>, flags: u32) -> String {
    let mut dot = String::from("digraph dot {\n");
    cluster(graph, flags, &mut dot);
    dot.push_str("}\n");
    dot
}

fn cluster(graph: &Arc<Graph>, flags: u32, dot: &mut String) {
    let state = graph.state();
    // A string takes any text.
    let _ = writeln!(dot, "subgraph cluster_{0:x} {{\nlabel=\"graph_{0:x}\" graph[style=\"dashed\"];", graph.handle);
    for node in &state.nodes {
        let content = node.content();
        let label = label(&content, node.handle, flags);
        let _ = writeln!(dot, "\"node_{:x}\"[style=\"solid\" shape=\"rectangle\" label=\"{label}\"];", node.handle);
    }
    for edge in &state.edges {
        let kind = if edge.data == PLAIN {
            String::new()
        } else {
            format!(" [label=\"port {} type {}\"]", edge.data.from_port, edge.data.type_)
        };
        let _ = writeln!(dot, "\"node_{:x}\" -> \"node_{:x}\"{kind};", edge.from, edge.to);
    }
    for node in &state.nodes {
        for inner in node.content().inner() {
            cluster(inner, flags, dot);
            let _ = writeln!(dot, "\"node_{:x}\" -> \"graph_{:x}\" [style=\"dotted\"];", node.handle, inner.handle);
        }
    }
    dot.push_str("}\n");
}

fn label(content: &Content, handle: usize, flags: u32) -> String {
    let asked = |flag: Flags| flags & (flag.0 | Flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE.0) != 0;
    let mut label = name(type_of(content)).to_string();
    if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES) {
        let _ = write!(label, "\\nhandle {handle:#x}");
    }
    match content {
        Content::Operation(Operation::Kernel(launch)) => {
            let _ = write!(label, "\\n{}", launch.function.kernel.properties.name.escape_default());
            if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS) {
                let shape = &launch.shape;
                let _ =
                    write!(label, "\\ngrid {:?} block {:?} shared {}", shape.grid, shape.block, shape.dynamic_shared);
            }
        }
        Content::Copy(copy, _) if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS) => {
            let _ = write!(label, "\\n{} x {} x {} bytes", copy.WidthInBytes, copy.Height, copy.Depth);
        }
        Content::Fill(fill, _) if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS) => {
            let _ = write!(label, "\\n{:#x} <- {:#x}, {} x {}", fill.dst.0, fill.value, fill.width, fill.height);
        }
        Content::Allocate(memory) if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEM_ALLOC_NODE_PARAMS) => {
            let _ = write!(label, "\\n{} bytes at {:#x}", memory.bytes, memory.address);
        }
        Content::Free(address) if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_MEM_FREE_NODE_PARAMS) => {
            let _ = write!(label, "\\n{address:#x}");
        }
        Content::Record(event) | Content::Wait(event) if asked(Flags::CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS) => {
            let _ = write!(label, "\\nevent {:#x}", event.handle);
        }
        _ => {}
    }
    label
}

fn name(kind: Type) -> &'static str {
    match kind {
        Type::CU_GRAPH_NODE_TYPE_KERNEL => "KERNEL",
        Type::CU_GRAPH_NODE_TYPE_MEMCPY => "MEMCPY",
        Type::CU_GRAPH_NODE_TYPE_MEMSET => "MEMSET",
        Type::CU_GRAPH_NODE_TYPE_HOST => "HOST",
        Type::CU_GRAPH_NODE_TYPE_GRAPH => "GRAPH",
        Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => "WAIT_EVENT",
        Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => "EVENT_RECORD",
        Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL => "EXT_SEMAS_SIGNAL",
        Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => "EXT_SEMAS_WAIT",
        Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC => "MEM_ALLOC",
        Type::CU_GRAPH_NODE_TYPE_MEM_FREE => "MEM_FREE",
        Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => "BATCH_MEM_OP",
        Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => "CONDITIONAL",
        _ => "EMPTY",
    }
}
