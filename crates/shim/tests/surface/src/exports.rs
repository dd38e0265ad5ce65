//! The shim's dynamic symbols against the driver's.

use crate::library::Library;
use anyhow::{Context, Result, ensure};
use detshare_cuda::functions;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::BTreeSet;
use std::path::Path;

pub(crate) fn check(shim: &Library, driver: &Library) -> Result<String> {
    let table: BTreeSet<String> = functions().iter().map(|function| function.name.to_string()).collect();
    let ours = exported(&shim.path, |_| true)?;
    ensure!(ours == table, "the shim exports {:?} and lacks {:?}", list(&ours, &table), list(&table, &ours));
    // A driver also exports variables for the debugger; they stay its own.
    let theirs = exported(&driver.path, |kind| kind == SymbolKind::Text)?;
    Ok(format!(
        "{} functions exported, of {} that the driver exports; unknown to the table: {:?}, lacking in the driver: {:?}",
        ours.len(),
        theirs.len(),
        list(&theirs, &ours),
        list(&ours, &theirs)
    ))
}

fn list<'a>(of: &'a BTreeSet<String>, without: &'a BTreeSet<String>) -> Vec<&'a String> {
    of.difference(without).collect()
}

fn exported(path: &Path, counts: impl Fn(SymbolKind) -> bool) -> Result<BTreeSet<String>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let file = object::File::parse(&*bytes).with_context(|| format!("{} is no library", path.display()))?;
    let functions = file
        .dynamic_symbols()
        .filter(|symbol| symbol.is_definition() && counts(symbol.kind()))
        .map(|symbol| symbol.name().map(String::from))
        .collect::<Result<_, _>>()?;
    Ok(functions)
}
