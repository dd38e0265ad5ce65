//! How a driver's matrix units round, found out by asking.
//!
//! Each instruction gets sums of products whose result depends on how it adds up: how many products at once, in
//! which order, to how many bits. Every [hypothesis](model::Hypothesis) about that predicts the results; the table
//! says which of them predict all. All that was asked and answered goes to a file, so that other hypotheses can be
//! tried later without the GPU.
//!
//! ```text
//! instructions --driver /usr/lib/x86_64-linux-gnu/libcuda.so.1 --rounding h200.json
//! ```
//!
//! The answers alone are kept in a file, and every driver is compared with them (see [`answers`]).

pub(crate) mod answers;
mod facts;
mod format;
mod kind;
mod model;
mod probe;

use crate::gpu::Gpu;
use anyhow::{Context, Result};
use kind::Kind;
use model::Hypothesis;
use probe::Probe;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// How many hypotheses about an instruction the table lists.
const LISTED: usize = 4;
/// After so many probes the hypotheses that predict fewer results than others are left out.
const STAGES: [usize; 3] = [8, 48, usize::MAX];

/// A hypothesis and how many results it predicts.
struct Fit {
    hypothesis: Hypothesis,
    matched: usize,
}

/// Asks all instructions, prints the table and writes everything down.
pub(crate) fn measure(driver: &Path, to: &Path) -> Result<ExitCode> {
    let gpu = Gpu::open(driver)?;
    let mut measured = Vec::new();
    let mut explained = true;
    for kind in kind::all() {
        let probes = probe::probes(&kind);
        let answer = kind.ask(&gpu, &probes).with_context(|| format!("{} cannot be asked", kind.name));
        let results = match answer {
            Ok(results) => results,
            Err(error) => {
                println!("{}: {error:#}", kind.name);
                explained = false;
                continue;
            }
        };
        let fits = fits(&kind, &probes, &results);
        explained &= fits.first().is_some_and(|fit| fit.matched == probes.len());
        print(&kind, &fits, probes.len());
        measured.push(described(&kind, &probes, &results, &fits));
    }
    let facts = facts::described(&facts::ask(&gpu)?);
    let text = format!("{:#}\n", json!({ "driver": driver, "instructions": measured, "facts": facts }));
    std::fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    Ok(if explained { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The hypotheses that predict most, the best ones first, and of equals the simplest.
fn fits(kind: &Kind, probes: &[Probe], results: &[u64]) -> Vec<Fit> {
    let matched = |hypothesis: &Hypothesis, range: core::ops::Range<usize>| {
        range.filter(|at| hypothesis.predict(kind, &probes[*at]) == results[*at]).count()
    };
    let mut fits: Vec<Fit> =
        model::hypotheses(kind).into_iter().map(|hypothesis| Fit { hypothesis, matched: 0 }).collect();
    let mut done = 0;
    for stage in STAGES {
        let end = stage.min(probes.len());
        for fit in &mut fits {
            fit.matched += matched(&fit.hypothesis, done..end);
        }
        let most = fits.iter().map(|fit| fit.matched).max().unwrap_or(0);
        if end < probes.len() {
            fits.retain(|fit| fit.matched == most);
        }
        done = end;
    }
    fits.sort_by_key(|fit| core::cmp::Reverse(fit.matched));
    fits
}

fn print(kind: &Kind, fits: &[Fit], asked: usize) {
    let best = fits.first().map_or(0, |fit| fit.matched);
    let equal = fits.iter().filter(|fit| fit.matched == best).count();
    println!("{}: {best} of {asked} results predicted, by {equal} of the hypotheses", kind.name);
    for fit in fits.iter().take(LISTED) {
        println!("    {:>5} {}", fit.matched, fit.hypothesis);
    }
}

fn described(kind: &Kind, probes: &[Probe], results: &[u64], fits: &[Fit]) -> Value {
    let hex = |bits: &u64| format!("{bits:#x}");
    let asked: Vec<Value> = probes
        .iter()
        .zip(results)
        .map(|(probe, d)| {
            let (a, b): (Vec<_>, Vec<_>) = (probe.a.iter().map(hex).collect(), probe.b.iter().map(hex).collect());
            json!({ "a": a, "b": b, "c": hex(&probe.c), "d": hex(d) })
        })
        .collect();
    let fits: Vec<Value> = fits
        .iter()
        .take(LISTED)
        .map(|fit| json!({ "hypothesis": fit.hypothesis.to_string(), "matched": fit.matched }))
        .collect();
    json!({ "name": kind.name, "instruction": kind.instruction, "fits": fits, "probes": asked })
}
