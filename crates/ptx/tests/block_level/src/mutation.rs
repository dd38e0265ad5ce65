//! Versions broken on purpose: whether the suite would notice.
//!
//! Every instruction of a version that the original does not have was put there, or changed, by the rewrite. A mutant
//! leaves one of them out, or changes a number in it by one, or takes `div` for `rem`. That covers a barrier that is
//! missing, a counter that is off by one, a block number that one register forgets, and a wrong division.

use anyhow::{Context, Result};
use detshare_ptx::ast::{FunctionKind, Instruction, Item, Module, Operand, Statement};
use std::collections::BTreeMap;

/// What is done to an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Drop,
    /// The number among its operands that becomes one more.
    Increment,
    /// `div` becomes `rem`, and the other way round.
    Divide,
}

/// One change, and the instruction that it is done to, by its number in the module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutation {
    instruction: usize,
    change: Change,
    /// For people.
    pub(crate) text: String,
}

/// All mutants of a module of versions.
pub(crate) fn mutations(original: &str, versions: &str) -> Result<Vec<Mutation>> {
    let (original, versions) = (parse(original)?, parse(versions)?);
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    for_each(&mut original.clone(), &mut |instruction, _| {
        *known.entry(shape(instruction)).or_default() += 1;
        true
    });
    let mut mutations = Vec::new();
    let mut number = 0;
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for_each(&mut versions.clone(), &mut |instruction, function| {
        let shape = shape(instruction);
        let count = seen.entry((function.to_string(), shape.clone())).or_default();
        *count += 1;
        // A version has the original's instructions as often as that.
        if *count > known.get(&shape).copied().unwrap_or_default() {
            mutations.extend(changes(instruction).into_iter().map(|change| Mutation {
                instruction: number,
                change,
                text: format!("{change:?} {} in {function}", text(instruction)),
            }));
        }
        number += 1;
        true
    });
    Ok(mutations)
}

/// The versions with that mutation of theirs.
pub(crate) fn apply(original: &str, versions: &str, mutation: usize) -> Result<String> {
    let chosen = mutations(original, versions)?.get(mutation).context("no such mutation")?.clone();
    let mut module = parse(versions)?;
    let mut number = 0;
    for_each(&mut module, &mut |instruction, _| {
        let here = number == chosen.instruction;
        number += 1;
        if here {
            match chosen.change {
                Change::Drop => return false,
                Change::Increment => {
                    let last = instruction.operands.iter_mut().rev().find_map(|operand| match operand {
                        Operand::Integer(number) => Some(number),
                        _ => None,
                    });
                    if let Some(number) = last {
                        *number += 1;
                    }
                }
                Change::Divide => {
                    instruction.opcode = if instruction.opcode == "div" { "rem".into() } else { "div".into() };
                }
            }
        }
        true
    });
    Ok(module.to_string())
}

fn parse(text: &str) -> Result<Module> {
    detshare_ptx::parse(text).context("a module does not parse")
}

fn changes(instruction: &Instruction) -> Vec<Change> {
    let mut changes = vec![Change::Drop];
    if instruction.operands.iter().any(|operand| matches!(operand, Operand::Integer(_))) {
        changes.push(Change::Increment);
    }
    if matches!(instruction.opcode.as_str(), "div" | "rem") {
        changes.push(Change::Divide);
    }
    changes
}

fn text(instruction: &Instruction) -> String {
    let mut module = Module { version: (8, 0), targets: vec!["sm_80".into()], address_size: 64, items: Vec::new() };
    let body = Some(vec![Statement::Instruction(instruction.clone())]);
    module.items.push(Item::Function(detshare_ptx::ast::Function {
        linkage: detshare_ptx::ast::Linkage::Internal,
        kind: FunctionKind::Kernel,
        attributes: Vec::new(),
        name: "f".into(),
        returns: Vec::new(),
        parameters: Vec::new(),
        directives: Vec::new(),
        body,
        span: detshare_ptx::ast::Span::default(),
    }));
    let printed = module.to_string();
    let inside = printed.split_once('{').map_or("", |(_, rest)| rest);
    inside.trim().trim_end_matches('}').trim().to_string()
}

/// An instruction as the original might have it: labels and registers keep their names.
fn shape(instruction: &Instruction) -> String {
    text(instruction)
}

/// Visits every instruction, with the name of its function; one for which false comes back is taken out.
fn for_each(module: &mut Module, visit: &mut impl FnMut(&mut Instruction, &str) -> bool) {
    for item in &mut module.items {
        if let Item::Function(function) = item
            && let Some(body) = &mut function.body
        {
            for_each_in(body, &function.name, visit);
        }
    }
}

fn for_each_in(body: &mut Vec<Statement>, name: &str, visit: &mut impl FnMut(&mut Instruction, &str) -> bool) {
    body.retain_mut(|statement| match statement {
        Statement::Instruction(instruction) => visit(instruction, name),
        Statement::Block(inner) => {
            for_each_in(inner, name, visit);
            true
        }
        _ => true,
    });
}
