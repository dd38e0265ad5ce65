//! The plots: what sharing costs against what it gives, how latencies are distributed, and what tenants did when.

mod axes;
mod frontier;
mod labels;
mod latency;
mod scale;
mod svg;
mod timeline;

pub(crate) use svg::escape;

use super::report::Report;

/// All plots, as SVG.
#[derive(Debug)]
pub(crate) struct Plots {
    pub(crate) frontier: String,
    pub(crate) latency: String,
    pub(crate) timeline: String,
}

impl Plots {
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            frontier: frontier::draw(&report.arms),
            latency: latency::draw(&report.arms),
            timeline: timeline::draw(report.timeline.as_ref()),
        }
    }

    /// With the names of their files.
    pub(crate) fn files(&self) -> [(&'static str, &String); 3] {
        [("frontier.svg", &self.frontier), ("latency.svg", &self.latency), ("timeline.svg", &self.timeline)]
    }
}

/// Colours that can be told apart, on white and by most people.
const COLOURS: [&str; 10] =
    ["#1f4e9c", "#d1495b", "#2e8b57", "#e08e0b", "#7b4ea3", "#00889e", "#8a5a2b", "#d6609e", "#5f6b73", "#98a800"];
/// For when there are no colours left.
const DASHES: [&str; 3] = ["", "7 4", "2 3"];

/// What a line or point with that number looks like: colour and dashes.
fn look(number: usize) -> (&'static str, &'static str) {
    (COLOURS[number % COLOURS.len()], DASHES[number / COLOURS.len() % DASHES.len()])
}

/// A plot of which there is nothing to draw.
fn nothing(why: &str) -> String {
    let mut svg = svg::Svg::new(WIDTH, 80.0);
    svg.text(WIDTH / 2.0, 44.0, svg::Anchor::Middle, svg::INK, why);
    svg.finish()
}

/// Of every plot.
const WIDTH: f64 = 960.0;
