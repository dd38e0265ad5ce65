//! What becomes of small sources, each of which shows one thing: `versions/*.ptx`.
//!
//! A file has a source and, below a line, what comes of it: verdicts, or the text of one of the versions, as the line
//! `// shows:` says. `DETSHARE_BLESS=1` writes down what comes of it now.

use detshare_ptx::ast::{FunctionKind, Item};
use detshare_ptx::block_level::{Kernel, RefusalKind, rewrite};
use detshare_ptx::parse;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

const BELOW: &str = "\n// becomes:\n";
const SHOWS: &str = "// shows: ";

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/versions");
    let mut paths: Vec<PathBuf> =
        fs::read_dir(folder).expect("the folder is there").map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

fn verdicts(kernels: &[Kernel]) -> String {
    let mut text = String::new();
    for kernel in kernels {
        let versions = [("sliced", &kernel.sliced), ("preemptible", &kernel.preemptible)];
        let same = kernel.sliced.as_ref().err() == kernel.preemptible.as_ref().err();
        for (name, version) in versions.into_iter().take(if same && kernel.sliced.is_err() { 1 } else { 2 }) {
            let rest = match version {
                Ok(version) => {
                    let rows = if version.whole_rows { ", whole rows" } else { "" };
                    format!("{name} at {}{rows}", version.work_offset)
                }
                Err(refusal) if same => format!("neither: {refusal}"),
                Err(refusal) => format!("not {name}: {refusal}"),
            };
            writeln!(text, "{}: {rest}", kernel.name).expect("fits");
        }
    }
    text
}

/// The output without the kernels of the other kind.
fn only(source: &str, kind: &str) -> String {
    let other = if kind == "sliced" { "_preemptible_" } else { "_sliced_" };
    let mut module = parse(source).expect("what was written parses");
    module.items.retain(|item| match item {
        Item::Function(function) => function.kind != FunctionKind::Kernel || !function.name.contains(other),
        _ => true,
    });
    module.to_string()
}

fn becomes(source: &str) -> String {
    let shows = source.lines().find_map(|line| line.strip_prefix(SHOWS)).expect("a line says what is shown");
    let rewritten = rewrite(&parse(source).expect("parses"), source);
    let mut text = verdicts(&rewritten.kernels);
    for borrowed in &rewritten.borrowed {
        writeln!(text, "borrows {} by {}", borrowed.variable, borrowed.slot).expect("fits");
    }
    if shows != "verdicts" {
        let source = rewritten.source.expect("a kernel has versions");
        write!(text, "\n{}", only(&source, shows)).expect("fits");
    }
    text
}

#[test]
fn sources_become_what_is_written_down() {
    let bless = std::env::var_os("DETSHARE_BLESS").is_some();
    let mut different = Vec::new();
    for path in files() {
        let text = fs::read_to_string(&path).expect("readable");
        let (source, expected) = text.split_once(BELOW).unwrap_or((text.trim_end(), ""));
        let found = becomes(source);
        if bless {
            fs::write(&path, format!("{source}{BELOW}{found}")).expect("writable");
        } else if found != expected {
            different.push(format!("{}:\n{found}", path.display()));
        }
    }
    assert!(different.is_empty(), "{}\nDETSHARE_BLESS=1 writes it down", different.join("\n"));
}

/// A kind that no file shows could be lost unnoticed.
#[test]
fn every_kind_of_refusal_is_shown() {
    use RefusalKind as Kind;
    let mut missing = vec![
        Kind::WaitsForBlocks,
        Kind::Cluster,
        Kind::Placement,
        Kind::SharedMemory,
        Kind::DynamicParallelism,
        Kind::DependentLaunch,
        Kind::Texture,
        Kind::FunctionPointer,
        Kind::ForeignFunction,
        Kind::Recursion,
        Kind::Assertion,
        Kind::Variable,
        Kind::Contraction,
        Kind::EarlyExit,
        Kind::Barrier,
        Kind::LeftBehind,
        Kind::Parameters,
        Kind::Target,
        Kind::NotUnderstood,
    ];
    for path in files() {
        let text = fs::read_to_string(&path).expect("readable");
        let source = text.split(BELOW).next().unwrap_or_default();
        for kernel in rewrite(&parse(source).expect("parses"), source).kernels {
            for refusal in [kernel.sliced.err(), kernel.preemptible.err()].into_iter().flatten() {
                missing.retain(|kind| *kind != refusal.kind);
            }
        }
    }
    assert_eq!(missing, []);
}
