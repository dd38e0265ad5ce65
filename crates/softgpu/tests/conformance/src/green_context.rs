//! Green contexts: a part of the device's multiprocessors with streams of its own.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NO_CONTEXT, NON_BLOCKING, NULL_STREAM};
use crate::graph_parts::{NO_GRAPH, add_kernel, instantiate, new_graph, nodes, parameters_of};
use crate::kernels::PROGRAM;
use anyhow::{Result, ensure};
use core::mem::zeroed;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUDA_KERNEL_NODE_PARAMS, CUcontext, CUdevResource, CUdevResourceDesc, CUdevResourceType, CUdevice_attribute,
    CUdeviceptr, CUfunction, CUgraph, CUgreenCtx, CUgreenCtxCreate_flags, CUkernel, CUlibrary, CUresult, CUstream,
    CUstreamCaptureMode,
};
use std::collections::HashSet;

tests! { green_context:
    device_has_multiprocessors,
    splits_are_whole,
    split_can_be_asked_for_its_number,
    too_large_a_split_is_refused,
    the_rest_may_be_split_or_not,
    kernels_run_in_it,
    kernels_stay_inside,
    two_run_side_by_side,
    streams_must_be_non_blocking,
    stream_knows_its_green_context,
    resource_can_be_read_back,
    becomes_an_ordinary_context,
    can_be_current,
    groups_can_be_joined,
    events_order_it_with_others,
    records_an_event,
    waits_for_an_event,
    memory_and_modules_are_shared,
    legacy_stream_does_not_wait,
    creation_needs_the_flag,
    can_be_destroyed_and_made_again,
    captured_graph_can_be_bound_to_it,
    function_of_a_module_is_bound_to_the_current_one,
    graph_captured_in_it_stays_there,
    bound_executable_can_be_changed,
    executable_graph_cannot_be_bound_to_it,
}

const WITH_STREAM: u32 = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM.0;
const MULTIPROCESSORS: CUdevResourceType = CUdevResourceType::CU_DEV_RESOURCE_TYPE_SM;
/// How many multiprocessors the tests' green contexts have: a multiple of what any device hands out.
const WIDTH: u32 = 16;

fn no_resource() -> CUdevResource {
    // SAFETY: plain values throughout.
    unsafe { zeroed() }
}

fn width(resource: &CUdevResource) -> u32 {
    // SAFETY: the driver filled this in for a resource of multiprocessors, and every pattern is a number.
    unsafe { resource.__bindgen_anon_1.sm.smCount }
}

fn whole_device(gpu: &Gpu) -> Result<CUdevResource> {
    let mut resource = no_resource();
    ok!(gpu, cuDeviceGetDevResource(gpu.device, &raw mut resource, MULTIPROCESSORS));
    if width(&resource) < 2 * WIDTH {
        skip!("the device has only {} multiprocessors", width(&resource));
    }
    Ok(resource)
}

/// The device cut in two: so many multiprocessors, and the rest.
fn split(gpu: &Gpu, wanted: u32) -> Result<(CUdevResource, CUdevResource)> {
    let whole = whole_device(gpu)?;
    let (mut front, mut rest, mut groups) = (no_resource(), no_resource(), 1);
    ok!(gpu, cuDevSmResourceSplitByCount(&raw mut front, &raw mut groups, &raw const whole, &raw mut rest, 0, wanted));
    ensure!(groups == 1, "{groups} groups");
    Ok((front, rest))
}

fn green_of(gpu: &Gpu, resources: &mut [CUdevResource]) -> Result<CUgreenCtx> {
    let (mut description, count) = (CUdevResourceDesc(null_mut()), u32::try_from(resources.len())?);
    ok!(gpu, cuDevResourceGenerateDesc(&raw mut description, resources.as_mut_ptr(), count));
    let mut green = CUgreenCtx(null_mut());
    ok!(gpu, cuGreenCtxCreate(&raw mut green, description, gpu.device, WITH_STREAM));
    ensure!(!green.0.is_null(), "cuGreenCtxCreate gave no context");
    Ok(green)
}

fn stream_in(gpu: &Gpu, green: CUgreenCtx) -> Result<CUstream> {
    let mut stream = NULL_STREAM;
    ok!(gpu, cuGreenCtxStreamCreate(&raw mut stream, green, NON_BLOCKING, 0));
    ensure!(stream != NULL_STREAM, "cuGreenCtxStreamCreate gave no stream");
    Ok(stream)
}

fn context_of(gpu: &Gpu, green: CUgreenCtx) -> Result<CUcontext> {
    let mut context = NO_CONTEXT;
    ok!(gpu, cuCtxFromGreenCtx(&raw mut context, green));
    Ok(context)
}

/// A green context of [`WIDTH`] with a stream.
fn green(gpu: &Gpu) -> Result<(CUgreenCtx, CUstream)> {
    let (front, _) = split(gpu, WIDTH)?;
    let green = green_of(gpu, &mut [front])?;
    Ok((green, stream_in(gpu, green)?))
}

fn device_has_multiprocessors(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let mut whole = no_resource();
    ok!(driver, cuDeviceGetDevResource(gpu.device, &raw mut whole, MULTIPROCESSORS));
    let count = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    ensure!(whole.type_ == MULTIPROCESSORS, "a resource of another type");
    ensure!(width(&whole) == count.unsigned_abs(), "{} of {count} multiprocessors", width(&whole));
    // SAFETY: as in `width`.
    let details = unsafe { whole.__bindgen_anon_1.sm };
    note!("{details:?}");
    Ok(())
}

fn splits_are_whole(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let whole = width(&whole_device(&gpu)?);
    let newer = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? >= 9;
    for wanted in [8, 16, 24, 32] {
        if wanted >= whole {
            break;
        }
        let (front, rest) = split(&gpu, wanted)?;
        let (front, rest) = (width(&front), width(&rest));
        ensure!(front >= wanted && front + rest == whole, "{wanted} of {whole} gives {front} and {rest}");
        if newer {
            ensure!(front == wanted, "{wanted} gives {front}, and multiples of 8 are exact");
        }
    }
    Ok(())
}

fn split_can_be_asked_for_its_number(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let whole = whole_device(&gpu)?;
    let mut groups = 0;
    ok!(driver, cuDevSmResourceSplitByCount(null_mut(), &raw mut groups, &raw const whole, null_mut(), 0, 8));
    ensure!(groups >= 1 && groups * 8 <= width(&whole), "{groups} groups of 8");
    let (mut parts, mut rest) = (vec![no_resource(); groups as usize], no_resource());
    let mut got = groups;
    ok!(driver, cuDevSmResourceSplitByCount(parts.as_mut_ptr(), &raw mut got, &raw const whole, &raw mut rest, 0, 8));
    ensure!(got == groups, "{got} groups instead of {groups}");
    let sum = parts.iter().map(width).sum::<u32>() + width(&rest);
    ensure!(sum == width(&whole), "the parts have {sum} multiprocessors");
    note!("{groups} groups of {} and {} left", width(&parts[0]), width(&rest));
    Ok(())
}

fn too_large_a_split_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let whole = whole_device(&gpu)?;
    let (mut front, mut rest, mut groups) = (no_resource(), no_resource(), 1);
    let code = noted!(
        driver,
        cuDevSmResourceSplitByCount(
            &raw mut front,
            &raw mut groups,
            &raw const whole,
            &raw mut rest,
            0,
            width(&whole) + 1
        ),
        "more than there are"
    );
    ensure!(code != CUresult::CUDA_SUCCESS || groups == 0, "{groups} groups larger than the device");
    Ok(())
}

/// What is left of a split, split once more.
fn the_rest_may_be_split_or_not(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    for wanted in [8, 56, 64] {
        let (_, rest) = split(&gpu, 64)?;
        let (mut part, mut left, mut groups) = (no_resource(), no_resource(), 1);
        noted!(
            driver,
            cuDevSmResourceSplitByCount(&raw mut part, &raw mut groups, &raw const rest, &raw mut left, 0, wanted),
            format_args!("{wanted} of {} that were left", width(&rest))
        );
    }
    Ok(())
}

fn kernels_run_in_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, increment] = gpu.kernels([c"fill", c"increment"])?;
    let (_, stream) = green(&gpu)?;
    let (words, word) = (gpu.zeros(1_000)?, gpu.zeros(1)?);
    gpu.launch(fill, 1_000, stream, &[&words, &3_u32, &1_000_u32])?;
    gpu.launch_shaped(increment, (1_000, 1, 1), (64, 1, 1), 0, stream, &[&word])?;
    gpu.wait(stream)?;
    ensure!(gpu.read(words, 1_000)? == [3; 1_000], "the kernel left other words");
    ensure!(gpu.read(word, 1)? == [64_000], "not every thread has run once");
    Ok(())
}

/// The kernel that tells where it ran, out of a library: nodes of such kernels name the kernel.
fn wide_kernel(gpu: &Gpu) -> Result<CUfunction> {
    let (mut library, none, no_value) = (CUlibrary(null_mut()), null_mut(), null_mut());
    let code = PROGRAM.as_ptr().cast();
    ok!(gpu, cuLibraryLoadData(&raw mut library, code, none, no_value, 0, null_mut(), null_mut(), 0));
    let (mut kernel, mut function) = (CUkernel(null_mut()), CUfunction(null_mut()));
    ok!(gpu, cuLibraryGetKernel(&raw mut kernel, library, c"where_am_i".as_ptr()));
    ok!(gpu, cuKernelGetFunction(&raw mut function, kernel));
    Ok(function)
}

/// On how many multiprocessors a wide kernel ran.
fn places(gpu: &Gpu, launch: impl Fn(CUfunction, CUdeviceptr) -> Result<CUstream>) -> Result<usize> {
    let where_am_i = wide_kernel(gpu)?;
    let out = gpu.zeros(2 * BLOCKS as usize)?;
    gpu.wait(launch(where_am_i, out)?)?;
    let seen = gpu.read(out, 2 * BLOCKS as usize)?;
    Ok(seen.chunks_exact(2).map(|record| record[0]).collect::<HashSet<_>>().len())
}

/// Enough blocks, each long enough, to reach every multiprocessor that is allowed.
const BLOCKS: u32 = 2_000;
const STEPS: u32 = 5_000;

fn kernels_stay_inside(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (_, stream) = green(&gpu)?;
    let used = places(&gpu, |kernel, out| {
        gpu.launch_shaped(kernel, (BLOCKS, 1, 1), (32, 1, 1), 0, stream, &[&out, &STEPS])?;
        Ok(stream)
    })?;
    ensure!(used <= WIDTH as usize, "a context of {WIDTH} ran on {used} multiprocessors");
    note!("a context of {WIDTH} ran on {used}");
    Ok(())
}

fn two_run_side_by_side(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (front, rest) = split(&gpu, WIDTH)?;
    let (front, rest) = (green_of(&gpu, &mut [front])?, green_of(&gpu, &mut [rest])?);
    let (held, free) = (stream_in(&gpu, front)?, stream_in(&gpu, rest)?);
    let (gate, words) = (gpu.gate()?, gpu.shared_words(1)?);
    gpu.hold_at(&gate, held)?;
    gpu.launch(fill, 1, free, &[&words.at(0), &3_u32, &1_u32])?;
    gpu.wait(free)?;
    ensure!(words.get(0) == 3, "the kernel has not run");
    gpu.is_pending(held)?;
    gate.open();
    gpu.wait(held)?;
    gate.was_passed()
}

fn streams_must_be_non_blocking(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, stream) = green(&gpu)?;
    let (mut refused, mut flags) = (NULL_STREAM, 0);
    expect!(driver, cuGreenCtxStreamCreate(&raw mut refused, green, 0, 0) => CUDA_ERROR_INVALID_VALUE);
    ok!(driver, cuStreamGetFlags(stream, &raw mut flags));
    ensure!(flags == NON_BLOCKING, "flags {flags}");
    Ok(())
}

fn stream_knows_its_green_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, stream) = green(&gpu)?;
    let mut found = CUgreenCtx(null_mut());
    ok!(driver, cuStreamGetGreenCtx(stream, &raw mut found));
    ensure!(found == green, "the stream is of another green context");
    let plain = gpu.stream(NON_BLOCKING)?;
    ok!(driver, cuStreamGetGreenCtx(plain, &raw mut found));
    ensure!(found.0.is_null(), "an ordinary stream is of a green context");
    let mut context = NO_CONTEXT;
    ok!(driver, cuStreamGetCtx_v2(stream, &raw mut context, &raw mut found));
    ensure!(found == green, "cuStreamGetCtx_v2 gives {context:?} and {found:?}");
    noted!(driver, cuStreamGetCtx(stream, &raw mut context), "of a green stream");
    Ok(())
}

fn resource_can_be_read_back(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, _) = green(&gpu)?;
    let mut resource = no_resource();
    ok!(driver, cuGreenCtxGetDevResource(green, &raw mut resource, MULTIPROCESSORS));
    ensure!(width(&resource) == WIDTH, "{} multiprocessors", width(&resource));
    resource = no_resource();
    ok!(driver, cuCtxGetDevResource(context_of(&gpu, green)?, &raw mut resource, MULTIPROCESSORS));
    ensure!(width(&resource) == WIDTH, "{} multiprocessors by its context", width(&resource));
    resource = no_resource();
    ok!(driver, cuCtxGetDevResource(gpu.context, &raw mut resource, MULTIPROCESSORS));
    ensure!(width(&resource) == width(&whole_device(&gpu)?), "the primary context has become smaller");
    Ok(())
}

fn becomes_an_ordinary_context(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, _) = green(&gpu)?;
    let context = context_of(&gpu, green)?;
    ensure!(context != NO_CONTEXT && context != gpu.context, "{context:?}");
    ensure!(context_of(&gpu, green)? == context, "it becomes two contexts");
    Ok(())
}

fn can_be_current(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (green, _) = green(&gpu)?;
    let context = context_of(&gpu, green)?;
    ok!(driver, cuCtxSetCurrent(context));
    let mut current = NO_CONTEXT;
    ok!(driver, cuCtxGetCurrent(&raw mut current));
    ensure!(current == context, "another context is current");
    let mut device = crate::gpu::NO_DEVICE;
    ok!(driver, cuCtxGetDevice(&raw mut device));
    ensure!(device == gpu.device, "{device:?}");
    let words = gpu.zeros(4)?;
    gpu.launch(fill, 4, NULL_STREAM, &[&words, &3_u32, &4_u32])?;
    gpu.wait(NULL_STREAM)?;
    ensure!(gpu.read(words, 4)? == [3; 4], "the kernel left other words");
    let stream = gpu.stream(NON_BLOCKING)?;
    gpu.launch(fill, 4, stream, &[&words, &5_u32, &4_u32])?;
    gpu.wait(stream)?;
    ok!(driver, cuCtxSetCurrent(gpu.context));
    ensure!(gpu.read(words, 4)? == [5; 4], "the primary context sees other words");
    Ok(())
}

fn groups_can_be_joined(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let whole = whole_device(&gpu)?;
    let (mut parts, mut groups) = ([no_resource(); 2], 2);
    ok!(driver, cuDevSmResourceSplitByCount(parts.as_mut_ptr(), &raw mut groups, &raw const whole, null_mut(), 0, 8));
    ensure!(groups == 2, "{groups} groups");
    let together = width(&parts[0]) + width(&parts[1]);
    let green = green_of(&gpu, &mut parts)?;
    let mut resource = no_resource();
    ok!(driver, cuGreenCtxGetDevResource(green, &raw mut resource, MULTIPROCESSORS));
    ensure!(width(&resource) == together, "{} instead of {together}", width(&resource));
    Ok(())
}

fn events_order_it_with_others(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [step] = gpu.kernels([c"times_three_plus_one"])?;
    let (_, green) = green(&gpu)?;
    let (word, plain, event) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?, gpu.event()?);
    let streams = [green, plain];
    for turn in 0..40 {
        let (from, to) = (streams[turn % 2], streams[(turn + 1) % 2]);
        gpu.launch(step, 1, from, &[&word])?;
        ok!(driver, cuEventRecord(event, from));
        ok!(driver, cuStreamWaitEvent(to, event, 0));
    }
    gpu.wait(green)?;
    gpu.wait(plain)?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == crate::graph_parts::after_steps(40), "{seen}");
    Ok(())
}

fn records_an_event(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, first) = green(&gpu)?;
    let (gate, event, second) = (gpu.gate()?, gpu.event()?, stream_in(&gpu, green)?);
    gpu.hold_at(&gate, first)?;
    ok!(driver, cuGreenCtxRecordEvent(green, event));
    expect!(driver, cuEventQuery(event) => CUDA_ERROR_NOT_READY);
    gpu.is_done(second)?;
    gate.open();
    ok!(driver, cuEventSynchronize(event));
    gate.was_passed()?;
    gpu.is_done(first)
}

fn waits_for_an_event(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (green, stream) = green(&gpu)?;
    let (gate, event, held) = (gpu.gate()?, gpu.event()?, gpu.stream(NON_BLOCKING)?);
    let words = gpu.shared_words(1)?;
    gpu.hold_at(&gate, held)?;
    ok!(driver, cuEventRecord(event, held));
    ok!(driver, cuGreenCtxWaitEvent(green, event));
    gpu.launch(fill, 1, stream, &[&words.at(0), &1_u32, &1_u32])?;
    gpu.is_pending(stream)?;
    ensure!(words.get(0) == 0, "the green context did not wait");
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(words.get(0) == 1, "the kernel has not run");
    Ok(())
}

fn memory_and_modules_are_shared(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let (front, rest) = split(&gpu, WIDTH)?;
    let (front, rest) = (green_of(&gpu, &mut [front])?, green_of(&gpu, &mut [rest])?);
    let streams = [stream_in(&gpu, front)?, stream_in(&gpu, rest)?, gpu.stream(NON_BLOCKING)?];
    let words = gpu.zeros(100)?;
    for stream in streams {
        gpu.launch(add, 100, stream, &[&words, &5_u32, &100_u32])?;
        gpu.wait(stream)?;
    }
    ensure!(gpu.read(words, 100)? == [15; 100], "the three did not work on the same words");
    Ok(())
}

fn legacy_stream_does_not_wait(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (_, held) = green(&gpu)?;
    let (gate, words) = (gpu.gate()?, gpu.shared_words(1)?);
    gpu.hold_at(&gate, held)?;
    gpu.launch(fill, 1, NULL_STREAM, &[&words.at(0), &1_u32, &1_u32])?;
    gpu.wait(NULL_STREAM)?;
    ensure!(words.get(0) == 1, "the kernel has not run");
    gpu.is_pending(held)?;
    gate.open();
    gpu.wait(held)?;
    gate.was_passed()
}

fn creation_needs_the_flag(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (mut front, _) = split(&gpu, WIDTH)?;
    let mut description = CUdevResourceDesc(null_mut());
    ok!(driver, cuDevResourceGenerateDesc(&raw mut description, &raw mut front, 1));
    let mut green = CUgreenCtx(null_mut());
    expect!(driver, cuGreenCtxCreate(&raw mut green, description, gpu.device, 0) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn can_be_destroyed_and_made_again(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    for _ in 0..3 {
        let (green, stream) = green(&gpu)?;
        gpu.launch(increment, 1, stream, &[&word])?;
        gpu.wait(stream)?;
        ok!(driver, cuStreamDestroy_v2(stream));
        ok!(driver, cuGreenCtxDestroy(green));
    }
    ensure!(gpu.read(word, 1)? == [3], "a launch is missing");
    Ok(())
}

/// A graph with one wide kernel that tells where it ran.
fn wide_graph(driver: &Driver, kernel: CUfunction, out: CUdeviceptr) -> Result<CUgraph> {
    let graph = new_graph(driver)?;
    let node = add_kernel(driver, graph, &[], kernel, &[&out, &STEPS])?;
    let mut parameters = parameters_of(driver, node)?;
    parameters.gridDimX = BLOCKS;
    ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters));
    Ok(graph)
}

fn captured_graph_can_be_bound_to_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, _) = green(&gpu)?;
    let (context, plain) = (context_of(&gpu, green)?, gpu.stream(NON_BLOCKING)?);
    let used = places(&gpu, |kernel, out| {
        let (graph, mut clone) = (wide_graph(driver, kernel, out)?, NO_GRAPH);
        ok!(driver, cuGraphClone(&raw mut clone, graph));
        for node in nodes(driver, clone)? {
            let mut parameters = parameters_of(driver, node)?;
            ensure!(!parameters.kern.0.is_null(), "the node has no kernel");
            parameters.func = CUfunction(null_mut());
            parameters.ctx = context;
            ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters));
        }
        ok!(driver, cuGraphLaunch(instantiate(driver, clone)?, plain));
        Ok(plain)
    })?;
    ensure!(used <= WIDTH as usize, "a graph bound to {WIDTH} ran on {used} multiprocessors");
    note!("a graph bound to {WIDTH} ran on {used}");
    Ok(())
}

/// A kernel out of a module has no `kern`: its node goes where the calling thread is.
fn function_of_a_module_is_bound_to_the_current_one(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, _) = green(&gpu)?;
    let (context, plain) = (context_of(&gpu, green)?, gpu.stream(NON_BLOCKING)?);
    let [kernel] = gpu.kernels([c"where_am_i"])?;
    let used = places(&gpu, |_, out| {
        let graph = wide_graph(driver, kernel, out)?;
        let node = nodes(driver, graph)?[0];
        let parameters = parameters_of(driver, node)?;
        ensure!(parameters.kern.0.is_null(), "a kernel out of a module has a library's handle");
        ok!(driver, cuCtxPushCurrent_v2(context));
        ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters));
        let mut before = NO_CONTEXT;
        ok!(driver, cuCtxPopCurrent_v2(&raw mut before));
        ensure!(parameters_of(driver, node)?.ctx == context, "the node names another context");
        ok!(driver, cuGraphLaunch(instantiate(driver, graph)?, plain));
        Ok(plain)
    })?;
    ensure!(used <= WIDTH as usize, "a graph bound to {WIDTH} ran on {used} multiprocessors");
    Ok(())
}

fn graph_captured_in_it_stays_there(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, inside) = green(&gpu)?;
    let (context, plain) = (context_of(&gpu, green)?, gpu.stream(NON_BLOCKING)?);
    let used = places(&gpu, |kernel, out| {
        let mut graph = NO_GRAPH;
        ok!(driver, cuStreamBeginCapture_v2(inside, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        gpu.launch_shaped(kernel, (BLOCKS, 1, 1), (32, 1, 1), 0, inside, &[&out, &STEPS])?;
        ok!(driver, cuStreamEndCapture(inside, &raw mut graph));
        let node = nodes(driver, graph)?[0];
        ensure!(parameters_of(driver, node)?.ctx == context, "the node names another context");
        ok!(driver, cuGraphLaunch(instantiate(driver, graph)?, plain));
        Ok(plain)
    })?;
    ensure!(used <= WIDTH as usize, "a graph captured on {WIDTH} ran on {used} multiprocessors");
    Ok(())
}

/// With the context that it has; with `func` and another context current it would move.
fn bound_executable_can_be_changed(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, _) = green(&gpu)?;
    let context = context_of(&gpu, green)?;
    let graph = wide_graph(driver, wide_kernel(&gpu)?, gpu.zeros(2 * BLOCKS as usize)?)?;
    let node = nodes(driver, graph)?[0];
    let mut parameters = parameters_of(driver, node)?;
    parameters.func = CUfunction(null_mut());
    parameters.ctx = context;
    ok!(driver, cuGraphKernelNodeSetParams_v2(node, &raw const parameters));
    let executable = instantiate(driver, graph)?;
    let read_back = parameters_of(driver, node)?;
    let again = CUDA_KERNEL_NODE_PARAMS { func: CUfunction(null_mut()), ..read_back };
    ok!(driver, cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const again));
    expect!(driver, cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const read_back)
        => CUDA_ERROR_INVALID_VALUE);
    let mut clone = NO_GRAPH;
    ok!(driver, cuGraphClone(&raw mut clone, graph));
    // SAFETY: numbers and handles, which may be zero.
    let mut info = unsafe { zeroed() };
    ok!(driver, cuGraphExecUpdate_v2(executable, clone, &raw mut info));
    Ok(())
}

fn executable_graph_cannot_be_bound_to_it(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (green, _) = green(&gpu)?;
    let where_am_i = wide_kernel(&gpu)?;
    let out = gpu.zeros(2 * BLOCKS as usize)?;
    let graph = wide_graph(driver, where_am_i, out)?;
    let executable = instantiate(driver, graph)?;
    let node = nodes(driver, graph)?[0];
    let mut parameters = parameters_of(driver, node)?;
    parameters.func = CUfunction(null_mut());
    parameters.ctx = context_of(&gpu, green)?;
    let code = cu!(driver, cuGraphExecKernelNodeSetParams_v2(executable, node, &raw const parameters));
    ensure!(code == CUresult::CUDA_ERROR_INVALID_VALUE, "{}", describe(code));
    Ok(())
}
