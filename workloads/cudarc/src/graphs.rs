//! Work that is captured once and launched many times.

use crate::Program;
use crate::gpu::{Gpu, Numbers, line, same};
use anyhow::{Context, Result, ensure};
use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode, CUstreamCaptureStatus};
use cudarc::driver::{CudaGraph, CudaStream};
use std::sync::Arc;

pub(crate) const PROGRAMS: &[Program] = &[
    ("graphs::capture_and_replay", capture_and_replay),
    ("graphs::copies_and_fills", copies_and_fills),
    ("graphs::two_streams", two_streams),
];

const KERNELS: &str = r#"
extern "C" __global__ void add(unsigned *values, unsigned amount, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] += amount;
}
extern "C" __global__ void mix(const unsigned *from, unsigned *to, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) to[i] = to[i] * 3 + from[(i + 1) % n];
}
"#;

fn begin(stream: &CudaStream) -> Result<()> {
    stream.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
    let status = stream.capture_status()?;
    ensure!(status == CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE, "a capture that is {status:?}");
    Ok(())
}

fn end(stream: &Arc<CudaStream>) -> Result<CudaGraph> {
    stream.end_capture(CUgraphInstantiate_flags(0))?.context("nothing was captured")
}

/// Nothing runs while it is captured; numbers keep the values that they had then.
fn capture_and_replay() -> Result<()> {
    const N: u32 = 700;
    const REPLAYS: u32 = 12;
    let gpu = Gpu::open_untracked()?;
    let add = gpu.module(KERNELS)?.load_function("add")?;
    let mut on_values = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    gpu.stream.synchronize()?;
    begin(&gpu.stream)?;
    for amount in [1_u32, 20, 300] {
        launch!(gpu.stream, add, line(N.div_ceil(128), 128), &mut on_values, &amount, &N)?;
    }
    let graph = end(&gpu.stream)?;
    same(&gpu.stream.clone_dtoh(&on_values)?, &vec![0_u32; N as usize])?;
    graph.upload()?;
    for _ in 0..REPLAYS {
        graph.launch()?;
    }
    same(&gpu.stream.clone_dtoh(&on_values)?, &vec![321 * REPLAYS; N as usize])
}

/// Fills and copies among the kernels; new input between the replays.
fn copies_and_fills() -> Result<()> {
    const N: u32 = 500;
    let gpu = Gpu::open_untracked()?;
    let module = gpu.module(KERNELS)?;
    let (add, mix) = (module.load_function("add")?, module.load_function("mix")?);
    let mut on_input = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    let mut on_work = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    let mut on_output = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    gpu.stream.synchronize()?;
    let shape = line(N.div_ceil(96), 96);
    let amount = 5_u32;
    begin(&gpu.stream)?;
    gpu.stream.memset_zeros(&mut on_output)?;
    gpu.stream.memcpy_dtod(&on_input, &mut on_work)?;
    launch!(gpu.stream, add, shape, &mut on_work, &amount, &N)?;
    launch!(gpu.stream, mix, shape, &on_work, &mut on_output, &N)?;
    launch!(gpu.stream, mix, shape, &on_input, &mut on_output, &N)?;
    let graph = end(&gpu.stream)?;
    let mut numbers = Numbers::new(70);
    for _ in 0..4 {
        let input = numbers.take(N as usize, Numbers::u32);
        gpu.stream.memcpy_htod(&input, &mut on_input)?;
        graph.launch()?;
        let next = |i: usize| input[(i + 1) % input.len()];
        let output = |i: usize| next(i).wrapping_add(amount).wrapping_mul(3).wrapping_add(next(i));
        same(&gpu.stream.clone_dtoh(&on_output)?, &(0..input.len()).map(output).collect::<Vec<_>>())?;
    }
    Ok(())
}

/// A capture that forks to a second stream and joins it again.
fn two_streams() -> Result<()> {
    const N: u32 = 600;
    const REPLAYS: u32 = 3;
    let gpu = Gpu::open_untracked()?;
    let side = gpu.context.new_stream()?;
    let module = gpu.module(KERNELS)?;
    let (add, mix) = (module.load_function("add")?, module.load_function("mix")?);
    let mut on_a = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    let mut on_b = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    gpu.stream.synchronize()?;
    let shape = line(N.div_ceil(128), 128);
    let (one, seven) = (1_u32, 7_u32);
    begin(&gpu.stream)?;
    side.join(&gpu.stream)?;
    launch!(side, add, shape, &mut on_b, &seven, &N)?;
    launch!(gpu.stream, add, shape, &mut on_a, &one, &N)?;
    gpu.stream.join(&side)?;
    launch!(gpu.stream, mix, shape, &on_a, &mut on_b, &N)?;
    let graph = end(&gpu.stream)?;
    for _ in 0..REPLAYS {
        graph.launch()?;
    }
    let replayed = (1..=REPLAYS).fold(0_u32, |b, a| (b + seven) * 3 + a);
    same(&gpu.stream.clone_dtoh(&on_b)?, &vec![replayed; N as usize])
}
