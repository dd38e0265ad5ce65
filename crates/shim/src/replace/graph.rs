//! Executable graphs: made, changed, launched and destroyed.

use super::replace;
use crate::bind;
use crate::call::is_ok;
use crate::coroutine::{self, Coroutine, active};
use crate::entries::counter;
use crate::graph::{self, EXECUTABLES, IN_SEGMENTS, bound, with_current};
use crate::stats::count;
use crate::{kernel, record};
use core::ffi::{c_char, c_uint, c_ulonglong};
use core::ptr::null_mut;
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUkernel, CUresult, CUstream,
};

replace! {
    fn cuGraphInstantiate(
        executable: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, room: usize,
    ) {
        made(cu!(cuGraphInstantiate(executable, graph, node, log, room)), executable, graph, 0)
    }
    fn cuGraphInstantiate_v2(
        executable: *mut CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, log: *mut c_char, room: usize,
    ) {
        made(cu!(cuGraphInstantiate_v2(executable, graph, node, log, room)), executable, graph, 0)
    }
    fn cuGraphInstantiateWithFlags(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) {
        made(cu!(cuGraphInstantiateWithFlags(executable, graph, flags)), executable, graph, flags)
    }
    fn cuGraphInstantiateWithParams(
        executable: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        let code = cu!(cuGraphInstantiateWithParams(executable, graph, parameters));
        made_with(code, executable, graph, parameters)
    }
    fn cuGraphInstantiateWithParams_ptsz(
        executable: *mut CUgraphExec, graph: CUgraph, parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) {
        let code = cu!(cuGraphInstantiateWithParams_ptsz(executable, graph, parameters));
        made_with(code, executable, graph, parameters)
    }
    fn cuGraphExecDestroy(executable: CUgraphExec) {
        if active() {
            graph::abandon(executable);
        }
        cu!(cuGraphExecDestroy(executable))
    }
    fn cuGraphLaunch(executable: CUgraphExec, stream: CUstream) {
        count(counter::cuGraphLaunch);
        let call = |executable, stream| cu!(cuGraphLaunch(executable, stream));
        launch(executable, stream, DefaultStream::Legacy, call)
    }
    fn cuGraphLaunch_ptsz(executable: CUgraphExec, stream: CUstream) {
        count(counter::cuGraphLaunch_ptsz);
        let call = |executable, stream| cu!(cuGraphLaunch_ptsz(executable, stream));
        launch(executable, stream, DefaultStream::PerThread, call)
    }
    fn cuGraphExecUpdate(
        executable: CUgraphExec, graph: CUgraph, node: *mut CUgraphNode, result: *mut CUgraphExecUpdateResult,
    ) {
        updated(cu!(cuGraphExecUpdate(executable, graph, node, result)), executable, graph)
    }
    fn cuGraphExecUpdate_v2(
        executable: CUgraphExec, graph: CUgraph, info: *mut CUgraphExecUpdateResultInfo,
    ) {
        updated(cu!(cuGraphExecUpdate_v2(executable, graph, info)), executable, graph)
    }
    fn cuGraphNodeSetEnabled(executable: CUgraphExec, node: CUgraphNode, on: c_uint) {
        let code = cu!(cuGraphNodeSetEnabled(executable, node, on));
        if active() && is_ok(code) && let Some(copies) = EXECUTABLES.find(executable.0.addr()) {
            copies.switch(node, on != 0);
        }
        code
    }
    fn cuGraphExecKernelNodeSetParams(
        executable: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
    ) {
        let code = cu!(cuGraphExecKernelNodeSetParams(executable, node, parameters));
        if active() && is_ok(code) && !parameters.is_null() {
            // SAFETY: the driver has read them.
            let old = unsafe { &*parameters };
            follow_kernel(executable, node, &CUDA_KERNEL_NODE_PARAMS {
                func: old.func,
                gridDimX: old.gridDimX,
                gridDimY: old.gridDimY,
                gridDimZ: old.gridDimZ,
                blockDimX: old.blockDimX,
                blockDimY: old.blockDimY,
                blockDimZ: old.blockDimZ,
                sharedMemBytes: old.sharedMemBytes,
                kernelParams: old.kernelParams,
                extra: old.extra,
                kern: CUkernel(null_mut()),
                ctx: CUcontext(null_mut()),
            });
        }
        code
    }
    fn cuGraphExecKernelNodeSetParams_v2(
        executable: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS,
    ) {
        let code = cu!(cuGraphExecKernelNodeSetParams_v2(executable, node, parameters));
        if active() && is_ok(code) && !parameters.is_null() {
            // SAFETY: the driver has read them.
            follow_kernel(executable, node, unsafe { &*parameters });
        }
        code
    }
    fn cuGraphExecNodeSetParams(executable: CUgraphExec, node: CUgraphNode, parameters: *mut CUgraphNodeParams) {
        let code = cu!(cuGraphExecNodeSetParams(executable, node, parameters));
        if !active() || !is_ok(code) || parameters.is_null() {
            return code;
        }
        // SAFETY: the driver has read them.
        let given = unsafe { &*parameters };
        if given.type_ == CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL {
            // SAFETY: the type says which; both structures have the same fields at the same places.
            let kernel = unsafe { &*(&raw const given.__bindgen_anon_1.kernel).cast() };
            follow_kernel(executable, node, kernel);
        } else {
            follow(
                executable,
                node,
                |copy, node| cu!(cuGraphExecNodeSetParams(copy, node, parameters)),
                |node| cu!(cuGraphNodeSetParams(node, parameters)),
            );
        }
        code
    }
}

/// An executable was made, if the code says so.
fn made(code: CUresult, executable: *mut CUgraphExec, graph: CUgraph, flags: u64) -> CUresult {
    if active()
        && is_ok(code)
        && !executable.is_null()
        && let Some(coroutine) = coroutine::current()
    {
        // SAFETY: the driver has written there.
        let executable = unsafe { *executable };
        graph::adopt(executable, graph, flags, coroutine);
        let mut nodes = 0;
        if record::is_on() && is_ok(cu!(cuGraphGetNodes(graph, null_mut(), &raw mut nodes))) {
            kernel::graph_profile(executable).set_nodes(u32::try_from(nodes).unwrap_or(u32::MAX));
        }
    }
    code
}

fn made_with(
    code: CUresult,
    executable: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *const CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> CUresult {
    if !active() || !is_ok(code) || parameters.is_null() {
        return code;
    }
    // SAFETY: the driver has read it.
    made(code, executable, graph, unsafe { (*parameters).flags })
}

fn launch(
    executable: CUgraphExec,
    stream: CUstream,
    default: DefaultStream,
    call: impl Fn(CUgraphExec, CUstream) -> CUresult,
) -> CUresult {
    if !active() {
        return call(executable, stream);
    }
    let Some(copies) = EXECUTABLES.find(executable.0.addr()) else {
        let bound = bind::home(stream, default);
        return call(executable, bound.handle());
    };
    bind::launch_graph(stream, default, executable, |logical, coroutine, lane, at| {
        if let Some(segments) = copies.pick_segments(coroutine, logical, at) {
            let mut code = CUresult::CUDA_SUCCESS;
            for segment in &segments {
                code = call(segment.executable, at);
                if !is_ok(code) {
                    break;
                }
                note_launch(coroutine, segment.lane);
            }
            copies.launched(IN_SEGMENTS, logical, at);
            return (code, lane);
        }
        let picked = copies.pick(executable, coroutine, lane, logical, at);
        let code = call(picked.executable, at);
        if is_ok(code) {
            copies.launched(picked.lane, logical, at);
        }
        note_launch(coroutine, picked.lane);
        (code, picked.lane)
    })
    .unwrap_or_else(|handle| call(executable, handle))
}

fn note_launch(coroutine: &Coroutine, lane: usize) {
    coroutine.lanes[lane].add_launches(1);
    coroutine.lanes[lane].note_use();
}

fn updated(code: CUresult, executable: CUgraphExec, graph: CUgraph) -> CUresult {
    if active()
        && is_ok(code)
        && let Some(copies) = EXECUTABLES.find(executable.0.addr())
    {
        copies.update(graph);
    }
    code
}

fn follow(
    executable: CUgraphExec,
    node: CUgraphNode,
    change: impl Fn(CUgraphExec, CUgraphNode) -> CUresult,
    template: impl Fn(CUgraphNode) -> CUresult,
) {
    if let Some(copies) = EXECUTABLES.find(executable.0.addr()) {
        copies.follow(node, &|copy, node, _| is_ok(change(copy, node)), &|node| is_ok(template(node)));
    }
}

fn follow_kernel(executable: CUgraphExec, node: CUgraphNode, parameters: &CUDA_KERNEL_NODE_PARAMS) {
    let Some(copies) = EXECUTABLES.find(executable.0.addr()) else { return };
    copies.follow(
        node,
        &|copy, node, context| {
            let there = bound(parameters, context);
            with_current(context, || is_ok(cu!(cuGraphExecKernelNodeSetParams_v2(copy, node, &raw const there))))
        },
        &|node| is_ok(cu!(cuGraphKernelNodeSetParams_v2(node, parameters))),
    );
}

macro_rules! follows {
    ($($function:ident($($parameter:ident: $ty:ty),*) as $template:ident($($given:ident),*);)+) => {
        replace! {$(
            fn $function(executable: CUgraphExec, node: CUgraphNode, $($parameter: $ty),*) {
                let code = cu!($function(executable, node, $($parameter),*));
                if active() && is_ok(code) {
                    follow(
                        executable,
                        node,
                        |copy, node| cu!($function(copy, node, $($parameter),*)),
                        |node| cu!($template(node, $($given),*)),
                    );
                }
                code
            }
        )+}
    };
}

follows! {
    cuGraphExecMemcpyNodeSetParams(copy: *const CUDA_MEMCPY3D, context: CUcontext)
        as cuGraphMemcpyNodeSetParams(copy);
    cuGraphExecMemsetNodeSetParams(fill: *const CUDA_MEMSET_NODE_PARAMS, context: CUcontext)
        as cuGraphMemsetNodeSetParams(fill);
    cuGraphExecHostNodeSetParams(parameters: *const CUDA_HOST_NODE_PARAMS)
        as cuGraphHostNodeSetParams(parameters);
    cuGraphExecEventRecordNodeSetEvent(event: CUevent) as cuGraphEventRecordNodeSetEvent(event);
    cuGraphExecEventWaitNodeSetEvent(event: CUevent) as cuGraphEventWaitNodeSetEvent(event);
    cuGraphExecExternalSemaphoresSignalNodeSetParams(parameters: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS)
        as cuGraphExternalSemaphoresSignalNodeSetParams(parameters);
    cuGraphExecExternalSemaphoresWaitNodeSetParams(parameters: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS)
        as cuGraphExternalSemaphoresWaitNodeSetParams(parameters);
    cuGraphExecBatchMemOpNodeSetParams(parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS)
        as cuGraphBatchMemOpNodeSetParams(parameters);
}

replace! {
    /// A child graph's kernels would have to be bound again: copies go, and the original runs as it is.
    fn cuGraphExecChildGraphNodeSetParams(executable: CUgraphExec, node: CUgraphNode, graph: CUgraph) {
        let code = cu!(cuGraphExecChildGraphNodeSetParams(executable, node, graph));
        if active() && is_ok(code) {
            let no = |_| CUresult::CUDA_ERROR_NOT_SUPPORTED;
            follow(executable, node, |copy, _| { _ = copy; CUresult::CUDA_ERROR_NOT_SUPPORTED }, no);
        }
        code
    }
}
