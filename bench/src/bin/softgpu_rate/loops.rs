//! The kernels that are timed: loops of an instruction, which keep what it has computed last.

use anyhow::Result;
use detshare_workloads::FMA_LOOP;
use std::ffi::{CStr, CString};

/// What a loop computes.
type Expected = fn(f32) -> f64;

/// A kernel of data, in which each thread has a number, and rounds.
pub(crate) struct Loop {
    /// The instruction.
    pub(crate) name: &'static str,
    pub(crate) kernel: &'static CStr,
    pub(crate) ptx: CString,
    pub(crate) rounds: u32,
    /// Thread instructions of a round that are counted.
    pub(crate) counted: u32,
    /// What becomes of a number.
    pub(crate) expected: Expected,
    /// How far off it may be.
    pub(crate) within: f64,
}

/// All that are timed, the one of FMAs first.
pub(crate) fn all() -> Result<Vec<Loop>> {
    // What a CPU does exactly, and what the special function unit approximates.
    let functions: [(&str, Expected); 11] = [
        ("rcp.rn.f32", |x| f64::from(x).recip()),
        ("rcp.approx.f32", |x| f64::from(x).recip()),
        ("sqrt.approx.f32", |x| f64::from(x).sqrt()),
        ("rsqrt.approx.f32", |x| f64::from(x).sqrt().recip()),
        ("div.approx.f32", |x| 3.0 / f64::from(x)),
        ("div.full.f32", |x| 3.0 / f64::from(x)),
        ("ex2.approx.f32", |x| f64::from(x).exp2()),
        ("lg2.approx.f32", |x| f64::from(x).log2()),
        ("sin.approx.f32", |x| f64::from(x).sin()),
        ("cos.approx.f32", |x| f64::from(x).cos()),
        ("tanh.approx.f32", |x| f64::from(x).tanh()),
    ];
    let functions = functions.into_iter().map(|(name, expected)| function(name, expected));
    core::iter::once(Ok(fma())).chain(functions).collect()
}

/// The loop of fp32 FMAs: all four instructions of a round are counted.
fn fma() -> Loop {
    const ROUNDS: u32 = 2000;
    let expected = |x| f64::from((0..ROUNDS).fold(x, |x: f32, _| x.mul_add(f32::from_bits(0x3F7F_BE77), 0.5)));
    Loop {
        name: "fma.rn.f32",
        kernel: c"fma_loop",
        ptx: FMA_LOOP.into(),
        rounds: ROUNDS,
        counted: 4,
        expected,
        within: 0.0,
    }
}

/// A loop in which a function stands so often that what is around it hardly matters; only the function is counted.
fn function(name: &'static str, expected: Expected) -> Result<Loop> {
    const COPIES: u32 = 16;
    let dividend = if name.starts_with("div") { "0f40400000, " } else { "" };
    let copies = format!("    {name} %y, {dividend}%x;\n").repeat(COPIES as usize);
    let ptx = format!(
        "
.version 7.0
.target sm_75
.address_size 64
.visible .entry function(.param .u64 data, .param .u32 rounds)
{{
    .reg .pred %more;
    .reg .f32 %x, %y;
    .reg .b32 %block, %size, %thread, %i, %left;
    .reg .b64 %data, %offset;
    ld.param.u64 %data, [data];
    ld.param.u32 %left, [rounds];
    mov.u32 %block, %ctaid.x;
    mov.u32 %size, %ntid.x;
    mov.u32 %thread, %tid.x;
    mad.lo.u32 %i, %block, %size, %thread;
    mul.wide.u32 %offset, %i, 4;
    add.u64 %data, %data, %offset;
    ld.global.f32 %x, [%data];
AGAIN:
{copies}
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    st.global.f32 [%data], %y;
    ret;
}}
"
    );
    let ptx = CString::new(ptx)?;
    Ok(Loop { name, kernel: c"function", ptx, rounds: 50, counted: COPIES, expected, within: 1e-3 })
}
