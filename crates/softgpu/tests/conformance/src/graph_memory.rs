//! Memory that graphs allocate and free.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING, NULL_STREAM};
use crate::graph_parts::{NO_GRAPH, NO_NODE, add_kernel, instantiate, new_graph, type_of};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_MEM_ALLOC_NODE_PARAMS, CUdeviceptr, CUdeviceptr_v2, CUgraph, CUgraphExec, CUgraphInstantiate_flags,
    CUgraphMem_attribute as Attribute, CUgraphNode, CUgraphNodeParams, CUgraphNodeType, CUmemAllocationType,
    CUmemLocationType, CUresult,
};

tests! { graph_memory:
    allocates_uses_and_frees,
    address_is_the_same_at_every_launch,
    parameters_can_be_read,
    memory_outlives_the_launch,
    memory_of_one_graph_can_be_freed_by_another,
    second_launch_without_a_free_is_refused,
    automatic_free_lets_it_launch_again,
    memory_outlives_the_graph,
    freed_twice_is_refused,
    only_allocated_memory_can_be_freed,
    use_is_counted_and_can_be_trimmed,
    high_marks_can_be_reset,
    nodes_of_such_a_graph_stay,
    one_executable_at_a_time,
}

/// What an allocation of that many bytes asks for.
fn wanted(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    // SAFETY: plain values throughout, where zero means none.
    let mut parameters: CUDA_MEM_ALLOC_NODE_PARAMS = unsafe { zeroed() };
    parameters.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    parameters.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    parameters.bytesize = bytes;
    parameters
}

fn allocate(gpu: &Gpu, graph: CUgraph, bytes: usize) -> Result<(CUgraphNode, CUdeviceptr)> {
    let (mut node, mut parameters) = (NO_NODE, wanted(bytes));
    ok!(gpu, cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, &raw mut parameters));
    ensure!(parameters.dptr.0 != 0, "no address");
    Ok((node, parameters.dptr))
}

fn free(gpu: &Gpu, graph: CUgraph, after: &[CUgraphNode], address: CUdeviceptr) -> Result<CUgraphNode> {
    let mut node = NO_NODE;
    ok!(gpu, cuGraphAddMemFreeNode(&raw mut node, graph, after.as_ptr(), after.len(), address));
    Ok(node)
}

fn attribute(gpu: &Gpu, attribute: Attribute) -> Result<u64> {
    let mut value = u64::MAX;
    ok!(gpu, cuDeviceGetGraphMemAttribute(gpu.device, attribute, (&raw mut value).cast()));
    Ok(value)
}

/// A graph that allocates two words, fills them, copies them to `out` and frees them.
fn whole(gpu: &Gpu, out: CUdeviceptr) -> Result<(CUgraph, CUdeviceptr)> {
    let [fill, copy] = gpu.kernels([c"fill", c"copy"])?;
    let graph = new_graph(gpu)?;
    let (first, memory) = allocate(gpu, graph, 1 << 20)?;
    let filled = add_two(gpu, graph, &[first], fill, &[&memory, &6_u32, &2_u32])?;
    let copied = add_two(gpu, graph, &[filled], copy, &[&out, &memory, &2_u32])?;
    free(gpu, graph, &[copied], memory)?;
    Ok((graph, memory))
}

/// A kernel with two threads.
fn add_two(
    gpu: &Gpu,
    graph: CUgraph,
    after: &[CUgraphNode],
    function: detshare_cuda::types::CUfunction,
    arguments: &[&dyn crate::gpu::Argument],
) -> Result<CUgraphNode> {
    let mut pointers = crate::gpu::addresses(arguments);
    let parameters = crate::graph_parts::kernel_parameters(function, 2, &mut pointers);
    let mut node = NO_NODE;
    ok!(gpu, cuGraphAddKernelNode_v2(&raw mut node, graph, after.as_ptr(), after.len(), &raw const parameters));
    Ok(node)
}

/// A graph that allocates a word, fills it and leaves it.
fn leaving(gpu: &Gpu, value: u32) -> Result<(CUgraph, CUdeviceptr)> {
    let [fill] = gpu.kernels([c"fill"])?;
    let graph = new_graph(gpu)?;
    let (first, memory) = allocate(gpu, graph, 4)?;
    add_kernel(gpu, graph, &[first], fill, &[&memory, &value, &1_u32])?;
    Ok((graph, memory))
}

fn allocates_uses_and_frees(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let out = gpu.zeros(2)?;
    let (graph, _) = whole(&gpu, out)?;
    crate::graph_parts::run(&gpu, graph, 3)?;
    ensure!(gpu.read(out, 2)? == [6, 6], "the graph did not use its memory");
    Ok(())
}

fn address_is_the_same_at_every_launch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, memory) = leaving(&gpu, 3)?;
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    for _ in 0..3 {
        ok!(driver, cuGraphLaunch(executable, stream));
        gpu.wait(stream)?;
        ensure!(gpu.read(memory, 1)? == [3], "the memory is elsewhere");
        ok!(driver, cuMemFreeAsync(memory, stream));
    }
    gpu.wait(stream)
}

fn parameters_can_be_read(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    // SAFETY: plain values throughout, where zero means none.
    let mut any: CUgraphNodeParams = unsafe { zeroed() };
    any.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC;
    let asked = wanted(4096);
    // SAFETY: both versions begin alike.
    unsafe { (&raw mut any.__bindgen_anon_1.alloc).cast::<CUDA_MEM_ALLOC_NODE_PARAMS>().write(asked) };
    let mut node = NO_NODE;
    ok!(driver, cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, &raw mut any));
    // SAFETY: the driver has written this part.
    let address = unsafe { any.__bindgen_anon_1.alloc.dptr };
    ensure!(type_of(driver, node)? == CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_ALLOC, "another type");
    let mut read = wanted(0);
    ok!(driver, cuGraphMemAllocNodeGetParams(node, &raw mut read));
    ensure!(read.bytesize == 4096 && read.dptr == address, "{} bytes at {:#x}", read.bytesize, read.dptr.0);
    let freed = free(&gpu, graph, &[node], address)?;
    let mut read = CUdeviceptr_v2(0);
    ok!(driver, cuGraphMemFreeNodeGetParams(freed, &raw mut read));
    ensure!(read == address, "frees {:#x}", read.0);
    expect!(driver, cuGraphMemFreeNodeGetParams(node, &raw mut read) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn memory_outlives_the_launch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let (graph, memory) = leaving(&gpu, 40)?;
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.launch(add, 1, stream, &[&memory, &2_u32, &1_u32])?;
    gpu.wait(stream)?;
    ensure!(gpu.read(memory, 1)? == [42], "work behind the graph cannot use its memory");
    ok!(driver, cuMemFree_v2(memory));
    Ok(())
}

fn memory_of_one_graph_can_be_freed_by_another(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, memory) = leaving(&gpu, 5)?;
    let freeing = new_graph(driver)?;
    free(&gpu, freeing, &[], memory)?;
    let (takes, gives) = (instantiate(driver, graph)?, instantiate(driver, freeing)?);
    for _ in 0..3 {
        ok!(driver, cuGraphLaunch(takes, NULL_STREAM));
        ok!(driver, cuGraphLaunch(gives, NULL_STREAM));
    }
    gpu.synchronise()
}

fn second_launch_without_a_free_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, memory) = leaving(&gpu, 5)?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    expect!(driver, cuGraphLaunch(executable, NULL_STREAM) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuMemFreeAsync(memory, NULL_STREAM));
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()
}

fn automatic_free_lets_it_launch_again(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, memory) = leaving(&gpu, 5)?;
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.0;
    let mut executable = CUgraphExec(null_mut());
    ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, flags.into()));
    for _ in 0..3 {
        ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    }
    gpu.synchronise()?;
    ensure!(gpu.read(memory, 1)? == [5], "the last launch's memory is not there");
    Ok(())
}

fn memory_outlives_the_graph(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, memory) = leaving(&gpu, 77)?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    ok!(driver, cuGraphExecDestroy(executable));
    ok!(driver, cuGraphDestroy(graph));
    ensure!(gpu.read(memory, 1)? == [77], "the memory went with the graph");
    ok!(driver, cuMemFree_v2(memory));
    Ok(())
}

fn freed_twice_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let (first, memory) = allocate(&gpu, graph, 64)?;
    free(&gpu, graph, &[first], memory)?;
    let mut node = NO_NODE;
    expect!(
        driver,
        cuGraphAddMemFreeNode(&raw mut node, graph, &raw const first, 1, memory) => CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

fn only_allocated_memory_can_be_freed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let mut node = NO_NODE;
    for address in [gpu.alloc(64)?, CUdeviceptr_v2(0x100)] {
        expect!(
            driver,
            cuGraphAddMemFreeNode(&raw mut node, graph, null(), 0, address) => CUDA_ERROR_INVALID_VALUE
        );
    }
    let mut parameters = wanted(0);
    expect!(
        driver,
        cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, &raw mut parameters) => CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

fn use_is_counted_and_can_be_trimmed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, memory) = leaving(&gpu, 5)?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    let used = attribute(&gpu, Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?;
    let reserved = attribute(&gpu, Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?;
    ensure!(used >= 4 && reserved >= used, "{used} bytes used of {reserved}");
    ok!(driver, cuMemFreeAsync(memory, NULL_STREAM));
    gpu.synchronise()?;
    let used = attribute(&gpu, Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?;
    let high = attribute(&gpu, Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH)?;
    note!("freed in a stream: {} of it is still counted", if used == 0 { "nothing" } else { "all" });
    ensure!(high >= 4 && used <= high, "{used} bytes used, {high} at most");
    ok!(driver, cuGraphExecDestroy(executable));
    ok!(driver, cuGraphDestroy(graph));
    ok!(driver, cuDeviceGraphMemTrim(gpu.device));
    let reserved = attribute(&gpu, Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT)?;
    note!("trimmed: {} stays reserved", if reserved == 0 { "nothing" } else { "something" });
    Ok(())
}

fn high_marks_can_be_reset(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let out = gpu.zeros(2)?;
    let (graph, _) = whole(&gpu, out)?;
    crate::graph_parts::run(&gpu, graph, 1)?;
    let high = Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    ensure!(attribute(&gpu, high)? >= 1 << 20, "{} bytes at most", attribute(&gpu, high)?);
    let mut zero = 0_u64;
    ok!(driver, cuDeviceSetGraphMemAttribute(gpu.device, high, (&raw mut zero).cast()));
    ensure!(attribute(&gpu, high)? == attribute(&gpu, Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT)?, "not reset");
    Ok(())
}

fn nodes_of_such_a_graph_stay(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let (first, memory) = allocate(&gpu, graph, 64)?;
    let last = free(&gpu, graph, &[first], memory)?;
    let code = noted!(driver, cuGraphDestroyNode(last), "a node of a graph that allocates");
    ensure!(code != CUresult::CUDA_SUCCESS, "it was destroyed");
    let code = noted!(
        driver,
        cuGraphRemoveDependencies_v2(graph, &raw const first, &raw const last, null(), 1),
        "an edge of a graph that allocates"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "it was removed");
    let mut clone = NO_GRAPH;
    let code = noted!(driver, cuGraphClone(&raw mut clone, graph), "a graph that allocates");
    ensure!(code != CUresult::CUDA_SUCCESS, "it was cloned");
    let (parent, mut child) = (new_graph(driver)?, NO_NODE);
    let code =
        noted!(driver, cuGraphAddChildGraphNode(&raw mut child, parent, null(), 0, graph), "a child that allocates");
    ensure!(code != CUresult::CUDA_SUCCESS, "it was added");
    Ok(())
}

fn one_executable_at_a_time(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let out = gpu.zeros(2)?;
    let (graph, _) = whole(&gpu, out)?;
    let first = instantiate(driver, graph)?;
    let mut second = CUgraphExec(null_mut());
    let code = noted!(driver, cuGraphInstantiateWithFlags(&raw mut second, graph, 0), "a second executable");
    ensure!(code != CUresult::CUDA_SUCCESS, "there are two");
    ok!(driver, cuGraphExecDestroy(first));
    instantiate(driver, graph)?;
    Ok(())
}
