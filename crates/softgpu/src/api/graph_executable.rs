//! Executable graphs.

use super::graph::type_of;
use super::graph_nodes::{content, copy_content, fill_content, host_content, kernel_content, newer};
use super::{as_pointer, require};
use crate::boundary::{Outcome, give, give_if_asked};
use crate::event;
use crate::graph::capture;
use crate::graph::executable::{self, EXECUTABLES, Executable};
use crate::graph::{self, Content};
use crate::operation::Operation;
use crate::stream;
use core::ffi::{c_char, c_uint, c_ulonglong};
use detshare_cuda::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec,
    CUgraphExecUpdateResult as UpdateResult, CUgraphExecUpdateResultInfo, CUgraphInstantiateResult, CUgraphNode,
    CUgraphNodeParams, CUresult, CUstream, cuuint64_t,
};

const ALL_FLAGS: u64 = 0xf;

pub(crate) unsafe fn cuGraphInstantiateWithFlags(
    created: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Outcome {
    require(!created.is_null() && flags & !ALL_FLAGS == 0)?;
    let executable = Executable::create(&graph::find(graph)?, flags)?;
    give(created, CUgraphExec(as_pointer(executable.handle)))
}

pub(crate) unsafe fn cuGraphInstantiate_v2(
    created: *mut CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    log: *mut c_char,
    room: usize,
) -> Outcome {
    give_if_asked(error_node, CUgraphNode(core::ptr::null_mut()));
    if room > 0 {
        give_if_asked(log, 0);
    }
    cuGraphInstantiateWithFlags(created, graph, 0)
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
    let result = cuGraphInstantiateWithFlags(created, graph, (*parameters).flags);
    (*parameters).hErrNode_out = CUgraphNode(core::ptr::null_mut());
    (*parameters).result_out = if result.is_ok() {
        CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS
    } else {
        CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
    };
    result
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
    executable.launch(&stream);
    Ok(())
}

pub(crate) unsafe fn cuGraphExecUpdate_v2(
    executable: CUgraphExec,
    graph: CUgraph,
    info: *mut CUgraphExecUpdateResultInfo,
) -> Outcome {
    let result = executable::find(executable)?.update(&graph::find(graph)?)?;
    let none = CUgraphNode(core::ptr::null_mut());
    give_if_asked(info, CUgraphExecUpdateResultInfo { result, errorNode: none, errorFromNode: none });
    if result == UpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS {
        Ok(())
    } else {
        Err(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    }
}

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
    let executable = executable::find(executable)?;
    let mut outcome = Ok(());
    executable.change(node.0.addr(), |step| {
        outcome = require(type_of(&step.content) == type_of(&new));
        if outcome.is_ok() {
            step.content = new;
        }
    })?;
    outcome
}

pub(crate) unsafe fn cuGraphExecKernelNodeSetParams_v2(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let new = kernel_content(parameters)?;
    // The context of an executable's node cannot change: the driver says so too.
    if let Some(wanted) = new.context() {
        let steps = executable::find(executable)?;
        let moves = steps
            .steps()
            .iter()
            .any(|step| step.node == node.0.addr() && step.content.context().is_some_and(|context| context != wanted));
        require(!moves)?;
    }
    change(executable, node, new)
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

pub(crate) unsafe fn cuGraphExecNodeSetParams(
    executable: CUgraphExec,
    node: CUgraphNode,
    parameters: *mut CUgraphNodeParams,
) -> Outcome {
    change(executable, node, content(parameters)?)
}

pub(crate) unsafe fn cuGraphNodeSetEnabled(executable: CUgraphExec, node: CUgraphNode, enabled: c_uint) -> Outcome {
    let executable = executable::find(executable)?;
    let mut outcome = Ok(());
    executable.change(node.0.addr(), |step| {
        let can =
            matches!(&step.content, Content::Operation(Operation::Kernel(_)) | Content::Copy(..) | Content::Fill(..));
        outcome = require(can);
        if can {
            step.enabled = enabled != 0;
        }
    })?;
    outcome
}

pub(crate) unsafe fn cuGraphNodeGetEnabled(
    executable: CUgraphExec,
    node: CUgraphNode,
    enabled: *mut c_uint,
) -> Outcome {
    let executable = executable::find(executable)?;
    let mut state = 0;
    executable.change(node.0.addr(), |step| state = c_uint::from(step.enabled))?;
    give(enabled, state)
}
