//! Writing down what a driver gives, and making that the expectation.

use crate::call::code_name;
use crate::case::{Case, Expectation};
use crate::runner::{self, Observed};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};
use std::path::Path;
use std::process::ExitCode;

/// Runs the cases and writes what came out: `{"add_s32.ptx": ["0x00000001", …]}`. Where a case expects a code,
/// the list is that code's name.
pub(crate) fn write(to: &Path, driver: &Path, cases: &[Case]) -> Result<ExitCode> {
    let mut blessed = Map::new();
    let mut failed = 0;
    runner::run(driver, cases, |case, observed| {
        let values: Vec<Value> = match (observed, &case.expectation) {
            (Observed::Words(words), Expectation::Words(_)) => {
                words.iter().map(|word| format!("{word:#010x}").into()).collect()
            }
            (Observed::Refused(refused), Expectation::Code(_)) => vec![code_name(refused.code).into()],
            (observed, _) => {
                failed += 1;
                println!("{} ... failed: {observed}", case.name);
                return;
            }
        };
        blessed.insert(case.file_name(), values.into());
    })?;
    println!("{} blessed, {failed} failed", blessed.len());
    let text = format!("{:#}\n", Value::from(blessed));
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Rewrites the files whose expectation is another than what was written down.
pub(crate) fn apply(blessed: &Path, cases: &[Case]) -> Result<ExitCode> {
    let read = || format!("cannot read {}", blessed.display());
    let text = std::fs::read_to_string(blessed).with_context(read)?;
    let blessed: Map<String, Value> = serde_json::from_str(&text).with_context(read)?;
    let mut rewritten = 0;
    for case in cases {
        let Some(values) = blessed.get(&case.file_name()) else {
            println!("{} ... not blessed", case.name);
            continue;
        };
        let expectation = expectation(case, values).with_context(|| format!("in the values of {}", case.name))?;
        if expectation != case.expectation {
            println!("{} ... rewritten", case.name);
            let text = case.with_expectation(&expectation);
            std::fs::write(&case.path, text).with_context(|| format!("cannot write {}", case.path.display()))?;
            rewritten += 1;
        }
    }
    println!("{rewritten} rewritten");
    Ok(ExitCode::SUCCESS)
}

fn expectation(case: &Case, values: &Value) -> Result<Expectation> {
    let values = values.as_array().context("no list")?;
    let texts: Option<Vec<&str>> = values.iter().map(Value::as_str).collect();
    let texts = texts.context("not all are strings")?;
    if let Expectation::Code(_) = case.expectation {
        let [code] = texts[..] else { bail!("not one code") };
        return Ok(Expectation::Code(code.into()));
    }
    let words: Result<Vec<u32>> = texts.into_iter().map(crate::case::word).collect();
    let words = words?;
    ensure!(words.len() == case.output_words(), "{} words instead of {}", words.len(), case.output_words());
    Ok(Expectation::Words(words))
}
