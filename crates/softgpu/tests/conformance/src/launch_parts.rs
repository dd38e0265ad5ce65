//! Launches as before CUDA 4: shape, shared memory and arguments are set one after the other.

use crate::Outcome;
use crate::gpu::{Gpu, NON_BLOCKING};
use anyhow::{Result, ensure};
use detshare_cuda::Driver;
use detshare_cuda::types::{CUdeviceptr, CUfunction, CUresult};

tests! { launch_parts:
    one_block,
    grid_of_two_dimensions,
    in_a_stream,
    arguments_of_every_kind,
    arguments_stay_until_they_are_set_anew,
    arguments_are_copied_at_the_launch,
    shared_memory,
    kernels_have_their_own,
    without_a_shape,
    shapes_that_no_block_has,
}

/// Where `fill`'s parameters lie.
const POINTER: i32 = 0;
const VALUE: i32 = 8;
const COUNT: i32 = 12;
const FILL_BYTES: u32 = 16;

fn set_pointer(gpu: &Gpu<'_>, function: CUfunction, offset: i32, pointer: CUdeviceptr) -> Result<()> {
    let mut pointer = pointer;
    ok!(gpu, cuParamSetv(function, offset, (&raw mut pointer).cast(), 8));
    Ok(())
}

/// Sets all that `fill` needs.
fn prepare_fill(gpu: &Gpu<'_>, fill: CUfunction, pointer: CUdeviceptr, value: u32, count: u32) -> Result<()> {
    ok!(gpu, cuFuncSetBlockShape(fill, 32, 1, 1));
    ok!(gpu, cuParamSetSize(fill, FILL_BYTES));
    set_pointer(gpu, fill, POINTER, pointer)?;
    ok!(gpu, cuParamSeti(fill, VALUE, value));
    ok!(gpu, cuParamSeti(fill, COUNT, count));
    Ok(())
}

fn one_block(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let pointer = gpu.zeros(40)?;
    prepare_fill(&gpu, fill, pointer, 7, 40)?;
    ok!(gpu, cuLaunch(fill));
    let words = gpu.read(pointer, 40)?;
    ensure!(words[..32] == [7; 32] && words[32..] == [0; 8], "other words than those of one block: {words:?}");
    Ok(())
}

fn grid_of_two_dimensions(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let count = gpu.zeros(1)?;
    ok!(gpu, cuFuncSetBlockShape(increment, 4, 3, 2));
    ok!(gpu, cuParamSetSize(increment, 8));
    set_pointer(&gpu, increment, 0, count)?;
    ok!(gpu, cuLaunchGrid(increment, 5, 7));
    ensure!(gpu.read(count, 1)? == [4 * 3 * 2 * 5 * 7], "another number of threads ran");
    Ok(())
}

fn in_a_stream(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (stream, gate) = (gpu.stream(NON_BLOCKING)?, gpu.gate()?);
    let pointer = gpu.zeros(64)?;
    prepare_fill(&gpu, fill, pointer, 3, 64)?;
    gpu.hold_at(&gate, stream)?;
    ok!(gpu, cuLaunchGridAsync(fill, 2, 1, stream));
    gpu.is_pending(stream)?;
    gate.open();
    gpu.wait(stream)?;
    ensure!(gpu.read(pointer, 64)? == [3; 64], "the kernel left other words");
    Ok(())
}

fn arguments_of_every_kind(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [saxpy] = gpu.kernels([c"saxpy"])?;
    let x = gpu.upload(&[1_f32, 2.0, 3.0].map(f32::to_bits))?;
    let y = gpu.upload(&[10_f32, 20.0, 30.0].map(f32::to_bits))?;
    ok!(gpu, cuFuncSetBlockShape(saxpy, 32, 1, 1));
    ok!(gpu, cuParamSetSize(saxpy, 24));
    set_pointer(&gpu, saxpy, 0, y)?;
    set_pointer(&gpu, saxpy, 8, x)?;
    ok!(gpu, cuParamSetf(saxpy, 16, -0.5));
    ok!(gpu, cuParamSeti(saxpy, 20, 2));
    ok!(gpu, cuLaunch(saxpy));
    ensure!(gpu.read(y, 3)? == [9.5_f32, 19.0, 30.0].map(f32::to_bits), "other sums");
    Ok(())
}

fn arguments_stay_until_they_are_set_anew(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [add] = gpu.kernels([c"add"])?;
    let pointer = gpu.zeros(2)?;
    prepare_fill(&gpu, add, pointer, 5, 1)?;
    ok!(gpu, cuLaunch(add));
    ok!(gpu, cuLaunch(add));
    ok!(gpu, cuParamSeti(add, COUNT, 2));
    ok!(gpu, cuLaunch(add));
    ensure!(gpu.read(pointer, 2)? == [15, 5], "other sums");
    Ok(())
}

fn arguments_are_copied_at_the_launch(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (stream, gate) = (gpu.stream(NON_BLOCKING)?, gpu.gate()?);
    let pointer = gpu.zeros(2)?;
    prepare_fill(&gpu, fill, pointer, 1, 2)?;
    gpu.hold_at(&gate, stream)?;
    ok!(gpu, cuLaunchGridAsync(fill, 1, 1, stream));
    ok!(gpu, cuParamSeti(fill, VALUE, 2));
    gate.open();
    gpu.wait(stream)?;
    ensure!(gpu.read(pointer, 2)? == [1, 1], "the launch saw what was set after it");
    Ok(())
}

fn shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let words: Vec<u32> = (0..100).map(|index| index * index).collect();
    let pointer = gpu.upload(&words)?;
    ok!(gpu, cuFuncSetBlockShape(reverse, 100, 1, 1));
    ok!(gpu, cuFuncSetSharedSize(reverse, 400));
    ok!(gpu, cuParamSetSize(reverse, 8));
    set_pointer(&gpu, reverse, 0, pointer)?;
    ok!(gpu, cuLaunch(reverse));
    ensure!(gpu.read(pointer, 100)?.iter().eq(words.iter().rev()), "the words are not reversed");
    Ok(())
}

fn kernels_have_their_own(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill, add] = gpu.kernels([c"fill", c"add"])?;
    let (filled, added) = (gpu.zeros(1)?, gpu.zeros(1)?);
    prepare_fill(&gpu, fill, filled, 4, 1)?;
    prepare_fill(&gpu, add, added, 9, 1)?;
    ok!(gpu, cuLaunch(fill));
    ok!(gpu, cuLaunch(add));
    ensure!((gpu.read(filled, 1)?, gpu.read(added, 1)?) == (vec![4], vec![9]), "kernels have each other's arguments");
    // What `cuLaunchKernel` takes at once changes nothing of it.
    gpu.launch(fill, 1, crate::gpu::NULL_STREAM, &[&added, &1_u32, &1_u32])?;
    ok!(gpu, cuLaunch(fill));
    ensure!((gpu.read(filled, 1)?, gpu.read(added, 1)?) == (vec![4], vec![1]), "another launch changed what was set");
    Ok(())
}

fn without_a_shape(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    ok!(gpu, cuLaunch(empty));
    gpu.synchronise()
}

fn shapes_that_no_block_has(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    for (x, y, z) in [(0, 1, 1), (-1, 1, 1), (1, 2_000, 1), (1, 1, 65), (1_024, 2, 1)] {
        // Where a driver only finds out at the launch, that is where it says so.
        let set = noted!(gpu, cuFuncSetBlockShape(empty, x, y, z), format!("a block of {x}, {y}, {z}"));
        let launched = cu!(gpu, cuLaunch(empty));
        let refused = set != CUresult::CUDA_SUCCESS || launched != CUresult::CUDA_SUCCESS;
        ensure!(refused, "a block of {x}, {y}, {z} ran");
    }
    gpu.synchronise()
}
