//! Nodes of a graph: kernels, copies, fills, host functions and empty ones, and their parameters.

use super::graph_edges::dependencies;
use super::launch::{Bonds, Wanted, rebind, shape};
use super::{as_pointer, copy, memset, require};
use crate::boundary::{Outcome, give};
use crate::context;
use crate::graph::{self, Content, Node};
use crate::module;
use crate::operation::{Attributes, Bound, HostFunction, KernelLaunch, Operation};
use core::ffi::c_void;
use detshare_cuda::types::{
    CUDA_HOST_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUcontext, CUfunction, CUgraph, CUgraphNode, CUkernel, CUresult,
};

/// Adds a node and hands out its handle.
pub(super) unsafe fn add(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    content: Content,
) -> Outcome {
    require(!created.is_null())?;
    let node = graph::find(graph)?.add(content, &dependencies(nodes, core::ptr::null(), count)?)?;
    give(created, CUgraphNode(as_pointer(node.handle)))
}

/// A kernel node. The rule for the context is the driver's: with `func` set it is the calling thread's, with `kern`
/// alone it is `ctx`.
pub(super) unsafe fn kernel_content(parameters: *const CUDA_KERNEL_NODE_PARAMS) -> Outcome<Content> {
    require(!parameters.is_null())?;
    let it = &*parameters;
    let by_function = !it.func.0.is_null();
    let found = if by_function { module::find_launchable(it.func) } else { module::find_kernel(it.kern) };
    let function = found.map_err(|_| CUresult::CUDA_ERROR_INVALID_VALUE)?;
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
    let shape = shape(&function, &wanted, &context, Bonds::default())?;
    Ok(Content::Operation(Operation::Kernel(KernelLaunch {
        function,
        shape,
        bound: Bound::to(&context),
        priority: None,
        attributes: Attributes::new(),
    })))
}

impl Content {
    /// New parameters of a kernel's node leave its attributes as they are.
    pub(super) fn with_attributes_of(mut self, old: &KernelLaunch) -> Outcome<Self> {
        if let Self::Operation(Operation::Kernel(launch)) = &mut self {
            launch.attributes.clone_from(&old.attributes);
            launch.priority = old.priority;
            rebind(launch)?;
        }
        Ok(self)
    }
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
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_KERNEL_NODE_PARAMS,
) -> Outcome {
    add(created, graph, nodes, count, kernel_content(parameters)?)
}

pub(crate) unsafe fn cuGraphAddKernelNode(
    created: *mut CUgraphNode,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Outcome {
    add(created, graph, nodes, count, kernel_content(&newer(parameters)?)?)
}

/// The launch of a kernel node.
pub(super) fn kernel_of(node: &Node) -> Outcome<KernelLaunch> {
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
    let (shape, properties) = (&launch.shape, &launch.function.kernel.properties);
    let [grid, block] = properties.said(shape);
    let base = shape.parameters.as_ptr().expose_provenance();
    let mut pointers: Box<[usize]> = properties.parameters.iter().map(|parameter| base + parameter.offset).collect();
    let kernel_parameters: *mut *mut c_void = pointers.as_mut_ptr().cast();
    node.pointers.lock().expect("no panic while it is held").push(pointers);
    give(
        parameters,
        CUDA_KERNEL_NODE_PARAMS {
            func: CUfunction(as_pointer(launch.function.handle)),
            gridDimX: grid[0],
            gridDimY: grid[1],
            gridDimZ: grid[2],
            blockDimX: block[0],
            blockDimY: block[1],
            blockDimZ: block[2],
            sharedMemBytes: shape.dynamic_shared,
            kernelParams: kernel_parameters,
            extra: core::ptr::null_mut(),
            // Only what comes out of a library is a kernel of its own.
            kern: CUkernel(as_pointer(launch.function.as_kernel)),
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
    let old = kernel_of(&node)?;
    node.set(kernel_content(parameters)?.with_attributes_of(&old)?);
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
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_MEMCPY3D,
    _context: CUcontext,
) -> Outcome {
    add(created, graph, nodes, count, copy_content(parameters)?)
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
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_MEMSET_NODE_PARAMS,
    _context: CUcontext,
) -> Outcome {
    add(created, graph, nodes, count, fill_content(parameters)?)
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
    nodes: *const CUgraphNode,
    count: usize,
    parameters: *const CUDA_HOST_NODE_PARAMS,
) -> Outcome {
    add(created, graph, nodes, count, host_content(parameters)?)
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
    nodes: *const CUgraphNode,
    count: usize,
) -> Outcome {
    add(created, graph, nodes, count, Content::Empty)
}
