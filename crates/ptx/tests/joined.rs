//! What `Joined` says of the sums in `tests/joined`, against what stands behind each. `cargo xtask joins` compares the same files with the
//! compiler.

use detshare_ptx::ast::{Instruction, Item, Statement};
use detshare_ptx::joined::Joined;
use detshare_ptx::parse;

fn sums<'m>(statements: &'m [Statement], all: &mut Vec<&'m Instruction>) {
    for statement in statements {
        match statement {
            Statement::Instruction(it) if matches!(it.opcode.as_str(), "add" | "sub") => all.push(it),
            Statement::Block(statements) => sums(statements, all),
            _ => {}
        }
    }
}

/// Checks all sums of a source; returns how many there are.
#[track_caller]
fn check(source: &str) -> usize {
    let module = parse(source).expect("it parses");
    let mut count = 0;
    for item in &module.items {
        let Item::Function(function) = item else { continue };
        let joined = Joined::of(function);
        let mut all = Vec::new();
        sums(function.body.as_deref().unwrap_or_default(), &mut all);
        for sum in all {
            let rest = &source[sum.span.end as usize..];
            let Some(expected) = rest.lines().next().and_then(|rest| rest.trim().strip_prefix("// ")) else { continue };
            let found = joined.sum(sum).map_or("-".to_string(), |sum| sum.operand.to_string());
            let text = &source[sum.span.start as usize..sum.span.end as usize];
            assert_eq!(found, expected, "{}: {text}", function.name);
            count += 1;
        }
    }
    count
}

#[test]
fn a_sum_takes_the_product_that_the_compiler_takes() {
    assert_eq!(check(include_str!("joined/operands.ptx")), 18);
}

#[test]
fn who_else_reads_a_product_decides() {
    assert_eq!(check(include_str!("joined/readers.ptx")), 17);
}

#[test]
fn products_are_joined_within_blocks_and_with_constants_everywhere() {
    assert_eq!(check(include_str!("joined/blocks.ptx")), 17);
}

/// A kernel with that body.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0 .target sm_90 .visible .entry k(.param .f32 p) {{ .reg .f32 %f<9>; .reg .pred %p<2>; {body} }}"
    )
}

#[track_caller]
fn gone(body: &str) -> Vec<String> {
    let source = kernel(body);
    let module = parse(&source).expect("it parses");
    let [Item::Function(function)] = module.items.as_slice() else { panic!("one kernel") };
    let joined = Joined::of(function);
    let instructions = function.body.iter().flatten().filter_map(|statement| match statement {
        Statement::Instruction(it) => Some(it),
        _ => None,
    });
    let text = |it: &Instruction| source[it.span.start as usize..it.span.end as usize].to_string();
    instructions.filter(|it| joined.is_gone(it)).map(text).collect()
}

#[test]
fn a_product_that_all_have_joined_is_gone_with_its_copies() {
    let sums = "add.f32 %f4, %f3, %f1; st.global.f32 [0], %f4;";
    assert_eq!(gone(&format!("mul.f32 %f3, %f1, %f2; {sums}")), ["mul.f32 %f3, %f1, %f2;"]);
    let copied = "mul.f32 %f5, %f1, %f2; neg.f32 %f3, %f5; ";
    assert_eq!(gone(&format!("{copied}{sums}")), ["mul.f32 %f5, %f1, %f2;", "neg.f32 %f3, %f5;"]);
    // It is the addend of another sum.
    let addend = "mul.f32 %f3, %f1, %f2; mul.f32 %f5, %f1, %f6; add.f32 %f4, %f5, %f3; st.global.f32 [0], %f4;";
    assert_eq!(gone(addend), ["mul.f32 %f5, %f1, %f6;"]);
}

#[test]
fn a_turn_of_a_loop_does_not_read_the_product_of_the_next() {
    let turn = "again: add.f32 %f4, %f4, %f3; mul.f32 %f3, %f1, 0f40400000; st.global.f32 [0], %f4; @%p1 bra again;";
    assert_eq!(gone(turn), [""; 0]);
}

#[test]
fn an_instruction_of_unknown_shape_may_read_anything() {
    let sums = "mul.f32 %f3, %f1, %f2; add.f32 %f4, %f3, %f1; st.global.f32 [0], %f4;";
    assert_eq!(gone(&format!("{sums} tex.2d.v4.f32.f32 {{%f5, %f6, %f7, %f8}}, [t, {{%f3, %f1}}];")), [""; 0]);
}
