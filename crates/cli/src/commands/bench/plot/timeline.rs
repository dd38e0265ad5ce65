//! What tenants did in a few hundredths of a second: steps of latency tenants, launches of the others on their lanes, and holds.

use super::scale::{self, Scale};
use super::svg::{Anchor, FAINT, INK, Stroke, Svg, width_of};
use super::{COLOURS, WIDTH, nothing};
use crate::commands::bench::timeline::{TenantLine, Timeline};
use crate::quantity::approximate;
use detshare_api::Class;
use std::collections::BTreeMap;

const LEFT: f64 = 90.0;
const RIGHT: f64 = 940.0;
const TOP: f64 = 48.0;
/// From one tenant to the next.
const ROW: f64 = 84.0;
const STRIP: f64 = 44.0;
/// Below a strip, while a launch is held.
const HELD_STRIP: f64 = 16.0;
const HELD_COLOUR: &str = "#e08e0b";
/// Behind all rows, while a latency tenant has a step.
const STEP_COLOUR: &str = "#ebeff6";
/// From one line of text to the next.
const LINE: f64 = 22.0;
/// What is shorter would not be seen.
const LEAST_WIDTH: f64 = 0.8;
/// Launches on a lane that are less than that apart, in milliseconds, are drawn as one: it is less than can be seen.
const NEAR: f64 = 0.03;

pub(crate) fn draw(timeline: Result<&Timeline, &str>) -> String {
    let timeline = match timeline {
        Ok(timeline) => timeline,
        Err(why) => return nothing(&format!("There is no timeline: {why}.")),
    };
    let tenants = &timeline.tenants;
    let x = Scale::linear(0.0, timeline.milliseconds, LEFT, RIGHT);
    let lanes = lanes(tenants);
    let bottom = TOP + ROW * approximate(tenants.len() as u64);
    let about: Vec<String> = tenants.iter().flat_map(in_words).collect();
    let mut svg = Svg::new(WIDTH, bottom + 82.0 + LINE * approximate(about.len() as u64));
    let title = format!("{} ms of the arm {}, tenant by tenant", scale::name(timeline.milliseconds), timeline.arm);
    svg.text(LEFT, 24.0, Anchor::Start, INK, &title);
    for line in tenants.iter().filter(|line| line.class == Class::Latency) {
        for (from, to) in &line.steps {
            bar(&mut svg, x, (*from, *to), (TOP - 6.0, bottom - TOP + 6.0), STEP_COLOUR);
        }
    }
    draw_axis(&mut svg, x, bottom);
    for (number, line) in tenants.iter().enumerate() {
        draw_tenant(&mut svg, line, &lanes, x, TOP + ROW * approximate(number as u64));
    }
    draw_legend(&mut svg, &lanes, bottom + 66.0);
    for (number, text) in about.iter().enumerate() {
        svg.text(LEFT, bottom + 66.0 + LINE * approximate(number as u64 + 1), Anchor::Start, INK, text);
    }
    svg.finish()
}

fn draw_axis(svg: &mut Svg, x: Scale, bottom: f64) {
    for tick in x.ticks() {
        let at = x.place(tick);
        svg.line((at, TOP - 6.0), (at, bottom), Stroke::new(FAINT, 1.0));
        svg.text(at, bottom + 17.0, Anchor::Middle, INK, &scale::name(tick));
    }
    svg.line((LEFT, bottom), (RIGHT, bottom), Stroke::new(INK, 1.0));
    svg.text(f64::midpoint(LEFT, RIGHT), bottom + 38.0, Anchor::Middle, INK, "ms");
}

/// A latency tenant's steps as they were, and what others launched, when it was expected to be on the GPU.
fn draw_tenant(svg: &mut Svg, line: &TenantLine, lanes: &[&str], x: Scale, top: f64) {
    svg.text(LEFT - 10.0, top + STRIP / 2.0 + 4.0, Anchor::End, INK, line.tenant);
    for (lane, from, to) in on_lanes(line) {
        bar(svg, x, (from, to), (top, STRIP), colour(lane, lanes));
    }
    for held in line.launches.iter().filter(|launch| launch.held > 0.0) {
        let (left, right) = (x.place(held.at - held.held), x.place(held.at));
        svg.hatched(left, top + STRIP + 4.0, (right - left).max(LEAST_WIDTH), HELD_STRIP, HELD_COLOUR);
    }
}

fn bar(svg: &mut Svg, x: Scale, (from, to): (f64, f64), (top, height): (f64, f64), colour: &str) {
    let (left, right) = (x.place(from), x.place(to));
    svg.rectangle(left, top, (right - left).max(LEAST_WIDTH), height, colour);
}

/// What the tenant had on which lane, from when to when.
fn on_lanes(line: &TenantLine) -> Vec<(&str, f64, f64)> {
    if line.class == Class::Latency {
        let lane_at = |from: f64, to: f64| line.launches.iter().find(|launch| (from..=to).contains(&launch.at));
        let step = |&(from, to): &(f64, f64)| (lane_at(from, to).map_or(FULL, |launch| launch.lane.as_str()), from, to);
        return line.steps.iter().map(step).collect();
    }
    let mut spans: Vec<(&str, f64, f64)> = Vec::new();
    for launch in &line.launches {
        let (from, to) = launch.on_gpu();
        match spans.last_mut() {
            Some((lane, begin, end)) if *lane == launch.lane && from >= *begin && from - *end < NEAR => {
                *end = end.max(to)
            }
            _ => spans.push((launch.lane.as_str(), from, to)),
        }
    }
    spans
}

/// The lane of those who share with nobody.
const FULL: &str = "full";

/// All lanes that were used, the whole GPU first.
fn lanes(tenants: &[TenantLine]) -> Vec<&str> {
    let mut lanes: Vec<&str> = tenants.iter().flat_map(on_lanes).map(|(lane, ..)| lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes.sort_by_key(|lane| *lane != FULL);
    lanes
}

fn colour(lane: &str, lanes: &[&str]) -> &'static str {
    let place = lanes.iter().position(|one| *one == lane).unwrap_or(0);
    // The colour of held launches is theirs alone.
    let free: Vec<&'static str> = COLOURS.into_iter().filter(|colour| *colour != HELD_COLOUR).collect();
    free[place % free.len()]
}

fn draw_legend(svg: &mut Svg, lanes: &[&str], y: f64) {
    let mut left = LEFT;
    let mut entry = |text: &str, draw: &dyn Fn(&mut Svg, f64)| {
        draw(svg, left);
        svg.text(left + 19.0, y, Anchor::Start, INK, text);
        left += 19.0 + width_of(text) + 18.0;
    };
    for lane in lanes {
        entry(&format!("on {lane}"), &|svg, left| svg.rectangle(left, y - 10.0, 14.0, 12.0, colour(lane, lanes)));
    }
    entry("a launch is held", &|svg, left| svg.hatched(left, y - 10.0, 14.0, 12.0, HELD_COLOUR));
    entry("a latency tenant's step", &|svg, left| svg.rectangle(left, y - 10.0, 14.0, 12.0, STEP_COLOUR));
}

/// `train: 1 step, 214 launches, 9 of them held for 21.3 ms in all`, and a line for each reason.
fn in_words(line: &TenantLine) -> Vec<String> {
    let held: Vec<_> = line.launches.iter().filter(|launch| launch.held > 0.0).collect();
    let (steps, launches) = (line.steps.len(), line.launches.len());
    let done = format!("{}: {steps} {}, {launches} launches", line.tenant, if steps == 1 { "step" } else { "steps" });
    if held.is_empty() {
        return vec![format!("{done}, none held")];
    }
    let for_ms: f64 = held.iter().map(|launch| launch.held).sum();
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for launch in &held {
        *reasons.entry(launch.held_for.unwrap_or("nobody knows why")).or_default() += 1;
    }
    let all = format!("{done}, {} of them held for {for_ms:.1} ms in all", held.len());
    std::iter::once(all).chain(reasons.into_iter().map(|(reason, count)| format!("– {count}: {reason}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::bench::timeline::tests::example;

    /// `DETSHARE_BLESS=1` writes the drawing anew; look at it then.
    #[test]
    fn the_drawing_of_an_example() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/bench/plot/timeline.svg");
        let drawn = draw(Ok(&example()));
        if std::env::var_os("DETSHARE_BLESS").is_some() {
            std::fs::write(file, &drawn).unwrap();
        }
        assert_eq!(drawn, std::fs::read_to_string(file).unwrap());
    }

    #[test]
    fn every_step_is_a_bar_of_its_own_and_every_hold_is_hatched() {
        let timeline = example();
        let text = draw(Ok(&timeline));
        let [serve, train] = &timeline.tenants[..] else { panic!("{timeline:?}") };
        assert_eq!(on_lanes(serve).len(), 10);
        assert_eq!(text.matches(STEP_COLOUR).count(), 10 + 1, "behind all rows, and in the legend");
        // Two of three launches follow each other on one lane.
        let spans: Vec<_> = on_lanes(train).into_iter().filter(|(_, from, _)| (2.0..8.0).contains(from)).collect();
        assert_eq!(spans, [("full", 2.25, 3.15), ("front32", 3.8, 6.3)]);
        assert_eq!(text.matches("url(#hatched)").count(), 10 + 1);
        for words in ["60 ms of the arm slo-aware", "on full", "on front32", "serve: 10 steps, 10 launches, none held"]
        {
            assert!(text.contains(words), "{words}: {text}");
        }
        for words in ["10 of them held for 14.5 ms in all", "10: a step is due before it would be over"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(draw(Err("it rains")).contains("There is no timeline: it rains."));
    }
}
