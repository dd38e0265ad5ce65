//! Kernels that launch kernels: what nvcc's `<<<…>>>` in a kernel becomes.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Argument, Gpu, NULL_STREAM};
use anyhow::{Result, ensure};
use core::ffi::CStr;
use core::ptr::null_mut;
use detshare_cuda::Driver;
use detshare_cuda::types::{CUfunc_cache, CUfunction_attribute, CUlimit, CUmodule, CUresult};

tests! { dynamic_parallelism:
    children_are_over_before_their_grid,
    a_blocks_own_stream_keeps_its_order,
    tail_comes_last,
    grandchildren,
    named_streams_and_events,
    copies_and_fills,
    impossible_launch_says_so,
    fault_of_a_child,
    kernels_are_named_with_their_launch,
    what_a_kernel_asks_for_in_vain,
    boxes_are_copied_and_filled,
    variants_for_streams_of_threads,
    what_is_set_of_the_context_is_known,
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
.extern .func (.param .b64 result) __cudaCDP2GetParameterBuffer(.param .b64 alignment, .param .b64 bytes);
.extern .func (.param .b32 result) __cudaCDP2LaunchDevice(.param .b64 kernel, .param .b64 buffer,
    .param .align 4 .b8 grid[12], .param .align 4 .b8 block[12], .param .b32 shared, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2LaunchDeviceV2_ptsz(.param .b64 buffer, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2EventRecord_ptsz(.param .b64 event, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2StreamWaitEvent_ptsz(
    .param .b64 stream, .param .b64 event, .param .b32 flags);
.extern .func (.param .b32 result) __cudaCDP2MemsetAsync_ptsz(
    .param .b64 to, .param .b32 value, .param .b64 bytes, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2MemcpyAsync_ptsz(
    .param .b64 to, .param .b64 from, .param .b64 bytes, .param .b32 kind, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2Memset2DAsync(.param .b64 to, .param .b64 pitch, .param .b32 value,
    .param .b64 width, .param .b64 height, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2Memcpy2DAsync(.param .b64 to, .param .b64 to_pitch, .param .b64 from,
    .param .b64 from_pitch, .param .b64 width, .param .b64 height, .param .b32 kind, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2Memcpy3DAsync(.param .b64 box, .param .b64 stream);
.extern .func (.param .b32 result) __cudaCDP2DeviceGetAttribute(
    .param .b64 place, .param .b32 attribute, .param .b32 device);
.extern .func (.param .b32 result) __cudaCDP2DeviceGetLimit(.param .b64 place, .param .b32 limit);
.extern .func (.param .b32 result) __cudaCDP2FuncGetAttributes(.param .b64 place, .param .b64 kernel);
.extern .func (.param .b32 result) __cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor(
    .param .b64 place, .param .b64 kernel, .param .b32 threads, .param .b64 shared);
.extern .func (.param .b32 result) __cudaCDP2DeviceGetCacheConfig(.param .b64 place);
.extern .func (.param .b32 result) __cudaCDP2DeviceGetSharedMemConfig(.param .b64 place);
.extern .func (.param .b32 result) __cudaCDP2RuntimeGetVersion(.param .b64 place);
.extern .func (.param .b32 result) __cudaCDP2Malloc(.param .b64 place, .param .b64 bytes);

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

// `add` with room of `bytes` for its arguments; what became of it is written behind its words.
.visible .entry named_later(.param .u64 data, .param .u64 bytes)
{
    .reg .pred %room;
    .reg .b32 %error;
    .reg .b64 %data, %bytes, %kernel, %buffer;
    ld.param.u64 %data, [data];
    ld.param.u64 %bytes, [bytes];
    mov.u64 %kernel, add;
    call (%buffer), __cudaCDP2GetParameterBuffer, (64, %bytes);
    st.u64 [%buffer], %data;
    setp.gt.u64 %room, %bytes, 8;
    @%room st.u32 [%buffer + 8], 5;
    {
        .param .b64 k;
        .param .b64 p;
        .param .align 4 .b8 g[12];
        .param .align 4 .b8 b[12];
        .param .b32 s;
        .param .b64 t;
        .param .b32 r;
        st.param.b64 [k], %kernel;
        st.param.b64 [p], %buffer;
        st.param.b32 [g], 2;
        st.param.b32 [g + 4], 1;
        st.param.b32 [g + 8], 1;
        st.param.b32 [b], 4;
        st.param.b32 [b + 4], 1;
        st.param.b32 [b + 8], 1;
        st.param.b32 [s], 0;
        st.param.b64 [t], 0;
        call.uni (r), __cudaCDP2LaunchDevice, (k, p, g, b, s, t);
        ld.param.b32 %error, [r];
    }
    st.global.u32 [%data + 16], %error;
    ret;
}

.visible .entry in_vain(.param .u64 data)
{
    .local .align 8 .b8 room[144];
    .reg .b32 %error;
    .reg .b64 %data, %place, %to, %kernel;
    ld.param.u64 %data, [data];
    mov.u64 %kernel, add;
    mov.u64 %place, room;
    cvta.local.u64 %place, %place;
    add.u64 %to, %data, 64;
    call (%error), __cudaCDP2DeviceGetAttribute, (%place, 100000, 0);
    st.global.u32 [%data], %error;
    call (%error), __cudaCDP2DeviceGetAttribute, (%place, 1, 1000);
    st.global.u32 [%data + 4], %error;
    call (%error), __cudaCDP2DeviceGetLimit, (%place, 4);
    st.global.u32 [%data + 8], %error;
    call (%error), __cudaCDP2DeviceGetLimit, (%place, 1000);
    st.global.u32 [%data + 12], %error;
    call (%error), __cudaCDP2FuncGetAttributes, (%place, %data);
    st.global.u32 [%data + 16], %error;
    call (%error), __cudaCDP2OccupancyMaxActiveBlocksPerMultiprocessor, (%place, %kernel, 0, 0);
    st.global.u32 [%data + 20], %error;
    call (%error), __cudaCDP2Memcpy2DAsync, (%to, 4, %data, 4, 8, 2, 3, 0);
    st.global.u32 [%data + 24], %error;
    st.u64 [%place], 1;
    st.u64 [%place + 64], 0;
    call (%error), __cudaCDP2Memcpy3DAsync, (%place, 0);
    st.global.u32 [%data + 28], %error;
    call (%error), __cudaCDP2Malloc, (%place, 0x1000000000);
    st.global.u32 [%data + 32], %error;
    call (%error), __cudaCDP2GetLastError, ();
    st.global.u32 [%data + 36], %error;
    call (%error), __cudaCDP2GetLastError, ();
    st.global.u32 [%data + 40], %error;
    ret;
}

// Four rows of four words: a square in the middle is filled, and the rectangle under its upper left word goes to the end.
.visible .entry move_boxes(.param .u64 data)
{
    .reg .b32 %error;
    .reg .b64 %data, %middle, %end;
    ld.param.u64 %data, [data];
    add.u64 %middle, %data, 20;
    add.u64 %end, %data, 64;
    call (%error), __cudaCDP2Memset2DAsync, (%middle, 16, 0xab, 8, 2, 0);
    call (%error), __cudaCDP2Memcpy2DAsync, (%end, 4, %middle, 16, 4, 3, 3, 0);
    ret;
}

.visible .entry of_threads(.param .u64 data)
{
    .local .align 8 .b8 handles[16];
    .reg .b32 %error;
    .reg .b64 %data, %to, %place, %stream, %event;
    ld.param.u64 %data, [data];
    add.u64 %to, %data, 8;
    mov.u64 %place, handles;
    cvta.local.u64 %place, %place;
    call (%error), __cudaCDP2StreamCreateWithFlags, (%place, 1);
    ld.u64 %stream, [%place];
    call (%error), __cudaCDP2EventCreateWithFlags, (%place, 2);
    ld.u64 %event, [%place];
    call (%error), __cudaCDP2MemsetAsync_ptsz, (%data, 0xcd, 8, 0);
    call (%error), __cudaCDP2EventRecord_ptsz, (%event, 0);
    call (%error), __cudaCDP2StreamWaitEvent_ptsz, (%stream, %event, 0);
    call (%error), __cudaCDP2MemcpyAsync_ptsz, (%to, %data, 8, 3, %stream);
    call (%error), __cudaCDP2LaunchDeviceV2_ptsz, (0, 0);
    st.global.u32 [%data + 16], %error;
    ret;
}

// Limits of the stack and the heap, preference and banks, release, then all that is known of `few`.
.visible .entry settings(.param .u64 data)
{
    .reg .b32 %error;
    .reg .b64 %data, %place, %kernel;
    ld.param.u64 %data, [data];
    mov.u64 %kernel, few;
    call (%error), __cudaCDP2DeviceGetLimit, (%data, 0);
    add.u64 %place, %data, 8;
    call (%error), __cudaCDP2DeviceGetLimit, (%place, 2);
    add.u64 %place, %data, 16;
    call (%error), __cudaCDP2DeviceGetCacheConfig, (%place);
    add.u64 %place, %data, 20;
    call (%error), __cudaCDP2DeviceGetSharedMemConfig, (%place);
    add.u64 %place, %data, 24;
    call (%error), __cudaCDP2RuntimeGetVersion, (%place);
    add.u64 %place, %data, 32;
    call (%error), __cudaCDP2FuncGetAttributes, (%place, %kernel);
    ret;
}

.visible .entry few()
.maxntid 96, 1, 1
{
    .shared .align 4 .b8 room[400];
    .reg .b32 %word;
    st.shared.u32 [room], 0;
    ld.shared.u32 %word, [room];
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

fn kernels_are_named_with_their_launch(driver: &Driver) -> Outcome {
    const INVALID_VALUE: u32 = 1;
    // Two launches of two blocks of four threads, each of which adds five.
    let words = words_after(driver, c"named_later", 1, 5, &[16])?;
    ensure!(words == [20, 20, 20, 20, 0], "launched with room for its arguments: {words:?}");
    let words = words_after(driver, c"named_later", 1, 5, &[8])?;
    ensure!(words == [0, 0, 0, 0, INVALID_VALUE], "launched with too little room: {words:?}");
    Ok(())
}

fn what_a_kernel_asks_for_in_vain(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, c"in_vain")?, gpu.zeros(11)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    let errors = gpu.read(data, 11)?;
    // Value, device, limit that is not there, value, function, value, pitch, not supported, no memory; the last one, none.
    let expected = [1, 101, 215, 1, 98, 1, 12, 801, 2, 2, 0];
    ensure!(errors == expected, "errors {errors:?} instead of {expected:?}");
    Ok(())
}

fn boxes_are_copied_and_filled(driver: &Driver) -> Outcome {
    const FILLED: u32 = 0xabab_abab;
    let gpu = Gpu::new(driver)?;
    let kernel = gpu.function_of(load(driver)?, c"move_boxes")?;
    let mut words: Vec<u32> = (1..=19).collect();
    let data = gpu.upload(&words)?;
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    for filled in [5, 6, 9, 10] {
        words[filled] = FILLED;
    }
    words[16..].copy_from_slice(&[FILLED, FILLED, 14]);
    ensure!(gpu.read(data, 19)? == words, "a square and a rectangle");
    Ok(())
}

fn variants_for_streams_of_threads(driver: &Driver) -> Outcome {
    const FILLED: u32 = 0xcdcd_cdcd;
    let gpu = Gpu::new(driver)?;
    let (kernel, data) = (gpu.function_of(load(driver)?, c"of_threads")?, gpu.zeros(5)?);
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    let words = gpu.read(data, 5)?;
    ensure!(words == [FILLED, FILLED, FILLED, FILLED, 1], "filled, copied behind it, and nothing launched: {words:?}");
    Ok(())
}

fn what_is_set_of_the_context_is_known(driver: &Driver) -> Outcome {
    const STACK: usize = 4096;
    const HEAP: usize = 16 << 20;
    /// Words of `cudaFuncAttributes`.
    const ATTRIBUTES: usize = 36;
    let gpu = Gpu::new(driver)?;
    ok!(driver, cuCtxSetLimit(CUlimit::CU_LIMIT_STACK_SIZE, STACK));
    ok!(driver, cuCtxSetLimit(CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE, HEAP));
    ok!(driver, cuCtxSetCacheConfig(CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL));
    let kernel = gpu.function_of(load(driver)?, c"settings")?;
    let data = gpu.upload(&[u32::MAX; 8 + ATTRIBUTES])?;
    gpu.launch(kernel, 1, NULL_STREAM, &[&data])?;
    let words = gpu.read(data, 8 + ATTRIBUTES)?;
    let limits = [words[0] as usize, words[1] as usize, words[2] as usize, words[3] as usize];
    ensure!(limits == [STACK, 0, HEAP, 0], "limits {limits:?}");
    let (equal, four_bytes) = (CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL.0, 1);
    ensure!(words[4..6] == [equal, four_bytes] && words[6] == 6_000, "settings {:?}", &words[4..7]);
    let attributes = &words[8..];
    // Sizes: shared, constant, local; numbers from the most threads on; what is kept free.
    ensure!(attributes[..2] == [400, 0] && attributes[3] == 0 && attributes[5] == 0, "sizes {:?}", &attributes[..6]);
    let numbers = &attributes[6..19];
    let of_driver = |attribute| {
        let mut value = -1;
        let few = gpu.function_of(load(driver)?, c"few")?;
        ok!(driver, cuFuncGetAttribute(&raw mut value, attribute, few));
        Ok::<_, anyhow::Error>(value.cast_unsigned())
    };
    for (place, attribute) in [0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 14].into_iter().enumerate() {
        let expected = of_driver(CUfunction_attribute(attribute))?;
        ensure!(numbers[place] == expected, "attribute {attribute}: {} instead of {expected}", numbers[place]);
    }
    ensure!(numbers[0] == 96 && attributes[19..] == [0; ATTRIBUTES - 19], "{attributes:?}");
    Ok(())
}
