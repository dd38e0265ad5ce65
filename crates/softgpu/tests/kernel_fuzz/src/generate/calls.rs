//! Calls: direct, through pointers, and recursive.

use super::{Maker, program};
use crate::kernel::{Function, Statement};
use crate::tables;
use crate::template::{Filling, fill, is_narrow};

/// In a function there are only its parameters.
const INSIDE: Filling = Filling { computed: 100, inputs: false, most: 4 };

/// What all functions take and give; their body computes on `%wr0` to `%wr3` and gives `%wr0`.
const SIGNATURE: &str = "(.param .b32 result) NAME(.param .b32 a, .param .b32 b, .param .b64 c)";
const OPENING: &str = "{\n.reg .b32 %wr0, %wr1, %wr2, %wr3;\n.reg .b64 %wide;\n\
    ld.param.b32 %wr0, [a];\nld.param.b32 %wr1, [b];\nld.param.b64 %wide, [c];\nmov.b64 {%wr2, %wr3}, %wide;\n";
const CLOSING: &str = "st.param.b32 [result], %wr0;\nret;\n}";

fn body(maker: &mut Maker) -> Vec<Statement> {
    let narrow: Vec<&str> = [tables::INT32, tables::BITS32, tables::F32]
        .into_iter()
        .flatten()
        .copied()
        .filter(|it| is_narrow(it))
        .collect();
    let mut body = Vec::new();
    for _ in 0..2 + maker.random.below(4) {
        let template = maker.random.pick(&narrow);
        body.push(Statement::Text(fill(template, &mut maker.random, INSIDE)));
    }
    body.push(Statement::Text("xor.b32 %wr0, %wr0, %wr1;".into()));
    body.push(Statement::Text("lop3.b32 %wr0, %wr0, %wr2, %wr3, 0x96;".into()));
    body
}

fn function(maker: &mut Maker, index: u32) -> String {
    let name = format!("{}_f{index}", maker.kernel.name);
    let head = format!(".func {}\n{OPENING}", SIGNATURE.replace("NAME", &name));
    let function = Function { head, body: body(maker), tail: CLOSING.into() };
    maker.kernel.functions.push(function);
    name
}

/// A call of what stands there, and with what behind the arguments.
fn call(maker: &mut Maker, callee: &str, prototype: &str) -> String {
    let parameters = maker.fill("st.param.b32 [pa], $r; st.param.b32 [pb], $r; st.param.b64 [pc], $d;");
    let result = maker.fill("ld.param.b32 $R, [ret];");
    format!(
        "{{ .param .b32 ret; .param .b32 pa; .param .b32 pb; .param .b64 pc;\n{parameters}\n\
         call (ret), {callee}, (pa, pb, pc){prototype};\n{result} }}"
    )
}

pub(super) fn direct(maker: &mut Maker) {
    let names: Vec<_> = (0..2).map(|index| function(maker, index)).collect();
    for _ in 0..3 {
        let arithmetic = program::arithmetic(maker);
        maker.kernel.body.push(arithmetic);
        let callee = maker.random.index(names.len());
        let text = call(maker, &names[callee], "");
        let statement = maybe_guarded(maker, text);
        maker.kernel.body.push(statement);
    }
}

/// The statement, in some cases only for some of the threads.
fn maybe_guarded(maker: &mut Maker, text: String) -> Statement {
    if maker.random.percent(50) {
        return Statement::Text(text);
    }
    let number = maker.fresh();
    let head = maker.fill(&format!("setp.lt.s32 %c{number}, $r, $r;\n@%c{number} bra END{number};"));
    Statement::Block { parts: vec![(head, vec![Statement::Text(text)])], tail: format!("END{number}:") }
}

/// Through a table of functions, by an index that differs between threads.
pub(super) fn indirect(maker: &mut Maker) {
    let count = maker.random.pick(&[2u32, 4]);
    let names: Vec<_> = (0..count).map(|index| function(maker, index)).collect();
    let name = maker.kernel.name.clone();
    let prototype = SIGNATURE.replace("NAME", "_").replace("result", "_").replace(" a,", " _,").replace(" b,", " _,");
    let prototype = prototype.replace(" c)", " _)");
    for turn in 0..3 {
        let mut text = maker.fill(&format!(
            "{{ .reg .b64 %f, %g; .reg .b32 %x; .reg .pred %q;\nand.b32 %x, $r, {};\nmov.u64 %f, {};",
            count - 1,
            names[0]
        ));
        for (index, callee) in names.iter().enumerate().skip(1) {
            text += &format!("\nsetp.eq.u32 %q, %x, {index};\nmov.u64 %g, {callee};\nselp.b64 %f, %g, %f, %q;");
        }
        text += &format!("\nPROTOTYPE_{name}_{turn}: .callprototype {prototype};\n");
        text += &call(maker, "%f", &format!(", PROTOTYPE_{name}_{turn}"));
        text += " }";
        let statement = maybe_guarded(maker, text);
        maker.kernel.body.push(statement);
    }
}

/// As deep as each thread wants, up to seven.
pub(super) fn recursive(maker: &mut Maker) {
    let name = format!("{}_f0", maker.kernel.name);
    let declaration = SIGNATURE.replace("NAME", &name);
    maker.kernel.outside = format!(".func {declaration};\n");
    let head = format!(
        ".func {declaration}\n{OPENING}.reg .pred %stop;\n.reg .b32 %left;\nand.b32 %left, %wr0, 7;\n\
         setp.eq.u32 %stop, %left, 0;\n@%stop bra DONE;"
    );
    let mut statements = body(maker);
    statements.push(Statement::Text(format!(
        "{{ .param .b32 ret; .param .b32 pa; .param .b32 pb; .param .b64 pc;\nsub.u32 %left, %left, 1;\n\
         st.param.b32 [pa], %left; st.param.b32 [pb], %wr0; st.param.b64 [pc], %wide;\n\
         call (ret), {name}, (pa, pb, pc);\nld.param.b32 %wr2, [ret]; mad.lo.u32 %wr0, %wr0, 31, %wr2; }}"
    )));
    statements.extend(body(maker));
    let function = Function { head, body: statements, tail: format!("DONE:\n{CLOSING}") };
    maker.kernel.functions.push(function);
    for _ in 0..2 {
        let text = call(maker, &name, "");
        let statement = maybe_guarded(maker, text);
        maker.kernel.body.push(statement);
    }
}
