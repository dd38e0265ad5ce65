//! Kernels that launch kernels: what nvcc's `<<<…>>>` in a kernel becomes.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Argument, Gpu, NULL_STREAM};
use anyhow::{Result, ensure};
use core::ffi::CStr;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUmodule, CUresult};

tests! { dynamic_parallelism:
    children_are_over_before_their_grid,
    a_blocks_own_stream_keeps_its_order,
    tail_comes_last,
    grandchildren,
    named_streams_and_events,
    copies_and_fills,
    impossible_launch_says_so,
    fault_of_a_child,
}

/// `start` launches a kernel of data and a value, of one block. `add` adds the value to each thread's word, `append` writes
/// it behind those that are there, and `tree` adds one and launches itself twice as long as the value is not 0.
const PROGRAM: &CStr = c"
.version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b64 result) __cudaCDP2GetParameterBufferV2(
    .param .b64 kernel, .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2(.param .b64 buffer, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2GetLastError();
.extern .func (.param .b32 result) __cudaCDP2StreamCreateWithFlags(.param .b64 place, .param .b32 flags);
.extern .func (.param .b32 result) __cudaCDP2StreamDestroy(.param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2EventCreateWithFlags(.param .b64 place, .param .b32 flags);
.extern .func (.param .b32 result) __cudaCDP2EventRecord(.param .b64 event, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2StreamWaitEvent(.param .b64 stream, .param .b64 event, .param .b32 flags);
.extern .func (.param .b32 result) __cudaCDP2MemsetAsync(
    .param .b64 to, .param .b32 value, .param .b64 bytes, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2MemcpyAsync(
    .param .b64 to, .param .b64 from, .param .b64 bytes, .param .b32 kind, .param .b64 stream);

.func (.param .b32 error) start(
    .param .b64 kernel, .param .b32 threads, .param .b64 stream, .param .b64 data, .param .b32 value)
{
    .reg .pred %none;
    .reg .b32 %threads, %value, %error;
    .reg .b64 %kernel, %stream, %data, %buffer;
    ld.param.u64 %kernel, [kernel];
    ld.param.u32 %threads, [threads];
    ld.param.u64 %stream, [stream];
    ld.param.u64 %data, [data];
    ld.param.u32 %value, [value];
    {
        .param .b64 k;
        .param .align 4 .b8 g[12];
        .param .align 4 .b8 b[12];
        .param .b32 s;
        .param .b64 r;
        st.param.b64 [k], %kernel;
        st.param.b32 [g], 1;
        st.param.b32 [g + 4], 1;
        st.param.b32 [g + 8], 1;
        st.param.b32 [b], %threads;
        st.param.b32 [b + 4], 1;
        st.param.b32 [b + 8], 1;
        st.param.b32 [s], 0;
        call.uni (r), __cudaCDP2GetParameterBufferV2, (k, g, b, s);
        ld.param.b64 %buffer, [r];
    }
    mov.u32 %error, 1;
    setp.eq.u64 %none, %buffer, 0;
    @%none bra over;
    st.u64 [%buffer], %data;
    st.u32 [%buffer + 8], %value;
    {
        .param .b64 b;
        .param .b64 s;
        .param .b32 r;
        st.param.b64 [b], %buffer;
        st.param.b64 [s], %stream;
        call.uni (r), __cudaCDP2LaunchDeviceV2, (b, s);
        ld.param.b32 %error, [r];
    }
over:
    st.param.b32 [error], %error;
    ret;
}

.visible .entry add(.param .u64 data, .param .u32 value)
{
    .reg .b32 %thread, %value;
    .reg .b64 %data, %offset;
    ld.param.u64 %data, [data];
    ld.param.u32 %value, [value];
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %offset, %thread, 4;
    add.u64 %data, %data, %offset;
    red.global.add.u32 [%data], %value;
    ret;
}

.visible .entry append(.param .u64 data, .param .u32 value)
{
    .reg .b32 %place, %value;
    .reg .b64 %data, %offset;
    ld.param.u64 %data, [data];
    ld.param.u32 %value, [value];
    atom.global.add.u32 %place, [%data], 1;
    mul.wide.u32 %offset, %place, 4;
    add.u64 %data, %data, %offset;
    st.global.u32 [%data + 4], %value;
    ret;
}

.visible .entry tree(.param .u64 data, .param .u32 value)
{
    .reg .pred %leaf;
    .reg .b32 %value, %error;
    .reg .b64 %data, %tree;
    ld.param.u64 %data, [data];
    ld.param.u32 %value, [value];
    red.global.add.u32 [%data], 1;
    setp.eq.u32 %leaf, %value, 0;
    @%leaf ret;
    sub.u32 %value, %value, 1;
    mov.u64 %tree, tree;
    call (%error), start, (%tree, 1, 4, %data, %value);
    call (%error), start, (%tree, 1, 0, %data, %value);
    ret;
}

.visible .entry wrong(.param .u64 data, .param .u32 value)
{
    .reg .b64 %nowhere;
    mov.u64 %nowhere, 256;
    st.global.u32 [%nowhere], 1;
    ret;
}

.visible .entry forget(.param .u64 data)
{
    .reg .b32 %error;
    .reg .b64 %data, %kernel;
    ld.param.u64 %data, [data];
    mov.u64 %kernel, add;
    call (%error), start, (%kernel, 32, 4, %data, 1);
    ret;
}

.visible .entry in_order(.param .u64 data, .param .u64 last)
{
    .reg .pred %more;
    .reg .b32 %i, %error;
    .reg .b64 %data, %kernel, %last, %stream;
    ld.param.u64 %data, [data];
    ld.param.u64 %last, [last];
    mov.u64 %kernel, append;
    mov.u32 %i, 0;
again:
    add.u32 %i, %i, 1;
    setp.eq.u32 %more, %i, 1;
    selp.b64 %stream, %last, 0, %more;
    call (%error), start, (%kernel, 1, %stream, %data, %i);
    setp.lt.u32 %more, %i, 40;
    @%more bra again;
    ret;
}

.visible .entry with_event(.param .u64 data)
{
    .local .align 8 .b8 handles[24];
    .reg .b32 %error;
    .reg .b64 %data, %kernel, %place, %first, %second, %event;
    ld.param.u64 %data, [data];
    mov.u64 %kernel, append;
    mov.u64 %place, handles;
    cvta.local.u64 %place, %place;
    call (%error), __cudaCDP2StreamCreateWithFlags, (%place, 1);
    ld.u64 %first, [%place];
    call (%error), __cudaCDP2StreamCreateWithFlags, (%place, 1);
    ld.u64 %second, [%place];
    call (%error), __cudaCDP2EventCreateWithFlags, (%place, 2);
    ld.u64 %event, [%place];
    call (%error), start, (%kernel, 1, %first, %data, 1);
    call (%error), start, (%kernel, 1, %first, %data, 2);
    call (%error), __cudaCDP2EventRecord, (%event, %first);
    call (%error), __cudaCDP2StreamWaitEvent, (%second, %event, 0);
    call (%error), start, (%kernel, 1, %second, %data, 3);
    call (%error), __cudaCDP2StreamDestroy, (%first);
    call (%error), __cudaCDP2StreamDestroy, (%second);
    ret;
}

.visible .entry move(.param .u64 data)
{
    .reg .b32 %error;
    .reg .b64 %data, %to;
    ld.param.u64 %data, [data];
    add.u64 %to, %data, 8;
    call (%error), __cudaCDP2MemsetAsync, (%data, 0xab, 8, 0);
    call (%error), __cudaCDP2MemcpyAsync, (%to, %data, 8, 3, 0);
    ret;
}

.visible .entry too_large(.param .u64 data)
{
    .reg .b32 %error;
    .reg .b64 %data, %kernel;
    ld.param.u64 %data, [data];
    mov.u64 %kernel, add;
    call (%error), start, (%kernel, 5000, 0, %data, 1);
    st.global.u32 [%data], %error;
    call (%error), __cudaCDP2GetLastError, ();
    st.global.u32 [%data + 4], %error;
    call (%error), __cudaCDP2GetLastError, ();
    st.global.u32 [%data + 8], %error;
    ret;
}

.visible .entry to_nowhere(.param .u64 data)
{
    .reg .b32 %error;
    .reg .b64 %data, %kernel;
    ld.param.u64 %data, [data];
    mov.u64 %kernel, wrong;
    call (%error), start, (%kernel, 1, 0, %data, 1);
    ret;
}
";

/// The program, where the driver brings its device runtime along.
fn load(driver: &Driver) -> Result<CUmodule> {
    let mut module = CUmodule(null_mut());
    let code = cu!(driver, cuModuleLoadData(&raw mut module, PROGRAM.as_ptr().cast()));
    if code != CUresult::CUDA_SUCCESS {
        skip!("the driver has no device runtime of its own: {}", describe(code));
    }
    Ok(module)
}

/// What a kernel of data has made of that many words, all of which were 0.
fn words_after(driver: &Driver, name: &CStr, threads: u32, words: usize, more: &[u64]) -> Result<Vec<u32>> {
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, name)?, gpu.zeros(words)?);
    let mut arguments: Vec<&dyn Argument> = vec![&data];
    arguments.extend(more.iter().map(|value| value as &dyn Argument));
    gpu.launch_shaped(kernel, (2, 1, 1), (threads, 1, 1), 0, NULL_STREAM, &arguments)?;
    // A copy waits for the stream, and so for all that it has launched.
    gpu.read(data, words)
}

fn children_are_over_before_their_grid(driver: &Driver) -> Outcome {
    let words = words_after(driver, c"forget", 3, 33, &[])?;
    ensure!(words[..32] == [6; 32] && words[32] == 0, "six children of 32 threads left {words:?}");
    Ok(())
}

/// The values that each of the two blocks has appended.
fn appended(driver: &Driver, first_to: u64) -> Result<Vec<u32>> {
    let words = words_after(driver, c"in_order", 1, 81, &[first_to])?;
    ensure!(words[0] == 80, "{} of 80 values", words[0]);
    Ok(words[1..].to_vec())
}

fn a_blocks_own_stream_keeps_its_order(driver: &Driver) -> Outcome {
    let values = appended(driver, 0)?;
    // Blocks have streams of their own, so theirs may mix: each value comes for the second time after those before it.
    for value in 1..40 {
        let places = |value| values.iter().enumerate().filter(move |(_, it)| **it == value).map(|(place, _)| place);
        ensure!(places(value).min() < places(value + 1).min(), "{} came before {value}", value + 1);
        ensure!(places(value).max() < places(value + 1).max(), "{} came before {value}", value + 1);
    }
    Ok(())
}

fn tail_comes_last(driver: &Driver) -> Outcome {
    const TAIL: u64 = 3;
    let values = appended(driver, TAIL)?;
    ensure!(values[78..] == [1, 1], "what was launched for the end came before it: {values:?}");
    Ok(())
}

fn grandchildren(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (tree, count) = (gpu.function_of(load(driver)?, c"tree")?, gpu.zeros(1)?);
    gpu.launch(tree, 1, NULL_STREAM, &[&count, &6_u32])?;
    ensure!(gpu.read(count, 1)? == [127], "a tree of seven levels has 127 nodes");
    Ok(())
}

fn named_streams_and_events(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, c"with_event")?, gpu.zeros(4)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    ensure!(gpu.read(data, 4)? == [3, 1, 2, 3], "another order than the event's");
    Ok(())
}

fn copies_and_fills(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, c"move")?, gpu.zeros(5)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    ensure!(gpu.read(data, 5)? == [0xabab_abab, 0xabab_abab, 0xabab_abab, 0xabab_abab, 0], "a fill and a copy of it");
    Ok(())
}

fn impossible_launch_says_so(driver: &Driver) -> Outcome {
    const INVALID_CONFIGURATION: u32 = 9;
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, c"too_large")?, gpu.zeros(3)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    let errors = gpu.read(data, 3)?;
    note!("a block of 5000 threads gives {errors:?}");
    ensure!(errors == [INVALID_CONFIGURATION, INVALID_CONFIGURATION, 0], "errors {errors:?}");
    Ok(())
}

fn fault_of_a_child(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, c"to_nowhere")?, gpu.zeros(1)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    expect!(driver, cuCtxSynchronize() => CUDA_ERROR_ILLEGAL_ADDRESS);
    Ok(())
}
