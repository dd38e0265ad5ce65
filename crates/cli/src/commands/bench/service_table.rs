//! The figures of LLM servers for people: a table, and what there is to say beside it.

use super::arm::ALONE;
use super::summary::{ArmSummary, ProgramSummary, Spread};
use super::words;
use crate::quantity;
use crate::table::Align;

/// An arm's objective is out of reach where the server misses it so often alone.
const OUT_OF_REACH: f64 = 0.5;

pub(crate) const COLUMNS: usize = 13;
pub(crate) const HEADINGS: [(&str, Align); COLUMNS] = [
    ("arm", Align::Left),
    ("server", Align::Left),
    ("requests", Align::Right),
    ("TTFT p50", Align::Right),
    ("TTFT p99", Align::Right),
    ("added", Align::Right),
    ("TPOT p50", Align::Right),
    ("TPOT p99", Align::Right),
    ("added", Align::Right),
    ("mean added", Align::Right),
    ("TTFT missed", Align::Right),
    ("TPOT missed", Align::Right),
    ("goodput", Align::Right),
];

/// A row for each server of each arm, under [`HEADINGS`].
pub(crate) fn rows(arms: &[ArmSummary]) -> Vec<[String; COLUMNS]> {
    let of = |arm| move |program| row(arm, program);
    arms.iter().flat_map(|arm| arm.programs.iter().filter_map(of(arm))).collect()
}

fn row(arm: &ArmSummary, program: &ProgramSummary) -> Option<[String; COLUMNS]> {
    let service = program.service.as_ref()?;
    let nothing = || "-".to_string();
    let time = |spread: Option<Spread>| spread.map_or_else(nothing, |spread| words::milliseconds(spread.median));
    // Alone against alone says nothing.
    let added = |spread: Option<Spread>| {
        spread.filter(|_| arm.arm != ALONE).map_or_else(nothing, |spread| words::with_range(spread, words::added))
    };
    // Of how many it is the slowest hundredth.
    let tail = |spread: Option<Spread>, of: usize| {
        spread.map_or_else(nothing, |spread| format!("{} of {of}", words::milliseconds(spread.median)))
    };
    let missed = |number: Option<Spread>, part: Option<Spread>| match number.zip(part) {
        Some((number, part)) => format!("{:.0} ({})", number.median, words::percent(part.median)),
        None => nothing(),
    };
    Some([
        arm.name.clone(),
        program.program.to_string(),
        program.requests.map_or_else(nothing, |requests| requests.to_string()),
        time(service.ttft_p50_ms),
        tail(service.ttft_p99_ms, service.ttft_count),
        added(service.ttft_p99_overhead),
        time(service.tpot_p50_ms),
        tail(service.tpot_p99_ms, service.tpot_count),
        added(service.tpot_p99_overhead),
        added(service.mean_latency_overhead),
        missed(service.ttft_violations, service.ttft_violations_part),
        missed(service.tpot_violations, service.tpot_violations_part),
        service.goodput.map_or_else(nothing, |spread| format!("{}/s", quantity::number(spread.median))),
    ])
}

/// What would be misread without it, a line each.
pub(crate) fn notes(arms: &[ArmSummary]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for arm in arms {
        for program in &arm.programs {
            let Some(service) = &program.service else { continue };
            let (name, arm_name) = (program.program, &arm.name);
            if service.unanswered > 0 {
                let unanswered = service.unanswered;
                notes.push(format!(
                    "{arm_name}: {name} was stopped with {unanswered} requests not answered, which are missing in its \
                     latencies: lower --load"
                ));
            }
            if arm.arm != ALONE {
                continue;
            }
            if service.refused > 0 {
                let refused = service.refused;
                notes.push(format!("{arm_name}: {name} refused {refused} requests as too long; no arm counts them"));
            }
            for (flag, part) in [("--ttft", service.ttft_violations_part), ("--tpot", service.tpot_violations_part)] {
                if part.is_some_and(|part| part.median > OUT_OF_REACH) {
                    notes.push(format!("{arm_name}: {name} misses its objective mostly even so: raise {flag}"));
                }
            }
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::super::summary::summarise;
    use super::super::summary::tests as examples;
    use super::*;

    #[test]
    fn a_row_for_each_server() {
        let runs = [examples::llm_run("alone", 1, None, 10.0), examples::llm_run("mps", 1, None, 25.0)];
        let rows = rows(&summarise(&examples::arms(), &runs));
        assert_eq!(rows[0][..6].join("|"), "alone|serve|10|100 ms|100 ms of 10|-");
        assert_eq!(
            rows[1][2..12].join("|"),
            "10|250 ms|250 ms of 10|+150 %|25.0 ms|25.0 ms of 100|+150 %|+150 %|10 (100 %)|100 (100 %)"
        );
        assert_eq!((rows[1][12].as_str(), rows.len()), ("0/s", 2));
        let others = [examples::run("alone", 1, 1.0, 1.0, None)];
        assert!(super::rows(&summarise(&examples::arms(), &others)).is_empty());
    }

    #[test]
    fn what_is_out_of_reach_alone_is_said() {
        let runs = [examples::llm_run("alone", 1, None, 25.0), examples::llm_run("mps", 1, None, 25.0)];
        let mut all = summarise(&examples::arms(), &runs);
        let found = notes(&all);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[1], "alone: serve misses its objective mostly even so: raise --tpot");
        all[1].programs[0].service.as_mut().unwrap().unanswered = 3;
        assert!(notes(&all)[2].starts_with("mps: serve was stopped with 3 requests not answered"), "{:?}", notes(&all));
    }
}
