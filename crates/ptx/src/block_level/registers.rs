//! How many registers the versions may have.
//!
//! What is to be loaded later can be compiled ahead of time by the driver's linker alone, and that compiles pieces of programs: it
//! gives a kernel more registers than it has as a whole program (100 instead of 64 for a matrix multiply), so that an SM
//! holds fewer of its blocks. With the original's number as the most that it may have it is as dense as the original, for a few
//! bytes that are spilled at worst.
//!
//! Kernels that call functions are left alone. A piece's functions have registers of their own, and the compiler refuses a kernel
//! that may have fewer.

use crate::ParseError;
use crate::ast::{Function, FunctionDirective, FunctionKind, Item, Span, Statement};

/// A version's name, and how many registers a thread of it may have.
pub type Limit = (String, u32);

/// The module with these limits.
///
/// # Errors
/// It is not PTX.
pub fn limit_registers(source: &str, limits: &[Limit]) -> Result<String, ParseError> {
    let mut module = crate::parse(source)?;
    for item in &mut module.items {
        if let Item::Function(function) = item
            && let Some((_, most)) = limits.iter().find(|(name, _)| *name == function.name)
        {
            limit(function, *most);
        }
    }
    Ok(module.to_string())
}

fn limit(function: &mut Function, most: u32) {
    let is_free = function.body.as_deref().is_some_and(|body| !calls(body));
    if function.kind != FunctionKind::Kernel || !is_free {
        return;
    }
    let is_limit = |directive: &FunctionDirective| directive.name == "maxnreg";
    let own = function.directives.iter().find(|it| is_limit(it)).and_then(|it| it.arguments.first().copied());
    function.directives.retain(|directive| !is_limit(directive));
    function.directives.push(FunctionDirective {
        name: "maxnreg".to_string(),
        arguments: vec![own.map_or(most, |own| own.min(most))],
        strings: Vec::new(),
        span: Span::default(),
    });
}

fn calls(body: &[Statement]) -> bool {
    body.iter().any(|statement| match statement {
        Statement::Instruction(instruction) => instruction.opcode == "call",
        Statement::Block(inner) => calls(inner),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = ".version 8.4\n.target sm_90\n.address_size 64\n";

    fn limited(kernels: &str) -> String {
        let limits = [("a".to_string(), 40), ("b".to_string(), 64)];
        let text = limit_registers(&format!("{HEAD}{kernels}"), &limits).expect("it is PTX");
        text.lines().filter(|line| line.starts_with(".max") || line.contains(".entry")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn kernels_have_their_limits_and_others_none() {
        let text = limited(".visible .entry a() { ret; } .visible .entry b() { ret; } .visible .entry c() { ret; }");
        assert_eq!(text, ".visible .entry a() .maxnreg 40 .visible .entry b() .maxnreg 64 .visible .entry c()");
    }

    #[test]
    fn a_limit_of_its_own_counts_where_it_is_lower() {
        let text = limited(".entry a() .maxntid 64, 1, 1 .maxnreg 24 { ret; } .entry b() .maxnreg 128 { ret; }");
        assert_eq!(text, ".entry a() .maxntid 64, 1, 1 .maxnreg 24 .entry b() .maxnreg 64");
    }

    #[test]
    fn what_calls_functions_is_left_alone() {
        let text = limited(".func f() { ret; } .entry a() { { call f; } ret; } .entry b() .maxnreg 8 { call f; ret; }");
        assert_eq!(text, ".entry a() .entry b() .maxnreg 8");
    }

    #[test]
    fn what_is_no_text_of_ours_is_an_error() {
        assert!(limit_registers("kernel", &[]).is_err());
    }
}
