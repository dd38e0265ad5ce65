//! What people are told: of each kernel whether it was rewritten or why not, which version runs, and what was measured.
//!
//! It goes into a file of this process in the daemon's folder, called by the number of its page, which the daemon reads when somebody
//! asks. Our thread writes it, no more often than needed.

use super::loaded::Callable;
use super::parts::{BY_OTHERS, COUNTS};
use super::plan;
use super::prepared;
use super::{cache, turnaround_ns};
use crate::stats::{json, write_whole};
use crate::tenant;
use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use detshare_board::clock;
use detshare_policy::block_level::{VERSIONS, Version, turnaround_ns as until_it_gives_way};
use std::fmt::Write as _;

/// How often our thread looks whether there is anything new.
pub(super) const EVERY: Duration = Duration::from_millis(250);

static CHANGED: AtomicBool = AtomicBool::new(false);

/// There is something new to tell.
pub(super) fn changed() {
    if !CHANGED.load(Ordering::Relaxed) {
        CHANGED.store(true, Ordering::Relaxed);
    }
}

/// Writes what has changed. For our thread.
pub(super) fn write() {
    // What has changed before anybody is there to be told is told later.
    let (Some(folder), Some(page)) = (cache::folder(), tenant::page_number()) else { return };
    if !CHANGED.swap(false, Ordering::Relaxed) {
        return;
    }
    plan::for_each(plan::Plan::publish);
    _ = std::fs::create_dir(&folder);
    // Nobody is told if the disk is full; nothing else depends on it.
    _ = write_whole(&folder.join(format!("{page}.json")), &text());
}

fn text() -> String {
    let (mut modules, mut shapes) = (Vec::new(), Vec::new());
    prepared::for_each(|loaded, notes| {
        let notes = notes.iter().map(|note| json(note)).collect::<Vec<_>>().join(",");
        modules.push(match loaded {
            Ok(loaded) => {
                let kernels = loaded.kernels.iter().map(|kernel| {
                    let (sliced, preemptible) = (refusal(&kernel.sliced), refusal(&kernel.preemptible));
                    let (name, registers) = (json(&kernel.name), kernel.registers);
                    format!("{{\"name\":{name},\"registers\":{registers:?},\"sliced\":{sliced},\"preemptible\":{preemptible}}}")
                });
                let kernels = kernels.collect::<Vec<_>>().join(",");
                format!("{{\"refused\":null,\"notes\":[{notes}],\"kernels\":[{kernels}]}}")
            }
            Err(reason) => format!("{{\"refused\":{},\"notes\":[{notes}],\"kernels\":[]}}", json(reason)),
        });
    });
    plan::for_each(|plan| shapes.push(shape(plan)));
    let (modules, shapes) = (modules.join(","), shapes.join(","));
    let by_others = COUNTS[BY_OTHERS].load(Ordering::Relaxed);
    format!(
        "{{\"turnaround_ns\":{},\"by_others\":{by_others},\"modules\":[{modules}],\"shapes\":[{shapes}]}}\n",
        turnaround_ns()
    )
}

/// Why there is no such version; null if there is one.
fn refusal(version: &Callable) -> String {
    version.as_ref().map_or_else(|reason| json(reason), |_| "null".to_string())
}

fn shape(plan: &plan::Plan) -> String {
    let (chosen, because, measured) = plan.judged();
    let extent = plan.extent();
    let versions = VERSIONS.iter().zip(&measured).filter(|(version, it)| it.times > 0 && extent.applies(**version));
    let mut each = String::new();
    for (version, it) in versions {
        let turnaround = until_it_gives_way(&extent, *version, it, clock::now());
        let comma = if each.is_empty() { "" } else { "," };
        let _ = write!(
            each,
            "{comma}{{\"version\":{},\"took_ns\":{},\"measured\":{},\"turnaround_ns\":{turnaround}}}",
            json(&name(*version)),
            it.took_ns,
            it.times,
        );
    }
    format!(
        "{{\"kernel\":{},\"blocks\":{},\"launches\":{},\"preempted\":{},\"chosen\":{},\"because\":{},\"versions\":[{each}]}}",
        json(&plan.name()),
        extent.blocks,
        plan.launches(),
        plan.preempted(),
        json(&name(VERSIONS[chosen])),
        json(because.text()),
    )
}

/// As people call it.
fn name(version: Version) -> String {
    match version {
        Version::Original => "original".to_string(),
        Version::Slices { waves } => format!("slices of {waves} waves"),
        Version::Preemptible { blocks_per_sm } => format!("preemptible, {blocks_per_sm} blocks per SM"),
    }
}
