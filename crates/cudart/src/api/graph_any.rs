//! Nodes of any type by one function: the structure says which.

use super::{NO_CONTEXT, current_context};
use crate::boundary::{Outcome, require};
use crate::convert::{address, at, copy_of_parameters, same};
use crate::driver::driver;
use crate::types::*;
use crate::{context, registry};
use core::ptr::null_mut;
use detshare_cuda::types::{
    CUDA_CONDITIONAL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v3, CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2,
    CUfunction, CUgraphNodeParams, CUgraphNodeType,
};

/// The same for the driver. Kernels, copies, fillings and conditions have another layout there, all else has one.
unsafe fn for_driver(wanted: &cudaGraphNodeParams) -> Outcome<CUgraphNodeParams> {
    use cudaGraphNodeType as Type;
    let union = &wanted.__bindgen_anon_1;
    // SAFETY: handles, pointers and numbers, all of which may be zero.
    let mut made: CUgraphNodeParams = unsafe { core::mem::zeroed() };
    made.type_ = CUgraphNodeType(wanted.type_.0);
    let parts = &mut made.__bindgen_anon_1;
    match wanted.type_ {
        Type::cudaGraphNodeTypeKernel => {
            let kernel = union.kernel;
            parts.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
                func: CUfunction(null_mut()),
                gridDimX: kernel.gridDim.x,
                gridDimY: kernel.gridDim.y,
                gridDimZ: kernel.gridDim.z,
                blockDimX: kernel.blockDim.x,
                blockDimY: kernel.blockDim.y,
                blockDimZ: kernel.blockDim.z,
                sharedMemBytes: kernel.sharedMemBytes,
                kernelParams: kernel.kernelParams,
                extra: kernel.extra,
                kern: registry::kernel(kernel.func)?,
                ctx: NO_CONTEXT,
            };
        }
        Type::cudaGraphNodeTypeMemcpy => {
            parts.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                flags: union.memcpy.flags,
                reserved: 0,
                copyCtx: current_context()?,
                copyParams: copy_of_parameters(&union.memcpy.copyParams)?,
            };
        }
        Type::cudaGraphNodeTypeMemset => {
            let memset = union.memset;
            parts.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                dst: address(memset.dst),
                pitch: memset.pitch,
                value: memset.value,
                elementSize: memset.elementSize,
                width: memset.width,
                height: memset.height,
                ctx: current_context()?,
            };
        }
        Type::cudaGraphNodeTypeConditional => {
            let conditional = union.conditional;
            parts.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                handle: conditional.handle,
                type_: same(conditional.type_),
                size: conditional.size,
                phGraph_out: conditional.phGraph_out,
                ctx: current_context()?,
            };
        }
        _ => parts.reserved1 = union.reserved1,
    }
    Ok(made)
}

/// What the driver writes back: the graphs of a condition, the address of memory.
unsafe fn give_back(made: &CUgraphNodeParams, wanted: *mut cudaGraphNodeParams) {
    let union = &raw mut (*wanted).__bindgen_anon_1;
    match (*wanted).type_ {
        cudaGraphNodeType::cudaGraphNodeTypeConditional => {
            (*union).conditional.phGraph_out = made.__bindgen_anon_1.conditional.phGraph_out;
        }
        cudaGraphNodeType::cudaGraphNodeTypeMemAlloc => (*union).reserved1 = made.__bindgen_anon_1.reserved1,
        _ => {}
    }
}

pub unsafe fn cudaGraphAddNode(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    edges: *const cudaGraphEdgeData,
    count: usize,
    parameters: *mut cudaGraphNodeParams,
) -> Outcome {
    require(!parameters.is_null())?;
    context::ready()?;
    let mut made = for_driver(&*parameters)?;
    driver!(cuGraphAddNode_v2(node, graph, dependencies, at(edges), count, &raw mut made))?;
    give_back(&made, parameters);
    Ok(())
}

pub unsafe fn cudaGraphNodeSetParams(node: cudaGraphNode_t, parameters: *mut cudaGraphNodeParams) -> Outcome {
    require(!parameters.is_null())?;
    context::ready()?;
    let mut made = for_driver(&*parameters)?;
    driver!(cuGraphNodeSetParams(node, &raw mut made))
}

pub unsafe fn cudaGraphExecNodeSetParams(
    executable: cudaGraphExec_t,
    node: cudaGraphNode_t,
    parameters: *mut cudaGraphNodeParams,
) -> Outcome {
    require(!parameters.is_null())?;
    context::ready()?;
    let mut made = for_driver(&*parameters)?;
    driver!(cuGraphExecNodeSetParams(executable, node, &raw mut made))
}
