//! Executable graphs.

use super::graph_any::content;
use super::graph_nodes::{copy_content, fill_content, host_content, kernel_content, newer};
use super::graph_waits::{batch_content, signal_content, wait_content};
use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::event;
use crate::graph::capture;
use crate::graph::executable::{self, EXECUTABLES, Executable, Refusal};
use crate::graph::update::{Difference, type_of};
use crate::graph::{self, Content};
use crate::operation::Operation;
use crate::stream;
use core::ffi::{c_char, c_uint, c_ulonglong};
use detshare_cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec,
    CUgraphExecUpdateResult as UpdateResult, CUgraphExecUpdateResultInfo, CUgraphInstantiateResult, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType, CUresult, CUstream, cuuint64_t,
};

const ALL_FLAGS: u64 = 0xf;

/// Makes an executable; the second answer is for those who ask why not.
unsafe fn instantiate(created: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Outcome<Result<(), Refusal>> {
    require(!created.is_null() && flags & !ALL_FLAGS == 0)?;
    let graph = graph::find(graph)?;
    // One that belongs to a node runs with the node.
    require(!graph.is_owned())?;
    Ok(match Executable::create(&graph, flags) {
        Ok(executable) => {
            created.write(CUgraphExec(as_pointer(executable.handle)));
            Ok(())
        }
        Err(refusal) => Err(refusal),
    })
}

pub(crate) unsafe fn cuGraphInstantiateWithFlags(
    created: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Outcome {
    instantiate(created, graph, flags)?.map_err(|refusal| refusal.code)
}

pub(crate) unsafe fn cuGraphInstantiate_v2(
    created: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    room: usize,
) -> Outcome {
    let made = instantiate(created, graph, 0)?;
    let node = made.as_ref().err().map_or(0, |refusal| refusal.node);
    give_if_asked(error_node, CUgraphNode(as_pointer(node)));
    if room > 0 {
        give_if_asked(log, 0);
    }
    made.map_err(|refusal| refusal.code)
}

pub(crate) unsafe fn cuGraphInstantiate(
    created: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    room: usize,
) -> Outcome {
    cuGraphInstantiate_v2(created, graph, error_node, log, room)
}

pub(crate) unsafe fn cuGraphInstantiateWithParams(
    _default: CUstream,
    created: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Outcome {
    require(!parameters.is_null())?;
    let none = CUgraphNode(core::ptr::null_mut());
    (*parameters).hErrNode_out = none;
    (*parameters).result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_ERROR;
    match instantiate(created, graph, (*parameters).flags)? {
        Ok(()) => {
            (*parameters).result_out = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
            Ok(())
        }
        Err(refusal) => {
            (*parameters).hErrNode_out = CUgraphNode(as_pointer(refusal.node));
            (*parameters).result_out = refusal.result;
            Err(refusal.code)
        }
    }
}

pub(crate) unsafe fn cuGraphExecDestroy(executable: CUgraphExec) -> Outcome {
    EXECUTABLES.remove(executable.0.addr()).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(crate) unsafe fn cuGraphExecGetFlags(executable: CUgraphExec, flags: *mut cuuint64_t) -> Outcome {
    // The flag on priorities does not come back.
    const USE_NODE_PRIORITY: u64 = 8;
    give(flags, executable::find(executable)?.flags & !USE_NODE_PRIORITY)
}

pub(crate) unsafe fn cuGraphUpload(executable: CUgraphExec, stream: CUstream) -> Outcome {
    executable::find(executable)?;
    stream::find(stream).map(|_| ())
}

pub(crate) unsafe fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream) -> Outcome {
    let executable = executable::find(executable)?;
    let stream = stream::find(stream)?;
    stream.context.fate.check()?;
    // The real driver refuses it too: a capture takes graphs as child nodes only.
    capture::forbid(&stream)?;
    executable.launch(&stream)
}

pub(crate) unsafe fn cuGraphExecUpdate_v2(
    executable: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> Outcome {
    let graph = graph::find(graph)?;
    require(!graph.is_owned())?;
    let outcome = executable::find(executable)?.update(&graph);
    let Difference { result, node, from } = outcome.err().unwrap_or(SAME);
    let [node, from] = [node, from].map(|handle| CUgraphNode(as_pointer(handle)));
    give_if_asked(info, CUgraphExecUpdateResultInfo { result, errorNode: node, errorFromNode: from });
    outcome.map_err(|_| CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
}

/// What is told of an update that went well.
const SAME: Difference = Difference { result: UpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, node: 0, from: 0 };

pub(crate) unsafe fn cuGraphExecUpdate(
    executable: CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    result: *mut UpdateResult,
) -> Outcome {
    let none = CUgraphNode(core::ptr::null_mut());
    let unknown = UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR;
    let mut info = CUgraphExecUpdateResultInfo { result: unknown, errorNode: none, errorFromNode: none };
    let outcome = cuGraphExecUpdate_v2(executable, graph, &raw mut info);
    give_if_asked(error_node, info.errorNode);
    give_if_asked(result, info.result);
    outcome
}

/// Changes one node of the executable to content of the same type.
unsafe fn change(executable: CUgraphExec, node: CUgraphNode, new: Content) -> Outcome {
    executable::find(executable)?.change(node.0.addr(), |step| {
        require(type_of(&step.content) == type_of(&new))?;
        match (&step.content, &new) {
            // The context of an executable's node cannot change: the driver says so too.
            (Content::Operation(Operation::Kernel(old)), Content::Operation(Operation::Kernel(kernel))) => {
                require(old.bound.context == kernel.bound.context)?;
                let old = old.clone();
                step.content = new.with_attributes_of(&old)?;
            }
            (Content::Semaphores(old, _), Content::Semaphores(semaphores, _)) => {
                require(old.all.len() == semaphores.all.len())?;
                step.content = new;
            }
            _ => step.content = new,
        }
        Ok(())
    })
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams_v2(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    change(executable, node, kernel_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome {
    cuGraphExecKernelNodeSetParams_v2(executable, node, &newer(parameters)?)
}

pub(crate) unsafe fn cuGraphExecMemcpyNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_MEMCPY3D,
    _context: CUcontext,
) -> Outcome {
    change(executable, node, copy_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecMemsetNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_MEMSET_NODE_PARAMS,
    _context: CUcontext,
) -> Outcome {
    change(executable, node, fill_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecHostNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_HOST_NODE_PARAMS,
) -> Outcome {
    change(executable, node, host_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecEventRecordNodeSetEvent(
    executable: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Outcome {
    change(executable, node, Content::Record(event::find(event)?))
}

pub(crate) unsafe fn cuGraphExecEventWaitNodeSetEvent(
    executable: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Outcome {
    change(executable, node, Content::Wait(event::find(event)?))
}

pub(crate) unsafe fn cuGraphExecBatchMemOpNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Outcome {
    change(executable, node, batch_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecExternalSemaphoresSignalNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS,
) -> Outcome {
    change(executable, node, signal_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecExternalSemaphoresWaitNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS,
) -> Outcome {
    change(executable, node, wait_content(parameters)?)
}

pub(crate) unsafe fn cuGraphExecChildGraphNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    child: CUgraph,
) -> Outcome {
    executable::find(executable)?.update_child(node.0.addr(), &graph::find(child)?)
}

pub(crate) unsafe fn cuGraphExecNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *mut CUgraphNodeParams,
) -> Outcome {
    if let Some(new) = content(parameters)? {
        return change(executable, node, new);
    }
    match (*parameters).type_ {
        CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH => {
            cuGraphExecChildGraphNodeSetParams(executable, node, (*parameters).__bindgen_anon_1.graph.graph)
        }
        // What a graph allocates, and where it branches, stays.
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphNodeSetEnabled(executable: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Outcome {
    executable::find(executable)?.change(node.0.addr(), |step| {
        require(can_be_disabled(&step.content))?;
        step.enabled = enabled != 0;
        Ok(())
    })
}

fn can_be_disabled(content: &Content) -> bool {
    matches!(content, Content::Operation(Operation::Kernel(_)) | Content::Copy(..) | Content::Fill(..))
}

pub(crate) unsafe fn cuGraphNodeGetEnabled(
    executable: CUgraphExec,
    node: CUgraphNode,
    enabled: *mut c_uint,
) -> Outcome {
    let state = executable::find(executable)?.change(node.0.addr(), |step| Ok(c_uint::from(step.enabled)))?;
    give(enabled, state)
}
