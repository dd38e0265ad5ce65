//! Floating point on vectors, matrices and grids.

use crate::Program;
use crate::gpu::{Gpu, Numbers, close, line, plane, same};
use anyhow::Result;
use cudarc::driver::{CudaContext, LaunchConfig};

pub(crate) const PROGRAMS: &[Program] = &[
    ("arithmetic::vector_add", vector_add),
    ("arithmetic::saxpy", saxpy),
    ("arithmetic::tiled_matrix_product", tiled_matrix_product),
    ("arithmetic::jacobi", jacobi),
    ("arithmetic::rounded_operations", rounded_operations),
    ("arithmetic::functions_f32", functions_f32),
    ("arithmetic::functions_f64", functions_f64),
];

const VECTOR_ADD: &str = r#"
extern "C" __global__ void vector_add(const float *a, const float *b, float *sum, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}
"#;

/// On the default stream, as the first program of every tutorial.
fn vector_add() -> Result<()> {
    const N: u32 = 100_003;
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let kernel = Gpu { context, stream: stream.clone() }.kernel(VECTOR_ADD, "vector_add")?;
    let mut numbers = Numbers::new(1);
    let (a, b) = (numbers.take(N as usize, Numbers::f32), numbers.take(N as usize, Numbers::f32));
    let (on_a, on_b) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut on_sum = stream.alloc_zeros::<f32>(N as usize)?;
    launch!(stream, kernel, LaunchConfig::for_num_elems(N), &on_a, &on_b, &mut on_sum, &N)?;
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    same(&stream.clone_dtoh(&on_sum)?, &expected)
}

const SAXPY: &str = r#"
extern "C" __global__ void saxpy(float a, const float *x, float *y, unsigned n) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}
"#;

/// A grid-stride loop; the compiler makes one fused operation of the product and the sum.
fn saxpy() -> Result<()> {
    const N: u32 = 50_021;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(SAXPY, "saxpy")?;
    let mut numbers = Numbers::new(2);
    let (x, y) = (numbers.take(N as usize, Numbers::f32), numbers.take(N as usize, Numbers::f32));
    let a = 1.1_f32;
    let (on_x, mut on_y) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&y)?);
    launch!(gpu.stream, kernel, line(12, 192), &a, &on_x, &mut on_y, &N)?;
    let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| a.mul_add(*x, *y)).collect();
    same(&gpu.stream.clone_dtoh(&on_y)?, &expected)
}

const TILED_PRODUCT: &str = r#"
#define SIDE 16
extern "C" __global__ void product(const float *a, const float *b, float *c, int rows, int inner, int columns) {
    __shared__ float tile_a[SIDE][SIDE];
    __shared__ float tile_b[SIDE][SIDE];
    int row = blockIdx.y * SIDE + threadIdx.y;
    int column = blockIdx.x * SIDE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < inner; start += SIDE) {
        int k_a = start + threadIdx.x;
        int k_b = start + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && k_a < inner ? a[row * inner + k_a] : 0.0f;
        tile_b[threadIdx.y][threadIdx.x] = column < columns && k_b < inner ? b[k_b * columns + column] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int k = 0; k < SIDE; ++k) sum = fmaf(tile_a[threadIdx.y][k], tile_b[k][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < rows && column < columns) c[row * columns + column] = sum;
}
"#;

/// No side of the matrices is a multiple of the tile's.
fn tiled_matrix_product() -> Result<()> {
    const SIDE: u32 = 16;
    const ROWS: usize = 101;
    const INNER: usize = 75;
    const COLUMNS: usize = 90;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(TILED_PRODUCT, "product")?;
    let mut numbers = Numbers::new(3);
    let a = numbers.take(ROWS * INNER, Numbers::f32);
    let b = numbers.take(INNER * COLUMNS, Numbers::f32);
    let (on_a, on_b) = (gpu.stream.clone_htod(&a)?, gpu.stream.clone_htod(&b)?);
    let mut on_c = gpu.stream.alloc_zeros::<f32>(ROWS * COLUMNS)?;
    let (rows, inner, columns) = (u32::try_from(ROWS)?, u32::try_from(INNER)?, u32::try_from(COLUMNS)?);
    launch!(gpu.stream, kernel, plane(columns, rows, SIDE), &on_a, &on_b, &mut on_c, &rows, &inner, &columns)?;
    let element = |i: usize| {
        let (row, column) = (i / COLUMNS, i % COLUMNS);
        (0..INNER).fold(0.0_f32, |sum, k| a[row * INNER + k].mul_add(b[k * COLUMNS + column], sum))
    };
    let expected: Vec<f32> = (0..ROWS * COLUMNS).map(element).collect();
    same(&gpu.stream.clone_dtoh(&on_c)?, &expected)
}

const JACOBI: &str = r#"
extern "C" __global__ void jacobi(const float *from, float *to, int side) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side) return;
    int i = y * side + x;
    bool edge = x == 0 || y == 0 || x == side - 1 || y == side - 1;
    to[i] = edge ? from[i] : 0.25f * (from[i - side] + from[i + side] + from[i - 1] + from[i + 1]);
}
"#;

/// Fifty steps of a heat equation between two grids.
fn jacobi() -> Result<()> {
    const SIDE: usize = 70;
    const STEPS: u32 = 50;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(JACOBI, "jacobi")?;
    let mut grid = Numbers::new(4).take(SIDE * SIDE, Numbers::f32);
    let mut from = gpu.stream.clone_htod(&grid)?;
    let mut to = gpu.stream.alloc_zeros::<f32>(SIDE * SIDE)?;
    let side = u32::try_from(SIDE)?;
    for _ in 0..STEPS {
        launch!(gpu.stream, kernel, plane(side, side, 16), &from, &mut to, &side)?;
        std::mem::swap(&mut from, &mut to);
    }
    for _ in 0..STEPS {
        grid = jacobi_step(&grid, SIDE);
    }
    same(&gpu.stream.clone_dtoh(&from)?, &grid)
}

fn jacobi_step(from: &[f32], side: usize) -> Vec<f32> {
    let at = |i: usize| {
        let (x, y) = (i % side, i / side);
        let edge = x == 0 || y == 0 || x == side - 1 || y == side - 1;
        if edge { from[i] } else { 0.25 * (from[i - side] + from[i + side] + from[i - 1] + from[i + 1]) }
    };
    (0..from.len()).map(at).collect()
}

const ROUNDED: &str = r#"
extern "C" __global__ void rounded(const float *x, const float *y, float *single, const double *u, const double *v,
                                   double *wide, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    single[4 * i] = x[i] / y[i];
    single[4 * i + 1] = sqrtf(fabsf(x[i]));
    single[4 * i + 2] = (float)(u[i] * 1e-40);
    single[4 * i + 3] = fminf(x[i], y[i]) + truncf(x[i] * 100.0f) + floorf(y[i] * 100.0f) + rintf(x[i] * 10.0f);
    wide[4 * i] = u[i] / v[i];
    wide[4 * i + 1] = sqrt(fabs(u[i]));
    wide[4 * i + 2] = fma(u[i], v[i], -u[i]);
    wide[4 * i + 3] = (double)(long long)(u[i] * 1e12) + ceil(v[i] * 100.0);
}
"#;

/// What IEEE 754 defines to the last bit: division, square root, conversions (with subnormal results), rounding.
fn rounded_operations() -> Result<()> {
    const N: u32 = 3000;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(ROUNDED, "rounded")?;
    let mut numbers = Numbers::new(5);
    let nonzero = |numbers: &mut Numbers| numbers.f64() + 3.0;
    let (x, y) = (numbers.take(N as usize, Numbers::f32), numbers.take(N as usize, |numbers| numbers.f32() + 3.0));
    let (u, v) = (numbers.take(N as usize, Numbers::f64), numbers.take(N as usize, nonzero));
    let (on_x, on_y) = (gpu.stream.clone_htod(&x)?, gpu.stream.clone_htod(&y)?);
    let (on_u, on_v) = (gpu.stream.clone_htod(&u)?, gpu.stream.clone_htod(&v)?);
    let mut on_single = gpu.stream.alloc_zeros::<f32>(4 * x.len())?;
    let mut on_wide = gpu.stream.alloc_zeros::<f64>(4 * x.len())?;
    let shape = line(N.div_ceil(128), 128);
    launch!(gpu.stream, kernel, shape, &on_x, &on_y, &mut on_single, &on_u, &on_v, &mut on_wide, &N)?;
    let (mut single, mut wide) = (Vec::new(), Vec::new());
    for i in 0..x.len() {
        let (x, y, u, v) = (x[i], y[i], u[i], v[i]);
        #[allow(clippy::cast_possible_truncation, reason = "the conversion is what is tested")]
        let (subnormal, whole) = ((u * 1e-40) as f32, (u * 1e12).trunc());
        // The compiler fuses no product here: every sum's operands are rounded to whole numbers first.
        let steps = x.min(y) + (x * 100.0).trunc() + (y * 100.0).floor() + (x * 10.0).round_ties_even();
        single.extend([x / y, x.abs().sqrt(), subnormal, steps]);
        wide.extend([u / v, u.abs().sqrt(), u.mul_add(v, -u), whole + (v * 100.0).ceil()]);
    }
    same(&gpu.stream.clone_dtoh(&on_single)?, &single)?;
    same(&gpu.stream.clone_dtoh(&on_wide)?, &wide)
}

/// Its name in C, and what it must give.
type Function<T> = (&'static str, fn(T) -> f64);

const FUNCTIONS_F32: &str = r#"
extern "C" __global__ void functions(const float *x, float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = sinf(v);
    y[n + i] = cosf(v * 1000.0f);
    y[2 * n + i] = expf(v);
    y[3 * n + i] = logf(v);
    y[4 * n + i] = powf(v, 1.7f);
    y[5 * n + i] = tanhf(v);
    y[6 * n + i] = rsqrtf(v);
    y[7 * n + i] = atan2f(v, 0.5f);
}
"#;

fn functions_f32() -> Result<()> {
    const N: u32 = 1500;
    /// A few units in the last place.
    const TOLERANCE: f64 = 2e-6;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(FUNCTIONS_F32, "functions")?;
    let x = Numbers::new(6).take(N as usize, |numbers| numbers.f32() * 0.45 + 1.55);
    let on_x = gpu.stream.clone_htod(&x)?;
    let mut on_y = gpu.stream.alloc_zeros::<f32>(8 * x.len())?;
    launch!(gpu.stream, kernel, line(N.div_ceil(256), 256), &on_x, &mut on_y, &N)?;
    let y: Vec<f64> = gpu.stream.clone_dtoh(&on_y)?.into_iter().map(f64::from).collect();
    let functions: [Function<f32>; 8] = [
        ("sinf", |x| f64::from(x).sin()),
        ("cosf", |x| f64::from(x * 1000.0).cos()),
        ("expf", |x| f64::from(x).exp()),
        ("logf", |x| f64::from(x).ln()),
        ("powf", |x| f64::from(x).powf(f64::from(1.7_f32))),
        ("tanhf", |x| f64::from(x).tanh()),
        ("rsqrtf", |x| f64::from(x).sqrt().recip()),
        ("atan2f", |x| f64::from(x).atan2(0.5)),
    ];
    for ((name, function), y) in functions.into_iter().zip(y.chunks(x.len())) {
        close(name, y, &x.iter().map(|x| function(*x)).collect::<Vec<_>>(), TOLERANCE)?;
    }
    Ok(())
}

const FUNCTIONS_F64: &str = r#"
extern "C" __global__ void functions(const double *x, double *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    y[i] = sin(v * 100000.0);
    y[n + i] = exp(v);
    y[2 * n + i] = log(v);
    y[3 * n + i] = pow(v, 1.7);
    y[4 * n + i] = cbrt(v);
    y[5 * n + i] = atan(v);
    y[6 * n + i] = hypot(v, 2.0);
}
"#;

fn functions_f64() -> Result<()> {
    const N: u32 = 1500;
    /// A few units in the last place; near a zero of the sine the argument's own rounding counts as well.
    const TOLERANCE: f64 = 2e-13;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(FUNCTIONS_F64, "functions")?;
    let x = Numbers::new(7).take(N as usize, |numbers| numbers.f64() * 0.45 + 1.55);
    let on_x = gpu.stream.clone_htod(&x)?;
    let mut on_y = gpu.stream.alloc_zeros::<f64>(7 * x.len())?;
    launch!(gpu.stream, kernel, line(N.div_ceil(256), 256), &on_x, &mut on_y, &N)?;
    let y = gpu.stream.clone_dtoh(&on_y)?;
    let functions: [Function<f64>; 7] = [
        ("sin", |x| (x * 100_000.0).sin()),
        ("exp", f64::exp),
        ("log", f64::ln),
        ("pow", |x| x.powf(1.7)),
        ("cbrt", f64::cbrt),
        ("atan", f64::atan),
        ("hypot", |x| x.hypot(2.0)),
    ];
    for ((name, function), y) in functions.into_iter().zip(y.chunks(x.len())) {
        close(name, y, &x.iter().map(|x| function(*x)).collect::<Vec<_>>(), TOLERANCE)?;
    }
    Ok(())
}
