//! What the compiler in driver 580 (CUDA 13.0) gets wrong, kept out of kernels: what comes out there is no function of
//! the instruction's inputs, but of what stands around it. Found on an H200; `ptxas` 13.0 makes the same of it.
//!
//! | kernel | what the compiler makes of it | CUDA 13.4's |
//! | --- | --- | --- |
//! | `bfe.s32` from a constant place above 31 | all ones, whatever the sign; from a register's place it is right | the same |
//! | `bfi.b32` of a constant 32 bits or more, not to place 0 | the second operand, as if there were no bits | right |
//! | `prmt` with a constant that repeats signs, taken apart into halves | the lower half's signs are lost | right |
//! | `slct` by what `neg.s32` made | the operand without its sign is compared, which is wrong for the smallest | the same |
//! | `slct` by what `abs.s32` made | nothing is compared, as if it were never negative, which the smallest is | right |
//! | `add.sat`, `sub.sat` of a sum or a difference that has the same operand | the two cancel, whether or not they overflowed | right |
//! | `mul.wide`, `mad.wide`, `sad` of what `neg.s16` or `abs.s16` made | 32768, where 16 bits hold -32768 | right |
//! | `mul.hi`, `mad.hi`, `shr` of what `neg.s16` or `abs.s16` made | the same: the 32 bits of the sum are taken | right |
//! | `mad.hi` onto its own addend in a loop | two rounds of four are left out | right |
//! | a byte stored of what an `f32` instruction made | the number as an integer, not its bits | right |
//! | `set` of halves to a half, seen as 32 bits | a copy of the result in the upper half, or what was there | the same |
//! | `min.f64`, `max.f64` of two NaNs | the one whose register comes later, in the compiler's order | not tried |
//!
//! The last two are changed so that they are right; statements with the others are left out, but for `slct` by `abs.s32`
//! and the second row of 16 bits: these were found when the GPU had answered all kernels, few of which have them, and
//! where its answer is another one, [`left_in`] knows why.

use crate::kernel::{Kernel, Statement};
use std::collections::BTreeSet;

/// Takes out of a kernel what the compiler gets wrong.
pub(super) fn take_out(kernel: &mut Kernel) {
    for body in kernel.functions.iter_mut().map(|function| &mut function.body).chain([&mut kernel.body]) {
        let mut made = Made::default();
        made.collect(body);
        clean(body, &made, false);
    }
}

/// What the compiler may get wrong in a kernel as it is, if there is anything.
pub(super) fn left_in(kernel: &Kernel) -> Option<&'static str> {
    kernel
        .functions
        .iter()
        .map(|function| &function.body)
        .chain([&kernel.body])
        .find_map(|body| Opposites::default().fault_in(body))
}

fn clean(body: &mut Vec<Statement>, made: &Made, inner: bool) {
    body.retain(|statement| match statement {
        Statement::Text(text) => !instructions(text).iter().any(|it| made.is_wrong(it, inner)),
        Statement::Block { .. } => true,
    });
    for statement in body {
        match statement {
            Statement::Text(text) => *text = mended(text),
            Statement::Block { parts, .. } => parts.iter_mut().for_each(|(_, part)| clean(part, made, true)),
        }
    }
}

struct Instruction<'a> {
    conditional: bool,
    opcode: &'a str,
    operands: Vec<&'a str>,
}

fn instructions(text: &str) -> Vec<Instruction<'_>> {
    text.split(';')
        .map(|piece| piece.trim_start_matches([' ', '{', '}']).trim_end())
        .filter_map(|piece| {
            let conditional = piece.starts_with('@');
            let piece = if conditional { piece.split_once(' ')?.1 } else { piece };
            let (opcode, operands) = piece.split_once(' ').filter(|_| !piece.starts_with('.'))?;
            let operands = operands.split(',').map(|it| it.trim_matches([' ', '{', '}'])).collect();
            Some(Instruction { conditional, opcode, operands })
        })
        .collect()
}

impl Instruction<'_> {
    /// By the first type that it names.
    fn writes_f32(&self) -> bool {
        let is_type = |word: &&str| {
            let width = word.strip_prefix(['b', 'f', 's', 'u']);
            width.is_some_and(|width| width.starts_with(|first: char| first.is_ascii_digit()))
        };
        self.opcode.split('.').skip(1).find(is_type) == Some("f32")
    }

    /// What an operand is if it is a constant.
    fn constant(&self, place: usize) -> Option<u32> {
        self.operands.get(place)?.parse().ok()
    }

    fn is(&self, opcodes: &[&str]) -> bool {
        opcodes.contains(&self.opcode)
    }

    /// The registers that it writes; for a load of a vector those of the vector.
    fn written(&self) -> impl Iterator<Item = &str> {
        let address = self.operands.iter().position(|it| it.starts_with('['));
        self.operands.iter().take(address.unwrap_or(1)).copied()
    }
}

/// Registers by what any of a kernel's instructions makes them hold.
#[derive(Default)]
struct Made {
    permuted_signs: BTreeSet<String>,
    negated: BTreeSet<String>,
    narrow_negated: BTreeSet<String>,
    floats: BTreeSet<String>,
    /// Sums and differences, each with its operands.
    sums: BTreeSet<[String; 2]>,
}

impl Made {
    fn collect(&mut self, body: &[Statement]) {
        for statement in body {
            match statement {
                Statement::Text(text) => instructions(text).iter().for_each(|it| self.note(it)),
                Statement::Block { parts, .. } => parts.iter().for_each(|(_, part)| self.collect(part)),
            }
        }
    }

    fn note(&mut self, it: &Instruction<'_>) {
        let Some(first) = it.operands.first().map(ToString::to_string) else { return };
        let repeats_a_sign = |selector: u32| selector & 0x8888 != 0;
        if it.opcode == "prmt.b32" && it.constant(3).is_some_and(repeats_a_sign) {
            self.permuted_signs.insert(first);
        } else if it.opcode == "neg.s32" {
            self.negated.insert(first);
        } else if it.is(&["neg.s16", "abs.s16"]) {
            self.narrow_negated.insert(first);
        } else if it.writes_f32() && !it.opcode.starts_with("st.") {
            self.floats.extend(it.written().map(str::to_string));
        } else if ["add.", "addc.", "sub.", "subc."].iter().any(|name| it.opcode.starts_with(name)) {
            self.sums.extend(it.operands.iter().skip(1).map(|operand| [first.clone(), operand.to_string()]));
        }
    }

    fn is_wrong(&self, it: &Instruction<'_>, inner: bool) -> bool {
        /// A register's bits.
        const BITS: u32 = 32;
        let has = |set: &BTreeSet<String>, place: usize| it.operands.get(place).is_some_and(|name| set.contains(*name));
        let any = |set: &BTreeSet<String>| (1..it.operands.len()).any(|place| has(set, place));
        let cancels = |one: usize, other: usize| {
            self.sums.contains(&[it.operands[one].to_string(), it.operands[other].to_string()])
        };
        match it.opcode {
            "bfe.s32" => it.constant(2).is_some_and(|place| place >= BITS),
            "bfi.b32" => it.constant(4).is_some_and(|count| count >= BITS) && it.constant(3) != Some(0),
            "mov.b32" => it.operands.len() == 3 && has(&self.permuted_signs, 2),
            "add.sat.s32" | "sub.sat.s32" => cancels(1, 2) || cancels(2, 1),
            "mul.wide.s16" | "mad.wide.s16" | "sad.s16" => any(&self.narrow_negated),
            "mad.hi.s32" | "mad.hi.u32" => inner && it.operands.first() == it.operands.last(),
            opcode if opcode.starts_with("slct.") && opcode.ends_with(".s32") => has(&self.negated, 3),
            opcode if opcode.starts_with("st.") && opcode.ends_with('8') => any(&self.floats),
            _ => false,
        }
    }
}

/// Registers that may hold an opposite or a magnitude, at one place of a kernel.
#[derive(Default, Clone)]
struct Opposites {
    /// What `neg.s16` or `abs.s16` made.
    narrow: BTreeSet<String>,
    /// What `abs.s32` made.
    magnitudes: BTreeSet<String>,
}

impl Opposites {
    /// The first fault in statements that follow; what registers hold after them.
    fn fault_in(&mut self, body: &[Statement]) -> Option<&'static str> {
        body.iter().find_map(|statement| match statement {
            Statement::Text(text) => instructions(text).iter().find_map(|it| self.fault_of(it)),
            // What the end of a loop leaves is there at its beginning.
            Statement::Block { parts, .. } => (0..2).find_map(|_| self.fault_in_parts(parts)),
        })
    }

    /// Any of the parts may run, or none.
    fn fault_in_parts(&mut self, parts: &[(String, Vec<Statement>)]) -> Option<&'static str> {
        let before = self.clone();
        parts.iter().find_map(|(_, part)| {
            let mut after = before.clone();
            let fault = after.fault_in(part);
            self.narrow.append(&mut after.narrow);
            self.magnitudes.append(&mut after.magnitudes);
            fault
        })
    }

    fn fault_of(&mut self, it: &Instruction<'_>) -> Option<&'static str> {
        let has = |set: &BTreeSet<String>, place: usize| it.operands.get(place).is_some_and(|name| set.contains(*name));
        let fault = match it.opcode {
            "mul.hi.s16" | "mad.hi.s16" if has(&self.narrow, 1) || has(&self.narrow, 2) => {
                Some("the compiler multiplies by 32768 where neg.s16 or abs.s16 gives -32768")
            }
            "shr.s16" if has(&self.narrow, 1) => {
                Some("the compiler shifts 32768 where neg.s16 or abs.s16 gives -32768")
            }
            opcode if opcode.starts_with("slct.") && opcode.ends_with(".s32") && has(&self.magnitudes, 3) => {
                Some("the compiler takes what abs.s32 gives for positive, which that of the smallest number is not")
            }
            _ => None,
        };
        for register in it.written().filter(|_| !it.conditional) {
            self.narrow.remove(register);
            self.magnitudes.remove(register);
        }
        match it.opcode {
            "neg.s16" | "abs.s16" => self.narrow.extend(it.written().map(str::to_string)),
            "abs.s32" => self.magnitudes.extend(it.written().map(str::to_string)),
            _ => {}
        }
        fault
    }
}

/// What can be said such that the compiler gets it right.
fn mended(text: &str) -> String {
    let all = instructions(text);
    let [it] = all.as_slice() else { return text.to_string() };
    let is_half_of_halves = it.opcode.ends_with(".f16.f16") || it.opcode.ends_with(".bf16.bf16");
    match (it.opcode, it.operands.as_slice()) {
        // One and zero have no sign, and the compiler does not know.
        (opcode, [d, ..]) if opcode.starts_with("set.") && is_half_of_halves => {
            format!("{text} and.b16 {d}, {d}, 32767;")
        }
        // Numbers without NaNs are another kind of input.
        ("min.f64" | "max.f64", [_, _, b]) if text.matches("%iu").count() == 2 => {
            text.replace(*b, &b.replace("%iu", "%ig"))
        }
        _ => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(texts: &[&str]) -> Vec<String> {
        let mut body: Vec<_> = texts.iter().map(|text| Statement::Text((*text).to_string())).collect();
        let mut made = Made::default();
        made.collect(&body);
        clean(&mut body, &made, true);
        body.into_iter().filter_map(|it| if let Statement::Text(text) = it { Some(text) } else { None }).collect()
    }

    /// What differed on the H200, shrunk.
    #[test]
    fn faults_are_taken_out() {
        let lost: [&[&str]; 10] = [
            &["bfe.s32 %wr3, %ir0, 33, 30;"],
            &["bfi.b32 %wr11, %wr2, %wr6, 18, 32;"],
            &["prmt.b32 %wr4, %wr11, %ir2, 9646;", "mov.b32 {%wh1, %wh2}, %wr4;"],
            &["neg.s32 %wr1, %wr3;", "slct.s32.s32 %wr0, %wr3, %wr0, %wr1;"],
            &["sub.u32 %wr8, %ir3, %ir2;", "sub.sat.s32 %wr3, %wr8, %ir3;"],
            &["sub.cc.s32 %wr4, %wr11, %ir2; subc.s32 %wr10, %wr1, %ir1;", "add.sat.s32 %wr9, %wr4, %ir2;"],
            &["abs.s16 %wh7, %wh0;", "sad.s16 %wh3, %wh7, %ih3, %ih2;"],
            &["mad.hi.s32 %wr5, %wr0, %wr8, %wr5;"],
            &["ld.global.nc.v4.f32 {%wr0, %wr11, %wr1, %wr8}, [%a+32];", "{ .reg .b64 %a; st.u8 [%a+1], %wr1; }"],
            &["fma.rz.ftz.f32 %wr0, %wr1, %if0, %wr7;", "st.local.b8 [%a+1], %wr0;"],
        ];
        for texts in lost {
            assert_eq!(left(texts), texts[..texts.len() - 1], "{texts:?}");
        }
    }

    /// The same for those that are left in.
    #[test]
    fn faults_that_are_left_in_are_known() {
        let fault = |texts: &[&str]| {
            let body: Vec<_> = texts.iter().map(|text| Statement::Text((*text).to_string())).collect();
            Opposites::default()
                .fault_in(&[Statement::Block { parts: vec![(String::new(), body)], tail: String::new() }])
        };
        let multiplied = Some("the compiler multiplies by 32768 where neg.s16 or abs.s16 gives -32768");
        assert_eq!(fault(&["neg.s16 %wh4, %wh1;", "mad.hi.s16 %wh6, %ih0, %wh4, %wh5;"]), multiplied);
        assert_eq!(fault(&["abs.s16 %wh2, %wh2;", "mul.hi.s16 %wh2, %wh4, %wh2;"]), multiplied);
        let shifted = fault(&["neg.s16 %wh7, %wh3;", "shr.s16 %wh7, %wh7, %is0;"]);
        assert!(shifted.is_some_and(|reason| reason.contains("shifts")));
        let selected = fault(&["slct.f32.s32 %wr9, %wr7, %wr11, %wr0;", "abs.s32 %wr0, %ir2;"]);
        assert!(selected.is_some_and(|reason| reason.contains("abs.s32")));
        let conditional = ["neg.s16 %wh4, %wh1;", "@%wp0 add.s16 %wh4, %wh1, %wh1;", "shr.s16 %wh7, %wh4, %is0;"];
        assert!(fault(&conditional).is_some());
        for right in [
            // Something else is there when it is read.
            &["neg.s16 %wh4, %wh1; mov.b16 %wh4, %wh1;", "shr.s16 %wh7, %wh4, %is0;"],
            // The addend, the shift and the operands that are chosen from may be anything.
            &["neg.s16 %wh5, %wh1;", "mad.hi.s16 %wh6, %ih0, %wh4, %wh5;"],
            &["abs.s32 %wr1, %wr3;", "shr.s16 %wh7, %wh3, %wr1;"],
            &["abs.s32 %wr7, %ir2;", "slct.f32.s32 %wr9, %wr7, %wr11, %wr0;"],
            &["neg.s16 %wh4, %wh1;", "mul.hi.u16 %wh6, %ih0, %wh4;"],
        ] {
            assert_eq!(fault(right), None, "{right:?}");
        }
    }

    #[test]
    fn what_is_right_stays() {
        let kept = [
            "bfe.s32 %wr3, %ir0, 31, 30;",
            "bfe.u32 %wr3, %ir0, 33, 30;",
            "bfe.s32 %wr3, %ir0, %is0, %is1;",
            "bfi.b32 %wr11, %wr2, %wr6, 0, 32;",
            "mov.b32 {%wh1, %wh2}, %wr4;",
            "add.sat.s32 %wr9, %wr4, %ir2;",
            "mad.hi.s32 %wr5, %wr0, %wr8, %wr6;",
            "st.global.u8 [%a+3], %wr9;",
            "st.global.f32 [%a], %wr9;",
            "set.lt.u16.f16 %wh0, %ic0, %ic1;",
        ];
        assert_eq!(left(&kept), kept);
    }

    #[test]
    fn faults_are_mended() {
        assert_eq!(
            left(&["set.ne.bf16.bf16 %wh5, %wh1, %ik1;", "max.f64 %wd0, %iu3, %iu0;"]),
            ["set.ne.bf16.bf16 %wh5, %wh1, %ik1; and.b16 %wh5, %wh5, 32767;", "max.f64 %wd0, %iu3, %ig0;"]
        );
    }
}
