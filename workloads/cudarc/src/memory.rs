//! Every kind of memory: pinned, shared, constant, symbols, managed, and copies between them.

use crate::Program;
use crate::gpu::{Gpu, Numbers, line, refused, same};
use anyhow::{Context, Result, ensure};
use cudarc::driver::LaunchConfig;
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute, CUresult};

pub(crate) const PROGRAMS: &[Program] = &[
    ("memory::pinned_and_asynchronous", pinned_and_asynchronous),
    ("memory::slices", slices),
    ("memory::dynamic_shared", dynamic_shared),
    ("memory::constant", constant),
    ("memory::symbol", symbol),
    ("memory::managed_or_refused", managed_or_refused),
    ("memory::many_allocations", many_allocations),
];

const SCALE: &str = r#"
extern "C" __global__ void scale(unsigned *values, unsigned by, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] * by + 1;
}
"#;

/// Copies in, kernels and copies out on a stream, while the host only waits at the end.
fn pinned_and_asynchronous() -> Result<()> {
    const N: u32 = 20_000;
    const ROUNDS: u32 = 4;
    /// Readable by the host at full speed, unlike cudarc's default of write-combined memory.
    const CACHED: u32 = 0;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(SCALE, "scale")?;
    // SAFETY: any bits are a number, and the input is written before it is read.
    let mut input = unsafe { gpu.context.alloc_pinned::<u32>(N as usize) }?;
    // SAFETY: any bits are a number, and the output is written before it is read.
    let mut output = unsafe { gpu.context.alloc_pinned_with_flags::<u32>(N as usize, CACHED) }?;
    let values = Numbers::new(30).take(N as usize, Numbers::u32);
    input.as_mut_slice()?.copy_from_slice(&values);
    let mut on_values = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    gpu.stream.memcpy_htod(&input, &mut on_values)?;
    for by in 0..ROUNDS {
        launch!(gpu.stream, kernel, line(N.div_ceil(256), 256), &mut on_values, &(by + 3), &N)?;
    }
    gpu.stream.memcpy_dtoh(&on_values, &mut output)?;
    let scaled = |x: &u32| (0..ROUNDS).fold(*x, |x, by| x.wrapping_mul(by + 3).wrapping_add(1));
    same(output.as_slice()?, &values.iter().map(scaled).collect::<Vec<_>>())
}

/// Kernels and copies on parts of an allocation.
fn slices() -> Result<()> {
    const N: u32 = 999;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(SCALE, "scale")?;
    let mut expected = Numbers::new(31).take(N as usize, Numbers::u32);
    let mut on_values = gpu.stream.clone_htod(&expected)?;
    let (length, by) = (300_u32, 5_u32);
    launch!(gpu.stream, kernel, line(3, 128), &mut on_values.slice_mut(101..401), &by, &length)?;
    expected[101..401].iter_mut().for_each(|x| *x = x.wrapping_mul(by).wrapping_add(1));
    let middle = gpu.stream.clone_dtod(&on_values.slice(50..150))?;
    gpu.stream.memcpy_dtod(&middle, &mut on_values.slice_mut(899..))?;
    expected.copy_within(50..150, 899);
    gpu.stream.memset_zeros(&mut on_values.slice_mut(7..9))?;
    expected[7..9].fill(0);
    same(&gpu.stream.clone_dtoh(&on_values)?, &expected)?;
    same(&gpu.stream.clone_dtoh(&on_values.slice(3..17))?, &expected[3..17])
}

const DYNAMIC_SHARED: &str = r#"
extern "C" __global__ void reverse(unsigned *values, unsigned each) {
    extern __shared__ unsigned staged[];
    unsigned *mine = values + blockIdx.x * each;
    for (unsigned i = threadIdx.x; i < each; i += blockDim.x) staged[i] = mine[i];
    __syncthreads();
    for (unsigned i = threadIdx.x; i < each; i += blockDim.x) mine[i] = staged[each - 1 - i];
}
"#;

/// More than 48 KiB of shared memory, which a kernel must ask for.
fn dynamic_shared() -> Result<()> {
    const EACH: u32 = 18_000;
    const BLOCKS: u32 = 3;
    const BYTES: u32 = EACH * 4;
    let gpu = Gpu::open()?;
    let most = gpu.context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
    ensure!(most >= i32::try_from(BYTES)?, "the device has {most} bytes of shared memory");
    let kernel = gpu.kernel(DYNAMIC_SHARED, "reverse")?;
    let allow = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    kernel.set_attribute(allow, i32::try_from(BYTES)?)?;
    let mut expected = Numbers::new(32).take((BLOCKS * EACH) as usize, Numbers::u32);
    let mut on_values = gpu.stream.clone_htod(&expected)?;
    let shape = LaunchConfig { shared_mem_bytes: BYTES, ..line(BLOCKS, 256) };
    launch!(gpu.stream, kernel, shape, &mut on_values, &EACH)?;
    expected.chunks_mut(EACH as usize).for_each(<[u32]>::reverse);
    same(&gpu.stream.clone_dtoh(&on_values)?, &expected)
}

const CONSTANT: &str = r#"
__constant__ float coefficients[8];
extern "C" __global__ void polynomial(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float value = coefficients[7];
    for (int k = 6; k >= 0; --k) value = fmaf(value, x[i], coefficients[k]);
    y[i] = value;
}
"#;

/// Coefficients that the host writes into constant memory, twice.
fn constant() -> Result<()> {
    const N: u32 = 1000;
    let gpu = Gpu::open()?;
    let module = gpu.module(CONSTANT)?;
    let kernel = module.load_function("polynomial")?;
    let mut numbers = Numbers::new(33);
    let x = numbers.take(N as usize, Numbers::f32);
    let on_x = gpu.stream.clone_htod(&x)?;
    let mut on_y = gpu.stream.alloc_zeros::<f32>(N as usize)?;
    for _ in 0..2 {
        let coefficients = numbers.take(8, Numbers::f32);
        let mut bytes = module.get_global("coefficients", &gpu.stream)?;
        ensure!(bytes.len() == 32, "the symbol has {} bytes", bytes.len());
        // SAFETY: the symbol is an array of eight floats.
        let mut symbol = unsafe { bytes.transmute_mut::<f32>(8) }.context("the symbol is too small")?;
        gpu.stream.memcpy_htod(&coefficients, &mut symbol)?;
        launch!(gpu.stream, kernel, line(N.div_ceil(128), 128), &on_x, &mut on_y, &N)?;
        let value = |x: &f32| coefficients[..7].iter().rev().fold(coefficients[7], |value, c| value.mul_add(*x, *c));
        same(&gpu.stream.clone_dtoh(&on_y)?, &x.iter().map(value).collect::<Vec<_>>())?;
    }
    Ok(())
}

const SYMBOL: &str = r#"
__device__ unsigned long long total = 40;
__device__ unsigned long long weights[3] = {1, 10, 100};
__device__ unsigned long long *where_total_is = &total;
extern "C" __global__ void count(unsigned threads) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < threads) atomicAdd(where_total_is, weights[i % 3]);
}
"#;

/// Variables of a module, with initial values and with another's address, changed by kernels and by the host.
fn symbol() -> Result<()> {
    const THREADS: u32 = 300;
    let gpu = Gpu::open()?;
    let module = gpu.module(SYMBOL)?;
    let kernel = module.load_function("count")?;
    launch!(gpu.stream, kernel, line(3, 128), &THREADS)?;
    let read_total = || -> Result<Vec<u64>> {
        let bytes = module.get_global("total", &gpu.stream)?;
        // SAFETY: the symbol is one word.
        let word = unsafe { bytes.transmute::<u64>(1) }.context("the symbol is too small")?;
        Ok(gpu.stream.clone_dtoh(&word)?)
    };
    same(&read_total()?, &[40 + 100 * 111])?;
    let mut bytes = module.get_global("weights", &gpu.stream)?;
    // SAFETY: the symbol is three words.
    let mut weights = unsafe { bytes.transmute_mut::<u64>(3) }.context("the symbol is too small")?;
    gpu.stream.memcpy_htod(&[2_u64, 0, 7], &mut weights)?;
    launch!(gpu.stream, kernel, line(3, 128), &THREADS)?;
    same(&read_total()?, &[40 + 100 * 111 + 100 * 9])
}

/// Memory that host and kernels share under one address. Where the device says that it has none, asking for some
/// must be an error.
fn managed_or_refused() -> Result<()> {
    const N: u32 = 2048;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(SCALE, "scale")?;
    if gpu.context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)? == 0 {
        // SAFETY: nothing is allocated.
        let answer = unsafe { gpu.context.alloc_unified::<u32>(N as usize, true) };
        return refused("managed memory", answer, CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    // SAFETY: any bits are a number, and they are written before they are read.
    let mut values = unsafe { gpu.context.alloc_unified::<u32>(N as usize, true) }?;
    let input = Numbers::new(34).take(N as usize, Numbers::u32);
    values.as_mut_slice()?.copy_from_slice(&input);
    let by = 9_u32;
    launch!(gpu.stream, kernel, line(N / 256, 256), &mut values, &by, &N)?;
    gpu.stream.synchronize()?;
    same(values.as_slice()?, &input.iter().map(|x| x.wrapping_mul(by).wrapping_add(1)).collect::<Vec<_>>())
}

/// Allocations of many sizes that come and go on a stream: none overlaps another.
fn many_allocations() -> Result<()> {
    const ROUNDS: u32 = 40;
    const ALIVE: usize = 7;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(SCALE, "scale")?;
    let mut numbers = Numbers::new(35);
    let mut alive = Vec::new();
    for round in 0..ROUNDS {
        let n = u32::from(numbers.u16()) % 5000 + 1;
        let values = numbers.take(n as usize, Numbers::u32);
        let mut on_values = gpu.stream.clone_htod(&values)?;
        launch!(gpu.stream, kernel, line(n.div_ceil(256), 256), &mut on_values, &round, &n)?;
        let expected: Vec<u32> = values.iter().map(|x| x.wrapping_mul(round).wrapping_add(1)).collect();
        alive.push((on_values, expected));
        if alive.len() > ALIVE {
            let (on_values, expected) = alive.swap_remove(numbers.u8() as usize % ALIVE);
            same(&gpu.stream.clone_dtoh(&on_values)?, &expected)?;
        }
    }
    alive.iter().try_for_each(|(on_values, expected)| same(&gpu.stream.clone_dtoh(on_values)?, expected))
}
