//! Kernels whose launches count clusters (`.blocksareclusters`): the kernel declares its block and its cluster, and a launch says
//! `<<<clusters>>>`, which is a block of one thread. Other blocks are undefined, as the programming guide has it; no GPU was asked yet
//! for any of it.

use crate::Outcome;
use crate::call::describe;
use crate::cluster::cluster_of;
use crate::gpu::{Gpu, NON_BLOCKING, NULL_STREAM, Size, addresses};
use crate::graph_parts;
use crate::launch::config;
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_int};
use core::ptr::{null, null_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraph, CUgraphNode, CUlaunchConfig, CUmodule, CUresult, CUstreamCaptureMode,
};

tests! { blocks_are_clusters:
    grids_count_clusters,
    blocks_may_be_said_again,
    clusters_may_be_said_again,
    other_clusters_are_refused,
    dynamic_memory_may_be_asked_for,
    grids_that_are_too_large,
    nodes_count_clusters,
    captured_launches_count_clusters,
    cooperative_launches_count_clusters,
    cooperative_clusters_on_half_of_the_device,
    occupancy_counts_clusters,
    launches_of_kernels_count_clusters,
    block_and_cluster_are_needed,
}

/// `where_am_i` has blocks of 16 by 2 threads in clusters of 2 by 3. Each block adds its threads to the word of its number, and its first
/// thread of all writes behind 64 of those what the registers say.
const PROGRAM: &CStr = c"
.version 9.0
.target sm_90
.address_size 64

.visible .entry where_am_i(.param .u64 out)
.blocksareclusters
.reqntid 16, 2, 1
.reqnctapercluster 2, 3, 1
{
    .reg .pred %p<3>;
    .reg .b32 %r<20>;
    .reg .b64 %d<6>;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %ctaid.y;
    mov.u32 %r2, %nctaid.x;
    mov.u32 %r3, %nctaid.y;
    mad.lo.u32 %r4, %r1, %r2, %r0;
    min.u32 %r5, %r4, 63;
    mul.wide.u32 %d1, %r5, 4;
    add.u64 %d1, %d0, %d1;
    red.global.add.u32 [%d1], 1;
    mov.u32 %r6, %tid.x;
    mov.u32 %r7, %tid.y;
    or.b32 %r6, %r6, %r7;
    or.b32 %r6, %r6, %r4;
    setp.ne.u32 %p0, %r6, 0;
    @%p0 ret;
    mov.u32 %r8, %nclusterid.x;
    mov.u32 %r9, %nclusterid.y;
    mov.u32 %r10, %cluster_nctaid.x;
    mov.u32 %r11, %cluster_nctaid.y;
    mov.u32 %r12, %ntid.x;
    mov.u32 %r13, %ntid.y;
    st.global.v4.u32 [%d0+256], {%r2, %r3, %r8, %r9};
    st.global.v4.u32 [%d0+272], {%r10, %r11, %r12, %r13};
    ret;
}
";

/// The same kernel, launched in two clusters by another one.
const PARENT: &str = "
.extern .func (.param .b64 result) __cudaCDP2GetParameterBufferV2(
    .param .b64 kernel, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 buffer, .param .b64 stream);

.visible .entry parent(.param .u64 out)
{
    .reg .pred %none;
    .reg .b32 %error;
    .reg .b64 %out, %kernel, %buffer;
    ld.param.u64 %out, [out];
    mov.u64 %kernel, where_am_i;
    {
        .param .b64 k;
        .param .align 4 .b8 g[12];
        .param .align 4 .b8 b[12];
        .param .b32 s;
        .param .b64 r;
        st.param.b64 [k], %kernel;
        st.param.b32 [g], 2;
        st.param.b32 [g + 4], 1;
        st.param.b32 [g + 8], 1;
        st.param.b32 [b], 1;
        st.param.b32 [b + 4], 1;
        st.param.b32 [b + 8], 1;
        st.param.b32 [s], 0;
        call.uni (r), __cudaCDP2GetParameterBufferV2, (k, g, b, s);
        ld.param.b64 %buffer, [r];
    }
    setp.eq.u64 %none, %buffer, 0;
    @%none ret;
    st.u64 [%buffer], %out;
    {
        .param .b64 b;
        .param .b64 s;
        .param .b32 r;
        st.param.b64 [b], %buffer;
        st.param.b64 [s], 0;
        call.uni (r), __cudaCDP2LaunchDeviceV2, (b, s);
        ld.param.b32 %error, [r];
    }
    st.global.u32 [%out+288], %error;
    ret;
}
";

const ONE: Size = (1, 1, 1);
const DECLARED: Size = (16, 2, 1);
const CLUSTER: Size = (2, 3, 1);
const THREADS: u32 = 32;
/// Counts of 64 blocks, and what the registers say.
const WORDS: usize = 64 + 9;

fn load(driver: &Driver, text: &CStr) -> Result<CUmodule> {
    let mut module = CUmodule(null_mut());
    let code = cu!(driver, cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
    if code == CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION {
        skip!("the driver is older than PTX 9.0");
    }
    ensure!(code == CUresult::CUDA_SUCCESS, "cuModuleLoadData returned {}", describe(code));
    Ok(module)
}

fn kernel(gpu: &Gpu) -> Result<CUfunction> {
    gpu.function_of(load(gpu, PROGRAM)?, c"where_am_i")
}

/// What so many clusters of the kernel leave.
fn left_by(x: u32, y: u32) -> Vec<u32> {
    let mut words = vec![0; WORDS];
    words[..6 * (x * y) as usize].fill(THREADS);
    words[64..72].copy_from_slice(&[2 * x, 3 * y, x, y, 2, 3, 16, 2]);
    words
}

#[track_caller]
fn expect_clusters(seen: &[u32], x: u32, y: u32) -> Outcome {
    ensure!(seen == left_by(x, y), "{seen:?} in {x} by {y} clusters");
    Ok(())
}

/// How many blocks left their threads' number.
fn blocks_in(seen: &[u32]) -> usize {
    seen[..64].iter().filter(|threads| **threads == THREADS).count()
}

fn grids_count_clusters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let kernel = kernel(&gpu)?;
    for (x, y) in [(1, 1), (3, 1), (2, 2), (1, 5)] {
        let out = gpu.zeros(WORDS)?;
        gpu.launch_shaped(kernel, (x, y, 1), ONE, 0, NULL_STREAM, &[&out])?;
        expect_clusters(&gpu.read(out, WORDS)?, x, y)?;
    }
    Ok(())
}

/// As programs do all the same.
fn blocks_may_be_said_again(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let kernel = kernel(&gpu)?;
    for block in [DECLARED, (32, 1, 1), (8, 1, 1)] {
        let out = gpu.zeros(WORDS)?;
        let code = gpu.try_launch(kernel, (2, 1, 1), block, 0, NULL_STREAM, &[&out])?;
        let blocks = blocks_in(&gpu.read(out, WORDS)?);
        note!("a launch of 2 clusters with blocks of {block:?} gives {}, and {blocks} blocks", describe(code));
    }
    Ok(())
}

/// Launches 2 by 2 clusters, which are to have that size; gives the code and what is left.
fn say_cluster(driver: &Driver, cluster: Size) -> Result<(CUresult, Vec<u32>)> {
    let gpu = Gpu::new(driver)?;
    let (kernel, out) = (kernel(&gpu)?, gpu.zeros(WORDS)?);
    let mut attributes = [cluster_of(cluster)];
    let config = CUlaunchConfig { gridDimY: 2, ..config(2, 1, NULL_STREAM, &mut attributes) };
    let mut pointers = addresses(&[&out]);
    let code = cu!(driver, cuLaunchKernelEx(&raw const config, kernel, pointers.as_mut_ptr(), null_mut()));
    Ok((code, gpu.read(out, WORDS)?))
}

fn clusters_may_be_said_again(driver: &Driver) -> Outcome {
    let (code, seen) = say_cluster(driver, CLUSTER)?;
    note!("a launch of 2 by 2 that says the cluster again gives {}, and {} blocks", describe(code), blocks_in(&seen));
    Ok(())
}

fn other_clusters_are_refused(driver: &Driver) -> Outcome {
    let (code, seen) = say_cluster(driver, (2, 2, 1))?;
    note!("another cluster than the declared one gives {}", describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS && seen == [0; WORDS], "taken: {seen:?}");
    Ok(())
}

fn dynamic_memory_may_be_asked_for(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let kernel = kernel(&gpu)?;
    let out = gpu.zeros(WORDS)?;
    let code = gpu.try_launch(kernel, ONE, ONE, 1024, NULL_STREAM, &[&out])?;
    let blocks = blocks_in(&gpu.read(out, WORDS)?);
    note!("dynamic shared memory gives {}, and {blocks} blocks", describe(code));
    Ok(())
}

/// A grid has at most 65,535 rows of blocks.
fn grids_that_are_too_large(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let kernel = kernel(&gpu)?;
    let out = gpu.zeros(WORDS)?;
    let code = gpu.try_launch(kernel, (1, 21_846, 1), ONE, 0, NULL_STREAM, &[&out])?;
    note!("21846 rows of clusters of 3 give {}", describe(code));
    gpu.synchronise()
}

fn node_of(gpu: &Gpu, parameters: &CUDA_KERNEL_NODE_PARAMS) -> Result<(CUgraph, CUgraphNode)> {
    let (graph, mut node) = (graph_parts::new_graph(gpu)?, CUgraphNode(null_mut()));
    ok!(gpu, cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, parameters));
    Ok((graph, node))
}

/// Parameters that come out of a node can be put into it again.
fn nodes_count_clusters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, out) = (kernel(&gpu)?, gpu.zeros(WORDS)?);
    let mut pointers = addresses(&[&out]);
    let parameters = CUDA_KERNEL_NODE_PARAMS {
        gridDimX: 2,
        gridDimY: 2,
        ..graph_parts::kernel_parameters(kernel, 1, &mut pointers)
    };
    let (graph, node) = node_of(&gpu, &parameters)?;
    graph_parts::run(&gpu, graph, 1)?;
    expect_clusters(&gpu.read(out, WORDS)?, 2, 2)?;
    let given = graph_parts::parameters_of(driver, node)?;
    let (grid, block) = ((given.gridDimX, given.gridDimY), (given.blockDimX, given.blockDimY));
    note!("the node says that its grid is {grid:?} and its block {block:?}");
    ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const given));
    gpu.write(out, &[0; WORDS])?;
    graph_parts::run(&gpu, graph, 1)?;
    expect_clusters(&gpu.read(out, WORDS)?, 2, 2)
}

fn captured_launches_count_clusters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, out, stream) = (kernel(&gpu)?, gpu.zeros(WORDS)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuStreamBeginCapture_v2(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    gpu.launch_shaped(kernel, (3, 1, 1), ONE, 0, stream, &[&out])?;
    let mut graph = CUgraph(null_mut());
    ok!(driver, cuStreamEndCapture(stream, &raw mut graph));
    graph_parts::run(&gpu, graph, 1)?;
    expect_clusters(&gpu.read(out, WORDS)?, 3, 1)
}

fn cooperative_launches_count_clusters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, out) = (kernel(&gpu)?, gpu.zeros(WORDS)?);
    let mut pointers = addresses(&[&out]);
    let pointers = pointers.as_mut_ptr();
    let code = cu!(driver, cuLaunchCooperativeKernel(kernel, 2, 1, 1, 1, 1, 1, 0, NULL_STREAM, pointers));
    let blocks = blocks_in(&gpu.read(out, WORDS)?);
    note!("a cooperative launch of 2 clusters gives {}, and {blocks} blocks", describe(code));
    Ok(())
}

/// Six times as many blocks as the launch says: few SMs could hold the number that it says, and not the blocks.
fn cooperative_clusters_on_half_of_the_device(driver: &Driver) -> Outcome {
    const SHARED: u32 = 48 << 10;
    let gpu = Gpu::new(driver)?;
    let (kernel, out) = (kernel(&gpu)?, gpu.zeros(WORDS)?);
    let mut clusters: c_int = 0;
    let config = CUlaunchConfig { sharedMemBytes: SHARED, ..config(1, 1, NULL_STREAM, &mut []) };
    ok!(driver, cuOccupancyMaxActiveClusters(&raw mut clusters, kernel, &raw const config));
    let clusters = clusters.unsigned_abs() / 2;
    let mut pointers = addresses(&[&out]);
    let pointers = pointers.as_mut_ptr();
    ok!(driver, cuLaunchCooperativeKernel(kernel, clusters, 1, 1, 1, 1, 1, SHARED, NULL_STREAM, pointers));
    let threads: u32 = gpu.read(out, WORDS)?[..64].iter().sum();
    ensure!(threads == 6 * clusters * THREADS, "{threads} threads of {clusters} clusters");
    Ok(())
}

fn occupancy_counts_clusters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let kernel = kernel(&gpu)?;
    let config = config(5, 1, NULL_STREAM, &mut []);
    let (mut size, mut count): (c_int, c_int) = (-1, -1);
    let code = cu!(driver, cuOccupancyMaxPotentialClusterSize(&raw mut size, kernel, &raw const config));
    note!("cuOccupancyMaxPotentialClusterSize gives {}, and {size}", describe(code));
    let code = cu!(driver, cuOccupancyMaxActiveClusters(&raw mut count, kernel, &raw const config));
    note!("cuOccupancyMaxActiveClusters for 5 gives {}, and {count}", describe(code));
    Ok(())
}

/// What nvcc makes of `<<<clusters>>>` in a kernel says a block of one thread too.
fn launches_of_kernels_count_clusters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let out = gpu.zeros(WORDS)?;
    kernel(&gpu)?;
    let text = std::ffi::CString::new(format!("{}{PARENT}", PROGRAM.to_str()?))?;
    let mut module = CUmodule(null_mut());
    let code = cu!(driver, cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
    if code != CUresult::CUDA_SUCCESS {
        skip!("the driver has no device runtime of its own: {}", describe(code));
    }
    gpu.launch_shaped(gpu.function_of(module, c"parent")?, ONE, ONE, 0, NULL_STREAM, &[&out])?;
    let seen = gpu.read(out, WORDS)?;
    ensure!(seen[72] == 0, "error {}", seen[72]);
    expect_clusters(&seen, 2, 1)
}

/// As the driver's compiler says.
fn block_and_cluster_are_needed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    kernel(&gpu)?;
    for directives in ["", ".reqntid 32", ".reqnctapercluster 2", ".maxntid 32 .reqnctapercluster 2"] {
        let head = ".version 9.0\n.target sm_90\n.address_size 64\n";
        let text = format!("{head}.visible .entry k() .blocksareclusters {directives} {{ ret; }}");
        let text = std::ffi::CString::new(text)?;
        let mut module = CUmodule(null_mut());
        let code = cu!(driver, cuModuleLoadData(&raw mut module, text.as_ptr().cast()));
        ensure!(code == CUresult::CUDA_ERROR_INVALID_PTX, "'{directives}' gives {}", describe(code));
    }
    Ok(())
}
