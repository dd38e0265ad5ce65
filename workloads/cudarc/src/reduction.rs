//! Threads that work together: shuffles, votes, atomics, barriers.

use crate::Program;
use crate::gpu::{Gpu, Numbers, line, same};
use anyhow::Result;

pub(crate) const PROGRAMS: &[Program] = &[
    ("reduction::shuffles_and_atomics", shuffles_and_atomics),
    ("reduction::warp_scan", warp_scan),
    ("reduction::warp_votes", warp_votes),
    ("reduction::histogram", histogram),
    ("reduction::f64_tree", f64_tree),
    ("reduction::f64_atomics", f64_atomics),
    ("reduction::compare_and_swap", compare_and_swap),
    ("reduction::last_block", last_block),
];

const WARP: usize = 32;

const BLOCK_REDUCTION: &str = r#"
__device__ long long warp_sum(long long value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}
extern "C" __global__ void reduce(const int *in, unsigned long long *sum, int *low, int *high, unsigned n) {
    __shared__ long long sums[32];
    unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    long long mine = 0;
    int least = 0x7fffffff, most = -0x7fffffff - 1;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        mine += in[i];
        least = min(least, in[i]);
        most = max(most, in[i]);
    }
    mine = warp_sum(mine);
    least = __reduce_min_sync(0xffffffffu, least);
    most = __reduce_max_sync(0xffffffffu, most);
    if (lane == 0) sums[warp] = mine;
    __syncthreads();
    if (warp == 0) {
        mine = warp_sum(lane < blockDim.x / 32 ? sums[lane] : 0);
        if (lane == 0) atomicAdd(sum, (unsigned long long)mine);
    }
    if (lane == 0) {
        atomicMin(low, least);
        atomicMax(high, most);
    }
}
"#;

fn shuffles_and_atomics() -> Result<()> {
    const N: u32 = 70_001;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(BLOCK_REDUCTION, "reduce")?;
    let input: Vec<i32> = Numbers::new(20).take(N as usize, |numbers| numbers.u32().cast_signed());
    let on_input = gpu.stream.clone_htod(&input)?;
    let mut on_sum = gpu.stream.alloc_zeros::<u64>(1)?;
    let (mut on_low, mut on_high) = (gpu.stream.clone_htod(&[i32::MAX])?, gpu.stream.clone_htod(&[i32::MIN])?);
    launch!(gpu.stream, kernel, line(11, 256), &on_input, &mut on_sum, &mut on_low, &mut on_high, &N)?;
    let sum: i64 = input.iter().copied().map(i64::from).sum();
    same(&gpu.stream.clone_dtoh(&on_sum)?, &[sum.cast_unsigned()])?;
    let (low, high) = input.iter().fold((i32::MAX, i32::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    same(&gpu.stream.clone_dtoh(&on_low)?, &[low])?;
    same(&gpu.stream.clone_dtoh(&on_high)?, &[high])
}

const WARP_SCAN: &str = r#"
extern "C" __global__ void scan(const unsigned *in, unsigned *running, unsigned *exchanged, unsigned *picked) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    unsigned value = in[i];
    unsigned sum = value;
    for (unsigned offset = 1; offset < 32; offset *= 2) {
        unsigned below = __shfl_up_sync(0xffffffffu, sum, offset);
        if (lane >= offset) sum += below;
    }
    running[i] = sum;
    exchanged[i] = __shfl_xor_sync(0xffffffffu, value, 5);
    picked[i] = __shfl_sync(0xffffffffu, value, (lane * 7 + 3) % 8, 8);
}
"#;

fn warp_scan() -> Result<()> {
    const N: usize = 512;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(WARP_SCAN, "scan")?;
    let input = Numbers::new(21).take(N, Numbers::u32);
    let on_input = gpu.stream.clone_htod(&input)?;
    let mut outputs = [0; 3].map(|_| gpu.stream.alloc_zeros::<u32>(N)).into_iter().collect::<Result<Vec<_>, _>>()?;
    let [running, exchanged, picked] = &mut outputs[..] else { unreachable!("three were made") };
    launch!(gpu.stream, kernel, line(2, 256), &on_input, &mut *running, &mut *exchanged, &mut *picked)?;
    let scanned: Vec<u32> = input
        .chunks(WARP)
        .flat_map(|warp| {
            warp.iter().scan(0_u32, |sum, x| {
                *sum = sum.wrapping_add(*x);
                Some(*sum)
            })
        })
        .collect();
    same(&gpu.stream.clone_dtoh(&*running)?, &scanned)?;
    same(&gpu.stream.clone_dtoh(&*exchanged)?, &(0..N).map(|i| input[i ^ 5]).collect::<Vec<_>>())?;
    // Groups of eight lanes: each picks inside its own.
    let from = |i: usize| input[i / 8 * 8 + (i % WARP * 7 + 3) % 8];
    same(&gpu.stream.clone_dtoh(&*picked)?, &(0..N).map(from).collect::<Vec<_>>())
}

const WARP_VOTES: &str = r#"
extern "C" __global__ void votes(const unsigned *in, unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = in[i];
    unsigned odd = __ballot_sync(0xffffffffu, value & 1);
    unsigned below;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    unsigned *o = out + 7 * i;
    o[0] = odd;
    o[1] = __popc(odd & below);
    o[2] = __any_sync(0xffffffffu, value % 37 == 0);
    o[3] = __all_sync(0xffffffffu, value % 31 != 0);
    o[4] = __match_any_sync(0xffffffffu, value % 5);
    o[5] = 0;
    if (value & 1) o[5] = __reduce_add_sync(odd, value) ^ __activemask();
    __syncwarp();
    o[6] = __syncthreads_count(value % 3 == 0);
}
"#;

/// Votes, matches and reductions, also among the part of a warp that took a branch.
fn warp_votes() -> Result<()> {
    const THREADS: usize = 128;
    const BLOCKS: usize = 4;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(WARP_VOTES, "votes")?;
    let input = Numbers::new(22).take(THREADS * BLOCKS, Numbers::u32);
    let on_input = gpu.stream.clone_htod(&input)?;
    let mut on_out = gpu.stream.alloc_zeros::<u32>(7 * input.len())?;
    launch!(gpu.stream, kernel, line(u32::try_from(BLOCKS)?, u32::try_from(THREADS)?), &on_input, &mut on_out)?;
    let expected: Vec<u32> = (0..input.len())
        .flat_map(|i| {
            let block = &input[i / THREADS * THREADS..][..THREADS];
            votes(block, i % THREADS)
        })
        .collect();
    same(&gpu.stream.clone_dtoh(&on_out)?, &expected)
}

fn votes(block: &[u32], thread: usize) -> [u32; 7] {
    let (warp, lane) = (&block[thread / WARP * WARP..][..WARP], thread % WARP);
    let mask = |chosen: &dyn Fn(u32) -> bool| {
        (0..WARP).filter(|lane| chosen(warp[*lane])).fold(0_u32, |mask, lane| mask | 1 << lane)
    };
    let count = |numbers: &[u32], chosen: fn(u32) -> bool| numbers.iter().filter(|x| chosen(**x)).map(|_| 1_u32).sum();
    let odd = mask(&|x| x & 1 == 1);
    let odd_sum = warp.iter().filter(|x| **x & 1 == 1).fold(0_u32, |sum, x| sum.wrapping_add(*x));
    [
        odd,
        count(&warp[..lane], |x| x & 1 == 1),
        u32::from(warp.iter().any(|x| x % 37 == 0)),
        u32::from(warp.iter().all(|x| x % 31 != 0)),
        mask(&|x| x % 5 == warp[lane] % 5),
        if warp[lane] & 1 == 1 { odd_sum ^ odd } else { 0 },
        count(block, |x| x % 3 == 0),
    ]
}

const HISTOGRAM: &str = r#"
extern "C" __global__ void histogram(const unsigned char *in, unsigned *bins, unsigned n) {
    __shared__ unsigned mine[256];
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x) mine[bin] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i]], 1u);
    __syncthreads();
    for (unsigned bin = threadIdx.x; bin < 256; bin += blockDim.x)
        if (mine[bin]) atomicAdd(&bins[bin], mine[bin]);
}
"#;

fn histogram() -> Result<()> {
    const N: u32 = 100_003;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(HISTOGRAM, "histogram")?;
    // Uneven, so that threads meet in the same bins.
    let input = Numbers::new(23).take(N as usize, |numbers| numbers.u8() & numbers.u8());
    let on_input = gpu.stream.clone_htod(&input)?;
    let mut on_bins = gpu.stream.alloc_zeros::<u32>(256)?;
    launch!(gpu.stream, kernel, line(9, 160), &on_input, &mut on_bins, &N)?;
    let mut bins = [0_u32; 256];
    input.iter().for_each(|byte| bins[usize::from(*byte)] += 1);
    same(&gpu.stream.clone_dtoh(&on_bins)?, &bins)
}

const F64_TREE: &str = r#"
extern "C" __global__ void tree(const double *in, double *sums, unsigned n) {
    __shared__ double part[128];
    double sum = 0.0, lost = 0.0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        double term = in[i] - lost;
        double next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = part[0];
}
"#;

/// Compensated sums, then a tree: in the same order on the CPU, to the last bit.
fn f64_tree() -> Result<()> {
    const THREADS: usize = 128;
    const BLOCKS: usize = 6;
    const N: usize = 30_011;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(F64_TREE, "tree")?;
    let input = Numbers::new(24).take(N, |numbers| numbers.f64() / 3.0);
    let on_input = gpu.stream.clone_htod(&input)?;
    let mut on_sums = gpu.stream.alloc_zeros::<f64>(BLOCKS)?;
    let shape = line(u32::try_from(BLOCKS)?, u32::try_from(THREADS)?);
    launch!(gpu.stream, kernel, shape, &on_input, &mut on_sums, &u32::try_from(N)?)?;
    let block_sum = |block: usize| {
        let mut part: Vec<f64> = (0..THREADS)
            .map(|thread| compensated_sum(input.iter().skip(block * THREADS + thread).step_by(BLOCKS * THREADS)))
            .collect();
        while part.len() > 1 {
            let (low, high) = part.split_at(part.len() / 2);
            part = low.iter().zip(high).map(|(a, b)| a + b).collect();
        }
        part[0]
    };
    same(&gpu.stream.clone_dtoh(&on_sums)?, &(0..BLOCKS).map(block_sum).collect::<Vec<_>>())
}

fn compensated_sum<'a>(numbers: impl Iterator<Item = &'a f64>) -> f64 {
    let (mut sum, mut lost) = (0.0_f64, 0.0_f64);
    for number in numbers {
        let term = number - lost;
        let next = sum + term;
        lost = (next - sum) - term;
        sum = next;
    }
    sum
}

const F64_ATOMICS: &str = r#"
extern "C" __global__ void accumulate(const double *in, double *sums, float *single, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    atomicAdd(&sums[i % 3], in[i]);
    atomicAdd(single, i % 2 ? 1.0f : 2.0f);
}
"#;

/// Sums that no order of their terms rounds.
fn f64_atomics() -> Result<()> {
    const N: u32 = 6000;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(F64_ATOMICS, "accumulate")?;
    let input = Numbers::new(25).take(N as usize, Numbers::f64);
    let on_input = gpu.stream.clone_htod(&input)?;
    let mut on_sums = gpu.stream.alloc_zeros::<f64>(3)?;
    let mut on_single = gpu.stream.alloc_zeros::<f32>(1)?;
    launch!(gpu.stream, kernel, line(N.div_ceil(256), 256), &on_input, &mut on_sums, &mut on_single, &N)?;
    let expected: Vec<f64> = (0..3).map(|start| input.iter().skip(start).step_by(3).sum()).collect();
    same(&gpu.stream.clone_dtoh(&on_sums)?, &expected)?;
    same(&gpu.stream.clone_dtoh(&on_single)?, &[9000.0_f32])
}

const COMPARE_AND_SWAP: &str = r#"
extern "C" __global__ void insert(const unsigned *keys, unsigned *table, unsigned *kept, unsigned slots, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned slot = keys[i] * 2654435761u % slots;
    while (true) {
        unsigned before = atomicCAS(&table[slot], 0u, keys[i]);
        if (before == 0u) { atomicInc(kept, 0xffffffffu); return; }
        if (before == keys[i]) return;
        slot = (slot + 1) % slots;
    }
}
"#;

/// A hash table filled by all threads at once; keys that come twice are kept once.
fn compare_and_swap() -> Result<()> {
    const N: u32 = 5000;
    const SLOTS: u32 = 8192;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(COMPARE_AND_SWAP, "insert")?;
    let keys = Numbers::new(26).take(N as usize, |numbers| numbers.u32() % 6000 + 1);
    let on_keys = gpu.stream.clone_htod(&keys)?;
    let mut on_table = gpu.stream.alloc_zeros::<u32>(SLOTS as usize)?;
    let mut on_kept = gpu.stream.alloc_zeros::<u32>(1)?;
    launch!(gpu.stream, kernel, line(N.div_ceil(128), 128), &on_keys, &mut on_table, &mut on_kept, &SLOTS, &N)?;
    let mut distinct = keys;
    distinct.sort_unstable();
    distinct.dedup();
    let mut found: Vec<u32> = gpu.stream.clone_dtoh(&on_table)?.into_iter().filter(|key| *key != 0).collect();
    found.sort_unstable();
    same(&found, &distinct)?;
    same(&gpu.stream.clone_dtoh(&on_kept)?, &[u32::try_from(distinct.len())?])
}

const LAST_BLOCK: &str = r#"
__device__ unsigned finished = 0;
extern "C" __global__ void sum_all(const unsigned *in, volatile unsigned *parts, unsigned *total) {
    __shared__ unsigned sum;
    __shared__ bool last;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(&finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        unsigned all = 0;
        for (unsigned block = 0; block < gridDim.x; ++block) all += parts[block];
        *total = all;
        finished = 0;
    }
}
"#;

/// The block that ends last adds up what the others left, with a fence in between; twice with the same counter.
fn last_block() -> Result<()> {
    const BLOCKS: u32 = 50;
    const THREADS: u32 = 64;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(LAST_BLOCK, "sum_all")?;
    for seed in [27, 28] {
        let input = Numbers::new(seed).take((BLOCKS * THREADS) as usize, Numbers::u32);
        let on_input = gpu.stream.clone_htod(&input)?;
        let mut on_parts = gpu.stream.alloc_zeros::<u32>(BLOCKS as usize)?;
        let mut on_total = gpu.stream.alloc_zeros::<u32>(1)?;
        launch!(gpu.stream, kernel, line(BLOCKS, THREADS), &on_input, &mut on_parts, &mut on_total)?;
        let total = input.iter().fold(0_u32, |sum, x| sum.wrapping_add(*x));
        same(&gpu.stream.clone_dtoh(&on_total)?, &[total])?;
    }
    Ok(())
}
