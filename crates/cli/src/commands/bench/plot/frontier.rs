//! What sharing costs the latency programs against what it gives the others: a point for each arm.

use super::axes::{self, Axis};
use super::labels::{self, Area};
use super::scale::Scale;
use super::svg::{Anchor, INK, Stroke, Svg};
use super::{WIDTH, look, nothing};
use crate::commands::bench::summary::{ArmSummary, ProgramSummary, Spread};
use crate::quantity::approximate;
use detshare_api::Class;

const HEIGHT: f64 = 560.0;
const LEFT: f64 = 112.0;
const RIGHT: f64 = 930.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 500.0;
/// In percent. Overheads up to this, and gains, are drawn at the edge: rounds of one arm differ by as much.
const LEAST_OVERHEAD: f64 = 1.0;
const MARK_RADIUS: f64 = 5.5;
/// Names further from their point than this are tied to it.
const TIED_FROM: f64 = 14.0;

/// An arm on the paper; all in percent.
#[derive(Debug, Clone)]
struct Point<'a> {
    arm: &'a ArmSummary,
    x: Spread,
    y: Spread,
}

pub(crate) fn draw(arms: &[ArmSummary]) -> String {
    let has_latency = arms.iter().flat_map(|arm| &arm.programs).any(|program| program.class == Class::Latency);
    let points: Vec<Point<'_>> = arms.iter().filter_map(|arm| point(arm, has_latency)).collect();
    let has_best_effort = arms.iter().flat_map(|arm| &arm.programs).any(|program| program.class == Class::BestEffort);
    if has_latency && !has_best_effort {
        return nothing("There is no best-effort program that gains from sharing.");
    }
    if points.is_empty() {
        return nothing("There is nothing to compare: no arm ran beside alone.");
    }
    let widest = points.iter().map(|point| point.x.max).fold(100.0, f64::max);
    let highest = points.iter().map(|point| point.y.max).fold(if has_latency { 10.0 } else { 100.0 }, f64::max);
    let x = Scale::linear(0.0, widest, LEFT, RIGHT);
    let y = if has_latency {
        Scale::logarithmic(LEAST_OVERHEAD, highest, BOTTOM, TOP)
    } else {
        Scale::linear(0.0, highest, BOTTOM, TOP)
    };
    let [x_name, y_name] = names(arms, has_latency);
    let mut svg = Svg::new(WIDTH, HEIGHT);
    svg.text(LEFT, 22.0, Anchor::Start, INK, title(has_latency));
    axes::draw(&mut svg, Axis { scale: x, name: &x_name, unit: " %" }, Axis { scale: y, name: &y_name, unit: " %" });
    let levels = draw_levels(&mut svg, &points, x, y);
    draw_points(&mut svg, &points, levels, x, y);
    svg.finish()
}

fn title(has_latency: bool) -> &'static str {
    if has_latency {
        "What sharing costs against what it gives; right and below is better. Thin lines: smallest to largest of the rounds"
    } else {
        "What each program keeps of its speed; right and above is better. Thin lines: smallest to largest of the rounds"
    }
}

fn names(arms: &[ArmSummary], has_latency: bool) -> [String; 2] {
    if has_latency {
        let x = "best-effort programs: steps a second, as part of alone (mean)";
        let is_llm = arms.iter().flat_map(|arm| &arm.programs).any(|program| program.service.is_some());
        let what = if is_llm { "p99 of TPOT" } else { "p99" };
        return [x.to_string(), format!("{what} added to that alone (1 % and less at the edge)")];
    }
    let programs = arms.iter().find(|arm| arm.programs.len() > 1).map(|arm| arm.programs.as_slice());
    let name = |place: usize| programs.and_then(|all| all.get(place)).map_or("a program", |program| program.program);
    [0, 1].map(|place| format!("{}: steps a second, as part of alone", name(place)))
}

fn point(arm: &ArmSummary, has_latency: bool) -> Option<Point<'_>> {
    if !has_latency {
        let [first, second] = arm.programs.get(..2)? else { return None };
        return Some(Point { arm, x: in_percent(first.share?), y: in_percent(second.share?) });
    }
    let spread = |class: Class, value: fn(&ProgramSummary) -> Option<Spread>| -> Option<Vec<Spread>> {
        arm.programs.iter().filter(|program| program.class == class).map(value).collect()
    };
    let overheads = spread(Class::Latency, ProgramSummary::tail_overhead)?;
    let worst = overheads.into_iter().max_by(|one, other| one.median.total_cmp(&other.median))?;
    let shares = spread(Class::BestEffort, |program| program.share)?;
    let mean = |figure: fn(&Spread) -> f64| shares.iter().map(figure).sum::<f64>() / approximate(shares.len() as u64);
    let rounds = shares.first()?.rounds;
    let share = Spread { median: mean(|one| one.median), min: mean(|one| one.min), max: mean(|one| one.max), rounds };
    Some(Point { arm, x: in_percent(share), y: in_percent(worst) })
}

fn in_percent(part: Spread) -> Spread {
    part.map(|part| part * 1e2)
}

/// A line through the levels of aggressiveness of an arm; returns what it covers.
fn draw_levels(svg: &mut Svg, points: &[Point<'_>], x: Scale, y: Scale) -> Vec<Area> {
    let mut levels: Vec<(f64, f64, f64)> = points
        .iter()
        .filter_map(|point| Some((point.arm.aggressiveness?, x.place(point.x.median), y.place(point.y.median))))
        .collect();
    levels.sort_by(|one, other| one.0.total_cmp(&other.0));
    let places: Vec<(f64, f64)> = levels.into_iter().map(|(_, x, y)| (x, y)).collect();
    if places.len() > 1 {
        svg.path(&places, Stroke { colour: "#888888", width: 1.5, dashes: "5 3" });
    }
    places.windows(2).flat_map(|pair| along(pair[0], pair[1])).collect()
}

/// Small areas that lie close together on the way from one place to another.
fn along(from: (f64, f64), to: (f64, f64)) -> Vec<Area> {
    const PARTS: u32 = 40;
    let part = |number: u32| f64::from(number) / f64::from(PARTS);
    let place = |part: f64| (from.0 + (to.0 - from.0) * part, from.1 + (to.1 - from.1) * part);
    let area = |(left, top): (f64, f64)| Area { left, top, width: 2.0, height: 2.0 };
    (0..=PARTS).map(|number| area(place(part(number)))).collect()
}

/// Their names avoid each other and, where there is room, `lines`.
fn draw_points(svg: &mut Svg, points: &[Point<'_>], mut lines: Vec<Area>, x: Scale, y: Scale) {
    let places: Vec<(f64, f64)> =
        points.iter().map(|point| (x.place(point.x.median), y.place(point.y.median))).collect();
    for (number, (point, place)) in points.iter().zip(&places).enumerate() {
        let (colour, _) = look(number);
        let across = ((x.place(point.x.min), place.1), (x.place(point.x.max), place.1));
        let along = ((place.0, y.place(point.y.max)), (place.0, y.place(point.y.min)));
        for (from, to) in [across, along] {
            svg.line(from, to, Stroke::new(colour, 1.0));
            lines.push(Area { left: from.0, top: from.1, width: to.0 - from.0 + 1.0, height: to.1 - from.1 + 1.0 });
        }
        svg.circle(place.0, place.1, MARK_RADIUS, colour);
    }
    let names: Vec<&str> = points.iter().map(|point| point.arm.name.as_str()).collect();
    let paper = Area { left: LEFT + 2.0, top: TOP, width: RIGHT - LEFT + 26.0, height: BOTTOM - TOP - 2.0 };
    for (number, area) in labels::place(&places, &names, &lines, paper).into_iter().enumerate() {
        let (colour, _) = look(number);
        if area.distance(places[number]) > TIED_FROM {
            svg.line(places[number], area.nearest(places[number]), Stroke::new(colour, 0.7));
        }
        let (left, baseline) = area.baseline();
        svg.text(left, baseline, Anchor::Start, colour, names[number]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::summary::summarise;
    use crate::commands::bench::summary::tests as examples;

    #[test]
    fn every_arm_with_figures_is_a_named_point() {
        let runs = [
            examples::run("alone", 1, 1.0, 10.0, None),
            examples::run("mps", 1, 15.0, 9.0, None),
            examples::run("fair", 1, 1.1, 5.0, Some(0.0)),
        ];
        let mut runs = runs.to_vec();
        let mut more = examples::run("fair", 1, 1.3, 7.0, Some(1.0));
        runs[2].stretches.append(&mut more.stretches);
        let text = draw(&summarise(&examples::arms(), &runs));
        for name in ["alone", "mps", "fair@0", "fair@1"] {
            assert!(text.contains(&format!(">{name}</text>")), "{name}: {text}");
        }
        assert_eq!(text.matches("<circle").count(), 4);
        assert_eq!(text.matches("<polyline").count(), 1, "one line over the levels");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }

    #[test]
    fn nothing_to_compare_is_said() {
        assert!(draw(&[]).contains("nothing to compare"));
    }
}
