//! Kernels in small: text in, memory out.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "expected values are small, or meant as bits"
)]

mod asynchronous;
mod atomics;
mod basics;
mod calls;
mod checks;
mod clusters;
mod collectives;
mod conversions;
mod decoding;
mod divergence;
mod faults;
mod floats;
mod fuzz;
mod integers;
mod joined;
mod memory;
mod scheduling;
mod tensor;

use super::decode::decode_checked;
use super::interface::{Fault, Placement, Progress, Shape};
use super::{Cluster, Image, Kernel, decode};
use std::sync::Arc;

/// A slice that every test's kernel fits in many times.
const SLICE: u64 = 10_000_000;

/// Decodes one module. Variables get memory that is never freed.
fn image(source: &str) -> Image {
    try_image(&[source]).unwrap_or_else(|error| panic!("{error}\n{source}"))
}

fn try_image(sources: &[&str]) -> Result<Image, decode::DecodeError> {
    decoded(sources, false)
}

fn decoded(sources: &[&str], check: bool) -> Result<Image, decode::DecodeError> {
    let modules: Vec<_> = sources
        .iter()
        .map(|source| (detshare_ptx::parse(source).unwrap_or_else(|error| panic!("{error}\n{source}")), *source))
        .collect();
    let mut place = |placement: &Placement<'_>| {
        let words = usize::try_from(placement.size.div_ceil(16)).ok()? + 1;
        Some(vec![0u128; words].leak().as_mut_ptr().expose_provenance() as u64)
    };
    if check { decode_checked(&modules, &mut place) } else { decode(&modules, &mut place) }
}

/// A module with one kernel named `k` whose parameters are the addresses `out` and `in`, which are in `%out` and
/// `%in`; `%t` is the thread's index.
fn module(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n\
         .visible .entry k(.param .u64 out, .param .u64 in)\n{{\n\
         .reg .b64 %out, %in, %rd<50>; .reg .b32 %t, %r<100>; .reg .b16 %rs<20>; .reg .pred %p<20>;\n\
         .reg .f32 %f<50>; .reg .f64 %fd<20>;\n\
         ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;\n{body}\nret;\n}}\n"
    )
}

fn shape(grid: [u32; 3], block: [u32; 3], dynamic_shared: u32, parameters: &[u64]) -> Arc<Shape> {
    let parameters: Vec<u8> = parameters.iter().flat_map(|parameter| parameter.to_le_bytes()).collect();
    Arc::new(Shape {
        grid,
        block,
        dynamic_shared,
        parameters: parameters.into(),
        grid_id: 7,
        sm_count: 132,
        system: Arc::default(),
        cluster: None,
        workspace: None,
    })
}

/// A block or cluster that may access all memory.
fn block(kernel: &Arc<Kernel>, shape: &Arc<Shape>, index: [u32; 3]) -> Cluster {
    Cluster::with_memory(kernel, shape, index, |_| 3, |_, _| true)
}

/// Runs one block or cluster of a kernel to its end.
fn run(image: &Image, name: &str, shape: &Arc<Shape>) -> Result<(), Fault> {
    run_at(image, name, shape, [0; 3])
}

fn run_at(image: &Image, name: &str, shape: &Arc<Shape>, index: [u32; 3]) -> Result<(), Fault> {
    let mut block = block(&image.kernels[name], shape, index);
    loop {
        match block.run(SLICE) {
            Progress::Finished => return Ok(()),
            Progress::Idle => std::thread::yield_now(),
            Progress::Yielded => panic!("the kernel does not end"),
            Progress::Fault(fault) => return Err(fault),
        }
    }
}

/// Runs the body for each of so many threads of one block. Each has one `out` of 8 bytes.
fn try_threads(body: &str, threads: u32, input: &[u64]) -> Result<Vec<u64>, Fault> {
    let image = image(&module(body));
    let properties = &image.kernels["k"].properties;
    assert_eq!(properties.unsupported, None, "{body}");
    let mut out = vec![0u64; threads as usize];
    let mut input = input.to_vec();
    let addresses = [out.as_mut_ptr().expose_provenance() as u64, input.as_mut_ptr().expose_provenance() as u64];
    let result = run(&image, "k", &shape([1; 3], [threads, 1, 1], 0, &addresses));
    result.map(|()| out)
}

fn threads(body: &str, threads: u32, input: &[u64]) -> Vec<u64> {
    try_threads(body, threads, input).unwrap_or_else(|fault| panic!("{fault:?}\n{body}"))
}

/// What the body leaves in a 64-bit register, for one thread with these inputs in `%rd10` and following.
fn wide(body: &str, input: &[u64]) -> u64 {
    let loads: String =
        (0..input.len()).map(|at| format!("ld.global.u64 %rd{}, [%in+{}];\n", at + 10, at * 8)).collect();
    threads(&format!("{loads}{body}\nst.global.u64 [%out], %rd0;"), 1, input)[0]
}

/// What the body leaves in `%r0`, for one thread with these inputs in `%r10` and following.
fn narrow(body: &str, input: &[u32]) -> u32 {
    let loads: String =
        (0..input.len()).map(|at| format!("ld.global.u32 %r{}, [%in+{}];\n", at + 10, at * 8)).collect();
    let input: Vec<u64> = input.iter().map(|value| u64::from(*value)).collect();
    let result = threads(&format!("{loads}{body}\nst.global.u32 [%out], %r0;"), 1, &input)[0];
    super::lanes::low(result)
}

/// As [`narrow`], with numbers in `%f10` and following, and the result in `%f0`.
fn float(body: &str, input: &[f32]) -> f32 {
    let moves: String = (0..input.len()).map(|at| format!("mov.b32 %f{}, %r{};\n", at + 10, at + 10)).collect();
    let bits: Vec<u32> = input.iter().map(|value| value.to_bits()).collect();
    f32::from_bits(narrow(&format!("{moves}{body}\nmov.b32 %r0, %f0;"), &bits))
}
