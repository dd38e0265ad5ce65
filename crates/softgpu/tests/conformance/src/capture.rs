//! Graphs that are captured from streams.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{BLOCKING, Gpu, LEGACY, NO_ADDRESS, NON_BLOCKING, NULL_STREAM, PER_THREAD, Shared};
use crate::graph_parts::{NO_GRAPH, edges, instantiate, new_graph, nodes, run, type_of};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUcontext, CUevent, CUevent_record_flags, CUgraph, CUgraphNodeType, CUresult, CUstream,
    CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status,
};

tests! { capture:
    captured_work_runs_at_the_launch,
    every_mode_captures,
    order_in_the_stream_becomes_edges,
    copies_and_memsets_are_captured,
    host_functions_are_captured,
    fork_and_join_by_events,
    forked_stream_is_capturing_too,
    unjoined_work_is_refused,
    status_is_known,
    information_names_the_graph,
    adds_to_a_graph,
    external_record_becomes_a_node,
    allocations_become_nodes,
    graph_launch_is_refused,
    synchronise_invalidates,
    query_is_refused,
    captured_event_cannot_be_queried,
    outside_event_cannot_be_waited_for,
    two_captures_cannot_meet,
    unsafe_calls_are_refused_in_global_mode,
    unsafe_calls_are_allowed_in_relaxed_mode,
    asking_ends_a_capture_of_another_thread,
    thread_mode_can_be_exchanged,
    ends_in_its_own_thread,
    end_without_begin,
    begin_twice,
    legacy_stream_cannot_capture,
    per_thread_stream_can_capture,
    legacy_work_beside_a_blocking_capture,
}

fn begin(driver: &Driver, stream: CUstream) -> Result<()> {
    ok!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    Ok(())
}

fn end(driver: &Driver, stream: CUstream) -> Result<CUgraph> {
    let mut graph = NO_GRAPH;
    ok!(driver, cuStreamEndCapture(stream, &raw mut graph));
    ensure!(graph != NO_GRAPH, "cuStreamEndCapture gave no graph");
    Ok(graph)
}

fn status(driver: &Driver, stream: CUstream) -> Result<Status> {
    let mut status = Status(u32::MAX);
    ok!(driver, cuStreamIsCapturing(stream, &raw mut status));
    Ok(status)
}

fn captured_work_runs_at_the_launch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (seen, stream) = (gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    begin(driver, stream)?;
    gpu.launch(fill, 1, stream, &[&seen.at(0), &3_u32, &1_u32])?;
    let graph = end(driver, stream)?;
    gpu.wait(stream)?;
    ensure!(seen.get(0) == 0, "captured work has run");
    run(&gpu, graph, 1)?;
    ensure!(seen.get(0) == 3, "the graph has not run");
    gpu.launch(fill, 1, stream, &[&seen.at(0), &4_u32, &1_u32])?;
    gpu.wait(stream)?;
    ensure!(seen.get(0) == 4, "after the capture the stream does not work");
    Ok(())
}

fn every_mode_captures(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    let modes = [
        Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ];
    for (mode, expected) in modes.into_iter().zip(1..) {
        let stream = gpu.stream(NON_BLOCKING)?;
        ok!(driver, cuStreamBeginCapture_v2(stream, mode));
        gpu.launch(increment, 1, stream, &[&word])?;
        run(&gpu, end(driver, stream)?, 1)?;
        ensure!(gpu.read(word, 1)? == [expected], "{mode:?} captured something else");
    }
    let stream = gpu.stream(BLOCKING)?;
    expect!(driver, cuStreamBeginCapture_v2(stream, Mode(77)) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn order_in_the_stream_becomes_edges(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let (word, stream) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    begin(driver, stream)?;
    for _ in 0..4 {
        gpu.launch(step, 1, stream, &[&word])?;
    }
    let graph = end(driver, stream)?;
    let (nodes, edges) = (nodes(driver, graph)?.len(), edges(driver, graph)?.len());
    ensure!((nodes, edges) == (4, 3), "{nodes} nodes and {edges} edges");
    run(&gpu, graph, 2)?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == crate::graph_parts::after_steps(8), "{seen}");
    Ok(())
}

fn copies_and_memsets_are_captured(driver: &Driver) -> Outcome {
    use CUgraphNodeType as Type;
    let gpu = Gpu::new(driver)?;
    let (from, to, host) = (gpu.upload(&[4, 5])?, gpu.zeros(2)?, gpu.shared_words(2)?);
    let stream = gpu.stream(NON_BLOCKING)?;
    begin(driver, stream)?;
    ok!(driver, cuMemcpyDtoDAsync_v2(to, from, 8, stream));
    ok!(driver, cuMemsetD32Async(to, 9, 1, stream));
    ok!(driver, cuMemcpyDtoHAsync_v2(host.host(), to, 8, stream));
    let graph = end(driver, stream)?;
    let mut types: Vec<_> =
        nodes(driver, graph)?.iter().map(|node| Ok(type_of(driver, *node)?.0)).collect::<Result<_>>()?;
    types.sort_unstable();
    let (copy, set) = (Type::CU_GRAPH_NODE_TYPE_MEMCPY.0, Type::CU_GRAPH_NODE_TYPE_MEMSET.0);
    ensure!(types == [copy, copy, set], "{types:?}");
    run(&gpu, graph, 1)?;
    ensure!((host.get(0), host.get(1)) == (9, 5), "{}, {}", host.get(0), host.get(1));
    Ok(())
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: registered with the address of a counter that outlives the launches.
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

fn host_functions_are_captured(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, counter) = (gpu.stream(NON_BLOCKING)?, AtomicU32::new(0));
    begin(driver, stream)?;
    ok!(driver, cuLaunchHostFunc(stream, Some(count), core::ptr::from_ref(&counter).cast_mut().cast()));
    let graph = end(driver, stream)?;
    gpu.synchronise()?;
    ensure!(counter.load(Ordering::SeqCst) == 0, "called while it was captured");
    run(&gpu, graph, 3)?;
    let calls = counter.load(Ordering::SeqCst);
    ensure!(calls == 3, "called {calls} times in three launches");
    Ok(())
}

fn fork_and_join_by_events(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, copy, add] = gpu.kernels([c"fill", c"copy", c"add"])?;
    let words = gpu.zeros(2)?;
    let other = crate::gpu::offset(words, 4);
    let (main, side) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    let (fork, join) = (gpu.event()?, gpu.event()?);
    begin(driver, main)?;
    gpu.launch(fill, 1, main, &[&words, &5_u32, &1_u32])?;
    ok!(driver, cuEventRecord(fork, main));
    ok!(driver, cuStreamWaitEvent(side, fork, 0));
    gpu.launch(copy, 1, side, &[&other, &words, &1_u32])?;
    ok!(driver, cuEventRecord(join, side));
    ok!(driver, cuStreamWaitEvent(main, join, 0));
    gpu.launch(add, 1, main, &[&words, &1_u32, &1_u32])?;
    let graph = end(driver, main)?;
    let (nodes, edges) = (nodes(driver, graph)?.len(), edges(driver, graph)?.len());
    ensure!(nodes == 3, "{nodes} nodes");
    note!("three nodes, {edges} edges");
    run(&gpu, graph, 2)?;
    let seen = gpu.read(words, 2)?;
    ensure!(seen == [6, 5], "{seen:?}");
    gpu.is_done(side)
}

fn forked_stream_is_capturing_too(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (main, side, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    begin(driver, main)?;
    ok!(driver, cuEventRecord(event, main));
    ensure!(status(driver, side)? == Status::CU_STREAM_CAPTURE_STATUS_NONE, "capturing before the fork");
    ok!(driver, cuStreamWaitEvent(side, event, 0));
    ensure!(status(driver, side)? == Status::CU_STREAM_CAPTURE_STATUS_ACTIVE, "not capturing after the fork");
    ok!(driver, cuEventRecord(event, side));
    ok!(driver, cuStreamWaitEvent(main, event, 0));
    end(driver, main)?;
    ensure!(status(driver, side)? == Status::CU_STREAM_CAPTURE_STATUS_NONE, "capturing after the end");
    Ok(())
}

fn unjoined_work_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let (main, side, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    begin(driver, main)?;
    ok!(driver, cuEventRecord(event, main));
    ok!(driver, cuStreamWaitEvent(side, event, 0));
    gpu.launch(empty, 1, side, &[])?;
    let mut graph = NO_GRAPH;
    expect!(driver, cuStreamEndCapture(main, &raw mut graph) => CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    ensure!(graph == NO_GRAPH, "a graph was given");
    ensure!(status(driver, main)? == Status::CU_STREAM_CAPTURE_STATUS_NONE, "still capturing");
    gpu.launch(empty, 1, main, &[])?;
    gpu.wait(main)
}

fn status_is_known(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    ensure!(status(driver, stream)? == Status::CU_STREAM_CAPTURE_STATUS_NONE, "capturing from the start");
    ensure!(status(driver, NULL_STREAM)? == Status::CU_STREAM_CAPTURE_STATUS_NONE, "the default stream captures");
    begin(driver, stream)?;
    ensure!(status(driver, stream)? == Status::CU_STREAM_CAPTURE_STATUS_ACTIVE, "not capturing");
    end(driver, stream)?;
    ensure!(status(driver, stream)? == Status::CU_STREAM_CAPTURE_STATUS_NONE, "capturing after the end");
    Ok(())
}

/// What the driver tells of a capture: its number, its graph, and how many nodes the next one will depend on.
fn information(driver: &Driver, stream: CUstream) -> Result<(Status, u64, CUgraph, usize)> {
    let (mut status, mut id, mut graph, mut count) = (Status(u32::MAX), 0, NO_GRAPH, 0);
    let mut dependencies = null();
    ok!(
        driver,
        cuStreamGetCaptureInfo_v2(
            stream,
            &raw mut status,
            &raw mut id,
            &raw mut graph,
            &raw mut dependencies,
            &raw mut count
        )
    );
    Ok((status, id, graph, count))
}

fn information_names_the_graph(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let (first, second) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    ensure!(information(driver, first)?.0 == Status::CU_STREAM_CAPTURE_STATUS_NONE, "capturing from the start");
    begin(driver, first)?;
    begin(driver, second)?;
    ensure!(information(driver, first)?.3 == 0, "a dependency on nothing");
    gpu.launch(empty, 1, first, &[])?;
    let (status, id, graph, dependencies) = information(driver, first)?;
    ensure!(status == Status::CU_STREAM_CAPTURE_STATUS_ACTIVE && dependencies == 1, "{status:?}, {dependencies}");
    ensure!(information(driver, second)?.1 != id, "two captures have the number {id}");
    ensure!(nodes(driver, graph)?.len() == 1, "the graph has another number of nodes");
    let (mut status, mut newer_id, mut newer_graph, mut count) = (Status(u32::MAX), 0, NO_GRAPH, 0);
    ok!(
        driver,
        cuStreamGetCaptureInfo_v3(
            first,
            &raw mut status,
            &raw mut newer_id,
            &raw mut newer_graph,
            null_mut(),
            null_mut(),
            &raw mut count
        )
    );
    ensure!((newer_id, newer_graph, count) == (id, graph, 1), "the newer signature says something else");
    end(driver, second)?;
    ensure!(end(driver, first)? == graph, "the end gives another graph");
    Ok(())
}

fn adds_to_a_graph(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, add] = gpu.kernels([c"fill", c"add"])?;
    let (word, graph, stream) = (gpu.zeros(1)?, new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    let node = crate::graph_parts::add_kernel(driver, graph, &[], fill, &[&word, &5_u32, &1_u32])?;
    let mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    ok!(driver, cuStreamBeginCaptureToGraph(stream, graph, &raw const node, null(), 1, mode));
    gpu.launch(add, 1, stream, &[&word, &1_u32, &1_u32])?;
    ensure!(end(driver, stream)? == graph, "the end gives another graph");
    ensure!(edges(driver, graph)?.len() == 1, "the captured node does not depend on the first");
    run(&gpu, graph, 2)?;
    ensure!(gpu.read(word, 1)? == [6], "the graph does something else");
    Ok(())
}

fn external_record_becomes_a_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, event) = (gpu.stream(NON_BLOCKING)?, gpu.event()?);
    begin(driver, stream)?;
    ok!(driver, cuEventRecordWithFlags(event, stream, CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL.0));
    let graph = end(driver, stream)?;
    let listed = nodes(driver, graph)?;
    ensure!(listed.len() == 1, "{} nodes", listed.len());
    let kind = type_of(driver, listed[0])?;
    ensure!(kind == CUgraphNodeType::CU_GRAPH_NODE_TYPE_EVENT_RECORD, "{kind:?}");
    run(&gpu, graph, 1)?;
    ok!(driver, cuEventSynchronize(event));
    Ok(())
}

fn allocations_become_nodes(driver: &Driver) -> Outcome {
    use CUgraphNodeType as Type;
    let gpu = Gpu::new(driver)?;
    let [fill, copy] = gpu.kernels([c"fill", c"copy"])?;
    let (seen, stream) = (gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    begin(driver, stream)?;
    let mut pointer = NO_ADDRESS;
    ok!(driver, cuMemAllocAsync(&raw mut pointer, 4_096, stream));
    gpu.launch(fill, 1, stream, &[&pointer, &3_u32, &1_u32])?;
    gpu.launch(copy, 1, stream, &[&seen.at(0), &pointer, &1_u32])?;
    ok!(driver, cuMemFreeAsync(pointer, stream));
    let graph = end(driver, stream)?;
    let mut types: Vec<_> =
        nodes(driver, graph)?.iter().map(|node| Ok(type_of(driver, *node)?.0)).collect::<Result<_>>()?;
    types.sort_unstable();
    let kernel = Type::CU_GRAPH_NODE_TYPE_KERNEL.0;
    let (alloc, free) = (Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC.0, Type::CU_GRAPH_NODE_TYPE_MEM_FREE.0);
    ensure!(types == [kernel, kernel, alloc, free], "{types:?}");
    run(&gpu, graph, 2)?;
    ensure!(seen.get(0) == 3, "{} instead of 3", seen.get(0));
    Ok(())
}

fn graph_launch_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (seen, stream) = (gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    begin(driver, stream)?;
    gpu.launch(fill, 1, stream, &[&seen.at(0), &3_u32, &1_u32])?;
    let executable = instantiate(driver, end(driver, stream)?)?;
    begin(driver, stream)?;
    expect!(driver, cuGraphLaunch(executable, stream) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ensure!(status(driver, stream)? == Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED, "the capture is still valid");
    let mut graph = NO_GRAPH;
    expect!(driver, cuStreamEndCapture(stream, &raw mut graph) => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(seen.get(0) == 3, "after the capture the graph does not run");
    Ok(())
}

fn synchronise_invalidates(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let stream = gpu.stream(NON_BLOCKING)?;
    begin(driver, stream)?;
    gpu.launch(empty, 1, stream, &[])?;
    expect!(driver, cuStreamSynchronize(stream) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    ensure!(status(driver, stream)? == Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED, "still valid");
    let code = gpu.try_launch(empty, (1, 1, 1), (1, 1, 1), 0, stream, &[])?;
    ensure!(code == CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "a launch gives {}", describe(code));
    let mut graph = NO_GRAPH;
    expect!(driver, cuStreamEndCapture(stream, &raw mut graph) => CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    ensure!(graph == NO_GRAPH, "a graph was given");
    gpu.launch(empty, 1, stream, &[])?;
    gpu.wait(stream)
}

fn query_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    begin(driver, stream)?;
    expect!(driver, cuStreamQuery(stream) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    note!("after a query the capture is {:?}", status(driver, stream)?);
    Ok(())
}

fn captured_event_cannot_be_queried(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, event) = (gpu.stream(NON_BLOCKING)?, gpu.event()?);
    begin(driver, stream)?;
    ok!(driver, cuEventRecord(event, stream));
    expect!(driver, cuEventQuery(event) => CUDA_ERROR_CAPTURED_EVENT);
    note!("after an event's query the capture is {:?}", status(driver, stream)?);
    let code = noted!(driver, cuEventSynchronize(event), "a captured event, after its query");
    ensure!(code != CUresult::CUDA_SUCCESS, "a captured event was waited for");
    Ok(())
}

fn outside_event_cannot_be_waited_for(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, other, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    ok!(driver, cuEventRecord(event, other));
    begin(driver, stream)?;
    expect!(driver, cuStreamWaitEvent(stream, event, 0) => CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    note!("after that the capture is {:?}", status(driver, stream)?);
    Ok(())
}

fn two_captures_cannot_meet(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (first, second, event) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    begin(driver, first)?;
    begin(driver, second)?;
    ok!(driver, cuEventRecord(event, first));
    expect!(driver, cuStreamWaitEvent(second, event, 0) => CUDA_ERROR_STREAM_CAPTURE_MERGE);
    note!("after that they are {:?} and {:?}", status(driver, first)?, status(driver, second)?);
    Ok(())
}

fn unsafe_calls_are_refused_in_global_mode(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    let mut pointer = NO_ADDRESS;
    expect!(driver, cuMemAlloc_v2(&raw mut pointer, 64) => CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    note!("after that the capture is {:?}", status(driver, stream)?);
    noted!(driver, cuCtxSynchronize(), "during a global capture");
    let mut graph = NO_GRAPH;
    noted!(driver, cuStreamEndCapture(stream, &raw mut graph), "after a refused call");
    gpu.alloc(64)?;
    Ok(())
}

fn unsafe_calls_are_allowed_in_relaxed_mode(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED));
    gpu.alloc(64)?;
    ensure!(status(driver, stream)? == Status::CU_STREAM_CAPTURE_STATUS_ACTIVE, "invalidated");
    end(driver, stream)?;
    Ok(())
}

/// In global mode what other threads ask of their own streams and events ends it; recording and waiting on the GPU does not.
fn asking_ends_a_capture_of_another_thread(driver: &Driver) -> Outcome {
    type Call = fn(&Driver, CUstream, CUevent) -> Result<CUresult>;
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (seen, stream) = (gpu.shared_words(1)?, gpu.stream(NON_BLOCKING)?);
    let (other, event) = (Shared::new(gpu.stream(NON_BLOCKING)?), Shared::new(gpu.event()?));
    ok!(driver, cuEventRecord(event.get(), other.get()));
    gpu.wait(other.get())?;
    let mut context = CUcontext(null_mut());
    ok!(driver, cuCtxGetCurrent(&raw mut context));
    let context = Shared::new(context);
    let asking: [(&str, Call); 4] = [
        ("cuStreamQuery", |driver, stream, _| Ok(cu!(driver, cuStreamQuery(stream)))),
        ("cuStreamSynchronize", |driver, stream, _| Ok(cu!(driver, cuStreamSynchronize(stream)))),
        ("cuEventQuery", |driver, _, event| Ok(cu!(driver, cuEventQuery(event)))),
        ("cuEventSynchronize", |driver, _, event| Ok(cu!(driver, cuEventSynchronize(event)))),
    ];
    let harmless: [(&str, Call); 2] = [
        ("cuEventRecord", |driver, stream, event| Ok(cu!(driver, cuEventRecord(event, stream)))),
        ("cuStreamWaitEvent", |driver, stream, event| Ok(cu!(driver, cuStreamWaitEvent(stream, event, 0)))),
    ];
    let modes = [
        Mode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        Mode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ];
    for mode in modes {
        let ending = asking.iter().map(|call| (call, mode == Mode::CU_STREAM_CAPTURE_MODE_GLOBAL));
        for ((what, ask), ends) in ending.chain(harmless.iter().map(|call| (call, false))) {
            ok!(driver, cuStreamBeginCapture_v2(stream, mode));
            gpu.launch(fill, 1, stream, &[&seen.at(0), &3_u32, &1_u32])?;
            let code = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    ok!(driver, cuCtxSetCurrent(context.get()));
                    ask(driver, other.get(), event.get())
                });
                thread.join().expect("no panic")
            })?;
            let mut graph = NO_GRAPH;
            let ended = cu!(driver, cuStreamEndCapture(stream, &raw mut graph));
            let expected = if ends {
                (CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
            } else {
                (CUresult::CUDA_SUCCESS, CUresult::CUDA_SUCCESS)
            };
            ensure!((code, ended) == expected, "{what} beside a capture in {mode:?}: {code:?}, then {ended:?}");
        }
    }
    Ok(())
}

fn thread_mode_can_be_exchanged(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    ok!(driver, cuThreadExchangeStreamCaptureMode(&raw mut mode));
    ensure!(mode == Mode::CU_STREAM_CAPTURE_MODE_GLOBAL, "{mode:?} from the start");
    let stream = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL));
    gpu.alloc(64)?;
    end(driver, stream)?;
    ok!(driver, cuThreadExchangeStreamCaptureMode(&raw mut mode));
    ensure!(mode == Mode::CU_STREAM_CAPTURE_MODE_RELAXED, "{mode:?} in between");
    Ok(())
}

fn ends_in_its_own_thread(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = Shared::new(gpu.stream(NON_BLOCKING)?);
    begin(driver, stream.get())?;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || -> Outcome {
            Gpu::new(driver)?;
            let mut graph = NO_GRAPH;
            expect!(driver, cuStreamEndCapture(stream.get(), &raw mut graph)
                => CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
            Ok(())
        });
        thread.join().expect("no panic")
    })?;
    let mut graph = NO_GRAPH;
    noted!(driver, cuStreamEndCapture(stream.get(), &raw mut graph), "after another thread tried");
    Ok(())
}

fn end_without_begin(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (stream, mut graph) = (gpu.stream(NON_BLOCKING)?, NO_GRAPH);
    let code = noted!(driver, cuStreamEndCapture(stream, &raw mut graph), "not capturing");
    ensure!(code != CUresult::CUDA_SUCCESS, "a capture has ended that never began");
    Ok(())
}

fn begin_twice(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    begin(driver, stream)?;
    let again = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    let code = noted!(driver, cuStreamBeginCapture_v2(stream, again), "capturing already");
    ensure!(code != CUresult::CUDA_SUCCESS, "one stream captures twice");
    note!("after that the capture is {:?}", status(driver, stream)?);
    Ok(())
}

fn legacy_stream_cannot_capture(driver: &Driver) -> Outcome {
    Gpu::new(driver)?;
    for stream in [NULL_STREAM, LEGACY] {
        let code =
            noted!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED), "legacy stream");
        ensure!(code != CUresult::CUDA_SUCCESS, "the legacy stream captures");
    }
    Ok(())
}

fn per_thread_stream_can_capture(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    begin(driver, PER_THREAD)?;
    gpu.launch(increment, 1, PER_THREAD, &[&word])?;
    let executable = instantiate(driver, end(driver, PER_THREAD)?)?;
    ok!(driver, cuGraphLaunch(executable, PER_THREAD));
    gpu.wait(PER_THREAD)?;
    ensure!(gpu.read(word, 1)? == [1], "the graph has not run once");
    Ok(())
}

fn legacy_work_beside_a_blocking_capture(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    for (name, flags) in [("non-blocking", NON_BLOCKING), ("blocking", BLOCKING)] {
        let (stream, mut graph) = (gpu.stream(flags)?, NO_GRAPH);
        ok!(driver, cuStreamBeginCapture_v2(stream, Mode::CU_STREAM_CAPTURE_MODE_RELAXED));
        let code = gpu.try_launch(empty, (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[])?;
        note!("a launch into NULL while a {name} stream captures gives {}", describe(code));
        note!("then the capture is {:?}", status(driver, stream)?);
        noted!(driver, cuStreamEndCapture(stream, &raw mut graph), name);
    }
    Ok(())
}
