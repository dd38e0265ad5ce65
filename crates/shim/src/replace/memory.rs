//! Device memory: what a process gets is counted against its quota, if it has one.
//!
//! What is plainly wrong goes to the driver as it is, because the driver has a code for it; so does everything where
//! there is no quota.

use super::replace;
use crate::call::is_ok;
use crate::digest;
use crate::quota::{self, Key, Place, Reserved};
use crate::stream::Kind;
use crate::{bind, quota::active};
use core::ffi::{c_int, c_uint, c_ulonglong, c_void};
use core::ptr::null_mut;
use detshare_cuda::DefaultStream;
use detshare_cuda::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUcontext, CUdevice, CUdeviceptr, CUdeviceptr_v1, CUdeviceptr_v2, CUgraph,
    CUgraphEdgeData, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUmemAllocationProp,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    CUresult, CUstream, CUstreamCaptureStatus,
};

/// Beyond the quota: out of memory, as long as the driver would have got as far as looking at the size.
fn refused() -> CUresult {
    let (mut free, mut total) = (0, 0);
    let code = cu!(cuMemGetInfo_v2(&raw mut free, &raw mut total));
    if is_ok(code) { CUresult::CUDA_ERROR_OUT_OF_MEMORY } else { code }
}

/// Makes an allocation of a size that is known beforehand. `key` says where it is, once the driver has succeeded.
pub(super) fn allocate(bytes: u64, call: impl FnOnce() -> CUresult, key: impl FnOnce() -> Key) -> CUresult {
    let Some(place) = Place::here().filter(|_| bytes > 0) else { return call() };
    let Some(reserved) = Reserved::new(place, bytes) else { return refused() };
    let code = call();
    if is_ok(code) {
        reserved.enter(key(), 0);
    }
    code
}

replace! {
    fn cuMemAlloc(address: *mut CUdeviceptr_v1, bytes: c_uint) {
        let call = || cu!(cuMemAlloc(address, bytes));
        if !active() || address.is_null() {
            return call();
        }
        // SAFETY: the driver has written there.
        allocate(bytes.into(), call, || Key::Address(unsafe { *address }.into()))
    }
    fn cuMemAlloc_v2(address: *mut CUdeviceptr, bytes: usize) {
        let call = || cu!(cuMemAlloc_v2(address, bytes));
        if !active() || address.is_null() {
            return call();
        }
        // SAFETY: the driver has written there.
        allocate(bytes as u64, call, || Key::Address(unsafe { *address }.0))
    }
    fn cuMemAllocManaged(address: *mut CUdeviceptr, bytes: usize, flags: c_uint) {
        let call = || made_managed(cu!(cuMemAllocManaged(address, bytes, flags)), address, bytes);
        if !active() || address.is_null() {
            return call();
        }
        // SAFETY: the driver has written there.
        allocate(bytes as u64, call, || Key::Address(unsafe { *address }.0))
    }
    fn cuMemAllocPitch(
        address: *mut CUdeviceptr_v1, pitch: *mut c_uint, width: c_uint, height: c_uint, element: c_uint,
    ) {
        if !active() || address.is_null() || pitch.is_null() {
            return cu!(cuMemAllocPitch(address, pitch, width, height, element));
        }
        let (mut start, mut row) = (0, 0);
        let call = || {
            let code = cu!(cuMemAllocPitch(&raw mut start, &raw mut row, width, height, element));
            (code, start.into(), row.into())
        };
        let code = pitched(width.into(), height.into(), call);
        if is_ok(code) {
            // SAFETY: not NULL, and the caller's promise that it can be written.
            unsafe { address.write(start) };
            // SAFETY: likewise.
            unsafe { pitch.write(row) };
        }
        code
    }
    fn cuMemAllocPitch_v2(
        address: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint,
    ) {
        if !active() || address.is_null() || pitch.is_null() {
            return cu!(cuMemAllocPitch_v2(address, pitch, width, height, element));
        }
        let (mut start, mut row) = (CUdeviceptr_v2(0), 0);
        let call = || {
            let code = cu!(cuMemAllocPitch_v2(&raw mut start, &raw mut row, width, height, element));
            (code, start.0, row as u64)
        };
        let code = pitched(width as u64, height as u64, call);
        if is_ok(code) {
            // SAFETY: not NULL, and the caller's promise that it can be written.
            unsafe { address.write(start) };
            // SAFETY: likewise.
            unsafe { pitch.write(row) };
        }
        code
    }
    fn cuMemFree(address: CUdeviceptr_v1) {
        bind::everything();
        freed(Key::Address(address.into()), || cu!(cuMemFree(address)))
    }
    fn cuMemFree_v2(address: CUdeviceptr) {
        bind::everything();
        digest::memory_gone(usize::try_from(address.0).unwrap_or(0));
        freed(Key::Address(address.0), || cu!(cuMemFree_v2(address)))
    }
    fn cuCtxDestroy(context: CUcontext) {
        digest::context_goes();
        destroyed(context, cu!(cuCtxDestroy(context)))
    }
    fn cuCtxDestroy_v2(context: CUcontext) {
        digest::context_goes();
        destroyed(context, cu!(cuCtxDestroy_v2(context)))
    }
}

/// How long the rows are is known afterwards: if the quota does not take that, the memory goes again.
fn pitched(width: u64, height: u64, call: impl FnOnce() -> (CUresult, u64, u64)) -> CUresult {
    let bytes = width.saturating_mul(height);
    let Some(place) = Place::here().filter(|_| bytes > 0) else { return call().0 };
    let Some(mut reserved) = Reserved::new(place, bytes) else { return refused() };
    let (code, address, row) = call();
    if !is_ok(code) {
        return code;
    }
    if !reserved.grow_to(row.saturating_mul(height)) {
        cu!(cuMemFree_v2(CUdeviceptr_v2(address)));
        return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    }
    reserved.enter(Key::Address(address), 0);
    code
}

pub(super) fn freed(key: Key, call: impl FnOnce() -> CUresult) -> CUresult {
    if active() { quota::free(key, call) } else { call() }
}

/// Managed memory can be read by the host too: the record looks at it when everything is done.
fn made_managed(code: CUresult, address: *mut CUdeviceptr, bytes: usize) -> CUresult {
    if digest::active() && is_ok(code) && !address.is_null() {
        // SAFETY: the driver has written there.
        digest::memory_made(usize::try_from(unsafe { *address }.0).unwrap_or(0), bytes);
    }
    code
}

fn destroyed(context: CUcontext, code: CUresult) -> CUresult {
    if active() && is_ok(code) {
        quota::context_gone(context);
    }
    code
}

/// The variants of a function that take a stream, and what NULL means to each.
macro_rules! in_order {
    ($($default:ident: $allocate:ident $from_pool:ident $free:ident;)+) => {
        replace! {$(
            fn $allocate(address: *mut CUdeviceptr, bytes: usize, stream: CUstream) {
                let bound = bind::home(stream, DefaultStream::$default);
                let call = || cu!($allocate(address, bytes, bound.handle()));
                if !active() {
                    return call();
                }
                allocate_in_order(address, bytes, Place::here(), explicit(&bound, DefaultStream::$default), call)
            }
            fn $from_pool(address: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream) {
                let bound = bind::home(stream, DefaultStream::$default);
                let call = || cu!($from_pool(address, bytes, pool, bound.handle()));
                if !active() {
                    return call();
                }
                let place = Place::of_pool(pool.0.addr());
                allocate_in_order(address, bytes, place, explicit(&bound, DefaultStream::$default), call)
            }
            fn $free(address: CUdeviceptr, stream: CUstream) {
                let bound = bind::home(stream, DefaultStream::$default);
                freed(Key::Address(address.0), || cu!($free(address, bound.handle())))
            }
        )+}
    };
}

in_order! {
    Legacy: cuMemAllocAsync cuMemAllocFromPoolAsync cuMemFreeAsync;
    PerThread: cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync_ptsz cuMemFreeAsync_ptsz;
}

/// The handle that means the same in every variant of a function.
fn explicit(bound: &bind::Bound, default: DefaultStream) -> CUstream {
    match (bound.handle().0.is_null(), default) {
        (true, DefaultStream::Legacy) => Kind::LEGACY_HANDLE,
        (true, DefaultStream::PerThread) => Kind::PER_THREAD_HANDLE,
        (false, _) => bound.handle(),
    }
}

fn allocate_in_order(
    address: *mut CUdeviceptr,
    bytes: usize,
    place: Option<Place>,
    stream: CUstream,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    let Some(place) = place.filter(|_| bytes > 0 && !address.is_null()) else { return call() };
    let Some(reserved) = Reserved::new(place, bytes as u64) else {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let code = cu!(cuStreamIsCapturing(stream, &raw mut status));
        return if is_ok(code) { refused() } else { code };
    };
    let code = call();
    if is_ok(code) {
        // SAFETY: the driver has written there.
        reserved.enter(Key::Address(unsafe { *address }.0), captured_into(stream));
    }
    code
}

/// The graph that a stream is captured into; 0 for none.
fn captured_into(stream: CUstream) -> usize {
    let (mut status, mut graph) = (CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE, CUgraph(null_mut()));
    let asked =
        cu!(cuStreamGetCaptureInfo_v2(stream, &raw mut status, null_mut(), &raw mut graph, null_mut(), null_mut()));
    let captured = is_ok(asked) && status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if captured { graph.0.addr() } else { 0 }
}

replace! {
    fn cuMemCreate(
        handle: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const CUmemAllocationProp,
        flags: c_ulonglong,
    ) {
        let call = || cu!(cuMemCreate(handle, bytes, properties, flags));
        if !active() || handle.is_null() || properties.is_null() || bytes == 0 {
            return call();
        }
        // SAFETY: not NULL, and the caller's promise that they are ones.
        let Some(place) = on_device(unsafe { &(*properties).location }) else { return call() };
        let Some(reserved) = Reserved::new(place, bytes as u64) else {
            return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
        };
        let code = call();
        if is_ok(code) {
            // SAFETY: the driver has written there.
            reserved.created(unsafe { *handle });
        }
        code
    }
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) {
        let call = || cu!(cuMemRelease(handle));
        if active() { quota::release(handle, call) } else { call() }
    }
    fn cuMemRetainAllocationHandle(handle: *mut CUmemGenericAllocationHandle, address: *mut c_void) {
        let code = cu!(cuMemRetainAllocationHandle(handle, address));
        if active() && is_ok(code) && !handle.is_null() {
            // SAFETY: the driver has written there.
            quota::referenced(unsafe { *handle }, address.addr() as u64);
        }
        code
    }
    fn cuMemMap(
        address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: c_ulonglong,
    ) {
        let call = || cu!(cuMemMap(address, bytes, offset, handle, flags));
        if active() { quota::map(address.0, bytes as u64, handle, call) } else { call() }
    }
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize) {
        bind::everything();
        let code = cu!(cuMemUnmap(address, bytes));
        if active() && is_ok(code) {
            quota::unmapped(address.0, bytes as u64);
        }
        code
    }
    fn cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const CUmemPoolProps) {
        let code = cu!(cuMemPoolCreate(pool, properties));
        if active() && is_ok(code) && !pool.is_null() && !properties.is_null() {
            // SAFETY: the driver has read it.
            let location = unsafe { &(*properties).location };
            // SAFETY: the driver has written there.
            quota::pool_made(unsafe { *pool }.0.addr(), device_of(location));
        }
        code
    }
}

fn on_device(location: &CUmemLocation) -> Option<Place> {
    Place::on(device_of(location)?)
}

fn device_of(location: &CUmemLocation) -> Option<c_int> {
    (location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE).then_some(location.id)
}

replace! {
    fn cuGraphAddMemAllocNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) {
        let call = || cu!(cuGraphAddMemAllocNode(node, graph, after, count, parameters));
        if !active() || node.is_null() || parameters.is_null() {
            return call();
        }
        // SAFETY: the caller's promise that they are ones, which live through the call.
        unsafe { add_allocation(graph, parameters, call) }
    }
    fn cuGraphAddNode(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, count: usize,
        parameters: *mut CUgraphNodeParams,
    ) {
        let call = || cu!(cuGraphAddNode(node, graph, after, count, parameters));
        // SAFETY: the caller's promise that they are ones, which live through the call.
        unsafe { add_node(node, graph, parameters, call) }
    }
    fn cuGraphAddNode_v2(
        node: *mut CUgraphNode, graph: CUgraph, after: *const CUgraphNode, edges: *const CUgraphEdgeData, count: usize,
        parameters: *mut CUgraphNodeParams,
    ) {
        let call = || cu!(cuGraphAddNode_v2(node, graph, after, edges, count, parameters));
        // SAFETY: the caller's promise that they are ones, which live through the call.
        unsafe { add_node(node, graph, parameters, call) }
    }
    fn cuGraphDestroy(graph: CUgraph) {
        let call = || cu!(cuGraphDestroy(graph));
        if active() { quota::destroy_graph(graph.0.addr(), call) } else { call() }
    }
}

/// Adds a node that may be one that allocates.
///
/// # Safety
/// The parameters are NULL or those of a node. Without a quota they are not looked at.
unsafe fn add_node(
    node: *mut CUgraphNode,
    graph: CUgraph,
    parameters: *mut CUgraphNodeParams,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let allocates =
        |it: *mut CUgraphNodeParams| unsafe { (*it).type_ } == CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    if !active() || node.is_null() || parameters.is_null() || !allocates(parameters) {
        return call();
    }
    // SAFETY: only an address is taken.
    let allocation = unsafe { &raw mut (*parameters).__bindgen_anon_1.alloc };
    // SAFETY: the type says which; both structures have the same fields at the same places.
    unsafe { add_allocation(graph, allocation.cast(), call) }
}

/// Adds a node that allocates.
///
/// # Safety
/// The parameters are such a node's, and the call writes the address there.
unsafe fn add_allocation(
    graph: CUgraph,
    parameters: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    call: impl FnOnce() -> CUresult,
) -> CUresult {
    // SAFETY: the caller's promise.
    let wanted = unsafe { *parameters };
    let place = on_device(&wanted.poolProps.location).filter(|_| wanted.bytesize > 0);
    let Some(place) = place else { return call() };
    let Some(reserved) = Reserved::new(place, wanted.bytesize as u64) else {
        return CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    };
    let code = call();
    if is_ok(code) {
        // SAFETY: the caller's promise; the driver has written the address.
        reserved.enter(Key::Address(unsafe { (*parameters).dptr }.0), graph.0.addr());
    }
    code
}

/// What a program is told must not be more than it can have.
fn at_most<T: Ord + Copy + TryFrom<u64>>(place: *mut T, limit: u64) {
    // SAFETY: NULL, or the driver has written there.
    let told = unsafe { place.as_mut() };
    // A limit that does not fit is more than any figure that does.
    if let (Some(told), Ok(limit)) = (told, T::try_from(limit)) {
        *told = (*told).min(limit);
    }
}

replace! {
    fn cuMemGetInfo(free: *mut c_uint, total: *mut c_uint) {
        let code = cu!(cuMemGetInfo(free, total));
        if is_ok(code) && let Some((left, limit)) = quota::left().zip(quota::limit()) {
            at_most(free, left);
            at_most(total, limit);
        }
        code
    }
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) {
        let code = cu!(cuMemGetInfo_v2(free, total));
        if is_ok(code) && let Some((left, limit)) = quota::left().zip(quota::limit()) {
            at_most(free, left);
            at_most(total, limit);
        }
        code
    }
    fn cuDeviceTotalMem(bytes: *mut c_uint, device: CUdevice) {
        let code = cu!(cuDeviceTotalMem(bytes, device));
        if is_ok(code) && let Some(limit) = quota::limit() {
            at_most(bytes, limit);
        }
        code
    }
    fn cuDeviceTotalMem_v2(bytes: *mut usize, device: CUdevice) {
        let code = cu!(cuDeviceTotalMem_v2(bytes, device));
        if is_ok(code) && let Some(limit) = quota::limit() {
            at_most(bytes, limit);
        }
        code
    }
    fn cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: *mut c_void) {
        type Attribute = CUmemPool_attribute;
        let code = cu!(cuMemPoolGetAttribute(pool, attribute, value));
        let reserved = matches!(
            attribute,
            Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT | Attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH
        );
        if reserved && is_ok(code) && let Some(limit) = quota::limit() {
            at_most(value.cast::<u64>(), limit);
        }
        code
    }
}
