//! What a driver's approximations give for all inputs of the ranges from which everything else follows, as digests, compared with
//! those of a GPU.
//!
//! The special function unit reads tables: a wrong entry is a wrong result for some thousand floats among milliards. So
//! every float of these ranges is asked, which are those that `bench/gpu/approximations.py` asks a GPU for. Kernels fold their results,
//! as nobody wants to keep 1.7 GB of them.
//!
//! A line that begins with `#` says something about the file; each other one names an instruction, its first input and how many
//! follow one another, and ends with the digest.
//!
//! ```text
//! instructions --driver /usr/lib/x86_64-linux-gnu/libcuda.so.1 --approximations-as crates/softgpu/tests/instructions/h200.approximations
//! ```

use crate::gpu::Gpu;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

/// Instructions of one type, and the first input of each range.
struct Kind {
    /// From the 32 bits in `%input` to the 64 bits in `%result`.
    apply: &'static str,
    /// How many inputs a range has.
    count: u32,
    instructions: &'static [(&'static str, Firsts)],
}

/// Where ranges begin.
enum Firsts {
    /// At powers of two, with all floats up to the next one.
    Powers(&'static [i32]),
    /// At powers of two and their opposites.
    Signed(&'static [i32]),
    /// Everywhere at once, from these bits on.
    At(u32),
}

/// Floats from one power of two to the next.
const OCTAVE: u32 = 1 << 23;
const KINDS: [Kind; 3] = [
    Kind {
        apply: "mov.b32 %f0, %input; INSTRUCTION %f1, %f0; mov.b32 %low, %f1; cvt.u64.u32 %result, %low;",
        count: OCTAVE,
        instructions: &[
            ("rcp.approx.ftz.f32", Firsts::Powers(&[0])),
            ("rsqrt.approx.ftz.f32", Firsts::Powers(&[0, 1])),
            ("sqrt.approx.ftz.f32", Firsts::Powers(&[0, 1])),
            ("lg2.approx.ftz.f32", Firsts::Powers(&[-2, -1, 0, 1, 5])),
            ("ex2.approx.ftz.f32", Firsts::Signed(&[-26, -8, -2, -1, 0, 3, 6])),
            ("sin.approx.ftz.f32", Firsts::Powers(&[-4, -1, 0, 1, 2])),
            ("cos.approx.ftz.f32", Firsts::Powers(&[-4, -1, 0, 1, 2])),
            ("tanh.approx.f32", Firsts::Powers(&[-13, -12, -11, -10, -9, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3])),
        ],
    },
    Kind {
        apply: "cvt.u16.u32 %h0, %input; INSTRUCTION %h1, %h0; cvt.u64.u16 %result, %h1;",
        count: 1 << 16,
        instructions: &[
            ("ex2.approx.f16", Firsts::At(0)),
            ("tanh.approx.f16", Firsts::At(0)),
            ("ex2.approx.ftz.bf16", Firsts::At(0)),
            ("tanh.approx.bf16", Firsts::At(0)),
        ],
    },
    // Of these only the upper half counts; from 1 to 4.
    Kind {
        apply: "mov.b64 %d0, {%zero, %input}; INSTRUCTION %d1, %d0; mov.b64 %result, %d1;",
        count: 1 << 21,
        instructions: &[
            ("rcp.approx.ftz.f64", Firsts::At(1023 << 20)),
            ("rsqrt.approx.ftz.f64", Firsts::At(1023 << 20)),
        ],
    },
];

impl Firsts {
    fn bits(&self) -> Vec<u32> {
        let of = |exponent: &i32| exponent.wrapping_add(127).cast_unsigned() << 23;
        match self {
            Self::Powers(exponents) => exponents.iter().map(of).collect(),
            Self::Signed(exponents) => exponents.iter().flat_map(|it| [of(it), of(it) | 1 << 31]).collect(),
            Self::At(bits) => vec![*bits],
        }
    }
}

const BLOCKS: u32 = 64;
const THREADS: u32 = 256;

/// A kernel in which each thread takes inputs that lie as far apart as there are threads, and gives `digest * odd number + result`
/// from one to the next: whichever result is another one, so is the digest.
fn kernel(apply: &str, instruction: &str, count: u32) -> String {
    let (all, rounds) = (BLOCKS * THREADS, count / (BLOCKS * THREADS));
    let apply = apply.replace("INSTRUCTION", instruction);
    format!(
        "
.version 7.8
.target sm_90
.address_size 64

.visible .entry test(.param .u64 out, .param .u64 in)
{{
    .reg .pred %more;
    .reg .b16 %h<2>;
    .reg .b32 %thread, %block, %width, %input, %low, %zero, %left;
    .reg .f32 %f<2>;
    .reg .b64 %out, %in, %place, %result, %digest, %factor;
    .reg .f64 %d<2>;

    mov.u32 %thread, %tid.x;
    mov.u32 %block, %ctaid.x;
    mov.u32 %width, %ntid.x;
    mad.lo.u32 %thread, %block, %width, %thread;
    ld.param.u64 %in, [in];
    ld.global.u32 %input, [%in];
    add.u32 %input, %input, %thread;
    mov.u32 %zero, 0;
    mov.u32 %left, {rounds};
    mov.u64 %digest, 0;
    mov.u64 %factor, 0x9e3779b97f4a7c15;
MORE:
    {apply}
    mad.lo.u64 %digest, %digest, %factor, %result;
    add.u32 %input, %input, {all};
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra MORE;

    ld.param.u64 %out, [out];
    mul.wide.u32 %place, %thread, 8;
    add.u64 %out, %out, %place;
    st.global.u64 [%out], %digest;
    ret;
}}
"
    )
}

/// All threads' digests as one (FNV-1a).
fn folded(words: &[u32]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| (hash ^ u64::from(*word)).wrapping_mul(0x0100_0000_01b3))
}

/// The digests of all ranges by the lines that name them, and how many inputs that are.
fn ask(gpu: &Gpu) -> Result<(BTreeMap<String, String>, u64)> {
    let (mut digests, mut inputs) = (BTreeMap::new(), 0);
    for kind in &KINDS {
        for (instruction, firsts) in kind.instructions {
            let text = kernel(kind.apply, instruction, kind.count);
            for first in firsts.bits() {
                let words = 2 * (BLOCKS * THREADS) as usize;
                let given = gpu.launch(&text, [BLOCKS, THREADS], words, &[first]);
                let given = given.with_context(|| format!("{instruction} cannot be asked"))?;
                digests
                    .insert(format!("{instruction} {first:#010x} {}", kind.count), format!("{:016x}", folded(&given)));
                inputs += u64::from(kind.count);
            }
        }
    }
    Ok((digests, inputs))
}

/// Writes a driver's digests into a file; what the file says about itself stays.
pub(crate) fn keep(driver: &Path, to: &Path) -> Result<ExitCode> {
    let before = std::fs::read_to_string(to).unwrap_or_default();
    let about = before.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    let (digests, _) = ask(&Gpu::open(driver)?)?;
    let text: String = about.chain(digests.iter().map(|(range, digest)| format!("{range} {digest}\n"))).collect();
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Compares a driver with the digests in a file.
pub(crate) fn compare(driver: &Path, with: &Path) -> Result<ExitCode> {
    let text = std::fs::read_to_string(with).with_context(|| format!("cannot read {}", with.display()))?;
    let mut expected = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (range, digest) = line.rsplit_once(' ').with_context(|| format!("no digest: {line}"))?;
        ensure!(expected.insert(range, digest).is_none(), "{range} is there twice");
    }
    let (digests, inputs) = ask(&Gpu::open(driver)?)?;
    let mut failed = 0;
    for (range, digest) in &digests {
        match expected.remove(range.as_str()) {
            Some(known) if known == digest => {}
            Some(known) => {
                failed += 1;
                println!("{range} ... failed: {digest} instead of {known}");
            }
            None => {
                failed += 1;
                println!("{range} ... failed: no digest is written down");
            }
        }
    }
    for range in expected.keys() {
        failed += 1;
        println!("{range} ... failed: is not asked any more");
    }
    println!("{} passed, {failed} failed, 0 skipped: {inputs} inputs", digests.len().saturating_sub(failed));
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
