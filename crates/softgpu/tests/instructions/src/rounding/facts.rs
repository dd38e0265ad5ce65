//! What sums of special numbers give.

use super::kind::{self, Kind};
use super::probe::Probe;
use crate::gpu::Gpu;
use anyhow::{Context, Result};
use serde_json::{Value, json};

/// A question: which instruction, what is special, the first factors of A and of B, and C. All other factors are 0.
type Question = (&'static str, &'static str, &'static [u64], &'static [u64], u64);

const QUESTIONS: &[Question] = &[
    ("mma f16 k16 to f32", "-0 · 0 + -0", &[0x8000], &[0], 0x8000_0000),
    ("mma f16 k16 to f32", "1 - 1", &[0x3c00], &[0xbc00], 0x3f80_0000),
    ("mma f16 k16 to f32", "NaN with a payload", &[0x7e01], &[0x3c00], 0),
    ("mma f16 k16 to f32", "C is NaN with a payload", &[0], &[0], 0xffc1_2345),
    ("mma f16 k16 to f32", "infinity · 0", &[0x7c00], &[0], 0),
    ("mma f16 k16 to f32", "infinity - infinity", &[0x7c00, 0x7c00], &[0x3c00, 0xbc00], 0),
    ("mma f16 k16 to f32", "-infinity", &[0x7c00], &[0xbc00], 0x3f80_0000),
    ("mma f16 k16 to f32", "the smallest f16", &[0x0001], &[0x3c00], 0),
    ("mma f16 k16 to f32", "the smallest f16 twice", &[0x0001], &[0x0001], 0),
    ("mma f16 k16 to f32", "C is the smallest f32", &[0], &[0], 1),
    ("mma f16 k16 to f32", "a tie: 1 + 2^-24 and more", &[0x1c00, 0x1400], &[0x1c00, 0x1400], 0x3f80_0000),
    ("mma f16 k16 to f16", "above the largest f16", &[0x7bff, 0x5c00], &[0x3c00, 0x3c00], 0),
    ("mma f16 k16 to f16", "half above the largest f16", &[0x7bff, 0x4c00], &[0x3c00, 0x3c00], 0),
    ("mma f16 k16 to f16", "a subnormal f16 result", &[0x0001], &[0x3800], 0x0001),
    ("mma bf16 k16", "above the largest f32", &[0x7f00], &[0x3f80], 0x7f7f_ffff),
    ("mma bf16 k16", "the largest f32 and a little", &[0x7280], &[0x3f80], 0x7f7f_ffff),
    ("mma bf16 k16", "a product above the largest f32, cancelled", &[0x7f00, 0x7f00], &[0x4080, 0xc080], 0x3f80_0000),
    ("mma bf16 k16", "a subnormal product", &[0x1a00], &[0x2180], 0),
    ("mma bf16 k16", "eight times 2^-151", &[0x1a00; 8], &[0x1980; 8], 0),
    ("mma bf16 k16", "sixteen times 2^-152", &[0x1a00; 16], &[0x1900; 16], 0),
    ("mma bf16 k16", "sixteen times 2^-152 and the smallest f32", &[0x1a00; 16], &[0x1900; 16], 1),
    ("mma bf16 k16", "sixteen times 2^-152 and the largest subnormal f32", &[0x1a00; 16], &[0x1900; 16], 0x007f_ffff),
    (
        "mma bf16 k16",
        "sixteen times 2^-152 and half of the smallest normal f32",
        &[0x1a00; 16],
        &[0x1900; 16],
        0x0040_0000,
    ),
    ("mma bf16 k16", "the smallest bf16", &[0x0001], &[0x3f80], 0),
    ("mma tf32 k8", "bits below those of tf32", &[0x3f80_1fff], &[0x3f80_0000], 0),
    ("mma tf32 k8", "half of the last bit of tf32 and more", &[0x3f80_3fff], &[0x3f80_0000], 0),
    ("mma tf32 k8", "a NaN only below the bits of tf32", &[0x7f80_0001], &[0x3f80_0000], 0),
    ("mma tf32 k8", "a subnormal tf32", &[0x0000_2000], &[0x4b00_0000], 0),
    ("mma f64 k4", "NaN with a payload", &[0x7ff8_0000_0000_0001], &[0x3ff0_0000_0000_0000], 0),
    ("mma f64 k4", "a NaN times a NaN", &[0x7ff8_0000_0000_0001], &[0xfff8_0000_0000_0002], 0),
    ("mma f64 k4", "a NaN and C another", &[0x7ff8_0000_0000_0001], &[0x3ff0_0000_0000_0000], 0xfff8_0000_0000_0003),
    ("mma f64 k4", "infinity · 0", &[0x7ff0_0000_0000_0000], &[0], 0),
    ("mma f64 k4", "-0 · 0 + -0", &[0x8000_0000_0000_0000], &[0], 0x8000_0000_0000_0000),
    ("mma e4m3 k32 to f32", "NaN", &[0x7f], &[0x38], 0),
    ("mma e4m3 k32 to f32", "the smallest e4m3", &[0x01], &[0x38], 0),
    ("wgmma f16 k16 to f32", "-0 · 0 + -0", &[0x8000], &[0], 0x8000_0000),
    ("wgmma f16 k16 to f32", "NaN with a payload", &[0x7e01], &[0x3c00], 0),
    ("wgmma f16 k16 to f16", "above the largest f16", &[0x7bff, 0x5c00], &[0x3c00, 0x3c00], 0),
    ("wgmma bf16 k16", "above the largest f32", &[0x7f00], &[0x3f80], 0x7f7f_ffff),
    ("wgmma tf32 k8", "half of the last bit of tf32 and more", &[0x3f80_3fff], &[0x3f80_0000], 0),
    ("wgmma e4m3 k32 to f32", "C has more bits than are kept", &[0], &[0], 0x3f80_0fff),
    ("wgmma e4m3 k32 to f32", "NaN", &[0x7f], &[0x38], 0),
    ("wgmma e5m2 k32 to f32", "infinity · 0", &[0x7c], &[0], 0),
];

/// A question, and what a driver answers.
pub(super) struct Fact {
    pub(super) instruction: &'static str,
    pub(super) what: &'static str,
    pub(super) kind: Kind,
    pub(super) probe: Probe,
    pub(super) result: u64,
}

/// Asks all.
pub(super) fn ask(gpu: &Gpu) -> Result<Vec<Fact>> {
    let kinds = kind::all();
    let answered = |(instruction, what, a, b, c): &Question| {
        let kind = kinds.iter().find(|kind| kind.name == *instruction);
        let kind = kind.with_context(|| format!("nothing is called {instruction}"))?.clone();
        let padded = |first: &[u64]| {
            let mut all = first.to_vec();
            all.resize(kind.products, 0);
            all
        };
        let probe = Probe { a: padded(a), b: padded(b), c: *c };
        let result = kind.ask(gpu, core::slice::from_ref(&probe))?[0];
        Ok(Fact { instruction, what, kind, probe, result })
    };
    QUESTIONS.iter().map(answered).collect()
}

/// Prints what came out, and gives it as JSON.
pub(super) fn described(facts: &[Fact]) -> Vec<Value> {
    println!("special numbers:");
    let hex = |all: &[u64]| all.iter().map(|bits| format!("{bits:#x}")).collect::<Vec<_>>();
    let described = facts.iter().map(|Fact { instruction, what, probe, result, .. }| {
        println!("    {result:#018x} {instruction}, {what}");
        let (a, b) = (hex(&probe.a), hex(&probe.b));
        let (c, d) = (format!("{:#x}", probe.c), format!("{result:#x}"));
        json!({ "instruction": instruction, "what": what, "a": a, "b": b, "c": c, "d": d })
    });
    described.collect()
}
