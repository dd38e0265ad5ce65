//! Nodes of a graph: adding them, and their parameters.

use super::graph::handles;
use super::launch::{Wanted, shape};
use super::{as_pointer, copy, memset, require, stream_memory};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::event;
use crate::graph::{self, Content, Node};
use crate::module;
use crate::operation::{Bound, HostFunction, KernelLaunch, Operation};
use core::ffi::c_void;
use detshare_cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1,
    CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUcontext, CUevent, CUfunction, CUgraph, CUgraphEdgeData, CUgraphNode,
    CUgraphNodeParams, CUgraphNodeType as Type, CUkernel, CUresult,
};

/// Adds a node and hands out its handle.
unsafe fn add(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    content: Content,
) -> Outcome {
    require(!created.is_null())?;
    let node = graph::find(graph)?.add(content, &handles(dependencies, count)?)?;
    give(created, CUgraphNode(as_pointer(node.handle)))
}

/// A kernel node. The rule for the context is the driver's: with `func` set it is the calling thread's, with `kern`
/// alone it is `ctx`.
pub(super) unsafe fn kernel_content(parameters: *const CUDA_KERNEL_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null())?;
    let it = &*parameters;
    let by_function = !it.func.0.is_null();
    let handle = if by_function { it.func } else { CUfunction(it.kern.0.cast()) };
    let function = module::find_function(handle).map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let context = if by_function || it.ctx.0.is_null() {
        context::top().or_else(|| context::primary_if_there(0)).ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?
    } else {
        context::find(it.ctx.0.addr())?
    };
    let wanted = Wanted {
        grid: [it.gridDimX, it.gridDimY, it.gridDimZ],
        block: [it.blockDimX, it.blockDimY, it.blockDimZ],
        dynamic_shared: it.sharedMemBytes,
        parameters: it.kernelParams,
        extra: it.extra,
    };
    let shape = shape(&function, &wanted)?;
    Ok(Content::Operation(Operation::Kernel(KernelLaunch {
        function,
        shape,
        bound: Bound::to(&context),
        priority: None,
    })))
}

/// The older parameters as the newer ones.
pub(super) unsafe fn newer(parameters: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Outcome<CUDA_KERNEL_NODE_PARAMS> {
    require(!parameters.is_null())?;
    let it = &*parameters;
    Ok(CUDA_KERNEL_NODE_PARAMS {
        func: it.func,
        gridDimX: it.gridDimX,
        gridDimY: it.gridDimY,
        gridDimZ: it.gridDimZ,
        blockDimX: it.blockDimX,
        blockDimY: it.blockDimY,
        blockDimZ: it.blockDimZ,
        sharedMemBytes: it.sharedMemBytes,
        kernelParams: it.kernelParams,
        extra: it.extra,
        kern: CUkernel(core::ptr::null_mut()),
        ctx: CUcontext(core::ptr::null_mut()),
    })
}

pub(crate) unsafe fn cuGraphAddKernelNode_v2(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    add(created, graph, dependencies, count, kernel_content(parameters)?)
}

pub(crate) unsafe fn cuGraphAddKernelNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome {
    add(created, graph, dependencies, count, kernel_content(&newer(parameters)?)?)
}

/// The launch of a kernel node.
fn kernel_of(node: &Node) -> Outcome<KernelLaunch> {
    match node.content() {
        Content::Operation(Operation::Kernel(launch)) => Ok(launch),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphKernelNodeGetParams_v2(
    node: CUgraphNode,
    parameters: *mut CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let node = graph::find_node(node)?;
    let launch = kernel_of(&node)?;
    let shape = &launch.shape;
    let base = shape.parameters.as_ptr().expose_provenance();
    let mut pointers: Box<[usize]> =
        launch.function.kernel.properties.parameters.iter().map(|parameter| base + parameter.offset).collect();
    let kernel_parameters: *mut *mut c_void = pointers.as_mut_ptr().cast();
    node.pointers.lock().expect("no panic while it is held").push(pointers);
    give(
        parameters,
        CUDA_KERNEL_NODE_PARAMS {
            func: CUfunction(as_pointer(launch.function.handle)),
            gridDimX: shape.grid[0],
            gridDimY: shape.grid[1],
            gridDimZ: shape.grid[2],
            blockDimX: shape.block[0],
            blockDimY: shape.block[1],
            blockDimZ: shape.block[2],
            sharedMemBytes: shape.dynamic_shared,
            kernelParams: kernel_parameters,
            extra: core::ptr::null_mut(),
            // Only what comes out of a library is a kernel of its own.
            kern: CUkernel(as_pointer(if launch.function.of_library { launch.function.handle } else { 0 })),
            ctx: CUcontext(as_pointer(launch.bound.context)),
        },
    )
}

pub(crate) unsafe fn cuGraphKernelNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome {
    require(!parameters.is_null())?;
    let mut newer = core::mem::MaybeUninit::<CUDA_KERNEL_NODE_PARAMS>::uninit();
    cuGraphKernelNodeGetParams_v2(node, newer.as_mut_ptr())?;
    // The newer parameters begin with the older ones.
    parameters.write(newer.as_ptr().cast::<CUDA_KERNEL_NODE_PARAMS_v1>().read());
    Ok(())
}

pub(crate) unsafe fn cuGraphKernelNodeSetParams_v2(
    node: CUgraphNode,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    let node = graph::find_node(node)?;
    kernel_of(&node)?;
    node.set(kernel_content(parameters)?);
    Ok(())
}

pub(crate) unsafe fn cuGraphKernelNodeSetParams(
    node: CUgraphNode,
    parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome {
    cuGraphKernelNodeSetParams_v2(node, &newer(parameters)?)
}

pub(super) unsafe fn copy_content(parameters: *const CUDA_MEMCPY3D) -> Outcome<Content> {
    require(!parameters.is_null())?;
    Ok(Content::Copy(Box::new(*parameters), Operation::Copy(copy::box_copy(&*parameters)?)))
}

pub(crate) unsafe fn cuGraphAddMemcpyNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_MEMCPY3D,
    _context: CUcontext,
) -> Outcome {
    add(created, graph, dependencies, count, copy_content(parameters)?)
}

pub(crate) unsafe fn cuGraphMemcpyNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_MEMCPY3D) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Copy(it, _) => give(parameters, *it),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphMemcpyNodeSetParams(node: CUgraphNode, parameters: *const CUDA_MEMCPY3D) -> Outcome {
    let node = graph::find_node(node)?;
    require(matches!(node.content(), Content::Copy(..)))?;
    node.set(copy_content(parameters)?);
    Ok(())
}

pub(super) unsafe fn fill_content(parameters: *const CUDA_MEMSET_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null())?;
    let it = *parameters;
    require(matches!(it.elementSize, 1 | 2 | 4) && it.width > 0 && it.height > 0)?;
    let operation = memset::fill(it.dst.0, it.pitch, it.value, it.elementSize as usize, it.width, it.height)?;
    Ok(Content::Fill(it, operation))
}

pub(crate) unsafe fn cuGraphAddMemsetNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_MEMSET_NODE_PARAMS,
    _context: CUcontext,
) -> Outcome {
    add(created, graph, dependencies, count, fill_content(parameters)?)
}

pub(crate) unsafe fn cuGraphMemsetNodeGetParams(
    node: CUgraphNode,
    parameters: *mut CUDA_MEMSET_NODE_PARAMS,
) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Fill(it, _) => give(parameters, it),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphMemsetNodeSetParams(
    node: CUgraphNode,
    parameters: *const CUDA_MEMSET_NODE_PARAMS,
) -> Outcome {
    let node = graph::find_node(node)?;
    require(matches!(node.content(), Content::Fill(..)))?;
    node.set(fill_content(parameters)?);
    Ok(())
}

pub(super) unsafe fn host_content(parameters: *const CUDA_HOST_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null())?;
    let function = (*parameters).fn_.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    let data = (*parameters).userData.expose_provenance();
    Ok(Content::Operation(Operation::Host(HostFunction { function, data })))
}

pub(crate) unsafe fn cuGraphAddHostNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_HOST_NODE_PARAMS,
) -> Outcome {
    add(created, graph, dependencies, count, host_content(parameters)?)
}

pub(crate) unsafe fn cuGraphHostNodeGetParams(node: CUgraphNode, parameters: *mut CUDA_HOST_NODE_PARAMS) -> Outcome {
    match graph::find_node(node)?.content() {
        Content::Operation(Operation::Host(host)) => give(
            parameters,
            CUDA_HOST_NODE_PARAMS {
                fn_: Some(host.function),
                userData: core::ptr::with_exposed_provenance_mut(host.data),
            },
        ),
        _ => Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
}

pub(crate) unsafe fn cuGraphHostNodeSetParams(node: CUgraphNode, parameters: *const CUDA_HOST_NODE_PARAMS) -> Outcome {
    let node = graph::find_node(node)?;
    require(matches!(node.content(), Content::Operation(Operation::Host(_))))?;
    node.set(host_content(parameters)?);
    Ok(())
}

pub(crate) unsafe fn cuGraphAddEmptyNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
) -> Outcome {
    add(created, graph, dependencies, count, Content::Empty)
}

pub(crate) unsafe fn cuGraphAddChildGraphNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Outcome {
    require(graph.0 != child.0)?;
    add(created, graph, dependencies, count, Content::Child(graph::find(child)?.duplicate()?))
}

pub(crate) unsafe fn cuGraphAddEventRecordNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Outcome {
    add(created, graph, dependencies, count, Content::Record(event::find(event)?))
}

pub(crate) unsafe fn cuGraphAddEventWaitNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    event: CUevent,
) -> Outcome {
    add(created, graph, dependencies, count, Content::Wait(event::find(event)?))
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

pub(crate) unsafe fn cuGraphAddBatchMemOpNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_BATCH_MEM_OP_NODE_PARAMS,
) -> Outcome {
    require(!parameters.is_null())?;
    let operations = stream_memory::batch((*parameters).count, (*parameters).paramArray)?;
    add(created, graph, dependencies, count, Content::Operation(Operation::Memory(operations)))
}

/// What the generic parameters of a node ask for.
pub(super) unsafe fn content(parameters: *mut CUgraphNodeParams) -> Outcome<Content> {
    require(!parameters.is_null())?;
    let it = &*parameters;
    let of = &it.__bindgen_anon_1;
    match it.type_ {
        // The third version of the parameters has the second's fields, in the same places.
        Type::CU_GRAPH_NODE_TYPE_KERNEL => kernel_content((&raw const of.kernel).cast()),
        Type::CU_GRAPH_NODE_TYPE_MEMCPY => copy_content(&raw const of.memcpy.copyParams),
        Type::CU_GRAPH_NODE_TYPE_MEMSET => {
            let fill = of.memset;
            fill_content(&CUDA_MEMSET_NODE_PARAMS {
                dst: fill.dst,
                pitch: fill.pitch,
                value: fill.value,
                elementSize: fill.elementSize,
                width: fill.width,
                height: fill.height,
            })
        }
        Type::CU_GRAPH_NODE_TYPE_HOST => {
            host_content(&CUDA_HOST_NODE_PARAMS { fn_: of.host.fn_, userData: of.host.userData })
        }
        Type::CU_GRAPH_NODE_TYPE_EMPTY => Ok(Content::Empty),
        Type::CU_GRAPH_NODE_TYPE_GRAPH => Ok(Content::Child(graph::find(of.graph.graph)?.duplicate()?)),
        Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => Ok(Content::Record(event::find(of.eventRecord.event)?)),
        Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => Ok(Content::Wait(event::find(of.eventWait.event)?)),
        _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
}

pub(crate) unsafe fn cuGraphAddNode_v2(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    _edges: *const CUgraphEdgeData,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> Outcome {
    add(created, graph, dependencies, count, content(parameters)?)
}

pub(crate) unsafe fn cuGraphAddNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    dependencies: *const CUgraphNode,
    count: usize,
    parameters: *mut CUgraphNodeParams,
) -> Outcome {
    add(created, graph, dependencies, count, content(parameters)?)
}

pub(crate) unsafe fn cuGraphNodeSetParams(node: CUgraphNode, parameters: *mut CUgraphNodeParams) -> Outcome {
    let node = graph::find_node(node)?;
    let new = content(parameters)?;
    require(super::graph::type_of(&new) == super::graph::type_of(&node.content()))?;
    node.set(new);
    Ok(())
}
