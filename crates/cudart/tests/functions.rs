//! `FUNCTIONS.md` lists what the runtime has, and what it lacks with the reasons. `DETSHARE_BLESS=1` writes it anew.

use detshare_cudart::function::{ALSO, DIRECT, GRAPHICS, RELEASE_12, RELEASE_13, written_in};
use detshare_cudart::unsupported;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The functions in `src/api`, as the build scripts of the libraries find them.
fn written() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/api");
    let sources = std::fs::read_dir(folder).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    sources.flat_map(|source| written_in(&source).map(str::to_string).collect::<Vec<_>>()).collect()
}

/// Each function with whether it is there, and the releases that have it. What CUDA 12 calls by the name of a second or third
/// version and CUDA 13 plainly counts by its plain name.
fn names() -> BTreeMap<&'static str, (bool, BTreeSet<u32>)> {
    let written = written();
    let mut names = BTreeMap::new();
    for (release, functions) in [(12, RELEASE_12), (13, RELEASE_13)] {
        let plain =
            functions.iter().chain(ALSO).map(|function| function.name).chain(DIRECT.iter().chain(GRAPHICS).copied());
        for name in plain.filter(|name| !name.starts_with("__")) {
            let name = name.trim_end_matches("_v2").trim_end_matches("_v3");
            let is_there = written.contains(name) || DIRECT.contains(&name);
            names.entry(name).or_insert((is_there, BTreeSet::new())).1.insert(release);
        }
    }
    names
}

fn lines(names: &[String]) -> String {
    let mut text = String::new();
    for line in names.chunks(4) {
        let _ = writeln!(text, "{}", line.join(" "));
    }
    text
}

/// What is said of some functions.
fn told<'a>(parts: impl Iterator<Item = (&'a [&'a str], &'a str)>) -> String {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
    parts.map(|(names, what)| format!("\n{what}\n\n{}", lines(&quoted(names)))).collect()
}

fn listing() -> String {
    let all = names();
    let shown = |name: &str, releases: &BTreeSet<u32>| match releases.iter().collect::<Vec<_>>()[..] {
        [only] => format!("`{name}` ({only})"),
        _ => format!("`{name}`"),
    };
    let there: Vec<_> =
        all.iter().filter(|(_, (there, _))| *there).map(|(name, (_, releases))| shown(name, releases)).collect();
    let lacking: Vec<_> = all.iter().filter(|(_, (there, _))| !there).collect();
    let mut text = format!(
        "# What the runtime for the software GPU has\n\n\
         Generated from the tables of CUDA 12.9 and 13.0 by `DETSHARE_BLESS=1 cargo test -p detshare-cudart --test functions`. \
         Each name stands for its `_ptsz` and `_ptds` variants and for its later versions too; a number behind it says that only \
         that release has it.\n\n\
         ## There ({})\n\n{}\n\
         ## There, but for this: `cudaErrorNotSupported`\n{}\n\
         ## There, and refused as on a GPU: `cudaErrorNotSupported`\n{}\n\
         ## Not there: `cudaErrorNotSupported` ({})\n",
        there.len(),
        lines(&there),
        told(unsupported::parts()),
        told(unsupported::as_on_a_gpu()),
        lacking.len()
    );
    for reason in unsupported::reasons() {
        let names: Vec<_> = lacking
            .iter()
            .filter(|(name, _)| unsupported::reason(name) == Some(reason))
            .map(|(name, (_, releases))| shown(name, releases))
            .collect();
        if !names.is_empty() {
            let _ = write!(text, "\n{reason}\n\n{}", lines(&names));
        }
    }
    text
}

#[test]
fn every_function_that_is_not_there_has_its_reason() {
    let without: Vec<_> = names()
        .into_iter()
        .filter(|(name, (there, _))| !there && unsupported::reason(name).is_none())
        .map(|(name, _)| name)
        .collect();
    assert!(without.is_empty(), "src/unsupported.rs gives no reason for {without:?}");
}

#[test]
fn no_reason_is_given_for_what_is_there() {
    let names = names();
    let stale: Vec<_> = unsupported::named().filter(|name| names.get(name).is_none_or(|(there, _)| *there)).collect();
    assert!(stale.is_empty(), "src/unsupported.rs names what is there or is no function: {stale:?}");
}

#[test]
fn parts_are_those_of_functions_that_are_there() {
    let names = names();
    let told = unsupported::parts().chain(unsupported::as_on_a_gpu()).flat_map(|(parts, _)| parts);
    let wrong: Vec<_> = told.filter(|name| names.get(*name).is_none_or(|(there, _)| !there)).collect();
    assert!(wrong.is_empty(), "src/unsupported.rs tells of parts of what is not there: {wrong:?}");
}

/// The Rust files below a folder, but for what is generated.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) =
        entries.filter(|path| !path.ends_with("generated")).partition(|path| path.is_dir());
    files.into_iter().chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

#[test]
fn what_the_software_gpu_refuses_a_part_of_is_told_of() {
    let lacking = detshare_cuda::functions().iter().zip(detshare_softgpu::SUPPORTED).filter(|(_, is_there)| !is_there);
    let mut refusing: BTreeSet<&str> = lacking.map(|(function, _)| function.name).collect();
    let parts = detshare_softgpu::unsupported::parts().chain(detshare_softgpu::unsupported::as_on_a_gpu());
    refusing.extend(parts.flat_map(|(names, _)| names));
    let mut called = BTreeSet::new();
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let text = std::fs::read_to_string(&path).unwrap();
        // Not from the lists themselves, nor from what is said of functions.
        let code = text.lines().filter(|line| !line.trim().starts_with("//") && !line.contains('"'));
        let words = code.flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
        called.extend(words.filter(|word| refusing.contains(word)).map(str::to_string));
    }
    let told: BTreeSet<String> = unsupported::refusing().map(str::to_string).collect();
    let untold: Vec<_> = called.difference(&told).collect();
    assert!(untold.is_empty(), "src/unsupported.rs does not say what is refused by {untold:?}");
    let stale: Vec<_> = told.difference(&called).collect();
    assert!(stale.is_empty(), "src/unsupported.rs names functions of the driver that refuse nothing: {stale:?}");
}

#[test]
fn nothing_is_written_that_no_release_has() {
    let names = names();
    let strange: Vec<_> = written()
        .into_iter()
        .filter(|name| !name.starts_with("__"))
        .filter(|name| !names.contains_key(name.trim_end_matches("_v2").trim_end_matches("_v3")))
        .collect();
    assert!(strange.is_empty(), "src/api has functions that no header declares: {strange:?}");
}

#[test]
fn the_listing_is_what_the_runtime_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("FUNCTIONS.md");
    let now = listing();
    if std::env::var_os("DETSHARE_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the crate's folder can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == now, "FUNCTIONS.md is not up to date: run this test with DETSHARE_BLESS=1 and commit");
}
