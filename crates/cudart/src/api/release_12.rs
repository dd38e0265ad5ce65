//! Functions that CUDA 12 has and 13 has not, or has with other arguments.

use super::managed::location_of;
use super::properties::{best_for, properties_12};
use super::{
    cudaDeviceGetCacheConfig, cudaDeviceGetLimit, cudaDeviceReset, cudaDeviceSetCacheConfig, cudaDeviceSetLimit,
    cudaDeviceSynchronize, forward,
};
use crate::boundary::{Outcome, give, require};
use crate::context;
use crate::convert::{address, at_mut, same};
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use core::ptr::null_mut;

forward! {
    fn cudaGraphAddDependencies(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t, count: usize,
    ) => cuGraphAddDependencies(graph, from, to, count);
    fn cudaGraphRemoveDependencies(
        graph: cudaGraph_t, from: *const cudaGraphNode_t, to: *const cudaGraphNode_t, count: usize,
    ) => cuGraphRemoveDependencies(graph, from, to, count);
    fn cudaGraphGetEdges(
        graph: cudaGraph_t, from: *mut cudaGraphNode_t, to: *mut cudaGraphNode_t, count: *mut usize,
    ) => cuGraphGetEdges(graph, from, to, count);
    fn cudaGraphNodeGetDependencies(node: cudaGraphNode_t, dependencies: *mut cudaGraphNode_t, count: *mut usize)
        => cuGraphNodeGetDependencies(node, dependencies, count);
    fn cudaGraphNodeGetDependentNodes(node: cudaGraphNode_t, dependents: *mut cudaGraphNode_t, count: *mut usize)
        => cuGraphNodeGetDependentNodes(node, dependents, count);
    fn cudaStreamUpdateCaptureDependencies(
        stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, count: usize, flags: c_uint,
    ) => cuStreamUpdateCaptureDependencies(stream, dependencies, count, flags);
    fn cudaStreamGetCaptureInfo_v2(
        stream: cudaStream_t, status: *mut cudaStreamCaptureStatus, id: *mut c_ulonglong, graph: *mut cudaGraph_t,
        dependencies: *mut *const cudaGraphNode_t, count: *mut usize,
    ) => cuStreamGetCaptureInfo_v2(stream, at_mut(status), id.cast(), graph, dependencies, count);
    fn cudaMemcpyBatchAsync(
        to: *mut *mut c_void, from: *mut *mut c_void, sizes: *mut usize, count: usize,
        attributes: *mut cudaMemcpyAttributes, indices: *mut usize, attribute_count: usize, failed: *mut usize,
        stream: cudaStream_t,
    ) => cuMemcpyBatchAsync(
        at_mut(to), at_mut(from), sizes, count, at_mut(attributes), indices, attribute_count, failed, stream
    );
    fn cudaMemcpy3DBatchAsync(
        count: usize, operations: *mut cudaMemcpy3DBatchOp, failed: *mut usize, flags: c_ulonglong,
        stream: cudaStream_t,
    ) => cuMemcpy3DBatchAsync(count, at_mut(operations), failed, flags, stream);
}

pub unsafe fn cudaRuntimeGetVersion(version: *mut c_int) -> Outcome {
    /// CUDA 12.9, whose header the functions are from.
    const VERSION: c_int = 12_090;
    give(version, VERSION)
}

pub unsafe fn cudaGetDeviceProperties_v2(properties: *mut cudaDeviceProp_12, device: c_int) -> Outcome {
    properties_12(properties, device)
}

pub unsafe fn cudaChooseDevice(device: *mut c_int, properties: *const cudaDeviceProp_12) -> Outcome {
    require(!properties.is_null())?;
    give(device, best_for((*properties).major, (*properties).minor)?)
}

pub unsafe fn cudaGraphAddNode(
    node: *mut cudaGraphNode_t,
    graph: cudaGraph_t,
    dependencies: *const cudaGraphNode_t,
    count: usize,
    parameters: *mut cudaGraphNodeParams,
) -> Outcome {
    super::cudaGraphAddNode(node, graph, dependencies, null_mut(), count, parameters)
}

pub unsafe fn cudaMemPrefetchAsync(
    pointer: *const c_void,
    count: usize,
    device: c_int,
    stream: cudaStream_t,
) -> Outcome {
    super::cudaMemPrefetchAsync(pointer, count, location_of(device), 0, stream)
}

pub unsafe fn cudaMemAdvise(pointer: *const c_void, count: usize, advice: cudaMemoryAdvise, device: c_int) -> Outcome {
    context::ready()?;
    driver!(cuMemAdvise_v2(address(pointer), count, same(advice), same(location_of(device))))
}

pub unsafe fn cudaThreadExit() -> Outcome {
    cudaDeviceReset()
}

pub unsafe fn cudaThreadSynchronize() -> Outcome {
    cudaDeviceSynchronize()
}

pub unsafe fn cudaThreadGetCacheConfig(config: *mut cudaFuncCache) -> Outcome {
    cudaDeviceGetCacheConfig(config)
}

pub unsafe fn cudaThreadSetCacheConfig(config: cudaFuncCache) -> Outcome {
    cudaDeviceSetCacheConfig(config)
}

pub unsafe fn cudaThreadGetLimit(value: *mut usize, limit: cudaLimit) -> Outcome {
    cudaDeviceGetLimit(value, limit)
}

pub unsafe fn cudaThreadSetLimit(limit: cudaLimit, value: usize) -> Outcome {
    cudaDeviceSetLimit(limit, value)
}

/// Doubles need no conversion on any device since the first.
pub unsafe fn cudaSetDoubleForDevice(_number: *mut f64) -> Outcome {
    Ok(())
}

pub unsafe fn cudaSetDoubleForHost(_number: *mut f64) -> Outcome {
    Ok(())
}
