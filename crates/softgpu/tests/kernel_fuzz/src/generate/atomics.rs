//! Atomics whose result does not depend on the order of threads: all threads do the same commutative operation, or each
//! has an address of its own.

use super::{Maker, program};
use crate::template::FLAT;

/// Words that the threads meet at.
const MEETING: u32 = 16;

/// One operation on 32-bit words and one on 64-bit words.
const COMMUTATIVE: [&str; 8] = [
    "add.(u32|s32) [%a], $r",
    "(and|or|xor).b32 [%a], $r",
    "(min|max).(u32|s32) [%a], $r",
    "(inc|dec).u32 [%a], 77",
    "add.u64 [%b], $d",
    "(and|or|xor).b64 [%b], $d",
    "(min|max).(u64|s64) [%b], $d",
    "add.u32 [%a], 1",
];

/// With an address of its own a thread may look at what was there.
const OWN: [&str; 12] = [
    "add.(u32|s32) $R, [%a], $r",
    "(and|or|xor).b32 $R, [%a], $r",
    "(min|max).(u32|s32) $R, [%a], $r",
    "(inc|dec).u32 $R, [%a], $r",
    "exch.b32 $R, [%a], $r",
    "cas.b32 $R, [%a], 0, $r",
    "cas.b32 $R, [%a], $r, $r",
    "add.u64 $D, [%a], $d",
    "(and|or|xor).b64 $D, [%a], $d",
    "(min|max).(u64|s64) $D, [%a], $d",
    "exch.b64 $D, [%a], $d",
    "cas.b64 $D, [%a], 0, $d",
];

/// Sums of small whole numbers are exact, whatever their order.
const FLOATS: [&str; 11] = [
    "add.f32 [%a], $q",
    "add.f64 [%b], $o",
    "add.noftz.f16x2 [%a], $m",
    "add.noftz.bf16x2 [%a], $n",
    "add.noftz.f16 [%a], %half",
    "add.v2.f32 [%b], {$q, $q}",
    "add.v4.f32 [%b], {$q, $q, $q, $q}",
    "add.noftz.v2.f16x2 [%b], {$m, $m}",
    "(add|min|max).noftz.v4.f16x2 [%b], {$m, $m, $m, $m}",
    "(min|max).noftz.v2.bf16x2 [%b], {$n, $n}",
    "add.f32 [%a], $q",
];

const SCOPES: [&str; 6] = ["", "", ".relaxed.gpu", ".relaxed.cta", ".acq_rel.gpu", ".relaxed.sys"];

/// `%a` and `%b`: the word and the 16 bytes that the thread's number or value leads to.
fn meeting(maker: &mut Maker, base: &str) -> String {
    let which = maker.fill("(and.b32 %x, $r, 15;|and.b32 %x, %tid0, 3;|mov.u32 %x, $<0..15>;)");
    format!(".reg .b32 %x; .reg .b64 %a, %b; {which} mad.wide.u32 %a, %x, 4, {base}; mad.wide.u32 %b, %x, 16, {base};")
}

pub(super) fn global(maker: &mut Maker) {
    maker.any_shape();
    for _ in 0..4 {
        let at = maker.scratch(4 * MEETING as usize);
        let addresses = meeting(maker, "%scratch");
        let operation = maker.random.pick(&COMMUTATIVE);
        let reduced = maker.random.percent(70);
        let scope = maker.random.pick(&SCOPES).replace("acq_rel", if reduced { "release" } else { "acq_rel" });
        let (opcode, operation) = if reduced { ("red", operation.to_string()) } else { ("atom", atomic(operation)) };
        let operation = operation.replace("%a", &format!("%a+{at}")).replace("%b", &format!("%b+{at}"));
        let registers = if reduced { "" } else { ".reg .b32 %old; .reg .b64 %oldw;" };
        maker.add(&format!("{{ {addresses} {registers} {opcode}{scope}.global.{operation}; }}"));
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
    }
    let at = maker.scratch(4);
    let number = maker.fresh();
    // What compilers make of operations that there is no atomic for.
    maker.add(&format!(
        "{{ .reg .b32 %old, %new, %seen; ld.relaxed.gpu.global.b32 %old, [%scratch+{at}];\nLOOP{number}:\n\
         mad.lo.u32 %new, $r, 3, %old; atom.global.cas.b32 %seen, [%scratch+{at}], %old, %new;\n\
         setp.ne.b32 %c{number}, %seen, %old; mov.b32 %old, %seen;\n@%c{number} bra LOOP{number}; }}"
    ));
}

/// The form that gives back what was there, into a register that nobody reads.
fn atomic(operation: &str) -> String {
    operation.replace("[%a]", "%old, [%a]").replace("[%b]", "%oldw, [%b]")
}

pub(super) fn shared(maker: &mut Maker) {
    maker.any_shape();
    maker.declare(".shared .align 16 .b8 meet[256];");
    for _ in 0..3 {
        let threads = maker.threads();
        let operation = maker.random.pick(&COMMUTATIVE);
        let reduced = maker.random.percent(50);
        let (opcode, operation) = if reduced { ("red", operation.to_string()) } else { ("atom", atomic(operation)) };
        let registers = if reduced { "" } else { ".reg .b32 %old; .reg .b64 %oldw;" };
        let addresses =
            meeting(maker, "%s").replace("mad.wide", "mad.lo").replace(".reg .b64 %a, %b;", ".reg .b32 %a, %b;");
        maker.add(&format!(
            "{{ .reg .b32 %s, %t; .reg .pred %q; {registers} mov.u32 %s, meet; setp.lt.u32 %q, %tid0, 16; mad.lo.u32 %t, %tid0, 16, %s;\n\
             @%q st.shared.v4.b32 [%t], {{%tid0, %tid0, %tid0, %tid0}};\nbar.sync 0;\n\
             {{ {addresses} {opcode}.shared.{operation}; }}\nbar.sync 0; rem.u32 %t, %tid0, {threads}; and.b32 %t, %t, 15;\n\
             mad.lo.u32 %t, %t, 16, %s; ld.shared.v2.b32 {{$R, $R}}, [%t]; ld.shared.b64 $D, [%t+8]; bar.sync 0; }}"
        ));
    }
}

pub(super) fn own(maker: &mut Maker) {
    maker.any_shape();
    let threads = maker.kernel.threads();
    for _ in 0..5 {
        let at = maker.scratch(threads * 2);
        let operation = maker.random.pick(&OWN);
        let generic = maker.random.percent(25);
        let (space, convert) = if generic { ("", "cvta.global.u64 %a, %a;") } else { (".global", "") };
        let scope = maker.random.pick(&SCOPES);
        maker.add(&format!(
            "{{ .reg .b64 %a; mad.wide.u32 %a, %thread, 8, %scratch; add.u64 %a, %a, {at}; {convert} \
             atom{scope}{space}.{operation}; }}"
        ));
        let again = maker.random.pick(&OWN);
        maker.add(&format!(
            "{{ .reg .b64 %a; mad.wide.u32 %a, %thread, 8, %scratch; add.u64 %a, %a, {at}; atom.global.{again}; }}"
        ));
    }
}

pub(super) fn floats(maker: &mut Maker) {
    maker.filling = FLAT;
    for _ in 0..4 {
        let at = maker.scratch(4 * MEETING as usize);
        let addresses = meeting(maker, "%scratch");
        let operation = maker.random.pick(&FLOATS);
        let operation = operation.replace("%a", &format!("%a+{at}")).replace("%b", &format!("%b+{at}"));
        maker.add(&format!(
            "{{ {addresses} .reg .b16 %half, %rest; mov.b32 {{%half, %rest}}, $m; red.global.{operation}; }}"
        ));
    }
    let threads = maker.kernel.threads();
    let at = maker.scratch(threads * 4);
    let (four, twelve) = (at + 4, at + 12);
    maker.add(&format!(
        "{{ .reg .b64 %a; mad.wide.u32 %a, %thread, 16, %scratch; st.global.v4.f32 [%a+{at}], {{$f, $f, $r, $x}}; \
         atom.global.add.f32 $R, [%a+{at}], $f; red.global.add.f32 [%a+{four}], $f; atom.global.add.noftz.f16x2 $R, [%a+{twelve}], $x; }}"
    ));
}
