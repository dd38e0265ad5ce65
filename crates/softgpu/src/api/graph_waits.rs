//! Nodes of a graph that wait for something or tell of it: events, memory, semaphores of others.

use super::external_semaphore::uses;
use super::graph_nodes::add;
use super::{as_pointer, require, stream_memory};
use crate::boundary::{Outcome, give};
use crate::event;
use crate::graph::parameters::{Batch, Semaphores, Uses};
use crate::graph::{self, Content};
use crate::operation::Operation;
use detshare_cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS, CUcontext, CUevent,
    CUgraph, CUgraphNode, CUresult,
};
use std::sync::Arc;

pub(crate) unsafe fn cuGraphAddEventRecordNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Outcome {
    add(created, graph, nodes, count, Content::Record(event::find(event)?))
}

pub(crate) unsafe fn cuGraphAddEventWaitNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Outcome {
    add(created, graph, nodes, count, Content::Wait(event::find(event)?))
}

pub(crate) unsafe fn cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Record(it) => give(event, CUevent(as_pointer(it.handle))),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Wait(it) => give(event, CUevent(as_pointer(it.handle))),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent) -> Outcome {
    let node = graph::find_node(node)?;
    require(matches!(node.content(), Content::Record(_)))?;
    node.set(Content::Record(event::find(event)?));
    Ok(())
}

pub(crate) unsafe fn cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent) -> Outcome {
    let node = graph::find_node(node)?;
    require(matches!(node.content(), Content::Wait(_)))?;
    node.set(Content::Wait(event::find(event)?));
    Ok(())
}

pub(super) unsafe fn batch_content(parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null() && (*parameters).flags == 0)?;
    let it = &*parameters;
    let run = Operation::Memory(stream_memory::batch(it.count, it.paramArray)?);
    let operations = core::slice::from_raw_parts(it.paramArray, it.count as usize).into();
    Ok(Content::Batch(Arc::new(Batch { context: it.ctx.0.addr(), operations }), run))
}

pub(crate) unsafe fn cuGraphAddBatchMemOpNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Outcome {
    add(created, graph, nodes, count, batch_content(parameters)?)
}

pub(crate) unsafe fn cuGraphBatchMemOpNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Batch(batch, _) => give(
            parameters,
            CUDA_BATCH_MEM_OP_NODE_PARAMS {
                ctx: CUcontext(as_pointer(batch.context)),
                count: u32::try_from(batch.operations.len()).unwrap_or(u32::MAX),
                paramArray: batch.operations.as_ptr().cast_mut(),
                flags: 0,
            },
        ),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphBatchMemOpNodeSetParams(
    node: CUgraphNode,
    parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Outcome {
    let node = graph::find_node(node)?;
    require(matches!(node.content(), Content::Batch(..)))?;
    node.set(batch_content(parameters)?);
    Ok(())
}

pub(super) unsafe fn signal_content(parameters: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null() && !(*parameters).paramsArray.is_null())?;
    let it = &*parameters;
    let run = uses(it.extSemArray, it.numExtSems, false)?;
    let all = core::slice::from_raw_parts(it.extSemArray, it.numExtSems as usize).into();
    let uses = Uses::Signal(core::slice::from_raw_parts(it.paramsArray, it.numExtSems as usize).into());
    Ok(Content::Semaphores(Arc::new(Semaphores { all, uses }), run))
}

pub(super) unsafe fn wait_content(parameters: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null() && !(*parameters).paramsArray.is_null())?;
    let it = &*parameters;
    let run = uses(it.extSemArray, it.numExtSems, true)?;
    let all = core::slice::from_raw_parts(it.extSemArray, it.numExtSems as usize).into();
    let uses = Uses::Wait(core::slice::from_raw_parts(it.paramsArray, it.numExtSems as usize).into());
    Ok(Content::Semaphores(Arc::new(Semaphores { all, uses }), run))
}

pub(crate) unsafe fn cuGraphAddExternalSemaphoresSignalNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
) -> Outcome {
    add(created, graph, nodes, count, signal_content(parameters)?)
}

pub(crate) unsafe fn cuGraphAddExternalSemaphoresWaitNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
) -> Outcome {
    add(created, graph, nodes, count, wait_content(parameters)?)
}

/// The semaphores of a node.
fn semaphores_of(node: CUgraphNode) -> Outcome<Arc<Semaphores>> {
    match graph::find_node(node)?.content() {
        Content::Semaphores(semaphores, _) => Ok(semaphores),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphExternalSemaphoresSignalNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
) -> Outcome {
    let semaphores = semaphores_of(node)?;
    let Uses::Signal(uses) = &semaphores.uses else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    give(
        parameters,
        CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
            extSemArray: semaphores.all.as_ptr().cast_mut(),
            paramsArray: uses.as_ptr(),
            numExtSems: u32::try_from(uses.len()).unwrap_or(u32::MAX),
        },
    )
}

pub(crate) unsafe fn cuGraphExternalSemaphoresWaitNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS,
) -> Outcome {
    let semaphores = semaphores_of(node)?;
    let Uses::Wait(uses) = &semaphores.uses else { return Err(CUresult::CUDA_ERROR_INVALID_VALUE) };
    give(
        parameters,
        CUDA_EXT_SEM_WAIT_NODE_PARAMS {
            extSemArray: semaphores.all.as_ptr().cast_mut(),
            paramsArray: uses.as_ptr(),
            numExtSems: u32::try_from(uses.len()).unwrap_or(u32::MAX),
        },
    )
}

pub(crate) unsafe fn cuGraphExternalSemaphoresSignalNodeSetParams(
    node: CUgraphNode,
    parameters: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
) -> Outcome {
    require(matches!(semaphores_of(node)?.uses, Uses::Signal(_)))?;
    graph::find_node(node)?.set(signal_content(parameters)?);
    Ok(())
}

pub(crate) unsafe fn cuGraphExternalSemaphoresWaitNodeSetParams(
    node: CUgraphNode,
    parameters: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
) -> Outcome {
    require(matches!(semaphores_of(node)?.uses, Uses::Wait(_)))?;
    graph::find_node(node)?.set(wait_content(parameters)?);
    Ok(())
}
