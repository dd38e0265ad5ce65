//! What LLM servers achieve at which load: requests a second that keep to both objectives, a line for each arm.

use super::axes::{self, Axis};
use super::scale::Scale;
use super::svg::{Anchor, INK, Stroke, Svg};
use super::{WIDTH, look};
use crate::commands::bench::summary::ArmSummary;
use crate::quantity::approximate;

const HEIGHT: f64 = 470.0;
const LEFT: f64 = 112.0;
/// The names of the lines stand right of this.
const RIGHT: f64 = 760.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 410.0;
const LINE_HEIGHT: f64 = 20.0;
const MARK_RADIUS: f64 = 4.0;

/// Whether arms ran at several loads.
pub(crate) fn has_loads(arms: &[ArmSummary]) -> bool {
    let mut loads = arms.iter().filter_map(|arm| arm.load);
    loads.next().is_some_and(|first| loads.any(|load| load != first))
}

/// All servers of an arm together, by load.
fn points(arms: &[ArmSummary], name: &str) -> Vec<(f64, f64)> {
    let point = |arm: &ArmSummary| {
        let servers = arm.programs.iter().filter_map(|program| program.service.as_ref());
        let goodput: Option<Vec<f64>> = servers.map(|service| Some(service.goodput?.median)).collect();
        Some((arm.load?, goodput.filter(|all| !all.is_empty())?.iter().sum()))
    };
    arms.iter().filter(|arm| arm.arm == name).filter_map(point).collect()
}

pub(crate) fn draw(arms: &[ArmSummary]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for arm in arms {
        if !names.contains(&arm.arm) {
            names.push(arm.arm);
        }
    }
    let lines: Vec<(&str, Vec<(f64, f64)>)> = names.into_iter().map(|name| (name, points(arms, name))).collect();
    let lines: Vec<_> = lines.into_iter().filter(|(_, points)| !points.is_empty()).collect();
    let all = || lines.iter().flat_map(|(_, points)| points);
    let x = Scale::linear(0.0, all().map(|point| point.0).fold(0.1, f64::max), LEFT, RIGHT);
    let y = Scale::linear(0.0, all().map(|point| point.1).fold(0.1, f64::max), BOTTOM, TOP);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text(LEFT, 22.0, Anchor::Start, INK, "Requests that keep to both objectives, of all servers; above is better");
    axes::draw(
        &mut svg,
        Axis { scale: x, name: "load: part of the time in which the servers are busy alone", unit: "" },
        Axis { scale: y, name: "goodput (requests a second)", unit: "" },
    );
    for (number, (name, points)) in lines.iter().enumerate() {
        let (colour, dashes) = look(number);
        let stroke = Stroke { colour, width: 1.8, dashes };
        let places: Vec<(f64, f64)> = points.iter().map(|(load, rate)| (x.place(*load), y.place(*rate))).collect();
        svg.path(&places, stroke);
        for place in places {
            svg.circle(place.0, place.1, MARK_RADIUS, colour);
        }
        let line = TOP + LINE_HEIGHT * (approximate(number as u64) + 0.5);
        svg.line((RIGHT + 16.0, line), (RIGHT + 44.0, line), stroke);
        svg.text(RIGHT + 52.0, line + 4.0, Anchor::Start, INK, name);
    }
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::summary::summarise;
    use crate::commands::bench::summary::tests as examples;

    #[test]
    fn a_line_for_each_arm_over_the_loads() {
        let run = |arm, load, gap| examples::llm_run(arm, 1, Some(load), gap);
        let runs = [run("alone", 0.3, 10.0), run("mps", 0.3, 15.0), run("alone", 0.7, 12.0), run("mps", 0.7, 25.0)];
        let all = summarise(&examples::arms(), &runs);
        assert!(has_loads(&all));
        let text = draw(&all);
        assert_eq!((text.matches("<polyline").count(), text.matches("<circle").count()), (2, 4));
        assert!(text.contains(">mps</text>") && !text.contains("NaN"), "{text}");
        assert!(!has_loads(&summarise(&examples::arms(), &runs[..2])), "one load is no line");
    }
}
