//! Conditional nodes of graphs.

use super::require;
use crate::boundary::{Outcome, give};
use crate::context;
use crate::graph::conditional::Branching;
use crate::graph::{self, Content};
use crate::system::conditional::{self, Conditional};
use core::ffi::c_uint;
use detshare_cuda::types::{CUDA_CONDITIONAL_NODE_PARAMS, CUcontext, CUgraph, CUgraphConditionalHandle, CUresult};
use std::sync::Arc;

/// `CU_GRAPH_COND_ASSIGN_DEFAULT`.
const ASSIGN_DEFAULT: c_uint = 1;

pub(crate) unsafe fn cuGraphConditionalHandleCreate(
    created: *mut CUgraphConditionalHandle,
    graph: CUgraph,
    context: CUcontext,
    default: c_uint,
    flags: c_uint,
) -> Outcome {
    require(!created.is_null() && flags <= ASSIGN_DEFAULT)?;
    if !context.0.is_null() {
        context::find(context.0.addr())?;
    }
    let graph = graph::find(graph)?;
    let condition = Conditional::new((flags == ASSIGN_DEFAULT).then_some(default));
    give(created, CUgraphConditionalHandle(condition.handle as u64))?;
    graph.state().conditionals.push(condition);
    Ok(())
}

/// A conditional node with empty bodies.
pub(super) fn conditional_content(parameters: &CUDA_CONDITIONAL_NODE_PARAMS) -> Outcome<Content> {
    require(Branching::may_have(parameters.type_, parameters.size))?;
    let condition: Arc<Conditional> =
        conditional::find(parameters.handle.0).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    Ok(Content::Conditional(Branching::new(condition, parameters.type_, parameters.size as usize)))
}

/// Tells the program which graphs the bodies are.
pub(super) fn give_bodies(parameters: &mut CUDA_CONDITIONAL_NODE_PARAMS, branching: &Branching) {
    parameters.phGraph_out = branching.handles();
}
