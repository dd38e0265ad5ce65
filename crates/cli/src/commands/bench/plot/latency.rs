//! How latencies are distributed: which part of the requests is answered by when, for each arm.

use super::axes::{self, Axis};
use super::scale::Scale;
use super::svg::{Anchor, INK, Stroke, Svg};
use super::{WIDTH, look, nothing};
use crate::commands::bench::figures::LEVELS;
use crate::commands::bench::summary::{ArmSummary, ProgramSummary};
use crate::quantity::approximate;
use detshare_api::Class;

/// Of the part for one program.
const HEIGHT: f64 = 470.0;
const LEFT: f64 = 112.0;
/// The names of the lines stand right of this.
const RIGHT: f64 = 760.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 410.0;
const LINE_HEIGHT: f64 = 20.0;
/// The place of 1 % among [`LEVELS`].
const FIRST_PERCENT: usize = 1;

/// Of which times the distribution is drawn.
pub(crate) struct Subject {
    title: &'static str,
    axis: &'static str,
    part: &'static str,
    /// At [`LEVELS`], in milliseconds.
    quantiles: fn(&ProgramSummary) -> Option<&Vec<f64>>,
}

pub(crate) const WHOLE: Subject = Subject {
    title: "requests answered within a time; left is better",
    axis: "latency, from arrival to answer (ms)",
    part: "part of the requests",
    quantiles: |program| program.quantiles_ms.as_ref(),
};
pub(crate) const TTFT: Subject = Subject {
    title: "first tokens within a time; left is better",
    axis: "TTFT, from arrival to the first token (ms)",
    part: "part of the requests",
    quantiles: |program| program.service.as_ref()?.ttft_quantiles_ms.as_ref(),
};
pub(crate) const TPOT: Subject = Subject {
    title: "further tokens within a time; left is better",
    axis: "TPOT, from a token to the next (ms)",
    part: "part of the tokens",
    quantiles: |program| program.service.as_ref()?.tpot_quantiles_ms.as_ref(),
};

/// A program's times in an arm.
struct Curve<'a> {
    arm: &'a str,
    /// At [`LEVELS`].
    quantiles_ms: &'a [f64],
}

pub(crate) fn draw(arms: &[ArmSummary], subject: &Subject) -> String {
    let mut programs: Vec<&str> = Vec::new();
    for program in arms.iter().flat_map(|arm| &arm.programs).filter(|program| program.class == Class::Latency) {
        if !programs.contains(&program.program) {
            programs.push(program.program);
        }
    }
    let panels: Vec<(&str, Vec<Curve<'_>>)> =
        programs.into_iter().map(|name| (name, curves(arms, name, subject))).collect();
    let panels: Vec<_> = panels.into_iter().filter(|(_, curves)| !curves.is_empty()).collect();
    if panels.is_empty() {
        return nothing("There are no latencies: no latency program was measured.");
    }
    let mut svg = Svg::new(WIDTH, HEIGHT * approximate(panels.len() as u64));
    for (number, (program, curves)) in panels.iter().enumerate() {
        draw_panel(&mut svg, program, curves, subject, HEIGHT * approximate(number as u64));
    }
    svg.finish()
}

fn curves<'a>(arms: &'a [ArmSummary], program: &str, subject: &Subject) -> Vec<Curve<'a>> {
    let curve = |arm: &'a ArmSummary| {
        let found = arm.programs.iter().find(|one| one.program == program)?;
        Some(Curve { arm: &arm.name, quantiles_ms: (subject.quantiles)(found)? })
    };
    arms.iter().filter_map(curve).collect()
}

fn draw_panel(svg: &mut Svg, program: &str, curves: &[Curve<'_>], subject: &Subject, top: f64) {
    // The few fastest would stretch the axis for nothing.
    let least = curves.iter().map(|curve| curve.quantiles_ms[FIRST_PERCENT]).filter(|value| *value > 0.0);
    let least = least.fold(f64::INFINITY, f64::min);
    let most = curves.iter().flat_map(|curve| curve.quantiles_ms).copied().fold(least, f64::max);
    if !least.is_finite() {
        return;
    }
    let x = Scale::logarithmic(least, most, LEFT, RIGHT);
    let y = Scale::linear(0.0, 100.0, top + BOTTOM, top + TOP);
    svg.text(LEFT, top + 22.0, Anchor::Start, INK, &format!("{program}: {}", subject.title));
    axes::draw(svg, Axis { scale: x, name: subject.axis, unit: "" }, Axis { scale: y, name: subject.part, unit: " %" });
    for (number, curve) in curves.iter().enumerate() {
        let (colour, dashes) = look(number);
        let stroke = Stroke { colour, width: 1.8, dashes };
        let points = LEVELS.iter().zip(curve.quantiles_ms);
        let points: Vec<(f64, f64)> =
            points.map(|(level, value)| (x.place(*value), y.place(approximate(*level as u64) / 10.0))).collect();
        svg.path(&points, stroke);
        let line = top + TOP + LINE_HEIGHT * (approximate(number as u64) + 0.5);
        svg.line((RIGHT + 16.0, line), (RIGHT + 44.0, line), stroke);
        svg.text(RIGHT + 52.0, line + 4.0, Anchor::Start, INK, curve.arm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::summary::summarise;
    use crate::commands::bench::summary::tests as examples;

    #[test]
    fn every_arm_has_a_line_and_a_name() {
        let runs = [examples::run("alone", 1, 1.0, 10.0, None), examples::run("mps", 1, 15.0, 9.0, None)];
        let text = draw(&summarise(&examples::arms(), &runs), &WHOLE);
        assert_eq!(text.matches("<polyline").count(), 2);
        for name in ["alone", "mps", "latency, from arrival to answer (ms)", "serve: requests"] {
            assert!(text.contains(name), "{name}");
        }
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn tokens_have_times_of_their_own() {
        let runs = [examples::llm_run("alone", 1, None, 10.0), examples::llm_run("mps", 1, None, 25.0)];
        let all = summarise(&examples::arms(), &runs);
        for (subject, name) in [(TTFT, "serve: first tokens"), (TPOT, "part of the tokens")] {
            let text = draw(&all, &subject);
            assert!(text.contains(name) && text.matches("<polyline").count() == 2, "{text}");
        }
        let others = summarise(&examples::arms(), &[examples::run("alone", 1, 1.0, 10.0, None)]);
        assert!(draw(&others, &TPOT).contains("no latencies"));
    }

    #[test]
    fn without_latencies_that_is_said() {
        assert!(draw(&[], &WHOLE).contains("no latencies"));
    }
}
