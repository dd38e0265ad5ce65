//! What compilers emit is understood, and printing it keeps it.
//!
//! `corpus/README.md` says which compiler made which file.

use detshare_ptx::ast::{Item, Statement};
use detshare_ptx::parse;
use std::fs;
use std::path::{Path, PathBuf};

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the corpus is there")
        .map(|entry| entry.expect("its entries can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptx"))
        .collect();
    paths.sort();
    assert!(paths.len() > 30, "only {} files", paths.len());
    paths
}

#[test]
fn printed_modules_are_the_same_modules() {
    for path in corpus() {
        let source = fs::read_to_string(&path).expect("readable");
        let module = parse(&source).unwrap_or_else(|error| panic!("{}:{error}", path.display()));
        let printed = module.to_string();
        let again = parse(&printed).unwrap_or_else(|error| panic!("{}, printed: {error}", path.display()));
        assert_eq!(again.to_string(), printed, "{}", path.display());
        assert!(again.without_spans() == module.without_spans(), "{} changed", path.display());
    }
}

/// The instructions that are known to need a shape of their own. More than these must not slip into raw text
/// unnoticed.
#[test]
fn only_textures_and_tensor_maps_are_raw() {
    for path in corpus() {
        let module = parse(&fs::read_to_string(&path).expect("readable")).expect("parses");
        let mut raw = Vec::new();
        for item in &module.items {
            if let Item::Function(function) = item {
                collect_raw(function.body.as_deref().unwrap_or_default(), &mut raw);
            }
        }
        raw.retain(|text| !["tex.", "tld4.", "suld.", "sust."].iter().any(|start| text.starts_with(start)));
        assert_eq!(raw, [""; 0], "{}", path.display());
    }
}

fn collect_raw<'a>(statements: &'a [Statement], raw: &mut Vec<&'a str>) {
    for statement in statements {
        match statement {
            Statement::Raw(directive) => raw.push(&directive.text),
            Statement::Block(statements) => collect_raw(statements, raw),
            _ => {}
        }
    }
}

/// Spans must point at what they say: each instruction's text, cut out of its source, is that instruction.
#[test]
fn spans_cover_their_instructions() {
    for path in corpus() {
        let source = fs::read_to_string(&path).expect("readable");
        let module = parse(&source).expect("parses");
        for item in &module.items {
            if let Item::Function(function) = item {
                check_spans(&source, function.body.as_deref().unwrap_or_default());
            }
        }
    }
}

fn check_spans(source: &str, statements: &[Statement]) {
    for statement in statements {
        match statement {
            Statement::Instruction(instruction) => {
                let text = &source[instruction.span.start as usize..instruction.span.end as usize];
                assert!(text.ends_with(';'), "{text}");
                assert!(text.starts_with(if instruction.predicate.is_some() { "@" } else { &instruction.opcode }));
            }
            Statement::Raw(directive) | Statement::Directive(directive) => {
                assert_eq!(directive.text, source[directive.span.start as usize..directive.span.end as usize]);
            }
            Statement::Block(statements) => check_spans(source, statements),
            _ => {}
        }
    }
}
