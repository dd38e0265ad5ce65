//! `FUNCTIONS.md` lists what the driver has and what it lacks, from the table. `DETSHARE_BLESS=1` writes it anew.

use detshare_cuda::functions;
use detshare_softgpu::SUPPORTED;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

fn listing() -> String {
    // Variants share an implementation, so they are there or not together.
    let mut names: BTreeMap<&str, bool> = BTreeMap::new();
    for (function, supported) in functions().iter().zip(SUPPORTED) {
        let unsuffixed = function.name.strip_suffix("_ptsz").or_else(|| function.name.strip_suffix("_ptds"));
        names.insert(unsuffixed.unwrap_or(function.name), supported);
    }
    let list = |wanted: bool| {
        let chosen: Vec<_> = names.iter().filter(|(_, there)| **there == wanted).map(|(name, _)| *name).collect();
        let mut text = String::new();
        for line in chosen.chunks(4) {
            let _ = writeln!(text, "{}", line.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" "));
        }
        (chosen.len(), text)
    };
    let ((there, yes), (lacking, no)) = (list(true), list(false));
    format!(
        "# What the software GPU's driver has\n\n\
         Generated from the table by `DETSHARE_BLESS=1 cargo test -p detshare-softgpu --test functions`. Each name stands \
         for its `_ptsz` and `_ptds` variants too.\n\n\
         ## There ({there})\n\n{yes}\n\
         ## Not there: `CUDA_ERROR_NOT_SUPPORTED` ({lacking})\n\n{no}"
    )
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
