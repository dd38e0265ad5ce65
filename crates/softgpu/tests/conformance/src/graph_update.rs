//! Executable graphs that take over other contents: node by node, and from whole graphs.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING, NULL_STREAM, offset};
use crate::graph_parts::{NO_NODE, add_kernel, add_memset, instantiate, new_graph};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_GRAPH_INSTANTIATE_PARAMS, CUdeviceptr, CUgraph, CUgraphExec,
    CUgraphExecUpdateResult as UpdateResult, CUgraphExecUpdateResultInfo, CUgraphInstantiateResult, CUgraphNode,
    CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType,
};

tests! { graph_update:
    changed_edge_names_its_node,
    changed_type_names_its_node,
    child_is_compared_too,
    child_can_be_set,
    other_child_is_refused,
    event_can_be_set,
    batch_of_memory_operations_runs,
    batch_can_be_set,
    cycle_is_named_by_the_instantiation,
    destroyed_node_cannot_be_set,
    foreign_node_cannot_be_set,
    updates_while_it_runs,
}

fn update(driver: &Driver, executable: CUgraphExec, graph: CUgraph) -> Result<(CUresult, CUgraphExecUpdateResultInfo)> {
    let mut info =
        CUgraphExecUpdateResultInfo { result: UpdateResult(u32::MAX), errorNode: NO_NODE, errorFromNode: NO_NODE };
    let code = cu!(driver, cuGraphExecUpdate_v2(executable, graph, &raw mut info));
    Ok((code, info))
}

const FAILURE: CUresult = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;

fn changed_edge_names_its_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let word = gpu.zeros(1)?;
    let chain = |last_after_first: bool| -> Result<(CUgraph, CUgraphNode)> {
        let graph = new_graph(driver)?;
        let first = add_memset(&gpu, graph, &[], word, 1)?;
        let second = add_memset(&gpu, graph, &[first], word, 2)?;
        let third = add_memset(&gpu, graph, &[if last_after_first { first } else { second }], word, 3)?;
        Ok((graph, third))
    };
    let executable = instantiate(driver, chain(false)?.0)?;
    let (other, third) = chain(true)?;
    let (code, info) = update(driver, executable, other)?;
    ensure!(code == FAILURE, "cuGraphExecUpdate gives {}", crate::call::describe(code));
    ensure!(info.result == UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "result {}", info.result.0);
    note!("the node with other edges is named: {}", info.errorNode == third);
    Ok(())
}

fn changed_type_names_its_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, graph, other) = (gpu.zeros(1)?, new_graph(driver)?, new_graph(driver)?);
    add_memset(&gpu, graph, &[], word, 1)?;
    let kernel = add_kernel(driver, other, &[], increment, &[&word])?;
    let executable = instantiate(driver, graph)?;
    let (code, info) = update(driver, executable, other)?;
    ensure!(code == FAILURE, "cuGraphExecUpdate gives {}", crate::call::describe(code));
    ensure!(info.result == UpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, "result {}", info.result.0);
    ensure!(info.errorNode == kernel, "another node is named");
    let (mut node, mut result) = (NO_NODE, UpdateResult(u32::MAX));
    let code = cu!(driver, cuGraphExecUpdate(executable, other, &raw mut node, &raw mut result));
    ensure!((code, node, result) == (FAILURE, kernel, info.result), "the older function says something else");
    Ok(())
}

/// A graph with a child that fills the word, and the node that has it.
fn parent(gpu: &Gpu, word: CUdeviceptr, values: &[u32]) -> Result<(CUgraph, CUgraphNode)> {
    let (graph, child) = (new_graph(gpu)?, filling(gpu, word, values)?);
    let mut node = NO_NODE;
    ok!(gpu, cuGraphAddChildGraphNode(&raw mut node, graph, null(), 0, child));
    Ok((graph, node))
}

/// Fills words, one after the other.
fn filling(gpu: &Gpu, word: CUdeviceptr, values: &[u32]) -> Result<CUgraph> {
    let graph = new_graph(gpu)?;
    let mut after = Vec::new();
    for (index, value) in values.iter().enumerate() {
        after = vec![add_memset(gpu, graph, &after, offset(word, 4 * index), *value)?];
    }
    Ok(graph)
}

fn child_is_compared_too(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(2)?;
    let executable = instantiate(driver, parent(&gpu, words, &[1, 2])?.0)?;
    let (code, _) = update(driver, executable, parent(&gpu, words, &[1])?.0)?;
    ensure!(code == FAILURE, "a smaller child gives {}", crate::call::describe(code));
    let (code, _) = update(driver, executable, parent(&gpu, words, &[5, 6])?.0)?;
    ensure!(code == CUresult::CUDA_SUCCESS, "a child like it gives {}", crate::call::describe(code));
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(gpu.read(words, 2)? == [5, 6], "the update does not show");
    Ok(())
}

fn child_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(2)?;
    let (graph, node) = parent(&gpu, words, &[1, 2])?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphExecChildGraphNodeSetParams(executable, node, filling(&gpu, words, &[8, 9])?));
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(gpu.read(words, 2)? == [8, 9], "the new child does not run");
    Ok(())
}

fn other_child_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let words = gpu.zeros(3)?;
    let (graph, node) = parent(&gpu, words, &[1, 2])?;
    let executable = instantiate(driver, graph)?;
    let code = noted!(
        driver,
        cuGraphExecChildGraphNodeSetParams(executable, node, filling(&gpu, words, &[7, 8, 9])?),
        "a larger child"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "it was taken");
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(gpu.read(words, 3)? == [1, 2, 0], "the refused child shows");
    Ok(())
}

fn event_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, held, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    let (first, second, graph) = (gpu.event()?, gpu.event()?, new_graph(driver)?);
    let mut node = NO_NODE;
    ok!(driver, cuGraphAddEventWaitNode(&raw mut node, graph, null(), 0, first));
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphExecEventWaitNodeSetEvent(executable, node, second));
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(second, held));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    expect!(driver, cuGraphExecEventRecordNodeSetEvent(executable, node, first) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

/// A write of the value to the word.
fn write(word: CUdeviceptr, value: u32) -> CUstreamBatchMemOpParams {
    // SAFETY: plain values throughout, where zero means none.
    let mut operation: CUstreamBatchMemOpParams = unsafe { zeroed() };
    operation.writeValue.operation = CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32;
    operation.writeValue.address = word;
    operation.writeValue.__bindgen_anon_1.value = value;
    operation
}

fn batch(gpu: &Gpu, operations: &mut [CUstreamBatchMemOpParams]) -> Result<CUDA_BATCH_MEM_OP_NODE_PARAMS> {
    Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx: gpu.context,
        count: u32::try_from(operations.len())?,
        paramArray: operations.as_mut_ptr(),
        flags: 0,
    })
}

fn add_batch(gpu: &Gpu, graph: CUgraph, operations: &mut [CUstreamBatchMemOpParams]) -> Result<CUgraphNode> {
    let (mut node, parameters) = (NO_NODE, batch(gpu, operations)?);
    ok!(gpu, cuGraphAddBatchMemOpNode(&raw mut node, graph, null(), 0, &raw const parameters));
    Ok(node)
}

fn batch_of_memory_operations_runs(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, graph) = (gpu.zeros(2)?, new_graph(driver)?);
    let node = add_batch(&gpu, graph, &mut [write(words, 3), write(offset(words, 4), 4)])?;
    let mut read = batch(&gpu, &mut [])?;
    ok!(driver, cuGraphBatchMemOpNodeGetParams(node, &raw mut read));
    ensure!(read.count == 2 && !read.paramArray.is_null(), "{} operations", read.count);
    // SAFETY: the driver's own list, which lives as long as the node has it.
    let operations = unsafe { core::slice::from_raw_parts(read.paramArray, 2) };
    // SAFETY: it is a write, as it was given.
    let second = unsafe { operations[1].writeValue };
    // SAFETY: of a narrow value.
    let (address, value) = (second.address, unsafe { second.__bindgen_anon_1.value });
    ensure!((address, value) == (offset(words, 4), 4), "the second operation is another one");
    crate::graph_parts::run(&gpu, graph, 1)?;
    ensure!(gpu.read(words, 2)? == [3, 4], "the operations were not done");
    Ok(())
}

fn batch_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let node = add_batch(&gpu, graph, &mut [write(words, 3)])?;
    let executable = instantiate(driver, graph)?;
    let mut operations = [write(words, 12)];
    let parameters = batch(&gpu, &mut operations)?;
    ok!(driver, cuGraphExecBatchMemOpNodeSetParams(executable, node, &raw const parameters));
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(gpu.read(words, 1)? == [12], "the executable was not changed");
    crate::graph_parts::run(&gpu, graph, 1)?;
    ensure!(gpu.read(words, 1)? == [3], "the graph was changed too");
    let mut operations = [write(words, 13)];
    let parameters = batch(&gpu, &mut operations)?;
    ok!(driver, cuGraphBatchMemOpNodeSetParams(node, &raw const parameters));
    crate::graph_parts::run(&gpu, graph, 1)?;
    ensure!(gpu.read(words, 1)? == [13], "the graph was not changed");
    Ok(())
}

fn cycle_is_named_by_the_instantiation(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let first = add_memset(&gpu, graph, &[], word, 1)?;
    let second = add_memset(&gpu, graph, &[first], word, 2)?;
    let code = cu!(driver, cuGraphAddDependencies_v2(graph, &raw const second, &raw const first, null(), 1));
    if code != CUresult::CUDA_SUCCESS {
        note!("the cycle was refused when it was made: {}", crate::call::describe(code));
        return Ok(());
    }
    // SAFETY: plain values throughout, where zero means none.
    let mut parameters: CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { zeroed() };
    let mut executable = CUgraphExec(null_mut());
    let code = cu!(driver, cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut parameters));
    ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "a cycle gives {}", crate::call::describe(code));
    let expected = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    ensure!(parameters.result_out == expected, "result {}", parameters.result_out.0);
    Ok(())
}

fn destroyed_node_cannot_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    add_memset(&gpu, graph, &[], word, 5)?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphDestroy(graph));
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    gpu.synchronise()?;
    ensure!(gpu.read(word, 1)? == [5], "the executable went with its graph");
    Ok(())
}

fn foreign_node_cannot_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (word, graph, other) = (gpu.zeros(1)?, new_graph(driver)?, new_graph(driver)?);
    add_memset(&gpu, graph, &[], word, 5)?;
    let foreign = add_memset(&gpu, other, &[], word, 6)?;
    let executable = instantiate(driver, graph)?;
    let parameters = crate::graph_parts::memset_parameters(word, 7, 1);
    expect!(
        driver,
        cuGraphExecMemsetNodeSetParams(executable, foreign, &raw const parameters, gpu.context)
            => CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

/// What is launched is what was there at the launch.
fn updates_while_it_runs(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let node = add_kernel(driver, graph, &[], fill, &[&word, &1_u32, &1_u32])?;
    let executable = instantiate(driver, graph)?;
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuGraphLaunch(executable, stream));
    let (value, count) = (2_u32, 1_u32);
    let mut pointers = crate::gpu::addresses(&[&word, &value, &count]);
    let parameters = crate::graph_parts::kernel_parameters(fill, 1, &mut pointers);
    ok!(driver, cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const parameters));
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(gpu.read(word, 1)? == [1], "the launch before the change saw it");
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [2], "the launch behind the change did not see it");
    Ok(())
}
