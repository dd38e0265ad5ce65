//! What conformance tests write down where no promise settles it: codes above all. An H200's driver has answered, and the software GPU
//! is to answer the same, but for what is named here.

use crate::process::root;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

/// The verdicts of the H200's driver. What was mended after the first run stands apart.
const RECORD: &str = "bench/results/h200-conformance.json";
const RUNS: [&str; 3] = ["conformance", "mended", "since"];
const TESTS: &str = "crates/softgpu/tests/conformance/src";
/// Test by test a line with its name and a hash of its text as the GPU ran it, and, indented, what it noted.
const NOTED: &str = "crates/softgpu/tests/conformance/h200.noted";
const INDENT: &str = "    ";

/// Where the software GPU notes something else: the test, what the H200 notes there, and why that is left so.
const DIFFERENT: [(&str, &str, &str); 16] = [
    ("device::has_a_name", "NVIDIA H200", "it has a name of its own"),
    (
        "lifetimes::every_pointer_attribute_of_device_memory",
        "attribute 15: CUDA_SUCCESS (0) (1)",
        "no other card reaches its memory",
    ),
    (
        "lifetimes::every_pointer_attribute_of_device_memory",
        "attribute 21: CUDA_SUCCESS (0) (1)",
        "nothing in it decompresses",
    ),
    (
        "module::broken_text_fills_the_error_log",
        "the log of 136 bytes says \"ptxas application ptx input, line 8; fatal   : Parsing error near 'not': syntax error\"",
        "each parser has its own words",
    ),
    (
        "module::function_attributes_are_sane",
        "10 registers, 0 bytes of constants, beside 1024 static up to 48128 dynamic bytes",
        "registers are counted, not given out as a compiler does it",
    ),
    ("occupancy::registers_are_limited_by_directives", "72 registers without a limit", "as above"),
    (
        "module_images::verbose_log_names_the_kernels",
        "0 bytes of information",
        "the driver had it in its cache; here is none",
    ),
    (
        "cluster::clusters_that_fit",
        "62 clusters of 4 blocks of 1024 threads",
        "which SMs make up a GPC is not modelled",
    ),
    ("green_context::split_can_be_asked_for_its_number", "15 groups of 8 and 12 left", "as above"),
    (
        "blocks_are_clusters::occupancy_counts_clusters",
        "cuOccupancyMaxActiveClusters for 5 gives CUDA_SUCCESS (0), and 163",
        "what keeps an SM from taking part in more clusters is not known",
    ),
    (
        "module::unknown_directives_are_not_ignored",
        "a module with an unknown directive gives CUDA_ERROR_INVALID_PTX (218)",
        "here it keeps its kernel from running, and no other",
    ),
    ("module::unknown_directives_are_not_ignored", "", "so it is asked"),
    (
        "stream::default_streams_have_ids",
        "legacy 7, per thread 14, first own 13",
        "the driver makes streams of its own",
    ),
    (
        "kernel_calls::only_the_room_asked_for_is_used",
        "of 524288 lines in 524288 bytes, 205092 are left: Some(0) to Some(524287)",
        "there the host takes lines out while the kernel prints, each time other ones",
    ),
    (
        "graph_update::changed_edge_names_its_node",
        "the node with other edges is named: false",
        "which one the driver names instead is not known",
    ),
    (
        "graph_memory::use_is_counted_and_can_be_trimmed",
        "freed in a stream: all of it is still counted",
        "when the driver stops counting it is not known",
    ),
];

/// A test as the GPU ran it.
#[derive(Debug, PartialEq, Eq)]
struct Answered {
    /// Of its text.
    hash: u64,
    notes: Vec<String>,
}

/// Fails where the software GPU's verdicts have other notes than the H200's and nobody has named that, or has named what is not so
/// any more.
pub(crate) fn as_on_an_h200(verdicts: &str) -> Result<()> {
    let answered = read(&std::fs::read_to_string(root().join(NOTED))?)?;
    let count = answered.len();
    compare(&answered, verdicts, &DIFFERENT)?;
    println!("{count} tests note what an H200 notes, but for {} things that are named", DIFFERENT.len());
    Ok(())
}

fn compare(answered: &BTreeMap<String, Answered>, verdicts: &str, named: &[(&str, &str, &str)]) -> Result<()> {
    let verdicts: Value = serde_json::from_str(verdicts)?;
    let ours = notes_of(&verdicts)?;
    let (mut unnamed, mut found) = (Vec::new(), BTreeSet::new());
    for (test, Answered { notes: theirs, .. }) in answered {
        let ours = ours.get(test).with_context(|| format!("{test} has not passed"))?;
        for at in 0..theirs.len().max(ours.len()) {
            let (there, here) = (theirs.get(at).map_or("", String::as_str), ours.get(at).map_or("", String::as_str));
            if there == here {
                continue;
            }
            match named.iter().position(|(name, note, _)| name == test && *note == there) {
                Some(known) => drop(found.insert(known)),
                None => unnamed.push(format!("{test}: {here:?} instead of {there:?}")),
            }
        }
    }
    ensure!(unnamed.is_empty(), "noted otherwise than on an H200:\n{}", unnamed.join("\n"));
    let gone: Vec<_> = (0..named.len()).filter(|known| !found.contains(known)).map(|known| named[known]).collect();
    ensure!(gone.is_empty(), "named as noted otherwise than on an H200, and not so any more: {gone:?}");
    Ok(())
}

/// What tests that passed noted.
fn notes_of(verdicts: &Value) -> Result<BTreeMap<String, Vec<String>>> {
    let tests = verdicts["tests"].as_array().context("verdicts of tests")?;
    let of_test = |test: &Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        (text(&test["name"]), test["notes"].as_array().into_iter().flatten().map(text).collect())
    };
    Ok(tests.iter().filter(|test| test["verdict"] == "ok").map(of_test).collect())
}

fn read(text: &str) -> Result<BTreeMap<String, Answered>> {
    let mut answered = BTreeMap::new();
    let mut last = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(note) = line.strip_prefix(INDENT) {
            let test: &mut Answered =
                last.as_mut().and_then(|name| answered.get_mut(name)).context("notes of no test")?;
            test.notes.push(note.to_string());
        } else {
            let (name, hash) = line.split_once(' ').with_context(|| format!("no test: {line}"))?;
            answered.insert(name.to_string(), Answered { hash: u64::from_str_radix(hash, 16)?, notes: Vec::new() });
            last = Some(name.to_string());
        }
    }
    Ok(answered)
}

/// Makes the file anew from the record: the tests that passed and whose text is as it was when the GPU ran them.
pub(crate) fn extract() -> Result<()> {
    let record: Value = serde_json::from_str(&std::fs::read_to_string(root().join(RECORD))?)?;
    let mut answered = BTreeMap::new();
    for run in RUNS {
        let commit = record["sources"][run].as_str().with_context(|| format!("{RECORD} has no commit of {run}"))?;
        for (name, notes) in notes_of(&record[run]["driver"])? {
            let hash = |source: Option<String>| source.as_deref().and_then(|source| hash_of(source, &name));
            let (then, now) = (hash(at_commit(commit, &name)?), hash(today(&name)));
            // A test without notes in a later run has none.
            answered.remove(&name);
            if let Some(hash) = then.filter(|_| then == now && !notes.is_empty()) {
                answered.insert(name, Answered { hash, notes });
            }
        }
    }
    let machine = |what: &str| record["machine"][what].as_str().unwrap_or_default();
    let mut text = format!(
        "# What conformance tests noted on an {} (driver {}), each with a hash of its text as it was then. Made from\n\
         # {RECORD} by `cargo xtask h200-noted`.\n",
        machine("gpu"),
        machine("driver_version")
    );
    for (name, Answered { hash, notes }) in &answered {
        text += &format!("{name} {hash:016x}\n");
        notes.iter().for_each(|note| text += &format!("{INDENT}{note}\n"));
    }
    std::fs::write(root().join(NOTED), text)?;
    println!("{} tests in {NOTED}", answered.len());
    Ok(())
}

/// The file that a test stands in, below the root.
fn file_of(test: &str) -> String {
    format!("{TESTS}/{}.rs", test.split("::").next().unwrap_or_default())
}

fn today(test: &str) -> Option<String> {
    std::fs::read_to_string(root().join(file_of(test))).ok()
}

/// The test's file at a commit; None if it was not there.
fn at_commit(commit: &str, test: &str) -> Result<Option<String>> {
    let show = |what: &str| Command::new("git").args(["show", what]).current_dir(root()).output().context("git");
    ensure!(show(commit)?.status.success(), "there is no commit {commit}");
    let file: PathBuf = file_of(test).into();
    let shown = show(&format!("{commit}:{}", file.display()))?;
    Ok(shown.status.success().then(|| String::from_utf8_lossy(&shown.stdout).into_owned()))
}

/// A hash (FNV-1a) of a test's function, as it stands in its file.
fn hash_of(source: &str, test: &str) -> Option<u64> {
    let name = test.split("::").nth(1)?;
    let start = source.find(&format!("\nfn {name}("))?;
    let text = &source[start..];
    let text = &text[..text.find("\n}")?];
    Some(text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}

/// How many tests are compared, and how many differences are named.
#[cfg(test)]
pub(crate) fn numbers() -> (usize, usize) {
    let text = std::fs::read_to_string(root().join(NOTED)).expect("it is there");
    (read(&text).expect("it is as it was written").len(), DIFFERENT.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the GPU answered to another test is no answer to this one.
    #[test]
    fn tests_that_noted_something_are_as_the_gpu_ran_them() {
        let text = std::fs::read_to_string(root().join(NOTED)).expect("it is there");
        let answered = read(&text).expect("it is as it was written");
        let is_other = |(name, it): &(&String, &Answered)| {
            today(name).as_deref().and_then(|source| hash_of(source, name)) != Some(it.hash)
        };
        let others: Vec<_> = answered.iter().filter(is_other).map(|(name, _)| name).collect();
        assert!(
            others.is_empty(),
            "tests that were changed since a GPU ran them: have it run them again, or leave them out by `cargo xtask h200-noted`: {others:?}"
        );
        assert!(answered.len() > 100, "{} tests", answered.len());
    }

    #[test]
    fn another_note_is_named_or_a_failure() {
        let answered = read("# about\nipc::events 0f\n    one\n    two\nipc::memory 1f\n    three\n").unwrap();
        assert_eq!(answered["ipc::events"], Answered { hash: 15, notes: vec!["one".into(), "two".into()] });
        let told = |second: &str| {
            let tests = serde_json::json!([
                { "name": "ipc::events", "verdict": "ok", "notes": ["one", second] },
                { "name": "ipc::memory", "verdict": "ok", "notes": ["three"] },
                { "name": "ipc::others", "verdict": "ok", "notes": ["nobody has asked"] },
            ]);
            serde_json::json!({ "tests": tests }).to_string()
        };
        let named = [("ipc::events", "two", "it has its reasons")];
        let error = |result: Result<()>| result.unwrap_err().to_string();
        assert!(compare(&answered, &told("two"), &[]).is_ok());
        assert!(compare(&answered, &told("2"), &named).is_ok());
        assert!(error(compare(&answered, &told("2"), &[])).contains(r#"ipc::events: "2" instead of "two""#));
        assert!(error(compare(&answered, &told("two"), &named)).contains("it has its reasons"));
        // One that is named excuses no other.
        assert!(compare(&answered, &told("2").replace("three", "3"), &named).is_err());
        assert!(compare(&answered, &told("two").replace(r#""three""#, r#""three", "four""#), &[]).is_err());
        assert!(compare(&answered, &told("two").replace("ipc::memory", "ipc::other"), &[]).is_err());
    }

    #[test]
    fn a_test_ends_where_its_function_ends() {
        let source = "\nfn one(d: &D) -> O {\n    a\n}\n\nfn two(d: &D) -> O {\n    b\n}\n";
        let changed = source.replace('b', "c");
        assert_eq!(hash_of(source, "x::one"), hash_of(&changed, "x::one"));
        assert_ne!(hash_of(source, "x::two"), hash_of(&changed, "x::two"));
        assert_eq!(hash_of(source, "x::three"), None);
    }
}
