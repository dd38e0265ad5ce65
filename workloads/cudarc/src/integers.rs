//! Integers, bit for bit.

use crate::Program;
use crate::gpu::{Gpu, Numbers, line, same};
use anyhow::Result;

pub(crate) const PROGRAMS: &[Program] = &[
    ("integers::hash", hash),
    ("integers::wide_products", wide_products),
    ("integers::bit_functions", bit_functions),
    ("integers::division", division),
];

const HASH: &str = r#"
typedef unsigned long long u64;
__device__ u64 rotate(u64 x, int by) { return (x << by) | (x >> (64 - by)); }
extern "C" __global__ void hash(const u64 *words, u64 *hashes, unsigned words_each, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 state = 0x9e3779b185ebca87ull ^ i;
    for (unsigned k = 0; k < words_each; ++k) {
        u64 lane = words[(u64)i * words_each + k] * 0xc2b2ae3d27d4eb4full;
        state ^= rotate(lane, 31) * 0x9e3779b185ebca87ull;
        state = rotate(state, 27) * 0x9e3779b185ebca87ull + 0x85ebca77c2b2ae63ull;
    }
    state ^= state >> 33;
    state *= 0xc2b2ae3d27d4eb4full;
    state ^= state >> 29;
    hashes[i] = state;
}
"#;

fn hash() -> Result<()> {
    const N: u32 = 4001;
    const WORDS: u32 = 13;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(HASH, "hash")?;
    let words = Numbers::new(10).take((N * WORDS) as usize, Numbers::u64);
    let on_words = gpu.stream.clone_htod(&words)?;
    let mut on_hashes = gpu.stream.alloc_zeros::<u64>(N as usize)?;
    launch!(gpu.stream, kernel, line(N.div_ceil(96), 96), &on_words, &mut on_hashes, &WORDS, &N)?;
    let expected: Vec<u64> = (0..N).zip(words.chunks(WORDS as usize)).map(|(i, words)| hashed(i, words)).collect();
    same(&gpu.stream.clone_dtoh(&on_hashes)?, &expected)
}

fn hashed(i: u32, words: &[u64]) -> u64 {
    let mut state = 0x9e37_79b1_85eb_ca87 ^ u64::from(i);
    for word in words {
        let lane = word.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
        state ^= lane.rotate_left(31).wrapping_mul(0x9e37_79b1_85eb_ca87);
        state = state.rotate_left(27).wrapping_mul(0x9e37_79b1_85eb_ca87).wrapping_add(0x85eb_ca77_c2b2_ae63);
    }
    state ^= state >> 33;
    state = state.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    state ^ (state >> 29)
}

const WIDE_PRODUCTS: &str = r#"
typedef unsigned long long u64;
extern "C" __global__ void products(const u64 *a, const u64 *b, u64 *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned low_a = (unsigned)a[i], low_b = (unsigned)b[i];
    out[5 * i] = __umul64hi(a[i], b[i]);
    out[5 * i + 1] = (u64)__mul64hi((long long)a[i], (long long)b[i]);
    out[5 * i + 2] = (u64)low_a * low_b + b[i];
    out[5 * i + 3] = (u64)((long long)(int)low_a * (int)low_b);
    out[5 * i + 4] = ((u64)__umulhi(low_a, low_b) << 32) | (unsigned)__mulhi((int)low_a, (int)low_b);
}
"#;

fn wide_products() -> Result<()> {
    const N: u32 = 2000;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(WIDE_PRODUCTS, "products")?;
    let mut numbers = Numbers::new(11);
    let (a, b) = (numbers.take(N as usize, Numbers::u64), numbers.take(N as usize, Numbers::u64));
    let (on_a, on_b) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut on_out = gpu.stream.alloc_zeros::<u64>(5 * a.len())?;
    launch!(gpu.stream, kernel, line(N.div_ceil(128), 128), &on_a, &on_b, &mut on_out, &N)?;
    let expected: Vec<u64> = a.iter().zip(&b).flat_map(|(a, b)| products(*a, *b)).collect();
    same(&gpu.stream.clone_dtoh(&on_out)?, &expected)
}

#[allow(clippy::cast_possible_truncation, reason = "halves of products and of operands are what is computed")]
fn products(a: u64, b: u64) -> [u64; 5] {
    let (low_a, low_b) = (a as u32, b as u32);
    let signed = i64::from(low_a.cast_signed()) * i64::from(low_b.cast_signed());
    let unsigned = u64::from(low_a) * u64::from(low_b);
    let high_signed = (i128::from(a.cast_signed()) * i128::from(b.cast_signed())) >> 64;
    [
        ((u128::from(a) * u128::from(b)) >> 64) as u64,
        (high_signed as i64).cast_unsigned(),
        unsigned.wrapping_add(b),
        signed.cast_unsigned(),
        (unsigned >> 32 << 32) | (signed.cast_unsigned() >> 32),
    ]
}

const BIT_FUNCTIONS: &str = r#"
typedef unsigned long long u64;
extern "C" __global__ void bits(const u64 *in, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 x = in[i];
    unsigned low = (unsigned)x, high = (unsigned)(x >> 32), by = i % 40;
    unsigned *o = out + 12 * i;
    o[0] = __popc(low);
    o[1] = __popcll(x);
    o[2] = __clz(low >> by % 32);
    o[3] = __clzll(x >> by);
    o[4] = __ffs(low << by % 32);
    o[5] = __ffsll(x << by);
    o[6] = __brev(low);
    o[7] = __byte_perm(low, high, 0x5140);
    o[8] = __funnelshift_l(low, high, by);
    o[9] = __funnelshift_rc(low, high, by);
    o[10] = (unsigned)((long long)x >> by);
    o[11] = (low & high) ^ (~low | high);
}
"#;

fn bit_functions() -> Result<()> {
    const N: u32 = 2000;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(BIT_FUNCTIONS, "bits")?;
    let words = Numbers::new(12).take(N as usize, Numbers::u64);
    let on_words = gpu.stream.clone_htod(&words)?;
    let mut on_out = gpu.stream.alloc_zeros::<u32>(12 * words.len())?;
    launch!(gpu.stream, kernel, line(N.div_ceil(128), 128), &on_words, &mut on_out, &N)?;
    let expected: Vec<u32> = (0..N).zip(&words).flat_map(|(i, word)| bits(i, *word)).collect();
    same(&gpu.stream.clone_dtoh(&on_out)?, &expected)
}

#[allow(clippy::cast_possible_truncation, reason = "halves of words are what is computed")]
fn bits(i: u32, x: u64) -> [u32; 12] {
    let (low, high, by) = (x as u32, (x >> 32) as u32, i % 40);
    let first_set = |zeros: u32, none: bool| if none { 0 } else { zeros + 1 };
    let (shifted, shifted_wide) = (low << (by % 32), x << by);
    let bytes = x.to_le_bytes();
    [
        low.count_ones(),
        x.count_ones(),
        (low >> (by % 32)).leading_zeros(),
        (x >> by).leading_zeros(),
        first_set(shifted.trailing_zeros(), shifted == 0),
        first_set(shifted_wide.trailing_zeros(), shifted_wide == 0),
        low.reverse_bits(),
        u32::from_le_bytes([bytes[0], bytes[4], bytes[1], bytes[5]]),
        ((x << (by % 32)) >> 32) as u32,
        (x >> by.min(32)) as u32,
        (x.cast_signed() >> by).cast_unsigned() as u32,
        (low & high) ^ (!low | high),
    ]
}

const DIVISION: &str = r#"
typedef unsigned long long u64;
extern "C" __global__ void divide(const u64 *a, const u64 *b, u64 *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    u64 x = a[i], y = b[i] >> (i % 60) | 1;
    long long p = (long long)x, q = (long long)y;
    out[6 * i] = x / y;
    out[6 * i + 1] = x % y;
    out[6 * i + 2] = (u64)(p / q);
    out[6 * i + 3] = (u64)(p % q);
    out[6 * i + 4] = (u64)((unsigned)x / (unsigned)y) << 32 | (unsigned)x % 7u;
    out[6 * i + 5] = (u64)(long long)((int)x / 1000) ^ (x / 10);
}
"#;

/// By numbers that the compiler knows, which it turns into products, and by numbers that it does not know.
fn division() -> Result<()> {
    const N: u32 = 2000;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(DIVISION, "divide")?;
    let mut numbers = Numbers::new(13);
    let (a, b) = (numbers.take(N as usize, Numbers::u64), numbers.take(N as usize, Numbers::u64));
    let (on_a, on_b) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut on_out = gpu.stream.alloc_zeros::<u64>(6 * a.len())?;
    launch!(gpu.stream, kernel, line(N.div_ceil(64), 64), &on_a, &on_b, &mut on_out, &N)?;
    let expected: Vec<u64> =
        (0..N).zip(a.iter().zip(&b)).flat_map(|(i, (a, b))| quotients(*a, (b >> (i % 60)) | 1)).collect();
    same(&gpu.stream.clone_dtoh(&on_out)?, &expected)
}

#[allow(clippy::cast_possible_truncation, reason = "the lower halves are operands too")]
fn quotients(x: u64, y: u64) -> [u64; 6] {
    let (p, q) = (x.cast_signed(), y.cast_signed());
    let (low_x, low_y) = (x as u32, y as u32);
    [
        x / y,
        x % y,
        p.wrapping_div(q).cast_unsigned(),
        p.wrapping_rem(q).cast_unsigned(),
        (u64::from(low_x / low_y) << 32) | u64::from(low_x % 7),
        i64::from(low_x.cast_signed() / 1000).cast_unsigned() ^ (x / 10),
    ]
}
