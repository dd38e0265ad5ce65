//! The instructions that are asked, and how probes reach their registers.

use super::format::{BF16, E4M3, E5M2, F16, F32, F64, Format, TF32};
use super::probe::Probe;
use crate::gpu::Gpu;
use anyhow::Result;
use std::fmt::Write;

/// Probes that one warp or warpgroup has at a time: each is a row of A and the column of B with its number.
const ABREAST: usize = 8;
/// Warps or warpgroups of a launch.
const UNITS: usize = 8;
/// Lanes that have a row of A together.
const QUAD: usize = 4;
const LANES: usize = 32;
/// Metadata that says of every four elements that the first two are there.
const FIRST_TWO: u32 = 0x4444_4444;

/// An instruction.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// With its shape and types.
    pub(super) instruction: String,
    pub(super) a: Format,
    pub(super) b: Format,
    /// C and D.
    pub(super) result: Format,
    /// How many products one result is made of.
    pub(super) products: usize,
    warpgroup: bool,
    sparse: bool,
}

/// All that are asked.
pub(super) fn all() -> Vec<Kind> {
    let warp = |name, shape: &str, d: (&str, Format), a: (&str, Format), b: (&str, Format), products| Kind {
        name,
        instruction: format!("mma.sync.aligned.{shape}.row.col.{}.{}.{}.{}", d.0, a.0, b.0, d.0),
        a: a.1,
        b: b.1,
        result: d.1,
        products,
        warpgroup: false,
        sparse: false,
    };
    let group = |name, shape: &str, d: (&str, Format), a: (&str, Format), b: (&str, Format), products| Kind {
        instruction: format!("wgmma.mma_async.sync.aligned.{shape}.{}.{}.{}", d.0, a.0, b.0),
        warpgroup: true,
        ..warp(name, "", d, a, b, products)
    };
    let (half, brain, tensor, single, double) =
        (("f16", F16), ("bf16", BF16), ("tf32", TF32), ("f32", F32), ("f64", F64));
    let (e4m3, e5m2) = (("e4m3", E4M3), ("e5m2", E5M2));
    vec![
        warp("mma f16 k16 to f32", "m16n8k16", single, half, half, 16),
        warp("mma f16 k8 to f32", "m16n8k8", single, half, half, 8),
        warp("mma f16 k16 to f16", "m16n8k16", half, half, half, 16),
        warp("mma bf16 k16", "m16n8k16", single, brain, brain, 16),
        warp("mma tf32 k8", "m16n8k8", single, tensor, tensor, 8),
        warp("mma tf32 k4", "m16n8k4", single, tensor, tensor, 4),
        warp("mma e4m3 k32 to f32", "m16n8k32", single, e4m3, e4m3, 32),
        warp("mma e5m2 k32 to f16", "m16n8k32", half, e5m2, e5m2, 32),
        Kind {
            instruction: "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32".into(),
            sparse: true,
            ..warp("mma.sp f16 k32", "", single, half, half, 16)
        },
        warp("mma f64 k4", "m16n8k4", double, double, double, 4),
        warp("mma f64 k16", "m16n8k16", double, double, double, 16),
        group("wgmma f16 k16 to f32", "m64n8k16", single, half, half, 16),
        group("wgmma f16 k16 to f16", "m64n8k16", half, half, half, 16),
        group("wgmma bf16 k16", "m64n8k16", single, brain, brain, 16),
        group("wgmma tf32 k8", "m64n8k8", single, tensor, tensor, 8),
        group("wgmma e4m3 k32 to f32", "m64n8k32", single, e4m3, e4m3, 32),
        group("wgmma e4m3 k32 to f16", "m64n8k32", half, e4m3, e4m3, 32),
        group("wgmma e5m2 k32 to f32", "m64n8k32", single, e5m2, e5m2, 32),
    ]
}

impl Kind {
    pub(super) fn is_double(&self) -> bool {
        self.result == F64
    }

    fn threads(&self) -> usize {
        LANES * if self.warpgroup { 4 } else { 1 }
    }

    /// Elements that share a register of A or B.
    fn per_register(&self) -> usize {
        (32 / self.a.bits() as usize).max(1)
    }

    /// Registers of A, B, and C or D.
    fn registers(&self) -> [usize; 3] {
        let steps = self.products / (QUAD * self.per_register());
        let b_steps = if self.sparse { 2 * steps } else { steps };
        [2 * steps, if self.warpgroup { 0 } else { b_steps }, if self.result == F16 { 2 } else { 4 }]
    }

    /// Words of 32 bits that a register has.
    fn words(&self) -> usize {
        if self.is_double() { 2 } else { 1 }
    }

    /// Words that a thread reads. A warpgroup's B is spread over its threads, one word each.
    fn stride(&self) -> usize {
        let [a, b, c] = self.registers();
        (a + b + c) * self.words() + usize::from(self.warpgroup)
    }

    /// The results of all probes.
    pub(super) fn ask(&self, gpu: &Gpu, probes: &[Probe]) -> Result<Vec<u64>> {
        let text = self.kernel();
        let mut results = Vec::with_capacity(probes.len());
        for batch in probes.chunks(ABREAST * UNITS) {
            let input: Vec<u32> =
                (0..UNITS).flat_map(|unit| self.input(batch.chunks(ABREAST).nth(unit).unwrap_or_default())).collect();
            let threads = self.threads() * UNITS;
            let written = gpu.launch(&text, [1, u32::try_from(threads)?], threads * self.output_words(), &input)?;
            results.extend((0..batch.len()).map(|number| self.result(&written, number)));
        }
        Ok(results)
    }

    fn output_words(&self) -> usize {
        self.registers()[2] * self.words()
    }

    /// The thread of a unit that has a probe's C and D, and the register and bits there.
    fn holder(&self, number: usize) -> (usize, usize, u32) {
        let thread = number * QUAD + number / 2;
        if self.result == F16 {
            (thread, 0, if number.is_multiple_of(2) { 0 } else { 16 })
        } else {
            (thread, number % 2, 0)
        }
    }

    fn result(&self, written: &[u32], number: usize) -> u64 {
        let (thread, register, shift) = self.holder(number % ABREAST);
        let thread = number / ABREAST * self.threads() + thread;
        let at = thread * self.output_words() + register * self.words();
        let low = u64::from(written[at]);
        let bits = if self.is_double() { low | u64::from(written[at + 1]) << 32 } else { low };
        bits >> shift & (u64::MAX >> (64 - self.result.bits()))
    }

    /// What the threads of a unit read.
    fn input(&self, probes: &[Probe]) -> Vec<u32> {
        let mut words = vec![0u32; self.threads() * self.stride()];
        let [a_registers, b_registers, _] = self.registers();
        for (number, probe) in probes.iter().enumerate() {
            for quad in 0..QUAD {
                let thread = number * QUAD + quad;
                // The odd registers of A have the rows below.
                for register in (0..a_registers).step_by(2) {
                    let packed = self.packed(&probe.a, self.a, quad, register / 2);
                    self.write(&mut words, thread, register, packed);
                }
                if !self.warpgroup {
                    for register in 0..b_registers {
                        let packed = self.packed(&self.spread_b(probe), self.b, quad, register);
                        self.write(&mut words, thread, a_registers + register, packed);
                    }
                }
            }
            if self.warpgroup {
                self.write_column(&mut words, number, probe);
            }
            let (thread, register, shift) = self.holder(number);
            let register = a_registers + b_registers + register;
            self.write(&mut words, thread, register, probe.c << shift);
        }
        words
    }

    /// B with zeros where a sparse A has no elements.
    fn spread_b(&self, probe: &Probe) -> Vec<u64> {
        if !self.sparse {
            return probe.b.clone();
        }
        probe.b.chunks(2).flat_map(|pair| [pair[0], pair[1], 0, 0]).collect()
    }

    /// Neighbouring elements in one register.
    fn packed(&self, elements: &[u64], format: Format, quad: usize, step: usize) -> u64 {
        let width = self.per_register();
        let first = step * QUAD * width + quad * width;
        (0..width).fold(0, |packed, within| packed | elements[first + within] << (within * format.bits() as usize))
    }

    fn write(&self, words: &mut [u32], thread: usize, register: usize, bits: u64) {
        let at = thread * self.stride() + register * self.words();
        for (word, at) in (at..at + self.words()).enumerate() {
            words[at] |= u32::try_from(bits >> (32 * word) & 0xffff_ffff).unwrap_or_default();
        }
    }

    /// A column of B in shared memory: 16 bytes for each column, twice.
    fn write_column(&self, words: &mut [u32], number: usize, probe: &Probe) {
        let bits = self.b.bits() as usize;
        for (k, element) in probe.b.iter().enumerate() {
            let bit = k * bits;
            let (chunk, within) = (bit / 128, bit % 128);
            let thread = chunk * ABREAST * 4 + number * 4 + within / 32;
            let at = thread * self.stride() + self.stride() - 1;
            words[at] |= u32::try_from(*element << (within % 32) & 0xffff_ffff).unwrap_or_default();
        }
    }

    /// The kernel that runs the instruction once in each unit.
    fn kernel(&self) -> String {
        let [a, b, c] = self.registers();
        let (ty, size) = if self.is_double() { ("f64", 8) } else { ("b32", 4) };
        let target = if self.warpgroup { "sm_90a" } else { "sm_90" };
        let mut text = format!(
            ".version 8.7\n.target {target}\n.address_size 64\n\
             .visible .entry test(.param .u64 out, .param .u64 in)\n{{\n\
             .reg .b64 %out, %in, %descriptor;\n.reg .b32 %thread, %at, %word, %unit;\n.reg .pred %all;\n\
             .reg .{ty} %a<{a}>, %b<{}>, %c<{c}>;\n.shared .align 1024 .b8 buffer[{}];\n\
             mov.u32 %thread, %tid.x;\nld.param.u64 %out, [out];\nld.param.u64 %in, [in];\n\
             cvta.to.global.u64 %out, %out;\ncvta.to.global.u64 %in, %in;\n\
             mad.wide.u32 %out, %thread, {}, %out;\nmad.wide.u32 %in, %thread, {}, %in;\n",
            b.max(1),
            512 * UNITS,
            self.output_words() * 4,
            self.stride() * 4,
        );
        let names = [('a', a), ('b', b), ('c', c)]
            .into_iter()
            .flat_map(|(name, count)| (0..count).map(move |number| (name, number)));
        for (at, (name, number)) in names.enumerate() {
            let _ = writeln!(text, "ld.global.{ty} %{name}{number}, [%in+{}];", at * size);
        }
        if self.warpgroup {
            self.write_group(&mut text, (a + b + c) * size);
        } else {
            let (a, b, c) = (list('a', a), list('b', b), list('c', c));
            let metadata = if self.sparse { ", %word, 0" } else { "" };
            let _ = writeln!(text, "mov.b32 %word, {FIRST_TWO};\n{} {c}, {a}, {b}, {c}{metadata};", self.instruction);
        }
        for number in 0..c {
            let _ = writeln!(text, "st.global.{ty} [%out+{}], %c{number};", number * size);
        }
        text + "ret;\n}\n"
    }

    /// B to shared memory, 512 bytes for each warpgroup, and the instruction.
    fn write_group(&self, text: &mut String, column: usize) {
        let [a, _, c] = self.registers();
        let transpositions = if matches!(self.a, F16 | BF16) { ", 0" } else { "" };
        // The two halves of K are 128 bytes apart.
        let _ = write!(
            text,
            "ld.global.b32 %word, [%in+{column}];\nmov.b32 %at, buffer;\nmad.lo.u32 %at, %thread, 4, %at;\n\
             st.shared.b32 [%at], %word;\nfence.proxy.async;\nbar.sync 0;\n\
             shr.u32 %unit, %thread, 7;\nmov.b32 %at, buffer;\nmad.lo.u32 %at, %unit, 512, %at;\n\
             and.b32 %at, %at, 0x3ffff;\nshr.u32 %at, %at, 4;\ncvt.u64.u32 %descriptor, %at;\n\
             or.b64 %descriptor, %descriptor, 0x1000080000;\nsetp.eq.u32 %all, %thread, %thread;\n\
             wgmma.fence.sync.aligned;\n{} {}, {}, %descriptor, %all, 1, 1{transpositions};\n\
             wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n",
            self.instruction,
            list('c', c),
            list('a', a),
        );
    }
}

/// `{%a0, %a1}`
fn list(name: char, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|number| format!("%{name}{number}")).collect();
    format!("{{{}}}", names.join(", "))
}
