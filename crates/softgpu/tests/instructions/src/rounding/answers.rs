//! The answers to all sums, kept in a file, and a driver compared with them.
//!
//! A line that begins with `#` says something about the file, one that is not indented names sums, and behind it stand their
//! results, the bits in hexadecimal digits.
//!
//! ```text
//! instructions --driver /usr/lib/x86_64-linux-gnu/libcuda.so.1 --rounding-as crates/softgpu/tests/instructions/h200.rounding
//! ```

use super::facts;
use super::kind::{self, Kind};
use super::probe::{self, Probe};
use crate::gpu::Gpu;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

/// Results in a line.
const ABREAST: usize = 12;

/// Sums of a kind, or one of special numbers.
struct Answered {
    name: String,
    kind: Kind,
    probes: Vec<Probe>,
    results: Vec<u64>,
}

impl Answered {
    fn digits(&self, result: u64) -> String {
        format!("{result:0width$x}", width = self.kind.result.bits() as usize / 4)
    }

    /// What a driver gives otherwise than it was written down.
    fn difference(&self, expected: &[String]) -> Option<String> {
        if expected.len() != self.results.len() {
            return Some(format!("{} sums were asked, and {} are written down", self.results.len(), expected.len()));
        }
        let is_other = |number: &usize| self.digits(self.results[*number]) != expected[*number];
        let others: Vec<usize> = (0..expected.len()).filter(is_other).collect();
        let first = *others.first()?;
        let (given, probe) = (self.digits(self.results[first]), &self.probes[first]);
        Some(format!(
            "{} of {} differ, the first is number {first}: {given} instead of {} for {probe:x?}",
            others.len(),
            expected.len(),
            expected[first],
        ))
    }
}

/// Asks all sums.
fn ask(gpu: &Gpu) -> Result<Vec<Answered>> {
    let mut all = Vec::new();
    for kind in kind::all() {
        let probes = probe::probes(&kind);
        let results = kind.ask(gpu, &probes).with_context(|| format!("{} cannot be asked", kind.name))?;
        all.push(Answered { name: kind.name.to_string(), kind, probes, results });
    }
    let special = facts::ask(gpu)?.into_iter().map(|fact| Answered {
        name: format!("{}: {}", fact.instruction, fact.what),
        kind: fact.kind,
        probes: vec![fact.probe],
        results: vec![fact.result],
    });
    all.extend(special);
    Ok(all)
}

/// Writes a driver's answers into a file; what the file says about itself stays.
pub(crate) fn keep(driver: &Path, to: &Path) -> Result<ExitCode> {
    let before = std::fs::read_to_string(to).unwrap_or_default();
    let mut text: String =
        before.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for answered in ask(&Gpu::open(driver)?)? {
        let _ = writeln!(text, "{}", answered.name);
        for line in answered.results.chunks(ABREAST) {
            let digits: Vec<_> = line.iter().map(|result| answered.digits(*result)).collect();
            let _ = writeln!(text, "    {}", digits.join(" "));
        }
    }
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Compares a driver with the answers in a file.
pub(crate) fn compare(driver: &Path, with: &Path) -> Result<ExitCode> {
    let text = std::fs::read_to_string(with).with_context(|| format!("cannot read {}", with.display()))?;
    let mut expected = parse(&text)?;
    let (mut passed, mut failed, mut sums) = (0, 0, 0);
    let mut judge = |name: &str, difference: Option<String>| match difference {
        None => passed += 1,
        Some(difference) => {
            failed += 1;
            println!("{name} ... failed: {difference}");
        }
    };
    for answered in ask(&Gpu::open(driver)?)? {
        sums += answered.results.len();
        let expected = expected.remove(&answered.name);
        let difference = match &expected {
            Some(expected) => answered.difference(expected),
            None => Some("no answers are written down".to_string()),
        };
        judge(&answered.name, difference);
    }
    for name in expected.keys() {
        judge(name, Some("is not asked any more".to_string()));
    }
    println!("{passed} passed, {failed} failed, 0 skipped: {sums} sums");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The results in a file's text, by their names.
fn parse(text: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    let mut name = None;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        match (line.strip_prefix("    "), &name) {
            (Some(results), Some(name)) => {
                let of_name: &mut Vec<String> = all.entry(String::clone(name)).or_default();
                of_name.extend(results.split(' ').map(str::to_string));
            }
            (Some(_), None) => bail!("results of nothing: {line}"),
            (None, _) => {
                ensure!(!all.contains_key(line), "{line} is there twice");
                name = Some(line.to_string());
            }
        }
    }
    Ok(all)
}
