//! Streams, callbacks and capture.

use super::forward;
use crate::boundary::{Outcome, require};
use crate::context;
use crate::convert::{at, at_mut, same};
use crate::driver::driver;
use crate::types::*;
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use detshare_cuda::types::{CUdevice, CUdeviceptr, CUresult, CUstream};

forward! {
    fn cudaStreamCreateWithFlags(stream: *mut cudaStream_t, flags: c_uint) => cuStreamCreate(stream, flags);
    fn cudaStreamCreateWithPriority(stream: *mut cudaStream_t, flags: c_uint, priority: c_int)
        => cuStreamCreateWithPriority(stream, flags, priority);
    fn cudaStreamDestroy(stream: cudaStream_t) => cuStreamDestroy_v2(stream);
    fn cudaStreamQuery(stream: cudaStream_t) => cuStreamQuery(stream);
    fn cudaStreamSynchronize(stream: cudaStream_t) => cuStreamSynchronize(stream);
    fn cudaStreamWaitEvent(stream: cudaStream_t, event: cudaEvent_t, flags: c_uint)
        => cuStreamWaitEvent(stream, event, flags);
    fn cudaStreamGetFlags(stream: cudaStream_t, flags: *mut c_uint) => cuStreamGetFlags(stream, flags);
    fn cudaStreamGetId(stream: cudaStream_t, id: *mut c_ulonglong) => cuStreamGetId(stream, id);
    fn cudaStreamGetPriority(stream: cudaStream_t, priority: *mut c_int) => cuStreamGetPriority(stream, priority);
    fn cudaStreamGetDevice(stream: cudaStream_t, device: *mut c_int)
        => cuStreamGetDevice(stream, at_mut::<_, CUdevice>(device));
    fn cudaStreamAttachMemAsync(stream: cudaStream_t, pointer: *mut c_void, length: usize, flags: c_uint)
        => cuStreamAttachMemAsync(stream, crate::convert::address(pointer), length, flags);
    fn cudaStreamCopyAttributes(to: cudaStream_t, from: cudaStream_t) => cuStreamCopyAttributes(to, from);
    fn cudaStreamGetAttribute(
        stream: cudaStream_t, attribute: cudaLaunchAttributeID, value: *mut cudaLaunchAttributeValue,
    ) => cuStreamGetAttribute(stream, same(attribute), at_mut(value));
    fn cudaStreamSetAttribute(
        stream: cudaStream_t, attribute: cudaLaunchAttributeID, value: *const cudaLaunchAttributeValue,
    ) => cuStreamSetAttribute(stream, same(attribute), at(value));
    fn cudaStreamBeginCapture(stream: cudaStream_t, mode: cudaStreamCaptureMode)
        => cuStreamBeginCapture_v2(stream, same(mode));
    fn cudaStreamBeginCaptureToGraph(
        stream: cudaStream_t, graph: cudaGraph_t, dependencies: *const cudaGraphNode_t, edges: *const cudaGraphEdgeData,
        count: usize, mode: cudaStreamCaptureMode,
    ) => cuStreamBeginCaptureToGraph(stream, graph, dependencies, at(edges), count, same(mode));
    fn cudaStreamEndCapture(stream: cudaStream_t, graph: *mut cudaGraph_t) => cuStreamEndCapture(stream, graph);
    fn cudaStreamIsCapturing(stream: cudaStream_t, status: *mut cudaStreamCaptureStatus)
        => cuStreamIsCapturing(stream, at_mut(status));
    fn cudaStreamGetCaptureInfo(
        stream: cudaStream_t, status: *mut cudaStreamCaptureStatus, id: *mut c_ulonglong, graph: *mut cudaGraph_t,
        dependencies: *mut *const cudaGraphNode_t, edges: *mut *const cudaGraphEdgeData, count: *mut usize,
    ) => cuStreamGetCaptureInfo_v3(stream, at_mut(status), id.cast(), graph, dependencies, at_mut(edges), count);
    fn cudaStreamUpdateCaptureDependencies(
        stream: cudaStream_t, dependencies: *mut cudaGraphNode_t, edges: *const cudaGraphEdgeData, count: usize,
        flags: c_uint,
    ) => cuStreamUpdateCaptureDependencies_v2(stream, dependencies, at(edges), count, flags);
    fn cudaThreadExchangeStreamCaptureMode(mode: *mut cudaStreamCaptureMode)
        => cuThreadExchangeStreamCaptureMode(at_mut(mode));
    fn cudaCtxResetPersistingL2Cache() => cuCtxResetPersistingL2Cache();
    fn cudaDeviceGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int)
        => cuCtxGetStreamPriorityRange(least, greatest);
}

pub unsafe fn cudaStreamCreate(stream: *mut cudaStream_t) -> Outcome {
    cudaStreamCreateWithFlags(stream, 0)
}

/// What a callback is to be called with.
struct Callback {
    function: unsafe extern "C" fn(cudaStream_t, cudaError_t, *mut c_void),
    data: *mut c_void,
}

unsafe extern "C" fn run_callback(stream: CUstream, result: CUresult, callback: *mut c_void) {
    // SAFETY: made below, and called once.
    let callback = unsafe { Box::from_raw(callback.cast::<Callback>()) };
    // SAFETY: the program's function, with its own data.
    unsafe { (callback.function)(stream, cudaError_t(result.0), callback.data) };
}

pub unsafe fn cudaStreamAddCallback(
    stream: cudaStream_t,
    callback: cudaStreamCallback_t,
    data: *mut c_void,
    flags: c_uint,
) -> Outcome {
    require(flags == 0)?;
    let function = callback.ok_or(cudaError_t::cudaErrorInvalidValue)?;
    context::ready()?;
    let callback = Box::into_raw(Box::new(Callback { function, data }));
    let added = driver!(cuStreamAddCallback(stream, Some(run_callback), callback.cast(), flags));
    if added.is_err() {
        // SAFETY: made above; the driver did not take it.
        drop(unsafe { Box::from_raw(callback) });
    }
    added
}

const _: () = assert!(size_of::<CUdeviceptr>() == size_of::<*mut c_void>());
