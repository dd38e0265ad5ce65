//! What PTX instructions give, asked of any driver library: a real one, or one without a GPU behind it.
//!
//! Each file of a folder tests one instruction, or a few of a kind, and says in its first lines what comes out
//! (see [`case`]). Its kernel `test` runs as one block and writes a few words for each thread.
//!
//! A real GPU is right by definition. `--bless` writes down what a driver gives and `--apply` makes that the
//! expectation of the files:
//!
//! ```text
//! instructions --driver /usr/lib/x86_64-linux-gnu/libcuda.so.1 --bless h200.json cases
//! instructions --apply h200.json cases
//! instructions --driver target/release/libdetshare_softgpu.so cases atom_ shfl_
//! ```
//!
//! Where no document says what comes out, as with the rounding of matrix units, `--rounding` finds out
//! (see [`rounding`]), and `--rounding-as` compares a driver with the answers of a GPU. So does `--approximations-as`, for whole ranges
//! of what approximations take (see [`approximations`]).

#[macro_use]
mod call;
mod approximations;
mod bless;
mod case;
mod gpu;
mod judge;
mod rounding;
mod runner;

use anyhow::{Context, Result, bail};
use case::Case;
use clap::Parser;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Parser)]
#[command(about = "What PTX instructions give, asked of any driver library")]
struct Arguments {
    /// The driver library to ask
    #[arg(long, required_unless_present = "apply")]
    driver: Option<PathBuf>,
    /// Where to write the verdicts as JSON
    #[arg(long)]
    out: Option<PathBuf>,
    /// Compare nothing, only write down as JSON what the driver gives
    #[arg(long, conflicts_with = "out")]
    bless: Option<PathBuf>,
    /// Ask no driver, only make what `--bless` wrote the expectation of the files
    #[arg(long, conflicts_with_all = ["driver", "out", "bless"])]
    apply: Option<PathBuf>,
    /// Take no files, find out how the matrix units round, and write down what was asked and answered as JSON
    #[arg(long, requires = "driver", conflicts_with_all = ["out", "bless"])]
    rounding: Option<PathBuf>,
    /// Take no files, ask what `--rounding` asks and compare with the answers in this file
    #[arg(long, requires = "driver", conflicts_with_all = ["out", "bless", "rounding"])]
    rounding_as: Option<PathBuf>,
    /// Take no files, ask what `--rounding` asks and write the answers into such a file
    #[arg(long, requires = "driver", conflicts_with_all = ["out", "bless", "rounding", "rounding_as"])]
    keep_rounding: Option<PathBuf>,
    /// Take no files, ask for all that whole ranges of inputs give to approximations and compare with the digests in this file
    #[arg(long, requires = "driver", conflicts_with_all = ["out", "bless", "rounding", "rounding_as", "keep_rounding"])]
    approximations_as: Option<PathBuf>,
    /// Take no files, ask what `--approximations-as` asks and write the digests into such a file
    #[arg(long, requires = "driver", conflicts_with_all = ["out", "bless", "rounding", "rounding_as", "keep_rounding", "approximations_as"])]
    keep_approximations: Option<PathBuf>,
    /// The folder with the files
    #[arg(required_unless_present_any = ["rounding", "rounding_as", "keep_rounding", "approximations_as", "keep_approximations"])]
    folder: Option<PathBuf>,
    /// Take the files whose name contains one of these
    filters: Vec<String>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if let Some(driver) = &arguments.driver {
        let Arguments { rounding, rounding_as, keep_rounding, approximations_as, keep_approximations, .. } = &arguments;
        match (rounding, rounding_as, keep_rounding, approximations_as, keep_approximations) {
            (Some(to), ..) => return rounding::measure(driver, to),
            (_, Some(with), ..) => return rounding::answers::compare(driver, with),
            (_, _, Some(to), ..) => return rounding::answers::keep(driver, to),
            (.., Some(with), _) => return approximations::compare(driver, with),
            (.., Some(to)) => return approximations::keep(driver, to),
            (None, None, None, None, None) => {}
        }
    }
    let cases = cases(arguments.folder.as_deref().context("name a folder")?, &arguments.filters)?;
    match (&arguments.driver, &arguments.apply) {
        (_, Some(blessed)) => bless::apply(blessed, &cases),
        (Some(driver), None) => match &arguments.bless {
            Some(to) => bless::write(to, driver, &cases),
            None => run(driver, &cases, arguments.out.as_deref()),
        },
        (None, None) => bail!("name a driver"),
    }
}

/// The folder's files, in the order of their names.
fn cases(folder: &Path, filters: &[String]) -> Result<Vec<Case>> {
    let cannot_list = || format!("cannot list {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(cannot_list)? {
        let path = entry.with_context(cannot_list)?.path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            paths.push(path);
        }
    }
    paths.sort();
    let cases: Result<Vec<Case>> = paths.iter().map(|path| Case::read(path)).collect();
    let wanted = |case: &Case| filters.is_empty() || filters.iter().any(|part| case.name.contains(part));
    let cases: Vec<Case> = cases?.into_iter().filter(wanted).collect();
    if cases.is_empty() {
        bail!("{} has no such file", folder.display());
    }
    Ok(cases)
}

fn run(driver: &Path, cases: &[Case], out: Option<&Path>) -> Result<ExitCode> {
    let (mut passed, mut failed) = (0, 0);
    let mut verdicts = Vec::new();
    runner::run(driver, cases, |case, observed| {
        let judged = judge::judge(case, observed);
        let (verdict, detail) = match &judged {
            Ok(()) => ("ok", String::new()),
            Err(difference) => ("failed", difference.clone()),
        };
        *if judged.is_ok() { &mut passed } else { &mut failed } += 1;
        let separator = if detail.is_empty() { "" } else { ": " };
        println!("{} ... {verdict}{separator}{detail}", case.name);
        verdicts.push(json!({ "name": case.name, "verdict": verdict, "detail": detail }));
    })?;
    // Whatever stands in the folder is meant to run everywhere.
    let summary = format!("{passed} passed, {failed} failed, 0 skipped");
    println!("{summary}");
    if let Some(out) = out {
        let text = format!("{:#}\n", json!({ "summary": summary, "tests": verdicts }));
        std::fs::write(out, text).with_context(|| format!("cannot write {}", out.display()))?;
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
