//! Edges with data, attributes of kernel nodes, graphs that become another one's, and captures that are steered.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING, Shared};
use crate::graph_parts::{NO_GRAPH, NO_NODE, add_kernel, add_memset, edges, new_graph, nodes, run};
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::{null, null_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUgraph, CUgraphChildGraphNodeOwnership, CUgraphEdgeData, CUgraphNode, CUgraphNodeParams, CUgraphNodeType,
    CUkernelNodeAttrID as Attribute, CUkernelNodeAttrValue, CUresult, CUstream, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status, CUstreamUpdateCaptureDependencies_flags as UpdateFlags,
};

tests! { graph_edges:
    data_of_an_edge_is_kept,
    data_is_not_lost_silently,
    data_is_for_kernels_only,
    unknown_data_is_refused,
    priority_of_a_node,
    attributes_can_be_copied,
    attributes_survive_new_parameters,
    moved_graph_is_the_nodes,
    capture_goes_on_behind_other_nodes,
    capture_goes_on_behind_more_nodes,
    foreign_dependencies_are_refused,
    failed_capture_leaves_the_programs_graph,
    relaxed_capture_ends_in_another_thread,
    captures_of_threads_are_apart,
    destroyed_stream_of_a_capture,
}

/// A kernel that may begin before the one before it is over.
const EARLY: CUgraphEdgeData = CUgraphEdgeData { from_port: 1, to_port: 0, type_: 1, reserved: [0; 5] };
const PLAIN: CUgraphEdgeData = CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };

/// Two kernels that count the word up, and no edge between them.
fn two_kernels(gpu: &Gpu) -> Result<(CUgraph, [CUgraphNode; 2], detshare_cuda::types::CUdeviceptr)> {
    let [increment] = gpu.kernels([c"increment"])?;
    let (graph, word) = (new_graph(gpu)?, gpu.zeros(1)?);
    let first = add_kernel(gpu, graph, &[], increment, &[&word])?;
    let second = add_kernel(gpu, graph, &[], increment, &[&word])?;
    Ok((graph, [first, second], word))
}

fn data_of_an_edge_is_kept(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, [first, second], word) = two_kernels(&gpu)?;
    ok!(driver, cuGraphAddDependencies_v2(graph, &raw const first, &raw const second, &EARLY, 1));
    let (mut from, mut to, mut data, mut count) = (NO_NODE, NO_NODE, PLAIN, 1);
    ok!(driver, cuGraphGetEdges_v2(graph, &raw mut from, &raw mut to, &raw mut data, &raw mut count));
    ensure!((from, to, data, count) == (first, second, EARLY, 1), "another edge: {data:?}");
    (data, count) = (PLAIN, 1);
    ok!(driver, cuGraphNodeGetDependencies_v2(second, &raw mut from, &raw mut data, &raw mut count));
    ensure!((from, data, count) == (first, EARLY, 1), "another dependency: {data:?}");
    (data, count) = (PLAIN, 1);
    ok!(driver, cuGraphNodeGetDependentNodes_v2(first, &raw mut to, &raw mut data, &raw mut count));
    ensure!((to, data, count) == (second, EARLY, 1), "another dependent node: {data:?}");
    run(&gpu, graph, 1)?;
    ensure!(gpu.read(word, 1)? == [2], "the graph did not run as a whole");
    ok!(driver, cuGraphRemoveDependencies_v2(graph, &raw const first, &raw const second, &EARLY, 1));
    ensure!(edges(driver, graph)?.is_empty(), "the edge is still there");
    Ok(())
}

fn data_is_not_lost_silently(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, [first, second], _) = two_kernels(&gpu)?;
    ok!(driver, cuGraphAddDependencies_v2(graph, &raw const first, &raw const second, &EARLY, 1));
    let (mut from, mut to, mut count) = (NO_NODE, NO_NODE, 1);
    expect!(
        driver,
        cuGraphGetEdges_v2(graph, &raw mut from, &raw mut to, null_mut(), &raw mut count) => CUDA_ERROR_LOSSY_QUERY
    );
    count = 1;
    expect!(
        driver,
        cuGraphNodeGetDependencies(second, &raw mut from, &raw mut count) => CUDA_ERROR_LOSSY_QUERY
    );
    Ok(())
}

fn data_is_for_kernels_only(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, [first, _], word) = two_kernels(&gpu)?;
    let fill = add_memset(&gpu, graph, &[], word, 1)?;
    expect!(
        driver,
        cuGraphAddDependencies_v2(graph, &raw const fill, &raw const first, &EARLY, 1)
            => CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

fn unknown_data_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, [first, second], _) = two_kernels(&gpu)?;
    let wrong = [
        CUgraphEdgeData { type_: 9, ..PLAIN },
        CUgraphEdgeData { from_port: 9, ..PLAIN },
        CUgraphEdgeData { to_port: 1, ..PLAIN },
        CUgraphEdgeData { reserved: [1; 5], ..PLAIN },
    ];
    for data in &wrong {
        expect!(
            driver,
            cuGraphAddDependencies_v2(graph, &raw const first, &raw const second, data, 1) => CUDA_ERROR_INVALID_VALUE
        );
    }
    Ok(())
}

fn attribute(driver: &Driver, node: CUgraphNode, attribute: Attribute) -> Result<CUkernelNodeAttrValue> {
    // SAFETY: plain values throughout.
    let mut value: CUkernelNodeAttrValue = unsafe { zeroed() };
    ok!(driver, cuGraphKernelNodeGetAttribute(node, attribute, &raw mut value));
    Ok(value)
}

fn set_priority(driver: &Driver, node: CUgraphNode, priority: i32) -> Outcome {
    // SAFETY: plain values throughout.
    let mut value: CUkernelNodeAttrValue = unsafe { zeroed() };
    value.priority = priority;
    ok!(driver, cuGraphKernelNodeSetAttribute(node, Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw const value));
    Ok(())
}

fn priority(driver: &Driver, node: CUgraphNode) -> Result<i32> {
    let value = attribute(driver, node, Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY)?;
    // SAFETY: the attribute is a number.
    Ok(unsafe { value.priority })
}

fn priority_of_a_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, [first, _], word) = two_kernels(&gpu)?;
    set_priority(driver, first, -1)?;
    ensure!(priority(driver, first)? == -1, "another priority: {}", priority(driver, first)?);
    let cooperative = attribute(driver, first, Attribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE)?;
    // SAFETY: the attribute is a number.
    ensure!(unsafe { cooperative.cooperative } == 0, "an ordinary kernel is cooperative");
    let fill = add_memset(&gpu, graph, &[], word, 1)?;
    // SAFETY: plain values throughout.
    let mut value: CUkernelNodeAttrValue = unsafe { zeroed() };
    expect!(
        driver,
        cuGraphKernelNodeGetAttribute(fill, Attribute::CU_LAUNCH_ATTRIBUTE_PRIORITY, &raw mut value)
            => CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

fn attributes_can_be_copied(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (_, [first, second], _) = two_kernels(&gpu)?;
    set_priority(driver, first, -2)?;
    ok!(driver, cuGraphKernelNodeCopyAttributes(second, first));
    ensure!(priority(driver, second)? == -2, "another priority: {}", priority(driver, second)?);
    Ok(())
}

fn attributes_survive_new_parameters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (_, [first, _], _) = two_kernels(&gpu)?;
    set_priority(driver, first, -2)?;
    let parameters = crate::graph_parts::parameters_of(driver, first)?;
    ok!(driver, cuGraphKernelNodeSetParams_v2(first, &raw const parameters));
    ensure!(priority(driver, first)? == -2, "another priority: {}", priority(driver, first)?);
    Ok(())
}

/// What adding the graph as a child asks for.
fn child(graph: CUgraph, moved: bool) -> CUgraphNodeParams {
    // SAFETY: plain values throughout, where zero means none.
    let mut parameters: CUgraphNodeParams = unsafe { zeroed() };
    parameters.type_ = CUgraphNodeType::CU_GRAPH_NODE_TYPE_GRAPH;
    let ownership = CUgraphChildGraphNodeOwnership(u32::from(moved));
    parameters.__bindgen_anon_1.graph = detshare_cuda::types::CUDA_CHILD_GRAPH_NODE_PARAMS { graph, ownership };
    parameters
}

fn moved_graph_is_the_nodes(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (inner, _, word) = two_kernels(&gpu)?;
    let (graph, mut node) = (new_graph(driver)?, NO_NODE);
    ok!(driver, cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, &mut child(inner, true)));
    let mut seen = NO_GRAPH;
    ok!(driver, cuGraphChildGraphNodeGetGraph(node, &raw mut seen));
    ensure!(seen == inner, "the node has another graph");
    run(&gpu, graph, 1)?;
    ensure!(gpu.read(word, 1)? == [2], "the child did not run");
    let code = noted!(driver, cuGraphDestroy(inner), "a moved graph");
    ensure!(code != CUresult::CUDA_SUCCESS, "it was destroyed");
    let other = new_graph(driver)?;
    let code = noted!(
        driver,
        cuGraphAddNode_v2(&raw mut node, other, null(), null(), 0, &mut child(inner, true)),
        "a graph moved twice"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "it has two owners");
    ok!(driver, cuGraphDestroy(graph));
    Ok(())
}

fn begin(driver: &Driver, stream: CUstream, mode: Mode) -> Outcome {
    ok!(driver, cuStreamBeginCapture_v2(stream, mode));
    Ok(())
}

fn end(driver: &Driver, stream: CUstream) -> Result<CUgraph> {
    let mut graph = NO_GRAPH;
    ok!(driver, cuStreamEndCapture(stream, &raw mut graph));
    Ok(graph)
}

/// The graph that the stream is captured to.
fn captured_to(driver: &Driver, stream: CUstream) -> Result<CUgraph> {
    let (mut status, mut id, mut graph, mut count) = (Status(u32::MAX), 0, NO_GRAPH, 0);
    let (status, id, graph_out, count) = (&raw mut status, &raw mut id, &raw mut graph, &raw mut count);
    ok!(driver, cuStreamGetCaptureInfo_v3(stream, status, id, graph_out, null_mut(), null_mut(), count));
    Ok(graph)
}

/// Three kernels in a stream; before the third it is told what to come after.
fn steered(driver: &Driver, flags: UpdateFlags) -> Result<Vec<(CUgraphNode, CUgraphNode)>> {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let stream = gpu.stream(NON_BLOCKING)?;
    begin(driver, stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
    gpu.launch(empty, 1, stream, &[])?;
    let mut first = nodes(driver, captured_to(driver, stream)?)?[0];
    gpu.launch(empty, 1, stream, &[])?;
    ok!(driver, cuStreamUpdateCaptureDependencies_v2(stream, &raw mut first, null(), 1, flags.0));
    gpu.launch(empty, 1, stream, &[])?;
    let graph = end(driver, stream)?;
    let all = nodes(driver, graph)?;
    ensure!(all.len() == 3, "{} nodes", all.len());
    let from = |node: CUgraphNode| all.iter().position(|other| *other == node);
    let listed = edges(driver, graph)?;
    ensure!(listed.iter().all(|(a, b)| from(*a).is_some() && from(*b).is_some()), "an edge to nowhere");
    Ok(listed)
}

fn capture_goes_on_behind_other_nodes(driver: &Driver) -> Outcome {
    let listed = steered(driver, UpdateFlags::CU_STREAM_SET_CAPTURE_DEPENDENCIES)?;
    ensure!(listed.len() == 2 && listed[0].0 == listed[1].0, "both come after the first: {listed:?}");
    Ok(())
}

fn capture_goes_on_behind_more_nodes(driver: &Driver) -> Outcome {
    let listed = steered(driver, UpdateFlags::CU_STREAM_ADD_CAPTURE_DEPENDENCIES)?;
    ensure!(listed.len() == 3, "the third comes after both: {listed:?}");
    Ok(())
}

fn foreign_dependencies_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (_, [mut foreign, _], _) = two_kernels(&gpu)?;
    let (stream, graph) = (gpu.stream(NON_BLOCKING)?, new_graph(driver)?);
    let set = UpdateFlags::CU_STREAM_SET_CAPTURE_DEPENDENCIES.0;
    expect!(
        driver,
        cuStreamUpdateCaptureDependencies_v2(stream, &raw mut foreign, null(), 1, set) => CUDA_ERROR_ILLEGAL_STATE
    );
    let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    expect!(
        driver,
        cuStreamBeginCaptureToGraph(stream, graph, &raw const foreign, null(), 1, mode) => CUDA_ERROR_INVALID_VALUE
    );
    begin(driver, stream, mode)?;
    expect!(
        driver,
        cuStreamUpdateCaptureDependencies_v2(stream, &raw mut foreign, null(), 1, set) => CUDA_ERROR_INVALID_VALUE
    );
    Ok(())
}

fn failed_capture_leaves_the_programs_graph(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, graph) = (gpu.stream(NON_BLOCKING)?, new_graph(driver)?);
    let mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    ok!(driver, cuStreamBeginCaptureToGraph(stream, graph, null(), null(), 0, mode));
    expect!(driver, cuStreamSynchronize(stream) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut captured = NO_GRAPH;
    expect!(
        driver,
        cuStreamEndCapture(stream, &raw mut captured) => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    );
    noted!(driver, cuGraphDestroy(graph), "the graph of a failed capture");
    Ok(())
}

fn relaxed_capture_ends_in_another_thread(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let stream = gpu.stream(NON_BLOCKING)?;
    begin(driver, stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    gpu.launch(empty, 1, stream, &[])?;
    let (shared, context) = (Shared::new(stream), Shared::new(gpu.context));
    let count = std::thread::scope(|scope| {
        let other = scope.spawn(|| -> Result<usize> {
            ok!(driver, cuCtxSetCurrent(context.get()));
            Ok(nodes(driver, end(driver, shared.get())?)?.len())
        });
        other.join().expect("it does not panic")
    })?;
    ensure!(count == 1, "{count} nodes");
    Ok(())
}

/// Each thread captures what it launches, whatever the others do.
fn captures_of_threads_are_apart(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let words = gpu.zeros(8)?;
    let (context, increment) = (Shared::new(gpu.context), Shared::new(increment));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8_usize)
            .map(|number| {
                scope.spawn(move || -> Outcome {
                    let gpu = Gpu::new(driver)?;
                    ok!(driver, cuCtxSetCurrent(context.get()));
                    let (stream, word) = (gpu.stream(NON_BLOCKING)?, crate::gpu::offset(words, 4 * number));
                    begin(driver, stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
                    for _ in 0..=number {
                        gpu.launch(increment.get(), 1, stream, &[&word])?;
                    }
                    run(&gpu, end(driver, stream)?, 1)
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    let seen = gpu.read(words, 8)?;
    ensure!(seen == (1..=8).collect::<Vec<_>>(), "the threads counted {seen:?}");
    Ok(())
}

fn destroyed_stream_of_a_capture(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let (stream, forked, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    begin(driver, stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED)?;
    ok!(driver, cuEventRecord(event, stream));
    ok!(driver, cuStreamWaitEvent(forked, event, 0));
    gpu.launch(empty, 1, forked, &[])?;
    noted!(driver, cuStreamDestroy_v2(forked), "a captured stream");
    let mut graph = NO_GRAPH;
    noted!(driver, cuStreamEndCapture(stream, &raw mut graph), "the capture without it");
    gpu.synchronise()
}
