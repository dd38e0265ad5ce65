//! What tenants were seen to do: on which lane each was busy, and when launches were held.

use super::scale::{self, Scale};
use super::svg::{Anchor, FAINT, INK, Stroke, Svg, width_of};
use super::{COLOURS, WIDTH, nothing};
use crate::commands::bench::timeline::{Interval, TenantLine, Timeline};
use crate::quantity::approximate;

const LEFT: f64 = 120.0;
const RIGHT: f64 = 930.0;
const TOP: f64 = 44.0;
/// From one tenant to the next.
const ROW: f64 = 56.0;
const STRIP: f64 = 34.0;
/// At the foot of a strip, while a launch is held.
const HELD_STRIP: f64 = 9.0;
const HELD_COLOUR: &str = "#e08e0b";
const IDLE_COLOUR: &str = "#eeeeee";

pub(crate) fn draw(timeline: Option<&Timeline>) -> String {
    let Some(timeline) = timeline else {
        return nothing("There is no timeline: no arm of DetShare with several tenants was measured.");
    };
    let tenants = &timeline.tenants;
    let last = tenants.iter().filter_map(|line| line.intervals.last()).map(|last| last.to).fold(0.0, f64::max);
    let x = Scale::linear(0.0, last, LEFT, RIGHT);
    let lanes = lanes(tenants);
    let bottom = TOP + ROW * approximate(tenants.len() as u64);
    let mut svg = Svg::new(WIDTH, bottom + 90.0);
    let title = format!("What the tenants were seen to do, arm {}", timeline.arm);
    svg.text(LEFT, 22.0, Anchor::Start, INK, &title);
    for tick in x.ticks() {
        let at = x.place(tick);
        svg.line((at, TOP - 6.0), (at, bottom), Stroke::new(FAINT, 1.0));
        svg.text(at, bottom + 17.0, Anchor::Middle, INK, &scale::name(tick));
    }
    svg.line((LEFT, bottom), (RIGHT, bottom), Stroke::new(INK, 1.0));
    let name = format!(
        "seconds (looked at every {:.0} ms; shorter changes are not seen)",
        timeline.seconds_between_looks * 1e3
    );
    svg.text(f64::midpoint(LEFT, RIGHT), bottom + 38.0, Anchor::Middle, INK, &name);
    for (number, line) in tenants.iter().enumerate() {
        let top = TOP + ROW * approximate(number as u64);
        svg.text(LEFT - 10.0, top + STRIP / 2.0 + 4.0, Anchor::End, INK, &line.tenant);
        for interval in &line.intervals {
            draw_interval(&mut svg, interval, &lanes, x, top);
        }
    }
    draw_legend(&mut svg, &lanes, bottom + 66.0);
    svg.finish()
}

/// All lanes that were seen, the whole GPU first.
fn lanes(tenants: &[TenantLine]) -> Vec<&str> {
    let intervals = tenants.iter().flat_map(|line| &line.intervals);
    let mut lanes: Vec<&str> = intervals.filter_map(|interval| interval.lane.as_deref()).collect();
    lanes.sort_unstable();
    lanes.dedup();
    lanes.sort_by_key(|lane| *lane != "full");
    lanes
}

fn colour(lane: &str, lanes: &[&str]) -> &'static str {
    let place = lanes.iter().position(|one| *one == lane).unwrap_or(0);
    // The colour of held launches is theirs alone.
    let free: Vec<&'static str> = COLOURS.into_iter().filter(|colour| *colour != HELD_COLOUR).collect();
    free[place % free.len()]
}

fn draw_interval(svg: &mut Svg, interval: &Interval, lanes: &[&str], x: Scale, top: f64) {
    let (left, right) = (x.place(interval.from), x.place(interval.to));
    let fill = interval.lane.as_deref().map_or(IDLE_COLOUR, |lane| colour(lane, lanes));
    svg.rectangle(left, top, right - left, STRIP, fill);
    if interval.holding {
        svg.rectangle(left, top + STRIP - HELD_STRIP, right - left, HELD_STRIP, HELD_COLOUR);
    }
}

fn draw_legend(svg: &mut Svg, lanes: &[&str], y: f64) {
    let busy = lanes.iter().map(|lane| (colour(lane, lanes), format!("busy on {lane}")));
    let entries = busy.chain([(IDLE_COLOUR, "idle".to_string()), (HELD_COLOUR, "a launch is held".to_string())]);
    let mut left = LEFT;
    for (colour, text) in entries {
        svg.rectangle(left, y - 10.0, 14.0, 12.0, colour);
        svg.text(left + 19.0, y, Anchor::Start, INK, &text);
        left += 19.0 + width_of(&text) + 18.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenant_has_a_strip_and_every_lane_a_colour() {
        let line = |name: &str, lane: &str| TenantLine {
            tenant: name.to_string(),
            intervals: vec![
                Interval { from: 0.0, to: 0.05, lane: Some(lane.to_string()), holding: false },
                Interval { from: 0.05, to: 0.1, lane: None, holding: true },
            ],
        };
        let tenants = vec![line("serve", "front64"), line("train", "full")];
        let text = draw(Some(&Timeline { arm: "fair", seconds_between_looks: 0.05, tenants }));
        for name in ["serve", "train", "busy on front64", "busy on full", "a launch is held", "arm fair"] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(draw(None).contains("no timeline"));
    }
}
