//! What C++ asks of a device: structures by value, templates, calls, recursion, function pointers, local arrays.

use crate::Program;
use crate::gpu::{ARCHITECTURE, Gpu, Numbers, line, same};
use anyhow::{Context, Result};
use cudarc::driver::DeviceRepr;
use cudarc::nvrtc::{Ptx, result as nvrtc, sys};
use std::ffi::{CStr, CString};

pub(crate) const PROGRAMS: &[Program] = &[
    ("language::structure_by_value", structure_by_value),
    ("language::large_structure_by_value", large_structure_by_value),
    ("language::templates", templates),
    ("language::calls_and_recursion", calls_and_recursion),
    ("language::function_pointers", function_pointers),
    ("language::virtual_functions", virtual_functions),
    ("language::local_arrays", local_arrays),
    ("language::switch", switch),
];

const STRUCTURE: &str = r#"
struct Settings {
    unsigned char flag;
    double scale;
    float offsets[3];
    short shift;
    long long bias;
};
extern "C" __global__ void apply(char before, Settings settings, unsigned short after, double *out) {
    unsigned i = threadIdx.x;
    double value = settings.scale * i + settings.offsets[i % 3];
    value += (double)(settings.bias + settings.shift);
    out[i] = settings.flag ? value : -value;
    if (i == 0) out[0] = before * 1000.0 + after;
}
"#;

/// The kernel's structure, with the same holes between its fields.
#[repr(C)]
struct Settings {
    flag: u8,
    scale: f64,
    offsets: [f32; 3],
    shift: i16,
    bias: i64,
}

// SAFETY: plain numbers in C's layout.
unsafe impl DeviceRepr for Settings {}

fn structure_by_value() -> Result<()> {
    const N: u32 = 64;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(STRUCTURE, "apply")?;
    let settings = Settings { flag: 1, scale: 0.125, offsets: [0.5, -1.25, 3.0], shift: -77, bias: -(1 << 40) };
    let (before, after) = (-5_i8, 65_000_u16);
    let mut on_out = gpu.stream.alloc_zeros::<f64>(N as usize)?;
    launch!(gpu.stream, kernel, line(1, N), &before, &settings, &after, &mut on_out)?;
    #[allow(clippy::cast_precision_loss, reason = "fewer than 53 bits")]
    let constant = (settings.bias + i64::from(settings.shift)) as f64;
    // Every term is a multiple of 1/8 below 2⁴¹: nothing is rounded, in whichever order it is added.
    let value = |i: u32| settings.scale * f64::from(i) + f64::from(settings.offsets[i as usize % 3]) + constant;
    let mut expected: Vec<f64> = (0..N).map(value).collect();
    expected[0] = f64::from(before) * 1000.0 + f64::from(after);
    same(&gpu.stream.clone_dtoh(&on_out)?, &expected)
}

const LARGE_STRUCTURE: &str = r#"
struct Table { unsigned entries[900]; };
__device__ __noinline__ unsigned rotate_through(Table table, unsigned start) {
    for (unsigned k = 0; k < 5; ++k) start = table.entries[start % 900] ^ k;
    return start;
}
extern "C" __global__ void look_up(Table table, const unsigned *keys, unsigned *out, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned value = table.entries[keys[i] % 900];
    if (keys[i] % 4 == 0) {
        table.entries[(value + 1) % 900] = keys[i];
        value = rotate_through(table, value + 1);
    }
    out[i] = value;
}
"#;

#[derive(Clone)]
#[repr(C)]
struct Table([u32; 900]);

// SAFETY: plain numbers in C's layout.
unsafe impl DeviceRepr for Table {}

/// A table of 3600 bytes as a parameter: indexed by data, changed by a thread for itself, handed on by value.
fn large_structure_by_value() -> Result<()> {
    const N: u32 = 200;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(LARGE_STRUCTURE, "look_up")?;
    let mut numbers = Numbers::new(40);
    let table = Table(core::array::from_fn(|_| numbers.u32() % 100_000));
    let keys = numbers.take(N as usize, Numbers::u32);
    let on_keys = gpu.stream.clone_htod(&keys)?;
    let mut on_out = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    launch!(gpu.stream, kernel, line(N.div_ceil(64), 64), &table, &on_keys, &mut on_out, &N)?;
    let looked_up = |key: &u32| {
        let value = table.0[*key as usize % 900];
        if !key.is_multiple_of(4) {
            return value;
        }
        let mut own = table.clone();
        own.0[(value as usize + 1) % 900] = *key;
        (0..5_u32).fold(value + 1, |start, k| own.0[start as usize % 900] ^ k)
    };
    same(&gpu.stream.clone_dtoh(&on_out)?, &keys.iter().map(looked_up).collect::<Vec<_>>())
}

const TEMPLATES: &str = r#"
template <typename T> struct Sum { static __device__ T apply(T a, T b) { return a + b; } };
template <typename T> struct Most { static __device__ T apply(T a, T b) { return a > b ? a : b; } };
template <typename T, int WIDTH, template <typename> class Operation>
__global__ void fold(const T *in, T *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    T value = in[i * WIDTH];
    #pragma unroll
    for (int k = 1; k < WIDTH; ++k) value = Operation<T>::apply(value, in[i * WIDTH + k]);
    out[i] = value;
}
"#;

/// Instances of one template, found by the names that NVRTC gave them.
fn templates() -> Result<()> {
    const GROUPS: u32 = 96;
    let gpu = Gpu::open()?;
    let (of_floats, of_words) = (c"fold<float, 4, Sum>", c"fold<unsigned long long, 7, Most>");
    let (ptx, names) = compile_instances(TEMPLATES, &[of_floats, of_words])?;
    let module = gpu.context.load_module(ptx).context("loading the PTX")?;
    let mut numbers = Numbers::new(41);

    let floats = numbers.take(GROUPS as usize * 4, Numbers::f32);
    let on_floats = gpu.stream.clone_htod(&floats)?;
    let mut on_sums = gpu.stream.alloc_zeros::<f32>(GROUPS as usize)?;
    launch!(gpu.stream, module.load_function(&names[0])?, line(3, 32), &on_floats, &mut on_sums)?;
    let sums: Vec<f32> = floats.chunks(4).map(|group| group[1..].iter().fold(group[0], |a, b| a + b)).collect();
    same(&gpu.stream.clone_dtoh(&on_sums)?, &sums)?;

    let words = numbers.take(GROUPS as usize * 7, Numbers::u64);
    let on_words = gpu.stream.clone_htod(&words)?;
    let mut on_most = gpu.stream.alloc_zeros::<u64>(GROUPS as usize)?;
    launch!(gpu.stream, module.load_function(&names[1])?, line(3, 32), &on_words, &mut on_most)?;
    let most: Vec<u64> = words.chunks(7).map(|group| group.iter().copied().max().unwrap_or(0)).collect();
    same(&gpu.stream.clone_dtoh(&on_most)?, &most)
}

/// Compiles a source with some instances of its templates; gives the PTX and the instances' names there.
fn compile_instances(source: &str, instances: &[&CStr]) -> Result<(Ptx, Vec<String>)> {
    let source = CString::new(source)?;
    let program = nvrtc::create_program(&source, None)?;
    for instance in instances {
        // SAFETY: a program that is not compiled yet, and a terminated name.
        unsafe { sys::nvrtcAddNameExpression(program, instance.as_ptr()) }.result()?;
    }
    // SAFETY: a program that was created here.
    unsafe { nvrtc::compile_program(program, &[format!("--gpu-architecture={ARCHITECTURE}")]) }?;
    let mut names = Vec::new();
    for instance in instances {
        let mut name = core::ptr::null();
        // SAFETY: a compiled program, a name that was added to it, and a place for a pointer.
        unsafe { sys::nvrtcGetLoweredName(program, instance.as_ptr(), &raw mut name) }.result()?;
        // SAFETY: a terminated name that lives as long as the program.
        names.push(unsafe { CStr::from_ptr(name) }.to_str()?.to_owned());
    }
    // SAFETY: a compiled program.
    let ptx = unsafe { nvrtc::get_ptx(program) }?;
    // SAFETY: NVRTC terminates the PTX.
    let text = unsafe { CStr::from_ptr(ptx.as_ptr()) }.to_str()?.to_owned();
    // SAFETY: not used again, and nothing points into it any more.
    unsafe { nvrtc::destroy_program(program) }?;
    Ok((Ptx::from_src(text), names))
}

const CALLS: &str = r#"
__device__ __noinline__ unsigned ackermann(unsigned m, unsigned n) {
    if (m == 0) return n + 1;
    if (n == 0) return ackermann(m - 1, 1);
    return ackermann(m - 1, ackermann(m, n - 1));
}
struct Pair { unsigned quotient; unsigned remainder; };
__device__ __noinline__ Pair divide(unsigned a, unsigned b) { return Pair{a / b, a % b}; }
__device__ __noinline__ void swap(unsigned *a, unsigned *b) { unsigned c = *a; *a = *b; *b = c; }
extern "C" __global__ void call(unsigned *out) {
    unsigned i = threadIdx.x;
    Pair pair = divide(i * 100 + 7, i + 1);
    if (i % 2) swap(&pair.quotient, &pair.remainder);
    out[3 * i] = ackermann(2, i % 5);
    out[3 * i + 1] = pair.quotient;
    out[3 * i + 2] = pair.remainder;
}
"#;

/// Calls with a stack: results in structures, pointers to locals, recursion that differs between the threads.
fn calls_and_recursion() -> Result<()> {
    const N: u32 = 64;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(CALLS, "call")?;
    let mut on_out = gpu.stream.alloc_zeros::<u32>(3 * N as usize)?;
    launch!(gpu.stream, kernel, line(1, N), &mut on_out)?;
    let called = |i: u32| {
        let (quotient, remainder) = ((i * 100 + 7) / (i + 1), (i * 100 + 7) % (i + 1));
        let ackermann_of_two = 2 * (i % 5) + 3;
        if i % 2 == 1 { [ackermann_of_two, remainder, quotient] } else { [ackermann_of_two, quotient, remainder] }
    };
    same(&gpu.stream.clone_dtoh(&on_out)?, &(0..N).flat_map(called).collect::<Vec<_>>())
}

const FUNCTION_POINTERS: &str = r#"
typedef int (*Operation)(int, int);
__device__ int add(int a, int b) { return a + b; }
__device__ int subtract(int a, int b) { return a - b; }
__device__ int multiply(int a, int b) { return a * b; }
__device__ Operation operations[3] = {add, subtract, multiply};
extern "C" __global__ void fold(const unsigned char *program, int *out, unsigned steps) {
    int value = threadIdx.x;
    for (unsigned step = 0; step < steps; ++step)
        value = operations[(program[step] + threadIdx.x) % 3](value, step + 2);
    out[threadIdx.x] = value;
}
"#;

/// Threads of one warp that call different functions through the same pointer.
fn function_pointers() -> Result<()> {
    const N: usize = 96;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(FUNCTION_POINTERS, "fold")?;
    let program = Numbers::new(42).take(20, Numbers::u8);
    let on_program = gpu.stream.clone_htod(&program)?;
    let mut on_out = gpu.stream.alloc_zeros::<i32>(N)?;
    let steps = u32::try_from(program.len())?;
    launch!(gpu.stream, kernel, line(1, u32::try_from(N)?), &on_program, &mut on_out, &steps)?;
    let folded = |thread: usize| {
        (2_i32..).zip(&program).fold(i32::try_from(thread).unwrap_or(0), |value, (operand, choice)| {
            match (usize::from(*choice) + thread) % 3 {
                0 => value.wrapping_add(operand),
                1 => value.wrapping_sub(operand),
                _ => value.wrapping_mul(operand),
            }
        })
    };
    same(&gpu.stream.clone_dtoh(&on_out)?, &(0..N).map(folded).collect::<Vec<_>>())
}

const VIRTUAL_FUNCTIONS: &str = r#"
struct Shape { virtual __device__ float area() const = 0; };
struct Square : Shape {
    float side;
    __device__ Square(float side) : side(side) {}
    __device__ float area() const override { return side * side; }
};
struct Triangle : Shape {
    float base, height;
    __device__ Triangle(float base, float height) : base(base), height(height) {}
    __device__ float area() const override { return base * height * 0.5f; }
};
__device__ __noinline__ float twice(const Shape &shape) { return 2.0f * shape.area(); }
extern "C" __global__ void areas(float *out) {
    unsigned i = threadIdx.x;
    Square square((float)i);
    Triangle triangle((float)i, 3.0f);
    const Shape &shape = i % 3 ? (const Shape &)square : (const Shape &)triangle;
    out[i] = twice(shape);
}
"#;

fn virtual_functions() -> Result<()> {
    const N: u8 = 64;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(VIRTUAL_FUNCTIONS, "areas")?;
    let mut on_out = gpu.stream.alloc_zeros::<f32>(usize::from(N))?;
    launch!(gpu.stream, kernel, line(1, u32::from(N)), &mut on_out)?;
    let area = |i: u8| 2.0 * if i.is_multiple_of(3) { f32::from(i) * 3.0 * 0.5 } else { f32::from(i) * f32::from(i) };
    same(&gpu.stream.clone_dtoh(&on_out)?, &(0..N).map(area).collect::<Vec<_>>())
}

const LOCAL_ARRAYS: &str = r#"
extern "C" __global__ void sort_rows(unsigned *rows, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned own[24];
    for (int k = 0; k < 24; ++k) own[k] = rows[i * 24 + k];
    for (int k = 1; k < 24; ++k) {
        unsigned value = own[k];
        int at = k;
        while (at > 0 && own[at - 1] > value) { own[at] = own[at - 1]; --at; }
        own[at] = value;
    }
    for (int k = 0; k < 24; ++k) rows[i * 24 + k] = own[k];
}
"#;

/// Each thread sorts numbers in an array of its own.
fn local_arrays() -> Result<()> {
    const ROWS: u32 = 300;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(LOCAL_ARRAYS, "sort_rows")?;
    let mut rows = Numbers::new(43).take(ROWS as usize * 24, Numbers::u32);
    let mut on_rows = gpu.stream.clone_htod(&rows)?;
    launch!(gpu.stream, kernel, line(ROWS.div_ceil(64), 64), &mut on_rows, &ROWS)?;
    rows.chunks_mut(24).for_each(<[u32]>::sort_unstable);
    same(&gpu.stream.clone_dtoh(&on_rows)?, &rows)
}

const SWITCH: &str = r#"
extern "C" __global__ void interpret(const unsigned char *program, unsigned *out, unsigned steps) {
    unsigned i = threadIdx.x, value = i;
    for (unsigned step = 0; step < steps; ++step) {
        switch ((program[step] + i) % 9) {
            case 0: value += 3; break;
            case 1: value *= 5; break;
            case 2: value ^= 0x5555; break;
            case 3: value = __brev(value); break;
            case 4: value = value << 7 | value >> 25; break;
            case 5: if (value & 1) continue; value /= 2; break;
            case 6: value -= step;
            case 7: value = ~value; break;
            default: if (value % 16 == 0) goto done;
        }
        value += step;
    }
done:
    out[i] = value;
}
"#;

/// A small interpreter in which every thread goes its own way.
fn switch() -> Result<()> {
    const N: u32 = 128;
    let gpu = Gpu::open()?;
    let kernel = gpu.kernel(SWITCH, "interpret")?;
    let program = Numbers::new(44).take(60, Numbers::u8);
    let on_program = gpu.stream.clone_htod(&program)?;
    let mut on_out = gpu.stream.alloc_zeros::<u32>(N as usize)?;
    launch!(gpu.stream, kernel, line(1, N), &on_program, &mut on_out, &u32::try_from(program.len())?)?;
    same(&gpu.stream.clone_dtoh(&on_out)?, &(0..N).map(|i| interpreted(&program, i)).collect::<Vec<_>>())
}

fn interpreted(program: &[u8], i: u32) -> u32 {
    let mut value = i;
    for (step, choice) in (0_u32..).zip(program) {
        value = match (u32::from(*choice) + i) % 9 {
            0 => value.wrapping_add(3),
            1 => value.wrapping_mul(5),
            2 => value ^ 0x5555,
            3 => value.reverse_bits(),
            4 => value.rotate_left(7),
            5 if value & 1 == 1 => continue,
            5 => value / 2,
            6 => !value.wrapping_sub(step),
            7 => !value,
            _ if value.is_multiple_of(16) => return value,
            _ => value,
        };
        value = value.wrapping_add(step);
    }
    value
}
