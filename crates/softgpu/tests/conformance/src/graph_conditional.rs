//! Conditional nodes: what runs as a kernel has decided.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING};
use crate::graph_parts::{NO_NODE, add_kernel, add_memset, instantiate, new_graph, nodes, run, type_of};
use anyhow::{Result, ensure};
use core::ffi::CStr;
use core::mem::zeroed;
use core::ptr::null;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUdeviceptr, CUfunction, CUgraph, CUgraphConditionalHandle,
    CUgraphConditionalNodeType as Kind, CUgraphExec, CUgraphInstantiateResult, CUgraphNode, CUgraphNodeParams,
    CUgraphNodeType, CUresult, CUstreamCaptureMode,
};

tests! { graph_conditional:
    if_runs_its_body_where_the_value_is_not_zero,
    if_has_an_else,
    while_runs_until_the_value_is_zero,
    a_loop_that_never_begins,
    a_long_loop_of_nothing_else,
    switch_runs_one_body,
    default_value_is_set_at_every_launch,
    value_without_a_default_stays,
    what_comes_behind_waits_for_the_body,
    loops_can_be_nested,
    body_can_be_captured,
    fault_in_a_body_ends_the_loop,
    bodies_have_a_type_and_belong_to_the_node,
    wrong_sizes_are_refused,
    unused_handle_is_refused,
    cloning_is_refused,
}

/// `cudaGraphSetConditional` takes the handle and the new value.
const PROGRAM: &CStr = c"
.version 8.3
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);

.visible .entry decide(.param .u64 handle, .param .u32 value)
{
    .reg .b64 %h;
    .reg .b32 %v;
    ld.param.u64 %h, [handle];
    ld.param.u32 %v, [value];
    {
    .param .b64 h;
    .param .b32 v;
    st.param.b64 [h], %h;
    st.param.b32 [v], %v;
    call.uni cudaGraphSetConditional, (h, v);
    }
    ret;
}

.visible .entry count_down(.param .u64 handle, .param .u64 left, .param .u64 turns)
{
    .reg .b64 %h, %p;
    .reg .b32 %v;
    ld.param.u64 %h, [handle];
    ld.param.u64 %p, [turns];
    ld.global.u32 %v, [%p];
    add.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    ld.param.u64 %p, [left];
    ld.global.u32 %v, [%p];
    sub.u32 %v, %v, 1;
    st.global.u32 [%p], %v;
    {
    .param .b64 h;
    .param .b32 v;
    st.param.b64 [h], %h;
    st.param.b32 [v], %v;
    call.uni cudaGraphSetConditional, (h, v);
    }
    ret;
}

.visible .entry stray()
{
    .reg .b64 %p;
    .reg .b32 %v;
    mov.u64 %p, 256;
    mov.u32 %v, 1;
    st.global.u32 [%p], %v;
    ret;
}
";

fn kernel(gpu: &Gpu, name: &CStr) -> Result<CUfunction> {
    gpu.function_of(gpu.module(PROGRAM)?, name)
}

fn handle(gpu: &Gpu, graph: CUgraph, default: Option<u32>) -> Result<CUgraphConditionalHandle> {
    let mut handle = CUgraphConditionalHandle(0);
    let flags = u32::from(default.is_some());
    let default = default.unwrap_or(0);
    ok!(gpu, cuGraphConditionalHandleCreate(&raw mut handle, graph, gpu.context, default, flags));
    ensure!(handle.0 != 0, "no handle");
    Ok(handle)
}

fn parameters(gpu: &Gpu, handle: CUgraphConditionalHandle, kind: Kind, size: u32) -> CUgraphNodeParams {
    // SAFETY: plain values throughout, where zero means none.
    let mut parameters: CUgraphNodeParams = unsafe { zeroed() };
    parameters.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    // SAFETY: as above.
    let mut conditional: detshare_cuda::types::CUDA_CONDITIONAL_NODE_PARAMS = unsafe { zeroed() };
    (conditional.handle, conditional.type_, conditional.size) = (handle, kind, size);
    conditional.ctx = gpu.context;
    parameters.__bindgen_anon_1.conditional = conditional;
    parameters
}

/// Adds a node and gives its bodies.
fn add(
    gpu: &Gpu,
    graph: CUgraph,
    after: &[CUgraphNode],
    handle: CUgraphConditionalHandle,
    kind: Kind,
    size: u32,
) -> Result<(CUgraphNode, Vec<CUgraph>)> {
    let mut parameters = parameters(gpu, handle, kind, size);
    let mut node = NO_NODE;
    ok!(gpu, cuGraphAddNode_v2(&raw mut node, graph, after.as_ptr(), null(), after.len(), &raw mut parameters));
    // SAFETY: the part that the node's type means.
    let bodies = unsafe { parameters.__bindgen_anon_1.conditional }.phGraph_out;
    // SAFETY: the driver has set it to as many graphs as there are bodies, which live as long as the node.
    let bodies = unsafe { core::slice::from_raw_parts(bodies, size as usize) };
    Ok((node, bodies.to_vec()))
}

/// A graph: decide, then the conditional node.
fn decided(gpu: &Gpu, value: u32, kind: Kind, size: u32) -> Result<(CUgraph, CUgraphNode, Vec<CUgraph>)> {
    let graph = new_graph(gpu)?;
    let handle = handle(gpu, graph, None)?;
    let first = add_kernel(gpu, graph, &[], kernel(gpu, c"decide")?, &[&handle.0, &value])?;
    let (node, bodies) = add(gpu, graph, &[first], handle, kind, size)?;
    Ok((graph, node, bodies))
}

fn if_runs_its_body_where_the_value_is_not_zero(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for (value, expected) in [(0, 0), (1, 7), (5, 7)] {
        let (graph, _, bodies) = decided(&gpu, value, Kind::CU_GRAPH_COND_TYPE_IF, 1)?;
        let seen = gpu.zeros(1)?;
        add_memset(&gpu, bodies[0], &[], seen, 7)?;
        run(&gpu, graph, 1)?;
        let seen = gpu.read(seen, 1)?[0];
        ensure!(seen == expected, "with {value} the body left {seen}");
    }
    Ok(())
}

fn if_has_an_else(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for (value, expected) in [(0, [0, 9]), (3, [8, 0])] {
        let (graph, _, bodies) = decided(&gpu, value, Kind::CU_GRAPH_COND_TYPE_IF, 2)?;
        let words = [gpu.zeros(1)?, gpu.zeros(1)?];
        add_memset(&gpu, bodies[0], &[], words[0], 8)?;
        add_memset(&gpu, bodies[1], &[], words[1], 9)?;
        run(&gpu, graph, 1)?;
        let seen = [gpu.read(words[0], 1)?[0], gpu.read(words[1], 1)?[0]];
        ensure!(seen == expected, "with {value} the bodies left {seen:?}");
    }
    Ok(())
}

/// A loop of so many turns; its counter and the graph's first node that it has.
fn countdown(gpu: &Gpu, graph: CUgraph, turns: u32) -> Result<(CUgraphNode, CUdeviceptr, CUgraph)> {
    let handle = handle(gpu, graph, Some(1))?;
    let (left, seen) = (gpu.alloc(4)?, gpu.zeros(1)?);
    let start = add_memset(gpu, graph, &[], left, turns)?;
    let (node, bodies) = add(gpu, graph, &[start], handle, Kind::CU_GRAPH_COND_TYPE_WHILE, 1)?;
    add_kernel(gpu, bodies[0], &[], kernel(gpu, c"count_down")?, &[&handle.0, &left, &seen])?;
    Ok((node, seen, bodies[0]))
}

fn while_runs_until_the_value_is_zero(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let (_, seen, _) = countdown(&gpu, graph, 10)?;
    run(&gpu, graph, 3)?;
    let seen = gpu.read(seen, 1)?[0];
    ensure!(seen == 30, "three launches of ten turns made {seen}");
    Ok(())
}

fn a_loop_that_never_begins(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, _, bodies) = decided(&gpu, 0, Kind::CU_GRAPH_COND_TYPE_WHILE, 1)?;
    let seen = gpu.zeros(1)?;
    add_memset(&gpu, bodies[0], &[], seen, 7)?;
    run(&gpu, graph, 2)?;
    ensure!(gpu.read(seen, 1)? == [0], "the body ran");
    Ok(())
}

fn a_long_loop_of_nothing_else(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let (_, seen, _) = countdown(&gpu, graph, 2000)?;
    run(&gpu, graph, 1)?;
    let seen = gpu.read(seen, 1)?[0];
    ensure!(seen == 2000, "{seen} turns");
    Ok(())
}

fn switch_runs_one_body(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for value in 0..5_u32 {
        let (graph, _, bodies) = decided(&gpu, value, Kind::CU_GRAPH_COND_TYPE_SWITCH, 3)?;
        let words = gpu.zeros(3)?;
        for (number, body) in bodies.iter().enumerate() {
            add_memset(&gpu, *body, &[], crate::gpu::offset(words, 4 * number), 1)?;
        }
        run(&gpu, graph, 1)?;
        let seen = gpu.read(words, 3)?;
        let expected: Vec<u32> = (0..3).map(|number| u32::from(number == value)).collect();
        ensure!(seen == expected, "with {value} the bodies left {seen:?}");
    }
    Ok(())
}

fn default_value_is_set_at_every_launch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let handle = handle(&gpu, graph, Some(1))?;
    let [increment] = gpu.kernels([c"increment"])?;
    let seen = gpu.zeros(1)?;
    let (node, bodies) = add(&gpu, graph, &[], handle, Kind::CU_GRAPH_COND_TYPE_IF, 1)?;
    add_kernel(driver, bodies[0], &[], increment, &[&seen])?;
    add_kernel(driver, graph, &[node], kernel(&gpu, c"decide")?, &[&handle.0, &0_u32])?;
    run(&gpu, graph, 3)?;
    ensure!(gpu.read(seen, 1)? == [3], "the value of the launch before was still there");
    Ok(())
}

fn value_without_a_default_stays(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let handle = handle(&gpu, graph, None)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let seen = gpu.zeros(1)?;
    let first = add_kernel(driver, graph, &[], kernel(&gpu, c"decide")?, &[&handle.0, &1_u32])?;
    let (_, bodies) = add(&gpu, graph, &[first], handle, Kind::CU_GRAPH_COND_TYPE_IF, 1)?;
    add_kernel(driver, bodies[0], &[], increment, &[&seen])?;
    run(&gpu, graph, 2)?;
    ensure!(gpu.read(seen, 1)? == [2], "each launch decides anew");
    Ok(())
}

fn what_comes_behind_waits_for_the_body(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [copy] = gpu.kernels([c"copy"])?;
    let graph = new_graph(driver)?;
    let (node, turns, _) = countdown(&gpu, graph, 50)?;
    let after = gpu.zeros(1)?;
    add_kernel(driver, graph, &[node], copy, &[&after, &turns, &1_u32])?;
    run(&gpu, graph, 1)?;
    let after = gpu.read(after, 1)?[0];
    ensure!(after == 50, "what comes behind saw {after} turns");
    Ok(())
}

fn loops_can_be_nested(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let (_, outer, body) = countdown(&gpu, graph, 4)?;
    // The inner loop's value has to be set before each of its runs: its default holds for the first one only.
    let inner = handle(&gpu, graph, Some(1))?;
    let (left, seen) = (gpu.alloc(4)?, gpu.zeros(1)?);
    let start = add_memset(&gpu, body, &[], left, 3)?;
    let decide = add_kernel(driver, body, &[start], kernel(&gpu, c"decide")?, &[&inner.0, &1_u32])?;
    let (_, bodies) = add(&gpu, body, &[decide], inner, Kind::CU_GRAPH_COND_TYPE_WHILE, 1)?;
    add_kernel(driver, bodies[0], &[], kernel(&gpu, c"count_down")?, &[&inner.0, &left, &seen])?;
    run(&gpu, graph, 1)?;
    let seen = (gpu.read(outer, 1)?[0], gpu.read(seen, 1)?[0]);
    ensure!(seen == (4, 12), "outer and inner turns: {seen:?}");
    Ok(())
}

fn body_can_be_captured(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (graph, _, bodies) = decided(&gpu, 1, Kind::CU_GRAPH_COND_TYPE_IF, 1)?;
    let (seen, stream) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    ok!(driver, cuStreamBeginCaptureToGraph(stream, bodies[0], null(), null(), 0, mode));
    gpu.launch(increment, 1, stream, &[&seen])?;
    gpu.launch(increment, 1, stream, &[&seen])?;
    let mut captured = CUgraph(core::ptr::null_mut());
    ok!(driver, cuStreamEndCapture(stream, &raw mut captured));
    ensure!(captured == bodies[0], "the capture gave another graph");
    run(&gpu, graph, 1)?;
    ensure!(gpu.read(seen, 1)? == [2], "the captured body did not run");
    Ok(())
}

fn fault_in_a_body_ends_the_loop(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, _, bodies) = decided(&gpu, 1, Kind::CU_GRAPH_COND_TYPE_WHILE, 1)?;
    add_kernel(driver, bodies[0], &[], kernel(&gpu, c"stray")?, &[])?;
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuGraphLaunch(executable, stream));
    expect!(driver, cuStreamSynchronize(stream) => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}

fn bodies_have_a_type_and_belong_to_the_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, node, bodies) = decided(&gpu, 1, Kind::CU_GRAPH_COND_TYPE_SWITCH, 4)?;
    ensure!(type_of(driver, node)? == CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL, "another type");
    ensure!(bodies.iter().all(|body| *body != graph && !body.0.is_null()), "bodies are graphs of their own");
    ensure!(nodes(driver, bodies[3])?.is_empty(), "a new body has nodes");
    let code = noted!(driver, cuGraphDestroy(bodies[0]), "a body");
    ensure!(code != CUresult::CUDA_SUCCESS, "a body was destroyed without its node");
    ok!(driver, cuGraphDestroy(graph));
    Ok(())
}

fn wrong_sizes_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    let handle = handle(&gpu, graph, None)?;
    let wrong = [
        (Kind::CU_GRAPH_COND_TYPE_IF, 0),
        (Kind::CU_GRAPH_COND_TYPE_IF, 3),
        (Kind::CU_GRAPH_COND_TYPE_WHILE, 2),
        (Kind::CU_GRAPH_COND_TYPE_SWITCH, 0),
    ];
    for (kind, size) in wrong {
        let mut parameters = parameters(&gpu, handle, kind, size);
        let mut node = NO_NODE;
        expect!(
            driver,
            cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, &raw mut parameters) => CUDA_ERROR_INVALID_VALUE
        );
    }
    let mut parameters = parameters(&gpu, CUgraphConditionalHandle(12), Kind::CU_GRAPH_COND_TYPE_IF, 1);
    let mut node = NO_NODE;
    let code = noted!(
        driver,
        cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, &raw mut parameters),
        "a handle that never was"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "it was taken");
    ensure!(nodes(driver, graph)?.is_empty(), "a refused node is there");
    Ok(())
}

fn unused_handle_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let graph = new_graph(driver)?;
    handle(&gpu, graph, None)?;
    // SAFETY: plain values throughout, where zero means none.
    let mut parameters: CUDA_GRAPH_INSTANTIATE_PARAMS = unsafe { zeroed() };
    let mut executable = CUgraphExec(core::ptr::null_mut());
    let code = noted!(
        driver,
        cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut parameters),
        "a handle without a node"
    );
    if code != CUresult::CUDA_SUCCESS {
        let unused = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
        ensure!(parameters.result_out == unused, "result {}", parameters.result_out.0);
    }
    Ok(())
}

fn cloning_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, _, _) = decided(&gpu, 1, Kind::CU_GRAPH_COND_TYPE_IF, 1)?;
    let mut clone = CUgraph(core::ptr::null_mut());
    noted!(driver, cuGraphClone(&raw mut clone, graph), "a graph with a condition");
    Ok(())
}
