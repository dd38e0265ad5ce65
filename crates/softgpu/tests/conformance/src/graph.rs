//! Graphs that are built node by node.

use crate::Outcome;
use crate::gpu::{Gpu, NO_ADDRESS, NON_BLOCKING, addresses, offset};
use crate::graph_parts::{
    NO_GRAPH, NO_NODE, add_kernel, add_memset, after_steps, edges, instantiate, kernel_parameters, memcpy_parameters,
    memset_parameters, new_graph, nodes, parameters_of, run, type_of,
};
use anyhow::{Context, Result, ensure};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU32, Ordering};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUDA_HOST_NODE_PARAMS, CUevent, CUgraphExec, CUgraphNodeType, CUmemorytype, CUresult};
use std::ffi::CString;

tests! { graph:
    empty_graph_runs,
    kernels_run_in_order,
    arguments_are_copied_when_added,
    diamond_joins,
    memset_node,
    memcpy_node,
    host_node,
    empty_node_joins,
    event_record_node,
    event_wait_node,
    child_graph_node,
    nodes_edges_and_roots_are_listed,
    nodes_have_types,
    dependencies_are_listed_from_both_sides,
    dependencies_can_be_changed,
    cycle_is_refused,
    clone_is_independent,
    node_is_found_in_the_clone,
    kernel_parameters_can_be_read,
    kernel_parameters_can_be_changed,
    memset_parameters_can_be_changed,
    memcpy_parameters_can_be_changed,
    host_parameters_can_be_changed,
    nodes_can_be_destroyed,
    executable_outlives_the_graph,
    prints_itself,
}

fn empty_graph_runs(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    run(&gpu, new_graph(driver)?, 3)
}

fn kernels_run_in_order(driver: &Driver) -> Outcome {
    const NODES: usize = 20;
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let mut last = Vec::new();
    for _ in 0..NODES {
        last = vec![add_kernel(driver, graph, &last, step, &[&word])?];
    }
    run(&gpu, graph, 2)?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == after_steps(2 * NODES), "{seen} instead of {}", after_steps(2 * NODES));
    Ok(())
}

fn arguments_are_copied_when_added(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let mut value = 1_u32;
    add_kernel(driver, graph, &[], fill, &[&word, &value, &1_u32])?;
    // SAFETY: a variable of this function; volatile, so that it changes before the kernel may run.
    unsafe { (&raw mut value).write_volatile(2) };
    run(&gpu, graph, 1)?;
    ensure!(gpu.read(word, 1)? == [1], "the node saw an argument of later");
    Ok(())
}

fn diamond_joins(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, add] = gpu.kernels([c"fill", c"add"])?;
    let (words, graph) = (gpu.zeros(3)?, new_graph(driver)?);
    let at = |index: usize| offset(words, 4 * index);
    let [copy] = gpu.kernels([c"copy"])?;
    let top = add_kernel(driver, graph, &[], fill, &[&words, &5_u32, &1_u32])?;
    let left = add_kernel(driver, graph, &[top], copy, &[&at(1), &words, &1_u32])?;
    let right = add_kernel(driver, graph, &[top], copy, &[&at(2), &words, &1_u32])?;
    add_kernel(driver, graph, &[left, right], add, &[&words, &1_u32, &1_u32])?;
    run(&gpu, graph, 2)?;
    let seen = gpu.read(words, 3)?;
    ensure!(seen == [6, 5, 5], "{seen:?}");
    Ok(())
}

fn memset_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, graph) = (gpu.upload(&[1; 4])?, new_graph(driver)?);
    add_memset(&gpu, graph, &[], offset(words, 4), 9)?;
    run(&gpu, graph, 1)?;
    let seen = gpu.read(words, 4)?;
    ensure!(seen == [1, 9, 1, 1], "{seen:?}");
    Ok(())
}

fn memcpy_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, middle, host) = (gpu.upload(&[1, 2, 3])?, gpu.zeros(3)?, gpu.shared_words(3)?);
    let graph = new_graph(driver)?;
    let (mut first, mut second) = (NO_NODE, NO_NODE);
    let copy = memcpy_parameters(middle, from, 12);
    ok!(driver, cuGraphAddMemcpyNode(&raw mut first, graph, core::ptr::null(), 0, &raw const copy, gpu.context));
    let mut copy = memcpy_parameters(middle, middle, 12);
    copy.dstMemoryType = CUmemorytype::CU_MEMORYTYPE_HOST;
    copy.dstHost = host.host();
    ok!(driver, cuGraphAddMemcpyNode(&raw mut second, graph, &raw const first, 1, &raw const copy, gpu.context));
    run(&gpu, graph, 1)?;
    ensure!((0..3).map(|index| host.get(index)).eq(1..4), "other words came over");
    Ok(())
}

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: every host node here gets the address of a counter that outlives its launches.
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn count_ten(data: *mut c_void) {
    // SAFETY: as in `count`.
    let counter = unsafe { &*data.cast::<AtomicU32>() };
    counter.fetch_add(10, Ordering::SeqCst);
}

fn host_node_of(counter: &AtomicU32) -> CUDA_HOST_NODE_PARAMS {
    CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: core::ptr::from_ref(counter).cast_mut().cast() }
}

fn host_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, graph, counter) = (gpu.gate()?, new_graph(driver)?, AtomicU32::new(0));
    let (flag, out, passed) = gate.arguments();
    let held = add_kernel(driver, graph, &[], gate.kernel(), &[&flag, &out, &passed])?;
    let mut node = NO_NODE;
    let parameters = host_node_of(&counter);
    ok!(driver, cuGraphAddHostNode(&raw mut node, graph, &raw const held, 1, &raw const parameters));
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.is_pending(stream)?;
    ensure!(counter.load(Ordering::SeqCst) == 0, "called before its turn");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    let calls = counter.load(Ordering::SeqCst);
    ensure!(calls == 2, "called {calls} times in two launches");
    Ok(())
}

fn empty_node_joins(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment, copy] = gpu.kernels([c"increment", c"copy"])?;
    let (words, graph) = (gpu.zeros(2)?, new_graph(driver)?);
    let roots: Vec<_> = (0..5).map(|_| add_kernel(driver, graph, &[], increment, &[&words])).collect::<Result<_>>()?;
    let mut join = NO_NODE;
    ok!(driver, cuGraphAddEmptyNode(&raw mut join, graph, roots.as_ptr(), roots.len()));
    add_kernel(driver, graph, &[join], copy, &[&offset(words, 4), &words, &1_u32])?;
    run(&gpu, graph, 1)?;
    let seen = gpu.read(words, 2)?;
    ensure!(seen == [5, 5], "{seen:?}");
    Ok(())
}

fn event_record_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (gate, graph, event) = (gpu.gate()?, new_graph(driver)?, gpu.event()?);
    let (flag, out, passed) = gate.arguments();
    let held = add_kernel(driver, graph, &[], gate.kernel(), &[&flag, &out, &passed])?;
    let mut node = NO_NODE;
    ok!(driver, cuGraphAddEventRecordNode(&raw mut node, graph, &raw const held, 1, event));
    let mut found = CUevent(null_mut());
    ok!(driver, cuGraphEventRecordNodeGetEvent(node, &raw mut found));
    ensure!(found == event, "the node has another event");
    let (executable, stream) = (instantiate(driver, graph)?, gpu.stream(NON_BLOCKING)?);
    ok!(driver, cuGraphLaunch(executable, stream));
    noted!(driver, cuEventQuery(event), "while the node's turn has not come");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ok!(driver, cuEventQuery(event));
    Ok(())
}

fn event_wait_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, graph, event, seen) = (gpu.gate()?, new_graph(driver)?, gpu.event()?, gpu.shared_words(1)?);
    let mut node = NO_NODE;
    ok!(driver, cuGraphAddEventWaitNode(&raw mut node, graph, core::ptr::null(), 0, event));
    add_kernel(driver, graph, &[node], fill, &[&seen.at(0), &1_u32, &1_u32])?;
    let executable = instantiate(driver, graph)?;
    let (held, stream) = (gpu.stream(NON_BLOCKING)?, gpu.stream(NON_BLOCKING)?);
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(event, held));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.is_pending(stream)?;
    ensure!(seen.get(0) == 0, "the graph did not wait");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(seen.get(0) == 1, "the kernel has not run");
    Ok(())
}

fn child_graph_node(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step, fill] = gpu.kernels([c"times_three_plus_one", c"fill"])?;
    let (word, child, graph) = (gpu.zeros(1)?, new_graph(driver)?, new_graph(driver)?);
    let first = add_kernel(driver, child, &[], step, &[&word])?;
    add_kernel(driver, child, &[first], step, &[&word])?;
    let top = add_kernel(driver, graph, &[], fill, &[&word, &10_u32, &1_u32])?;
    let mut node = NO_NODE;
    ok!(driver, cuGraphAddChildGraphNode(&raw mut node, graph, &raw const top, 1, child));
    add_kernel(driver, graph, &[node], step, &[&word])?;
    let mut inner = NO_GRAPH;
    ok!(driver, cuGraphChildGraphNodeGetGraph(node, &raw mut inner));
    ensure!(nodes(driver, inner)?.len() == 2, "the node's graph has another number of nodes");
    run(&gpu, graph, 2)?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == ((10 * 3 + 1) * 3 + 1) * 3 + 1, "{seen}");
    Ok(())
}

fn nodes_edges_and_roots_are_listed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let graph = new_graph(driver)?;
    ensure!(nodes(driver, graph)?.is_empty() && edges(driver, graph)?.is_empty(), "a new graph is not empty");
    let top = add_kernel(driver, graph, &[], empty, &[])?;
    let middle = add_kernel(driver, graph, &[top], empty, &[])?;
    let bottom = add_kernel(driver, graph, &[top, middle], empty, &[])?;
    let listed = nodes(driver, graph)?;
    ensure!(listed.len() == 3 && [top, middle, bottom].iter().all(|node| listed.contains(node)), "{listed:?}");
    let edges = edges(driver, graph)?;
    let expected = [(top, middle), (top, bottom), (middle, bottom)];
    ensure!(edges.len() == 3 && expected.iter().all(|edge| edges.contains(edge)), "{edges:?}");
    let mut roots = [NO_NODE; 4];
    let mut count = roots.len();
    ok!(driver, cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &raw mut count));
    ensure!(count == 1 && roots == [top, NO_NODE, NO_NODE, NO_NODE], "{count} roots: {roots:?}");
    Ok(())
}

fn nodes_have_types(driver: &Driver) -> Outcome {
    use CUgraphNodeType as Type;
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let (graph, child, event, counter) = (new_graph(driver)?, new_graph(driver)?, gpu.event()?, AtomicU32::new(0));
    let (words, none) = (gpu.zeros(2)?, core::ptr::null());
    let mut added = [NO_NODE; 6];
    let [copy, host, graph_node, nothing, wait, record] = &mut added;
    let copy_parameters = memcpy_parameters(words, offset(words, 4), 4);
    ok!(driver, cuGraphAddMemcpyNode(&raw mut *copy, graph, none, 0, &raw const copy_parameters, gpu.context));
    let host_parameters = host_node_of(&counter);
    ok!(driver, cuGraphAddHostNode(&raw mut *host, graph, none, 0, &raw const host_parameters));
    ok!(driver, cuGraphAddChildGraphNode(&raw mut *graph_node, graph, none, 0, child));
    ok!(driver, cuGraphAddEmptyNode(&raw mut *nothing, graph, none, 0));
    ok!(driver, cuGraphAddEventWaitNode(&raw mut *wait, graph, none, 0, event));
    ok!(driver, cuGraphAddEventRecordNode(&raw mut *record, graph, none, 0, event));
    let expected = [
        (add_kernel(driver, graph, &[], empty, &[])?, Type::CU_GRAPH_NODE_TYPE_KERNEL),
        (add_memset(&gpu, graph, &[], words, 1)?, Type::CU_GRAPH_NODE_TYPE_MEMSET),
        (added[0], Type::CU_GRAPH_NODE_TYPE_MEMCPY),
        (added[1], Type::CU_GRAPH_NODE_TYPE_HOST),
        (added[2], Type::CU_GRAPH_NODE_TYPE_GRAPH),
        (added[3], Type::CU_GRAPH_NODE_TYPE_EMPTY),
        (added[4], Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT),
        (added[5], Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD),
    ];
    for (node, kind) in expected {
        let seen = type_of(driver, node)?;
        ensure!(seen == kind, "{seen:?} instead of {kind:?}");
    }
    Ok(())
}

fn dependencies_are_listed_from_both_sides(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let graph = new_graph(driver)?;
    let top = add_kernel(driver, graph, &[], empty, &[])?;
    let bottom = add_kernel(driver, graph, &[top], empty, &[])?;
    let (mut found, mut count) = ([NO_NODE; 2], 2);
    ok!(driver, cuGraphNodeGetDependencies_v2(bottom, found.as_mut_ptr(), null_mut(), &raw mut count));
    ensure!(count == 1 && found[0] == top, "{count} before: {found:?}");
    (found, count) = ([NO_NODE; 2], 2);
    ok!(driver, cuGraphNodeGetDependentNodes_v2(top, found.as_mut_ptr(), null_mut(), &raw mut count));
    ensure!(count == 1 && found[0] == bottom, "{count} behind: {found:?}");
    ok!(driver, cuGraphNodeGetDependencies_v2(top, null_mut(), null_mut(), &raw mut count));
    ensure!(count == 0, "{count} before the root");
    Ok(())
}

fn dependencies_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, add] = gpu.kernels([c"fill", c"add"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let fill = add_kernel(driver, graph, &[], fill, &[&word, &5_u32, &1_u32])?;
    let add = add_kernel(driver, graph, &[], add, &[&word, &1_u32, &1_u32])?;
    let none = core::ptr::null();
    ok!(driver, cuGraphAddDependencies_v2(graph, &raw const add, &raw const fill, none, 1));
    let twice = noted!(driver, cuGraphAddDependencies_v2(graph, &raw const add, &raw const fill, none, 1), "again");
    ensure!(twice != CUresult::CUDA_SUCCESS, "one dependency was added twice");
    ok!(driver, cuGraphRemoveDependencies_v2(graph, &raw const add, &raw const fill, none, 1));
    ensure!(edges(driver, graph)?.is_empty(), "the dependency is still there");
    ok!(driver, cuGraphAddDependencies_v2(graph, &raw const fill, &raw const add, none, 1));
    run(&gpu, graph, 2)?;
    ensure!(gpu.read(word, 1)? == [6], "not in the order of the new dependency");
    Ok(())
}

fn cycle_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let graph = new_graph(driver)?;
    let first = add_kernel(driver, graph, &[], empty, &[])?;
    let second = add_kernel(driver, graph, &[first], empty, &[])?;
    let back = noted!(
        driver,
        cuGraphAddDependencies_v2(graph, &raw const second, &raw const first, core::ptr::null(), 1),
        "closing a cycle"
    );
    if back == CUresult::CUDA_SUCCESS {
        let mut executable = CUgraphExec(null_mut());
        let code = noted!(driver, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0), "a cycle");
        ensure!(code != CUresult::CUDA_SUCCESS, "a cycle was instantiated");
    }
    Ok(())
}

fn clone_is_independent(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    add_kernel(driver, graph, &[], increment, &[&word])?;
    let mut clone = NO_GRAPH;
    ok!(driver, cuGraphClone(&raw mut clone, graph));
    add_kernel(driver, graph, &[], increment, &[&word])?;
    ensure!((nodes(driver, graph)?.len(), nodes(driver, clone)?.len()) == (2, 1), "the clone follows the original");
    ok!(driver, cuGraphDestroy(graph));
    run(&gpu, clone, 1)?;
    ensure!(gpu.read(word, 1)? == [1], "the clone does something else");
    Ok(())
}

fn node_is_found_in_the_clone(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let graph = new_graph(driver)?;
    let node = add_kernel(driver, graph, &[], empty, &[])?;
    let (mut clone, mut found) = (NO_GRAPH, NO_NODE);
    ok!(driver, cuGraphClone(&raw mut clone, graph));
    ok!(driver, cuGraphNodeFindInClone(&raw mut found, node, clone));
    ensure!(nodes(driver, clone)? == [found] && found != node, "another node was found");
    Ok(())
}

fn kernel_parameters_can_be_read(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let node = add_kernel(driver, graph, &[], fill, &[&word, &77_u32, &1_u32])?;
    let parameters = parameters_of(driver, node)?;
    note!("func is {}", if parameters.func == fill { "the function" } else { "something else" });
    ensure!((parameters.gridDimX, parameters.blockDimX, parameters.sharedMemBytes) == (1, 1, 0), "another shape");
    ensure!(!parameters.kernelParams.is_null(), "no arguments");
    // SAFETY: the driver's list has an entry for each of the kernel's three parameters.
    let second = unsafe { parameters.kernelParams.add(1) };
    // SAFETY: as above.
    let second = unsafe { second.read() };
    // SAFETY: the second parameter has 4 bytes, and the node keeps a copy.
    let value = unsafe { second.cast::<u32>().read() };
    ensure!(value == 77, "the second argument is {value}");
    note!(
        "kern is {}, ctx is {}",
        if parameters.kern.0.is_null() { "NULL" } else { "set" },
        if parameters.ctx == gpu.context { "the primary context" } else { "something else" }
    );
    Ok(())
}

fn kernel_parameters_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (words, graph) = (gpu.zeros(4)?, new_graph(driver)?);
    let node = add_kernel(driver, graph, &[], fill, &[&words, &1_u32, &4_u32])?;
    let mut pointers = addresses(&[&words, &2_u32, &4_u32]);
    let parameters = kernel_parameters(fill, 3, &mut pointers);
    ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters));
    run(&gpu, graph, 1)?;
    let seen = gpu.read(words, 4)?;
    ensure!(seen == [2, 2, 2, 0], "{seen:?}");
    Ok(())
}

fn memset_parameters_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (words, graph) = (gpu.zeros(3)?, new_graph(driver)?);
    let node = add_memset(&gpu, graph, &[], words, 1)?;
    let mut parameters = memset_parameters(NO_ADDRESS, 0, 0);
    ok!(driver, cuGraphMemsetNodeGetParams(node, &raw mut parameters));
    ensure!((parameters.dst, parameters.value, parameters.elementSize) == (words, 1, 4), "{parameters:?}");
    parameters.value = 8;
    parameters.width = 2;
    ok!(driver, cuGraphMemsetNodeSetParams(node, &raw const parameters));
    run(&gpu, graph, 1)?;
    let seen = gpu.read(words, 3)?;
    ensure!(seen == [8, 8, 0], "{seen:?}");
    Ok(())
}

fn memcpy_parameters_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (from, to, graph) = (gpu.upload(&[1, 2, 3])?, gpu.zeros(3)?, new_graph(driver)?);
    let mut node = NO_NODE;
    let copy = memcpy_parameters(to, from, 12);
    ok!(driver, cuGraphAddMemcpyNode(&raw mut node, graph, core::ptr::null(), 0, &raw const copy, gpu.context));
    let mut found = memcpy_parameters(from, to, 0);
    ok!(driver, cuGraphMemcpyNodeGetParams(node, &raw mut found));
    let same = (found.srcDevice, found.dstDevice, found.WidthInBytes) == (from, to, 12);
    ensure!(same, "{found:?}");
    let copy = memcpy_parameters(to, offset(from, 4), 8);
    ok!(driver, cuGraphMemcpyNodeSetParams(node, &raw const copy));
    run(&gpu, graph, 1)?;
    let seen = gpu.read(to, 3)?;
    ensure!(seen == [2, 3, 0], "{seen:?}");
    Ok(())
}

fn host_parameters_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (graph, counter) = (new_graph(driver)?, AtomicU32::new(0));
    let (mut node, mut parameters) = (NO_NODE, host_node_of(&counter));
    ok!(driver, cuGraphAddHostNode(&raw mut node, graph, core::ptr::null(), 0, &raw const parameters));
    let mut found = CUDA_HOST_NODE_PARAMS { fn_: None, userData: null_mut() };
    ok!(driver, cuGraphHostNodeGetParams(node, &raw mut found));
    ensure!(found.userData == parameters.userData && found.fn_.is_some(), "{found:?}");
    parameters.fn_ = Some(count_ten);
    ok!(driver, cuGraphHostNodeSetParams(node, &raw const parameters));
    run(&gpu, graph, 1)?;
    ensure!(counter.load(Ordering::SeqCst) == 10, "the first function was called");
    Ok(())
}

fn nodes_can_be_destroyed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, graph) = (gpu.zeros(1)?, new_graph(driver)?);
    let first = add_kernel(driver, graph, &[], increment, &[&word])?;
    add_kernel(driver, graph, &[first], increment, &[&word])?;
    ok!(driver, cuGraphDestroyNode(first));
    ensure!(nodes(driver, graph)?.len() == 1 && edges(driver, graph)?.is_empty(), "the node has left something");
    run(&gpu, graph, 1)?;
    ensure!(gpu.read(word, 1)? == [1], "the destroyed node has run");
    Ok(())
}

fn executable_outlives_the_graph(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, graph, stream) = (gpu.zeros(1)?, new_graph(driver)?, gpu.stream(NON_BLOCKING)?);
    add_kernel(driver, graph, &[], increment, &[&word])?;
    let executable = instantiate(driver, graph)?;
    ok!(driver, cuGraphDestroy(graph));
    ok!(driver, cuGraphLaunch(executable, stream));
    gpu.wait(stream)?;
    ok!(driver, cuGraphExecDestroy(executable));
    ensure!(gpu.read(word, 1)? == [1], "the graph has not run");
    Ok(())
}

fn prints_itself(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    let graph = new_graph(driver)?;
    let first = add_kernel(driver, graph, &[], empty, &[])?;
    add_kernel(driver, graph, &[first], empty, &[])?;
    let path = std::env::temp_dir().join(format!("conformance-{}.dot", std::process::id()));
    let name = CString::new(path.to_str().context("the temporary folder has an odd name")?)?;
    ok!(driver, cuGraphDebugDotPrint(graph, name.as_ptr(), 0));
    let text = std::fs::read_to_string(&path)?;
    std::fs::remove_file(&path)?;
    ensure!(text.contains("digraph") && text.contains("->"), "{text:?}");
    Ok(())
}
