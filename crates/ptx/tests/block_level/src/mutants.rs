//! Whether the suite notices versions that are broken on purpose.

use crate::case::Case;
use crate::mutation::mutations;
use crate::run;
use crate::subject::rewritten;
use crate::worker::{Outcome, Request, with_counters};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// Judges the mutants of all files; whether each was noticed.
pub(crate) fn run(driver: &Path, jobs: Option<usize>, cases: &[Case]) -> Result<bool> {
    let mut groups = Vec::new();
    let mut texts = Vec::new();
    for case in cases {
        let counted = with_counters(&case.text, &case.launches)?;
        let (_, rewritten) = rewritten(&counted).with_context(|| case.path.display().to_string())?;
        let source = rewritten.source.with_context(|| format!("{} has no versions", case.name))?;
        for (number, mutation) in mutations(&counted, &source)?.into_iter().enumerate() {
            texts.push(format!("{}: mutant {number}: {}", case.name, mutation.text));
            groups.push(vec![Request::Mutant { path: case.path.clone(), mutation: number }]);
        }
    }
    ensure!(!groups.is_empty(), "there are no mutants");
    let outcomes = run::run(driver, groups, jobs)?;
    let (mut noticed, mut not_loaded, mut survived) = (0, 0, 0);
    for (text, outcome) in texts.into_iter().zip(outcomes.into_iter().flatten()) {
        match outcome {
            Outcome::Wrong(why) => {
                noticed += 1;
                println!("{text} ... noticed: {why}");
            }
            Outcome::NotLoaded(why) => {
                not_loaded += 1;
                println!("{text} ... not loaded: {why}");
            }
            Outcome::Same(_) => {
                survived += 1;
                println!("{text} ... failed: nothing was noticed");
            }
        }
    }
    println!("{noticed} mutants noticed, {survived} not noticed, {not_loaded} that no driver takes");
    Ok(survived == 0)
}
