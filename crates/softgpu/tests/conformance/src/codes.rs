//! Codes that tests noted: where no promise settles them, two drivers must at least agree.

use crate::runner::Report;
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// The codes that each test noted, in order.
pub(crate) type Codes = HashMap<String, Vec<String>>;

/// Out of the verdicts that `--out` wrote.
pub(crate) fn read(report: &Path) -> Result<Codes> {
    let text = std::fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    let report: Value = serde_json::from_str(&text).context("the verdicts are no JSON")?;
    let tests = report["tests"].as_array().context("the verdicts have no tests")?;
    let of_test = |test: &Value| {
        let notes = test["notes"].as_array()?;
        let name = test["name"].as_str()?.to_owned();
        Some((name, codes(notes.iter().filter_map(Value::as_str))))
    };
    Ok(tests.iter().filter_map(of_test).collect())
}

/// How the codes of a test differ from those of the other driver.
pub(crate) fn difference(others: &Codes, report: &Report) -> Option<String> {
    let (theirs, ours) = (others.get(report.name())?, codes(report.notes().iter().map(String::as_str)));
    (*theirs != ours).then(|| format!("other codes: {} instead of {}", ours.join(", "), theirs.join(", ")))
}

fn codes<'a>(notes: impl Iterator<Item = &'a str>) -> Vec<String> {
    let code = |note: &str| {
        let (_, after) = note.rsplit_once(" gives ")?;
        after.starts_with("CUDA_").then(|| after.split(' ').next().unwrap_or_default().to_owned())
    };
    notes.filter_map(code).collect()
}
