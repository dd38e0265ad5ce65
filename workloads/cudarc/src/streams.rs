//! Work on several streams: events between them, streams that cudarc orders by itself, host threads.

use crate::Program;
use crate::gpu::{Gpu, Numbers, line, same};
use anyhow::{Result, ensure};
use cudarc::driver::PushKernelArg;
use cudarc::driver::sys::{CUdevice_attribute, CUevent_flags};
use std::thread;

pub(crate) const PROGRAMS: &[Program] = &[
    ("streams::two_streams_with_events", two_streams_with_events),
    ("streams::overlapping_work", overlapping_work),
    ("streams::ordered_by_cudarc", ordered_by_cudarc),
    ("streams::timed_events", timed_events),
    ("streams::host_threads", host_threads),
    ("streams::cooperative_launch", cooperative_launch),
];

const KERNELS: &str = r#"
extern "C" __global__ void churn(unsigned *values, unsigned rounds, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = values[i];
    for (unsigned round = 0; round < rounds; ++round) value = value * 1664525u + 1013904223u;
    values[i] = value;
}
extern "C" __global__ void combine(const unsigned *a, const unsigned *b, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] ^ b[i];
}
"#;

fn churned(value: u32, rounds: u32) -> u32 {
    (0..rounds).fold(value, |value, _| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))
}

/// A long kernel on one stream, a short one on the other, which then waits for the long one's event.
fn two_streams_with_events() -> Result<()> {
    const N: u32 = 4096;
    const LONG: u32 = 400;
    const SHORT: u32 = 3;
    let gpu = Gpu::open_untracked()?;
    let (first, second) = (&gpu.stream, gpu.context.new_stream()?);
    let module = gpu.module(KERNELS)?;
    let (churn, combine) = (module.load_function("churn")?, module.load_function("combine")?);
    let mut numbers = Numbers::new(50);
    let (a, b) = (numbers.take(N as usize, Numbers::u32), numbers.take(N as usize, Numbers::u32));
    let (mut on_a, mut on_b) = (first.clone_htod(&a)?, second.clone_htod(&b)?);
    let mut on_out = second.alloc_zeros::<u32>(N as usize)?;
    let shape = line(N / 128, 128);
    launch!(first, churn, shape, &mut on_a, &LONG, &N)?;
    let done = first.record_event(None)?;
    launch!(second, churn, shape, &mut on_b, &SHORT, &N)?;
    second.wait(&done)?;
    launch!(second, combine, shape, &on_a, &on_b, &mut on_out, &N)?;
    let out = second.clone_dtoh(&on_out)?;
    second.synchronize()?;
    ensure!(done.is_complete(), "the event is not complete although what waited for it is");
    first.synchronize()?;
    let expected: Vec<u32> = a.iter().zip(&b).map(|(a, b)| churned(*a, LONG) ^ churned(*b, SHORT)).collect();
    same(&out, &expected)
}

/// Chunks that travel on two streams by turns, each copied in, changed and copied out.
fn overlapping_work() -> Result<()> {
    const CHUNK: u32 = 3000;
    const CHUNKS: usize = 8;
    let gpu = Gpu::open()?;
    let streams = [gpu.stream.clone(), gpu.stream.fork()?];
    let churn = gpu.module(KERNELS)?.load_function("churn")?;
    let mut numbers = Numbers::new(51);
    let chunks: Vec<Vec<u32>> = (0..CHUNKS).map(|_| numbers.take(CHUNK as usize, Numbers::u32)).collect();
    let mut outputs = Vec::new();
    for (stream, (rounds, chunk)) in streams.iter().cycle().zip((1_u32..).zip(&chunks)) {
        // SAFETY: any bits are a number, and they are written before they are read.
        let mut pinned = unsafe { gpu.context.alloc_pinned_with_flags::<u32>(chunk.len(), 0) }?;
        pinned.as_mut_slice()?.copy_from_slice(chunk);
        let mut on_chunk = stream.clone_htod(&pinned)?;
        launch!(stream, churn, line(CHUNK.div_ceil(256), 256), &mut on_chunk, &(rounds * 10), &CHUNK)?;
        stream.memcpy_dtoh(&on_chunk, &mut pinned)?;
        outputs.push(pinned);
    }
    streams[0].join(&streams[1])?;
    streams[0].synchronize()?;
    for (rounds, (chunk, output)) in (1_u32..).zip(chunks.iter().zip(&outputs)) {
        let expected: Vec<u32> = chunk.iter().map(|value| churned(*value, rounds * 10)).collect();
        same(output.as_slice()?, &expected)?;
    }
    Ok(())
}

/// One buffer that kernels on three streams change in turn: cudarc's own events keep their order.
fn ordered_by_cudarc() -> Result<()> {
    const N: u32 = 1000;
    const TURNS: u32 = 12;
    let gpu = Gpu::open()?;
    let streams = [gpu.stream.clone(), gpu.context.new_stream()?, gpu.context.new_stream_with_priority(-1)?];
    let churn = gpu.module(KERNELS)?.load_function("churn")?;
    let values = Numbers::new(52).take(N as usize, Numbers::u32);
    let mut on_values = gpu.stream.clone_htod(&values)?;
    for (stream, turn) in streams.iter().cycle().zip(0..TURNS) {
        launch!(stream, churn, line(N.div_ceil(64), 64), &mut on_values, &(turn * 5), &N)?;
    }
    let rounds = (0..TURNS).map(|turn| turn * 5).sum();
    let expected: Vec<u32> = values.iter().map(|value| churned(*value, rounds)).collect();
    same(&gpu.stream.clone_dtoh(&on_values)?, &expected)
}

/// Events that measure: time passes, and it adds up.
fn timed_events() -> Result<()> {
    const N: u32 = 8192;
    let gpu = Gpu::open_untracked()?;
    let churn = gpu.module(KERNELS)?.load_function("churn")?;
    let mut on_values = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    let mut events = vec![gpu.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?];
    for rounds in [50_u32, 500] {
        launch!(gpu.stream, churn, line(N / 256, 256), &mut on_values, &rounds, &N)?;
        events.push(gpu.stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?);
    }
    events[2].synchronize()?;
    ensure!(events.iter().all(|event| event.is_complete()), "an event before a complete one is not complete");
    let (first, second) = (events[0].elapsed_ms(&events[1])?, events[1].elapsed_ms(&events[2])?);
    let whole = events[0].elapsed_ms(&events[2])?;
    ensure!(first > 0.0 && second > 0.0, "kernels that take {first} and {second} ms");
    ensure!((whole - first - second).abs() < 0.01, "{first} ms and {second} ms are {whole} ms together");
    same(&gpu.stream.clone_dtoh(&on_values)?, &vec![churned(0, 550); N as usize])
}

/// Four threads of the host, each with a stream of its own, on one context.
fn host_threads() -> Result<()> {
    const N: u32 = 2000;
    let gpu = Gpu::open()?;
    let churn = gpu.module(KERNELS)?.load_function("churn")?;
    let work = |seed: u64| -> Result<()> {
        let stream = gpu.context.new_stream()?;
        let values = Numbers::new(seed).take(N as usize, Numbers::u32);
        let mut on_values = stream.clone_htod(&values)?;
        for rounds in 1_u32..=10 {
            launch!(stream, churn, line(N.div_ceil(128), 128), &mut on_values, &rounds, &N)?;
        }
        let expected: Vec<u32> = values.iter().map(|value| churned(*value, 55)).collect();
        same(&stream.clone_dtoh(&on_values)?, &expected)
    };
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (60..64).map(|seed| scope.spawn(move || work(seed))).collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

const GRID_BARRIER: &str = r#"
__device__ volatile unsigned arrived = 0;
__device__ void whole_grid(unsigned phase) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd((unsigned *)&arrived, 1u);
        while (arrived < phase * gridDim.x) {}
        __threadfence();
    }
    __syncthreads();
}
extern "C" __global__ void rotate(volatile unsigned *from, volatile unsigned *to, unsigned steps) {
    unsigned n = gridDim.x * blockDim.x, i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned step = 1; step <= steps; ++step) {
        to[i] = from[(i + blockDim.x + 1) % n] + step;
        whole_grid(step);
        volatile unsigned *other = from; from = to; to = other;
    }
}
"#;

/// Blocks that wait for each other: all of them must run at once.
fn cooperative_launch() -> Result<()> {
    const BLOCKS: u32 = 4;
    const THREADS: u32 = 64;
    const STEPS: u32 = 6;
    let gpu = Gpu::open()?;
    let able = gpu.context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)?;
    ensure!(able == 1, "the device cannot launch cooperatively");
    let kernel = gpu.kernel(GRID_BARRIER, "rotate")?;
    let mut values = Numbers::new(53).take((BLOCKS * THREADS) as usize, Numbers::u32);
    let mut from = gpu.stream.clone_htod(&values)?;
    let mut to = gpu.stream.alloc_zeros::<u32>(values.len())?;
    let mut arguments = gpu.stream.launch_builder(&kernel);
    arguments.arg(&mut from).arg(&mut to).arg(&STEPS);
    // SAFETY: the kernel's parameters are two arrays, as long as the grid has threads, and a number.
    unsafe { arguments.launch_cooperative(line(BLOCKS, THREADS)) }?;
    for step in 1..=STEPS {
        values.rotate_left(THREADS as usize + 1);
        values.iter_mut().for_each(|value| *value = value.wrapping_add(step));
    }
    same(&gpu.stream.clone_dtoh(if STEPS.is_multiple_of(2) { &from } else { &to })?, &values)
}
