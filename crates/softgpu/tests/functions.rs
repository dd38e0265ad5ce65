//! `FUNCTIONS.md` lists what the driver has, and what it lacks with the reasons; `DEVICE_RUNTIME.md` does so for functions that
//! kernels call. `DETSHARE_BLESS=1` writes them anew.

use detshare_cuda::functions;
use detshare_softgpu::{SUPPORTED, device_runtime, unsupported};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

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
         ## There, and refused as by a GPU's driver: `CUDA_ERROR_NOT_SUPPORTED`\n{}\n\
         ## There, with less to do\n{}\n\
         ## Not there: `CUDA_ERROR_NOT_SUPPORTED` ({})\n",
        there.len(),
        lines(&there),
        told(unsupported::parts()),
        told(unsupported::as_on_a_gpu()),
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
    let told = unsupported::parts().chain(unsupported::as_on_a_gpu()).chain(unsupported::less());
    let wrong: Vec<_> = told.flat_map(|(parts, _)| parts).filter(|name| names.get(*name) != Some(&true)).collect();
    assert!(wrong.is_empty(), "src/unsupported.rs tells of parts of what is not there: {wrong:?}");
}

/// The Rust files below a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("it is there").map(|entry| entry.expect("it can be listed").path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files.chain(folders.iter().flat_map(|folder| sources(folder))).collect()
}

/// Where a source returns a code, as `unsupported` names it: the function that begins last before it.
fn places_of<'a>(file: &'a str, text: &'a str, code: &'a str) -> impl Iterator<Item = String> + 'a {
    let mut function = "";
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if let Some((before, rest)) = line.split_once("fn ")
            && before
                .split(' ')
                .all(|word| word.is_empty() || ["pub", "pub(crate)", "pub(super)", "unsafe"].contains(&word))
        {
            function = rest.split(['(', '<']).next().unwrap_or_default();
        }
        (!line.starts_with("//") && line.contains(code)).then(|| format!("{file}: {function}"))
    })
}

#[test]
fn each_place_that_refuses_a_part_is_told_of() {
    // What stands in for functions that are not there, each of which has its reason.
    const NOT_THERE: &str = "boundary.rs: not_supported";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = BTreeSet::new();
    for path in sources(&folder) {
        let file = path.strip_prefix(&folder).expect("below it").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("sources are text");
        found.extend(places_of(&file, &text, "CUresult::CUDA_ERROR_NOT_SUPPORTED"));
    }
    assert!(found.remove(NOT_THERE), "the code is looked for by another name than it has");
    let told: BTreeSet<String> = unsupported::places().map(str::to_string).collect();
    let untold: Vec<_> = found.difference(&told).collect();
    assert!(untold.is_empty(), "src/unsupported.rs does not say what is refused in {untold:?}");
    let stale: Vec<_> = told.difference(&found).collect();
    assert!(stale.is_empty(), "src/unsupported.rs names places that refuse nothing: {stale:?}");
}

/// Compares a file with what it should be, or writes it.
fn check(file: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("DETSHARE_BLESS").is_some() {
        std::fs::write(&path, now).expect("the crate's folder can be written");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(written == now, "{file} is not up to date: run this test with DETSHARE_BLESS=1 and commit");
}

#[test]
fn the_listing_is_what_the_driver_has() {
    check("FUNCTIONS.md", &listing());
}

/// The listing of the device runtime. Names of the second version are what programs call by the plain name, too.
fn device_listing() -> String {
    let (there, lacking): (Vec<_>, Vec<_>) = device_runtime::declared().partition(|name| device_runtime::has(name));
    let mut text = format!(
        "# What kernels can call of the device runtime\n\n\
         Generated by `DETSHARE_BLESS=1 cargo test -p detshare-softgpu --test functions` from what `cuda_device_runtime_api.h` \
         of CUDA 12.9 and 13.0 declares. A kernel calls `cudaMalloc`, say, and the header makes `__cudaCDP2Malloc` of it; \
         `_ptsz` is for programs compiled with `--default-stream per-thread`.\n\n\
         ## There ({})\n\n{}\n\
         ## There, but for this\n{}\n\
         ## Not there ({})\n\n\
         The program's first launch returns `cudaErrorNotSupported` where a GPU has the function, and the code of an H200 for a \
         name that is not defined where it has not: `CUDA_ERROR_INVALID_PTX`, or `CUDA_ERROR_INVALID_SOURCE` of a program that \
         is linked with the library, as nvcc links it.\n",
        there.len(),
        lines(&there),
        told(device_runtime::parts()),
        lacking.len()
    );
    for reason in device_runtime::reasons() {
        let names: Vec<_> =
            lacking.iter().copied().filter(|name| device_runtime::reason(name) == Some(reason)).collect();
        let _ = write!(text, "\n{reason}\n\n{}", lines(&names));
    }
    text
}

#[test]
fn the_device_listing_is_what_kernels_can_call() {
    check("DEVICE_RUNTIME.md", &device_listing());
}

#[test]
fn each_function_that_kernels_cannot_call_has_its_reason() {
    let (there, lacking): (Vec<_>, Vec<_>) = device_runtime::declared().partition(|name| device_runtime::has(name));
    let without: Vec<_> = lacking.iter().filter(|name| device_runtime::reason(name).is_none()).collect();
    assert!(without.is_empty(), "src/device_runtime.rs gives no reason for {without:?}");
    let stale: Vec<_> = device_runtime::named().filter(|name| !lacking.contains(name)).collect();
    assert!(stale.is_empty(), "src/device_runtime.rs names what is there or is not declared: {stale:?}");
    let wrong: Vec<_> =
        device_runtime::parts().flat_map(|(names, _)| names).filter(|name| !there.contains(name)).collect();
    assert!(wrong.is_empty(), "src/device_runtime.rs tells of parts of what is not there: {wrong:?}");
}
