//! Whether the suite notices versions that are broken on purpose.
//!
//! The files are chosen such that everything in a version matters to one of them; a mutant is noticed if one of the
//! files that has it notices. A few change nothing that anyone could notice, and are listed with the reason.

use crate::case::Case;
use crate::mutation::mutations;
use crate::overseer::Means;
use crate::run;
use crate::subject::rewritten;
use crate::suite;
use crate::worker::{Outcome, Request, with_counters};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;

/// Mutants that compute the same, and why. By their whole text, so that none is excused that nobody has looked at.
const SAME: [(&str, &str); 19] = [
    ("Drop add.u32 detshare_turn, detshare_turn, 1; number 2 in detshare_preemptible_test", ALL_COUNT_ALIKE),
    ("Increment add.u32 detshare_turn, detshare_turn, 1; number 2 in detshare_preemptible_test", ALL_COUNT_ALIKE),
    ("Drop xor.b32 detshare_sign, detshare_sign, 4; number 2 in detshare_preemptible_test", ALL_COUNT_ALIKE),
    ("Drop bar.warp.sync -1; number 1 in detshare_preemptible_test", TOGETHER_AGAIN),
    ("Increment bar.warp.sync -1; number 1 in detshare_preemptible_test", TOGETHER_AGAIN),
    (
        "Drop bra detshare_told; number 1 in detshare_preemptible_test",
        "who gives way may look whether to: it has no number any more",
    ),
    (
        "Increment atom.global.or.b32 detshare_bits, [detshare_counter+8], 1; number 1 in detshare_preemptible_test",
        "any bit tells that somebody looks",
    ),
    ("Drop bra detshare_next; number 1 in detshare_preemptible_test", "another one follows"),
    ("Drop bra detshare_next; number 2 in detshare_preemptible_test", "another one follows"),
    ("Drop mov.u32 detshare_turn, 1; number 1 in detshare_preemptible_test", FROM_ANY_NUMBER),
    ("Increment mov.u32 detshare_turn, 1; number 1 in detshare_preemptible_test", FROM_ANY_NUMBER),
    ("Drop st.volatile.shared.u32 [detshare_sign+4], 0; number 1 in detshare_preemptible_test", HARDLY_EVER),
    ("Increment st.volatile.shared.u32 [detshare_sign+4], 0; number 1 in detshare_preemptible_test", HARDLY_EVER),
    ("Drop st.volatile.shared.u32 [detshare_sign], 0; number 1 in detshare_preemptible_test", HARDLY_EVER),
    ("Increment st.volatile.shared.u32 [detshare_sign], 0; number 1 in detshare_preemptible_test", HARDLY_EVER),
    (
        "Drop st.volatile.shared.u32 [detshare_sign], detshare_turn; number 1 in detshare_preemptible_test",
        "nobody looks for a sign at the first barrier, where all still are",
    ),
    (
        "Increment barrier.sync 0; number 2 in detshare_preemptible_test",
        "another barrier does as well where the kernel does not use it",
    ),
    (
        "Drop shr.u64 detshare_product, detshare_product, detshare_shift; number 3 in detshare_preemptible_test",
        COUNTED_IN_OTHER_PLACES,
    ),
    (
        "Drop shr.u64 detshare_product, detshare_product, detshare_shift; number 3 in detshare_sliced_test",
        COUNTED_IN_OTHER_PLACES,
    ),
];
const COUNTED_IN_OTHER_PLACES: &str =
    "in what counts the blocks: blocks of a column change places, each with another one";
const ALL_COUNT_ALIKE: &str = "at the first barrier all still are, and all count alike";
const TOGETHER_AGAIN: &str = "lets a warp run together again, for speed";
const FROM_ANY_NUMBER: &str = "barriers may be counted from any number";
const HARDLY_EVER: &str = "whatever is there is hardly ever the next number";

/// Judges the mutants of all files; whether each was noticed.
pub(crate) fn run(means: &Means, cases: &[Case]) -> Result<bool> {
    ensure!(suite::run(means, cases, None)?, "the suite finds something before anything is broken");
    let mut mutants: BTreeMap<String, Vec<Request>> = BTreeMap::new();
    for case in cases {
        let counted = with_counters(&case.text, &case.launches)?;
        let (_, rewritten) = rewritten(&counted).with_context(|| case.path.display().to_string())?;
        let source = rewritten.source.with_context(|| format!("{} has no versions", case.name))?;
        for (number, mutation) in mutations(&counted, &source)?.into_iter().enumerate() {
            let request = Request::Mutant { path: case.path.clone(), mutation: number };
            mutants.entry(format!("{} {}", mutation.text, mutation.place)).or_default().push(request);
        }
    }
    ensure!(!mutants.is_empty(), "there are no mutants");
    let (names, groups): (Vec<String>, Vec<_>) = mutants.into_iter().unzip();
    let outcomes = run::run(means, &groups, |_, _, _| (), |outcome| matches!(outcome, Outcome::Wrong(_)))?;
    ensure!(!means.is_over(), "there was not the time to break everything");
    let unknown: Vec<&str> =
        SAME.iter().map(|(text, _)| *text).filter(|text| !names.iter().any(|it| it == text)).collect();
    ensure!(unknown.is_empty(), "no mutant is called {}", unknown.join(", nor "));
    let (mut noticed, mut same, mut refused, mut survived) = (0, 0, 0, 0);
    for (name, outcomes) in names.into_iter().zip(outcomes) {
        let reason = SAME.iter().find(|(text, _)| *text == name).map(|(_, reason)| reason);
        let wrong = outcomes.iter().find_map(|outcome| match outcome {
            Outcome::Wrong(why) => Some(why),
            _ => None,
        });
        let loaded = outcomes.iter().any(|outcome| matches!(outcome, Outcome::Same(_)));
        match (wrong, loaded, reason) {
            (Some(why), ..) => {
                noticed += 1;
                println!("{name} ... noticed: {why}");
            }
            (None, false, _) => {
                refused += 1;
                println!("{name} ... no driver takes it");
            }
            (None, true, Some(reason)) => {
                same += 1;
                println!("{name} ... the same: {reason}");
            }
            (None, true, None) => {
                survived += 1;
                println!("{name} ... failed: nothing was noticed");
            }
        }
    }
    println!(
        "{} mutants: {noticed} noticed, {survived} not, {same} compute the same, {refused} no driver takes",
        noticed + survived + same + refused
    );
    Ok(survived == 0)
}
