//! Control flow: branches, loops and tables of branches, nested, over arithmetic of all kinds.

use super::Maker;
use crate::kernel::Statement;
use crate::tables;
use crate::template::CHAINED;

/// What may stand anywhere. `f64` operations only read inputs, so that no NaN depends on the order of operands.
const FAMILIES: [&[&str]; 12] = [
    tables::INT16,
    tables::INT32,
    tables::INT32,
    tables::BITS32,
    tables::INT64,
    tables::CARRY,
    tables::PREDICATES,
    tables::F32,
    tables::F64,
    tables::F16,
    tables::CVT_INTEGERS,
    tables::CVT_INTEGER_TO_FLOAT,
];

const CONDITIONS: [&str; 6] = [
    "setp.(eq|ne|lt|le|gt|ge).s32 %c0, $r, $r;",
    "setp.(lt|gt).u32 %c0, $r, $r;",
    "setp.(lt|ge).u32 %c0, %lane, $<1..31>;",
    "setp.(lt|gtu).f32 %c0, $f, $f;",
    "setp.(lt|gt).s64 %c0, $d, $d;",
    "mov.pred %c0, $p;",
];

/// Which kinds of control flow a program has.
#[derive(Clone, Copy)]
pub(super) struct Flow {
    depth: u32,
    most: u32,
    tables: bool,
}

pub(super) fn plain(maker: &mut Maker) {
    whole(maker, Flow { depth: 2, most: 5, tables: false });
}

pub(super) fn large(maker: &mut Maker) {
    maker.any_shape();
    whole(maker, Flow { depth: 3, most: 7, tables: false });
}

pub(super) fn tables(maker: &mut Maker) {
    whole(maker, Flow { depth: 2, most: 3, tables: true });
    let statement = branch_table(maker, Flow { depth: 1, most: 3, tables: true });
    maker.kernel.body.push(statement);
}

/// Some threads end before others; what they have done until then counts.
pub(super) fn exits(maker: &mut Maker) {
    let words = maker.kernel.threads();
    for _ in 0..2 {
        let body = statements(maker, Flow { depth: 1, most: 3, tables: false });
        maker.kernel.body.extend(body);
        let at = maker.scratch(words);
        let number = maker.fresh();
        let condition = condition(maker, number);
        let note = format!(
            "{{ .reg .b64 %a; mad.wide.u32 %a, %thread, 4, %scratch; st.global.b32 [%a+{at}], $r; }}\n{condition}\n@%c{number} (exit|ret);"
        );
        maker.add(&note);
    }
    let body = statements(maker, Flow { depth: 2, most: 3, tables: false });
    maker.kernel.body.extend(body);
}

fn whole(maker: &mut Maker, flow: Flow) {
    maker.filling = CHAINED;
    maker.kernel.body = statements(maker, flow);
    let more = statements(maker, flow);
    maker.kernel.body.extend(more);
}

/// One to `most` statements.
fn statements(maker: &mut Maker, flow: Flow) -> Vec<Statement> {
    let count = 1 + maker.random.below(flow.most);
    (0..count).map(|_| statement(maker, flow)).collect()
}

fn statement(maker: &mut Maker, flow: Flow) -> Statement {
    let inner = Flow { depth: flow.depth.saturating_sub(1), ..flow };
    match maker.random.below(if flow.depth == 0 { 10 } else { 20 }) {
        0..=8 => arithmetic(maker),
        9 => predicated(maker),
        10..=12 => branch(maker, inner),
        13 | 14 => branch_without_else(maker, inner),
        15 | 16 => loop_per_thread(maker, inner),
        17 => loop_of_all(maker, inner),
        18 => loop_with_breaks(maker, inner),
        _ if flow.tables => branch_table(maker, inner),
        _ => uniform_branch(maker, inner),
    }
}

pub(super) fn arithmetic(maker: &mut Maker) -> Statement {
    let family = maker.random.pick(&FAMILIES);
    let template = maker.random.pick(family);
    maker.statement(template)
}

fn condition(maker: &mut Maker, number: u32) -> String {
    let template = maker.random.pick(&CONDITIONS).replace("%c0", &format!("%c{number}"));
    maker.fill(&template)
}

fn predicated(maker: &mut Maker) -> Statement {
    let number = maker.fresh();
    let condition = condition(maker, number);
    let guarded = maker.fill("@(|!)%c0 (add.u32|sub.s32|xor.b32) $R, $r, $r;").replace("%c0", &format!("%c{number}"));
    let other = maker.fill("@%c0 mov.b32 $R, $r;").replace("%c0", &format!("%c{number}"));
    Statement::Text(format!("{condition}\n{guarded}\n{other}"))
}

fn branch(maker: &mut Maker, inner: Flow) -> Statement {
    let number = maker.fresh();
    let condition = condition(maker, number);
    let parts = vec![
        (format!("{condition}\n@!%c{number} bra ELSE{number};"), statements(maker, inner)),
        (format!("bra END{number};\nELSE{number}:"), statements(maker, inner)),
    ];
    Statement::Block { parts, tail: format!("END{number}:") }
}

fn branch_without_else(maker: &mut Maker, inner: Flow) -> Statement {
    let number = maker.fresh();
    let condition = condition(maker, number);
    let parts = vec![(format!("{condition}\n@%c{number} bra END{number};"), statements(maker, inner))];
    Statement::Block { parts, tail: format!("END{number}:") }
}

/// The same way for all threads.
fn uniform_branch(maker: &mut Maker, inner: Flow) -> Statement {
    let number = maker.fresh();
    let limit = maker.random.below(3);
    let compare = format!("{{ .reg .b32 %a; mov.u32 %a, %ctaid.x; setp.lt.u32 %c{number}, %a, {limit}; }}");
    let head = format!("{compare}\n@%c{number} bra.uni END{number};");
    let parts = vec![(head, statements(maker, inner))];
    Statement::Block { parts, tail: format!("END{number}:") }
}

/// The head of a loop that runs as often as `%n{limit}` says.
fn loop_head(counter: u32, limit: &str) -> String {
    format!(
        "mov.u32 %n{counter}, 0;\n{limit}\nLOOP{counter}:\nsetp.ge.u32 %c{counter}, %n{counter}, %n{bound};\n\
         @%c{counter} bra END{counter};\nadd.u32 %n{counter}, %n{counter}, 1;",
        bound = counter + 1
    )
}

fn loop_around(maker: &mut Maker, limit: &str, inner: Flow, breaks: bool) -> Statement {
    let counter = maker.fresh();
    let bound = maker.fresh();
    let limit = maker.fill(&limit.replace("%n0", &format!("%n{bound}")));
    let mut body = statements(maker, inner);
    if breaks {
        let number = maker.fresh();
        let condition = condition(maker, number);
        let target = if maker.random.percent(50) { "LOOP" } else { "END" };
        body.push(Statement::Text(format!("{condition}\n@%c{number} bra {target}{counter};")));
        body.extend(statements(maker, inner));
    }
    let parts = vec![(loop_head(counter, &limit), body)];
    Statement::Block { parts, tail: format!("bra LOOP{counter};\nEND{counter}:") }
}

fn loop_per_thread(maker: &mut Maker, inner: Flow) -> Statement {
    loop_around(maker, "and.b32 %n0, $r, 7;", inner, false)
}

fn loop_of_all(maker: &mut Maker, inner: Flow) -> Statement {
    loop_around(maker, "mov.u32 %n0, $<1..6>;", inner, false)
}

fn loop_with_breaks(maker: &mut Maker, inner: Flow) -> Statement {
    loop_around(maker, "and.b32 %n0, $r, 7;", inner, true)
}

fn branch_table(maker: &mut Maker, inner: Flow) -> Statement {
    let number = maker.fresh();
    let arms = maker.random.pick(&[2u32, 4, 8]);
    let labels: Vec<_> = (0..arms).map(|arm| format!("ARM{number}_{arm}")).collect();
    let index = maker.fill(&format!("and.b32 %n{number}, $r, {};", arms - 1));
    let uniform = if maker.random.percent(20) { format!("mov.u32 %n{number}, {};", arms / 2) } else { index };
    let list = labels.join(", ");
    let start = format!("{uniform}\nTABLE{number}: .branchtargets {list};\nbrx.idx %n{number}, TABLE{number};");
    let mut parts = Vec::new();
    for (arm, label) in labels.iter().enumerate() {
        // Some arms run on into the next.
        let before = match arm {
            0 => start.clone(),
            _ if maker.random.percent(20) => String::new(),
            _ => format!("bra END{number};"),
        };
        parts.push((format!("{before}\n{label}:"), statements(maker, Flow { depth: 0, ..inner })));
    }
    Statement::Block { parts, tail: format!("END{number}:") }
}
