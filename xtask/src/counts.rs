//! How many tests there are, as the documents say it, and which of them a GPU has confirmed: counted from what is there, so that no
//! number goes stale.

use crate::noted;
use crate::process::root;
use serde_json::Value;
use std::collections::BTreeSet;

/// Where the instruction files are, and their verdicts on a GPU.
const CASES: &str = "crates/softgpu/tests/instructions/cases";
const ON_A_GPU: &str = "bench/results/h200-conformance.json";

/// Instruction files that no GPU has confirmed, and why.
const UNCONFIRMED: [(&str, &str); 0] = [];
/// A hash (FNV-1a) of the names and texts of all others, as they were when they passed there.
const CONFIRMED: u64 = 0x3dee_9526_3f48_62f0;

/// The names of a folder's files with that extension.
fn files(folder: &str, extension: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is there");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let of_that_kind = paths.filter(|path| path.extension().is_some_and(|it| it == extension));
    of_that_kind.map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned()).collect()
}

fn json(path: &str) -> Value {
    let text = std::fs::read_to_string(root().join(path)).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// Tests of the driver API: each file has a table of its own, one name a line.
fn conformance_tests() -> usize {
    let folder = root().join("crates/softgpu/tests/conformance/src");
    let sources = std::fs::read_dir(folder).expect("the folder is there");
    let tables = sources.map(|entry| {
        let text = std::fs::read_to_string(entry.expect("it can be listed").path()).expect("sources are text");
        let table = text.split("\ntests! {").nth(1).and_then(|rest| rest.split("\n}").next());
        table.map_or(0, |table| table.matches(',').count())
    });
    tables.sum()
}

/// Samples with results of a GPU.
fn samples_on_a_gpu() -> usize {
    json("workloads/samples/expected.json")["samples"].as_object().expect("samples by their names").len()
}

#[track_caller]
fn says(document: &str, words: &str) {
    let text = std::fs::read_to_string(root().join(document)).expect("it is there");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains(words), "{document} does not say: {words}");
}

#[test]
fn documents_have_the_numbers_of_today() {
    says("docs/measured.md", &format!("on the software GPU all {} tests pass", conformance_tests()));
    let (noted, differences) = noted::numbers();
    says(
        "docs/measured.md",
        &format!("what {noted} tests note there they note on the software GPU, but for {differences} things"),
    );
    says("docs/software-gpu.md", &format!("{noted} conformance tests note such things"));
    says("docs/software-gpu.md", &format!("names {differences} differences"));
    let instructions = files(CASES, "ptx").len();
    says("docs/measured.md", &format!("| instruction files | {instructions} of {instructions} on the software GPU"));
    let (samples, compared) = (files("workloads/samples", "cu").len(), samples_on_a_gpu());
    let not_run = samples - compared;
    says(
        "docs/measured.md",
        &format!("{samples} of {samples} on the software GPU, {compared} of them with the results of the H200"),
    );
    says("docs/measured.md", &format!("without such results: {not_run}"));
    says("CHANGELOG.md", &format!("check themselves on the software GPU and ({compared} of them) on a GPU"));
    says("docs/software-gpu.md", &format!("{compared} CUDA C++ programs (without its results: {not_run})"));
}

/// A value that no GPU has given is never taken for one: what is new or was renamed runs on a GPU first, or is named.
#[test]
fn a_gpu_has_confirmed_every_instruction_file() {
    let verdicts = json(ON_A_GPU)["instructions"]["tests"].take();
    let verdicts = verdicts.as_array().expect("verdicts");
    let passed = verdicts.iter().filter(|test| test["verdict"] == "ok").filter_map(|test| test["name"].as_str());
    let passed: BTreeSet<String> = passed.map(str::to_string).collect();
    let files = files(CASES, "ptx");
    let unconfirmed: Vec<_> = files.difference(&passed).map(String::as_str).collect();
    assert_eq!(unconfirmed, UNCONFIRMED.map(|(name, _)| name), "instruction files that have not passed in {ON_A_GPU}");
    let gone: Vec<_> = passed.difference(&files).collect();
    assert!(gone.is_empty(), "passed in {ON_A_GPU}, and not there any more: {gone:?}");
}

/// Nor is a value that was changed since.
#[test]
fn instruction_files_are_as_the_gpu_confirmed_them() {
    let unconfirmed = UNCONFIRMED.map(|(name, _)| name);
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for name in files(CASES, "ptx").iter().filter(|name| !unconfirmed.contains(&name.as_str())) {
        let text = std::fs::read(root().join(CASES).join(format!("{name}.ptx"))).expect("it can be read");
        let bytes = name.bytes().chain(*b"\n").chain(text);
        hash = bytes.fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }
    assert!(
        hash == CONFIRMED,
        "instruction files are others than in {ON_A_GPU}: have a GPU confirm them and put {hash:#x} here, or name those that were changed"
    );
}
