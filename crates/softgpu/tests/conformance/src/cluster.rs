//! Blocks that belong together: clusters and cooperative launches, and blocks that wait for each other.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Argument, Gpu, NON_BLOCKING, NULL_STREAM, Size, addresses};
use crate::graph_parts;
use crate::kernels::TIMED_OUT;
use crate::launch::{attribute, config};
use anyhow::{Result, ensure};
use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS, CUdevice_attribute, CUfunction, CUfunction_attribute, CUgraphNode, CUkernelNodeAttrID,
    CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUresult,
};

tests! { cluster:
    clusters_share_memory,
    clusters_in_three_dimensions,
    clusters_as_declared,
    other_clusters_than_declared_are_refused,
    declared_clusters_are_attributes,
    large_clusters_are_asked_for,
    grids_that_are_no_multiple_are_refused,
    clusters_that_fit,
    clusters_of_graph_nodes,
    grid_barrier,
    grid_barrier_of_the_whole_device,
    no_grid_barrier_without_cooperation,
    blocks_wait_for_later_ones,
    blocks_wait_for_earlier_ones,
    a_kernel_waits_for_one_of_lower_priority,
}

/// `ring`: each block writes its number into the shared memory of the next one of its cluster and tells what it got.
/// `places`: where a block is. `meet`: the grid's barrier as compilers make it, several times. `chain`: each block
/// waits for the one before or behind it.
const PROGRAM: &CStr = c"
.version 8.0
.target sm_90
.address_size 64

.visible .entry ring(.param .u64 out)
{
    .reg .b32 %r<12>;
    .reg .b64 %d<4>;
    .shared .align 4 .u32 mailbox;
    mov.u32 %r0, %cluster_ctarank;
    mov.u32 %r1, %cluster_nctarank;
    mov.u32 %r2, %ctaid.x;
    add.u32 %r3, %r0, 1;
    rem.u32 %r3, %r3, %r1;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    mov.u32 %r4, mailbox;
    mapa.shared::cluster.u32 %r5, %r4, %r3;
    st.shared::cluster.u32 [%r5], %r2;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    ld.shared.u32 %r6, [mailbox];
    ld.param.u64 %d0, [out];
    mul.wide.u32 %d1, %r2, 4;
    add.u64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r6;
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}

.visible .entry pairs(.param .u64 out) .explicitcluster .reqnctapercluster 2, 1, 1
{
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    mov.u32 %r0, %cluster_nctarank;
    mov.u32 %r1, %clusterid.x;
    mad.lo.u32 %r0, %r0, 100, %r1;
    mov.u32 %r2, %ctaid.x;
    ld.param.u64 %d0, [out];
    mul.wide.u32 %d1, %r2, 4;
    add.u64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r0;
    ret;
}

.visible .entry places(.param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r<16>;
    .reg .b64 %d<4>;
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %nctaid.x;
    mov.u32 %r2, %ctaid.y;
    mad.lo.u32 %r0, %r2, %r1, %r0;
    mov.u32 %r3, %clusterid.x;
    mov.u32 %r4, %clusterid.y;
    mov.u32 %r5, %nclusterid.x;
    mov.u32 %r6, %nclusterid.y;
    mov.u32 %r7, %cluster_ctaid.x;
    mov.u32 %r8, %cluster_ctaid.y;
    mov.u32 %r9, %cluster_ctarank;
    mov.pred %p, %is_explicit_cluster;
    selp.u32 %r10, 1, 0, %p;
    ld.param.u64 %d0, [out];
    mul.wide.u32 %d1, %r0, 32;
    add.u64 %d0, %d0, %d1;
    st.global.v4.u32 [%d0], {%r3, %r4, %r5, %r6};
    st.global.v4.u32 [%d0+16], {%r7, %r8, %r9, %r10};
    ret;
}

.visible .entry meet(.param .u64 counts, .param .u64 out, .param .u32 rounds)
{
    .reg .pred %p<8>;
    .reg .b32 %r<24>;
    .reg .b64 %d<12>;
    mov.u32 %r1, %envreg1;
    mov.u32 %r2, %envreg2;
    cvt.u64.u32 %d1, %r1;
    cvt.u64.u32 %d2, %r2;
    shl.b64 %d1, %d1, 32;
    or.b64 %d1, %d1, %d2;
    ld.param.u64 %d3, [counts];
    ld.param.u64 %d4, [out];
    ld.param.u32 %r3, [rounds];
    setp.eq.u64 %p1, %d1, 0;
    @%p1 bra DONE;
    add.u64 %d5, %d1, 4;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %nctaid.x;
    mov.u32 %r6, %tid.x;
    setp.ne.u32 %p2, %r6, 0;
    mov.u32 %r7, 0;
    mov.u32 %r8, 0;
ROUND:
    mul.wide.u32 %d6, %r7, 4;
    add.u64 %d6, %d3, %d6;
    red.global.add.u32 [%d6], 1;
    barrier.sync 0;
    @%p2 bra MET;
    setp.eq.u32 %p3, %r4, 0;
    mov.u32 %r9, 0x80000001;
    sub.u32 %r9, %r9, %r5;
    selp.u32 %r9, %r9, 1, %p3;
    membar.gl;
    atom.add.release.gpu.u32 %r10, [%d5], %r9;
LOOK:
    ld.acquire.gpu.u32 %r11, [%d5];
    xor.b32 %r11, %r11, %r10;
    setp.gt.s32 %p4, %r11, -1;
    @%p4 bra LOOK;
MET:
    barrier.sync 0;
    ld.relaxed.gpu.global.u32 %r12, [%d6];
    add.u32 %r8, %r8, %r12;
    add.u32 %r7, %r7, 1;
    setp.lt.u32 %p5, %r7, %r3;
    @%p5 bra ROUND;
    mov.u32 %r13, %ntid.x;
    mad.lo.u32 %r13, %r4, %r13, %r6;
    mul.wide.u32 %d7, %r13, 4;
    add.u64 %d7, %d4, %d7;
    st.global.u32 [%d7], %r8;
DONE:
    ret;
}

.visible .entry chain(.param .u64 flags, .param .u32 step)
{
    .reg .pred %p<4>;
    .reg .b32 %r<8>;
    .reg .b64 %d<4>;
    ld.param.u64 %d0, [flags];
    ld.param.u32 %r0, [step];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %nctaid.x;
    add.u32 %r3, %r1, %r0;
    mov.u32 %r5, 1;
    setp.ge.u32 %p0, %r3, %r2;
    @%p0 bra PASS;
    mul.wide.u32 %d1, %r3, 4;
    add.u64 %d1, %d0, %d1;
LOOK:
    ld.volatile.global.u32 %r4, [%d1];
    setp.eq.u32 %p1, %r4, 0;
    @%p1 bra LOOK;
    add.u32 %r5, %r4, 1;
PASS:
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d2, %d0, %d2;
    membar.gl;
    st.volatile.global.u32 [%d2], %r5;
    ret;
}
";

fn kernel(gpu: &Gpu, name: &CStr) -> Result<CUfunction> {
    gpu.function_of(gpu.module(PROGRAM)?, name)
}

pub(crate) fn cluster_of((x, y, z): Size) -> CUlaunchAttribute {
    let mut cluster = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
    // SAFETY: the attribute's own part of the union, all of it plain numbers.
    let size = unsafe { &mut cluster.value.clusterDim };
    (size.x, size.y, size.z) = (x, y, z);
    cluster
}

/// Launches in clusters of that size and gives the code.
fn launch(gpu: &Gpu, kernel: CUfunction, grid: Size, cluster: Size, arguments: &[&dyn Argument]) -> Result<CUresult> {
    let mut attributes = [cluster_of(cluster)];
    let (x, y, z) = grid;
    let config = CUlaunchConfig { gridDimY: y, gridDimZ: z, ..config(x, 32, NULL_STREAM, &mut attributes) };
    let mut pointers = addresses(arguments);
    Ok(cu!(gpu, cuLaunchKernelEx(&raw const config, kernel, pointers.as_mut_ptr(), null_mut())))
}

/// What `ring` leaves: the number of the block before, round and round within each cluster.
fn ring_of(blocks: u32, cluster: u32) -> Vec<u32> {
    (0..blocks).map(|block| block / cluster * cluster + (block % cluster + cluster - 1) % cluster).collect()
}

fn clusters_share_memory(driver: &Driver) -> Outcome {
    const BLOCKS: u32 = 48;
    let gpu = Gpu::new(driver)?;
    let ring = kernel(&gpu, c"ring")?;
    for cluster in [1, 2, 3, 4, 8] {
        let out = gpu.zeros(BLOCKS as usize)?;
        let code = launch(&gpu, ring, (BLOCKS, 1, 1), (cluster, 1, 1), &[&out])?;
        ensure!(code == CUresult::CUDA_SUCCESS, "{} for {cluster}", describe(code));
        let seen = gpu.read(out, BLOCKS as usize)?;
        ensure!(seen == ring_of(BLOCKS, cluster), "{seen:?} in clusters of {cluster}");
    }
    Ok(())
}

fn clusters_in_three_dimensions(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let places = kernel(&gpu, c"places")?;
    let out = gpu.zeros(8 * 24)?;
    let code = launch(&gpu, places, (6, 4, 1), (3, 2, 1), &[&out])?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{}", describe(code));
    let expected: Vec<u32> = (0..4_u32)
        .flat_map(|y| (0..6_u32).map(move |x| (x, y)))
        .flat_map(|(x, y)| [x / 3, y / 2, 2, 2, x % 3, y % 2, y % 2 * 3 + x % 3, 1])
        .collect();
    let seen = gpu.read(out, 8 * 24)?;
    ensure!(seen == expected, "{seen:?} instead of {expected:?}");
    let out = gpu.zeros(8)?;
    gpu.launch_shaped(places, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[&out])?;
    let seen = gpu.read(out, 8)?;
    ensure!(seen == [0, 0, 1, 1, 0, 0, 0, 0], "{seen:?} without clusters");
    Ok(())
}

fn clusters_as_declared(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pairs = kernel(&gpu, c"pairs")?;
    let out = gpu.zeros(6)?;
    gpu.launch_shaped(pairs, (6, 1, 1), (32, 1, 1), 0, NULL_STREAM, &[&out])?;
    let seen = gpu.read(out, 6)?;
    ensure!(seen == [200, 200, 201, 201, 202, 202], "{seen:?}");
    let code = launch(&gpu, pairs, (6, 1, 1), (2, 1, 1), &[&out])?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{} for the same cluster again", describe(code));
    gpu.synchronise()
}

fn other_clusters_than_declared_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let pairs = kernel(&gpu, c"pairs")?;
    let out = gpu.zeros(8)?;
    let code = launch(&gpu, pairs, (8, 1, 1), (4, 1, 1), &[&out])?;
    note!("another cluster than the declared one gives {}", describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "taken");
    let code = gpu.try_launch(pairs, (3, 1, 1), (32, 1, 1), 0, NULL_STREAM, &[&out])?;
    note!("a grid that is no multiple of the declared cluster gives {}", describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS && gpu.read(out, 8)? == [0; 8], "taken");
    Ok(())
}

fn declared_clusters_are_attributes(driver: &Driver) -> Outcome {
    use CUfunction_attribute as Attribute;
    let gpu = Gpu::new(driver)?;
    let (pairs, ring) = (kernel(&gpu, c"pairs")?, kernel(&gpu, c"ring")?);
    let of = |function, attribute| -> Result<c_int> {
        let mut value = -1;
        ok!(driver, cuFuncGetAttribute(&raw mut value, attribute, function));
        Ok(value)
    };
    let sizes = [
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
        Attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    ];
    let seen: Vec<c_int> = sizes.into_iter().map(|attribute| of(pairs, attribute)).collect::<Result<_>>()?;
    ensure!(seen == [2, 1, 1], "{seen:?}");
    let seen: Vec<c_int> = sizes.into_iter().map(|attribute| of(ring, attribute)).collect::<Result<_>>()?;
    ensure!(seen == [0, 0, 0], "{seen:?} of a kernel that declares none");
    ensure!(of(ring, Attribute::CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET)? == 0, "a cluster must be set");
    ensure!(of(ring, Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)? == 0, "allowed from the start");
    Ok(())
}

fn large_clusters_are_asked_for(driver: &Driver) -> Outcome {
    const LARGE: u32 = 16;
    let gpu = Gpu::new(driver)?;
    let ring = kernel(&gpu, c"ring")?;
    let out = gpu.zeros(LARGE as usize)?;
    let code = launch(&gpu, ring, (LARGE, 1, 1), (LARGE, 1, 1), &[&out])?;
    note!("a cluster of {LARGE} gives {}", describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "taken without being allowed");
    let allowed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
    ok!(driver, cuFuncSetAttribute(ring, allowed, 1));
    let code = launch(&gpu, ring, (LARGE, 1, 1), (LARGE, 1, 1), &[&out])?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{} where it is allowed", describe(code));
    ensure!(gpu.read(out, LARGE as usize)? == ring_of(LARGE, LARGE), "other words");
    let code = launch(&gpu, ring, (2 * LARGE, 1, 1), (2 * LARGE, 1, 1), &[&out])?;
    note!("a cluster of {} gives {}", 2 * LARGE, describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "{} blocks in a cluster", 2 * LARGE);
    Ok(())
}

fn grids_that_are_no_multiple_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let ring = kernel(&gpu, c"ring")?;
    let out = gpu.zeros(8)?;
    for (grid, cluster) in [((7, 1, 1), (2, 1, 1)), ((8, 1, 1), (1, 2, 1)), ((8, 1, 1), (0, 1, 1))] {
        let code = launch(&gpu, ring, grid, cluster, &[&out])?;
        note!("a cluster of {cluster:?} in a grid of {grid:?} gives {}", describe(code));
        ensure!(code != CUresult::CUDA_SUCCESS, "clusters of {cluster:?} in a grid of {grid:?} were taken");
    }
    ensure!(gpu.read(out, 8)? == [0; 8], "a refused launch has run");
    Ok(())
}

fn clusters_that_fit(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let ring = kernel(&gpu, c"ring")?;
    let multiprocessors = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let (mut most, mut count) = (-1, -1);
    let mut attributes = [cluster_of((4, 1, 1))];
    let config = config(64, 1024, NULL_STREAM, &mut attributes);
    ok!(driver, cuOccupancyMaxPotentialClusterSize(&raw mut most, ring, &raw const config));
    ensure!(most == 8, "at most {most} blocks in a cluster");
    ok!(driver, cuOccupancyMaxActiveClusters(&raw mut count, ring, &raw const config));
    note!("{count} clusters of 4 blocks of 1024 threads");
    ensure!((1..=2 * multiprocessors / 4).contains(&count), "{count} clusters at once");
    Ok(())
}

/// A node gets its cluster by an attribute, and keeps it with new parameters.
fn clusters_of_graph_nodes(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let ring = kernel(&gpu, c"ring")?;
    let (graph, first, second) = (graph_parts::new_graph(driver)?, gpu.zeros(8)?, gpu.zeros(8)?);
    let grid_of_8 = |pointers: &mut [*mut c_void]| CUDA_KERNEL_NODE_PARAMS {
        gridDimX: 8,
        ..graph_parts::kernel_parameters(ring, 32, pointers)
    };
    let mut pointers = addresses(&[&first]);
    let (parameters, mut node) = (grid_of_8(&mut pointers), CUgraphNode(null_mut()));
    ok!(driver, cuGraphAddKernelNode_v2(&raw mut node, graph, core::ptr::null(), 0, &raw const parameters));
    let attribute = CUkernelNodeAttrID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    let cluster = cluster_of((4, 1, 1));
    ok!(driver, cuGraphKernelNodeSetAttribute(node, attribute, &raw const cluster.value));
    graph_parts::run(&gpu, graph, 1)?;
    ensure!(gpu.read(first, 8)? == ring_of(8, 4), "the attribute was not heeded");
    let mut pointers = addresses(&[&second]);
    let parameters = grid_of_8(&mut pointers);
    ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters));
    graph_parts::run(&gpu, graph, 1)?;
    ensure!(gpu.read(second, 8)? == ring_of(8, 4), "new parameters lost the attribute");
    Ok(())
}

/// What every thread has counted after so many rounds in which all threads meet.
fn meet(driver: &Driver, blocks: u32, threads: u32, rounds: u32) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let meet = kernel(&gpu, c"meet")?;
    let all = blocks * threads;
    let (counts, out) = (gpu.zeros(rounds as usize)?, gpu.zeros(all as usize)?);
    let mut pointers = addresses(&[&counts, &out, &rounds]);
    let pointers = pointers.as_mut_ptr();
    ok!(driver, cuLaunchCooperativeKernel(meet, blocks, 1, 1, threads, 1, 1, 0, NULL_STREAM, pointers));
    let seen = gpu.read(out, all as usize)?;
    ensure!(seen.iter().all(|count| *count == all * rounds), "not all met: {:?}", &seen[..seen.len().min(8)]);
    Ok(())
}

fn grid_barrier(driver: &Driver) -> Outcome {
    meet(driver, 7, 96, 20)
}

fn grid_barrier_of_the_whole_device(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let multiprocessors = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    meet(driver, 2 * multiprocessors.unsigned_abs(), 64, 5)
}

fn no_grid_barrier_without_cooperation(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let meet = kernel(&gpu, c"meet")?;
    let (counts, out) = (gpu.zeros(1)?, gpu.zeros(32)?);
    gpu.launch_shaped(meet, (1, 1, 1), (32, 1, 1), 0, NULL_STREAM, &[&counts, &out, &1_u32])?;
    ensure!(gpu.read(out, 32)? == [0; 32], "there is one");
    Ok(())
}

fn blocks_wait_for_later_ones(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let chain = kernel(&gpu, c"chain")?;
    let blocks = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs();
    let flags = gpu.zeros(blocks as usize)?;
    let mut pointers = addresses(&[&flags, &1_u32]);
    let pointers = pointers.as_mut_ptr();
    ok!(driver, cuLaunchCooperativeKernel(chain, blocks, 1, 1, 32, 1, 1, 0, NULL_STREAM, pointers));
    let seen = gpu.read(flags, blocks as usize)?;
    ensure!(seen == (1..=blocks).rev().collect::<Vec<_>>(), "{seen:?}");
    Ok(())
}

/// More blocks than can be there at once (32 on each of an H200's 132 SMs): those that wait came later.
fn blocks_wait_for_earlier_ones(driver: &Driver) -> Outcome {
    const BLOCKS: u32 = 4_500;
    let gpu = Gpu::new(driver)?;
    let chain = kernel(&gpu, c"chain")?;
    let flags = gpu.zeros(BLOCKS as usize)?;
    gpu.launch_shaped(chain, (BLOCKS, 1, 1), (32, 1, 1), 0, NULL_STREAM, &[&flags, &u32::MAX])?;
    let seen = gpu.read(flags, BLOCKS as usize)?;
    ensure!(seen == (1..=BLOCKS).collect::<Vec<_>>(), "not in a row");
    Ok(())
}

fn a_kernel_waits_for_one_of_lower_priority(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [wait_flag, fill] = gpu.kernels([c"wait_flag", c"fill"])?;
    let (mut least, mut greatest) = (0, 0);
    ok!(driver, cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest));
    let mut streams = [NULL_STREAM; 2];
    for (stream, priority) in streams.iter_mut().zip([greatest, least]) {
        ok!(driver, cuStreamCreateWithPriority(core::ptr::from_mut(stream), NON_BLOCKING, priority));
    }
    let (flag, out) = (gpu.zeros(1)?, gpu.zeros(1)?);
    gpu.launch_shaped(wait_flag, (1, 1, 1), (1, 1, 1), 0, streams[0], &[&flag, &out, &5_u32])?;
    gpu.launch(fill, 1, streams[1], &[&flag, &1_u32, &1_u32])?;
    gpu.wait(streams[0])?;
    let seen = gpu.read(out, 1)?[0];
    ensure!(seen != TIMED_OUT && seen == 5, "{seen:#x}");
    Ok(())
}
