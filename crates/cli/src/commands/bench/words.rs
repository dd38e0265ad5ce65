//! The figures in plain words.

use super::arm::ALONE;
use super::identity::Identity;
use super::service_summary::ServiceSummary;
use super::summary::{ArmSummary, ProgramSummary, Spread};
use crate::quantity;
use detshare_api::Class;

/// `1.23 ms`.
pub(crate) fn milliseconds(value: f64) -> String {
    let nanoseconds = std::time::Duration::try_from_secs_f64(value / 1e3).map_or(u128::MAX, |time| time.as_nanos());
    quantity::nanoseconds(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

/// `64 %`.
pub(crate) fn percent(part: f64) -> String {
    let percent = part * 1e2;
    if percent.abs() < 9.95 { format!("{percent:.1} %") } else { format!("{percent:.0} %") }
}

/// `+5.1 %`.
pub(crate) fn added(part: f64) -> String {
    let text = percent(part);
    if text.starts_with('-') { text } else { format!("+{text}") }
}

/// `+5.1 % (+4.8 % … +5.3 %)`, if there is more than one round.
pub(crate) fn with_range(spread: Spread, form: fn(f64) -> String) -> String {
    let Spread { median, min, max, rounds } = spread;
    if rounds == 1 { form(median) } else { format!("{} ({} … {})", form(median), form(min), form(max)) }
}

/// What there is to say about an arm, in a few sentences.
pub(crate) fn reading(arm: &ArmSummary) -> String {
    if arm.programs.is_empty() {
        let why = arm.failures.first().map_or("it did not run", String::as_str);
        return format!("There are no figures: {why}.");
    }
    let mut sentences: Vec<String> = arm.programs.iter().map(|program| sentence(arm, program)).collect();
    sentences.extend(together(arm));
    sentences.push(bits(arm));
    if let Some(failure) = arm.failures.first() {
        sentences.push(format!("A round has no figures: {failure}."));
    }
    sentences.join(" ")
}

fn sentence(arm: &ArmSummary, program: &ProgramSummary) -> String {
    let name = program.program;
    if let Some(service) = &program.service {
        return service_sentence(arm, name, service);
    }
    let Some(per_second) = program.per_second else {
        return format!("{name} did too little to be measured.");
    };
    let rate = quantity::number(per_second.median);
    match (program.class, program.p50_ms, program.p99_ms) {
        (Class::Latency, Some(p50), Some(p99)) => {
            let against = program.p99_overhead.filter(|_| arm.arm != ALONE).map_or(String::new(), in_comparison);
            format!(
                "{name} answers half of its requests within {}, and 99 of 100 within {}{against}.",
                milliseconds(p50.median),
                milliseconds(p99.median),
            )
        }
        _ => match program.share.filter(|_| arm.arm != ALONE) {
            Some(share) => {
                format!(
                    "{name} does {rate} steps a second, {} of what it does alone{}.",
                    percent(share.median),
                    range(share, percent)
                )
            }
            None => format!("{name} does {rate} steps a second."),
        },
    }
}

/// What users of an LLM server notice.
fn service_sentence(arm: &ArmSummary, name: &str, service: &ServiceSummary) -> String {
    let against = |overhead: Option<Spread>| overhead.filter(|_| arm.arm != ALONE).map_or(String::new(), in_comparison);
    let tail = |what: &str, p99: Option<Spread>, overhead: Option<Spread>| {
        p99.map(|p99| format!("99 of 100 {what} within {}{}", milliseconds(p99.median), against(overhead)))
    };
    let parts = [
        tail("first tokens", service.ttft_p99_ms, service.ttft_p99_overhead),
        tail("further ones", service.tpot_p99_ms, service.tpot_p99_overhead),
    ];
    let mut text = format!("{name} gives {}.", parts.into_iter().flatten().collect::<Vec<_>>().join("; "));
    if let (Some(first), Some(further)) = (service.ttft_violations_part, service.tpot_violations_part) {
        let parts = (percent(first.median), percent(further.median));
        text.push_str(&format!(
            " Too late for the objectives were {} of the first tokens and {} of the others.",
            parts.0, parts.1
        ));
    }
    text
}

/// How a latency stands to the one alone.
fn in_comparison(overhead: Spread) -> String {
    /// From here on, how many times as long is easier to grasp.
    const MANY: f64 = 1.0;
    let times = |part: f64| format!("{:.1} times", part + 1.0);
    let range_words = range(overhead, added);
    if overhead.median >= MANY {
        format!(", {} as long as alone{}", times(overhead.median), range(overhead, times))
    } else if overhead.median >= 0.0 {
        format!(", {} more than alone{range_words}", percent(overhead.median))
    } else {
        format!(", {} less than alone{range_words}", percent(-overhead.median))
    }
}

fn range(spread: Spread, form: impl Fn(f64) -> String) -> String {
    if spread.rounds == 1 {
        return String::new();
    }
    format!(" ({} to {} over {} rounds)", form(spread.min), form(spread.max), spread.rounds)
}

/// Whether equals that share do more than if they took turns.
fn together(arm: &ArmSummary) -> Option<String> {
    let shares: Option<Vec<f64>> = arm.programs.iter().map(|one| Some(one.share?.median)).collect();
    let shares = shares.filter(|shares| shares.len() > 1 && !arm.is_alone)?;
    let sum = shares.iter().sum();
    Some(format!("Together that is {} of what the GPU does if they take turns.", percent(sum)))
}

fn bits(arm: &ArmSummary) -> String {
    if let Some(program) = arm.programs.iter().find(|program| program.bits.is_different()) {
        return format!("{} computed other bits than alone, {}.", program.program, program.bits.in_words());
    }
    let unknown = arm.programs.iter().find_map(|program| match &program.bits {
        Identity::Unknown { reason } => Some((program.program, reason)),
        _ => None,
    });
    match unknown {
        Some((program, reason)) => format!("Whether {program} computed the same bits is not known: {reason}."),
        None if arm.programs.iter().all(|program| program.bits == Identity::Reference) => {
            "The other arms are compared with this one.".to_string()
        }
        None => "All computed the same bits as alone.".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::summary::summarise;
    use super::super::summary::tests as examples;
    use super::*;

    #[test]
    fn parts_of_a_hundred() {
        for (part, text) in
            [(0.0512, "+5.1 %"), (-0.013, "-1.3 %"), (0.0, "+0.0 %"), (7.3, "+730 %"), (0.0996, "+10 %")]
        {
            assert_eq!(added(part), text);
        }
        assert_eq!((percent(0.644), percent(1.0)), ("64 %".to_string(), "100 %".to_string()));
        assert_eq!(milliseconds(1.234), "1.23 ms");
    }

    #[test]
    fn the_range_is_shown_where_there_is_one() {
        let spread = |rounds| Spread { median: 0.5, min: 0.4, max: 0.6, rounds };
        assert_eq!(with_range(spread(1), percent), "50 %");
        assert_eq!(with_range(spread(3), percent), "50 % (40 % … 60 %)");
    }

    #[test]
    fn an_arm_in_a_few_sentences() {
        let runs = [examples::run("alone", 1, 1.2, 10.0, None), examples::run("mps", 1, 4.8, 9.0, None)];
        let all = summarise(&examples::arms(), &runs);
        assert_eq!(
            reading(&all[1]),
            "serve answers half of its requests within 4.80 ms, and 99 of 100 within 4.80 ms, 4.0 times as long as alone. \
             train does 9.00 steps a second, 90 % of what it does alone. All computed the same bits as alone."
        );
        assert!(!reading(&all[0]).contains("alone of"), "{}", reading(&all[0]));
        assert_eq!(reading(&all[2]), "There are no figures: it did not run.");
    }

    #[test]
    fn an_llm_server_in_a_few_sentences() {
        let runs = [examples::llm_run("alone", 1, None, 10.0), examples::llm_run("mps", 1, None, 15.0)];
        let all = summarise(&examples::arms(), &runs);
        assert_eq!(
            reading(&all[1]),
            "serve gives 99 of 100 first tokens within 150 ms, 50 % more than alone; 99 of 100 further ones within 15.0 ms, \
             50 % more than alone. Too late for the objectives were 0.0 % of the first tokens and 0.0 % of the others. All \
             computed the same bits as alone."
        );
    }

    #[test]
    fn equals_are_also_added_up() {
        let runs = [examples::run("alone", 1, 1.0, 10.0, None), examples::run("mps", 1, 1.0, 7.0, None)];
        let mut all = summarise(&examples::arms(), &runs);
        assert!(!reading(&all[1]).contains("take turns"));
        for arm in &mut all[..2] {
            // Two trainings in place of a server and a training.
            arm.programs[0] = arm.programs[1].clone();
        }
        assert!(reading(&all[1]).contains("Together that is 140 % of what the GPU does"), "{}", reading(&all[1]));
        assert!(!reading(&all[0]).contains("take turns"), "{}", reading(&all[0]));
    }

    #[test]
    fn a_little_more_and_a_little_less() {
        let near = |latency| {
            let runs = [examples::run("alone", 1, 1.0, 1.0, None), examples::run("mps", 1, latency, 1.0, None)];
            reading(&summarise(&examples::arms(), &runs)[1])
        };
        assert!(near(1.05).contains("within 1.05 ms, 5.0 % more than alone."), "{}", near(1.05));
        assert!(near(0.9).contains("10 % less than alone."), "{}", near(0.9));
    }
}
