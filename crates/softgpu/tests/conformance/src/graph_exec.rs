//! Executable graphs: launching, updating, switching nodes off.

use crate::Outcome;
use crate::gpu::{BLOCKING, Gpu, NON_BLOCKING, NULL_STREAM, addresses, offset};
use crate::graph_parts::{
    NO_NODE, add_kernel, add_memset, after_steps, instantiate, kernel_parameters, memcpy_parameters, memset_parameters,
    new_graph,
};
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_HOST_NODE_PARAMS, CUdeviceptr, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphInstantiate_flags, CUgraphInstantiateResult,
};

tests! { graph_exec:
    launches_follow_each_other,
    launches_in_two_streams_follow_each_other,
    waits_for_the_stream_and_the_stream_for_it,
    default_streams_launch,
    instantiates_with_parameters,
    uploads,
    flags_can_be_read,
    later_changes_of_the_graph_do_not_show,
    kernel_parameters_can_be_set,
    memset_parameters_can_be_set,
    memcpy_parameters_can_be_set,
    host_parameters_can_be_set,
    nodes_can_be_switched_off,
    updates_from_a_graph_of_the_same_shape,
    refuses_a_graph_of_another_shape,
    refuses_a_node_of_another_type,
    can_be_destroyed_while_running,
}

fn launches_follow_each_other(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let (word, graph, stream) = (gpu.zeros(1)?, new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    add_kernel(driver, graph, &[], step, &[&word])?;
    let executable = instantiate(driver, graph)?;
    for _ in 0..50 {
        ok!(driver, cuGraphLaunch(executable, stream));
    }
    gpu.wait(stream)?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == after_steps(50), "{seen} instead of {}", after_steps(50));
    Ok(())
}

fn launches_in_two_streams_follow_each_other(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let streams = [gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?];
    let first = add_kernel(driver, graph, &[], step, &[&word])?;
    add_kernel(driver, graph, &[first], step, &[&word])?;
    let executable = instantiate(driver, graph)?;
    for turn in 0..20 {
        ok!(driver, cuGraphLaunch(executable, streams[turn % 2]));
    }
    gpu.synchronise()?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == after_steps(40), "{seen} instead of {}", after_steps(40));
    Ok(())
}

fn waits_for_the_stream_and_the_stream_for_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, add] = gpu.kernels([c"fill", c"add"])?;
    let (gate, seen) = (gpu.gate()?, gpu.shared_words(1)?);
    let (graph, stream) = (new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    add_kernel(driver, graph, &[], fill, &[&seen.at(0), &5_u32, &1_u32])?;
    let executable = instantiate(driver, graph)?;
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.launch(add, 1, stream, &[&seen.at(0), &10_u32, &1_u32])?;
    gpu.is_pending(stream)?;
    ensure!(seen.get(0) == 0, "the graph did not wait");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(seen.get(0) == 15, "{} instead of 15", seen.get(0));
    Ok(())
}

fn default_streams_launch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let (word, graph, blocking) = (gpu.zeros(1)?, new_graph(driver)?, gpu.stream(BLOCKING)?);
    add_kernel(driver, graph, &[], step, &[&word])?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphLaunch(executable, blocking));
    ok!(driver, cuGraphLaunch(executable, NULL_STREAM));
    ok!(driver, cuGraphLaunch_ptsz(executable, NULL_STREAM));
    gpu.synchronise()?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == after_steps(3), "{seen} instead of {}", after_steps(3));
    Ok(())
}

fn one_increment(gpu: &Gpu) -> Result<(CUgraph, CUdeviceptr)> {
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(gpu)?);
    add_kernel(gpu, graph, &[], increment, &[&word])?;
    Ok((graph, word))
}

fn instantiates_with_parameters(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, word) = one_increment(&gpu)?;
    let stream = gpu.stream(NON_BLOCKING)?;
    let mut parameters = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0.into(),
        hUploadStream: stream,
        hErrNode_out: NO_NODE,
        result_out: CUgraphInstantiateResult(u32::MAX),
    };
    let mut executable = CUgraphExec(null_mut());
    ok!(driver, cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut parameters));
    ensure!(
        parameters.result_out == CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        "{:?}",
        parameters.result_out
    );
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [1], "the graph has not run once");
    Ok(())
}

fn uploads(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, word) = one_increment(&gpu)?;
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuGraphUpload(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [0], "uploading has run the graph");
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [1], "the graph has not run once");
    Ok(())
}

fn flags_can_be_read(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, _) = one_increment(&gpu)?;
    let wanted = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0.into();
    let (mut executable, mut flags) = (CUgraphExec(null_mut()), u64::MAX);
    ok!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, wanted));
    ok!(driver, cuGraphExecGetFlags(executable, &raw mut flags));
    ensure!(flags == 0, "the flag on priorities came back as {flags:#x}");
    expect!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 1 << 40) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn later_changes_of_the_graph_do_not_show(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (graph, word) = one_increment(&gpu)?;
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    add_kernel(driver, graph, &[], increment, &[&word])?;
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [1], "a node of later has run");
    Ok(())
}

fn kernel_parameters_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (words, graph, stream) = (gpu.zeros(4)?, new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    let node = add_kernel(driver, graph, &[], fill, &[&words, &1_u32, &4_u32])?;
    let executable = instantiate(driver, graph)?;
    let mut pointers = addresses(&[&words, &2_u32, &4_u32]);
    let parameters = kernel_parameters(fill, 3, &mut pointers);
    ok!(driver, cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const parameters));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    let seen = gpu.read(words, 4)?;
    ensure!(seen == [2, 2, 2, 0], "{seen:?}");
    // The graph itself has not changed.
    ok!(driver, cuGraphLaunch(instantiate(driver, graph)?, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(words, 1)? == [1], "the graph has changed too");
    Ok(())
}

fn memset_parameters_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, graph, stream) = (gpu.zeros(2)?, new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    let node = add_memset(&gpu, graph, &[], words, 1)?;
    let executable = instantiate(driver, graph)?;
    let parameters = memset_parameters(offset(words, 4), 6, 1);
    ok!(driver, cuGraphExecMemsetNodeSetParams(executable, node, &raw const parameters, gpu.context));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    let seen = gpu.read(words, 2)?;
    ensure!(seen == [0, 6], "{seen:?}");
    Ok(())
}

fn memcpy_parameters_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to, graph) = (gpu.upload(&[1, 2])?, gpu.zeros(2)?, new_graph(driver)?);
    let (mut node, stream) = (NO_NODE, gpu.stream(NON_BLOCKING)?);
    let copy = memcpy_parameters(to, from, 4);
    ok!(driver, cuGraphAddMemcpyNode(&raw mut node, graph, core::ptr::null(), 0, &raw const copy, gpu.context));
    let executable = instantiate(driver, graph)?;
    let copy = memcpy_parameters(offset(to, 4), offset(from, 4), 4);
    ok!(driver, cuGraphExecMemcpyNodeSetParams(executable, node, &raw const copy, gpu.context));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    let seen = gpu.read(to, 2)?;
    ensure!(seen == [0, 2], "{seen:?}");
    Ok(())
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: every host node here gets the address of a counter that outlives its launches.
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

fn host_parameters_can_be_set(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, stream) = (new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    let counters = [AtomicU32::new(0), AtomicU32::new(0)];
    let calling = |counter: &AtomicU32| CUDA_HOST_NODE_PARAMS {
        fn_: Some(count),
        userData: core::ptr::from_ref(counter).cast_mut().cast(),
    };
    let (mut node, parameters) = (NO_NODE, calling(&counters[0]));
    ok!(driver, cuGraphAddHostNode(&raw mut node, graph, core::ptr::null(), 0, &raw const parameters));
    let executable = instantiate(driver, graph)?;
    let parameters = calling(&counters[1]);
    ok!(driver, cuGraphExecHostNodeSetParams(executable, node, &raw const parameters));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    let calls = counters.map(|counter| counter.load(Ordering::SeqCst));
    ensure!(calls == [0, 1], "{calls:?}");
    Ok(())
}

fn nodes_can_be_switched_off(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, add] = gpu.kernels([c"fill", c"add"])?;
    let (word, graph, stream) = (gpu.zeros(1)?, new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    let first = add_kernel(driver, graph, &[], fill, &[&word, &5_u32, &1_u32])?;
    let second = add_kernel(driver, graph, &[first], add, &[&word, &1_u32, &1_u32])?;
    let executable = instantiate(driver, graph)?;
    let mut enabled = u32::MAX;
    for (switch, expected) in [(1, 6), (0, 5), (1, 6)] {
        ok!(driver, cuGraphNodeSetEnabled(executable, second, switch));
        ok!(driver, cuGraphNodeGetEnabled(executable, second, &raw mut enabled));
        ensure!(enabled == switch, "{enabled} instead of {switch}");
        ok!(driver, cuGraphLaunch(executable, stream));
        gpu.wait(stream)?;
        let seen = gpu.read(word, 1)?[0];
        ensure!(seen == expected, "{seen} instead of {expected} with the node switched to {switch}");
    }
    Ok(())
}

fn update(driver: &Driver, executable: CUgraphExec, graph: CUgraph) -> Result<(u32, CUgraphExecUpdateResultInfo)> {
    let mut info = CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult(u32::MAX),
        errorNode: NO_NODE,
        errorFromNode: NO_NODE,
    };
    let code = cu!(driver, cuGraphExecUpdate_v2(executable, graph, &raw mut info));
    Ok((code.0, info))
}

fn updates_from_a_graph_of_the_same_shape(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (word, stream) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    let filling = |value: u32| -> Result<CUgraph> {
        let graph = new_graph(driver)?;
        let first = add_kernel(driver, graph, &[], fill, &[&word, &0_u32, &1_u32])?;
        add_kernel(driver, graph, &[first], fill, &[&word, &value, &1_u32])?;
        Ok(graph)
    };
    let executable = instantiate(driver, filling(1)?)?;
    let (code, info) = update(driver, executable, filling(2)?)?;
    ensure!(code == 0, "cuGraphExecUpdate gives {code}");
    ensure!(info.result == CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, "{info:?}");
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [2], "the update does not show");
    Ok(())
}

/// `CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE`.
const UPDATE_FAILURE: u32 = 910;

fn refuses_a_graph_of_another_shape(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (graph, word) = one_increment(&gpu)?;
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    let (larger, _) = one_increment(&gpu)?;
    add_kernel(driver, larger, &[], increment, &[&word])?;
    let (code, info) = update(driver, executable, larger)?;
    ensure!(code == UPDATE_FAILURE, "cuGraphExecUpdate gives {code}");
    ensure!(info.result != CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_SUCCESS, "{info:?}");
    note!("one more node: {:?}", info.result);
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ensure!(gpu.read(word, 1)? == [1], "the refused update shows");
    Ok(())
}

fn refuses_a_node_of_another_type(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, word) = one_increment(&gpu)?;
    let executable = instantiate(driver, graph)?;
    let other = new_graph(driver)?;
    add_memset(&gpu, other, &[], word, 1)?;
    let (code, info) = update(driver, executable, other)?;
    ensure!(code == UPDATE_FAILURE, "cuGraphExecUpdate gives {code}");
    note!("a memset instead of a kernel: {:?}", info.result);
    Ok(())
}

fn can_be_destroyed_while_running(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, word) = one_increment(&gpu)?;
    let (gate, executable, stream) = (gpu.gate()?, instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    gpu.hold_at(&gate, stream)?;
    ok!(driver, cuGraphLaunch(executable, stream));
    ok!(driver, cuGraphExecDestroy(executable));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(gpu.read(word, 1)? == [1], "the launched graph has not run");
    Ok(())
}
