//! Nodes of graphs: kernels, copies, memory, functions of the host, events, semaphores, graphs.

use super::forward;
use super::launch::told_apart;
use super::symbol::place;
use super::{NO_CONTEXT, current_context};
use crate::boundary::{Outcome, give, require};
use crate::convert::{Side, address, at, at_mut, copy_of_box, copy_of_parameters, parameters_of_copy, same};
use crate::driver::driver;
use crate::types::*;
use crate::{context, registry};
use core::ffi::c_void;
use core::ptr::null_mut;
use detshare_cuda::types::{CUDA_KERNEL_NODE_PARAMS, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUarray, CUfunction};

forward! {
    fn cudaGraphAddEmptyNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
    ) => cuGraphAddEmptyNode(node, graph, dependencies, count);
    fn cudaGraphAddChildGraphNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        child: cudaGraph_t,
    ) => cuGraphAddChildGraphNode(node, graph, dependencies, count, child);
    fn cudaGraphChildGraphNodeGetGraph(node: cudaGraphNode_t, graph: *mut cudaGraph_t)
        => cuGraphChildGraphNodeGetGraph(node, graph);
    fn cudaGraphExecChildGraphNodeSetParams(executable: cudaGraphExec_t, node: cudaGraphNode_t, child: cudaGraph_t)
        => cuGraphExecChildGraphNodeSetParams(executable, node, child);
    fn cudaGraphAddEventRecordNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        event: cudaEvent_t,
    ) => cuGraphAddEventRecordNode(node, graph, dependencies, count, event);
    fn cudaGraphEventRecordNodeGetEvent(node: cudaGraphNode_t, event: *mut cudaEvent_t)
        => cuGraphEventRecordNodeGetEvent(node, event);
    fn cudaGraphEventRecordNodeSetEvent(node: cudaGraphNode_t, event: cudaEvent_t)
        => cuGraphEventRecordNodeSetEvent(node, event);
    fn cudaGraphExecEventRecordNodeSetEvent(executable: cudaGraphExec_t, node: cudaGraphNode_t, event: cudaEvent_t)
        => cuGraphExecEventRecordNodeSetEvent(executable, node, event);
    fn cudaGraphAddEventWaitNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        event: cudaEvent_t,
    ) => cuGraphAddEventWaitNode(node, graph, dependencies, count, event);
    fn cudaGraphEventWaitNodeGetEvent(node: cudaGraphNode_t, event: *mut cudaEvent_t)
        => cuGraphEventWaitNodeGetEvent(node, event);
    fn cudaGraphEventWaitNodeSetEvent(node: cudaGraphNode_t, event: cudaEvent_t)
        => cuGraphEventWaitNodeSetEvent(node, event);
    fn cudaGraphExecEventWaitNodeSetEvent(executable: cudaGraphExec_t, node: cudaGraphNode_t, event: cudaEvent_t)
        => cuGraphExecEventWaitNodeSetEvent(executable, node, event);
    fn cudaGraphAddHostNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaHostNodeParams,
    ) => cuGraphAddHostNode(node, graph, dependencies, count, at(parameters));
    fn cudaGraphHostNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaHostNodeParams)
        => cuGraphHostNodeGetParams(node, at_mut(parameters));
    fn cudaGraphHostNodeSetParams(node: cudaGraphNode_t, parameters: *const cudaHostNodeParams)
        => cuGraphHostNodeSetParams(node, at(parameters));
    fn cudaGraphExecHostNodeSetParams(
        executable: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const cudaHostNodeParams,
    ) => cuGraphExecHostNodeSetParams(executable, node, at(parameters));
    fn cudaGraphAddMemAllocNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *mut cudaMemAllocNodeParams,
    ) => cuGraphAddMemAllocNode(node, graph, dependencies, count, at_mut(parameters));
    fn cudaGraphMemAllocNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaMemAllocNodeParams)
        => cuGraphMemAllocNodeGetParams(node, at_mut(parameters));
    fn cudaGraphAddMemFreeNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        pointer: *mut c_void,
    ) => cuGraphAddMemFreeNode(node, graph, dependencies, count, address(pointer));
    fn cudaGraphMemFreeNodeGetParams(node: cudaGraphNode_t, pointer: *mut c_void)
        => cuGraphMemFreeNodeGetParams(node, pointer.cast());
    fn cudaGraphAddExternalSemaphoresSignalNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaExternalSemaphoreSignalNodeParams,
    ) => cuGraphAddExternalSemaphoresSignalNode(node, graph, dependencies, count, at(parameters));
    fn cudaGraphExternalSemaphoresSignalNodeGetParams(
        node: cudaGraphNode_t, parameters: *mut cudaExternalSemaphoreSignalNodeParams,
    ) => cuGraphExternalSemaphoresSignalNodeGetParams(node, at_mut(parameters));
    fn cudaGraphExternalSemaphoresSignalNodeSetParams(
        node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreSignalNodeParams,
    ) => cuGraphExternalSemaphoresSignalNodeSetParams(node, at(parameters));
    fn cudaGraphExecExternalSemaphoresSignalNodeSetParams(
        executable: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreSignalNodeParams,
    ) => cuGraphExecExternalSemaphoresSignalNodeSetParams(executable, node, at(parameters));
    fn cudaGraphAddExternalSemaphoresWaitNode(
        node: *mut cudaGraphNode_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, count: usize,
        parameters: *const cudaExternalSemaphoreWaitNodeParams,
    ) => cuGraphAddExternalSemaphoresWaitNode(node, graph, dependencies, count, at(parameters));
    fn cudaGraphExternalSemaphoresWaitNodeGetParams(
        node: cudaGraphNode_t, parameters: *mut cudaExternalSemaphoreWaitNodeParams,
    ) => cuGraphExternalSemaphoresWaitNodeGetParams(node, at_mut(parameters));
    fn cudaGraphExternalSemaphoresWaitNodeSetParams(
        node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreWaitNodeParams,
    ) => cuGraphExternalSemaphoresWaitNodeSetParams(node, at(parameters));
    fn cudaGraphExecExternalSemaphoresWaitNodeSetParams(
        executable: cudaGraphExec_t, node: cudaGraphNode_t, parameters: *const cudaExternalSemaphoreWaitNodeParams,
    ) => cuGraphExecExternalSemaphoresWaitNodeSetParams(executable, node, at(parameters));
    fn cudaGraphKernelNodeCopyAttributes(to: cudaGraphNode_t, from: cudaGraphNode_t)
        => cuGraphKernelNodeCopyAttributes(to, from);
    fn cudaGraphKernelNodeGetAttribute(
        node: cudaGraphNode_t, attribute: cudaLaunchAttributeID, value: *mut cudaLaunchAttributeValue,
    ) => cuGraphKernelNodeGetAttribute(node, same(attribute), at_mut(value));
    fn cudaGraphKernelNodeSetAttribute(
        node: cudaGraphNode_t, attribute: cudaLaunchAttributeID, value: *const cudaLaunchAttributeValue,
    ) => cuGraphKernelNodeSetAttribute(node, same(attribute), at(value));
}

/// A kernel's node as the driver wants it: with the kernel that the program's function stands for.
unsafe fn kernel_parameters(wanted: *const cudaKernelNodeParams) -> Outcome<CUDA_KERNEL_NODE_PARAMS> {
    require(!wanted.is_null())?;
    let wanted = &*wanted;
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: CUfunction(null_mut()),
        gridDimX: wanted.gridDim.x,
        gridDimY: wanted.gridDim.y,
        gridDimZ: wanted.gridDim.z,
        blockDimX: wanted.blockDim.x,
        blockDimY: wanted.blockDim.y,
        blockDimZ: wanted.blockDim.z,
        sharedMemBytes: wanted.sharedMemBytes,
        kernelParams: wanted.kernelParams,
        extra: wanted.extra,
        kern: registry::kernel(wanted.func)?,
        ctx: NO_CONTEXT,
    })
}

pub unsafe fn cudaGraphAddKernelNode(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    count: usize,
    parameters: *const cudaKernelNodeParams,
) -> Outcome {
    let made = kernel_parameters(parameters)?;
    let added = driver!(cuGraphAddKernelNode_v2(node, graph, dependencies, count, &raw const made));
    told_apart(added, &(*parameters).gridDim, &(*parameters).blockDim)
}

pub unsafe fn cudaGraphKernelNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaKernelNodeParams) -> Outcome {
    context::ready()?;
    // SAFETY: handles, pointers and numbers, all of which may be zero.
    let mut found: CUDA_KERNEL_NODE_PARAMS = unsafe { core::mem::zeroed() };
    driver!(cuGraphKernelNodeGetParams_v2(node, &raw mut found))?;
    let kernel = if found.kern.0.is_null() { same(found.func) } else { found.kern };
    give(
        parameters,
        cudaKernelNodeParams {
            func: registry::function_of(kernel),
            gridDim: dim3 { x: found.gridDimX, y: found.gridDimY, z: found.gridDimZ },
            blockDim: dim3 { x: found.blockDimX, y: found.blockDimY, z: found.blockDimZ },
            sharedMemBytes: found.sharedMemBytes,
            kernelParams: found.kernelParams,
            extra: found.extra,
        },
    )
}

pub unsafe fn cudaGraphKernelNodeSetParams(node: cudaGraphNode_t, parameters: *const cudaKernelNodeParams) -> Outcome {
    let made = kernel_parameters(parameters)?;
    driver!(cuGraphKernelNodeSetParams_v2(node, &raw const made))
}

pub unsafe fn cudaGraphExecKernelNodeSetParams(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    parameters: *const cudaKernelNodeParams,
) -> Outcome {
    let made = kernel_parameters(parameters)?;
    driver!(cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const made))
}

unsafe fn memset_parameters(wanted: *const cudaMemsetParams) -> Outcome<CUDA_MEMSET_NODE_PARAMS> {
    require(!wanted.is_null())?;
    context::ready()?;
    let wanted = &*wanted;
    Ok(CUDA_MEMSET_NODE_PARAMS {
        dst: address(wanted.dst),
        pitch: wanted.pitch,
        value: wanted.value,
        elementSize: wanted.elementSize,
        width: wanted.width,
        height: wanted.height,
    })
}

pub unsafe fn cudaGraphAddMemsetNode(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    count: usize,
    parameters: *const cudaMemsetParams,
) -> Outcome {
    let made = memset_parameters(parameters)?;
    driver!(cuGraphAddMemsetNode(node, graph, dependencies, count, &raw const made, current_context()?))
}

pub unsafe fn cudaGraphMemsetNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaMemsetParams) -> Outcome {
    context::ready()?;
    driver!(cuGraphMemsetNodeGetParams(node, at_mut(parameters)))
}

pub unsafe fn cudaGraphMemsetNodeSetParams(node: cudaGraphNode_t, parameters: *const cudaMemsetParams) -> Outcome {
    let made = memset_parameters(parameters)?;
    driver!(cuGraphMemsetNodeSetParams(node, &raw const made))
}

pub unsafe fn cudaGraphExecMemsetNodeSetParams(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    parameters: *const cudaMemsetParams,
) -> Outcome {
    let made = memset_parameters(parameters)?;
    driver!(cuGraphExecMemsetNodeSetParams(executable, node, &raw const made, current_context()?))
}

/// A plain copy as the copy of a box with one row.
unsafe fn plain_copy(
    to: *mut c_void,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome<CUDA_MEMCPY3D> {
    context::ready()?;
    let side = |pointer: *mut c_void| Side {
        array: CUarray(null_mut()),
        pointer: cudaPitchedPtr { ptr: pointer, pitch: count, xsize: count, ysize: 1 },
        position: cudaPos { x: 0, y: 0, z: 0 },
    };
    copy_of_box(&side(from.cast_mut()), &side(to), cudaExtent { width: count, height: 1, depth: 1 }, kind)
}

unsafe fn box_copy(parameters: *const cudaMemcpy3DParms) -> Outcome<CUDA_MEMCPY3D> {
    require(!parameters.is_null())?;
    context::ready()?;
    copy_of_parameters(&*parameters)
}

unsafe fn add_copy(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    count: usize,
    copy: &CUDA_MEMCPY3D,
) -> Outcome {
    driver!(cuGraphAddMemcpyNode(node, graph, dependencies, count, copy, current_context()?))
}

unsafe fn set_copy(node: cudaGraphNode_t, copy: &CUDA_MEMCPY3D) -> Outcome {
    driver!(cuGraphMemcpyNodeSetParams(node, copy))
}

unsafe fn set_copy_of(executable: cudaGraphExec_t, node: cudaGraphNode_t, copy: &CUDA_MEMCPY3D) -> Outcome {
    driver!(cuGraphExecMemcpyNodeSetParams(executable, node, copy, current_context()?))
}

pub unsafe fn cudaGraphAddMemcpyNode(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    count: usize,
    parameters: *const cudaMemcpy3DParms,
) -> Outcome {
    add_copy(node, graph, dependencies, count, &box_copy(parameters)?)
}

pub unsafe fn cudaGraphAddMemcpyNode1D(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    dependency_count: usize,
    to: *mut c_void,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    add_copy(node, graph, dependencies, dependency_count, &plain_copy(to, from, count, kind)?)
}

pub unsafe fn cudaGraphAddMemcpyNodeToSymbol(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    dependency_count: usize,
    symbol: *const c_void,
    from: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    let copy = plain_copy(place(symbol, offset, count)?, from, count, kind)?;
    add_copy(node, graph, dependencies, dependency_count, &copy)
}

pub unsafe fn cudaGraphAddMemcpyNodeFromSymbol(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    dependency_count: usize,
    to: *mut c_void,
    symbol: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    let copy = plain_copy(to, place(symbol, offset, count)?, count, kind)?;
    add_copy(node, graph, dependencies, dependency_count, &copy)
}

pub unsafe fn cudaGraphMemcpyNodeGetParams(node: cudaGraphNode_t, parameters: *mut cudaMemcpy3DParms) -> Outcome {
    context::ready()?;
    // SAFETY: handles, pointers and numbers, all of which may be zero.
    let mut found: CUDA_MEMCPY3D = unsafe { core::mem::zeroed() };
    driver!(cuGraphMemcpyNodeGetParams(node, &raw mut found))?;
    give(parameters, parameters_of_copy(&found)?)
}

pub unsafe fn cudaGraphMemcpyNodeSetParams(node: cudaGraphNode_t, parameters: *const cudaMemcpy3DParms) -> Outcome {
    set_copy(node, &box_copy(parameters)?)
}

pub unsafe fn cudaGraphMemcpyNodeSetParams1D(
    node: cudaGraphNode_t,
    to: *mut c_void,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    set_copy(node, &plain_copy(to, from, count, kind)?)
}

pub unsafe fn cudaGraphMemcpyNodeSetParamsToSymbol(
    node: cudaGraphNode_t,
    symbol: *const c_void,
    from: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    set_copy(node, &plain_copy(place(symbol, offset, count)?, from, count, kind)?)
}

pub unsafe fn cudaGraphMemcpyNodeSetParamsFromSymbol(
    node: cudaGraphNode_t,
    to: *mut c_void,
    symbol: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    set_copy(node, &plain_copy(to, place(symbol, offset, count)?, count, kind)?)
}

pub unsafe fn cudaGraphExecMemcpyNodeSetParams(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    parameters: *const cudaMemcpy3DParms,
) -> Outcome {
    set_copy_of(executable, node, &box_copy(parameters)?)
}

pub unsafe fn cudaGraphExecMemcpyNodeSetParams1D(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    to: *mut c_void,
    from: *const c_void,
    count: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    set_copy_of(executable, node, &plain_copy(to, from, count, kind)?)
}

pub unsafe fn cudaGraphExecMemcpyNodeSetParamsToSymbol(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    symbol: *const c_void,
    from: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    set_copy_of(executable, node, &plain_copy(place(symbol, offset, count)?, from, count, kind)?)
}

pub unsafe fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    to: *mut c_void,
    symbol: *const c_void,
    count: usize,
    offset: usize,
    kind: cudaMemcpyKind,
) -> Outcome {
    set_copy_of(executable, node, &plain_copy(to, place(symbol, offset, count)?, count, kind)?)
}
