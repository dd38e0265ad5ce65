//! Launches: arguments, shapes, shared memory, attributes, and what is refused.

use crate::Outcome;
use crate::call::describe;
use crate::gpu::{Gpu, NON_BLOCKING, NULL_STREAM, PER_THREAD, Size, addresses};
use crate::kernels::VARIABLES;
use anyhow::{Result, ensure};
use core::ffi::c_void;
use core::mem::zeroed;
use core::ptr::{null_mut, without_provenance_mut};
use detshare_cuda::Driver;
use detshare_cuda::types::{
    CUdevice_attribute, CUdeviceptr, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchConfig, CUresult,
    CUstream,
};

tests! { launch:
    arguments_by_pointers,
    arguments_by_buffer,
    arguments_of_every_size,
    arguments_are_copied_at_the_call,
    both_ways_of_arguments_are_refused,
    missing_arguments,
    buffer_of_the_wrong_size,
    no_arguments,
    saxpy_gives_the_same_bits,
    every_thread_runs_once,
    many_blocks,
    shape_in_three_dimensions,
    dynamic_shared_memory,
    static_shared_memory,
    too_much_shared_memory_is_refused,
    zero_sizes_are_refused,
    huge_blocks_are_refused,
    huge_grids_are_refused,
    more_threads_than_the_kernel_allows,
    no_function,
    refused_launch_leaves_no_trace,
    extended_without_attributes,
    extended_with_priority,
    extended_with_cooperation,
    extended_with_unknown_attribute,
    cooperative_fits,
    cooperative_fills_the_device,
    cooperative_too_large_is_refused,
    per_thread_variants,
    host_memory_as_argument,
}

/// Terms of the list that hands over arguments in a buffer.
const LIST_END: *mut c_void = null_mut();
const BUFFER_POINTER: *mut c_void = without_provenance_mut(1);
const BUFFER_SIZE: *mut c_void = without_provenance_mut(2);

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

fn arguments_by_pointers(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [copy] = gpu.kernels([c"copy"])?;
    let from = gpu.upload(&[1, 2, 3, 4])?;
    let to = gpu.zeros(4)?;
    gpu.launch(copy, 3, NULL_STREAM, &[&to, &from, &3_u32])?;
    ensure!(gpu.read(to, 4)? == [1, 2, 3, 0], "the kernel left other words");
    Ok(())
}

/// `fill`'s parameters as they lie in its buffer.
#[repr(C)]
struct FillArguments {
    pointer: CUdeviceptr,
    value: u32,
    count: u32,
}

fn launch_by_buffer(driver: &Driver, fill: CUfunction, arguments: &mut FillArguments, size: usize) -> Result<CUresult> {
    let mut size = size;
    let mut list =
        [BUFFER_POINTER, core::ptr::from_mut(arguments).cast(), BUFFER_SIZE, (&raw mut size).cast(), LIST_END];
    Ok(cu!(driver, cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, NULL_STREAM, null_mut(), list.as_mut_ptr())))
}

fn arguments_by_buffer(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let pointer = gpu.zeros(4)?;
    let mut arguments = FillArguments { pointer, value: 9, count: 3 };
    let code = launch_by_buffer(driver, fill, &mut arguments, size_of::<FillArguments>())?;
    ensure!(code == CUresult::CUDA_SUCCESS, "{}", describe(code));
    ensure!(gpu.read(pointer, 4)? == [9, 9, 9, 0], "the kernel left other words");
    Ok(())
}

fn arguments_of_every_size(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [many] = gpu.kernels([c"many"])?;
    let out = gpu.zeros(10)?;
    let (wide, real) = (0x1122_3344_5566_7788_u64, -1.5_f64);
    let triple = [0xaaaa_aaaa_u32, 0xbbbb_bbbb, 0xcccc_cccc];
    gpu.launch(many, 1, NULL_STREAM, &[&out, &0xdead_beef_u32, &0xcafe_u16, &wide, &triple, &0x7f_u8, &real])?;
    let seen = gpu.read(out, 10)?;
    let [wide_low, wide_high] = [0x5566_7788, 0x1122_3344];
    let [real_low, real_high] = [0, 0xbff8_0000];
    let expected =
        [wide_low, wide_high, real_low, real_high, 0xdead_beef, 0xcafe, 0x7f, triple[0], triple[1], triple[2]];
    ensure!(seen == expected, "{seen:x?} instead of {expected:x?}");
    Ok(())
}

fn arguments_are_copied_at_the_call(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let (gate, stream) = (gpu.gate()?, gpu.stream(NON_BLOCKING)?);
    let words = gpu.zeros(1)?;
    gpu.hold_at(&gate, stream)?;
    let mut value = 1_u32;
    let count = 1_u32;
    let mut pointers = addresses(&[&words, &0_u32, &count]);
    pointers[1] = (&raw mut value).cast();
    ok!(driver, cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, stream, pointers.as_mut_ptr(), null_mut()));
    // SAFETY: a variable of this function; volatile, so that it changes before the kernel may run.
    unsafe { (&raw mut value).write_volatile(2) };
    gate.open();
    gpu.wait(stream)?;
    gate.was_passed()?;
    ensure!(gpu.read(words, 1)? == [1], "the kernel saw an argument of later");
    Ok(())
}

fn both_ways_of_arguments_are_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let pointer = gpu.zeros(1)?;
    let mut arguments = FillArguments { pointer, value: 9, count: 1 };
    let mut size = size_of::<FillArguments>();
    let mut list = [BUFFER_POINTER, (&raw mut arguments).cast(), BUFFER_SIZE, (&raw mut size).cast(), LIST_END];
    let mut pointers = addresses(&[&pointer, &9_u32, &1_u32]);
    expect!(driver, cuLaunchKernel(
        fill, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, pointers.as_mut_ptr(), list.as_mut_ptr()
    ) => CUDA_ERROR_INVALID_VALUE);
    Ok(())
}

fn missing_arguments(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let code = noted!(
        driver,
        cuLaunchKernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, null_mut(), null_mut()),
        "three parameters, no arguments"
    );
    ensure!(code != CUresult::CUDA_SUCCESS, "a kernel was launched without its arguments");
    Ok(())
}

fn buffer_of_the_wrong_size(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [fill] = gpu.kernels([c"fill"])?;
    let pointer = gpu.zeros(4)?;
    for size in [0, 4, 8] {
        let mut arguments = FillArguments { pointer, value: 9, count: 1 };
        let code = launch_by_buffer(driver, fill, &mut arguments, size)?;
        note!("{size} of 16 bytes give {}", describe(code));
    }
    Ok(())
}

fn no_arguments(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [empty] = gpu.kernels([c"empty"])?;
    ok!(driver, cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, null_mut(), null_mut()));
    gpu.launch(empty, 1, NULL_STREAM, &[])?;
    gpu.synchronise()
}

fn saxpy_gives_the_same_bits(driver: &Driver) -> Outcome {
    const COUNT: u32 = 10_000;
    let gpu = Gpu::new(driver)?;
    let [saxpy] = gpu.kernels([c"saxpy"])?;
    let scale = 1.1_f32;
    let values: Vec<(f32, f32)> = (0..COUNT).map(f64::from).map(pair).collect();
    let bits = |values: Vec<f32>| -> Vec<u32> { values.into_iter().map(f32::to_bits).collect() };
    let x = gpu.upload(&bits(values.iter().map(|(x, _)| *x).collect()))?;
    let y = gpu.upload(&bits(values.iter().map(|(_, y)| *y).collect()))?;
    gpu.launch(saxpy, COUNT, NULL_STREAM, &[&y, &x, &scale, &COUNT])?;
    let expected = bits(values.iter().map(|(x, y)| scale.mul_add(*x, *y)).collect());
    ensure!(gpu.read(y, values.len())? == expected, "some sums have other bits");
    Ok(())
}

/// Two numbers that need rounding.
#[allow(clippy::cast_possible_truncation, reason = "rounding is the point")]
fn pair(index: f64) -> (f32, f32) {
    ((index / 3.0) as f32, (index / 7.0 - 100.0) as f32)
}

fn every_thread_runs_once(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    for (grid, block) in
        [((1, 1, 1), (1, 1, 1)), ((7, 1, 1), (33, 1, 1)), ((3, 4, 5), (8, 4, 2)), ((2, 1, 1), (1_024, 1, 1))]
    {
        let word = gpu.zeros(1)?;
        gpu.launch_shaped(increment, grid, block, 0, NULL_STREAM, &[&word])?;
        let expected = grid.0 * grid.1 * grid.2 * block.0 * block.1 * block.2;
        let seen = gpu.read(word, 1)?[0];
        ensure!(seen == expected, "{seen} threads of {expected} ran in {grid:?} blocks of {block:?}");
    }
    Ok(())
}

fn many_blocks(driver: &Driver) -> Outcome {
    const BLOCKS: u32 = 100_000;
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    gpu.launch_shaped(increment, (BLOCKS, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[&word])?;
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == BLOCKS, "{seen} of {BLOCKS} blocks ran");
    Ok(())
}

fn shape_in_three_dimensions(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [shape] = gpu.kernels([c"shape"])?;
    let (grid, block) = ((3, 4, 5), (4, 3, 2));
    let threads = (3 * 4 * 5) * (4 * 3 * 2);
    let out = gpu.zeros(threads * 8)?;
    gpu.launch_shaped(shape, grid, block, 0, NULL_STREAM, &[&out])?;
    let seen = gpu.read(out, threads * 8)?;
    let mut records = seen.chunks_exact(8);
    for (z, y, x) in (0..5).flat_map(|z| (0..4).flat_map(move |y| (0..3).map(move |x| (z, y, x)))) {
        for (tz, ty, tx) in (0..2).flat_map(|z| (0..3).flat_map(move |y| (0..4).map(move |x| (z, y, x)))) {
            let expected = [x, y, z, 5, tx, ty, tz, 2];
            let record = records.next().unwrap_or_default();
            ensure!(record == expected, "{record:?} instead of {expected:?}");
        }
    }
    Ok(())
}

fn dynamic_shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    for threads in [1, 32, 100, 1_024] {
        let words: Vec<u32> = (0..threads).map(|index| index * index).collect();
        let pointer = gpu.upload(&words)?;
        gpu.launch_shaped(reverse, (1, 1, 1), (threads, 1, 1), 4 * threads, NULL_STREAM, &[&pointer])?;
        ensure!(gpu.read(pointer, words.len())?.iter().eq(words.iter().rev()), "{threads} words are not reversed");
    }
    Ok(())
}

fn static_shared_memory(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [static_shared] = gpu.kernels([c"static_shared"])?;
    let out = gpu.zeros(256)?;
    gpu.launch_shaped(static_shared, (1, 1, 1), (256, 1, 1), 0, NULL_STREAM, &[&out])?;
    ensure!(gpu.read(out, 256)?.into_iter().eq((0..256).map(|index| index ^ 1)), "neighbours were not exchanged");
    Ok(())
}

fn too_much_shared_memory_is_refused(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [reverse] = gpu.kernels([c"reverse"])?;
    let pointer = gpu.zeros(1)?;
    for bytes in [(48 << 10) + 4, 1 << 20] {
        let code = gpu.try_launch(reverse, (1, 1, 1), (1, 1, 1), bytes, NULL_STREAM, &[&pointer])?;
        ensure!(code == INVALID, "{bytes} bytes give {}", describe(code));
    }
    gpu.synchronise()
}

/// Each shape must be refused, and the context must go on.
fn refuses(driver: &Driver, shapes: &[(Size, Size)]) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    for (grid, block) in shapes {
        let code = gpu.try_launch(increment, *grid, *block, 0, NULL_STREAM, &[&word])?;
        ensure!(code == INVALID, "{grid:?} blocks of {block:?} give {}", describe(code));
    }
    gpu.launch(increment, 1, NULL_STREAM, &[&word])?;
    ensure!(gpu.read(word, 1)? == [1], "a refused launch has run");
    Ok(())
}

fn zero_sizes_are_refused(driver: &Driver) -> Outcome {
    let one = (1, 1, 1);
    let zeros = [(0, 1, 1), (1, 0, 1), (1, 1, 0)];
    let shapes: Vec<_> = zeros.iter().flat_map(|zero| [(*zero, one), (one, *zero)]).collect();
    refuses(driver, &shapes)
}

fn huge_blocks_are_refused(driver: &Driver) -> Outcome {
    let one = (1, 1, 1);
    refuses(driver, &[(one, (2_048, 1, 1)), (one, (1_024, 2, 1)), (one, (1, 2_048, 1)), (one, (1, 1, 65))])
}

fn huge_grids_are_refused(driver: &Driver) -> Outcome {
    let one = (1, 1, 1);
    refuses(driver, &[((1, 65_536, 1), one), ((1, 1, 65_536), one), ((u32::MAX, 1, 1), one)])
}

fn more_threads_than_the_kernel_allows(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [few_threads] = gpu.kernels([c"few_threads"])?;
    let word = gpu.zeros(1)?;
    let code = gpu.try_launch(few_threads, (1, 1, 1), (128, 1, 1), 0, NULL_STREAM, &[&word])?;
    note!("128 threads where 64 are allowed give {}", describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "a block was larger than its kernel allows");
    gpu.launch_shaped(few_threads, (1, 1, 1), (64, 1, 1), 0, NULL_STREAM, &[&word])?;
    ensure!(gpu.read(word, 1)? == [64], "the refused launch has run");
    Ok(())
}

fn no_function(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let code = gpu.try_launch(CUfunction(null_mut()), (1, 1, 1), (1, 1, 1), 0, NULL_STREAM, &[])?;
    note!("no function gives {}", describe(code));
    ensure!(code != CUresult::CUDA_SUCCESS, "nothing was launched");
    gpu.synchronise()
}

fn refused_launch_leaves_no_trace(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, stream) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    let code = gpu.try_launch(increment, (1, 1, 1), (4_096, 1, 1), 0, stream, &[&word])?;
    ensure!(code == INVALID, "{}", describe(code));
    // A stream that has moved for it is busy for a moment; any other never was.
    if std::env::var_os("DETSHARE_SCHEDULE").is_some() {
        gpu.wait(stream)?;
    }
    gpu.is_done(stream)?;
    gpu.synchronise()?;
    gpu.module(VARIABLES)?;
    ensure!(gpu.read(word, 1)? == [0], "a refused launch has run");
    Ok(())
}

pub(crate) fn config(
    blocks: u32,
    threads: u32,
    stream: CUstream,
    attributes: &mut [CUlaunchAttribute],
) -> CUlaunchConfig {
    CUlaunchConfig {
        gridDimX: blocks,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: threads,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        hStream: stream,
        attrs: if attributes.is_empty() { null_mut() } else { attributes.as_mut_ptr() },
        numAttrs: u32::try_from(attributes.len()).unwrap_or(u32::MAX),
    }
}

pub(crate) fn attribute(id: CUlaunchAttributeID) -> CUlaunchAttribute {
    // SAFETY: plain values throughout.
    let zero: CUlaunchAttribute = unsafe { zeroed() };
    CUlaunchAttribute { id, ..zero }
}

/// Increments a word by this launch and gives the code with the word.
fn increment_by(gpu: &Gpu, blocks: u32, attributes: &mut [CUlaunchAttribute]) -> Result<(CUresult, u32)> {
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, stream) = (gpu.zeros(1)?, gpu.stream(NON_BLOCKING)?);
    let mut pointers = addresses(&[&word]);
    let config = config(blocks, 32, stream, attributes);
    let code = cu!(gpu, cuLaunchKernelEx(&raw const config, increment, pointers.as_mut_ptr(), null_mut()));
    gpu.wait(stream)?;
    Ok((code, gpu.read(word, 1)?[0]))
}

fn extended_without_attributes(driver: &Driver) -> Outcome {
    let (code, seen) = increment_by(&Gpu::new(driver)?, 3, &mut [])?;
    ensure!(code == CUresult::CUDA_SUCCESS && seen == 96, "{}, {seen} increments", describe(code));
    Ok(())
}

fn extended_with_priority(driver: &Driver) -> Outcome {
    let mut priority = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY);
    priority.value.priority = -1;
    let ignored = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE);
    let (code, seen) = increment_by(&Gpu::new(driver)?, 3, &mut [priority, ignored])?;
    ensure!(code == CUresult::CUDA_SUCCESS && seen == 96, "{}, {seen} increments", describe(code));
    Ok(())
}

fn extended_with_cooperation(driver: &Driver) -> Outcome {
    let mut cooperative = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    cooperative.value.cooperative = 1;
    let gpu = Gpu::new(driver)?;
    let (code, seen) = increment_by(&gpu, 4, &mut [cooperative])?;
    ensure!(code == CUresult::CUDA_SUCCESS && seen == 128, "{}, {seen} increments", describe(code));
    let (code, seen) = increment_by(&gpu, 1_000_000, &mut [cooperative])?;
    ensure!(code == CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE && seen == 0, "{}, {seen}", describe(code));
    Ok(())
}

fn extended_with_unknown_attribute(driver: &Driver) -> Outcome {
    let unknown = attribute(CUlaunchAttributeID(9_999));
    let (code, seen) = increment_by(&Gpu::new(driver)?, 1, &mut [unknown])?;
    note!("launch attribute 9999 gives {} and {seen} increments", describe(code));
    Ok(())
}

fn cooperative_fits(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    let mut pointers = addresses(&[&word]);
    let blocks = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?.unsigned_abs();
    let pointers = pointers.as_mut_ptr();
    ok!(driver, cuLaunchCooperativeKernel(increment, blocks, 1, 1, 32, 1, 1, 0, NULL_STREAM, pointers));
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == 32 * blocks, "{seen} increments by {blocks} blocks");
    Ok(())
}

/// As many blocks as can be there at once.
fn cooperative_fills_the_device(driver: &Driver) -> Outcome {
    const THREADS: u32 = 128;
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let (word, mut on_each) = (gpu.zeros(1)?, 0);
    let threads = i32::try_from(THREADS)?;
    ok!(driver, cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut on_each, increment, threads, 0));
    let multiprocessors = gpu.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let blocks = (on_each * multiprocessors).unsigned_abs();
    let mut pointers = addresses(&[&word]);
    let pointers = pointers.as_mut_ptr();
    ok!(driver, cuLaunchCooperativeKernel(increment, blocks, 1, 1, THREADS, 1, 1, 0, NULL_STREAM, pointers));
    let seen = gpu.read(word, 1)?[0];
    ensure!(seen == THREADS * blocks, "{seen} increments by {blocks} blocks");
    expect!(driver, cuLaunchCooperativeKernel(increment, blocks + 1, 1, 1, THREADS, 1, 1, 0, NULL_STREAM, pointers)
        => CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    Ok(())
}

fn cooperative_too_large_is_refused(driver: &Driver) -> Outcome {
    const BLOCKS: u32 = 1_000_000;
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    let mut pointers = addresses(&[&word]);
    let pointers = pointers.as_mut_ptr();
    expect!(driver, cuLaunchCooperativeKernel(increment, BLOCKS, 1, 1, 32, 1, 1, 0, NULL_STREAM, pointers)
        => CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    ensure!(gpu.read(word, 1)? == [0], "a refused launch has run");
    Ok(())
}

fn per_thread_variants(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [increment] = gpu.kernels([c"increment"])?;
    let word = gpu.zeros(1)?;
    let mut pointers = addresses(&[&word]);
    let pointers = pointers.as_mut_ptr();
    ok!(driver, cuLaunchKernel_ptsz(increment, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, pointers, null_mut()));
    let config = config(1, 1, NULL_STREAM, &mut []);
    ok!(driver, cuLaunchKernelEx_ptsz(&raw const config, increment, pointers, null_mut()));
    ok!(driver, cuLaunchCooperativeKernel_ptsz(increment, 1, 1, 1, 1, 1, 1, 0, NULL_STREAM, pointers));
    gpu.wait(PER_THREAD)?;
    ensure!(gpu.read(word, 1)? == [3], "not all three have run");
    Ok(())
}

fn host_memory_as_argument(driver: &Driver) -> Outcome {
    let gpu = Gpu::new(driver)?;
    let [copy] = gpu.kernels([c"copy"])?;
    let (from, to) = (gpu.shared_words(4)?, gpu.zeros(4)?);
    (0..4).for_each(|index| from.set(index, 7));
    gpu.launch(copy, 4, NULL_STREAM, &[&to, &from.at(0), &4_u32])?;
    ensure!(gpu.read(to, 4)? == [7; 4], "the kernel read other words");
    Ok(())
}
