//! What CUDA 12's runtime has with other arguments than CUDA 13's, as its programs call it.

#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "one function after the other, each as the header declares it and with places for what it writes"
)]

#[allow(dead_code, reason = "shared with other tests")]
mod library;

use core::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use core::ptr::null_mut;
use detshare_cuda::types::{CUgraph, CUgraphNode, CUkernel, CUlibrary, CUstream};
use detshare_cudart::types::{
    cudaDeviceProp_12, cudaError_t, cudaGraph_t, cudaGraphNode_t, cudaKernel_t, cudaLibrary_t, cudaMemcpyKind,
    cudaMemoryAdvise, cudaStream_t, dim3,
};
use library::Runtime;

const KERNEL: &CStr = c".version 8.0
.target sm_90
.address_size 64
.visible .entry raise(.param .u64 place) {
 .reg .b64 %d<4>; .reg .b32 %r<3>;
 ld.param.u64 %d1, [place]; cvta.to.global.u64 %d1, %d1; mov.u32 %r1, %tid.x;
 mul.wide.u32 %d2, %r1, 4; add.u64 %d3, %d1, %d2; ld.global.u32 %r2, [%d3];
 add.u32 %r2, %r2, %r1; st.global.u32 [%d3], %r2; ret;
}
";

const OK: cudaError_t = cudaError_t::cudaSuccess;

#[test]
fn properties_have_the_layout_of_their_release() {
    let runtime = Runtime::open(12);
    // SAFETY: as the header of CUDA 12.9 declares it.
    let get: unsafe extern "C" fn(*mut cudaDeviceProp_12, c_int) -> cudaError_t =
        unsafe { runtime.function(c"cudaGetDeviceProperties_v2") };
    // SAFETY: numbers, all of which may be zero.
    let mut properties: cudaDeviceProp_12 = unsafe { core::mem::zeroed() };
    // SAFETY: a place for the structure.
    assert_eq!(unsafe { get(&raw mut properties, 0) }, OK);
    let capability = (properties.major, properties.minor, properties.warpSize, properties.maxThreadsPerBlock);
    assert_eq!(capability, (9, 0, 32, 1024));
    assert!(properties.clockRate > 0 && properties.memoryClockRate > 0, "13 has neither");
    assert_eq!((properties.cooperativeLaunch, properties.clusterLaunch), (1, 1), "behind what 13 has not");
    // SAFETY: as above.
    assert_eq!(unsafe { get(&raw mut properties, 99) }, cudaError_t::cudaErrorInvalidDevice);
}

#[test]
fn a_kernel_on_managed_memory() {
    const COUNT: usize = 64;
    const SIZE: usize = COUNT * size_of::<u32>();
    const FIRST_DEVICE: c_int = 0;
    const HOST: c_int = -1;
    type Load = unsafe extern "C" fn(
        *mut cudaLibrary_t,
        *const c_void,
        *mut c_void,
        *mut c_void,
        c_uint,
        *mut c_void,
        *mut c_void,
        c_uint,
    ) -> cudaError_t;
    type Launch = unsafe extern "C" fn(*const c_void, dim3, dim3, *mut *mut c_void, usize, cudaStream_t) -> cudaError_t;
    let runtime = Runtime::open(12);
    let (mut library, mut kernel, mut place) = (CUlibrary(null_mut()), CUkernel(null_mut()), null_mut::<u32>());
    let stream = CUstream(null_mut());
    // SAFETY: functions as the header of CUDA 12.9 declares them, with places for what they write and memory that is there.
    unsafe {
        let load: Load = runtime.function(c"cudaLibraryLoadData");
        let get: unsafe extern "C" fn(*mut cudaKernel_t, cudaLibrary_t, *const c_char) -> cudaError_t =
            runtime.function(c"cudaLibraryGetKernel");
        let allocate: unsafe extern "C" fn(*mut *mut u32, usize, c_uint) -> cudaError_t =
            runtime.function(c"cudaMallocManaged");
        let advise: unsafe extern "C" fn(*const u32, usize, cudaMemoryAdvise, c_int) -> cudaError_t =
            runtime.function(c"cudaMemAdvise");
        let prefetch: unsafe extern "C" fn(*const u32, usize, c_int, cudaStream_t) -> cudaError_t =
            runtime.function(c"cudaMemPrefetchAsync");
        let launch: Launch = runtime.function(c"cudaLaunchKernel");
        let synchronize: unsafe extern "C" fn() -> cudaError_t = runtime.function(c"cudaThreadSynchronize");

        let nothing = null_mut();
        assert_eq!(load(&raw mut library, KERNEL.as_ptr().cast(), nothing, nothing, 0, nothing, nothing, 0), OK);
        assert_eq!(get(&raw mut kernel, library, c"raise".as_ptr()), OK);
        assert_eq!(allocate(&raw mut place, SIZE, 1), OK);
        place.write_bytes(0, COUNT);
        assert_eq!(advise(place, SIZE, cudaMemoryAdvise::cudaMemAdviseSetPreferredLocation, FIRST_DEVICE), OK);
        assert_eq!(prefetch(place, SIZE, FIRST_DEVICE, stream), OK);
        let mut arguments = [(&raw mut place).cast::<c_void>()];
        let (grid, block) = (dim3 { x: 1, y: 1, z: 1 }, dim3 { x: 64, y: 1, z: 1 });
        assert_eq!(launch(kernel.0.cast(), grid, block, arguments.as_mut_ptr(), 0, stream), OK);
        assert_eq!(prefetch(place, SIZE, HOST, stream), OK);
        assert_eq!(synchronize(), OK);
        let found = core::slice::from_raw_parts(place, COUNT);
        assert!(found.iter().copied().eq(0..64), "{found:?}");
    }
}

#[test]
fn edges_of_graphs_without_data() {
    type Add = unsafe extern "C" fn(*mut cudaGraphNode_t, cudaGraph_t, *const cudaGraphNode_t, usize) -> cudaError_t;
    type Edges =
        unsafe extern "C" fn(cudaGraph_t, *mut cudaGraphNode_t, *mut cudaGraphNode_t, *mut usize) -> cudaError_t;
    let runtime = Runtime::open(12);
    let mut graph = CUgraph(null_mut());
    let mut nodes = [CUgraphNode(null_mut()); 2];
    let mut count = 0;
    // SAFETY: functions as the header of CUDA 12.9 declares them, with places for what they write.
    unsafe {
        let create: unsafe extern "C" fn(*mut cudaGraph_t, c_uint) -> cudaError_t =
            runtime.function(c"cudaGraphCreate");
        let add: Add = runtime.function(c"cudaGraphAddEmptyNode");
        let join: unsafe extern "C" fn(
            cudaGraph_t,
            *const cudaGraphNode_t,
            *const cudaGraphNode_t,
            usize,
        ) -> cudaError_t = runtime.function(c"cudaGraphAddDependencies");
        let edges: Edges = runtime.function(c"cudaGraphGetEdges");
        assert_eq!(create(&raw mut graph, 0), OK);
        for node in &mut nodes {
            assert_eq!(add(&raw mut *node, graph, null_mut(), 0), OK);
        }
        assert_eq!(join(graph, &raw const nodes[0], &raw const nodes[1], 1), OK);
        assert_eq!(edges(graph, null_mut(), null_mut(), &raw mut count), OK);
    }
    assert_eq!(count, 1);
}

#[test]
fn versions_and_default_streams() {
    let runtime = Runtime::open(12);
    let mut version = 0;
    // SAFETY: as the header of CUDA 12.9 declares them, with places for what they write.
    unsafe {
        let get: unsafe extern "C" fn(*mut c_int) -> cudaError_t = runtime.function(c"cudaRuntimeGetVersion");
        assert_eq!(get(&raw mut version), OK);
        let id: unsafe extern "C" fn(cudaStream_t, *mut c_ulonglong) -> cudaError_t =
            runtime.function(c"cudaStreamGetId");
        let own: unsafe extern "C" fn(cudaStream_t, *mut c_ulonglong) -> cudaError_t =
            runtime.function(c"cudaStreamGetId_ptsz");
        let (mut legacy, mut per_thread) = (0, 0);
        assert_eq!(id(CUstream(null_mut()), &raw mut legacy), OK);
        assert_eq!(own(CUstream(null_mut()), &raw mut per_thread), OK);
        assert_ne!(legacy, per_thread, "NULL is another stream in each variant");
        let copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, cudaMemcpyKind) -> cudaError_t =
            runtime.function(c"cudaMemcpy_ptds");
        let (from, mut to) = (7_u32, 0_u32);
        let host = cudaMemcpyKind::cudaMemcpyHostToHost;
        assert_eq!(copy((&raw mut to).cast(), (&raw const from).cast(), size_of::<u32>(), host), OK);
        assert_eq!(to, 7);
    }
    assert_eq!(version, 12_090);
}
