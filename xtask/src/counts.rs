//! How many tests there are, as the documents say it: counted from what is there, so that no number goes stale.

use crate::process::root;
use std::path::Path;

/// Files with that extension.
fn files(folder: &str, extension: &str) -> usize {
    let entries = std::fs::read_dir(root().join(folder)).expect("the folder is there");
    let is_one = |path: &Path| path.extension().is_some_and(|it| it == extension);
    entries.filter(|entry| is_one(&entry.as_ref().expect("it can be listed").path())).count()
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
    let text = std::fs::read_to_string(root().join("workloads/samples/expected.json")).expect("it is there");
    let expected: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    expected["samples"].as_object().expect("samples by their names").len()
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
    let instructions = files("crates/softgpu/tests/instructions/cases", "ptx");
    says("docs/measured.md", &format!("| instruction files | {instructions} of {instructions} on the software GPU"));
    let (samples, compared) = (files("workloads/samples", "cu"), samples_on_a_gpu());
    let not_run = samples - compared;
    says(
        "docs/measured.md",
        &format!("{samples} of {samples} on the software GPU, {compared} of them with the results of the H200"),
    );
    says("docs/measured.md", &format!("without such results: {not_run}"));
    says("docs/software-gpu.md", &format!("{compared} CUDA C++ programs (without its results: {not_run})"));
}
