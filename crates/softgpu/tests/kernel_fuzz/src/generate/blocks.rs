//! Kernels of several blocks: block numbers in all their forms, threads that leave early while others go to barriers,
//! barriers of a part of the block, functions that ask which block they run in, and variables that all blocks share.

use super::{Maker, program};
use crate::kernel::{Function, Statement};

/// Bytes of shared memory that a block's threads meet in.
const MEETING_BYTES: u32 = 512;

/// Block numbers and the grid, one by one, all at once, widened, and in arithmetic.
const NUMBERS: [&str; 9] = [
    "mov.(u32|b32) $R, %(ctaid|nctaid).(x|y|z);",
    "cvt.(u64|s64).u32 $D, %(ctaid|nctaid).(x|y|z);",
    "{ .reg .b32 %a, %b; mov.u32 %a, %ctaid.(x|y|z); mov.u32 %b, %nctaid.(x|y|z); mad.lo.u32 $R, %a, %b, $r; }",
    "{ .reg .b32 %a, %b, %c; mov.u32 %a, %ctaid.x; mov.u32 %b, %ctaid.y; mov.u32 %c, %ctaid.z; \
     lop3.b32 $R, %a, %b, %c, 0x96; shl.b32 %a, %a, 16; or.b32 $R, %a, %b; }",
    "{ .reg .b32 %a, %b; mov.u32 %a, %nctaid.x; mov.u32 %b, %ctaid.y; mul.wide.u32 $D, %a, %b; }",
    "{ .reg .b32 %a, %b, %t; mov.u32 %a, %ctaid.x; mov.u32 %b, %ntid.x; mov.u32 %t, %tid.x; mad.lo.s32 $R, %a, %b, %t; }",
    "{ .reg .b32 %a, %b; .reg .pred %q; mov.u32 %a, %ctaid.(x|y|z); mov.u32 %b, %nctaid.(x|y|z); sub.u32 %b, %b, 1; \
     setp.eq.u32 %q, %a, %b; selp.b32 $R, $r, 77, %q; }",
    "mov.v4.u32 {$R, $R, $R, $R}, %(ctaid|nctaid);",
    "{ .reg .b16 %h; mov.u16 %h, %ctaid.(x|y|z); cvt.u32.u16 $R, %h; }",
];

pub(super) fn numbers(maker: &mut Maker) {
    maker.any_shape();
    for _ in 0..6 {
        let template = maker.random.pick(&NUMBERS);
        maker.add(template);
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// A condition over threads; those for which it holds are not the same in every block.
const LEAVING: [&str; 6] = [
    "{ .reg .b32 %a; mov.u32 %a, %ctaid.x; add.u32 %a, %a, %tid0; and.b32 %a, %a, (1|3|7); setp.eq.u32 %c0, %a, 0; }",
    "setp.ge.u32 %c0, %tid0, $<1..63>;",
    "setp.lt.s32 %c0, $r, $r;",
    "{ .reg .b32 %a; mov.u32 %a, %ctaid.(x|y); setp.eq.u32 %c0, %a, (0|1); }",
    "setp.ne.u32 %c0, %tid0, 0;",
    "setp.eq.u32 %c0, %lane, 5;",
];

const BARRIERS: [&str; 4] = ["bar.sync 0;", "barrier.sync 0;", "barrier.cta.sync 0;", "bar.cta.sync 0;"];

/// Some threads leave, at once or behind a branch; the others meet in shared memory and at barriers.
pub(super) fn early_returns(maker: &mut Maker) {
    maker.any_shape();
    maker.declare(&format!(".shared .align 16 .b8 meet[{MEETING_BYTES}];"));
    let words = maker.kernel.threads();
    clear(maker);
    for _ in 0..2 {
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
        let at = maker.scratch(words);
        let note = format!("{{ .reg .b64 %a; mad.wide.u32 %a, %thread, 4, %scratch; st.global.b32 [%a+{at}], $r; }}");
        maker.add(&note);
        leave(maker);
        meet(maker);
    }
    let arithmetic = program::arithmetic(maker);
    maker.kernel.body.push(arithmetic);
    if maker.random.percent(30) {
        leave(maker);
    }
}

fn leave(maker: &mut Maker) {
    let number = maker.fresh();
    let condition = maker.random.pick(&LEAVING).replace("%c0", &format!("%c{number}"));
    let condition = maker.fill(&condition);
    let way = maker.random.pick(&[
        "@%c0 (ret|exit);",
        "@!%c0 bra STAY0;\n(ret|exit);\nSTAY0:",
        "@!%c0 bra STAY0;\nst.global.b32 [%out], %tid0;\n(ret|exit);\nSTAY0:",
    ]);
    let way = way.replace("%c0", &format!("%c{number}")).replace("STAY0", &format!("STAY{number}"));
    let way = maker.fill(&way);
    maker.kernel.body.push(Statement::Text(format!("{condition}\n{way}")));
}

/// All threads see a shared memory that begins as 0.
fn clear(maker: &mut Maker) {
    let barrier = maker.random.pick(&BARRIERS);
    let words = MEETING_BYTES / 4;
    let number = maker.fresh();
    maker.add(&format!(
        "mov.u32 %n{number}, %tid0;\nCLEAR{number}:\n{{ .reg .b32 %s; mov.u32 %s, meet; mad.lo.u32 %s, %n{number}, 4, %s; \
         st.shared.b32 [%s], 0; }}\nadd.u32 %n{number}, %n{number}, {threads};\nsetp.lt.u32 %c{number}, %n{number}, {words};\n\
         @%c{number} bra CLEAR{number};\n{barrier}",
        threads = maker.threads(),
    ));
}

/// Those that are left add up what they hold, and read the sums.
fn meet(maker: &mut Maker) {
    let (first, second) = (maker.random.pick(&BARRIERS), maker.random.pick(&BARRIERS));
    let operation = maker.random.pick(&["add.u32", "xor.b32", "max.s32", "min.u32"]);
    maker.add(&format!(
        "{{ .reg .b32 %s, %x; mov.u32 %s, meet; and.b32 %x, $r, 15; mad.lo.u32 %x, %x, 16, %s; \
         red.shared.{operation} [%x], $r;\n{first}\nand.b32 %x, $r, 15; mad.lo.u32 %x, %x, 16, %s; \
         ld.shared.b32 $R, [%x];\n{second} }}"
    ));
}

/// Two parts of the block, of whole warps, each with a barrier of its own; then all.
pub(super) fn parts(maker: &mut Maker) {
    maker.any_shape();
    let warps = maker.random.pick(&[2u32, 3, 4]);
    maker.kernel.block = [32 * warps, 1, 1];
    maker.declare(&format!(".shared .align 16 .b8 meet[{MEETING_BYTES}];"));
    clear(maker);
    for _ in 0..2 {
        let number = maker.fresh();
        let cut = 32 * (1 + maker.random.below(warps - 1));
        let rest = 32 * warps - cut;
        let [one, two] = [1 + maker.random.below(7), 8 + maker.random.below(8)];
        let sync = maker.random.pick(&["bar.sync", "barrier.sync", "barrier.sync.aligned"]);
        maker.add(&format!(
            "setp.ge.u32 %c{number}, %tid0, {cut};\n@%c{number} bra OTHER{number};\n\
             {{ .reg .b32 %s, %x; mov.u32 %s, meet; and.b32 %x, $r, 7; mad.lo.u32 %x, %x, 4, %s; red.shared.add.u32 [%x], $r;\n\
             {sync} {one}, {cut};\nand.b32 %x, $r, 7; mad.lo.u32 %x, %x, 4, %s; ld.shared.b32 $R, [%x];\n{sync} {one}, {cut}; }}\n\
             bra JOIN{number};\nOTHER{number}:\n\
             {{ .reg .b32 %s, %x; mov.u32 %s, meet; and.b32 %x, $r, 7; mad.lo.u32 %x, %x, 4, %s; red.shared.xor.b32 [%x+64], $r;\n\
             {sync} {two}, {rest};\nand.b32 %x, $r, 7; mad.lo.u32 %x, %x, 4, %s; ld.shared.b32 $R, [%x+64];\n{sync} {two}, {rest}; }}\n\
             JOIN{number}:\nbar.sync 0;"
        ));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// Barriers in a loop that runs as often as the block's number says.
pub(super) fn rounds(maker: &mut Maker) {
    maker.any_shape();
    maker.declare(&format!(".shared .align 16 .b8 meet[{MEETING_BYTES}];"));
    clear(maker);
    let number = maker.fresh();
    let bound = maker.fresh();
    let axis = maker.random.pick(&["x", "y", "z"]);
    let head = format!(
        "mov.u32 %n{bound}, %ctaid.{axis};\nadd.u32 %n{bound}, %n{bound}, 1;\nmov.u32 %n{number}, 0;\nLOOP{number}:\n\
         setp.ge.u32 %c{number}, %n{number}, %n{bound};\n@%c{number} bra.uni END{number};\nadd.u32 %n{number}, %n{number}, 1;"
    );
    let before = std::mem::take(&mut maker.kernel.body);
    meet(maker);
    let arithmetic = program::arithmetic(maker);
    maker.kernel.body.push(arithmetic);
    if maker.random.percent(50) {
        leave(maker);
    }
    let body = std::mem::replace(&mut maker.kernel.body, before);
    let tail = format!("bra.uni LOOP{number};\nEND{number}:");
    maker.kernel.body.push(Statement::Block { parts: vec![(head, body)], tail });
    leave(maker);
    meet(maker);
}

/// Functions that ask where they are, one of which calls the other; some return early.
pub(super) fn functions(maker: &mut Maker) {
    maker.any_shape();
    let inner = format!("{}_where", maker.kernel.name);
    let outer = format!("{}_outer", maker.kernel.name);
    let formula = maker.fill(
        "mad.lo.u32 %wr0, %wr1, %wr2, %wr0;\n(add.u32|xor.b32|sub.u32) %wr0, %wr0, %wr3;\nmul.lo.u32 %wr0, %wr0, $<3..99>;",
    );
    let axes =
        maker.fill("mov.u32 %wr1, %ctaid.(x|y|z);\nmov.u32 %wr2, %nctaid.(x|y|z);\nmov.u32 %wr3, %ctaid.(x|y|z);");
    let head = format!(
        ".func (.param .b32 result) {inner}(.param .b32 a)\n{{\n.reg .b32 %wr0, %wr1, %wr2, %wr3;\n.reg .pred %stop;\n\
         ld.param.b32 %wr0, [a];\n{axes}\nand.b32 %wr1, %wr0, 3;\nsetp.eq.u32 %stop, %wr1, 0;\n\
         st.param.b32 [result], %wr3;\n@%stop ret;\n{axes}"
    );
    let tail = "st.param.b32 [result], %wr0;\nret;\n}".to_string();
    maker.kernel.functions.push(Function { head, body: vec![Statement::Text(formula)], tail });
    let call = |to: &str, argument: &str, result: &str| {
        format!(
            "{{ .param .b32 back; .param .b32 pa;\nst.param.b32 [pa], {argument};\ncall (back), {to}, (pa);\n\
             ld.param.b32 {result}, [back]; }}"
        )
    };
    let head = format!(
        ".func (.param .b32 result) {outer}(.param .b32 a)\n{{\n.reg .b32 %wr0, %wr1;\nld.param.b32 %wr0, [a];\n\
         mov.u32 %wr1, %ctaid.y;\nadd.u32 %wr0, %wr0, %wr1;\n{}\nadd.u32 %wr0, %wr0, %wr1;",
        call(&inner, "%wr0", "%wr1")
    );
    let tail = "st.param.b32 [result], %wr0;\nret;\n}".to_string();
    maker.kernel.functions.push(Function { head, body: Vec::new(), tail });
    for _ in 0..3 {
        let callee = if maker.random.percent(50) { &inner } else { &outer };
        // Brackets mean something else in a template.
        let (argument, result) = (maker.fill("$r"), maker.fill("$R"));
        let text = call(callee, &argument, &result);
        maker.kernel.body.push(Statement::Text(text));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}

/// Variables of the module that all blocks add to, and such that all read. Sums alone: other operations on the same words
/// would depend on the order.
pub(super) fn variables(maker: &mut Maker) {
    maker.any_shape();
    let name = maker.kernel.name.clone();
    let linkage = maker.random.pick(&["", ".visible "]);
    let words: Vec<_> = (0..16).map(|_| maker.random.below(u32::MAX).to_string()).collect();
    maker.kernel.outside = format!(
        "{linkage}.global .align 8 .b32 {name}_sums[16];\n.const .align 16 .b32 {name}_table[16] = {{{}}};\n\
         {linkage}.global .align 8 .u64 {name}_place = {name}_sums+8;\n",
        words.join(", ")
    );
    for _ in 0..3 {
        let access = maker.random.pick(&[
            "mov.u64 %a, NAME_table; add.u64 %a, %a, %b; ld.const.b32 $R, [%a]; red.global.add.u32 [NAME_sums+12], $r;",
            "ld.const.v4.b32 {$R, $R, $R, $R}, [NAME_table+16]; mov.u64 %a, NAME_sums; add.u64 %a, %a, %b; red.global.add.u32 [%a], 5;",
            "ld.global.u64 %a, [NAME_place]; red.global.add.u32 [%a], 3;",
            "mov.u64 %a, NAME_sums; cvta.global.u64 %a, %a; add.u64 %a, %a, %b; red.add.u32 [%a], 9;",
            "mov.u64 %a, NAME_table; cvta.const.u64 %a, %a; add.u64 %a, %a, %b; ld.b32 $R, [%a];",
        ]);
        let access = access.replace("NAME", &name);
        maker.add(&format!(
            "{{ .reg .b32 %x; .reg .b64 %a, %b; mov.u32 %x, %ctaid.x; and.b32 %x, %x, 15; mul.wide.u32 %b, %x, 4; {access} }}"
        ));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
}
