//! `FUNCTIONS.md` lists what the driver has, and what it lacks with the reasons. `DETSHARE_BLESS=1` writes it anew.

use detshare_cuda::functions;
use detshare_softgpu::{SUPPORTED, unsupported};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// Each function with whether it is there. Variants share an implementation, so they are there or not together.
fn names() -> BTreeMap<&'static str, bool> {
    let unsuffixed =
        |name: &'static str| name.strip_suffix("_ptsz").or_else(|| name.strip_suffix("_ptds")).unwrap_or(name);
    functions().iter().zip(SUPPORTED).map(|(function, supported)| (unsuffixed(function.name), supported)).collect()
}

fn lines(names: &[&str]) -> String {
    let mut text = String::new();
    for line in names.chunks(4) {
        let _ = writeln!(text, "{}", line.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" "));
    }
    text
}

/// What is said of some functions.
fn told<'a>(parts: impl Iterator<Item = (&'a [&'a str], &'a str)>) -> String {
    parts.map(|(names, what)| format!("\n{what}\n\n{}", lines(names))).collect()
}

fn listing() -> String {
    let all = names();
    let (there, lacking): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, there)| *there);
    let there: Vec<_> = there.into_iter().map(|(name, _)| name).collect();
    let mut text = format!(
        "# What the software GPU's driver has\n\n\
         Generated from the table by `DETSHARE_BLESS=1 cargo test -p detshare-softgpu --test functions`. Each name stands \
         for its `_ptsz` and `_ptds` variants too.\n\n\
         ## There ({})\n\n{}\n\
         ## There, but for this: `CUDA_ERROR_NOT_SUPPORTED`\n{}\n\
         ## There, with less to do\n{}\n\
         ## Not there: `CUDA_ERROR_NOT_SUPPORTED` ({})\n",
        there.len(),
        lines(&there),
        told(unsupported::parts()),
        told(unsupported::less()),
        lacking.len()
    );
    for reason in unsupported::reasons() {
        let names: Vec<_> =
            lacking.iter().map(|(name, _)| *name).filter(|name| unsupported::reason(name) == Some(reason)).collect();
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
        .filter(|(name, there)| !there && unsupported::reason(name).is_none())
        .map(|(name, _)| name)
        .collect();
    assert!(without.is_empty(), "src/unsupported.rs gives no reason for {without:?}");
}

#[test]
fn no_reason_is_given_for_what_is_there() {
    let names = names();
    let stale: Vec<_> = unsupported::named().filter(|name| names.get(name) != Some(&false)).collect();
    assert!(stale.is_empty(), "src/unsupported.rs names what is there or is no function: {stale:?}");
}

#[test]
fn parts_are_those_of_functions_that_are_there() {
    let names = names();
    let told = unsupported::parts().chain(unsupported::less());
    let wrong: Vec<_> = told.flat_map(|(parts, _)| parts).filter(|name| names.get(*name) != Some(&true)).collect();
    assert!(wrong.is_empty(), "src/unsupported.rs tells of parts of what is not there: {wrong:?}");
}

#[test]
fn the_listing_is_what_the_driver_has() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("FUNCTIONS.md");
    let now = listing();
    if std::env::var_os("DETSHARE_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the crate's folder can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == now, "FUNCTIONS.md is not up to date: run this test with DETSHARE_BLESS=1 and commit");
}
